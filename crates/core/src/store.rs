//! What the core asks of the place where agents are kept.

use std::path::PathBuf;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use crate::message::SharedMessage;
use crate::name::AgentId;
use crate::permission::{Grants, Permissions};

/// Keeps agents and their conversations. What a method here has answered is on disk.
///
/// Several processes may share one store. An agent is live in one of them at a time: `create` and `acquire` take its
/// lease and return a fencing number, and every later write carries that number, so that a process which lost the
/// lease cannot write.
#[async_trait]
pub trait Store: Send + Sync {
    /// Stores a new agent and takes its lease. `StoreError::Exists` when the name is taken.
    async fn create(&self, agent: AgentRecord) -> Result<Fence, StoreError>;

    /// Takes the lease of a stored agent and reads it whole. `None` when there is no such agent (or it was destroyed, or
    /// is a saved session);
    /// `StoreError::HeldElsewhere` when another living process has it.
    async fn acquire(&self, id: &AgentId) -> Result<Option<StoredAgent>, StoreError>;

    /// All agents that were not destroyed, without their messages, ordered by creation.
    async fn list(&self) -> Result<Vec<AgentRecord>, StoreError>;

    /// Ends agents and all their descendants for good, all or none, and returns who went. Unknown names are passed over;
    /// of a temporary agent, what it asked leave for goes. The descendants are the store's to find: another process may
    /// have made some that this one never saw. Of an agent that was saved by name a saved session is left, without its
    /// parent.
    async fn destroy(&self, ids: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError>;

    /// Appends messages, and notes what changes with them, in one transaction. The write is queued when this is called,
    /// in order with other writes; the future resolves when it is on disk.
    fn append(
        &self,
        id: &AgentId,
        fence: Fence,
        append: Append,
    ) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Replaces what can be changed on a living agent, and nothing else.
    fn update(
        &self,
        id: &AgentId,
        fence: Fence,
        settings: SettingsRecord,
    ) -> BoxFuture<'static, Result<(), StoreError>>;

    /// A page of sessions, the most recently changed first.
    async fn sessions(&self, query: SessionQuery) -> Result<SessionPage, StoreError>;

    /// A session without its messages, whoever holds it.
    async fn session(&self, name: &AgentId) -> Result<Option<SessionRecord>, StoreError>;

    /// A session with its messages, whoever holds it: as far as it is on disk.
    async fn read_session(
        &self,
        name: &AgentId,
    ) -> Result<Option<(SessionRecord, Vec<SharedMessage>)>, StoreError>;

    /// Makes the temporary agent `was` permanent under the record's name, with all it said so far, and takes its lease.
    async fn settle(
        &self,
        was: &AgentId,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<Fence, StoreError>;

    /// Notes that a held agent was saved by name.
    async fn keep(&self, id: &AgentId, fence: Fence) -> Result<(), StoreError>;

    /// Makes a saved copy that shares the past of `from`. With `replace`, a copy that was saved from the same agent
    /// before gives way. False when there is no session `from`.
    async fn copy_session(
        &self,
        from: &AgentId,
        to: &AgentId,
        replace: bool,
    ) -> Result<bool, StoreError>;

    /// Makes an agent of a session, saved or not, and takes its lease: under its own name, or of a copy under `to`.
    /// `settings` replace its own. `None` when there is no such session.
    async fn load(
        &self,
        from: &AgentId,
        to: &AgentId,
        settings: Option<SettingsRecord>,
    ) -> Result<Option<StoredAgent>, StoreError>;

    /// Gives a session another name, in all that refers to it. False when there is none.
    async fn rename(&self, from: &AgentId, to: &AgentId) -> Result<bool, StoreError>;

    /// Removes a session, saved by name or not, and ends its descendants as `destroy` does. Returns who went.
    async fn delete(&self, name: &AgentId) -> Result<Vec<AgentId>, StoreError>;

    /// Gives the lease of a held agent back: it leaves this process's memory, and any process may have it.
    async fn release(&self, id: &AgentId, fence: Fence) -> Result<(), StoreError>;

    /// Stores a new approval, which waits in this process. Of its agent's older ones, the oldest may go.
    /// `StoreError::LeaseLost` when the agent was destroyed.
    async fn put_approval(&self, approval: ApprovalRecord) -> Result<(), StoreError>;

    /// Notes how an approval ended. One that went with its agent stays gone.
    async fn settle_approval(&self, id: &str, status: ApprovalStatus) -> Result<(), StoreError>;

    /// One approval, whoever asked.
    async fn approval(&self, id: &str) -> Result<Option<StoredApproval>, StoreError>;

    /// All approvals, oldest first; of temporary agents, only those of this process. One that waited in a process which
    /// is gone is `DeniedByRestart`.
    async fn approvals(&self) -> Result<Vec<ApprovalRecord>, StoreError>;

    /// Grows when another process has written. Noticed with the next write of this one, and within seconds in any case.
    /// Cheap, and asked with every list of agents.
    fn changes_elsewhere(&self) -> u64;

    /// Leases with a fence up to this one are not this process's any more: it was paused for so long that another took
    /// it for dead. The first fence of all while that did not happen. Cheap, and asked on every touch of an agent.
    fn void_through(&self) -> Fence;

    /// Flushes what is queued and gives all leases of this process back. Later writes fail.
    async fn close(&self) -> Result<(), StoreError>;
}

/// Grows each time the lease of an agent changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// An agent as it lies in the store, without its messages.
#[derive(Clone, Debug)]
pub struct AgentRecord {
    pub id: AgentId,
    pub created_at: Timestamp,
    pub parent: Option<AgentId>,
    /// 0 for an agent without a parent.
    pub depth: u32,
    pub permissions: Permissions,
    /// The most this agent may ever hold. `None` for an agent that an administrator made without a parent.
    pub ceiling: Option<Permissions>,
    /// Alias of the model, `None` for the server's default.
    pub model: Option<String>,
    pub cwd: PathBuf,
    /// Replaces the layered prompt, where one was given.
    pub system_prompt: Option<String>,
    pub grants: Grants,
    pub progress: Progress,
    pub message_count: u64,
    /// When the last message was written.
    pub last_action_at: Option<Timestamp>,
}

/// The part of an agent's record that can be changed while it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsRecord {
    pub permissions: Permissions,
    pub grants: Grants,
    pub model: Option<String>,
    pub cwd: PathBuf,
    pub system_prompt: Option<String>,
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

/// A request for leave, as it lies in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRecord {
    pub id: String,
    pub agent: AgentId,
    pub tool: String,
    pub arguments: Value,
    pub reason: String,
    pub created_at: Timestamp,
    pub status: ApprovalStatus,
}

/// An approval, and where it waits if it does.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredApproval {
    pub record: ApprovalRecord,
    /// The other living process in which it waits, in words for people.
    pub waits_in: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalStatus {
    Pending,
    AllowedOnce,
    AllowedSession,
    Denied,
    TimedOut,
    /// The turn that asked was cancelled.
    Cancelled,
    /// The process in which it waited is gone.
    DeniedByRestart,
}

impl ApprovalStatus {
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::AllowedOnce,
        Self::AllowedSession,
        Self::Denied,
        Self::TimedOut,
        Self::Cancelled,
        Self::DeniedByRestart,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::AllowedOnce => "allowed_once",
            Self::AllowedSession => "allowed_session",
            Self::Denied => "denied",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::DeniedByRestart => "denied_by_restart",
        }
    }
}

/// What changes with turns, beside the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub halted_at_iteration_limit: bool,
    pub last_iteration_count: u32,
    pub should_shutdown: bool,
}

pub struct StoredAgent {
    pub record: AgentRecord,
    pub fence: Fence,
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
}

#[derive(Debug, Clone, Error)]
pub enum StoreError {
    #[error("an agent named {0} exists already")]
    Exists(AgentId),
    #[error(
        "a saved session named {0} exists already: load_session makes an agent of it, delete_session frees the name"
    )]
    Saved(AgentId),
    #[error("agent {id} is live in another process ({owner})")]
    HeldElsewhere { id: AgentId, owner: String },
    /// The agent was destroyed.
    #[error("unknown agent: {0}")]
    Unknown(AgentId),
    /// This process wrote with a lease it no longer has.
    #[error("the lease on agent {0} was lost to another process")]
    LeaseLost(AgentId),
    #[error("there is no space left on the disk")]
    DiskFull,
    #[error("the store cannot be written")]
    ReadOnly,
    /// Another process has been writing for longer than a write takes; perhaps it was stopped in the middle of one.
    #[error("the store is held by another process")]
    Busy,
    #[error("the store is closed")]
    Closed,
    /// Everything else. The detail is for the log, not for a caller.
    #[error("the store failed")]
    Failed(String),
}
