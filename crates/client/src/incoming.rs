//! The messages that come back while a call is open, whichever way it was sent.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming as Body;
use nexus_protocol::CallError;
use nexus_sse::{Decoder, TooLong};

use crate::channel::Subscription;
use crate::http::ANSWER_BYTES_MAX;
use crate::outgoing;
use crate::unix::Connection;

/// Where they come from. Dropping it closes the connection, or ends the watch where others share that.
pub(crate) enum Incoming {
    Events(Box<(Body, Decoder)>),
    Frames(Box<Connection>),
    /// One of many on a connection, which stays.
    Channel(Subscription),
    /// The server answered at once; `None` when that was read.
    Answer(Option<Bytes>),
}

impl Incoming {
    pub fn events(body: Body) -> Self {
        // The last event is the whole answer, so it may be as long as one.
        Self::Events(Box::new((body, Decoder::new(ANSWER_BYTES_MAX))))
    }

    /// The next message. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Result<BytesMut, CallError> {
        let lost = |why: String| Err(CallError::Transport(why));
        match self {
            Self::Events(open) => next_event(&mut open.0, &mut open.1).await,
            Self::Frames(connection) => match connection.next().await {
                Some(Ok(frame)) => Ok(frame),
                Some(Err(error)) => lost(error.to_string()),
                None => lost(ENDED.into()),
            },
            Self::Channel(subscription) => subscription.next().await,
            Self::Answer(answer) => match answer.take() {
                Some(answer) => Ok(answer.into()),
                None => lost(ENDED.into()),
            },
        }
    }
}

const ENDED: &str = "the stream ended before the answer";

async fn next_event(body: &mut Body, events: &mut Decoder) -> Result<BytesMut, CallError> {
    loop {
        match events.next_event() {
            Ok(Some(data)) => return Ok(data.into()),
            Ok(None) => {}
            Err(TooLong) => {
                let why = format!("an event is over {ANSWER_BYTES_MAX} bytes");
                return Err(CallError::Answer(why));
            }
        }
        let lost = match body.frame().await {
            Some(Ok(frame)) => {
                frame.data_ref().into_iter().for_each(|bytes| events.push(bytes));
                continue;
            }
            Some(Err(error)) => outgoing::cause(&error),
            None => ENDED.into(),
        };
        return Err(CallError::Transport(lost));
    }
}
