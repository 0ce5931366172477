//! Plans: made by a planner, run by executors, kept at every step.

mod make;
mod run;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::authority::Requester;
use crate::executor::Executor;
use crate::lifecycle::{AccessError, Lifecycle};
use crate::lock;
use crate::name::AgentId;
use crate::plan::PlanId;
use crate::store::{Maker, PlanPage, PlanQuery, Store, StoreError, StoredPlan};
use crate::toolbox::Toolbox;
use crate::turn::Turns;

pub use make::{MakeError, PlanRequest, Sinks};
pub use run::{
    OnFailure, PARALLEL_MAX, PARALLEL_USUAL, RunError, RunOptions, RunReport, Tell, Which,
};

/// How long a plan is kept that nobody touches.
pub const KEPT_DAYS: i64 = 30;

/// Plans of one tree of agents that are kept, and the bytes of what is to be done in them. Agents pay nothing for a plan
/// that they bring along.
pub const TREE_PLANS_MAX: u64 = 1_000;
pub const TREE_PLANS_BYTES_MAX: u64 = 64 << 20;

/// Plans that the agents of one tree run at once: each is in memory, with what its tasks came to.
pub const TREE_RUNS_MAX: usize = 64;

pub struct Plans {
    pub(crate) executor: Arc<Executor>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) planner_model: Option<String>,
    /// Those that run here.
    pub(crate) running: Mutex<HashMap<PlanId, Running>>,
}

/// A plan that runs here.
pub(crate) struct Running {
    /// Ends it.
    cancel: CancellationToken,
    /// The root of the tree whose agent runs it; `None` of the administrator.
    tree: Option<AgentId>,
}

#[derive(Clone, Debug, Error)]
pub enum PlansError {
    /// Also of one that the caller may not see.
    #[error("unknown plan: {0}")]
    Unknown(String),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Plans {
    /// A plan that `requester` may see, and how far it got.
    pub async fn get(&self, requester: &Requester, id: &str) -> Result<StoredPlan, PlansError> {
        let unknown = || PlansError::Unknown(id.into());
        let id = PlanId::parse(id).ok_or_else(unknown)?;
        let maker = self.maker(requester).await?;
        let plan = self.store.plan(&id).await?.ok_or_else(unknown)?;
        match maker == Maker::Administrator || plan.record.maker == maker {
            true => Ok(plan),
            false => Err(unknown()),
        }
    }

    /// The administrator sees all plans, an agent those it made.
    pub async fn list(
        &self,
        requester: &Requester,
        after: Option<&str>,
        limit: u32,
    ) -> Result<PlanPage, PlansError> {
        let after = match after {
            Some(after) => {
                Some(PlanId::parse(after).ok_or_else(|| PlansError::Unknown(after.into()))?)
            }
            None => None,
        };
        let maker = self.maker(requester).await?;
        let maker = (maker != Maker::Administrator).then_some(maker);
        Ok(self.store.plans(PlanQuery { maker, after, limit }).await?)
    }

    /// Ends the run of a plan. False when it does not run here.
    pub async fn cancel(&self, requester: &Requester, id: &str) -> Result<bool, PlansError> {
        let plan = self.get(requester, id).await?;
        let running = lock(&self.running).get(&plan.record.id).map(|it| it.cancel.clone());
        running.iter().for_each(CancellationToken::cancel);
        Ok(running.is_some())
    }

    /// The plans that run here.
    pub fn running(&self) -> Vec<PlanId> {
        lock(&self.running).keys().cloned().collect()
    }

    /// As whom the requester makes plans, and sees them.
    async fn maker(&self, requester: &Requester) -> Result<Maker, PlansError> {
        let Requester::Agent(id) = requester else { return Ok(Maker::Administrator) };
        match self.lifecycle.born(id).await? {
            Some(born) => Ok(Maker::Agent(id.clone(), born)),
            None => Err(AccessError::Unknown(id.clone()).into()),
        }
    }

    /// The root of the tree in which the requester makes and runs plans; `None` for the administrator, who is not bound.
    async fn tree(&self, requester: &Requester) -> Result<Option<AgentId>, StoreError> {
        let Requester::Agent(own) = requester else { return Ok(None) };
        let mut above = self.lifecycle.kin.ancestors(own).await?;
        Ok(Some(above.pop().map_or_else(|| own.clone(), |root| root.id)))
    }
}
