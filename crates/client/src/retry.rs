//! Trying again what surely has not run: a connection that was refused, and the two answers with which a server turns
//! a call away at the door. What may have run is tried again only with an `idempotency_key`, by which the server tells
//! that it is the same call.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder, Retryable};
use nexus_protocol::error::{RATE_LIMITED, UNAVAILABLE};
use nexus_protocol::{CallError, Kind, Method};
use serde_json::Value;
use tokio::time::Instant;

/// Four tries bridge a server that is just restarting, and keep the wait for one that is gone under a second.
const TRIES_MAX: usize = 4;
const DELAY_FIRST: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Rate limits count by the minute; a server that asks for more patience than that gets its error shown instead.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How long a read may take when nobody said. Reads never wait for a turn, so one that takes longer will not come;
/// all else may wait for a model, and has no limit by default.
const READ_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

pub(crate) fn timeout_for(kind: Kind, chosen: Option<Duration>) -> Option<Duration> {
    chosen.or((kind == Kind::Read).then_some(READ_TIMEOUT_DEFAULT))
}

/// What of a call is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// What surely has not run.
    Unsent,
    /// Also what was sent and not answered: it has a key, and runs once.
    Keyed,
}

impl Again {
    pub fn of<M: Method>(params: &M::Params) -> Self {
        if M::once(params).is_some() { Self::Keyed } else { Self::Unsent }
    }

    /// As above, of a method known by name only. One that has no key refuses it, or does the same twice.
    pub fn of_value(params: &Value) -> Self {
        let keyed = |params: &Value| params["idempotency_key"].is_string();
        if keyed(params) || keyed(&params["options"]) { Self::Keyed } else { Self::Unsent }
    }

    fn covers(self, error: &CallError) -> bool {
        has_not_run(error) || (self == Self::Keyed && matches!(error, CallError::Transport(_)))
    }
}

/// Runs `attempt` until it succeeds, fails for good or has failed `TRIES_MAX` times. The time limit is for all tries
/// together; a wait that would pass it ends in the error at hand, which says more than a timeout.
pub(crate) async fn retrying<T, F>(
    timeout: Option<Duration>,
    again: Again,
    attempt: impl FnMut() -> F,
) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let tries = attempt.retry(FullJitter).when(move |error| again.covers(error)).adjust(
        move |error, delay| {
            let wait = delay? + asked_to_wait(error);
            let in_time = deadline.is_none_or(|deadline| Instant::now() + wait < deadline);
            (in_time && wait <= RETRY_AFTER_MAX + DELAY_MAX).then_some(wait)
        },
    );
    match timeout {
        None => tries.await,
        Some(limit) => {
            tokio::time::timeout(limit, tries).await.unwrap_or(Err(CallError::Timeout(limit)))
        }
    }
}

/// The server says of an unavailable resource when it may be there again (a full queue), and does not where trying
/// again is no use (no provider) or the call was under way (a lease that was lost). A limit of the model's provider
/// (`upstream`) is met in the middle of a turn, so that call did run.
fn has_not_run(error: &CallError) -> bool {
    let CallError::Rpc(error) = error else { return matches!(error, CallError::Connect(_)) };
    let of_server = || error.data.as_ref().is_none_or(|data| data["scope"] != "upstream");
    match error.code {
        UNAVAILABLE => error.retry_after_ms().is_some() && of_server(),
        RATE_LIMITED => of_server(),
        _ => false,
    }
}

fn asked_to_wait(error: &CallError) -> Duration {
    let asked = match error {
        CallError::Rpc(error) => error.retry_after_ms(),
        _ => None,
    };
    Duration::from_millis(asked.unwrap_or_default())
}

/// Exponential backoff with full jitter: each wait is anything between nothing and the exponential delay, so that
/// clients turned away together do not come back together. (backon's own jitter is the delay plus up to as much.)
struct FullJitter;

struct FullJitterBackoff(ExponentialBackoff);

impl BackoffBuilder for FullJitter {
    type Backoff = FullJitterBackoff;

    fn build(self) -> FullJitterBackoff {
        let exponential = ExponentialBuilder::new()
            .with_factor(2.0)
            .with_min_delay(DELAY_FIRST)
            .with_max_delay(DELAY_MAX)
            .with_max_times(TRIES_MAX - 1);
        FullJitterBackoff(exponential.build())
    }
}

impl Iterator for FullJitterBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.0.next()?;
        // Without randomness from the system the whole delay is still a right wait.
        let share = getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX));
        Some(delay.mul_f64(share))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use nexus_protocol::RpcError;

    use super::*;

    /// Runs a call that always fails, on a clock that jumps; returns the number of tries and the time they took.
    async fn check(timeout: Option<Duration>, error: fn() -> CallError) -> (usize, Duration) {
        check_again(timeout, Again::Unsent, error).await
    }

    async fn check_again(
        timeout: Option<Duration>,
        again: Again,
        error: fn() -> CallError,
    ) -> (usize, Duration) {
        let tries = AtomicUsize::new(0);
        let start = Instant::now();
        let result: Result<(), _> = retrying(timeout, again, || async {
            tries.fetch_add(1, Ordering::Relaxed);
            Err(error())
        })
        .await;
        assert_eq!(result.unwrap_err().to_string(), error().to_string());
        (tries.into_inner(), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_not_run_is_tried_four_times() {
        for error in [
            || CallError::Connect("refused".into()),
            || CallError::Rpc(RpcError::overloaded("queue full", 0)),
            || CallError::Rpc(RpcError::rate_limited("", "server", 0)),
        ] {
            let (tries, took) = check(None, error).await;
            assert_eq!(tries, 4);
            // The timer counts in whole milliseconds and rounds each of the three waits up.
            assert!(took <= Duration::from_millis(100 + 200 + 400 + 3), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_run_is_tried_once() {
        for error in [
            || CallError::Transport("closed".into()),
            || CallError::Rpc(RpcError::internal("Oops")),
            || CallError::Rpc(RpcError::unavailable("No provider", "", &[])),
            || CallError::Rpc(RpcError::authentication_failed()),
            || CallError::Rpc(RpcError::rate_limited("", "upstream", 5)),
            || CallError::Rpc(RpcError::overloaded("", 5).with("scope", "upstream".into())),
        ] {
            assert_eq!(check(None, error).await.0, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn with_a_key_a_lost_answer_is_asked_for_again() {
        let lost = || CallError::Transport("closed".into());
        assert_eq!(check_again(None, Again::Keyed, lost).await.0, 4);
        for error in [
            || CallError::Rpc(RpcError::internal("Oops")),
            || CallError::Rpc(RpcError::timeout("")),
            || CallError::Rpc(RpcError::rate_limited("", "upstream", 5)),
        ] {
            assert_eq!(check_again(None, Again::Keyed, error).await.0, 1);
        }
    }

    #[test]
    fn a_key_is_found_where_methods_have_it() {
        for (params, again) in [
            (serde_json::json!({"idempotency_key": "k"}), Again::Keyed),
            (serde_json::json!({"options": {"idempotency_key": "k"}}), Again::Keyed),
            (serde_json::json!({"idempotency_key": null, "options": {}}), Again::Unsent),
            (serde_json::json!({"data": {"idempotency_key": "k"}}), Again::Unsent),
            (serde_json::json!(null), Again::Unsent),
        ] {
            assert_eq!(Again::of_value(&params), again, "{params}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_says_how_long_to_wait() {
        let (tries, took) = check(None, || RpcError::overloaded("queue full", 5_000).into()).await;
        assert_eq!(tries, 4);
        assert!(took >= Duration::from_secs(15), "{took:?}");
        // Too long a wait, by our own measure or the caller's, is not begun.
        let (tries, took) = check(None, || RpcError::overloaded("", 63_000).into()).await;
        assert_eq!((tries, took), (1, Duration::ZERO));
        let limit = Some(Duration::from_secs(4));
        let (tries, took) = check(limit, || RpcError::overloaded("", 5_000).into()).await;
        assert_eq!((tries, took), (1, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_is_for_all_tries_together() {
        let limit = Duration::from_secs(3);
        let result: Result<(), _> = retrying(Some(limit), Again::Keyed, std::future::pending).await;
        assert!(matches!(result, Err(CallError::Timeout(said)) if said == limit));
    }
}
