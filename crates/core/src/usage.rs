//! What model calls use, and what that costs.

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// Tokens of one call, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Everything the model read, from a cache or not.
    pub input: u64,
    /// The part of `input` that came from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// The part of `input` that was written to it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Everything the model wrote, thoughts included.
    pub output: u64,
    /// The part of `output` that was thought.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
    /// Tokens of calls whose answers were thrown away, read and written, beside those above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub discarded: u64,
    /// Some of it is our own estimate: the call ended before its provider had counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All tokens that were billed.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.discarded)
    }

    /// The same tokens as those of an answer that was thrown away.
    pub fn thrown_away(self) -> Self {
        let discarded = self.total();
        Self { discarded, estimated: self.estimated, ..Self::default() }
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            discarded: self.discarded.saturating_add(other.discarded),
            estimated: self.estimated || other.estimated,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Money, in billionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub u64);

impl Cost {
    pub fn from_usd(usd: f64) -> Option<Self> {
        let nanos = (usd * 1e9).round();
        (nanos.is_finite() && (0.0..1e18).contains(&nanos)).then_some(Self(nanos as u64))
    }

    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Calls, what they used and what they cost together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    pub usage: Usage,
    /// Of those calls whose price is known.
    pub cost: Cost,
    pub calls: u64,
    /// Calls whose price is not known.
    pub unknown_calls: u64,
}

impl Bill {
    /// One call.
    pub fn of(usage: Usage, cost: Option<Cost>) -> Self {
        let unknown_calls = u64::from(cost.is_none());
        Self { usage, cost: cost.unwrap_or_default(), calls: 1, unknown_calls }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What it costs; `None` when no price is known.
    pub fn known_cost(&self) -> Option<Cost> {
        (self.calls == 0 || self.unknown_calls < self.calls).then_some(self.cost)
    }
}

impl Add for Bill {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            usage: self.usage + other.usage,
            cost: self.cost + other.cost,
            calls: self.calls.saturating_add(other.calls),
            unknown_calls: self.unknown_calls.saturating_add(other.unknown_calls),
        }
    }
}

impl AddAssign for Bill {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What a million tokens cost, in billionths of a dollar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    pub base: Rates,
    /// Rates of calls whose input is longer than this many tokens; in rising order.
    pub tiers: Vec<(u64, Rates)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    pub input: u64,
    pub output: u64,
    /// As `input` where it is not said.
    pub cache_read: Option<u64>,
    pub cache_write: Option<u64>,
}

impl Prices {
    pub fn cost(&self, usage: &Usage) -> Cost {
        let longer = |(above, _): &&(u64, Rates)| usage.input > *above;
        let rates = self.tiers.iter().rev().find(longer).map_or(&self.base, |(_, rates)| rates);
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        let priced = [
            (usage.input.saturating_sub(cached), rates.input),
            (usage.cache_read, rates.cache_read.unwrap_or(rates.input)),
            (usage.cache_write, rates.cache_write.unwrap_or(rates.input)),
            (usage.output, rates.output),
        ];
        let per_million =
            priced.into_iter().map(|(tokens, price)| u128::from(tokens) * u128::from(price));
        let nanos = per_million.sum::<u128>().div_ceil(1_000_000);
        Cost(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOLLAR: u64 = 1_000_000_000;

    #[test]
    fn what_was_cached_has_its_own_price_and_long_calls_theirs() {
        let base = Rates {
            input: 3 * DOLLAR,
            output: 15 * DOLLAR,
            cache_read: Some(3 * DOLLAR / 10),
            cache_write: Some(15 * DOLLAR / 4),
        };
        let long = Rates { input: 6 * DOLLAR, output: 30 * DOLLAR, ..Rates::default() };
        let prices = Prices { base, tiers: vec![(200_000, long)] };
        let usage = Usage {
            input: 200_000,
            cache_read: 100_000,
            cache_write: 50_000,
            output: 10_000,
            ..Usage::default()
        };
        // 0.15 read plain, 0.03 from the cache, 0.1875 into it, 0.15 written.
        assert_eq!(prices.cost(&usage).usd(), 0.5175);
        let over = Usage { input: 200_001, output: 0, ..Usage::default() };
        assert_eq!(prices.cost(&over), Cost(200_001 * 6_000));
        assert_eq!(prices.cost(&Usage::default()), Cost(0));
    }

    #[test]
    fn a_part_of_a_billionth_is_a_whole_one() {
        let base = Rates { input: 1, ..Rates::default() };
        let prices = Prices { base, tiers: Vec::new() };
        assert_eq!(prices.cost(&Usage { input: 1, ..Usage::default() }), Cost(1));
    }

    #[test]
    fn money_that_is_none_is_not_taken() {
        assert_eq!(Cost::from_usd(0.25), Some(Cost(250_000_000)));
        for odd in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Cost::from_usd(odd), None, "{odd}");
        }
    }
}
