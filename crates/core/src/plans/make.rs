//! Asking a model for a plan. What it answers is held to the rules of a plan, or refused; nothing is made up.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::SignedDuration;
use serde_json::Value;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{KEPT_DAYS, Plans, PlansError, TREE_PLANS_BYTES_MAX, TREE_PLANS_MAX};
use crate::agent::Agent;
use crate::authority::Requester;
use crate::detached;
use crate::events::{EventSink, TurnEvent, TurnOutcome};
use crate::lifecycle::{AgentSpec, CreateError};
use crate::mcp::McpReach;
use crate::message::StopReason;
use crate::plan::{Constraints, Plan, PlanFault, PlanId, PlanStatus, TaskType};
use crate::store::{PlanRecord, PlanRoom, StoreError, StoredPlan};
use crate::turn::{TurnError, TurnInput};
use crate::usage::Bill;

const ROOM_OF_A_TREE: PlanRoom =
    PlanRoom { count_max: TREE_PLANS_MAX, bytes_max: TREE_PLANS_BYTES_MAX };

/// How often a planner is asked to mend its plan.
const REPAIRS_MAX: u32 = 2;

/// What is to be planned.
#[derive(Clone, Debug, Default)]
pub struct PlanRequest {
    pub user_request: String,
    /// What is done and pending already, as the caller says it.
    pub state: Option<Value>,
    pub constraints: Constraints,
    pub model: Option<String>,
}

/// Somebody who watches, for each time that the planner is asked.
pub type Sinks = Arc<dyn Fn() -> Box<dyn EventSink> + Send + Sync>;

#[derive(Clone, Debug, Error)]
pub enum MakeError {
    #[error("the planner's answer {asked} times was no plan: {fault}")]
    Fault { asked: u32, fault: PlanFault },
    #[error("the planner gave no plan: {0}")]
    Refused(String),
    #[error("the planner's time was over")]
    Timeout,
    #[error("the planning was cancelled")]
    Cancelled,
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Turn(#[from] TurnError),
    #[error(transparent)]
    Plans(#[from] PlansError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Plans {
    /// Has a plan made, and keeps it. Also what making it used. Goes on when nobody waits for it any more, until `cancel`
    /// or `deadline`.
    pub async fn create(
        self: &Arc<Self>,
        requester: &Requester,
        request: PlanRequest,
        cancel: CancellationToken,
        deadline: Instant,
        sinks: Option<Sinks>,
    ) -> Result<(StoredPlan, Bill), MakeError> {
        let (maker, tree) = (self.maker(requester).await?, self.tree(requester).await?);
        let spec = AgentSpec {
            name: Some(".".into()),
            preset: Some("worker".into()),
            model: request.model.clone().or_else(|| self.planner_model.clone()),
            // It plans from what it is told: its answer is the plan and nothing else.
            disable_tools: self.toolbox.all_names(),
            mcp: Some(McpReach::nothing()),
            ..AgentSpec::default()
        };
        let (plans, requester) = (self.clone(), requester.clone());
        detached(async move {
            let (planner, asking, asked) = (plans.clone(), requester.clone(), request.clone());
            let ask = move |agent: Agent| {
                async move { planner.ask(&asking, &agent, &asked, &cancel, deadline, sinks).await }
                    .boxed()
            };
            let (made, agent) = plans.lifecycle.lend(&requester, spec, ask).await?;
            let bill = agent.look().bill;
            let record = PlanRecord {
                id: PlanId::random(),
                request: request.user_request,
                plan: made?,
                maker,
                tree,
                created_at: crate::now(),
            };
            Ok((plans.keep(record).await?, bill))
        })
        .await
    }

    pub(super) async fn keep(&self, record: PlanRecord) -> Result<StoredPlan, StoreError> {
        let kept = SignedDuration::from_hours(24 * KEPT_DAYS);
        let stale = record.created_at.saturating_sub(kept).unwrap_or(record.created_at);
        self.store.add_plan(record.clone(), stale, ROOM_OF_A_TREE).await?;
        let touched_at = record.created_at;
        Ok(StoredPlan { record, status: PlanStatus::Created, touched_at, tasks: Vec::new() })
    }

    async fn ask(
        &self,
        requester: &Requester,
        agent: &Agent,
        request: &PlanRequest,
        cancel: &CancellationToken,
        deadline: Instant,
        sinks: Option<Sinks>,
    ) -> Result<Plan, MakeError> {
        let model = agent.look().settings.model.clone();
        let small = self.turns.models.resolve(model.as_deref()).map_err(TurnError::Model)?.brief;
        let schema = match small {
            true => Plan::strict_schema(&request.constraints),
            false => Plan::schema(&request.constraints),
        };
        let schema = Arc::new(schema);
        let mut words = request.words(self.executor.shared_context(requester).await?);
        let mut asked = 0;
        loop {
            asked += 1;
            let sink =
                sinks.as_ref().map(|sinks| Box::new(Wordless(sinks())) as Box<dyn EventSink>);
            let input = TurnInput {
                content: words.into(),
                source: Some("task".into()),
                asked_by: requester.into(),
                schema: Some(schema.clone()),
                sink,
                ..TurnInput::default()
            };
            let outcome = self.answer(agent, input, cancel, deadline).await?;
            let fault = match outcome.stop.reason {
                reason if reason.is_refused() => {
                    let why = if reason == StopReason::Refusal { "the model" } else { "a filter" };
                    return Err(MakeError::Refused(format!("{why} refused")));
                }
                reason if reason.is_cut() => PlanFault::NoPlan("it was cut off".into()),
                _ => match Plan::read(&outcome.content, &request.constraints) {
                    Ok(plan) => return Ok(plan),
                    Err(fault) => fault,
                },
            };
            if asked > REPAIRS_MAX {
                return Err(MakeError::Fault { asked, fault });
            }
            words = format!(
                "This cannot be used: {fault}. Answer again with the whole plan, mended, as one object of JSON and nothing else."
            );
        }
    }

    async fn answer(
        &self,
        agent: &Agent,
        input: TurnInput,
        cancel: &CancellationToken,
        deadline: Instant,
    ) -> Result<TurnOutcome, MakeError> {
        let turn = self.turns.start(agent, input).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        match turn.wait_or_cancel(cancel, Some(left)).await {
            Ok(outcome) if outcome.cancelled => Err(MakeError::Cancelled),
            Err(TurnError::Timeout) => Err(MakeError::Timeout),
            ended => Ok(ended?),
        }
    }
}

impl PlanRequest {
    /// What the planner is told.
    fn words(&self, shared: Option<String>) -> String {
        let mut words = String::new();
        if let Some(background) = shared {
            let _ = writeln!(words, "{background}\n");
        }
        let types = TaskType::ALL.map(TaskType::name).join(", ");
        let _ = writeln!(
            words,
            "Make a plan of tasks for the request below. Others carry the tasks out, each by itself: a description says all that \
             has to be known. Answer with one object of JSON and nothing else:\n\
             {{\"explanation\": \"why this plan\", \"estimated_time_seconds\": 60, \"tasks\": [{{\"id\": \"task_001\", \
             \"type\": \"code_generation\", \"description\": \"what is to be done\", \"dependencies\": [], \"priority\": 1}}]}}\n\
             Ids are unique. A type is one of {types}. Dependencies are ids of tasks in this plan that have to be done before; they \
             form no circle, and what does not depend on anything else runs at once. Priority 1 is the most urgent. At most {} tasks.",
            self.constraints.tasks_told()
        );
        if let Some(limit) = self.constraints.time_limit_seconds {
            let _ = writeln!(words, "All of it takes at most {limit} seconds.");
        }
        if let Some(state) = &self.state {
            let _ = writeln!(words, "\nWhere things stand:\n{state}");
        }
        let _ = write!(words, "\nThe request:\n{}", self.user_request);
        words
    }
}

/// Passes on what happens, but not what is said: that is a plan's draft, and may be mended.
struct Wordless(Box<dyn EventSink>);

impl EventSink for Wordless {
    fn event(&mut self, event: TurnEvent<'_>) -> bool {
        matches!(event, TurnEvent::Text(_)) || self.0.event(event)
    }

    fn crowded(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.crowded()
    }
}
