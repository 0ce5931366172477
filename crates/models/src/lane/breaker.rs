//! Leaves a provider alone that failed again and again: nobody waits for what will fail, and it can recover.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// So many failures in a row, within this time, open it.
const FAILURES: usize = 5;
const WITHIN: Duration = Duration::from_secs(60);

/// The first rest. Each that did not help is followed by one of twice the length.
const REST: Duration = Duration::from_secs(15);
const REST_MAX: Duration = Duration::from_secs(5 * 60);

/// When one should ask again who comes while a probe is under way, and when a further probe is sent if that says
/// nothing.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Breaker {
    /// When the last calls failed, for as long as none went well in between.
    failures: VecDeque<Instant>,
    open: Option<Open>,
    /// How long the next rest is.
    rest: Duration,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    /// What the last failure was, for people.
    why: String,
    /// When the probe was sent.
    probe: Option<Instant>,
}

/// Whether a call may go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// It may, and decides whether others may.
    Probe,
    Rest {
        retry_after: Duration,
        why: String,
    },
}

impl Breaker {
    pub fn new() -> Self {
        Self { failures: VecDeque::new(), open: None, rest: REST }
    }

    pub fn verdict(&self, now: Instant) -> Verdict {
        let Some(open) = &self.open else { return Verdict::Pass };
        let rest = |retry_after| Verdict::Rest { retry_after, why: open.why.clone() };
        if now < open.until {
            return rest(open.until - now);
        }
        match open.probe.map(|sent| sent + PROBE_PATIENCE) {
            Some(patient_until) if now < patient_until => rest(patient_until - now),
            _ => Verdict::Probe,
        }
    }

    pub fn probe_sent(&mut self, now: Instant) {
        if let Some(open) = &mut self.open {
            open.probe = Some(now);
        }
    }

    /// A probe ended without telling anything: the next call is one.
    pub fn probe_lost(&mut self) {
        if let Some(open) = &mut self.open {
            open.probe = None;
        }
    }

    pub fn succeeded(&mut self) {
        self.failures.clear();
        self.open = None;
        self.rest = REST;
    }

    /// Whether this opened it.
    pub fn failed(&mut self, why: String, is_probe: bool, now: Instant) -> bool {
        match &self.open {
            None => {
                while self.failures.front().is_some_and(|first| now - *first > WITHIN) {
                    self.failures.pop_front();
                }
                self.failures.push_back(now);
                if self.failures.len() < FAILURES {
                    return false;
                }
            }
            Some(_) if is_probe => {}
            // Sent before it opened.
            Some(_) => return false,
        }
        self.failures.clear();
        self.open = Some(Open { until: now + self.rest, why, probe: None });
        self.rest = (self.rest * 2).min(REST_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fail(breaker: &mut Breaker, times: usize, now: Instant) -> bool {
        (0..times).any(|_| breaker.failed("down".to_owned(), false, now))
    }

    fn rest(retry_after: Duration) -> Verdict {
        Verdict::Rest { retry_after, why: "down".to_owned() }
    }

    #[test]
    fn five_in_a_row_open_it_and_four_do_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        assert!(!fail(&mut breaker, FAILURES - 1, now));
        assert_eq!(breaker.verdict(now), Verdict::Pass);
        breaker.succeeded();
        assert!(!fail(&mut breaker, FAILURES - 1, now), "one that went well lies between");
        assert!(fail(&mut breaker, 1, now));
        assert_eq!(breaker.verdict(now + SECOND), rest(REST - SECOND));
    }

    #[test]
    fn failures_far_apart_do_not_open_it() {
        let start = Instant::now();
        let mut breaker = Breaker::new();
        assert!(!fail(&mut breaker, FAILURES - 1, start));
        assert!(!fail(&mut breaker, 1, start + WITHIN + SECOND));
        assert!(!fail(&mut breaker, FAILURES - 2, start + WITHIN + SECOND));
        assert!(fail(&mut breaker, 1, start + WITHIN + SECOND + WITHIN));
    }

    #[test]
    fn one_probe_closes_it_or_makes_it_rest_for_twice_as_long() {
        let mut now = Instant::now();
        let mut breaker = Breaker::new();
        fail(&mut breaker, FAILURES, now);
        for seconds in [15, 30, 60, 120, 240, 300, 300] {
            let length = SECOND * seconds;
            assert_eq!(breaker.verdict(now + length - SECOND), rest(SECOND), "{seconds}");
            now += length;
            assert_eq!(breaker.verdict(now), Verdict::Probe, "{seconds}");
            breaker.probe_sent(now);
            assert_eq!(
                breaker.verdict(now + SECOND),
                rest(PROBE_PATIENCE - SECOND),
                "one is enough"
            );
            assert!(!breaker.failed("old".to_owned(), false, now), "of a call sent before");
            assert!(breaker.failed("down".to_owned(), true, now), "{seconds}");
        }
        now += REST_MAX;
        breaker.probe_sent(now);
        breaker.succeeded();
        assert_eq!(breaker.verdict(now), Verdict::Pass);
        fail(&mut breaker, FAILURES, now);
        assert_eq!(breaker.verdict(now), rest(REST), "it begins anew");
    }

    #[test]
    fn a_probe_that_says_nothing_is_followed_by_another() {
        let mut breaker = Breaker::new();
        let now = Instant::now();
        fail(&mut breaker, FAILURES, now);
        let now = now + REST;
        breaker.probe_sent(now);
        breaker.probe_lost();
        assert_eq!(breaker.verdict(now), Verdict::Probe);
        breaker.probe_sent(now);
        assert_eq!(breaker.verdict(now + PROBE_PATIENCE), Verdict::Probe);
    }
}
