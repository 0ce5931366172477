//! Whether a call that failed is sent again.

use std::time::Duration;

use tokio::time::Instant;

use super::errors::Failure;
use super::lane::WAIT_MAX;

/// For all attempts together: somebody waits for the turn.
const ATTEMPTS_MAX: Duration = Duration::from_secs(120);

/// The attempts of one call.
pub(super) struct Attempts {
    began: Instant,
    failures: u32,
    max_retries: u32,
    /// The longest wait that is slept through.
    wait_max: Duration,
}

impl Attempts {
    /// `patience` is the longest wait that is slept through, where that is less than the usual one.
    pub fn begin(max_retries: u32, patience: Option<Duration>) -> Self {
        let wait_max = patience.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        Self { began: Instant::now(), failures: 0, max_retries, wait_max }
    }

    /// No attempt begins after this.
    pub fn end(&self) -> Instant {
        self.began + ATTEMPTS_MAX
    }

    /// Takes note of a failure. How long the call keeps away before it stands in its lane again, or `None` when it is
    /// given up. `backoff` is the wait of our own choosing after so many failures.
    pub fn failed(
        &mut self,
        failure: &Failure,
        backoff: impl FnOnce(u32) -> Duration,
    ) -> Option<Duration> {
        self.failures += 1;
        if !failure.retryable || self.failures > self.max_retries {
            return None;
        }
        // What the provider asks for stops the lane, where the call then waits with all others.
        let (own, all) = match failure.retry_after {
            Some(asked) => (Duration::ZERO, asked),
            None if failure.is_overload => (Duration::ZERO, Duration::ZERO),
            None => {
                let own = backoff(self.failures);
                (own, own)
            }
        };
        (all <= self.wait_max && Instant::now() + all <= self.end()).then_some(own)
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::provider::ProviderError;
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn failure(retry_after: Option<Duration>) -> Failure {
        let error = ProviderError::Unavailable("down".to_owned());
        Failure { retryable: true, retry_after, ..error.into() }
    }

    fn backoff(failures: u32) -> Duration {
        SECOND * failures
    }

    #[tokio::test]
    async fn as_often_as_is_configured() {
        let mut attempts = Attempts::begin(2, None);
        let failure = failure(None);
        assert_eq!(attempts.failed(&failure, backoff), Some(SECOND));
        assert_eq!(attempts.failed(&failure, backoff), Some(2 * SECOND));
        assert_eq!(attempts.failed(&failure, backoff), None);
        assert_eq!(Attempts::begin(0, None).failed(&failure, backoff), None);
    }

    #[tokio::test]
    async fn only_what_may_get_better() {
        let lasting = Failure { retryable: false, ..failure(None) };
        assert_eq!(Attempts::begin(2, None).failed(&lasting, backoff), None);
    }

    #[tokio::test]
    async fn a_wait_that_was_asked_for_is_that_of_the_lane_and_has_a_limit() {
        for (patience, most) in
            [(None, WAIT_MAX), (Some(20 * SECOND), 20 * SECOND), (Some(90 * SECOND), WAIT_MAX)]
        {
            let wait = |wait| Attempts::begin(2, patience).failed(&failure(Some(wait)), backoff);
            assert_eq!(wait(most), Some(Duration::ZERO), "{patience:?}");
            assert_eq!(wait(most + SECOND / 1000), None, "{patience:?}");
        }
        let overload = Failure { is_overload: true, ..failure(None) };
        assert_eq!(Attempts::begin(2, None).failed(&overload, backoff), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn within_two_minutes() {
        for (passed, expected) in [(119, Some(SECOND)), (120, None)] {
            let mut attempts = Attempts::begin(2, None);
            advance(SECOND * passed).await;
            assert_eq!(attempts.failed(&failure(None), backoff), expected, "{passed}");
        }
        for (passed, expected) in [(60, Some(Duration::ZERO)), (61, None)] {
            let mut attempts = Attempts::begin(2, None);
            advance(SECOND * passed).await;
            assert_eq!(attempts.failed(&failure(Some(WAIT_MAX)), backoff), expected, "{passed}");
        }
    }
}
