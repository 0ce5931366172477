//! Where a server is in its life, and when it may be started again.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use nexus_core::AgentId;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connection::Connection;

/// After an end that nobody asked for it is not started before this has passed, and twice as long after each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// So many such ends within this time, and it is given up until the time has passed or somebody connects it anew.
pub const ENDS_MAX: usize = 5;
pub const ENDS_WITHIN: Duration = Duration::from_secs(600);

pub struct State {
    pub phase: Phase,
    /// Ends that nobody asked for, the last one last.
    pub ends: VecDeque<Instant>,
    pub starts: u32,
    pub calls: u64,
    pub in_flight: u32,
    pub last_used: Instant,
    pub last_error: Option<String>,
    pub users: BTreeSet<AgentId>,
    /// It does not bear to be asked for its era.
    pub legacy: bool,
}

pub enum Phase {
    Off,
    Starting(watch::Receiver<Option<Started>>),
    Ready(Arc<Connection>),
}

pub type Started = Result<Arc<Connection>, String>;

impl Default for State {
    fn default() -> Self {
        Self {
            phase: Phase::Off,
            ends: VecDeque::new(),
            starts: 0,
            calls: 0,
            in_flight: 0,
            last_used: Instant::now(),
            last_error: None,
            users: BTreeSet::new(),
            legacy: false,
        }
    }
}

impl State {
    pub fn forget_old_ends(&mut self) {
        let now = Instant::now();
        self.ends.retain(|end| now.duration_since(*end) < ENDS_WITHIN);
    }

    pub fn is_given_up(&self) -> bool {
        let now = Instant::now();
        let recent = self.ends.iter().filter(|end| now.duration_since(**end) < ENDS_WITHIN);
        recent.count() >= ENDS_MAX
    }

    /// What is left of the time that it is not started in.
    pub fn pause(&self) -> Duration {
        let Some(last) = self.ends.back() else { return Duration::ZERO };
        let doublings = u32::try_from(self.ends.len() - 1).unwrap_or(u32::MAX).min(16);
        let pause = (BACKOFF_MIN * 2_u32.saturating_pow(doublings)).min(BACKOFF_MAX);
        pause.saturating_sub(last.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(ends: usize) -> State {
        State { ends: std::iter::repeat_n(Instant::now(), ends).collect(), ..State::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_end_doubles_the_pause_and_the_fifth_is_the_last() {
        let pauses: Vec<_> = (0..=4).map(|ends| state(ends).pause().as_millis()).collect();
        assert_eq!(pauses, [0, 500, 1_000, 2_000, 4_000]);
        assert!(!state(ENDS_MAX - 1).is_given_up());
        let mut given_up = state(ENDS_MAX);
        assert!(given_up.is_given_up());
        tokio::time::advance(ENDS_WITHIN - Duration::from_millis(1)).await;
        assert!(given_up.is_given_up());
        tokio::time::advance(Duration::from_millis(1)).await;
        given_up.forget_old_ends();
        assert!(!given_up.is_given_up() && given_up.pause().is_zero());
    }
}
