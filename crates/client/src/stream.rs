//! The answer to a `send` as it is made.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use nexus_protocol::CallError;
use nexus_protocol::envelope::Outgoing;
use nexus_protocol::stream::{
    Event, STREAM_DATA, STREAM_END, STREAM_EVENT, STREAM_START, StreamData, StreamEnd, StreamStart,
};
use nexus_protocol::turn::SendResult;
use nexus_sse::{Decoder, TooLong};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::answer;
use crate::http::ANSWER_BYTES_MAX;

/// What happens in a streamed turn, in order, up to `Done` or an error. Dropping it closes the connection, which
/// cancels the turn.
pub struct SendStream {
    id: u64,
    state: State,
    /// When to give up, and how long that was from the start.
    deadline: Option<(Instant, Duration)>,
}

#[derive(Debug)]
pub enum StreamItem {
    Start {
        stream_id: String,
    },
    /// The next piece of the answer's text.
    Text(String),
    Event(Event),
    /// A kind of event that this client does not know yet.
    Unknown(Box<RawValue>),
    End {
        total_chunks: u64,
    },
    /// The whole answer; nothing comes after it.
    Done(SendResult),
}

enum State {
    Open(Box<(Incoming, Decoder)>),
    /// The server answered without a stream.
    Answered(Box<SendResult>),
    Over,
}

impl SendStream {
    pub(crate) fn new(id: u64, body: Incoming, timeout: Option<Duration>) -> Self {
        let deadline = timeout.map(|timeout| (Instant::now() + timeout, timeout));
        // The last event is the whole answer, so it may be as long as one.
        let events = Decoder::new(ANSWER_BYTES_MAX);
        Self { id, state: State::Open(Box::new((body, events))), deadline }
    }

    pub(crate) fn answered(result: SendResult) -> Self {
        Self { id: 0, state: State::Answered(Box::new(result)), deadline: None }
    }

    /// The next item; `None` after `Done` or an error. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Result<StreamItem, CallError>> {
        let item = match self.deadline {
            None => self.read().await,
            Some((at, limit)) => match tokio::time::timeout_at(at, self.read()).await {
                Ok(item) => item,
                Err(_) => Some(Err(CallError::Timeout(limit))),
            },
        };
        if matches!(item, Some(Ok(StreamItem::Done(_)) | Err(_))) {
            self.state = State::Over;
        }
        item
    }

    async fn read(&mut self) -> Option<Result<StreamItem, CallError>> {
        let (body, events) = match &mut self.state {
            State::Open(open) => &mut **open,
            State::Over => return None,
            State::Answered(_) => {
                let State::Answered(result) = std::mem::replace(&mut self.state, State::Over)
                else {
                    return None;
                };
                return Some(Ok(StreamItem::Done(*result)));
            }
        };
        loop {
            match events.next_event() {
                Ok(Some(data)) => return Some(item(data, self.id)),
                Ok(None) => {}
                Err(TooLong) => {
                    let why = format!("an event is over {ANSWER_BYTES_MAX} bytes");
                    return Some(Err(CallError::Answer(why)));
                }
            }
            let lost = match body.frame().await {
                Some(Ok(frame)) => {
                    frame.data_ref().into_iter().for_each(|bytes| events.push(bytes));
                    continue;
                }
                Some(Err(error)) => answer::cause(&error),
                None => "the stream ended before the answer".into(),
            };
            return Some(Err(CallError::Transport(lost)));
        }
    }
}

/// What one message of the stream says.
fn item(message: &[u8], id: u64) -> Result<StreamItem, CallError> {
    let message = answer::envelope(message)?;
    match message.method.as_deref() {
        None => answer::result(message, id).map(StreamItem::Done),
        Some(STREAM_START) => {
            let start: StreamStart = params(&message)?;
            Ok(StreamItem::Start { stream_id: start.stream_id.into_owned() })
        }
        Some(STREAM_DATA) => {
            let data: StreamData = params(&message)?;
            Ok(StreamItem::Text(data.chunk.into_owned()))
        }
        Some(STREAM_END) => {
            let end: StreamEnd = params(&message)?;
            Ok(StreamItem::End { total_chunks: end.total_chunks })
        }
        Some(STREAM_EVENT) => {
            let EventParams { event } = params(&message)?;
            Ok(match serde_json::from_str(event.get()) {
                Ok(event) => StreamItem::Event(event),
                Err(_) => StreamItem::Unknown(event),
            })
        }
        Some(_) => params(&message).map(StreamItem::Unknown),
    }
}

fn params<'a, P: Deserialize<'a>>(message: &Outgoing<'a>) -> Result<P, CallError> {
    serde_json::from_str(message.params.map_or("{}", RawValue::get))
        .map_err(|error| CallError::Answer(format!("a stream's notification: {error}")))
}

/// The event is read by itself, so that one of a kind from a newer server is passed on.
#[derive(Deserialize)]
struct EventParams {
    event: Box<RawValue>,
}
