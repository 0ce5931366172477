//! Plans: making, running and watching them. What is not known in `options` is passed over.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::method;
use crate::once::{IdempotencyKey, Once};
use crate::params::{Bounded, NonBlank, object};
use crate::schema::nul;
use crate::task::{TaskContext, TaskOutput, TaskType};

method! {
    /// Asks the planner for a plan, which is kept for 30 days. What it answers is held to the rules of a plan, and asked for
    /// again at most twice; one that breaks a rule even then is -32000 with the type `PARSE_ERROR`.
    CreatePlan = "create_plan", Server Turn, CreatePlanParams => CreatePlanResult, once |params| {
        let options = params.options.as_ref()?;
        Some(Once {
            key: options.idempotency_key.as_ref()?,
            path: "/options/idempotency_key",
            text: (options.stream == Some(true)).then_some("/plan/explanation"),
        })
    }
}

method! {
    /// Runs what is not done of a plan: a task begins when those it depends on are done, independent ones run side by side.
    /// How far each got is on disk: after a crash the same `plan_id` goes on with what is not done. With `options.stream`
    /// what becomes of each task arrives as `stream_event` before the response.
    RunPlan = "run_plan", Server Turn, RunPlanParams => RunPlanResult, once |params| Some(Once {
        key: params.options.as_ref()?.idempotency_key.as_ref()?,
        path: "/options/idempotency_key",
        text: None,
    })
}

method! {
    /// A plan, and how far it got.
    GetPlan = "get_plan", Server Read, GetPlanParams => PlanStanding
}

method! {
    /// Plans, those touched last first.
    ListPlans = "list_plans", Server Read, ListPlansParams => ListPlansResult
}

method! {
    /// Ends the run of a plan: what runs is cancelled, and what is done stays done.
    CancelPlan = "cancel_plan", Server Control, CancelPlanParams => CancelPlanResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePlanParams {
    /// At most 524,288 bytes, without NUL.
    #[schemars(length(max = 524_288), extend("not" = nul()))]
    pub user_request: NonBlank,
    #[serde(
        default,
        deserialize_with = "object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub current_state: Option<CurrentState>,
    #[serde(
        default,
        deserialize_with = "object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub constraints: Option<PlanConstraints>,
    #[serde(
        default,
        deserialize_with = "object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub options: Option<PlanOptions>,
}

/// Where things stand, for the planner.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CurrentState {
    pub completed_tasks: Vec<Value>,
    pub pending_tasks: Vec<Value>,
    pub context: Map<String, Value>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PlanConstraints {
    /// At most 200, which is also the limit when it is absent; the planner is told 20 then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tasks: Option<std::num::NonZeroU32>,
    /// The plan's own estimate is not longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub time_limit_seconds: Option<std::num::NonZeroU64>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlanOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// From receipt; 30,000 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<std::num::NonZeroU64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CreatePlanResult {
    pub plan: PlanEntry,
    pub metadata: PlanMetadata,
}

/// A plan. One that is handed to `run_plan` needs its tasks and nothing else; with a `plan_id` it has to be that plan.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    #[serde(deserialize_with = "object::list")]
    #[schemars(length(min = 1, max = 200))]
    pub tasks: Vec<PlannedTaskEntry>,
    #[serde(default)]
    pub estimated_time_seconds: u64,
    #[serde(default)]
    pub explanation: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedTaskEntry {
    /// 1 to 64 characters without spaces, unique in its plan.
    #[schemars(length(min = 1, max = 64), regex(pattern = TASK_ID_PATTERN))]
    pub id: String,
    #[serde(rename = "type")]
    pub kind: TaskType,
    /// At most 65,536 bytes, not blank, without NUL.
    #[schemars(length(max = 65_536), regex(pattern = r"\S"), extend("not" = nul()))]
    pub description: String,
    /// Tasks of the plan that have to be done before.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// 1 is the most urgent.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub priority: u32,
    /// How often it may be tried; `options.max_attempts` of the run when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<Bounded<1, 5>>,
}

/// Neither white space nor control characters.
const TASK_ID_PATTERN: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]+$";

fn one() -> u32 {
    1
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanMetadata {
    pub execution_time_ms: u64,
    pub tokens_used: u64,
    /// Null where a price is not known.
    pub cost_usd: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("allOf" = plan_or_id()))]
pub struct RunPlanParams {
    /// This or `plan_id`.
    #[serde(
        default,
        deserialize_with = "object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub plan: Option<PlanEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// For every task, as `execute_task` has it.
    #[serde(
        default,
        deserialize_with = "object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub context: Option<TaskContext>,
    #[serde(
        default,
        deserialize_with = "object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub options: Option<RunOptions>,
}

/// One of the two, and not both.
fn plan_or_id() -> Value {
    json!([{"oneOf": [
        {"required": ["plan"], "properties": {"plan": {"type": "object"}, "plan_id": {"type": "null"}}},
        {"required": ["plan_id"], "properties": {"plan_id": {"type": "string"}, "plan": {"type": "null"}}},
    ]}])
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunOptions {
    /// Tasks that run at once; 4 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<Bounded<1, 64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// How often a task is tried; once when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<Bounded<1, 5>>,
    /// How long one attempt at a task may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub task_timeout_ms: Option<std::num::NonZeroU64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub style_guide: Option<String>,
    /// Whether files may be changed; not when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// From receipt, for all of it; 30,000 when absent. What is done by then stays done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<std::num::NonZeroU64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Nothing further is begun; what runs may end. So when absent.
    Stop,
    /// All that does not depend on what failed is done.
    Continue,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunPlanResult {
    pub plan_id: String,
    /// `success`, `partial` when some of it is done, `failed` when nothing is, or `cancelled`.
    pub status: String,
    pub tasks: BTreeMap<String, TaskStanding>,
    /// All that its tasks used, in this run and before; the time is this run's.
    pub metadata: PlanMetadata,
}

/// How far a task got.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskStanding {
    /// `pending`, `running`, `success`, `partial`, `failed`, `skipped` or `cancelled`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<TaskOutput>,
    /// Why it is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How often it was begun.
    pub attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub tokens_used: u64,
    /// Null where a price is not known.
    pub cost_usd: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetPlanParams {
    pub plan_id: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanStanding {
    pub plan: PlanEntry,
    /// What it was made for; empty where its caller brought it along.
    pub user_request: String,
    /// `created`, `running`, `interrupted` when the process that ran it is gone, `success`, `partial`, `failed` or
    /// `cancelled`.
    pub status: String,
    pub tasks: BTreeMap<String, TaskStanding>,
    pub created_at: String,
    pub updated_at: String,
    pub tokens_used: u64,
    /// Null where a price is not known.
    pub cost_usd: Option<f64>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListPlansParams {
    /// 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 1000>>,
    /// Only those behind this one, as the last page ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListPlansResult {
    pub plans: Vec<ListedPlan>,
    /// There are more behind the last.
    pub has_more: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedPlan {
    pub plan_id: String,
    /// Its first 500 characters.
    pub user_request: String,
    pub status: String,
    pub tasks: u64,
    pub tasks_done: u64,
    pub created_at: String,
    pub updated_at: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelPlanParams {
    pub plan_id: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CancelPlanResult {
    /// False when it does not run in this server.
    pub cancelled: bool,
}
