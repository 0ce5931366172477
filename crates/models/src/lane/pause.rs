//! Stops a lane whose provider wants to be left alone, and lets it begin again carefully: one call first, and when that
//! goes well the others one after the other. All at once they would meet the same limit.

use std::time::Duration;

use tokio::time::Instant;

use super::Blocked;

/// The first calls after a pause are spread over this time.
const SPREAD: Duration = Duration::from_secs(1);

/// A probe that says nothing for so long is followed by another. Some services need as long for the first word.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Pause {
    flow: Flow,
    /// Counts the pauses: calls that were sent before the latest are its cause, and not news.
    wave: u64,
    /// Pauses without a call in between that went well.
    strikes: u32,
}

#[derive(Debug)]
enum Flow {
    Free,
    Stopped {
        until: Instant,
        reason: &'static str,
    },
    /// The wait is over. `sent` is when the probe was.
    Probing {
        sent: Option<Instant>,
        reason: &'static str,
    },
    Spreading {
        next: Instant,
        step: Duration,
        left: u32,
        reason: &'static str,
    },
}

impl Pause {
    pub fn new() -> Self {
        Self { flow: Flow::Free, wave: 0, strikes: 0 }
    }

    pub fn wave(&self) -> u64 {
        self.wave
    }

    pub fn strikes(&self) -> u32 {
        self.strikes
    }

    /// Whether a call may be sent as far as pauses are concerned.
    pub fn check(&mut self, now: Instant) -> Result<(), Blocked> {
        if let Flow::Stopped { until, reason } = self.flow {
            if now < until {
                return Err(Blocked { until: Some(until), reason });
            }
            self.flow = Flow::Probing { sent: None, reason };
        }
        match self.flow {
            Flow::Probing { sent: Some(sent), reason } if now < sent + PROBE_PATIENCE => {
                Err(Blocked { until: Some(sent + PROBE_PATIENCE), reason })
            }
            Flow::Spreading { next, reason, .. } if now < next => {
                Err(Blocked { until: Some(next), reason })
            }
            _ => Ok(()),
        }
    }

    /// A call is sent now. Whether it is the probe.
    pub fn sent(&mut self, now: Instant) -> bool {
        match &mut self.flow {
            Flow::Probing { sent, .. } => {
                *sent = Some(now);
                return true;
            }
            Flow::Spreading { next, step, left, .. } => {
                *next = now + *step;
                *left -= 1;
                if *left == 0 {
                    self.flow = Flow::Free;
                }
            }
            Flow::Free | Flow::Stopped { .. } => {}
        }
        false
    }

    /// A call sent in `wave` was answered. `room` is how many may follow a probe.
    pub fn answered(&mut self, wave: u64, is_probe: bool, room: u32, now: Instant) {
        if wave == self.wave {
            self.strikes = 0;
        }
        if let (Flow::Probing { reason, .. }, true) = (&self.flow, is_probe) {
            let left = room.max(1);
            let step = SPREAD / left;
            self.flow = Flow::Spreading { next: now, step, left, reason };
        }
    }

    /// A probe ended without telling anything: the next call is one.
    pub fn probe_lost(&mut self) {
        if let Flow::Probing { sent, .. } = &mut self.flow {
            *sent = None;
        }
    }

    /// A call sent in `wave` was refused. Whether it is the first of its wave.
    pub fn refused(&mut self, wave: u64) -> bool {
        let is_first = wave == self.wave;
        if is_first {
            self.wave += 1;
            self.strikes = self.strikes.saturating_add(1);
        }
        is_first
    }

    /// Nobody is sent before `until`.
    pub fn stop(&mut self, until: Instant, reason: &'static str) {
        match &mut self.flow {
            Flow::Stopped { until: known, .. } if *known >= until => {}
            flow => *flow = Flow::Stopped { until, reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn blocked(pause: &mut Pause, now: Instant) -> Option<Duration> {
        let blocked = pause.check(now).err()?;
        assert_eq!(blocked.reason, "rate_limit");
        blocked.until.map(|until| until - now)
    }

    fn stopped(until: Instant) -> Pause {
        let mut pause = Pause::new();
        pause.refused(0);
        pause.stop(until, "rate_limit");
        pause
    }

    #[test]
    fn after_the_wait_one_goes_and_then_the_others_over_a_second() {
        let start = Instant::now();
        let mut pause = stopped(start + SECOND);
        assert_eq!(blocked(&mut pause, start), Some(SECOND));
        let mut now = start + SECOND;
        assert_eq!(blocked(&mut pause, now), None);
        assert!(pause.sent(now));
        assert_eq!(blocked(&mut pause, now), Some(PROBE_PATIENCE), "the probe is under way");
        pause.answered(1, true, 4, now);
        for _ in 0..4 {
            assert_eq!(blocked(&mut pause, now), None);
            assert!(!pause.sent(now));
            now += SECOND / 4;
        }
        (0..100).for_each(|_| assert!(blocked(&mut pause, now).is_none() && !pause.sent(now)));
    }

    #[test]
    fn between_two_there_is_a_step() {
        let start = Instant::now();
        let mut pause = stopped(start);
        pause.check(start).unwrap();
        pause.sent(start);
        pause.answered(1, true, 4, start);
        pause.sent(start);
        assert_eq!(blocked(&mut pause, start), Some(SECOND / 4));
    }

    #[test]
    fn a_longer_wait_replaces_a_shorter_and_not_the_reverse() {
        let start = Instant::now();
        let mut pause = stopped(start + 2 * SECOND);
        pause.stop(start + SECOND, "rate_limit");
        assert_eq!(blocked(&mut pause, start), Some(2 * SECOND));
        pause.stop(start + 3 * SECOND, "rate_limit");
        assert_eq!(blocked(&mut pause, start), Some(3 * SECOND));
    }

    #[test]
    fn refusals_of_calls_sent_together_are_one() {
        let mut pause = Pause::new();
        assert!(pause.refused(0));
        assert!(!pause.refused(0));
        assert_eq!((pause.wave(), pause.strikes()), (1, 1));
        assert!(pause.refused(1));
        assert_eq!((pause.wave(), pause.strikes()), (2, 2));
        pause.answered(1, false, 1, Instant::now());
        assert_eq!(pause.strikes(), 2, "an answer to a call sent before says nothing");
        pause.answered(2, false, 1, Instant::now());
        assert_eq!(pause.strikes(), 0);
    }

    #[test]
    fn a_probe_that_says_nothing_is_followed_by_another() {
        let start = Instant::now();
        let mut pause = stopped(start);
        pause.check(start).unwrap();
        pause.sent(start);
        pause.probe_lost();
        assert_eq!(blocked(&mut pause, start), None);
        assert!(pause.sent(start));
        assert_eq!(blocked(&mut pause, start + PROBE_PATIENCE), None);
        assert!(pause.sent(start + PROBE_PATIENCE));
    }
}
