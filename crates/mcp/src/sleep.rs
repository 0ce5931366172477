//! Whether the machine slept: what was connected before may be gone since, and nothing says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Shorter naps leave connections as they were.
const NAP: Duration = Duration::from_secs(5);

/// How long the machine has slept since it was started.
fn slept() -> Duration {
    let time = |clock: ClockId| {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
        let nanoseconds = u32::try_from(tv_nsec).unwrap_or_default();
        Duration::new(u64::try_from(tv_sec).unwrap_or_default(), nanoseconds)
    };
    time(ClockId::Boottime).saturating_sub(time(ClockId::Monotonic))
}

/// How long the machine had slept when something was last known to be there.
pub struct Awake(AtomicU64);

impl Awake {
    pub fn now() -> Self {
        Self(AtomicU64::new(milliseconds(slept())))
    }

    /// It is there still.
    pub fn note(&self) {
        self.0.store(milliseconds(slept()), Ordering::Relaxed);
    }

    pub fn has_slept(&self) -> bool {
        self.has_slept_until(slept())
    }

    fn has_slept_until(&self, slept: Duration) -> bool {
        let known = Duration::from_millis(self.0.load(Ordering::Relaxed));
        slept.saturating_sub(known) >= NAP
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_noticed_once() {
        let awake = Awake(AtomicU64::new(7_000));
        assert!(!awake.has_slept_until(Duration::from_millis(11_999)));
        assert!(awake.has_slept_until(Duration::from_secs(12)));
        assert!(!awake.has_slept_until(Duration::ZERO));
        let awake = Awake::now();
        assert!(!awake.has_slept());
        awake.note();
        assert!(!awake.has_slept());
    }
}
