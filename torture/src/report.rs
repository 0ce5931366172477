//! What a run came to.

use std::fmt;

use crate::client::Client;

#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub kills: u64,
    pub acknowledged: u64,
    /// Calls that were not waited for.
    pub dropped: u64,
    pub refused: u64,
    /// Turns that were found half done.
    pub cut: u64,
    /// Tool calls that took effect.
    pub effects: u64,
}

impl Tally {
    pub fn of(clients: &[Client]) -> Self {
        let sum = |count: fn(&Client) -> u64| clients.iter().map(count).sum();
        Self {
            acknowledged: sum(|client| client.acknowledged),
            dropped: sum(|client| client.dropped),
            refused: sum(|client| client.refused),
            cut: sum(|client| client.cut),
            ..Self::default()
        }
    }

    pub fn kills(self, kills: u64) -> Self {
        Self { kills, ..self }
    }

    pub fn effects(self, effects: usize) -> Self {
        Self { effects: effects as u64, ..self }
    }

    pub fn and(self, other: Self) -> Self {
        Self {
            kills: self.kills + other.kills,
            acknowledged: self.acknowledged + other.acknowledged,
            dropped: self.dropped + other.dropped,
            refused: self.refused + other.refused,
            cut: self.cut + other.cut,
            effects: self.effects + other.effects,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} answered, {} dropped, {} refused, {} turns cut",
            self.acknowledged, self.dropped, self.refused, self.cut
        )
    }
}

/// The table that ends a run.
pub fn table(seed: u64, rows: &[(&str, f64, Result<Tally, String>)]) -> String {
    let mut text = format!("seed {seed}\n");
    text += "scenario    kills  answered  dropped  refused  cut turns  tool effects  seconds  outcome\n";
    for (name, seconds, outcome) in rows {
        let tally = outcome.as_ref().copied().unwrap_or_default();
        let verdict = if outcome.is_ok() { "kept its word" } else { "FAILED" };
        text += &format!(
            "{name:<11} {:>5}  {:>8}  {:>7}  {:>7}  {:>9}  {:>12}  {seconds:>7.1}  {verdict}\n",
            tally.kills, tally.acknowledged, tally.dropped, tally.refused, tally.cut, tally.effects
        );
    }
    text
}
