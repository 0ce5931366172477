//! Requests for leave.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::{AgentSettings, Holder, Lease, StoreError};
use crate::inquiry::Inquiry;
use crate::name::{AgentId, TurnId};
use crate::preview::{Grant, Preview};

#[async_trait]
pub trait ApprovalStore: Send + Sync {
    /// Stores a new approval, which waits in this process. Of its agent's older ones, the oldest may go. `Ended` when
    /// the agent was ended.
    async fn put_approval(&self, approval: ApprovalRecord) -> Result<(), StoreError>;

    /// Notes how an approval ended and, in the same step, what it gave its agent. One that went with its agent stays
    /// gone.
    async fn settle_approval(&self, settlement: Settlement) -> Result<(), StoreError>;

    /// One approval, whoever asked.
    async fn approval(&self, id: &str) -> Result<Option<StoredApproval>, StoreError>;

    /// A page of approvals, oldest first; of temporary agents, only those of this process. One that waited in a process
    /// which is gone is `DeniedByRestart`.
    async fn approvals(&self, query: ApprovalQuery) -> Result<ApprovalPage, StoreError>;
}

/// A request for leave, as it lies in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRecord {
    pub id: String,
    pub agent: AgentId,
    /// The `born` of its agent when it asked. The store does not know temporary agents: this tells what one of them asked
    /// from what another did that had its name.
    pub born: u64,
    pub tool: String,
    pub arguments: Value,
    pub reason: String,
    pub created_at: Timestamp,
    /// The agents above the one that asks, the topmost first, when it was asked.
    pub lineage: Vec<AgentId>,
    /// The turn that waits for it.
    pub turn: Option<TurnId>,
    /// When it is denied because nobody has answered.
    pub expires_at: Option<Timestamp>,
    /// What leave for the session adds, where that is one thing.
    pub grant: Option<Grant>,
    pub preview: Option<Arc<Preview>>,
    /// What a server asks, where it is no request for leave.
    pub inquiry: Option<Arc<Inquiry>>,
    pub answer: ApprovalAnswer,
}

/// How an approval stands, and by whom.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalAnswer {
    pub status: ApprovalStatus,
    /// `administrator` or an agent's name; `None` where nobody answered.
    pub by: Option<String>,
    /// What was said with a denial.
    pub message: Option<String>,
}

impl From<ApprovalStatus> for ApprovalAnswer {
    /// What nobody in particular decided.
    fn from(status: ApprovalStatus) -> Self {
        Self { status, by: None, message: None }
    }
}

/// How an approval ended.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub id: String,
    pub answer: ApprovalAnswer,
    /// The settings of the held agent that asked, with what it was granted.
    pub grant: Option<(Lease, AgentSettings)>,
}

/// An approval, and where it waits if it does.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredApproval {
    pub record: ApprovalRecord,
    /// The other living process in which it waits.
    pub waits_in: Option<Holder>,
}

#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    pub agent: Option<AgentId>,
    /// Only those of this agent and of its stored descendants.
    pub line_of: Option<AgentId>,
    /// Only those that wait in another living process.
    pub elsewhere: bool,
    /// Only those behind this one.
    pub after: Option<String>,
    pub limit: u32,
}

#[derive(Clone, Debug, Default)]
pub struct ApprovalPage {
    pub approvals: Vec<ApprovalRecord>,
    pub more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalStatus {
    Pending,
    AllowedOnce,
    AllowedSession,
    Denied,
    /// A question of a server, to which somebody said yes.
    Accepted,
    /// The same, and no.
    Declined,
    TimedOut,
    /// The turn that asked was cancelled, or nobody wanted to answer a server.
    Cancelled,
    /// The process in which it waited is gone.
    DeniedByRestart,
}

impl ApprovalStatus {
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::AllowedOnce,
        Self::AllowedSession,
        Self::Denied,
        Self::Accepted,
        Self::Declined,
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
            Self::Accepted => "accepted",
            Self::Declined => "declined",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::DeniedByRestart => "denied_by_restart",
        }
    }
}
