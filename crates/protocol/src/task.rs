//! One task for an executor. What is not known in `context` and `options` is passed over.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::method;
use crate::once::{IdempotencyKey, Once};
use crate::params::{NonBlank, object};
use crate::schema::{PATH_PATTERN, nul};
use crate::usage::Usage;

method! {
    /// Has a temporary agent carry out a task in a directory, beyond which it sees nothing and in which it changes files
    /// only with `options.write`. Which files it changed is what differs on disk. With `options.stream` what it says
    /// arrives in pieces before the response. Takes at most 30 s unless `options.timeout_ms` says otherwise.
    ExecuteTask = "execute_task", Server Turn, ExecuteTaskParams => ExecuteTaskResult, once |params| {
        let options = params.options.as_ref()?;
        Some(Once {
            key: options.idempotency_key.as_ref()?,
            path: "/options/idempotency_key",
            text: (options.stream == Some(true)).then_some("/output/text"),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskType {
    CodeGeneration,
    Refactoring,
    Analysis,
    Testing,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteTaskParams {
    pub task_type: TaskType,
    /// At most 524,288 bytes, without NUL.
    #[schemars(length(max = 524_288), extend("not" = nul()))]
    pub prompt: NonBlank,
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
    pub options: Option<TaskOptions>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskContext {
    /// Read for the model, at most 20, each within `current_directory`.
    #[schemars(length(max = 20), inner(regex(pattern = PATH_PATTERN)))]
    pub files: Vec<String>,
    /// Where the task works; the server's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = PATH_PATTERN))]
    pub current_directory: Option<String>,
    /// Libraries, for the model.
    pub dependencies: Vec<String>,
    /// What it has to keep to, for the model.
    pub constraints: Vec<Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskOptions {
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
pub struct ExecuteTaskResult {
    /// `success`, or `partial` when something remains undone.
    pub status: String,
    /// What remains undone, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub output: TaskOutput,
    pub metadata: TaskMetadata,
}

/// What a task came to. Paths are relative to the directory it worked in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskOutput {
    /// What stood in fences.
    pub code: String,
    /// The rest of what was said.
    pub explanation: String,
    /// All that was said, as it is streamed.
    pub text: String,
    pub files_modified: Vec<String>,
    pub files_created: Vec<String>,
    pub files_deleted: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskMetadata {
    pub execution_time_ms: u64,
    pub tokens_used: u64,
    pub model: String,
    /// Why the model stopped, as `send` says it.
    pub stop_reason: String,
    pub steps: u32,
    pub usage: Usage,
    /// Null where a price is not known.
    pub cost_usd: Option<f64>,
}
