//! What one tree of agents may take.
//!
//! A tree is an agent without a parent and all that descend from it. Its agents share one account, whoever of them asks,
//! so that a tree gets no more by growing; whatever is bounded for a tree as a whole is counted here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use thiserror::Error;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::name::AgentId;

/// What the trees of a server may take, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Children of one agent that are alive, when an agent makes one more.
    pub children_max: usize,
    /// Agents and saved sessions of a tree, when an agent makes one more.
    pub agents_max: usize,
    /// Turns that agents asked for and that run or wait.
    pub turns_max: usize,
    /// Memory of the conversations and settings of a tree that are in it, when something is added to them.
    pub memory_bytes_max: usize,
}

impl Default for Bounds {
    /// More than people use, and little enough that a tree that takes all of it disturbs nobody else: an agent that
    /// directs 64 others has lost sight of them, and the memory of four full trees is that of one server.
    fn default() -> Self {
        Self {
            children_max: 64,
            agents_max: 1024,
            turns_max: 256,
            memory_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// A bound that a tree has reached. The sentence names the setting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Exceeded {
    #[error(
        "agent {parent} has {max} children already, as many as an agent may make ({})",
        self.setting()
    )]
    Children { parent: AgentId, max: usize },
    #[error(
        "the tree of agent {root} has {max} agents and saved sessions already, as many as agents may make ({})",
        self.setting()
    )]
    Agents { root: AgentId, max: usize },
    #[error(
        "{max} turns run or wait that agents of this tree asked for, as many as they may ({})",
        self.setting()
    )]
    Turns { max: usize },
    #[error(
        "the conversations and settings of this agent's tree take {max} bytes of memory, as many as they may ({})",
        self.setting()
    )]
    Memory { max: usize },
}

impl Exceeded {
    /// The name of the setting.
    pub fn setting(&self) -> &'static str {
        match self {
            Self::Children { .. } => "server.max_children",
            Self::Agents { .. } => "server.max_tree_agents",
            Self::Turns { .. } => "server.max_tree_turns",
            Self::Memory { .. } => "server.tree_memory_bytes_max",
        }
    }
}

/// The account of one tree.
#[derive(Debug)]
pub struct Account {
    /// Tells accounts of one process apart.
    number: u64,
    bounds: Bounds,
    turns: AtomicUsize,
    memory_bytes: AtomicUsize,
    freight_bytes: AtomicUsize,
    making: Arc<Mutex<()>>,
}

impl Account {
    pub fn new(bounds: Bounds) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            bounds,
            turns: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(0),
            freight_bytes: AtomicUsize::new(0),
            making: Arc::default(),
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The right to make agents of this tree in an agent's name, of one caller at a time: between the count and what it
    /// allows nothing else is to be made.
    pub(crate) async fn make(&self) -> OwnedMutexGuard<()> {
        self.making.clone().lock_owned().await
    }

    /// Counts a turn that an agent asked for, or a call of a model that is made in its name without one.
    pub fn take_turn(self: &Arc<Self>) -> Result<TurnShare, Exceeded> {
        let max = self.bounds.turns_max;
        let more = |turns: usize| (turns < max).then_some(turns + 1);
        match self.turns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(TurnShare(self.clone())),
            Err(_) => Err(Exceeded::Turns { max }),
        }
    }

    /// Counts bytes of messages and answers of the tree's agents as under way, as long as that makes no more than `most`.
    pub fn take_freight(&self, bytes: usize, most: usize) -> bool {
        let more = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= most);
        self.freight_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// What was counted so has arrived.
    pub fn return_freight(&self, bytes: usize) {
        self.freight_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// About how much memory the tree's agents take that are in it.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Whether a tree may still take memory.
    pub(crate) fn check_memory(&self) -> Result<(), Exceeded> {
        let max = self.bounds.memory_bytes_max;
        match self.memory_bytes() < max {
            true => Ok(()),
            false => Err(Exceeded::Memory { max }),
        }
    }
}

/// A turn on its tree's account, until it is dropped.
pub struct TurnShare(Arc<Account>);

impl Drop for TurnShare {
    fn drop(&mut self) {
        self.0.turns.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one agent has of the memory on its tree's account, until it leaves that.
pub(crate) struct MemoryShare {
    account: Arc<Account>,
    bytes: usize,
}

impl MemoryShare {
    pub fn new(account: Arc<Account>) -> Self {
        Self { account, bytes: 0 }
    }

    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            // Together it stays the sum of all shares: whatever wraps here is made good by what was added before.
            self.account.memory_bytes.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Arc<Account> {
        let bounds = Bounds { turns_max: 2, memory_bytes_max: 100, ..Bounds::default() };
        Arc::new(Account::new(bounds))
    }

    #[test]
    fn turns_are_counted_until_they_end() {
        let account = account();
        let first = account.take_turn().unwrap();
        let _second = account.take_turn().unwrap();
        assert_eq!(account.take_turn().err(), Some(Exceeded::Turns { max: 2 }));
        drop(first);
        assert!(account.take_turn().is_ok());
    }

    #[test]
    fn the_memory_of_a_tree_is_that_of_all_its_agents() {
        let account = account();
        let [mut a, mut b] = [0, 1].map(|_| MemoryShare::new(account.clone()));
        a.set(60);
        b.set(39);
        assert_eq!(account.check_memory(), Ok(()));
        b.set(40);
        assert_eq!(account.check_memory(), Err(Exceeded::Memory { max: 100 }));
        a.set(10);
        assert_eq!(account.check_memory(), Ok(()));
        b.set(90);
        assert!(account.check_memory().is_err());
        drop(b);
        assert_eq!(account.check_memory(), Ok(()));
    }
}
