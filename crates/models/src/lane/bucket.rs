//! A bucket that fills steadily: what may be taken at once, and when there is enough again.

use std::time::Duration;

use tokio::time::Instant;

/// Longest time a bucket says one has to wait. Whoever waits longer asks again.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Bucket {
    capacity: f64,
    level: f64,
    per_second: f64,
    /// When the level was what it is.
    at: Instant,
}

impl Bucket {
    /// A full one that holds a minute's worth.
    pub fn per_minute(count: u32, now: Instant) -> Self {
        let capacity = f64::from(count);
        Self { capacity, level: capacity, per_second: capacity / 60.0, at: now }
    }

    /// One that has `level` left and is full again after `full_in`.
    pub fn filling(capacity: u64, level: u64, full_in: Duration, now: Instant) -> Self {
        let (capacity, level) = (capacity as f64, level.min(capacity) as f64);
        let missing = capacity - level;
        // One that is full does not say how fast it fills; limits of providers are those of minutes.
        let per_second = match missing > 0.0 {
            true => missing / full_in.as_secs_f64().max(0.001),
            false => capacity / 60.0,
        };
        Self { capacity, level, per_second, at: now }
    }

    /// When there is enough; `None` when there is already. More than it can ever hold needs a full one.
    pub fn ready_at(&mut self, need: u64, now: Instant) -> Option<Instant> {
        self.fill(now);
        let missing = (need as f64).min(self.capacity) - self.level;
        if missing <= 0.0 {
            return None;
        }
        let seconds = (missing / self.per_second).min(WAIT_MAX.as_secs_f64());
        // Rounded up: a timer that fires a moment too early would find it short again.
        Some(now + Duration::from_secs_f64(seconds) + Duration::from_millis(1))
    }

    pub fn take(&mut self, count: u64, now: Instant) {
        self.fill(now);
        self.level = (self.level - count as f64).max(0.0);
    }

    fn fill(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + seconds * self.per_second).min(self.capacity);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[track_caller]
    fn check(bucket: &mut Bucket, need: u64, now: Instant, wait: Option<Duration>) {
        let got = bucket.ready_at(need, now).map(|at| at - now);
        let (low, high) = match wait {
            None => return assert_eq!(got, None),
            Some(wait) => (wait, wait + Duration::from_millis(2)),
        };
        assert!(got.is_some_and(|got| (low..=high).contains(&got)), "{got:?} is not {wait:?}");
    }

    #[test]
    fn a_minutes_worth_is_there_at_once_and_comes_back_within_one() {
        let start = Instant::now();
        let mut bucket = Bucket::per_minute(60, start);
        check(&mut bucket, 60, start, None);
        bucket.take(60, start);
        check(&mut bucket, 1, start, Some(SECOND));
        check(&mut bucket, 1, start + SECOND, None);
        check(&mut bucket, 2, start + SECOND, Some(SECOND));
        check(&mut bucket, 60, start + 60 * SECOND, None);
        check(&mut bucket, 60, start + 600 * SECOND, None);
    }

    #[test]
    fn what_is_more_than_it_holds_takes_all_of_it() {
        let start = Instant::now();
        let mut bucket = Bucket::per_minute(60, start);
        check(&mut bucket, 1000, start, None);
        bucket.take(1000, start);
        check(&mut bucket, 1000, start, Some(60 * SECOND));
    }

    #[test]
    fn one_fills_as_fast_as_its_provider_says() {
        let start = Instant::now();
        let mut bucket = Bucket::filling(100, 0, 10 * SECOND, start);
        check(&mut bucket, 1, start, Some(SECOND / 10));
        check(&mut bucket, 100, start, Some(10 * SECOND));
        let mut full = Bucket::filling(60, 60, Duration::ZERO, start);
        full.take(60, start);
        check(&mut full, 1, start, Some(SECOND));
        let mut odd = Bucket::filling(60, 0, Duration::ZERO, start);
        check(&mut odd, 60, start, Some(Duration::ZERO));
        let mut slow = Bucket::filling(60, 0, 86_400 * SECOND, start);
        check(&mut slow, 1, start, Some(60 * SECOND));
    }
}
