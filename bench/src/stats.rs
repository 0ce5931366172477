//! Medians and percentiles.

use std::time::Duration;

/// Durations of many calls, sorted.
#[derive(Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn new(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self(latencies)
    }

    pub fn p50(&self) -> Duration {
        self.at(0.5)
    }

    pub fn p99(&self) -> Duration {
        self.at(0.99)
    }

    pub fn max(&self) -> Duration {
        self.at(1.0)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn at(&self, part: f64) -> Duration {
        let index = (self.0.len() as f64 * part).ceil() as usize;
        self.0.get(index.saturating_sub(1)).copied().unwrap_or_default()
    }
}

pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
