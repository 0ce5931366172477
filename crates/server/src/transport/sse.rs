//! An answer that arrives in pieces: server-sent events whose last one is the response.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio_util::sync::DropGuard;

use super::places::Busy;
use super::{Worker, finished, laden};
use crate::dispatcher::Reply;
use crate::outbox::Peer;

pub struct Events {
    peer: Arc<Peer>,
    phase: Phase,
    /// Tells the call that its peer is gone when hyper drops this body.
    _closed: DropGuard,
    _busy: Busy,
}

/// How far the call is.
pub enum Phase {
    Running(Worker),
    /// The reply, which waits until all notifications are out.
    Replied(Reply),
    Ended,
}

impl Events {
    pub fn new(peer: Arc<Peer>, phase: Phase, closed: DropGuard, busy: Busy) -> Self {
        Self { peer, phase, _closed: closed, _busy: busy }
    }

    /// The frame of what is waiting, if anything is.
    fn poll_notifications(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let mut frame = Vec::new();
        ready!(self.peer.outbox.poll_take(cx, |message| write_event(&mut frame, message)));
        Poll::Ready(frame.into())
    }
}

/// One event holding `message`, which is compact JSON and so has no line breaks.
fn write_event(out: &mut Vec<u8>, message: &[u8]) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(message);
    out.extend_from_slice(b"\n\n");
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Poll::Ready(frame) = self.poll_notifications(cx) {
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            match &mut self.phase {
                // Look at the queue once more: the call may have filled it just before it ended.
                Phase::Running(worker) => {
                    let reply = finished(ready!(Pin::new(worker).poll(cx)));
                    self.phase = Phase::Replied(reply);
                }
                Phase::Replied(reply) => {
                    let (body, load) = (reply.body.take(), reply.load.take());
                    self.phase = Phase::Ended;
                    let mut frame = Vec::new();
                    if let Some(body) = body {
                        write_event(&mut frame, &body);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(laden(frame, load)))));
                }
                Phase::Ended => return Poll::Ready(None),
            }
        }
    }
}
