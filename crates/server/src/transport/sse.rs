//! An answer that arrives in pieces: server-sent events whose last one is the response.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep};
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
    /// When to say that somebody is still there.
    pulse: Pin<Box<Sleep>>,
}

/// A stream says something at least this often, so that nobody in between takes it for dead.
const PULSE: Duration = Duration::from_secs(15);

/// A comment, which readers pass over.
const ALIVE: &[u8] = b": alive\n\n";

/// How far the call is.
pub enum Phase {
    Running(Worker),
    /// The reply, which waits until all notifications are out.
    Replied(Reply),
    Ended,
}

impl Events {
    pub fn new(peer: Arc<Peer>, phase: Phase, closed: DropGuard, busy: Busy) -> Self {
        let pulse = Box::pin(tokio::time::sleep(PULSE));
        Self { peer, phase, _closed: closed, _busy: busy, pulse }
    }

    fn beat(&mut self) {
        self.pulse.as_mut().reset(Instant::now() + PULSE);
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
                self.beat();
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            match &mut self.phase {
                // Look at the queue once more: the call may have filled it just before it ended.
                Phase::Running(worker) => match Pin::new(worker).poll(cx) {
                    Poll::Ready(joined) => self.phase = Phase::Replied(finished(joined)),
                    Poll::Pending => {
                        ready!(self.pulse.as_mut().poll(cx));
                        self.beat();
                        return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(ALIVE)))));
                    }
                },
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use nexus_core::Requester;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::freight::Freight;
    use crate::transport::places::Places;

    /// The clock of these tests stands unless somebody waits for it.
    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_says_that_somebody_is_there() {
        let freight = Arc::<Freight>::default();
        let peer = Arc::new(Peer::new(freight.load(&Requester::Administrator)));
        let lane = crate::outbox::Lane::of_messages(peer.clone());
        let closed = peer.closed.clone().drop_guard();
        let worker = tokio::spawn(std::future::pending::<Reply>());
        let place = Places::new(1).take(&CancellationToken::new()).await.unwrap();
        let busy = Arc::new(place).busy();
        let mut events = Events::new(peer, Phase::Running(worker), closed, busy);
        let mut next = async || events.frame().await.unwrap().unwrap().into_data().unwrap();
        let start = Instant::now();
        assert_eq!(next().await, ALIVE);
        assert_eq!(start.elapsed(), PULSE);
        tokio::time::sleep(PULSE / 2).await;
        assert!(lane.put(b"{}".into()));
        assert_eq!(&*next().await, b"data: {}\n\n");
        // From what was said last.
        assert_eq!(next().await, ALIVE);
        assert_eq!(start.elapsed(), PULSE + PULSE / 2 + PULSE);
    }
}
