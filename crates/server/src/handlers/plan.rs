//! Making, running and watching plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nexus_core::events::TurnEvent;
use nexus_core::executor::Terms;
use nexus_core::plan::{self, Constraints, TaskRecord};
use nexus_core::plans::{
    self, MakeError, PARALLEL_USUAL, PlanRequest, PlansError, RunError, RunReport, Tell, Which,
};
use nexus_core::store::{ListedPlan as StoredListing, StoredPlan};
use nexus_core::usage::Bill;
use nexus_protocol::RpcError;
use nexus_protocol::params::Bounded;
use nexus_protocol::plan::{
    CancelPlan, CancelPlanParams, CancelPlanResult, CreatePlan, CreatePlanParams, CreatePlanResult,
    GetPlan, GetPlanParams, ListPlans, ListPlansParams, ListPlansResult, ListedPlan, OnFailure,
    PlanEntry, PlanMetadata, PlanStanding, PlannedTaskEntry, RunOptions, RunPlan, RunPlanParams,
    RunPlanResult, TaskStanding,
};
use nexus_protocol::stream::Event;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::task::{self, deadline, elapsed_ms, kind, kind_entry, terms, text};
use super::usage::cost_usd;
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::{sentence, wire};
use crate::stream::{Stream, follow};

/// When to ask again for a plan to be run, where a tree runs as many as it may.
const CROWDED_RETRY_MS: u64 = 1_000;

/// Plans on a page when the caller names no number.
const PAGE_PLANS: u32 = 100;

pub fn register(table: &mut Table) {
    table.on::<CreatePlan, _, _>(create);
    table.on::<RunPlan, _, _>(run);
    table.on::<GetPlan, _, _>(get);
    table.on::<ListPlans, _, _>(list);
    table.on::<CancelPlan, _, _>(cancel);
}

async fn create(cx: Cx, params: CreatePlanParams) -> Result<CreatePlanResult, RpcError> {
    let options = params.options.unwrap_or_default();
    let deadline = deadline(&cx, options.timeout_ms);
    let constraints = params.constraints.unwrap_or_default();
    let request = PlanRequest {
        user_request: text("user_request", params.user_request.into_string())?,
        state: params.current_state.map(|state| json!(state)),
        constraints: Constraints {
            max_tasks: constraints.max_tasks.map(Into::into),
            time_limit_seconds: constraints.time_limit_seconds.map(Into::into),
        },
        model: options.model,
    };
    let stream = Stream::wanted(&cx, options.stream);
    let sinks = stream.as_ref().map(Stream::sinks);
    let words = sinks.clone();
    let cancel = CancellationToken::new();
    let (ended, started) = (cancel.clone(), cx.started);
    let (plans, requester) = (cx.services().engine.plans.clone(), cx.caller.requester.clone());
    follow(stream, cancel, async move {
        let made = plans.create(&requester, request, ended, deadline, sinks).await;
        let (plan, bill) = made.map_err(make_error)?;
        if let Some(words) = words {
            words().event(TurnEvent::Text(&plan.record.plan.explanation));
        }
        Ok(CreatePlanResult { plan: entry(&plan), metadata: metadata(&bill, started) })
    })
    .await
}

async fn run(cx: Cx, params: RunPlanParams) -> Result<RunPlanResult, RpcError> {
    let options = params.options.unwrap_or_default();
    let deadline = deadline(&cx, options.timeout_ms);
    let which = match (params.plan, params.plan_id) {
        (Some(mut plan), None) => {
            let id = plan.plan_id.take();
            Which::Brought(plan_of(plan), id)
        }
        (None, Some(id)) => Which::Known(id),
        _ => return Err(RpcError::invalid_params("run_plan needs plan or plan_id, and not both")),
    };
    let stream = Stream::wanted(&cx, options.stream);
    let tell: Option<Tell> = stream.as_ref().map(|stream| {
        let sink = stream.sink();
        let tell = move |id: &str, record: &TaskRecord| {
            sink.put(Event::TaskStatus {
                task_id: id.into(),
                status: record.status.name().into(),
                attempts: record.attempts,
                error: record.reason.clone(),
            });
        };
        Arc::new(tell) as Tell
    });
    let run_options = run_options(options, terms(params.context)?);
    let cancel = CancellationToken::new();
    let (ended, started) = (cancel.clone(), cx.started);
    let (plans, requester) = (cx.services().engine.plans.clone(), cx.caller.requester.clone());
    follow(stream, cancel, async move {
        let ran = plans.run(&requester, which, run_options, ended, deadline, tell).await;
        Ok(run_result(ran.map_err(|error| run_error(error, started))?, started))
    })
    .await
}

fn run_options(options: RunOptions, terms: Terms) -> plans::RunOptions {
    plans::RunOptions {
        max_parallel: options.max_parallel.map_or(PARALLEL_USUAL, |max| max.get() as usize),
        on_failure: match options.on_failure {
            None | Some(OnFailure::Stop) => plans::OnFailure::Stop,
            Some(OnFailure::Continue) => plans::OnFailure::Continue,
        },
        max_attempts: options.max_attempts.map_or(1, Bounded::get),
        task_timeout: options.task_timeout_ms.map(|ms| Duration::from_millis(ms.get())),
        terms: Terms {
            language: options.language,
            framework: options.framework,
            style_guide: options.style_guide,
            write: options.write.unwrap_or(false),
            model: options.model,
            ..terms
        },
    }
}

async fn get(cx: Cx, params: GetPlanParams) -> Result<PlanStanding, RpcError> {
    let plans = &cx.services().engine.plans;
    let plan = plans.get(&cx.caller.requester, &params.plan_id).await.map_err(wire)?;
    let bill = plan.tasks.iter().fold(Bill::default(), |sum, (_, task)| sum + task.bill);
    let mut tasks: BTreeMap<_, _> =
        plan.record.plan.tasks.iter().map(|it| (it.id.clone(), TaskRecord::default())).collect();
    tasks.extend(plan.tasks.iter().cloned());
    Ok(PlanStanding {
        plan: entry(&plan),
        user_request: plan.record.request,
        status: plan.status.name().into(),
        tasks: tasks.into_iter().map(|(id, record)| (id, standing(record))).collect(),
        created_at: plan.record.created_at.to_string(),
        updated_at: plan.touched_at.to_string(),
        tokens_used: bill.usage.total(),
        cost_usd: cost_usd(&bill),
    })
}

async fn list(cx: Cx, params: ListPlansParams) -> Result<ListPlansResult, RpcError> {
    let limit = params.limit.map_or(PAGE_PLANS, Bounded::get);
    let plans = &cx.services().engine.plans;
    let page = plans.list(&cx.caller.requester, params.after.as_deref(), limit).await;
    let page = page.map_err(|error| match error {
        PlansError::Unknown(id) => RpcError::invalid_param("/after", format!("Unknown plan: {id}")),
        error => wire(error),
    })?;
    let listed = |plan: StoredListing| ListedPlan {
        plan_id: plan.id.to_string(),
        user_request: plan.request,
        status: plan.status.name().into(),
        tasks: plan.task_count.into(),
        tasks_done: plan.done_count.into(),
        created_at: plan.created_at.to_string(),
        updated_at: plan.touched_at.to_string(),
    };
    Ok(ListPlansResult { plans: page.plans.into_iter().map(listed).collect(), has_more: page.more })
}

async fn cancel(cx: Cx, params: CancelPlanParams) -> Result<CancelPlanResult, RpcError> {
    let plans = &cx.services().engine.plans;
    let cancelled = plans.cancel(&cx.caller.requester, &params.plan_id).await.map_err(wire)?;
    Ok(CancelPlanResult { cancelled })
}

fn entry(plan: &StoredPlan) -> PlanEntry {
    let plan::Plan { tasks, estimated_time_seconds, explanation } = plan.record.plan.clone();
    let task = |task: plan::PlannedTask| PlannedTaskEntry {
        id: task.id,
        kind: kind_entry(task.kind),
        description: task.description,
        dependencies: task.dependencies,
        priority: task.priority,
        max_attempts: task.max_attempts.and_then(Bounded::new),
    };
    PlanEntry {
        plan_id: Some(plan.record.id.to_string()),
        tasks: tasks.into_iter().map(task).collect(),
        estimated_time_seconds,
        explanation,
    }
}

fn plan_of(entry: PlanEntry) -> plan::Plan {
    let task = |task: PlannedTaskEntry| plan::PlannedTask {
        id: task.id,
        kind: kind(task.kind),
        description: task.description,
        dependencies: task.dependencies,
        priority: task.priority,
        max_attempts: task.max_attempts.map(Bounded::get),
    };
    plan::Plan {
        tasks: entry.tasks.into_iter().map(task).collect(),
        estimated_time_seconds: entry.estimated_time_seconds,
        explanation: entry.explanation,
    }
}

fn standing(record: TaskRecord) -> TaskStanding {
    TaskStanding {
        status: record.status.name().into(),
        output: record.output.map(task::output),
        error: record.reason,
        attempts: record.attempts,
        model: record.model,
        tokens_used: record.bill.usage.total(),
        cost_usd: cost_usd(&record.bill),
    }
}

fn run_result(report: RunReport, started: Instant) -> RunPlanResult {
    RunPlanResult {
        plan_id: report.id.to_string(),
        status: report.status.name().into(),
        tasks: report.tasks.into_iter().map(|(id, record)| (id, standing(record))).collect(),
        metadata: metadata(&report.bill, started),
    }
}

fn metadata(bill: &Bill, started: Instant) -> PlanMetadata {
    PlanMetadata {
        execution_time_ms: elapsed_ms(started),
        tokens_used: bill.usage.total(),
        cost_usd: cost_usd(bill),
    }
}

fn make_error(error: MakeError) -> RpcError {
    let retry = &["Ask again, or for less at a time.", "Name another model with options.model."];
    match error {
        MakeError::Fault { .. } => RpcError::failed("PARSE_ERROR", error.to_string(), retry),
        MakeError::Refused(_) => RpcError::failed("EXECUTION_ERROR", error.to_string(), retry),
        MakeError::Timeout => {
            RpcError::timeout("The planner took longer than it was given, and was cancelled.")
        }
        MakeError::Cancelled => {
            RpcError::failed("EXECUTION_ERROR", "The planning was cancelled.", &["Ask again."])
        }
        MakeError::Create(error) => task::create_error(&error),
        MakeError::Turn(error) => wire(error),
        MakeError::Plans(error) => wire(error),
        MakeError::Store(error) => wire(error),
    }
}

fn run_error(error: RunError, started: Instant) -> RpcError {
    match error {
        RunError::Fault(_) | RunError::Differs(_) => {
            RpcError::invalid_param("/plan/tasks", sentence(&error))
        }
        RunError::Runs { pid, .. } => RpcError::unavailable(
            "The plan runs already",
            error.to_string(),
            &["Look at it with get_plan, or end it with cancel_plan."],
        )
        .with("pid", json!(pid)),
        RunError::Crowded => RpcError::overloaded(sentence(&error), CROWDED_RETRY_MS),
        RunError::Timeout(report) => {
            let details =
                "The run took longer than it was given, and was ended; what is done stays done.";
            let result = run_result(*report, started);
            RpcError::timeout(details)
                .with("plan_id", json!(result.plan_id))
                .with("tasks", json!(result.tasks))
        }
        RunError::Plans(error) => wire(error),
        RunError::Store(error) => wire(error),
    }
}
