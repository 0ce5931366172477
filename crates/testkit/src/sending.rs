//! A reply on its way to a client.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::pending;
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Frame as BodyFrame;

use crate::counter::Counter;
use crate::reply::{Answer, Reply, Step, Usage};
use crate::traffic::Place;
use crate::wire::{self, Frame, Wire};

pub(crate) type Body =
    Either<Full<Bytes>, StreamBody<BoxStream<'static, io::Result<BodyFrame<Bytes>>>>>;

/// A reply with what was encoded for it, so that a default reply is encoded once.
pub(crate) struct Prepared {
    pub reply: Reply,
    frames: [OnceLock<Arc<[Frame]>>; Wire::ALL.len()],
    whole: [OnceLock<Bytes>; Wire::ALL.len()],
}

/// What the frames of a reply depend on beside the reply.
pub(crate) struct Asked<'a> {
    pub wire: Wire,
    /// What an echo repeats.
    pub said: &'a str,
    pub is_document: bool,
    /// What to report instead of the reply's own usage.
    pub usage: Option<Usage>,
}

impl Prepared {
    pub fn new(reply: Reply) -> Self {
        Self { reply, frames: Default::default(), whole: Default::default() }
    }

    pub fn frames(&self, asked: &Asked<'_>) -> Arc<[Frame]> {
        let usage = asked.usage.unwrap_or(self.reply.usage);
        let encode =
            || wire::frames(&self.reply, asked.wire, asked.said, usage, asked.is_document).into();
        let depends_on_request = asked.is_document || asked.usage.is_some();
        match self.reply.answer {
            Answer::Echo => encode(),
            _ if depends_on_request => encode(),
            _ => self.frames[asked.wire as usize].get_or_init(encode).clone(),
        }
    }

    /// The complete body of a text in one piece, with which nothing happens that takes time.
    pub fn whole(&self, wire: Wire) -> Option<Bytes> {
        let Reply {
            answer: Answer::Stream(steps),
            gate: None,
            chunk_delay: None,
            piece_bytes: None,
            is_document: false,
            ..
        } = &self.reply
        else {
            return None;
        };
        let [Step::Text(_)] = steps.as_slice() else { return None };
        let asked = Asked { wire, said: "", is_document: false, usage: None };
        let join =
            || self.frames(&asked).iter().filter_map(Frame::bytes).flatten().copied().collect();
        Some(self.whole[wire as usize].get_or_init(join).clone())
    }
}

/// A body that is being sent.
pub(crate) struct Sending {
    pub frames: Arc<[Frame]>,
    pub usage_asked: bool,
    pub delay: Option<Duration>,
    pub serving: Serving,
}

impl Sending {
    pub fn body(self) -> Body {
        Either::Right(StreamBody::new(stream::unfold((self, 0), send_next).boxed()))
    }
}

async fn send_next(
    (mut sending, mut next): (Sending, usize),
) -> Option<(io::Result<BodyFrame<Bytes>>, (Sending, usize))> {
    loop {
        let frame = sending.frames.get(next)?.clone();
        next += 1;
        match frame {
            Frame::UsageIfAsked(_) if !sending.usage_asked => {}
            Frame::Bytes(bytes) | Frame::UsageIfAsked(bytes) => {
                if let Some(delay) = sending.delay {
                    tokio::time::sleep(delay).await;
                }
                // The client may hang up as soon as it has the last event.
                sending.serving.at_end = next == sending.frames.len();
                return Some((Ok(BodyFrame::data(bytes)), (sending, next)));
            }
            Frame::Wait(gate) => gate.opened().await,
            Frame::Hang => pending().await,
            Frame::Cut => {
                // What was sent so far is flushed while this body has nothing to give; only then is the error raised.
                tokio::task::yield_now().await;
                sending.serving.ends();
                let broken = io::Error::from(io::ErrorKind::ConnectionAborted);
                return Some((Err(broken), (sending, next)));
            }
        }
    }
}

/// A request that is being served. One that is dropped before its end is counted: hyper drops it when the client closes
/// the connection.
pub(crate) struct Serving {
    place: Option<Place>,
    disconnects: Arc<Counter>,
    at_end: bool,
}

impl Serving {
    pub fn new(place: Place, disconnects: Arc<Counter>) -> Self {
        Self { place: Some(place), disconnects, at_end: false }
    }

    /// The client may go without being missed.
    pub fn ends(&mut self) {
        self.at_end = true;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // First, since who waits for the disconnect may count on the place.
        drop(self.place.take());
        if !self.at_end {
            self.disconnects.add();
        }
    }
}
