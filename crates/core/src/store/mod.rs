//! What the core asks of the place where agents are kept. One trait per resource, filled by one adapter; whatever fills
//! them passes the contract in `nexus-testkit`.

mod agent;
mod answers;
mod approval;
mod key;
mod memory;
mod plan;
mod session;
mod settings;
mod shared_context;

use std::path::PathBuf;

use thiserror::Error;

use crate::name::AgentId;

pub use agent::{
    AgentKey, AgentPage, AgentQuery, AgentRecord, AgentStore, Append, Census, Fence, Lease,
    ListedAgent, Progress, SpendingBy, SpendingQuery, Spent, StoredAgent, Window,
};
pub use answers::{ANSWER_KEPT, AnswerRoom, AnswersStore, CallDigest, Earlier, is_forgotten};
pub use approval::{
    ApprovalAnswer, ApprovalPage, ApprovalQuery, ApprovalRecord, ApprovalStatus, ApprovalStore,
    Settlement, StoredApproval,
};
pub use key::{Door, KeyAdded, KeyAgent, KeyRecord, KeyStore};
pub use memory::{
    Deletion, IdPrefix, MemoriesStore, MemoriesWeight, MemoryId, MemoryKey, MemoryQuery,
    MemoryRecord, MemoryRoom, MemoryScope, SUBJECTS_MAX, Said, ScopeKey, StoredVector, Unembedded,
};
pub use plan::{
    Begun, LISTED_REQUEST_CHARS, ListedPlan, Maker, PlanPage, PlanQuery, PlanRecord, PlanRoom,
    PlanRun, PlanStore, StoredPlan,
};
pub use session::{Copied, SessionPage, SessionQuery, SessionRecord, SessionStore};
pub use settings::{AgentSettings, Ticket};
pub use shared_context::{
    CONTEXT_BYTES_MAX, ContextAction, ContextChange, ContextKind, ContextOutcome, ContextRefusal,
    ContextStore, DEPTH_MAX as CONTEXT_DEPTH_MAX, ENTRIES_MAX, ENTRY_BYTES_MAX, Effect, EntryNow,
    SharedContext, entry_bytes,
};

/// Everything that is kept. What a method here has answered is on disk; what it refused changed nothing.
///
/// Several processes may share one store. An agent is live in one of them at a time: whoever makes or acquires it gets
/// a [`Lease`], every later write carries it, and one with an old fence is refused. Writes of one agent happen in the
/// order in which they were asked for; nothing is said of the order among agents.
pub trait Store:
    AgentStore
    + SessionStore
    + ApprovalStore
    + MemoriesStore
    + PlanStore
    + ContextStore
    + AnswersStore
    + KeyStore
{
}

impl<T> Store for T where
    T: AgentStore
        + SessionStore
        + ApprovalStore
        + MemoriesStore
        + PlanStore
        + ContextStore
        + AnswersStore
        + KeyStore
{
}

/// The living process that has an agent: enough to call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    /// How its server can be reached, where it has announced that.
    pub contact: Contact,
}

/// How a server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    pub url: Option<String>,
    pub socket: Option<PathBuf>,
}

#[derive(Debug, Clone, Error)]
pub enum StoreError {
    #[error("an agent named {0} exists already")]
    Exists(AgentId),
    #[error("a saved session named {0} exists already")]
    Saved(AgentId),
    /// The parent of a new agent is not there, or not any more.
    #[error("unknown parent agent: {0}")]
    UnknownParent(AgentId),
    #[error("agent {id} is live in another process (process {})", .holder.pid)]
    HeldElsewhere { id: AgentId, holder: Holder },
    /// The agent of this lease was ended.
    #[error("the agent was ended")]
    Ended,
    /// This process wrote with a lease it no longer has.
    #[error("the lease on the agent was lost to another process")]
    LeaseLost,
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
