//! Methods that read and shorten an agent's conversation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::method;
use crate::params::{Bounded, NoParams};
use crate::turn::RequestId;
use crate::usage::Usage;
use crate::watch::TurnEntry;

method! {
    /// Counts the tokens of the agent's context.
    GetTokens = "get_tokens", Agent Read, NoParams => GetTokensResult
}

method! {
    /// Returns the state of the agent's context.
    GetContext = "get_context", Agent Read, NoParams => GetContextResult
}

method! {
    /// Returns a page of the conversation, oldest first. It ends before its `limit` where its messages would be larger
    /// than 4 MiB together, but holds one at least: the next page begins at `offset` and the number of messages on this.
    /// With `from_end` it begins later for the same reason, and holds the last one.
    GetMessages = "get_messages", Agent Read, GetMessagesParams => GetMessagesResult
}

method! {
    /// Summarises the older part of the conversation so that the context gets shorter. The history itself is kept.
    Compact = "compact", Agent Turn, CompactParams => CompactResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetTokensResult {
    pub system: u64,
    pub tools: u64,
    /// Of `tools`, those of MCP servers and for them.
    #[serde(default)]
    pub mcp: u64,
    pub messages: u64,
    pub total: u64,
    /// The model's window.
    pub budget: u64,
    /// The part of the window that the context may fill before it is compacted; the whole of it with `compaction` off.
    pub available: u64,
    /// What is left of `available`.
    pub remaining: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetContextResult {
    pub message_count: u64,
    /// Whether there is a system prompt.
    pub system_prompt: bool,
    pub halted_at_iteration_limit: bool,
    pub last_iteration_count: u32,
    pub max_tool_iterations: u32,
    /// The turn that was cut off last and can be resumed, while no other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted_turn: Option<InterruptedTurn>,
    /// The turn that runs, if one does, and those that wait, in their order.
    pub turns: Vec<TurnEntry>,
}

/// A turn that did not reach its end.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct InterruptedTurn {
    pub request_id: RequestId,
    /// Tool calls of which it is not known whether they took effect.
    pub unknown_tool_calls: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GetMessagesParams {
    /// Index of the first message, 0 when absent. With `from_end`: how many messages at the end to leave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The last messages instead of the first, still oldest first; false when absent. The result's `offset` is the index
    /// of the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_end: Option<bool>,
    /// Most messages to return, 200 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 2000>>,
    /// Show what the model thought, too; false when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_reasoning: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetMessagesResult {
    pub agent_id: String,
    pub total: u64,
    pub offset: u64,
    pub limit: u32,
    pub messages: Vec<MessageEntry>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageEntry {
    pub index: u64,
    /// `user`, `assistant`, `tool`, or `system` (a summary).
    pub role: String,
    pub content: String,
    /// In a message in which nobody said anything: what the server told the model, as that it is to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// What the model thought, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// What stands beside the text, without its bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<MessageMeta>,
}

/// An image or a document of a message.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct AttachmentEntry {
    /// `image` or `file`.
    pub r#type: String,
    pub mime_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In bytes, as models get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Of these bytes, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// In place of size and hash, where the model's service fetches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ToolCallEntry {
    pub id: String,
    pub name: String,
    pub arguments: Value,
    /// True when the answer ended in the middle of it; it was not run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageMeta {
    /// ISO 8601.
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<crate::turn::RequestId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_agent_id: Option<String>,
    /// True when the text was cut short by a cancel, a failure or a restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// On a summary: how many messages, from the first, it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<u64>,
    /// On what a model said: how it came to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<MadeEntry>,
}

/// How a model made a message.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MadeEntry {
    pub provider: String,
    /// The provider's own name for the model.
    pub model: String,
    /// As `send` says it.
    pub stop_reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_details: Option<Value>,
    pub usage: Usage,
    /// Null where the price is not known.
    pub cost_usd: Option<f64>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompactParams {
    /// Compact even when the context is not near its limit; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CompactResult {
    pub compacted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_before: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_saved: Option<u64>,
    /// Why nothing was compacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
