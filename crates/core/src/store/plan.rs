//! Plans, and how far they got.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{Fence, StoreError};
use crate::name::AgentId;
use crate::plan::{Plan, PlanId, PlanStatus, TaskRecord};

#[async_trait]
pub trait PlanStore: Send + Sync {
    /// Keeps a plan that nobody has run, and removes those that nobody has touched since `stale`. Where its tree has more
    /// than `room` with it, those go that were touched longest ago; what runs stays.
    async fn add_plan(
        &self,
        plan: PlanRecord,
        stale: Timestamp,
        room: PlanRoom,
    ) -> Result<(), StoreError>;

    async fn plan(&self, id: &PlanId) -> Result<Option<StoredPlan>, StoreError>;

    /// A page of plans, those touched last first.
    async fn plans(&self, query: PlanQuery) -> Result<PlanPage, StoreError>;

    /// Takes the right to run a plan, and reads it as it stands then. `None` when there is no such plan; [`Begun::Runs`]
    /// when another living process runs it. From a run of this process it is taken away: who may have it here, this
    /// process knows.
    async fn begin_plan(&self, id: &PlanId, now: Timestamp) -> Result<Option<Begun>, StoreError>;

    /// Notes how far a task got. `LeaseLost` when the plan is run by somebody else by now.
    async fn note_task(
        &self,
        run: &PlanRun,
        task: String,
        record: TaskRecord,
    ) -> Result<(), StoreError>;

    /// Ends a run. `LeaseLost` as above.
    async fn end_plan(
        &self,
        run: &PlanRun,
        status: PlanStatus,
        now: Timestamp,
    ) -> Result<(), StoreError>;
}

/// A plan as it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRecord {
    pub id: PlanId,
    /// What it was made for; nothing where somebody brought it along.
    pub request: String,
    pub plan: Plan,
    pub maker: Maker,
    /// The root of the tree that its maker belonged to then; `None` of the administrator's.
    pub tree: Option<AgentId>,
    pub created_at: Timestamp,
}

/// How many plans of one tree are kept, and how many bytes they may have: of their requests, and of the plans in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRoom {
    pub count_max: u64,
    pub bytes_max: u64,
}

/// Who made a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maker {
    Administrator,
    /// The agent of this name that was born so.
    Agent(AgentId, u64),
}

/// A plan, and how far it got.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPlan {
    pub record: PlanRecord,
    pub status: PlanStatus,
    pub touched_at: Timestamp,
    /// By the id of the task; those that were never begun are missing.
    pub tasks: Vec<(String, TaskRecord)>,
}

/// The right of this process to run one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRun {
    pub plan: PlanId,
    pub fence: Fence,
}

#[derive(Clone, Debug)]
pub enum Begun {
    Taken(PlanRun, Box<StoredPlan>),
    /// The process that runs it.
    Runs {
        pid: u32,
    },
}

#[derive(Clone, Debug)]
pub struct PlanQuery {
    /// Only what this agent made.
    pub maker: Option<Maker>,
    /// Only those touched before this one. An unknown one yields an empty page.
    pub after: Option<PlanId>,
    pub limit: u32,
}

#[derive(Clone, Debug, Default)]
pub struct PlanPage {
    pub plans: Vec<ListedPlan>,
    /// There are more behind the last.
    pub more: bool,
}

/// Characters of a request that a list shows.
pub const LISTED_REQUEST_CHARS: u32 = 500;

#[derive(Clone, Debug, PartialEq)]
pub struct ListedPlan {
    pub id: PlanId,
    /// Its first [`LISTED_REQUEST_CHARS`].
    pub request: String,
    pub status: PlanStatus,
    pub created_at: Timestamp,
    pub touched_at: Timestamp,
    pub task_count: u32,
    pub done_count: u32,
}
