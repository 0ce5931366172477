//! Peers that do not read. What waits for them is kept only for so long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use crate::outbox::STALL_MAX;

/// How long nothing may be taken. Longer than a stream is kept for a reader that stalls, so that this one can still be
/// told.
const TAKEN_NOTHING_MAX: Duration = STALL_MAX.saturating_mul(2);

/// Watches the writes to one peer. Nothing is timed while it reads.
pub struct Stall {
    limit: Option<Duration>,
    /// Runs since a write had to wait.
    end: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// For a peer that may not let what was written wait for longer than anybody's patience.
    pub fn new() -> Self {
        Self { limit: Some(TAKEN_NOTHING_MAX), end: None }
    }

    /// For a peer that may.
    pub fn never() -> Self {
        Self { limit: None, end: None }
    }

    /// What became of a write; an error when nothing was taken for too long.
    pub fn watch<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let (Poll::Pending, Some(limit)) = (&written, self.limit) else {
            self.end = None;
            return written;
        };
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        end.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_given_up_and_who_takes_a_little_is_not() {
        let mut stall = Stall::new();
        let second = Duration::from_secs(1);
        let mut waits = async |for_: Duration, written: fn() -> Poll<io::Result<()>>| {
            tokio::time::timeout(for_, poll_fn(|cx| stall.watch(written(), cx))).await
        };
        let pending = || Poll::Pending;
        assert!(waits(TAKEN_NOTHING_MAX - second, pending).await.is_err(), "not yet");
        assert!(waits(second, || Poll::Ready(Ok(()))).await.unwrap().is_ok(), "it took something");
        assert!(waits(TAKEN_NOTHING_MAX - second, pending).await.is_err(), "the time begins anew");
        let gone = waits(second * 2, pending).await.unwrap().unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::TimedOut);

        let mut patient = Stall::never();
        let waited = poll_fn(|cx| patient.watch(Poll::<io::Result<()>>::Pending, cx));
        assert!(tokio::time::timeout(TAKEN_NOTHING_MAX * 100, waited).await.is_err());
    }
}
