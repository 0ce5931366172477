//! Sessions: agents as they lie in the store, saved ones included.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{AgentRecord, AgentSettings, Lease, StoreError, StoredAgent};
use crate::message::SharedMessage;
use crate::name::AgentId;

#[async_trait]
pub trait SessionStore: Send + Sync {
    /// A page of sessions, the most recently changed first.
    async fn sessions(&self, query: SessionQuery) -> Result<SessionPage, StoreError>;

    /// A session without its messages, whoever holds it.
    async fn session(&self, name: &AgentId) -> Result<Option<SessionRecord>, StoreError>;

    /// A session with all its messages, whoever holds it: as far as it is on disk.
    async fn read_session(
        &self,
        name: &AgentId,
    ) -> Result<Option<(SessionRecord, Vec<SharedMessage>)>, StoreError>;

    /// Makes the temporary agent `was` permanent under the record's name, with all it said so far, and takes its lease.
    /// Returns the record's `born` beside it.
    async fn settle(
        &self,
        was: &AgentId,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<(Lease, u64), StoreError>;

    /// Notes that a held agent was saved by name.
    async fn keep(&self, lease: Lease) -> Result<(), StoreError>;

    /// Makes a saved copy that shares the past of `from`. With `replace`, a copy that was saved from the same agent
    /// before gives way. False when there is no session `from`.
    async fn copy_session(
        &self,
        from: &AgentId,
        to: &AgentId,
        replace: bool,
    ) -> Result<bool, StoreError>;

    /// Makes an agent of a session, saved or not, and takes its lease: under its own name, or of a copy under another.
    /// `None` when there is no such session.
    async fn load(
        &self,
        from: &AgentId,
        loaded: LoadedAs,
    ) -> Result<Option<StoredAgent>, StoreError>;

    /// Gives a session another name, in all that refers to it, and returns its new `born`. `None` when there is none;
    /// `Exists` or `Saved` when the new name is taken, `HeldElsewhere` when another living process has it.
    async fn rename(&self, from: &AgentId, to: &AgentId) -> Result<Option<u64>, StoreError>;

    /// Removes a session, saved by name or not, and ends its descendants as `destroy` does. Returns who went.
    async fn delete(&self, name: &AgentId) -> Result<Vec<AgentId>, StoreError>;
}

/// What a session becomes.
#[derive(Clone, Debug)]
pub struct LoadedAs {
    pub name: AgentId,
    /// Replace its own.
    pub settings: Option<AgentSettings>,
}

/// A session: an agent, or what is left of one.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    pub record: AgentRecord,
    /// Nobody works in it until it is loaded.
    pub saved: bool,
    pub updated_at: Timestamp,
    /// The agent it was made by; `None` for a person.
    pub made_by: Option<AgentId>,
}

#[derive(Clone, Debug)]
pub struct SessionQuery {
    pub offset: u64,
    pub limit: u32,
    /// Only the session of this agent and those of its descendants.
    pub line_of: Option<AgentId>,
}

#[derive(Clone, Debug, Default)]
pub struct SessionPage {
    pub total: u64,
    pub sessions: Vec<SessionRecord>,
}
