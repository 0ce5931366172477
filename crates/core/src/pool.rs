//! All agents of a server, in memory or on disk, and their lineage.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use foldhash::fast::RandomState;
use jiff::Timestamp;

use crate::agent::Agent;
use crate::lock;
use crate::name::AgentId;
use crate::permission::Permissions;
use crate::store::{AgentRecord, Fence};

/// The agents this server knows. A stored agent becomes live when it is touched.
#[derive(Default)]
pub struct Pool {
    /// Grows with every change to any agent that a list could show.
    pub(crate) version: Arc<AtomicU64>,
    /// Every call looks an agent up: sharded, so that readers on different cores do not meet, and with a quick hash.
    entries: ShardedLock<Entries>,
    /// Agents made from saved sessions, and when: what was given to the agent that ended is not theirs.
    loaded: Mutex<HashMap<AgentId, Timestamp>>,
}

type Entries = HashMap<AgentId, Entry, RandomState>;

enum Entry {
    Live(Arc<Agent>),
    /// On disk. The record is what `list_agents` shows until somebody touches the agent.
    Stored(Box<AgentRecord>),
}

/// Counts a change when it is made: whoever reads the version first and the agents then never takes old for new.
pub(crate) struct Changed<'a>(pub &'a AtomicU64);

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// An agent as a list shows it.
pub struct Card {
    pub record: AgentRecord,
    pub status: Status,
    pub child_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Idle,
    Running,
    Stored,
}

impl Pool {
    pub fn live(&self, id: &AgentId) -> Option<Arc<Agent>> {
        match self.read().get(id)? {
            Entry::Live(agent) => Some(agent.clone()),
            Entry::Stored(_) => None,
        }
    }

    pub fn contains(&self, id: &AgentId) -> bool {
        self.read().contains_key(id)
    }

    pub fn insert(&self, agent: Arc<Agent>) {
        let _changed = Changed(&self.version);
        self.write().insert(agent.id(), Entry::Live(agent));
    }

    /// Remembers agents that lie in the store. One that is live already stays live.
    pub fn insert_stored(&self, records: Vec<AgentRecord>) {
        let _changed = Changed(&self.version);
        let mut entries = self.write();
        for record in records {
            entries.entry(record.id.clone()).or_insert_with(|| Entry::Stored(Box::new(record)));
        }
    }

    /// Replaces what is known of the agents that are not live here by what lies in the store now.
    pub fn replace_stored(&self, records: Vec<AgentRecord>) {
        let _changed = Changed(&self.version);
        let mut entries = self.write();
        entries.retain(|_, entry| matches!(entry, Entry::Live(_)));
        for record in records {
            entries.entry(record.id.clone()).or_insert_with(|| Entry::Stored(Box::new(record)));
        }
    }

    pub fn remove(&self, id: &AgentId) -> Option<Arc<Agent>> {
        let _changed = Changed(&self.version);
        lock(&self.loaded).remove(id);
        match self.write().remove(id)? {
            Entry::Live(agent) => Some(agent),
            Entry::Stored(_) => None,
        }
    }

    /// Lets go of the agents whose leases are lost, those with a fence up to this one. They are in the store, and
    /// whoever touches them finds out where they live now.
    pub fn release(&self, void_through: Fence) {
        let _changed = Changed(&self.version);
        for entry in self.write().values_mut() {
            if let Entry::Live(agent) = entry
                && agent.is_held_through(void_through)
            {
                agent.lose();
                *entry = Entry::Stored(Box::new(agent.record()));
            }
        }
    }

    /// Gives an agent another name; its children follow.
    pub fn rename(&self, from: &AgentId, to: &AgentId) {
        let _changed = Changed(&self.version);
        let mut entries = self.write();
        if let Some(mut entry) = entries.remove(from) {
            if let Entry::Stored(record) = &mut entry {
                record.id = to.clone();
            }
            entries.insert(to.clone(), entry);
        }
        for entry in entries.values_mut().filter(|entry| entry.parent().as_ref() == Some(from)) {
            match entry {
                Entry::Live(agent) => agent.follow_parent(to),
                Entry::Stored(record) => record.parent = Some(to.clone()),
            }
        }
    }

    /// The live agents that have been idle for so long.
    pub fn idle(&self, idle: Duration) -> Vec<Arc<Agent>> {
        let entries = self.read();
        let live = entries.values().filter_map(|entry| match entry {
            Entry::Live(agent) => Some(agent),
            Entry::Stored(_) => None,
        });
        live.filter(|agent| agent.is_idle(idle)).cloned().collect()
    }

    /// Lets an agent out of memory if it has been idle for so long and nobody but this pool has it. The record that
    /// stays is what lists show. Returns the agent that is to be given back.
    pub fn unload(&self, id: &AgentId, idle: Duration) -> Option<Arc<Agent>> {
        let _changed = Changed(&self.version);
        let mut entries = self.write();
        let entry = entries.get_mut(id)?;
        match entry {
            // Whoever takes one out of the pool does so under its lock, so no other can appear now.
            Entry::Live(agent) if agent.is_idle(idle) && Arc::strong_count(agent) == 1 => {
                let stored = Entry::Stored(Box::new(agent.record()));
                match std::mem::replace(entry, stored) {
                    Entry::Live(agent) => Some(agent),
                    Entry::Stored(_) => None,
                }
            }
            Entry::Live(_) | Entry::Stored(_) => None,
        }
    }

    /// When the agent began to be one: its creation, or when its session was loaded.
    pub fn born(&self, id: &AgentId) -> Option<Timestamp> {
        let created_at = match self.read().get(id)? {
            Entry::Live(agent) => agent.created_at,
            Entry::Stored(record) => record.created_at,
        };
        Some(lock(&self.loaded).get(id).copied().unwrap_or(created_at))
    }

    /// Notes that the agent was made from a saved session just now.
    pub fn note_loaded(&self, id: &AgentId) {
        lock(&self.loaded).insert(id.clone(), crate::now());
    }

    pub fn parent_of(&self, id: &AgentId) -> Option<AgentId> {
        self.read().get(id)?.parent()
    }

    /// The agent's ancestors, nearest first.
    pub fn ancestors(&self, id: &AgentId) -> Vec<AgentId> {
        let entries = self.read();
        let parent = |id: &AgentId| entries.get(id).and_then(Entry::parent);
        std::iter::successors(parent(id), parent)
            .take(crate::permission::DEPTH_MAX as usize + 1)
            .collect()
    }

    /// What each of the agent's ancestors may do now, nearest first.
    pub fn ancestor_permissions(&self, id: &AgentId) -> Vec<Permissions> {
        let ancestors = self.ancestors(id);
        let entries = self.read();
        let permissions = |id: &AgentId| match entries.get(id)? {
            Entry::Live(agent) => Some(agent.permissions()),
            Entry::Stored(record) => Some(record.permissions.clone()),
        };
        ancestors.iter().filter_map(permissions).collect()
    }

    /// The agent, if it is known, and all its descendants, parents before children.
    pub fn family(&self, id: &AgentId) -> Vec<AgentId> {
        let entries = self.read();
        if !entries.contains_key(id) {
            return Vec::new();
        }
        let mut family = vec![id.clone()];
        let mut next = 0;
        while next < family.len() {
            let children =
                entries.iter().filter(|(_, entry)| entry.parent().as_ref() == Some(&family[next]));
            let mut children: Vec<_> = children.map(|(id, _)| id.clone()).collect();
            children.sort();
            family.extend(children);
            next += 1;
        }
        family
    }

    /// All agents, oldest first.
    pub fn cards(&self) -> Vec<Card> {
        let entries = self.read();
        let mut children: HashMap<AgentId, u64> = HashMap::new();
        for parent in entries.values().filter_map(Entry::parent) {
            *children.entry(parent).or_default() += 1;
        }
        let mut cards: Vec<_> = entries
            .iter()
            .map(|(id, entry)| {
                let child_count = children.get(id).copied().unwrap_or_default();
                match entry {
                    Entry::Live(agent) => {
                        let status = if agent.turns_in_flight() > 0 {
                            Status::Running
                        } else {
                            Status::Idle
                        };
                        Card { record: agent.record(), status, child_count }
                    }
                    Entry::Stored(record) => {
                        Card { record: (**record).clone(), status: Status::Stored, child_count }
                    }
                }
            })
            .collect();
        cards.sort_by(|a, b| {
            (a.record.created_at, &a.record.id).cmp(&(b.record.created_at, &b.record.id))
        });
        cards
    }

    /// Whether there is an agent and every one was told to shut down.
    pub fn all_shut_down(&self) -> bool {
        let entries = self.read();
        let done = |entry: &Entry| match entry {
            Entry::Live(agent) => agent.progress().should_shutdown,
            Entry::Stored(record) => record.progress.should_shutdown,
        };
        !entries.is_empty() && entries.values().all(done)
    }

    fn read(&self) -> ShardedLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> ShardedLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn parent(&self) -> Option<AgentId> {
        match self {
            Self::Live(agent) => agent.parent(),
            Self::Stored(record) => record.parent.clone(),
        }
    }
}
