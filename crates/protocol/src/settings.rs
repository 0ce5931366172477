//! Methods that read and change an agent's directory, prompt and model, and the short account of all agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::NoParams;
use crate::usage::{ReasoningChoice, UsageTotals};

method! {
    /// Returns a short account of each agent the caller may see.
    GetAgentSummaries = "get_agent_summaries", Server Read, GetAgentSummariesParams => GetAgentSummariesResult
}

method! {
    /// Lets the agent work in another directory. Where it may read and write follows, and so does its prompt. Refused
    /// outside its ceiling, and to the agent itself outside of what it may already use.
    SetCwd = "set_cwd", Agent Control, SetCwdParams => SetCwdResult
}

method! {
    /// Returns the prompt that the agent's next turn begins with.
    GetSystemPrompt = "get_system_prompt", Agent Read, NoParams => GetSystemPromptResult
}

method! {
    /// Replaces the agent's system prompt, from its next turn on.
    SetSystemPrompt = "set_system_prompt", Agent Control, SetSystemPromptParams => SetSystemPromptResult
}

method! {
    /// Returns the model that the agent's next turn asks.
    GetModel = "get_model", Agent Read, NoParams => GetModelResult
}

method! {
    /// Gives the agent another model, from its next turn on. One whose window is too small for the conversation is
    /// refused.
    SetModel = "set_model", Agent Control, SetModelParams => SetModelResult
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GetAgentSummariesParams {
    /// Count the tokens of each agent that is in memory; false when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_tokens: Option<bool>,
    /// Changes nothing: what it asks for is always there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_context: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetAgentSummariesResult {
    pub agents: Vec<AgentSummary>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentSummary {
    pub agent_id: String,
    pub message_count: u64,
    pub cwd: String,
    /// Lower case: `sandboxed`, `trusted`.
    pub permission_level: String,
    /// Null when no provider is configured.
    pub model: Option<String>,
    pub halted_at_iteration_limit: bool,
    /// ISO 8601; null before the first turn.
    pub last_action_at: Option<String>,
    /// What its model calls used.
    pub usage: UsageTotals,
    /// Where they were asked for; absent for an agent that is not in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<SummaryTokens>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SummaryTokens {
    pub total: u64,
    /// The model's window.
    pub budget: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetCwdParams {
    /// An existing directory; a relative path starts at the agent's present one.
    pub cwd: String,
    /// Existing directories beside that, at most 64, which the agent may read and, where it writes in its own without
    /// asking, write. They take the place of those that it had; absent: it keeps them. A relative path starts at `cwd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_directories: Option<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SetCwdResult {
    /// The directory without links and `..`.
    pub cwd: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetSystemPromptResult {
    pub system_prompt: String,
    /// The most specific file it was read from; null when it was given or no file has a part in it.
    pub system_prompt_path: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSystemPromptParams {
    pub system_prompt: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SetSystemPromptResult {
    pub updated: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetModelResult {
    pub model: String,
    pub provider: String,
    /// What is asked of its thinking.
    pub reasoning: ReasoningChoice,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetModelParams {
    /// An alias, or `provider/model-id`.
    pub model: String,
    /// What is asked of its thinking; as the configuration has it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningChoice>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SetModelResult {
    pub updated: bool,
    pub model: String,
}
