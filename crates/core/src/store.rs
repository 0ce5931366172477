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

    /// Takes the lease of a stored agent and reads it whole. `None` when there is no such agent (or it was destroyed);
    /// `StoreError::HeldElsewhere` when another living process has it.
    async fn acquire(&self, id: &AgentId) -> Result<Option<StoredAgent>, StoreError>;

    /// All agents that were not destroyed, without their messages, ordered by creation.
    async fn list(&self) -> Result<Vec<AgentRecord>, StoreError>;

    /// Ends agents and all their descendants for good, all or none, and returns who went. Unknown names are passed over;
    /// of a temporary agent, what it asked leave for goes. The descendants are the store's to find: another process may have made some that this one never saw.
    async fn destroy(&self, ids: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError>;

    /// Appends messages and updates the agent's row in one transaction. The write is queued when this is called, in
    /// order with other writes; the future resolves when it is on disk.
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
}

/// The part of an agent's record that can be changed while it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsRecord {
    pub permissions: Permissions,
    pub grants: Grants,
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

/// What changes with each turn, beside the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub last_action_at: Option<Timestamp>,
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
    pub progress: Progress,
}

#[derive(Debug, Clone, Error)]
pub enum StoreError {
    #[error("an agent named {0} exists already")]
    Exists(AgentId),
    #[error("agent {id} is live in another process ({owner})")]
    HeldElsewhere { id: AgentId, owner: String },
    /// This process wrote with a lease it no longer has.
    #[error("the lease on agent {0} was lost to another process")]
    LeaseLost(AgentId),
    #[error("there is no space left on the disk")]
    DiskFull,
    #[error("the store cannot be written")]
    ReadOnly,
    #[error("the store is closed")]
    Closed,
    /// Everything else. The detail is for the log, not for a caller.
    #[error("the store failed")]
    Failed(String),
}
