//! Methods about what an agent may do, and what waits for leave.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::method;
use crate::params::NoParams;
use crate::schema::Name;
use crate::turn::RequestId;

method! {
    /// Returns what the agent may do, what was granted to it, and how its commands are confined.
    GetPermissions = "get_permissions", Agent Read, NoParams => GetPermissionsResult
}

method! {
    /// Changes what the agent may do, never above its ceiling. Takes back what was granted before.
    SetPermissions = "set_permissions", Agent Control, SetPermissionsParams => SetPermissionsResult
}

method! {
    /// Says whether a tool call would be let through, without making it, and if not which rule refuses it.
    ExplainPermission = "explain_permission", Agent Read, ExplainPermissionParams => ExplainPermissionResult
}

method! {
    /// Lists the tools of this server, and of each whether the agent may have any use of it.
    ListTools = "list_tools", Agent Read, NoParams => ListToolsResult
}

method! {
    /// Lists the presets that agents can be given.
    ListPresets = "list_presets", Server Read, NoParams => ListPresetsResult
}

method! {
    /// Lists what waits for a person's leave, oldest first.
    ListApprovals = "list_approvals", Server Read, ListApprovalsParams => ListApprovalsResult
}

method! {
    /// Answers an approval. Allowed to the administrator and to the agent's ancestors, not to the agent itself. A request
    /// for leave is answered by `allow_once`, `allow_session` or `deny`, a question of an MCP server by `accept`, `decline`
    /// or `cancel`.
    RespondApproval = "respond_approval", Server Control, RespondApprovalParams => RespondApprovalResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetPermissionsResult {
    /// Lower case: `sandboxed`, `trusted`, `yolo`.
    pub permission_level: String,
    /// The highest that it may be given; absent where it has no ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_level: Option<String>,
    pub preset: String,
    pub disabled_tools: Vec<String>,
    pub policy: Policy,
    pub session_allowances: SessionAllowances,
    pub depth: u32,
    pub parent_agent_id: Option<String>,
    pub network: bool,
    pub commands: bool,
    /// Tools of MCP servers that it may use, by server; `*` for all.
    #[serde(default)]
    pub mcp: BTreeMap<String, Vec<String>>,
    /// What holds the agent's commands within these permissions.
    pub sandbox: String,
    /// What each of them may take of the machine, and what holds it to that.
    pub limits: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Policy {
    pub cwd: String,
    /// Directories beside that (`set_cwd`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_directories: Vec<String>,
    /// Where it may read; null for anywhere.
    pub allowed_paths: Option<Vec<String>>,
    pub blocked_paths: Vec<String>,
    /// Where it may write without asking; null for anywhere.
    pub write_paths: Option<Vec<String>>,
}

/// What was granted while the agent ran.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionAllowances {
    pub write_paths: Vec<String>,
    /// Tools that may run commands without asking, each in these directories.
    pub exec_dirs: BTreeMap<String, Vec<String>>,
    /// Tools of MCP servers that may be called without asking, by server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetPermissionsParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000), inner(length(max = 128)))]
    pub disable_tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_tools: Option<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SetPermissionsResult {
    pub updated: bool,
    pub permission_level: String,
    pub preset: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainPermissionParams {
    pub tool: String,
    /// The tool's arguments; an empty object when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExplainPermissionResult {
    pub allowed: bool,
    /// The call would wait for somebody's leave.
    pub needs_approval: bool,
    /// Which rule refuses or asks: `known`, `schema`, `enabled`, `level`, `mcp`, `pin`, `target_agent`, `path`, `approval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListToolsResult {
    pub tools: Vec<ToolEntry>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ToolEntry {
    pub name: String,
    pub description: String,
    /// `look`, `write` (changes files), `command`, `agents`, or `mcp` (a tool of an MCP server).
    pub kind: String,
    /// It is not switched off for this agent.
    pub enabled: bool,
    /// The agent's model is told of it: a call could be let through.
    pub offered: bool,
    /// Which rule stands in the way: `enabled`, `level` or `mcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub input_schema: Value,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListPresetsResult {
    /// What an agent gets when none is named.
    pub default: String,
    pub presets: Vec<PresetEntry>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PresetEntry {
    pub name: String,
    /// The preset that it narrows; null for those that are built in.
    pub extends: Option<String>,
    /// `sandboxed` or `trusted`.
    pub level: String,
    pub built_in: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListApprovalsParams {
    /// Only this agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub agent_id: Option<String>,
    /// Those that were decided too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_decided: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListApprovalsResult {
    pub approvals: Vec<ApprovalEntry>,
}

impl ApprovalEntry {
    /// Whether all tools of an MCP server can be allowed with it.
    pub fn has_server(&self) -> bool {
        matches!(self.grant, Some(ApprovalGrant::Mcp { .. }))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalEntry {
    pub approval_id: String,
    #[serde(default)]
    pub kind: ApprovalKind,
    pub agent_id: String,
    pub tool: String,
    pub arguments: Value,
    /// What is asked for, for a person.
    pub reason: String,
    /// ISO 8601.
    pub created_at: String,
    /// `pending`, `allowed_once`, `allowed_session`, `denied`, `accepted`, `declined`, `timed_out`, `cancelled` or
    /// `denied_by_restart`.
    pub status: String,
    /// The agents above the one that asks, the topmost first.
    #[serde(default)]
    pub lineage: Vec<String>,
    /// The turn that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// ISO 8601: unless it is answered before, it is denied then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Who answered it: `administrator`, or an agent's name. Absent where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// What was said with a denial; of an `elicitation`, what the server asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Of an `elicitation`: the schema of the form to fill in, an object of texts, numbers, yes or no, and choices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Of an `elicitation` without a form: the address that a person is to open. Nothing opens it but they.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What `allow_session` adds to the agent; absent where that is more than one thing, as `reason` then says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<ApprovalGrant>,
    /// What the call would do, as far as that could be seen when it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
}

/// What waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// A call, for leave.
    #[default]
    Call,
    /// An MCP server whose tool runs, for what it wants to know.
    Elicitation,
}

/// What an agent is given for as long as it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalGrant {
    /// It may write this file, or all beneath this directory.
    Write { path: String },
    /// This tool may run commands in this directory.
    Command { tool: String, dir: String },
    /// This tool of this MCP server may be called, by the name that the server has for it.
    Mcp { server: String, tool: String },
}

/// What a call would do. Clients show `arguments` for kinds that they do not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Preview {
    Diff(FileChange),
    /// One of `argv`, `command` and `code` is there.
    Command {
        /// A program and its arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argv: Option<Vec<String>>,
        /// A line for a shell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// A program in Python.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        cwd: String,
        /// What would hold it within the agent's permissions.
        sandbox: String,
    },
    /// Another agent would be told this.
    Agent {
        target: String,
        content: String,
    },
    /// A file would be written whose text cannot be compared with what is there.
    Write {
        path: String,
        bytes: u64,
    },
}

/// What becomes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    pub path: String,
    /// Unified, at most 64 KiB.
    pub diff: String,
    /// Lines that come, and lines that go; of the whole change, whatever of it `diff` shows.
    pub added: u64,
    pub removed: u64,
    /// `diff` is not all of it.
    pub truncated: bool,
}

/// Longest message with a denial, in characters.
pub const DENIAL_CHARS_MAX: usize = 2_000;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RespondApprovalParams {
    pub approval_id: String,
    pub decision: ApprovalDecision,
    /// With `deny` only: what the model is told beside it. At most 2,000 characters, and not blank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2_000), regex(pattern = r"\S"))]
    pub message: Option<String>,
    /// With `accept` only: what stands in the form. What is left out of it has the default that its schema gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Map<String, Value>>,
    /// With `allow_session` only: what is allowed; `tool` when absent. `server` is for approvals whose `grant` is a tool of
    /// an MCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ApprovalScope>,
}

impl RespondApprovalParams {
    /// An answer without words.
    pub fn new(approval_id: impl Into<String>, decision: ApprovalDecision) -> Self {
        let approval_id = approval_id.into();
        Self { approval_id, decision, message: None, content: None, scope: None }
    }

    /// Allows all tools of the MCP server whose tool asks, for as long as the agent lives.
    pub fn allow_server(approval_id: impl Into<String>) -> Self {
        let params = Self::new(approval_id, ApprovalDecision::AllowSession);
        Self { scope: Some(ApprovalScope::Server), ..params }
    }
}

/// What `allow_session` allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// What was asked for.
    #[default]
    Tool,
    /// All tools of the MCP server, as they are now: one that is new or says something else later is asked about.
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    AllowOnce,
    AllowSession,
    Deny,
    Accept,
    Decline,
    Cancel,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RespondApprovalResult {
    pub approval: ApprovalEntry,
}
