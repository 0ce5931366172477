//! Methods about the MCP servers whose tools agents use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::method;
use crate::params::Bounded;

method! {
    /// Lists the MCP servers of the configuration and those that the agent was connected to alone, and of each whether the
    /// agent may use any of its tools. An agent is told of those that it may use.
    McpListServers = "mcp_list_servers", Agent Read, McpListServersParams => McpListServersResult
}

method! {
    /// Starts an MCP server that the agent may use, unless it runs, and waits until it is ready. Allowed to the
    /// administrator and to the agent's ancestors. A server starts by itself with the first call of one of its tools.
    ///
    /// With `config`, which only the administrator may give, the agent is connected to a server that is in no configuration
    /// and is its own from then on.
    McpConnect = "mcp_connect", Agent Control, McpConnectParams => McpConnectResult
}

method! {
    /// Says that the agent has no more use for an MCP server, which ends with the last agent that used it, with all that
    /// it started. It starts again when it is needed; one that the agent was connected to with `config` is gone. Allowed to the administrator and to the agent's ancestors.
    McpDisconnect = "mcp_disconnect", Agent Control, McpDisconnectParams => McpDisconnectResult
}

method! {
    /// Returns how MCP servers stand: one, or all that `mcp_list_servers` lists.
    McpStatus = "mcp_status", Agent Read, McpStatusParams => McpStatusResult
}

method! {
    /// Accepts tools of an MCP server as they are now: those that `mcp_status` shows as quarantined, because they are new or
    /// say something else of themselves than when they were first listed. Only the administrator may.
    McpReview = "mcp_review", Agent Control, McpReviewParams => McpReviewResult
}

method! {
    /// Lists the prompts of an MCP server, which is started if it does not run; without one, of all that run. Allowed to the
    /// administrator and to the agent's ancestors.
    McpPrompts = "mcp_prompts", Agent Control, McpPromptsParams => McpPromptsResult
}

method! {
    /// Returns a prompt of an MCP server, filled in. Allowed to the administrator and to the agent's ancestors.
    McpGetPrompt = "mcp_get_prompt", Agent Control, McpGetPromptParams => McpGetPromptResult
}

method! {
    /// Lists the resources of an MCP server, which is started if it does not run; without one, the first page of each that
    /// runs. Allowed to the administrator and to the agent's ancestors.
    McpResources = "mcp_resources", Agent Control, McpResourcesParams => McpResourcesResult
}

method! {
    /// Returns what a resource of an MCP server holds. Allowed to the administrator and to the agent's ancestors; the agent
    /// has the tool `mcp_read`.
    McpReadResource = "mcp_read_resource", Agent Control, McpReadResourceParams => McpReadResourceResult
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpPromptsParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpPromptsResult {
    /// In MCP's shape (`name`, `title`, `description`, `arguments`), each with its `server`; at most 1,000 of a server.
    pub prompts: Vec<Map<String, Value>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpGetPromptParams {
    pub server: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpGetPromptResult {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// In MCP's shape: each has a `role` and its `content`.
    pub messages: Vec<Value>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpResourcesParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Of `next_cursor`, for the next page of that server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpResourcesResult {
    /// In MCP's shape (`uri`, `name`, `title`, `description`, `mimeType`, `size`), each with its `server`.
    pub resources: Vec<Map<String, Value>>,
    /// There are more, of the server that was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpReadResourceParams {
    pub server: String,
    pub uri: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpReadResourceResult {
    /// In MCP's shape: each has `uri`, and `text` or `blob` (base64).
    pub contents: Vec<Value>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpListServersParams {
    /// With the names of the tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_tools: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpListServersResult {
    pub servers: Vec<McpServerEntry>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpServerEntry {
    pub name: String,
    /// Whose configuration it is from: `user` or `project`; `agent` for one that the administrator connected this agent to,
    /// `client` for one that a client of the agent brought along.
    pub source: String,
    /// `stdio` or `http`.
    pub transport: String,
    /// `configured` (not needed yet), `untrusted`, `disabled`, `starting`, `ready`, `idle` (not running, starts when it is
    /// needed), `needs_auth` or `failed`.
    pub state: String,
    /// One process serves all agents. False: this is the agent's own, and ends with it.
    pub shared: bool,
    /// The agent may use some tool of it.
    pub visible: bool,
    /// Tools that the agent is offered.
    pub tool_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// With `include_tools`: the tools that the agent is offered, as its model calls them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpConnectParams {
    /// One of those that `mcp_list_servers` lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Instead: the entry of a server as it stands in `mcp_servers`, with its `name`. Values of `env` and `headers` are
    /// never returned, and not kept over a restart unless they name variables (`${TOKEN}`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Value>>,
    /// With `config`: `agent` when absent. `client` is for what a client of the agent brings along: it is not kept, and has
    /// no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<McpSource>,
    /// False: the process is this agent's own, though the server's entry says otherwise. Absent: as the entry says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// How long to wait until it is ready; 30000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<Bounded<0, 600_000>>,
}

/// Who brings a server along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpSource {
    Agent,
    Client,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpConnectResult {
    /// False when it was not ready in time; it goes on starting.
    pub connected: bool,
    pub server: String,
    pub state: String,
    /// Of MCP, as agreed with the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// What the agent is offered, as its model calls it.
    pub tools: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpDisconnectParams {
    pub server: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpDisconnectResult {
    /// False when there is no such server, or the agent did not use it.
    pub disconnected: bool,
    pub server: String,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpStatusParams {
    /// Only this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpStatusResult {
    pub servers: Vec<McpServerStatus>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpServerStatus {
    pub name: String,
    /// As in `mcp_list_servers`.
    #[serde(default)]
    pub source: String,
    /// As in `mcp_list_servers`.
    pub state: String,
    /// As in `mcp_list_servers`.
    #[serde(default)]
    pub shared: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// What the server says that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_info: Option<McpServerInfo>,
    /// The process that watches over the server, and ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Starts after the first.
    pub restarts: u32,
    /// Calls under way.
    pub in_flight: u32,
    pub calls: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The end of what it printed on standard error, at most 64 KiB.
    pub stderr_tail: String,
    /// Of a server elsewhere: what is known of the login at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<McpAuth>,
    /// What the kernel holds it to.
    pub sandbox: String,
    /// About how much of a conversation's window its tools take, four bytes to a token; those that are deferred nothing.
    #[serde(default)]
    pub context_tokens: u64,
    pub tools: Vec<McpTool>,
    /// What the server says otherwise of its tools than when they were first listed, or last accepted.
    pub changed: Vec<McpChange>,
}

/// A login, without what one is let in by.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpAuth {
    /// `none` (there is no login, and none is known to be wanted), `needed` (`nexus3 mcp login`) or `logged_in`.
    pub state: String,
    /// ISO 8601: when what the server gave ends. It is renewed before, where the server lets us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// What was granted, as far as the server says it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpServerInfo {
    pub name: String,
    pub version: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpTool {
    /// As models call it.
    pub name: String,
    /// As the server calls it.
    pub tool: String,
    /// `offered`; `deferred`, to be found with `tool_search`; `disabled` for this agent; `quarantined` until `mcp_review`.
    pub state: String,
}

/// One thing that a server says otherwise now.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpChange {
    /// As the server calls it.
    pub tool: String,
    /// `title`, `description`, `input_schema`, `output_schema` or `annotations`; `tool` for one that is new.
    pub field: String,
    pub before: String,
    pub after: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpReviewParams {
    pub server: String,
    pub accept: McpAccept,
}

/// `"all"`, or the tools by the names that the server has for them.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "\"all\", or a list of tools")]
pub enum McpAccept {
    All(All),
    Tools(Vec<String>),
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum All {
    All,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct McpReviewResult {
    /// Those that had waited for it.
    pub accepted: Vec<String>,
}
