//! The answer to a `send` as it is made.

use std::time::Duration;

use nexus_protocol::CallError;
use nexus_protocol::stream::{
    Event, STREAM_DATA, STREAM_END, STREAM_EVENT, STREAM_START, StreamData, StreamEnd, StreamStart,
};
use nexus_protocol::turn::SendResult;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::answer;
use crate::incoming::{Incoming, params};

/// What happens in a streamed turn, in order, up to `Done` or an error. Dropping it closes the connection, which
/// cancels the turn.
pub struct SendStream {
    id: u64,
    incoming: Option<Incoming>,
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

impl SendStream {
    pub(crate) fn new(id: u64, incoming: Incoming, timeout: Option<Duration>) -> Self {
        let deadline = timeout.map(|timeout| (Instant::now() + timeout, timeout));
        Self { id, incoming: Some(incoming), deadline }
    }

    /// The next item; `None` after `Done` or an error. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Result<StreamItem, CallError>> {
        let reading = self.incoming.as_mut()?.next();
        let message = match self.deadline {
            None => reading.await,
            Some((at, limit)) => match tokio::time::timeout_at(at, reading).await {
                Ok(message) => message,
                Err(_) => Err(CallError::Timeout(limit)),
            },
        };
        let item = message.and_then(|message| item(&message, self.id));
        if matches!(item, Ok(StreamItem::Done(_)) | Err(_)) {
            self.incoming = None;
        }
        Some(item)
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

/// The event is read by itself, so that one of a kind from a newer server is passed on.
#[derive(Deserialize)]
struct EventParams {
    event: Box<RawValue>,
}
