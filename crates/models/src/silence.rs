//! How long a provider may be silent: before its first event, between two pieces, and without saying anything however
//! much it sends.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// Longest time without content. Pings keep connections open, also those whose model is stuck.
pub(super) const CONTENT_MAX: Duration = Duration::from_secs(600);

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub first_event: Duration,
    /// Without a byte, once there was an event.
    pub idle: Duration,
}

/// The silence of one answer.
#[derive(Debug)]
pub(super) struct Silence {
    patience: Patience,
    /// When the request was sent; until the first event that is what counts.
    sent: Option<Instant>,
    /// When something was last said, or the request sent.
    content: Instant,
}

/// Nothing came for too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Silence {
    pub fn since(sent: Instant, patience: Patience) -> Self {
        Self { patience, sent: Some(sent), content: sent }
    }

    /// Waits for what comes next, for as long as may be.
    pub async fn wait<T>(&self, next: impl Future<Output = T>) -> Result<T, TooLong> {
        let content = self.content + CONTENT_MAX.max(self.patience.first_event);
        let deadline = match self.sent {
            Some(sent) => sent + self.patience.first_event,
            None => Instant::now() + self.patience.idle,
        };
        timeout_at(deadline.min(content), next).await.map_err(|_| TooLong)
    }

    /// An event came, be it a ping.
    pub fn heard_event(&mut self) {
        self.sent = None;
    }

    /// The model said something: text, a thought, a piece of a call.
    pub fn heard_content(&mut self) {
        self.content = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{advance, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PATIENCE: Patience =
        Patience { first_event: Duration::from_secs(300), idle: Duration::from_secs(120) };

    fn begun() -> Silence {
        Silence::since(Instant::now(), PATIENCE)
    }

    /// How long nothing is waited for.
    async fn patience(silence: &Silence) -> Duration {
        let start = Instant::now();
        assert_eq!(silence.wait(pending::<()>()).await, Err(TooLong));
        start.elapsed()
    }

    #[track_caller]
    fn check(got: Duration, seconds: u64) {
        assert_eq!(got.as_secs(), seconds, "{got:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_time_is_passed_on() {
        assert_eq!(begun().wait(async { 7 }).await, Ok(7));
        let late = async {
            sleep(PATIENCE.first_event - SECOND).await;
            7
        };
        assert_eq!(begun().wait(late).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_before_the_first_event_do_not_prolong_the_wait_for_it() {
        let silence = begun();
        check(patience(&silence).await, 300);
        let silence = begun();
        advance(299 * SECOND).await;
        check(patience(&silence).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_first_event_each_piece_has_its_time() {
        let mut silence = begun();
        advance(299 * SECOND).await;
        silence.heard_event();
        check(patience(&silence).await, 120);
    }

    #[tokio::test(start_paused = true)]
    async fn pings_are_no_content() {
        let mut silence = begun();
        for _ in 0..599 {
            silence.heard_event();
            assert_eq!(silence.wait(sleep(SECOND)).await, Ok(()));
        }
        check(patience(&silence).await, 1);
        silence.heard_content();
        for _ in 0..599 {
            assert_eq!(silence.wait(sleep(SECOND)).await, Ok(()));
        }
        check(patience(&silence).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_take_longer_to_begin_may_take_as_long_for_the_first_words() {
        let patient = Patience { first_event: 900 * SECOND, ..PATIENCE };
        let silence = Silence::since(Instant::now(), patient);
        check(patience(&silence).await, 900);
    }
}
