//! Tasks for executors; and what tasks and plans have in common on the wire.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use nexus_core::attach::ATTACHMENTS_MAX;
use nexus_core::executor::{TaskError, TaskFailure, TaskOrder, TaskReport, Terms, Work};
use nexus_core::footprint::{Footprint, Ground};
use nexus_core::lifecycle::CreateError;
use nexus_core::plan;
use nexus_protocol::RpcError;
use nexus_protocol::task::{
    ExecuteTask, ExecuteTaskParams, ExecuteTaskResult, TaskContext, TaskMetadata, TaskOptions,
    TaskOutput, TaskType,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::usage::{cost_usd, usage_entry};
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::{sentence, wire};
use crate::stream::{Stream, follow};

/// How long a task may take when its caller says nothing.
const TIMEOUT_USUAL: Duration = Duration::from_secs(30);

/// Longest request or prompt. It is told again with the plan.
const TEXT_BYTES_MAX: usize = 512 << 10;

pub fn register(table: &mut Table) {
    table.on::<ExecuteTask, _, _>(execute);
}

async fn execute(cx: Cx, params: ExecuteTaskParams) -> Result<ExecuteTaskResult, RpcError> {
    let TaskOptions { language, framework, style_guide, write, stream, timeout_ms, model, .. } =
        params.options.unwrap_or_default();
    let deadline = deadline(&cx, timeout_ms);
    let write = write.unwrap_or(false);
    let order = TaskOrder {
        kind: kind(params.task_type),
        prompt: text("prompt", params.prompt.into_string())?,
        background: Vec::new(),
        terms: Terms { language, framework, style_guide, write, model, ..terms(params.context)? },
    };
    let stream = Stream::wanted(&cx, stream);
    let cancel = CancellationToken::new();
    let work = Work {
        footprint: Footprint::new(Ground::with([]), "task", []),
        cancel: cancel.clone(),
        deadline: Some(deadline),
        patient: false,
        sink: stream.as_ref().and_then(Stream::boxed_sink),
    };
    let started = cx.started;
    let (executor, requester) =
        (cx.services().engine.executor.clone(), cx.caller.requester.clone());
    follow(stream, cancel, async move {
        let report = executor.execute(&requester, order, work).await.map_err(failed)?;
        Ok(result(report, started))
    })
    .await
}

fn result(report: TaskReport, started: Instant) -> ExecuteTaskResult {
    let status = if report.undone.is_none() { "success" } else { "partial" };
    ExecuteTaskResult {
        status: status.into(),
        reason: report.undone,
        output: output(report.output),
        metadata: TaskMetadata {
            execution_time_ms: elapsed_ms(started),
            tokens_used: report.bill.usage.total(),
            model: report.model,
            stop_reason: report.stop.name().into(),
            steps: report.steps,
            usage: usage_entry(&report.bill.usage),
            cost_usd: cost_usd(&report.bill),
        },
    }
}

/// The error of a task, with the files that it changed all the same.
fn failed(failure: TaskFailure) -> RpcError {
    let TaskFailure { error, output, .. } = failure;
    let error = match error {
        TaskError::Timeout => {
            RpcError::timeout("The task took longer than it was given, and was cancelled.")
        }
        TaskError::Cancelled => {
            let details = "The task was cancelled before it was done.";
            RpcError::failed("EXECUTION_ERROR", details, &["Ask for it again."])
        }
        TaskError::Create(error) => create_error(&error),
        // The files are the first of what is attached.
        TaskError::Files(error) => content_is(wire(error), "/context/files"),
        TaskError::Turn(error) => content_is(wire(error), "/prompt"),
    };
    error
        .with("files_modified", json!(output.files_modified))
        .with("files_created", json!(output.files_created))
        .with("files_deleted", json!(output.files_deleted))
}

/// An error of a turn, with the parameter of the task that its `content` was made of.
fn content_is(mut error: RpcError, parameter: &str) -> RpcError {
    if let Some(Value::String(path)) = error.data.as_mut().and_then(|data| data.get_mut("path")) {
        *path = path.replacen("/content", parameter, 1);
    }
    error
}

/// Why the agent of a task could not be made, in the words of the task's parameters.
pub fn create_error(error: &CreateError) -> RpcError {
    match error {
        CreateError::Cwd(_) | CreateError::PathOutside(_) => {
            let reason = error.to_string();
            let reason = reason.strip_prefix("cwd: ").unwrap_or(&reason);
            let message = format!("current_directory: {reason}");
            RpcError::invalid_param("/context/current_directory", message)
        }
        CreateError::Model(error) => RpcError::invalid_param("/options/model", sentence(error)),
        error => wire(error.clone()),
    }
}

/// What a context says of a task.
pub fn terms(context: Option<TaskContext>) -> Result<Terms, RpcError> {
    let TaskContext { files, current_directory, dependencies, constraints } =
        context.unwrap_or_default();
    if files.len() > ATTACHMENTS_MAX {
        let said = format!("files must be at most {ATTACHMENTS_MAX}, got: {}", files.len());
        return Err(RpcError::invalid_param("/context/files", said));
    }
    for (at, file) in files.iter().enumerate() {
        plain(&format!("/context/files/{at}"), file)?;
    }
    if let Some(directory) = &current_directory {
        plain("/context/current_directory", directory)?;
    }
    let said = |value: Value| match value {
        Value::String(text) => text,
        value => value.to_string(),
    };
    Ok(Terms {
        files,
        directory: current_directory,
        dependencies,
        constraints: constraints.into_iter().map(said).collect(),
        ..Terms::default()
    })
}

/// A path without signs that no path of an honest caller has.
fn plain(at: &str, path: &str) -> Result<(), RpcError> {
    match path.is_empty() || path.chars().any(char::is_control) {
        true => {
            Err(RpcError::invalid_param(at, "a path is not empty, and has no control characters"))
        }
        false => Ok(()),
    }
}

/// A text for a model.
pub fn text(parameter: &str, text: String) -> Result<String, RpcError> {
    let refused = |why: String| {
        Err(RpcError::invalid_param(format!("/{parameter}"), format!("{parameter} {why}")))
    };
    match text.contains('\0') {
        true => refused("holds a NUL character".into()),
        false if text.len() > TEXT_BYTES_MAX => {
            refused(format!("is longer than {TEXT_BYTES_MAX} bytes: put it into a file"))
        }
        false => Ok(text),
    }
}

pub fn deadline(cx: &Cx, timeout_ms: Option<NonZeroU64>) -> Instant {
    let timeout = timeout_ms.map_or(TIMEOUT_USUAL, |ms| Duration::from_millis(ms.get()));
    // Far beyond what anybody waits for, and within what a clock can say.
    cx.started + timeout.min(Duration::from_secs(10 * 365 * 24 * 60 * 60))
}

pub fn elapsed_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

pub fn kind(kind: TaskType) -> plan::TaskType {
    match kind {
        TaskType::CodeGeneration => plan::TaskType::CodeGeneration,
        TaskType::Refactoring => plan::TaskType::Refactoring,
        TaskType::Analysis => plan::TaskType::Analysis,
        TaskType::Testing => plan::TaskType::Testing,
    }
}

pub fn kind_entry(kind: plan::TaskType) -> TaskType {
    match kind {
        plan::TaskType::CodeGeneration => TaskType::CodeGeneration,
        plan::TaskType::Refactoring => TaskType::Refactoring,
        plan::TaskType::Analysis => TaskType::Analysis,
        plan::TaskType::Testing => TaskType::Testing,
    }
}

pub fn output(output: plan::TaskOutput) -> TaskOutput {
    let plan::TaskOutput { text, code, explanation, files_modified, files_created, files_deleted } =
        output;
    TaskOutput { text, code, explanation, files_modified, files_created, files_deleted }
}
