//! Methods that make, end and list agents.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::once::{IdempotencyKey, Once};
use crate::params::{Bounded, NoParams, NonBlank};
use crate::schema::{Name, NewName};
use crate::shared::Shared;
use crate::turn::RequestId;
use crate::usage::{ReasoningChoice, UsageTotals};

method! {
    /// Makes an agent. It is on disk when this answers, unless its name starts with `.` (temporary).
    CreateAgent = "create_agent", Server Control, CreateAgentParams => CreateAgentResult, once |params| Some(Once {
        key: params.idempotency_key.as_ref()?,
        path: "/idempotency_key",
        text: None,
    })
}

method! {
    /// Ends an agent and its descendants for good. Allowed to the agent itself, its ancestors and the administrator.
    DestroyAgent = "destroy_agent", Server Control, DestroyAgentParams => DestroyAgentResult
}

method! {
    /// Lets an agent and its descendants out of memory and gives them free: another process of this home can take them
    /// up. The next call restores them. Who works or is temporary stays, and so does everybody above.
    UnloadAgent = "unload_agent", Server Control, UnloadAgentParams => UnloadAgentResult
}

method! {
    /// Lists the agents the caller may see, those of earlier runs included: permanent ones in the order in which they
    /// were made, then temporary ones.
    ListAgents = "list_agents", Server Read, ListAgentsParams => ListAgentsResult
}

method! {
    /// Returns a token that can act only as this agent, for a program that works on the agent's behalf. It is valid
    /// until the server stops or the agent is destroyed.
    CreateAgentToken = "create_agent_token", Server Control, CreateAgentTokenParams => CreateAgentTokenResult
}

method! {
    /// Marks the agent as done; when the administrator has marked the last of all agents, the server stops. At server
    /// scope without `agent_id` it stops the server, which is the administrator's to do.
    Shutdown = "shutdown", Agent Control, NoParams => ShutdownResult
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreateAgentParams {
    /// Name of the agent; generated when absent. A name that starts with `.` is temporary; `.` alone asks for a
    /// generated temporary name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NewName>")]
    pub agent_id: Option<String>,
    /// `sandboxed` (default), `worker`, `trusted`, or one from the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Working directory; the parent's or the server's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Where it may write without asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000))]
    pub allowed_write_paths: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What is asked of the model's thinking; as the configuration has it when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningChoice>,
    /// Replaces the layered system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Tools to switch off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000), inner(length(max = 128)))]
    pub disable_tools: Option<Vec<String>>,
    /// Tools of MCP servers that it may use, by server, in place of what its preset has: `{"git": ["git_status"]}`. `*`
    /// stands for all tools of a server, or alone for all servers. No more than its parent has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub mcp: Option<BTreeMap<String, Vec<String>>>,
    /// The agent it belongs to; it can never do more than that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub parent_agent_id: Option<String>,
    /// What was said before, elsewhere: by turns, the first by the user and the last by the assistant, at most 10,000. For
    /// temporary agents alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10_000))]
    pub history: Option<Vec<PastMessage>>,
    /// Sent to the agent at once; not blank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_message: Option<NonBlank>,
    /// Answer only when the initial message was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_initial_response: Option<bool>,
    /// Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes. At
    /// most 255 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Something that was said before an agent was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PastMessage {
    pub role: PastRole,
    pub content: NonBlank,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PastRole {
    User,
    Assistant,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CreateAgentResult {
    pub agent_id: String,
    pub url: String,
    /// With an initial message: the turn it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_request_id: Option<RequestId>,
    /// `queued`, when the answer was not waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_status: Option<String>,
    /// The answer, when it was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<crate::turn::SendResult>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DestroyAgentParams {
    #[schemars(with = "Name")]
    pub agent_id: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DestroyAgentResult {
    /// False when there was no such agent.
    pub success: bool,
    pub agent_id: String,
    /// The agent and its descendants.
    pub destroyed: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListAgentsParams {
    /// Only those behind this agent: the last of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub after: Option<String>,
    /// Most agents to return, all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 1000>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListAgentsResult {
    pub agents: Shared<Vec<AgentEntry>>,
    /// With `after` or `limit`: whether there are more behind the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentEntry {
    pub agent_id: String,
    pub is_temp: bool,
    /// ISO 8601.
    pub created_at: String,
    pub message_count: u64,
    pub should_shutdown: bool,
    pub parent_agent_id: Option<String>,
    pub child_count: u64,
    pub halted_at_iteration_limit: bool,
    /// Null when no provider is configured.
    pub model: Option<String>,
    /// ISO 8601; null before the first turn.
    pub last_action_at: Option<String>,
    /// Upper case: `SANDBOXED`, `TRUSTED`.
    pub permission_level: String,
    pub cwd: String,
    /// Null when it may write anywhere.
    pub write_paths: Option<Vec<String>>,
    /// `idle`, `running`, `waiting_provider` (its turn waits until a provider takes the next call), or `stored` (on disk,
    /// not in memory); for those who watch, `elsewhere` where another process has it.
    pub status: String,
    /// The turn that runs: a name for `cancel`.
    #[serde(default)]
    pub running_request_id: Option<RequestId>,
    /// How many turns wait.
    #[serde(default)]
    pub queued: u64,
    /// What its model calls used.
    pub usage: UsageTotals,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnloadAgentParams {
    #[schemars(with = "Name")]
    pub agent_id: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UnloadAgentResult {
    /// Those that were in memory and are not any more.
    pub unloaded: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAgentTokenParams {
    #[schemars(with = "Name")]
    pub agent_id: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CreateAgentTokenResult {
    pub agent_id: String,
    pub token: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShutdownResult {
    pub success: bool,
}
