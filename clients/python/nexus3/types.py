"""The types of parameters and results.

Written by generate.py; change that instead."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, TypedDict, Union


class _AgentEntryRequired(TypedDict):
    agent_id: str
    is_temp: bool
    # ISO 8601.
    created_at: str
    message_count: int
    should_shutdown: bool
    child_count: int
    halted_at_iteration_limit: bool
    # Upper case: `SANDBOXED`, `TRUSTED`.
    permission_level: str
    cwd: str
    # `idle`, `running`, `waiting_provider` (its turn waits until a provider takes the next call), or `stored` (on
    # disk, not in memory); for those who watch, `elsewhere` where another process has it.
    status: str
    # What its model calls used.
    usage: UsageTotals


class AgentEntry(_AgentEntryRequired, total=False):
    parent_agent_id: Optional[str]
    # Null when no provider is configured.
    model: Optional[str]
    # ISO 8601; null before the first turn.
    last_action_at: Optional[str]
    # Null when it may write anywhere.
    write_paths: Optional[List[str]]
    # The turn that runs: a name for `cancel`.
    running_request_id: Optional[RequestId]
    # How many turns wait.
    queued: int


class _AgentSummaryRequired(TypedDict):
    agent_id: str
    message_count: int
    cwd: str
    # Lower case: `sandboxed`, `trusted`.
    permission_level: str
    halted_at_iteration_limit: bool
    # What its model calls used.
    usage: UsageTotals


class AgentSummary(_AgentSummaryRequired, total=False):
    # Null when no provider is configured.
    model: Optional[str]
    # ISO 8601; null before the first turn.
    last_action_at: Optional[str]
    # Where they were asked for; absent for an agent that is not in memory.
    tokens: Optional[SummaryTokens]


class _ApprovalEntryRequired(TypedDict):
    approval_id: str
    agent_id: str
    tool: str
    arguments: Any
    # What is asked for, for a person.
    reason: str
    # ISO 8601.
    created_at: str
    # `pending`, `allowed_once`, `allowed_session`, `denied`, `accepted`, `declined`, `timed_out`, `cancelled` or
    # `denied_by_restart`.
    status: str


class ApprovalEntry(_ApprovalEntryRequired, total=False):
    kind: ApprovalKind
    # The agents above the one that asks, the topmost first.
    lineage: List[str]
    # The turn that waits for it.
    request_id: Optional[RequestId]
    # ISO 8601: unless it is answered before, it is denied then.
    expires_at: Optional[str]
    # Who answered it: `administrator`, or an agent's name. Absent where nobody did.
    decided_by: Optional[str]
    # What was said with a denial; of an `elicitation`, what the server asks.
    message: Optional[str]
    # Of an `elicitation`: the schema of the form to fill in, an object of texts, numbers, yes or no, and choices.
    schema: Any
    # Of an `elicitation` without a form: the address that a person is to open. Nothing opens it but they.
    url: Optional[str]
    # What `allow_session` adds to the agent; absent where that is more than one thing, as `reason` then says.
    grant: Optional[ApprovalGrant]
    # What the call would do, as far as that could be seen when it was asked.
    preview: Optional[Preview]


class _AttachmentEntryRequired(TypedDict):
    # `image` or `file`.
    type: str
    mime_type: str


class AttachmentEntry(_AttachmentEntryRequired, total=False):
    """An image or a document of a message."""
    name: Optional[str]
    # In bytes, as models get it.
    size: Optional[int]
    # Of these bytes, in hexadecimal digits.
    sha256: Optional[str]
    # In place of size and hash, where the model's service fetches it.
    url: Optional[str]


class _BucketRequired(TypedDict):
    count: int


class Bucket(_BucketRequired, total=False):
    # The largest value that it counts; null for the last, which counts all.
    le: Optional[float]


class CancelPlanResult(TypedDict):
    # False when it does not run in this server.
    cancelled: bool


class _CancelResultRequired(TypedDict):
    cancelled: bool
    request_id: RequestId


class CancelResult(_CancelResultRequired, total=False):
    # `not_found_or_completed` when nothing was cancelled.
    reason: Optional[str]


class CloneSessionResult(TypedDict):
    cloned: bool
    src_session: str
    dest_session: str


class CodeDiagnostic(TypedDict):
    rule: str
    # `error` for the syntax and for rules that were asked for by name; `warning` for those of `recommended`.
    severity: CodeSeverity
    message: str
    # From 1, as the column, which counts characters.
    line: int
    column: int
    # Behind the last character.
    end_line: int
    end_column: int


class _CompactResultRequired(TypedDict):
    compacted: bool


class CompactResult(_CompactResultRequired, total=False):
    tokens_before: Optional[int]
    tokens_after: Optional[int]
    tokens_saved: Optional[int]
    # Why nothing was compacted.
    reason: Optional[str]


class _ContentPartRequired(TypedDict):
    type: PartType


class ContentPart(_ContentPartRequired, total=False):
    """A part of what is said. Which members it has depends on `type`: `text` has `text`; `image` and `file`
    have a `path`, or `data` with `mime_type`; `resource` and `resource_link` are as in the Model Context
    Protocol."""
    text: Optional[str]
    # Absolute, or relative to the agent's directory. It is read with the agent's permissions, whoever names it.
    path: Optional[str]
    # The bytes in base64.
    data: Optional[str]
    # What the bytes are said to be. They are looked at, whatever it says.
    mime_type: Optional[str]
    # The same, as the Model Context Protocol calls it.
    mimeType: Optional[str]
    # What it is called; a path's last name when absent.
    name: Optional[str]
    # Of a `resource_link`, or of an image without data: `file://…`, which is a path. Other addresses are refused,
    # unless `images.allow_urls` is set; then the model's service fetches the image.
    uri: Optional[str]
    # The same.
    url: Optional[str]
    resource: Optional[Resource]
    # Of a `resource_link`; passed over, as the next three are.
    title: Optional[str]
    description: Optional[str]
    size: Optional[int]
    annotations: Any
    # Passed over.
    _meta: Any


class _CreateAgentResultRequired(TypedDict):
    agent_id: str
    url: str


class CreateAgentResult(_CreateAgentResultRequired, total=False):
    # With an initial message: the turn it started.
    initial_request_id: Optional[RequestId]
    # `queued`, when the answer was not waited for.
    initial_status: Optional[str]
    # The answer, when it was waited for.
    response: Optional[SendResult]


class CreateAgentTokenResult(TypedDict):
    agent_id: str
    token: str


class _CreateKeyResultRequired(TypedDict):
    # The secret. What signs takes its bytes as they stand here; of a key for doors it is the bearer token.
    key: str
    name: str
    created_at: str
    expires_at: str
    # Whether signatures are looked at: `off`, `optional` or `required` (`auth.hmac.mode`).
    mode: str


class CreateKeyResult(_CreateKeyResultRequired, total=False):
    # Absent when it is for all methods.
    methods: Optional[List[str]]
    # What it opens; absent when it is a key to sign with.
    doors: Optional[List[Door]]
    agent_id: Optional[str]


class CreatePlanResult(TypedDict):
    plan: PlanEntry
    metadata: PlanMetadata


class CurrentState(TypedDict, total=False):
    """Where things stand, for the planner."""
    completed_tasks: List[Any]
    pending_tasks: List[Any]
    context: Dict[str, Any]


class DeleteSessionResult(TypedDict):
    # False when there was no such session.
    deleted: bool
    session_name: str


class DestroyAgentResult(TypedDict):
    # False when there was no such agent.
    success: bool
    agent_id: str
    # The agent and its descendants.
    destroyed: List[str]


class _ExecuteTaskResultRequired(TypedDict):
    # `success`, or `partial` when something remains undone.
    status: str
    output: TaskOutput
    metadata: TaskMetadata


class ExecuteTaskResult(_ExecuteTaskResultRequired, total=False):
    # What remains undone, and why.
    reason: Optional[str]


class _ExplainPermissionResultRequired(TypedDict):
    allowed: bool
    # The call would wait for somebody's leave.
    needs_approval: bool


class ExplainPermissionResult(_ExplainPermissionResultRequired, total=False):
    # Which rule refuses or asks: `known`, `schema`, `enabled`, `level`, `mcp`, `pin`, `target_agent`, `path`,
    # `approval`.
    rule: Optional[str]
    reason: Optional[str]


class FileChange(TypedDict):
    """What becomes of a file."""
    path: str
    # Unified, at most 64 KiB.
    diff: str
    # Lines that come, and lines that go; of the whole change, whatever of it `diff` shows.
    added: int
    removed: int
    # `diff` is not all of it.
    truncated: bool


class FoundMemory(TypedDict):
    id: str
    content: str
    # From 0 to 1.
    similarity: float
    source: str
    created_at: str
    metadata: MemoryMetadata


class GetAgentSummariesResult(TypedDict):
    agents: List[AgentSummary]


class _GetContextResultRequired(TypedDict):
    message_count: int
    # Whether there is a system prompt.
    system_prompt: bool
    halted_at_iteration_limit: bool
    last_iteration_count: int
    max_tool_iterations: int
    # The turn that runs, if one does, and those that wait, in their order.
    turns: List[TurnEntry]


class GetContextResult(_GetContextResultRequired, total=False):
    # The turn that was cut off last and can be resumed, while no other runs.
    interrupted_turn: Optional[InterruptedTurn]


class GetContextStateResult(TypedDict):
    context_version: int
    # As they were given, by `path`.
    files: List[Dict[str, Any]]
    # As they were given, by `name`.
    dependencies: List[Dict[str, Any]]
    # Values by their keys.
    state: Dict[str, Any]


class GetMessagesResult(TypedDict):
    agent_id: str
    total: int
    offset: int
    limit: int
    messages: List[MessageEntry]


class GetMetricsResult(TypedDict):
    # All there are, those without a sample included.
    metrics: List[Metric]


class GetModelResult(TypedDict):
    model: str
    provider: str
    # What is asked of its thinking.
    reasoning: ReasoningChoice


class _GetPermissionsResultRequired(TypedDict):
    # Lower case: `sandboxed`, `trusted`, `yolo`.
    permission_level: str
    preset: str
    disabled_tools: List[str]
    policy: Policy
    session_allowances: SessionAllowances
    depth: int
    network: bool
    commands: bool
    # What holds the agent's commands within these permissions.
    sandbox: str
    # What each of them may take of the machine, and what holds it to that.
    limits: str


class GetPermissionsResult(_GetPermissionsResultRequired, total=False):
    # The highest that it may be given; absent where it has no ceiling.
    ceiling_level: Optional[str]
    parent_agent_id: Optional[str]
    # Tools of MCP servers that it may use, by server; `*` for all.
    mcp: Dict[str, List[str]]


class _GetSystemPromptResultRequired(TypedDict):
    system_prompt: str


class GetSystemPromptResult(_GetSystemPromptResultRequired, total=False):
    # The most specific file it was read from; null when it was given or no file has a part in it.
    system_prompt_path: Optional[str]


class _GetTokensResultRequired(TypedDict):
    system: int
    tools: int
    messages: int
    total: int
    # The model's window.
    budget: int
    # The part of the window that the context may fill before it is compacted; the whole of it with `compaction`
    # off.
    available: int
    # What is left of `available`.
    remaining: int


class GetTokensResult(_GetTokensResultRequired, total=False):
    # Of `tools`, those of MCP servers and for them.
    mcp: int


class _GetUsageResultRequired(TypedDict):
    usage: Usage
    # Calls whose price is not known.
    cost_unknown_calls: int
    # All calls.
    calls: int


class GetUsageResult(_GetUsageResultRequired, total=False):
    # Of the calls whose price is known; null when none is.
    cost_usd: Optional[float]
    # Where they were asked for, at most 1,000.
    rows: Optional[List[UsageRow]]


class InterruptedTurn(TypedDict):
    """A turn that did not reach its end."""
    request_id: RequestId
    # Tool calls of which it is not known whether they took effect.
    unknown_tool_calls: List[str]


class _KeyEntryRequired(TypedDict):
    name: str
    created_at: str
    expires_at: str


class KeyEntry(_KeyEntryRequired, total=False):
    # Absent when it is for all methods.
    methods: Optional[List[str]]
    # What it opens; absent when it is a key to sign with.
    doors: Optional[List[Door]]
    agent_id: Optional[str]


class _ListAgentsResultRequired(TypedDict):
    agents: List[AgentEntry]


class ListAgentsResult(_ListAgentsResultRequired, total=False):
    # With `after` or `limit`: whether there are more behind the last.
    more: Optional[bool]


class ListApprovalsResult(TypedDict):
    approvals: List[ApprovalEntry]


class ListKeysResult(TypedDict):
    # By name. Those of the configuration are not among them.
    keys: List[KeyEntry]
    # Whether signatures are looked at: `off`, `optional` or `required` (`auth.hmac.mode`).
    mode: str


class _ListModelsResultRequired(TypedDict):
    # All that was asked for, on this page or not.
    total: int
    offset: int
    limit: int
    models: List[ModelEntry]


class ListModelsResult(_ListModelsResultRequired, total=False):
    # The name of the model that answers when none is named, listed here or not; null when there is none.
    default: Optional[str]


class ListPlansResult(TypedDict):
    plans: List[ListedPlan]
    # There are more behind the last.
    has_more: bool


class ListPresetsResult(TypedDict):
    # What an agent gets when none is named.
    default: str
    presets: List[PresetEntry]


class ListSessionsResult(TypedDict):
    # All that the caller may see.
    total: int
    offset: int
    limit: int
    sessions: List[SessionEntry]


class ListToolsResult(TypedDict):
    tools: List[ToolEntry]


class _ListedMemoryRequired(TypedDict):
    id: str
    content: str
    source: str
    created_at: str
    subjects: List[str]


class ListedMemory(_ListedMemoryRequired, total=False):
    expires_at: Optional[str]


class ListedPlan(TypedDict):
    plan_id: str
    # Its first 500 characters.
    user_request: str
    status: str
    tasks: int
    tasks_done: int
    created_at: str
    updated_at: str


class LoadSessionResult(TypedDict):
    restored: bool
    agent_id: str
    message_count: int


class _MadeEntryRequired(TypedDict):
    provider: str
    # The provider's own name for the model.
    model: str
    # As `send` says it.
    stop_reason: str
    usage: Usage


class MadeEntry(_MadeEntryRequired, total=False):
    """How a model made a message."""
    stop_details: Any
    # Null where the price is not known.
    cost_usd: Optional[float]


class _McpAuthRequired(TypedDict):
    # `none` (there is no login, and none is known to be wanted), `needed` (`nexus3 mcp login`) or `logged_in`.
    state: str


class McpAuth(_McpAuthRequired, total=False):
    """A login, without what one is let in by."""
    # ISO 8601: when what the server gave ends. It is renewed before, where the server lets us.
    expires_at: Optional[str]
    # What was granted, as far as the server says it.
    scopes: List[str]


class McpChange(TypedDict):
    """One thing that a server says otherwise now."""
    # As the server calls it.
    tool: str
    # `title`, `description`, `input_schema`, `output_schema` or `annotations`; `tool` for one that is new.
    field: str
    before: str
    after: str


class _McpConnectResultRequired(TypedDict):
    # False when it was not ready in time; it goes on starting.
    connected: bool
    server: str
    state: str
    # What the agent is offered, as its model calls it.
    tools: List[str]


class McpConnectResult(_McpConnectResultRequired, total=False):
    # Of MCP, as agreed with the server.
    protocol_version: Optional[str]


class McpDisconnectResult(TypedDict):
    # False when there is no such server, or the agent did not use it.
    disconnected: bool
    server: str


class _McpGetPromptResultRequired(TypedDict):
    # In MCP's shape: each has a `role` and its `content`.
    messages: List[Any]


class McpGetPromptResult(_McpGetPromptResultRequired, total=False):
    description: Optional[str]


class McpListServersResult(TypedDict):
    servers: List[McpServerEntry]


class McpPromptsResult(TypedDict):
    # In MCP's shape (`name`, `title`, `description`, `arguments`), each with its `server`; at most 1,000 of a
    # server.
    prompts: List[Dict[str, Any]]


class McpReadResourceResult(TypedDict):
    # In MCP's shape: each has `uri`, and `text` or `blob` (base64).
    contents: List[Any]


class _McpResourcesResultRequired(TypedDict):
    # In MCP's shape (`uri`, `name`, `title`, `description`, `mimeType`, `size`), each with its `server`.
    resources: List[Dict[str, Any]]


class McpResourcesResult(_McpResourcesResultRequired, total=False):
    # There are more, of the server that was named.
    next_cursor: Optional[str]


class McpReviewResult(TypedDict):
    # Those that had waited for it.
    accepted: List[str]


class _McpServerEntryRequired(TypedDict):
    name: str
    # Whose configuration it is from: `user` or `project`; `agent` for one that the administrator connected this
    # agent to, `client` for one that a client of the agent brought along.
    source: str
    # `stdio` or `http`.
    transport: str
    # `configured` (not needed yet), `untrusted`, `disabled`, `starting`, `ready`, `idle` (not running, starts
    # when it is needed), `needs_auth` or `failed`.
    state: str
    # One process serves all agents. False: this is the agent's own, and ends with it.
    shared: bool
    # The agent may use some tool of it.
    visible: bool
    # Tools that the agent is offered.
    tool_count: int


class McpServerEntry(_McpServerEntryRequired, total=False):
    last_error: Optional[str]
    # With `include_tools`: the tools that the agent is offered, as its model calls them.
    tools: Optional[List[str]]


class McpServerInfo(TypedDict):
    name: str
    version: str


class _McpServerStatusRequired(TypedDict):
    name: str
    # As in `mcp_list_servers`.
    state: str
    # Starts after the first.
    restarts: int
    # Calls under way.
    in_flight: int
    calls: int
    # The end of what it printed on standard error, at most 64 KiB.
    stderr_tail: str
    # What the kernel holds it to.
    sandbox: str
    tools: List[McpTool]
    # What the server says otherwise of its tools than when they were first listed, or last accepted.
    changed: List[McpChange]


class McpServerStatus(_McpServerStatusRequired, total=False):
    # As in `mcp_list_servers`.
    source: str
    # As in `mcp_list_servers`.
    shared: bool
    protocol_version: Optional[str]
    # What the server says that it is.
    server_info: Optional[McpServerInfo]
    # The process that watches over the server, and ends with it.
    pid: Optional[int]
    # ISO 8601.
    started_at: Optional[str]
    last_error: Optional[str]
    # Of a server elsewhere: what is known of the login at it.
    auth: Optional[McpAuth]
    # About how much of a conversation's window its tools take, four bytes to a token; those that are deferred
    # nothing.
    context_tokens: int


class McpStatusResult(TypedDict):
    servers: List[McpServerStatus]


class McpTool(TypedDict):
    # As models call it.
    name: str
    # As the server calls it.
    tool: str
    # `offered`; `deferred`, to be found with `tool_search`; `disabled` for this agent; `quarantined` until
    # `mcp_review`.
    state: str


class MemoryDeleteResult(TypedDict):
    # False when the caller sees no such memory.
    deleted: bool


class _MemoryEntryRequired(TypedDict):
    id: str
    content: str
    source: str
    created_at: str
    subjects: List[str]
    shared: bool


class MemoryEntry(_MemoryEntryRequired, total=False):
    expires_at: Optional[str]


class _MemoryMetadataRequired(TypedDict):
    subjects: List[str]
    shared: bool
    # What it took the place of, the oldest first.
    supersedes: List[str]


class MemoryMetadata(_MemoryMetadataRequired, total=False):
    expires_at: Optional[str]


class _MessageEntryRequired(TypedDict):
    index: int
    # `user`, `assistant`, `tool`, or `system` (a summary).
    role: str
    content: str


class MessageEntry(_MessageEntryRequired, total=False):
    # In a message in which nobody said anything: what the server told the model, as that it is to go on.
    context: Optional[str]
    # What the model thought, where it was asked for.
    reasoning: Optional[str]
    tool_calls: List[ToolCallEntry]
    tool_call_id: Optional[str]
    # What stands beside the text, without its bytes.
    attachments: List[AttachmentEntry]
    meta: Optional[MessageMeta]


class _MessageMetaRequired(TypedDict):
    # ISO 8601.
    at: str


class MessageMeta(_MessageMetaRequired, total=False):
    request_id: Optional[RequestId]
    source: Optional[str]
    source_agent_id: Optional[str]
    # True when the text was cut short by a cancel, a failure or a restart.
    interrupted: bool
    # On a summary: how many messages, from the first, it stands for.
    covers: Optional[int]
    # On what a model said: how it came to be.
    made: Optional[MadeEntry]


class Metric(TypedDict):
    """One metric, by all its labels."""
    # As Prometheus knows it, with its unit.
    name: str
    type: MetricKind
    # What it means.
    help: str
    samples: List[Sample]


class _ModelEntryRequired(TypedDict):
    # The name to ask for it by.
    alias: str
    # The provider's name in the configuration.
    provider: str
    # The provider's own name for it.
    id: str
    # The format that it is spoken to in: `messages`, `chat`, `responses`, `generate_content`, `ollama`, `local`.
    wire: str
    context_window: int
    # `text`, `image`, `pdf`.
    input: List[str]
    reasoning: ModelReasoning
    # The only wires that reach it; empty when every one does that its provider speaks.
    wires: List[str]
    sources: ModelSources
    # Whether its provider has the key it needs, or needs none.
    key_set: bool
    # It answers when none is named.
    default: bool


class ModelEntry(_ModelEntryRequired, total=False):
    # The most tokens of one answer; null when nobody knows.
    max_output_tokens: Optional[int]
    # What it is known to be able to do: `image`, `pdf`, `reasoning`, `schemas`, `tools`.
    capabilities: List[str]
    # Null when nobody knows it.
    price: Optional[ModelPrice]
    # Whether it takes tools; null when nobody knows.
    tools: Optional[bool]
    # Whether its answers can be held to a JSON Schema; null when nobody knows.
    schemas: Optional[bool]
    # The day its service ends it, as `2026-01-31`; null when none is known.
    retires: Optional[str]
    # Whether a turn could have it now.
    available: bool
    # Why it is not available.
    reason: Optional[str]


class _ModelPriceRequired(TypedDict):
    input: float
    output: float


class ModelPrice(_ModelPriceRequired, total=False):
    """Dollars for a million tokens."""
    # As `input` when absent.
    cache_read: Optional[float]
    # As `input` when absent.
    cache_write: Optional[float]
    # What calls with longer inputs cost, in rising order.
    above: List[ModelPriceAbove]


class _ModelPriceAboveRequired(TypedDict):
    # The input has more tokens than this.
    tokens: int
    input: float
    output: float


class ModelPriceAbove(_ModelPriceAboveRequired, total=False):
    # As `input` when absent.
    cache_read: Optional[float]
    # As `input` when absent.
    cache_write: Optional[float]


class _ModelReasoningRequired(TypedDict):
    # How it is asked to: `effort`, `budget` (a number of tokens), or `none` when it cannot be asked.
    kind: str
    # The efforts it knows, in rising order; empty when nobody knows.
    efforts: List[str]
    # It cannot be told not to.
    always_on: bool
    # Whether the configuration asks for it.
    asked: bool


class ModelReasoning(_ModelReasoningRequired, total=False):
    """How a model thinks, and what is asked of it."""
    # The effort that the configuration asks for.
    effort: Optional[str]
    budget_tokens: Optional[int]


class ModelSources(TypedDict):
    """Where each figure comes from: `configuration`, `learned` (a provider's rejection), `provider` (as it said
    itself when `nexus3 models refresh` asked), `catalogue` (the table that is shipped with the server),
    `family` (the same, of the nearest model that it has) or `assumed`."""
    context_window: str
    max_output_tokens: str
    input: str
    reasoning: str
    price: str


class PastMessage(TypedDict):
    """Something that was said before an agent was made."""
    role: PastRole
    content: str


class PlanConstraints(TypedDict, total=False):
    # At most 200, which is also the limit when it is absent; the planner is told 20 then.
    max_tasks: Optional[int]
    # The plan's own estimate is not longer.
    time_limit_seconds: Optional[int]


class _PlanEntryRequired(TypedDict):
    tasks: List[PlannedTaskEntry]


class PlanEntry(_PlanEntryRequired, total=False):
    """A plan. One that is handed to `run_plan` needs its tasks and nothing else; with a `plan_id` it has to be
    that plan."""
    plan_id: Optional[str]
    estimated_time_seconds: int
    explanation: str


class _PlanMetadataRequired(TypedDict):
    execution_time_ms: int
    tokens_used: int


class PlanMetadata(_PlanMetadataRequired, total=False):
    # Null where a price is not known.
    cost_usd: Optional[float]


class PlanOptions(TypedDict, total=False):
    stream: Optional[bool]
    # From receipt; 30,000 when absent.
    timeout_ms: Optional[int]
    model: Optional[str]
    # Names the call for whoever makes it again: it is carried out once, and its answer given again for 10
    # minutes.
    idempotency_key: Optional[str]


class _PlanStandingRequired(TypedDict):
    plan: PlanEntry
    # What it was made for; empty where its caller brought it along.
    user_request: str
    # `created`, `running`, `interrupted` when the process that ran it is gone, `success`, `partial`, `failed` or
    # `cancelled`.
    status: str
    tasks: Dict[str, TaskStanding]
    created_at: str
    updated_at: str
    tokens_used: int


class PlanStanding(_PlanStandingRequired, total=False):
    # Null where a price is not known.
    cost_usd: Optional[float]


class _PlannedTaskEntryRequired(TypedDict):
    # 1 to 64 characters without spaces, unique in its plan.
    id: str
    type: TaskType
    # At most 65,536 bytes, not blank, without NUL.
    description: str


class PlannedTaskEntry(_PlannedTaskEntryRequired, total=False):
    # Tasks of the plan that have to be done before.
    dependencies: List[str]
    # 1 is the most urgent.
    priority: int
    # How often it may be tried; `options.max_attempts` of the run when absent.
    max_attempts: Optional[int]


class _PolicyRequired(TypedDict):
    cwd: str
    blocked_paths: List[str]


class Policy(_PolicyRequired, total=False):
    # Directories beside that (`set_cwd`).
    additional_directories: List[str]
    # Where it may read; null for anywhere.
    allowed_paths: Optional[List[str]]
    # Where it may write without asking; null for anywhere.
    write_paths: Optional[List[str]]


class _PresetEntryRequired(TypedDict):
    name: str
    # `sandboxed` or `trusted`.
    level: str
    built_in: bool


class PresetEntry(_PresetEntryRequired, total=False):
    # The preset that it narrows; null for those that are built in.
    extends: Optional[str]


class ReasoningDetails(TypedDict, total=False):
    # How hard it thinks. One that the model does not know is lowered to the nearest it does.
    effort: Optional[Effort]
    # The most tokens it thinks, for models that are asked so.
    budget_tokens: Optional[int]
    # `none` keeps what it thinks off streams.
    display: Optional[ReasoningDisplay]


class RenameSessionResult(TypedDict):
    renamed: bool
    old_name: str
    new_name: str


class _ResourceRequired(TypedDict):
    # Its last name is what it is called. It is not fetched.
    uri: str


class Resource(_ResourceRequired, total=False):
    """What a part of the type `resource` holds: a text, or bytes."""
    mimeType: Optional[str]
    text: Optional[str]
    # The bytes in base64.
    blob: Optional[str]
    # Passed over.
    _meta: Any


class RespondApprovalResult(TypedDict):
    approval: ApprovalEntry


class RevokeKeyResult(TypedDict):
    # False when there was no key of this name.
    revoked: bool


class RunOptions(TypedDict, total=False):
    # Tasks that run at once; 4 when absent.
    max_parallel: Optional[int]
    on_failure: Optional[OnFailure]
    # How often a task is tried; once when absent.
    max_attempts: Optional[int]
    # How long one attempt at a task may take.
    task_timeout_ms: Optional[int]
    language: Optional[str]
    framework: Optional[str]
    style_guide: Optional[str]
    # Whether files may be changed; not when absent.
    write: Optional[bool]
    stream: Optional[bool]
    # From receipt, for all of it; 30,000 when absent. What is done by then stays done.
    timeout_ms: Optional[int]
    model: Optional[str]
    # Names the call for whoever makes it again: it is carried out once, and its answer given again for 10
    # minutes.
    idempotency_key: Optional[str]


class RunPlanResult(TypedDict):
    plan_id: str
    # `success`, `partial` when some of it is done, `failed` when nothing is, or `cancelled`.
    status: str
    tasks: Dict[str, TaskStanding]
    # All that its tasks used, in this run and before; the time is this run's.
    metadata: PlanMetadata


class _SampleRequired(TypedDict):
    labels: Dict[str, str]


class Sample(_SampleRequired, total=False):
    # Of a counter or a gauge.
    value: Optional[float]
    # Of a histogram.
    spread: Optional[Spread]


class SaveSessionResult(TypedDict):
    saved: bool
    session_name: str
    # The agent's name from here on: another one only when it was temporary.
    agent_id: str


class _SendResultRequired(TypedDict):
    content: str
    request_id: RequestId
    halted_at_iteration_limit: bool
    # Why the model stopped: `end_turn`, `max_tokens`, `context_window`, `refusal`, `content_filter`, `empty`,
    # `pause`; or why the turn did: `iteration_limit`, `cancelled`. `other` when its provider gave a reason that
    # is not known.
    stop_reason: str
    # All that the turn used.
    usage: Usage
    # The model that answered last.
    model: str
    # How often a model was asked, not counting answers that were thrown away.
    steps: int


class SendResult(_SendResultRequired, total=False):
    # Present and true when the turn was cancelled; `content` is what had been generated.
    cancelled: bool
    # What the provider says of that: a refusal's category and explanation, or in `raw` the word that is not
    # known.
    stop_details: Any
    # What that costs; null where a price is not known.
    cost_usd: Optional[float]


class _ServerInfoResultRequired(TypedDict):
    name: str
    version: str
    pid: int
    home: str
    # Where agents work that were given no directory.
    cwd: str
    # ISO 8601.
    started_at: str
    # What is done with what needs somebody's leave: `deny`, `ask` or `auto`.
    approvals: str
    # Agents in memory.
    agents: int
    # Turns that run or wait.
    turns: int
    # Those of them that run.
    turns_running: int
    # How many watch.
    watches: int
    # The names that watchers gave.
    watchers: List[str]


class ServerInfoResult(_ServerInfoResultRequired, total=False):
    # Null where it serves no HTTP.
    url: Optional[str]
    # Null where it has no socket.
    socket: Optional[str]


class _SessionAllowancesRequired(TypedDict):
    write_paths: List[str]
    # Tools that may run commands without asking, each in these directories.
    exec_dirs: Dict[str, List[str]]


class SessionAllowances(_SessionAllowancesRequired, total=False):
    """What was granted while the agent ran."""
    # Tools of MCP servers that may be called without asking, by server.
    mcp: Dict[str, List[str]]


class _SessionEntryRequired(TypedDict):
    name: str
    message_count: int
    # Seconds since 1970.
    created_at: float
    # Seconds since 1970: the last message or change of settings.
    updated_at: float
    is_temp: bool
    # `user`, or the agent that made it.
    provenance: str
    # Lower case: `sandboxed`, `trusted`.
    permission_level: str
    cwd: str


class SessionEntry(_SessionEntryRequired, total=False):
    # Null when no provider is configured.
    model: Optional[str]


class SetCwdResult(TypedDict):
    # The directory without links and `..`.
    cwd: str


class SetModelResult(TypedDict):
    updated: bool
    model: str


class SetPermissionsResult(TypedDict):
    updated: bool
    permission_level: str
    preset: str


class SetSystemPromptResult(TypedDict):
    updated: bool


class ShutdownResult(TypedDict):
    success: bool


class ShutdownServerResult(TypedDict):
    success: bool
    message: str


class Spread(TypedDict):
    count: int
    # All values together.
    sum: float
    # Each counts also what the ones before it do.
    buckets: List[Bucket]


class SummaryTokens(TypedDict):
    total: int
    # The model's window.
    budget: int


class TaskContext(TypedDict, total=False):
    # Read for the model, at most 20, each within `current_directory`.
    files: List[str]
    # Where the task works; the server's own when absent.
    current_directory: Optional[str]
    # Libraries, for the model.
    dependencies: List[str]
    # What it has to keep to, for the model.
    constraints: List[Any]


class _TaskMetadataRequired(TypedDict):
    execution_time_ms: int
    tokens_used: int
    model: str
    # Why the model stopped, as `send` says it.
    stop_reason: str
    steps: int
    usage: Usage


class TaskMetadata(_TaskMetadataRequired, total=False):
    # Null where a price is not known.
    cost_usd: Optional[float]


class TaskOptions(TypedDict, total=False):
    language: Optional[str]
    framework: Optional[str]
    style_guide: Optional[str]
    # Whether files may be changed; not when absent.
    write: Optional[bool]
    stream: Optional[bool]
    # From receipt; 30,000 when absent.
    timeout_ms: Optional[int]
    model: Optional[str]
    # Names the call for whoever makes it again: it is carried out once, and its answer given again for 10
    # minutes.
    idempotency_key: Optional[str]


class TaskOutput(TypedDict):
    """What a task came to. Paths are relative to the directory it worked in."""
    # What stood in fences.
    code: str
    # The rest of what was said.
    explanation: str
    # All that was said, as it is streamed.
    text: str
    files_modified: List[str]
    files_created: List[str]
    files_deleted: List[str]


class _TaskStandingRequired(TypedDict):
    # `pending`, `running`, `success`, `partial`, `failed`, `skipped` or `cancelled`.
    status: str
    # How often it was begun.
    attempts: int
    tokens_used: int


class TaskStanding(_TaskStandingRequired, total=False):
    """How far a task got."""
    output: Optional[TaskOutput]
    # Why it is not done.
    error: Optional[str]
    model: Optional[str]
    # Null where a price is not known.
    cost_usd: Optional[float]


class _ToolCallEntryRequired(TypedDict):
    id: str
    name: str
    arguments: Any


class ToolCallEntry(_ToolCallEntryRequired, total=False):
    # True when the answer ended in the middle of it; it was not run.
    cut: bool


class _ToolEntryRequired(TypedDict):
    name: str
    description: str
    # `look`, `write` (changes files), `command`, `agents`, or `mcp` (a tool of an MCP server).
    kind: str
    # It is not switched off for this agent.
    enabled: bool
    # The agent's model is told of it: a call could be let through.
    offered: bool
    input_schema: Any


class ToolEntry(_ToolEntryRequired, total=False):
    # Which rule stands in the way: `enabled`, `level` or `mcp`.
    rule: Optional[str]


class _TurnEntryRequired(TypedDict):
    request_id: RequestId
    # `running` or `queued`.
    status: str
    # What was said; empty where a turn goes on, and for `compact`.
    content: str


class TurnEntry(_TurnEntryRequired, total=False):
    """A turn that runs or waits."""
    source: Optional[str]
    source_agent_id: Optional[str]
    # ISO 8601; of the one that runs.
    started_at: Optional[str]
    # What it has said so far in all steps; at most 1 MiB, the end of it.
    text: str
    # Which model call it is at, from 1.
    step: int
    # Characters of what was said in this step: the `offset` of the next `delta`.
    offset: int
    # Tool calls without a result.
    open_calls: List[ToolCallEntry]


class _TurnFailureRequired(TypedDict):
    code: int
    message: str


class TurnFailure(_TurnFailureRequired, total=False):
    """Why a turn failed, as the call that began it was told."""
    data: Any


class UnloadAgentResult(TypedDict):
    # Those that were in memory and are not any more.
    unloaded: List[str]


class UnwatchResult(TypedDict):
    # False when there is no such watch, or not for this caller.
    ended: bool


class UpdateContextResult(TypedDict):
    # `success`.
    status: str
    # False when the context was so already.
    changed: bool
    # Grows by one with each change, and never otherwise.
    context_version: int


class _UsageRequired(TypedDict):
    # Everything the model read, from a cache or not.
    input: int
    # The part of `input` that came from the provider's cache.
    cache_read: int
    # The part of `input` that was written to it.
    cache_write: int
    # Everything the model wrote, thoughts included.
    output: int
    # The part of `output` that was thought.
    reasoning: int


class Usage(_UsageRequired, total=False):
    """Tokens, counted alike for every provider."""
    # Tokens of answers that were thrown away, beside the others.
    discarded: Optional[int]
    # True when some of it is the server's own estimate.
    estimated: bool


class _UsageRowRequired(TypedDict):
    # The model, agent or day.
    key: str
    usage: Usage
    cost_unknown_calls: int
    calls: int


class UsageRow(_UsageRowRequired, total=False):
    cost_usd: Optional[float]


class _UsageTotalsRequired(TypedDict):
    # Read and written, thrown-away answers included.
    tokens: int
    # Calls whose price is not known.
    cost_unknown_calls: int


class UsageTotals(_UsageTotalsRequired, total=False):
    """All that an agent's model calls used, as lists show it."""
    # Of the calls whose price is known; null when none is.
    cost_usd: Optional[float]


class ValidateCodeOptions(TypedDict, total=False):
    """Members that are not known are passed over."""
    # Answers -32000 `TIMEOUT` when it takes longer; 30,000 when absent.
    timeout_ms: Optional[int]


class ValidateCodeResult(TypedDict):
    # Whether there is no error.
    valid: bool
    # The language by the first of its names.
    language: str
    # In the order of the code, at most 1,000.
    diagnostics: List[CodeDiagnostic]
    # Those that are not among `diagnostics` included, as in `warning_count`.
    error_count: int
    warning_count: int
    # `syntax`, and the rules that were asked for and looked for. When the syntax is wrong, no other rule is
    # applied.
    rules_applied: List[str]
    # What was asked for and cannot be checked in this language.
    rules_unsupported: List[str]


class _VersionResultRequired(TypedDict):
    name: str
    version: str
    # Protocol revision.
    protocol: str
    features: List[str]


class VersionResult(_VersionResultRequired, total=False):
    # The model an agent gets when none is named; null when no provider is configured.
    default_model: Optional[str]
    # The provider that model belongs to.
    default_provider: Optional[str]


class _WatchEventRequired(TypedDict):
    watch_id: str
    # From 1, without gaps.
    sequence: int
    # ISO 8601.
    at: str
    event: WatchedEvent


class WatchEvent(_WatchEventRequired, total=False):
    """What `watch_event` tells."""
    # In the first: the id of the request that opened the watch, to the letter; null for a notification.
    task_id: Any
    # Absent for what concerns the server as a whole.
    agent_id: Optional[str]
    # The turn it belongs to.
    request_id: Optional[RequestId]


class WatchResult(TypedDict):
    watch_id: str
    # Why it ended: `unwatched`, `gap` (the reader was too slow, and has missed something: watch again with
    # `after`), `gone` (nothing is left that it may see), `stopping`.
    reason: str
    # How many notifications were sent.
    events: int


class _WatchedAgentRequired(TypedDict):
    agent_id: str
    is_temp: bool
    # ISO 8601.
    created_at: str
    message_count: int
    should_shutdown: bool
    child_count: int
    halted_at_iteration_limit: bool
    # Upper case: `SANDBOXED`, `TRUSTED`.
    permission_level: str
    cwd: str
    # `idle`, `running`, `waiting_provider` (its turn waits until a provider takes the next call), or `stored` (on
    # disk, not in memory); for those who watch, `elsewhere` where another process has it.
    status: str
    # What its model calls used.
    usage: UsageTotals
    # The turn that runs, if one does, and those that wait, in their order.
    turns: List[TurnEntry]


class WatchedAgent(_WatchedAgentRequired, total=False):
    parent_agent_id: Optional[str]
    # Null when no provider is configured.
    model: Optional[str]
    # ISO 8601; null before the first turn.
    last_action_at: Optional[str]
    # Null when it may write anywhere.
    write_paths: Optional[List[str]]
    # The turn that runs: a name for `cancel`.
    running_request_id: Optional[RequestId]
    # How many turns wait.
    queued: int


class _WatchedAgentChangedRequired(TypedDict):
    type: Literal["agent_changed"]


class WatchedAgentChanged(_WatchedAgentChangedRequired, total=False):
    """Its settings, or where it is."""
    # `elsewhere` when another process has it; nothing more is told of it here then.
    status: Optional[str]
    model: Optional[str]
    # Upper case, as in `list_agents`.
    permission_level: Optional[str]
    cwd: Optional[str]


class WatchedAgentCreated(TypedDict):
    type: Literal["agent_created"]
    agent: AgentEntry


class WatchedAgentEnded(TypedDict):
    type: Literal["agent_ended"]


class WatchedAgentLeftMemory(TypedDict):
    """It lies on disk alone; the next call takes it up again."""
    type: Literal["agent_left_memory"]


class WatchedAgentRenamed(TypedDict):
    type: Literal["agent_renamed"]
    # Its new name; the event has the old one.
    to: str


class WatchedApprovalDecided(TypedDict):
    type: Literal["approval_decided"]
    approval: ApprovalEntry


class WatchedApprovalRequested(TypedDict):
    """Also told to those who watch an ancestor of the agent that asks."""
    type: Literal["approval_requested"]
    approval: ApprovalEntry


class WatchedCompacted(TypedDict):
    """The older part of the conversation was summarised."""
    type: Literal["compacted"]
    tokens_before: int
    tokens_after: int


class WatchedDelta(TypedDict):
    """A piece of the answer."""
    type: Literal["delta"]
    # Which model call of the turn says it, from 1.
    step: int
    # Where it begins in the text of the step, in characters (code points).
    offset: int
    text: str


# Another model takes over for the rest of the turn.
WatchedFallback = TypedDict("WatchedFallback", {"type": Literal["fallback"], "from": str, "to": str, "reason": str})


class WatchedGap(TypedDict):
    """The reader was too slow, and has missed something. The last event of its watch: watch again with
    `after`."""
    type: Literal["gap"]


class WatchedMessage(TypedDict):
    """A message that was written down."""
    type: Literal["message"]
    index: int
    message: MessageEntry


class WatchedReasoning(TypedDict):
    """A piece of what the model thinks. It is no part of the answer."""
    type: Literal["reasoning"]
    # Which model call of the turn says it, from 1.
    step: int
    # Where it begins in the text of the step, in characters (code points).
    offset: int
    text: str


class WatchedServerStopping(TypedDict):
    type: Literal["server_stopping"]
    # What turns that run are given to end.
    grace_ms: int


class _WatchedSnapshotRequired(TypedDict):
    type: Literal["snapshot"]
    agents: List[WatchedAgent]
    # What waits for leave.
    approvals: List[ApprovalEntry]
    # The names that watchers gave.
    watchers: List[str]


class WatchedSnapshot(_WatchedSnapshotRequired, total=False):
    """How things stand. What follows joins it without a gap, and repeats nothing."""
    # A further `snapshot` with the rest follows: one has 500 agents at most.
    more: bool


class _WatchedToolCallRequired(TypedDict):
    type: Literal["tool_call"]
    id: str
    name: str
    arguments: Any


class WatchedToolCall(_WatchedToolCallRequired, total=False):
    # True when the answer ended in the middle of it; it was not run.
    cut: bool


class WatchedToolOutput(TypedDict):
    """A piece of what the call prints while it runs: at most ten a second, and 64 KiB in all. Only with
    `deltas`."""
    type: Literal["tool_output"]
    id: str
    text: str


class _WatchedToolProgressRequired(TypedDict):
    type: Literal["tool_progress"]
    id: str
    progress: float


class WatchedToolProgress(_WatchedToolProgressRequired, total=False):
    """How far the call of a tool of an MCP server is, in the server's own numbers and words: at most four a
    second."""
    # What it goes up to, where the server knows.
    total: Optional[float]
    # At most 500 characters.
    message: Optional[str]


class _WatchedToolResultRequired(TypedDict):
    type: Literal["tool_result"]
    id: str
    content: str
    failed: bool
    duration_ms: int


class WatchedToolResult(_WatchedToolResultRequired, total=False):
    # What became of the file that the call changed; absent where it was none, several or no text.
    change: Optional[FileChange]
    # The rule that refused the call, as `explain_permission` names it.
    refused_by: Optional[str]


class WatchedToolStarted(TypedDict):
    """The call is judged, and run if it may be."""
    type: Literal["tool_started"]
    id: str


class _WatchedTurnEndedRequired(TypedDict):
    type: Literal["turn_ended"]
    # `done`, `cancelled`, `failed`, `halted` (at the limit of its iterations) or `truncated` (its answer was
    # cut).
    status: str
    message_count: int
    duration_ms: int
    usage: Usage


class WatchedTurnEnded(_WatchedTurnEndedRequired, total=False):
    # Why it failed.
    error: Optional[TurnFailure]
    # Null where the price is not known.
    cost_usd: Optional[float]


class _WatchedTurnQueuedRequired(TypedDict):
    type: Literal["turn_queued"]
    # What was said; empty where a turn goes on, and for `compact`.
    content: str
    # How many turns are before it.
    position: int


class WatchedTurnQueued(_WatchedTurnQueuedRequired, total=False):
    """What a turn was asked, and by whom."""
    source: Optional[str]
    source_agent_id: Optional[str]


class _WatchedTurnStartedRequired(TypedDict):
    type: Literal["turn_started"]
    # What was said; empty where a turn goes on, and for `compact`.
    content: str


class WatchedTurnStarted(_WatchedTurnStartedRequired, total=False):
    """What a turn was asked, and by whom."""
    source: Optional[str]
    source_agent_id: Optional[str]
    # It goes on with one that was cut off.
    resumed: bool
    # Null when no provider is configured.
    model: Optional[str]


class _WatchedUsageRequired(TypedDict):
    type: Literal["usage"]
    # Everything the model read, from a cache or not.
    input: int
    # The part of `input` that came from the provider's cache.
    cache_read: int
    # The part of `input` that was written to it.
    cache_write: int
    # Everything the model wrote, thoughts included.
    output: int
    # The part of `output` that was thought.
    reasoning: int


class WatchedUsage(_WatchedUsageRequired, total=False):
    """What one model call used."""
    # Tokens of answers that were thrown away, beside the others.
    discarded: Optional[int]
    # True when some of it is the server's own estimate.
    estimated: bool


class _WatchedWaitingRequired(TypedDict):
    type: Literal["waiting"]
    # `rate_limit`, `overloaded`, `full`, or `retry` before a call that failed is sent again.
    reason: str


class WatchedWaiting(_WatchedWaitingRequired, total=False):
    """The model's provider lets the turn wait."""
    # Where it is known.
    wait_ms: Optional[int]


class WatchedWatchers(TypedDict):
    """The names that watchers gave, told to the administrator."""
    type: Literal["watchers"]
    watchers: List[str]


All = Literal["all"]
ApprovalDecision = Literal["allow_once", "allow_session", "deny", "accept", "decline", "cancel"]
# What an agent is given for as long as it lives.
ApprovalGrant = Dict[str, Any]
# What waits for an answer.
ApprovalKind = Literal["call", "elicitation"]
# What `allow_session` allows.
ApprovalScope = Literal["tool", "server"]
CodeSeverity = Literal["error", "warning"]
ContextAction = Literal["add", "remove", "modify"]
ContextType = Literal["file", "dependency", "state"]
# Another protocol on the server's port.
Door = Literal["mcp", "openai", "websocket"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
# Who brings a server along.
McpSource = Literal["agent", "client"]
MetricKind = Literal["counter", "gauge", "histogram"]
OnFailure = Literal["stop", "continue"]
PartType = Literal["text", "image", "file", "resource", "resource_link"]
PastRole = Literal["user", "assistant"]
ReasoningDisplay = Literal["stream", "none"]
# Names a turn: a string that is not blank, or an integer.
RequestId = Union[int, str]
TaskType = Literal["code_generation", "refactoring", "analysis", "testing"]
# What is done with what needs leave, in one turn.
TurnApprovals = Literal["ask"]
UsageBy = Literal["agent", "model", "day"]
# A text that is not blank, or a list of parts.
Content = Union[str, List[ContentPart]]
# `"all"`, or the tools by the names that the server has for them.
McpAccept = Union[All, List[str]]
# What a call would do. Clients show `arguments` for kinds that they do not know.
Preview = Union[FileChange, Dict[str, Any]]
# What is asked of a model's thinking: whether it thinks, or how.
ReasoningChoice = Union[bool, ReasoningDetails]
# Clients ignore types that they do not know.
WatchedEvent = Union[
    WatchedSnapshot,
    WatchedTurnQueued,
    WatchedTurnStarted,
    WatchedDelta,
    WatchedReasoning,
    WatchedMessage,
    WatchedToolCall,
    WatchedToolStarted,
    WatchedToolOutput,
    WatchedToolProgress,
    WatchedToolResult,
    WatchedApprovalRequested,
    WatchedApprovalDecided,
    WatchedWaiting,
    WatchedFallback,
    WatchedUsage,
    WatchedTurnEnded,
    WatchedCompacted,
    WatchedAgentCreated,
    WatchedAgentEnded,
    WatchedAgentRenamed,
    WatchedAgentChanged,
    WatchedAgentLeftMemory,
    WatchedWatchers,
    WatchedServerStopping,
    WatchedGap,
]
