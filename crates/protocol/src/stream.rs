//! The notifications of a stream, in the order they are sent.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

pub const STREAM_START: &str = "stream_start";
pub const STREAM_DATA: &str = "stream_data";
pub const STREAM_EVENT: &str = "stream_event";
pub const STREAM_END: &str = "stream_end";

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamStart<'a> {
    #[serde(borrow)]
    pub stream_id: Cow<'a, str>,
    /// The id of the request that opened the stream, to the letter; null for a notification.
    #[serde(borrow)]
    #[schemars(with = "Value")]
    pub task_id: &'a RawValue,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamData<'a> {
    #[serde(borrow)]
    pub stream_id: Cow<'a, str>,
    #[serde(borrow)]
    pub chunk: Cow<'a, str>,
    /// From 1, without gaps.
    pub sequence: u64,
}

/// What is not text.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamEvent<'a> {
    #[serde(borrow)]
    pub stream_id: Cow<'a, str>,
    pub event: Event,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    ToolCall {
        id: String,
        name: String,
        arguments: Value,
    },
    /// How far the call of a tool of an MCP server is, in the server's own numbers and words: at most four a second.
    ToolProgress {
        id: String,
        progress: Number,
        /// What it goes up to, where the server knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<Number>,
        /// At most 500 characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    ToolResult {
        id: String,
        content: String,
        /// The rule that refused the call, as `explain_permission` names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused_by: Option<String>,
    },
    ApprovalRequested {
        approval: Box<crate::permission::ApprovalEntry>,
    },
    /// A piece of what the model thinks. It is no part of the answer.
    Reasoning {
        text: String,
    },
    /// The model has thought.
    ReasoningEnd {
        /// Where the provider counts them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens: Option<u64>,
    },
    /// The model's provider lets the turn wait.
    Waiting {
        /// `rate_limit`, `overloaded`, `full`, or `retry` before a call that failed is sent again.
        reason: String,
        /// Where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// Another model takes over for the rest of the turn.
    Fallback {
        from: String,
        to: String,
        reason: String,
    },
    /// What became of a task of a plan.
    TaskStatus {
        task_id: String,
        /// As `run_plan` says it.
        status: String,
        attempts: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// What one step used.
    Usage(crate::usage::Usage),
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamEnd<'a> {
    #[serde(borrow)]
    pub stream_id: Cow<'a, str>,
    pub total_chunks: u64,
}
