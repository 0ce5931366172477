//! Sessions: agents as they lie in the store, saved ones included.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{AgentRecord, AgentSettings, Lease, Progress, StoreError, StoredAgent};
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

    /// One message of a session, by its index. `None` when there is no such session, or it has not said as much.
    async fn session_message(
        &self,
        name: &AgentId,
        index: u64,
    ) -> Result<Option<SharedMessage>, StoreError>;

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
        copy: Copied,
        replace: bool,
    ) -> Result<bool, StoreError>;

    /// Makes an agent of a session, saved or not, under its own name and takes its lease. `settings` replace its own.
    /// `None` when there is no such session.
    async fn load(
        &self,
        name: &AgentId,
        settings: Option<AgentSettings>,
    ) -> Result<Option<StoredAgent>, StoreError>;

    /// Makes an agent of a copy that shares the past of `from`, and takes its lease. `None` when there is no session
    /// `from`.
    async fn load_copy(
        &self,
        from: &AgentId,
        copy: Copied,
    ) -> Result<Option<StoredAgent>, StoreError>;

    /// Gives a session another name, in all that refers to it, and returns its new `born`. `None` when there is none;
    /// `Exists` or `Saved` when the new name is taken, `HeldElsewhere` when another living process has it.
    async fn rename(&self, from: &AgentId, to: &AgentId) -> Result<Option<u64>, StoreError>;

    /// Removes a session, saved by name or not, and ends its descendants as `destroy` does. Returns who went.
    async fn delete(&self, name: &AgentId) -> Result<Vec<AgentId>, StoreError>;
}

/// What a copy of a session is. What it said, where it stands (parent and depth) and its ceiling are its source's, as of
/// the moment in which it is made.
#[derive(Clone, Debug)]
pub struct Copied {
    pub name: AgentId,
    pub settings: AgentSettings,
    pub progress: Progress,
    /// As in `SessionRecord`, for when it has no parent.
    pub made_by: Option<AgentId>,
    /// It keeps so many messages from the first; all when `None`.
    pub length_max: Option<u64>,
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
