//! Agents: leases, fenced appends, settings, and queries by page.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::{AgentSettings, Contact, StoreError};
use crate::brief::Brief;
use crate::message::SharedMessage;
use crate::name::AgentId;
use crate::permission::Permissions;
use crate::usage::Bill;

#[async_trait]
pub trait AgentStore: Send + Sync {
    /// Stores a new agent and takes its lease. `Exists` or `Saved` when the name is taken, `UnknownParent` when it names
    /// a permanent parent that is not stored.
    async fn create(&self, agent: AgentRecord) -> Result<Lease, StoreError>;

    /// As `create`, beneath the agent that `parent` is the key of, whatever that is called by now: the record may name it
    /// by an older name. `UnknownParent` when it is not there any more.
    async fn create_child(&self, agent: AgentRecord, parent: AgentKey)
    -> Result<Lease, StoreError>;

    /// Takes the lease of a stored agent and reads it. `None` when there is no such agent, or it is a saved session;
    /// `HeldElsewhere` when another living process has it.
    async fn acquire(&self, id: &AgentId) -> Result<Option<StoredAgent>, StoreError>;

    /// Appends messages, and notes what changes with them, as one step. The write is queued when this is called; the
    /// future resolves when it is on disk, and dropping it takes nothing back.
    fn append(&self, lease: Lease, append: Append) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Replaces the settings of a held agent. Queued as an append is.
    fn update(
        &self,
        lease: Lease,
        settings: AgentSettings,
    ) -> BoxFuture<'static, Result<(), StoreError>>;

    /// What a conversation was begun with, by its digest.
    async fn briefing(&self, digest: u64) -> Result<Option<Brief>, StoreError>;

    /// A page of agents in the order in which they were stored.
    async fn agents(&self, query: AgentQuery) -> Result<AgentPage, StoreError>;

    /// Those of these agents that another living process has.
    async fn elsewhere(&self, among: Vec<AgentId>) -> Result<HashSet<AgentId>, StoreError>;

    /// A stored agent and its stored ancestors, itself first, whoever holds them. Empty when it is not stored, or a saved
    /// session; it ends early at an ancestor that is temporary.
    async fn lineage(&self, id: &AgentId) -> Result<Vec<AgentRecord>, StoreError>;

    /// How many stored children `parent` has, and how many agents and saved sessions there are in the tree of which
    /// `root` is the root, itself included: a saved one belongs to the agent it stands beneath or, where it has lost
    /// that one or never had one, to the agent that made it. Counts no further than `most` agents.
    async fn census(
        &self,
        root: &AgentId,
        parent: Option<&AgentId>,
        most: usize,
    ) -> Result<Census, StoreError>;

    /// `limit` messages of a held agent's history from index `first` on, fewer at its end. No more follow the one with
    /// which they have `bytes_max` bytes of text together. A store may leave the bytes of attachments where they are.
    async fn messages(
        &self,
        agent: AgentKey,
        first: u64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<SharedMessage>, StoreError>;

    /// What model calls used, by what is asked for; sessions that nobody works in are left out.
    async fn spending(&self, query: SpendingQuery) -> Result<Vec<Spent>, StoreError>;

    /// Adds what a temporary agent used to what the descendants of `heir` used that are gone. Nothing happens when that
    /// is not stored.
    async fn absorb(&self, heir: &AgentId, bill: Bill) -> Result<(), StoreError>;

    /// Ends agents and all their descendants for good, all or none, and returns who went, parents before their children.
    /// Unknown names are passed over; of a temporary agent, what it asked leave for goes. The descendants are the store's
    /// to find: another process may have made some that this one never saw; one that lives elsewhere is
    /// `HeldElsewhere`. Of an agent that was saved by name a saved session is left, without its parent. Costs as much as
    /// the family is large.
    async fn destroy(&self, ids: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError>;

    /// Gives the lease of a held agent back: it leaves this process's memory, and any process may have it.
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

    /// Leases with a fence up to this one are not this process's any more: it was paused for so long that another took
    /// it for dead. The first fence of all while that did not happen. Cheap, and asked on every touch of an agent.
    fn void_through(&self) -> Fence;

    /// Grows when another process's writes became visible. A hint for caches, noticed within seconds: nothing may be
    /// decided by it.
    fn foreign_commits(&self) -> u64;

    /// Says how this process can be reached by those who find it holding an agent.
    async fn announce(&self, contact: Contact) -> Result<(), StoreError>;

    /// Flushes what is queued and gives all leases of this process back. Later writes fail.
    async fn close(&self) -> Result<(), StoreError>;
}

/// The right of this process to write one agent. Follows the agent through renames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub agent: AgentKey,
    pub fence: Fence,
}

/// What the store knows an agent by. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentKey(pub i64);

/// Grows each time any lease changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// An agent as it lies in the store, without its messages.
#[derive(Clone, Debug)]
pub struct AgentRecord {
    pub id: AgentId,
    pub created_at: Timestamp,
    /// Tells this agent from others that had its name: given anew when it is made, loaded and renamed. The store's to
    /// say; 0 before it did.
    pub born: u64,
    pub parent: Option<AgentId>,
    /// 0 for an agent without a parent.
    pub depth: u32,
    /// The most this agent may ever hold. `None` for an agent that an administrator made without a parent.
    pub ceiling: Option<Permissions>,
    pub settings: AgentSettings,
    pub progress: Progress,
    /// All that its model calls used.
    pub bill: Bill,
    /// Tells its conversation and all copies of it from others. The store's to say of one that is taken; 0 elsewhere.
    pub root: u64,
    pub message_count: u64,
    /// When the last message was written.
    pub last_action_at: Option<Timestamp>,
}

/// What changes with turns, beside the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub halted_at_iteration_limit: bool,
    pub last_iteration_count: u32,
    pub should_shutdown: bool,
}

/// An agent that was just taken.
pub struct StoredAgent {
    pub record: AgentRecord,
    pub lease: Lease,
    pub window: Window,
}

/// The end of a history: from what its last summary leaves standing, or all of it where there is none.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Index of the first of `messages`: the last user message before what the last summary covers ends, so that what
    /// was asked is there however far the summary reaches.
    pub first: u64,
    pub messages: Vec<SharedMessage>,
}

/// One atomic step of a conversation.
#[derive(Clone, Debug, Default)]
pub struct Append {
    /// Index of the first of `messages` in the history; the store refuses a gap or an overwrite.
    pub first_index: u64,
    pub messages: Vec<SharedMessage>,
    /// `None` leaves it as it is, and the place of the session among the most recently changed.
    pub progress: Option<Progress>,
    /// All that the agent's model calls used, these messages included; `None` leaves it as it is.
    pub bill: Option<Bill>,
    /// What the messages were made with, where that is new to the conversation.
    pub brief: Option<Arc<Brief>>,
}

#[derive(Clone, Debug)]
pub struct AgentQuery {
    /// Only those stored after this one. An unknown name yields an empty page.
    pub after: Option<AgentId>,
    pub limit: u32,
    /// Only this agent, its ancestors and its descendants.
    pub line_of: Option<AgentId>,
    /// Only those that were not told to shut down.
    pub working: bool,
}

/// Which model calls are asked for.
#[derive(Clone, Debug)]
pub struct SpendingQuery {
    /// Those of one agent; of all without it.
    pub of: Option<AgentId>,
    /// Those of its descendants too.
    pub tree: bool,
    pub by: SpendingBy,
    /// Only those since then. Of agents that are gone only the sum is known, so they are left out.
    pub since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendingBy {
    Agent,
    /// `provider/model`. Of agents that are gone only the sum is known, so they are left out.
    Model,
    /// The same by day, in UTC.
    Day,
}

/// What some model calls used together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// An agent, a model or a day.
    pub key: String,
    pub bill: Bill,
}

/// How large a tree is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    pub children: usize,
    pub tree: usize,
}

#[derive(Clone, Debug, Default)]
pub struct AgentPage {
    pub agents: Vec<ListedAgent>,
    /// There are more behind the last.
    pub more: bool,
}

#[derive(Clone, Debug)]
pub struct ListedAgent {
    pub record: AgentRecord,
    /// Its stored children.
    pub child_count: u64,
}
