//! How durations and sizes are spread, noted without a lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use nexus_protocol::metrics::{Bucket, Spread};

/// In each shard: so many buckets with a bound, one without, and the sum. Two lines of a cache.
const SLOTS: usize = 16;
const BOUNDS_MAX: usize = SLOTS - 2;

/// Threads that note at once share a shard only where there are more of them.
const SHARDS: usize = 8;

/// What is measured, and where its buckets end.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Rising, in whole small units.
    bounds: &'static [u64],
    /// Small units in the unit that is shown.
    per_unit: f64,
}

const NANOS: f64 = 1e9;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// From calls that read memory to those that wait for a turn.
pub const CALLS: Scale = Scale {
    bounds: &[
        50 * MICROSECOND,
        100 * MICROSECOND,
        250 * MICROSECOND,
        500 * MICROSECOND,
        MILLISECOND,
        2_500 * MICROSECOND,
        10 * MILLISECOND,
        25 * MILLISECOND,
        100 * MILLISECOND,
        500 * MILLISECOND,
        2_500 * MILLISECOND,
        10 * SECOND,
        60 * SECOND,
        300 * SECOND,
    ],
    per_unit: NANOS,
};

/// What models, tools and turns take.
pub const WORK: Scale = Scale {
    bounds: &[
        10 * MILLISECOND,
        50 * MILLISECOND,
        100 * MILLISECOND,
        250 * MILLISECOND,
        500 * MILLISECOND,
        SECOND,
        2_500 * MILLISECOND,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        60 * SECOND,
        120 * SECOND,
        300 * SECOND,
        900 * SECOND,
    ],
    per_unit: NANOS,
};

/// What a disk takes.
pub const COMMITS: Scale = Scale {
    bounds: &[
        100 * MICROSECOND,
        250 * MICROSECOND,
        500 * MICROSECOND,
        MILLISECOND,
        2_500 * MICROSECOND,
        5 * MILLISECOND,
        10 * MILLISECOND,
        25 * MILLISECOND,
        50 * MILLISECOND,
        100 * MILLISECOND,
        250 * MILLISECOND,
        SECOND,
        5 * SECOND,
    ],
    per_unit: NANOS,
};

/// Messages.
pub const BYTES: Scale = Scale {
    bounds: &[
        128,
        256,
        512,
        1 << 10,
        4 << 10,
        16 << 10,
        64 << 10,
        256 << 10,
        1 << 20,
        4 << 20,
        16 << 20,
        64 << 20,
    ],
    per_unit: 1.0,
};

pub struct Histogram {
    scale: Scale,
    shards: [Shard; SHARDS],
}

/// On lines of the cache that no other shard is on.
#[derive(Default)]
#[repr(align(128))]
struct Shard([AtomicU64; SLOTS]);

/// The shard of each thread.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.with(|own| *own)
}

impl Histogram {
    pub fn new(scale: Scale) -> Self {
        assert!(scale.bounds.len() <= BOUNDS_MAX, "a shard has no room for so many buckets");
        Self { scale, shards: Default::default() }
    }

    pub fn note_duration(&self, duration: Duration) {
        self.note(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Notes a value, in small units.
    pub fn note(&self, value: u64) {
        let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
        let Shard(slots) = &self.shards[shard()];
        slots[bucket].fetch_add(1, Ordering::Relaxed);
        slots[SLOTS - 1].fetch_add(value, Ordering::Relaxed);
    }

    /// What was noted. The count is that of the buckets, whatever is noted meanwhile.
    pub fn spread(&self) -> Spread {
        let together = |slot: usize| -> u64 {
            let slots = self.shards.iter().map(|Shard(slots)| slots[slot].load(Ordering::Relaxed));
            slots.fold(0, u64::wrapping_add)
        };
        let Scale { bounds, per_unit } = self.scale;
        let ends = bounds.iter().map(|bound| Some(*bound as f64 / per_unit)).chain([None]);
        let mut count = 0;
        let buckets = ends.enumerate().map(|(slot, le)| {
            count += together(slot);
            Bucket { le, count }
        });
        let buckets = buckets.collect();
        Spread { count, sum: together(SLOTS - 1) as f64 / per_unit, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_bucket_that_ends_with_it_and_one_more_into_the_next() {
        for scale in [CALLS, WORK, COMMITS, BYTES] {
            for (place, bound) in scale.bounds.iter().enumerate() {
                let histogram = Histogram::new(scale);
                histogram.note(*bound);
                histogram.note(bound + 1);
                let Spread { count, buckets, .. } = histogram.spread();
                let counts: Vec<_> = buckets.iter().map(|bucket| bucket.count).collect();
                let mut expected = vec![0; place];
                expected.push(1);
                expected.resize(scale.bounds.len() + 1, 2);
                assert_eq!((count, counts), (2, expected), "{bound}");
            }
        }
    }

    #[test]
    fn what_no_bucket_has_a_bound_for_is_in_the_last() {
        let histogram = Histogram::new(CALLS);
        histogram.note_duration(Duration::from_secs(301));
        histogram.note_duration(Duration::ZERO);
        let Spread { count, sum, buckets } = histogram.spread();
        assert_eq!((count, sum), (2, 301.0));
        let last = buckets.last().unwrap();
        assert_eq!((last.le, last.count), (None, 2));
        assert_eq!(buckets[buckets.len() - 2], Bucket { le: Some(300.0), count: 1 });
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let histogram = Histogram::new(BYTES);
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| (0..1000).for_each(|_| histogram.note(3)));
            }
        });
        let Spread { count, sum, .. } = histogram.spread();
        assert_eq!((count, sum), (16_000, 48_000.0));
    }
}
