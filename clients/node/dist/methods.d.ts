/** The methods and their types. Generated from the OpenRPC document by scripts/generate.mjs. */
import { Caller, type CallOptions, type Unbound } from "./caller.js";
export interface AgentEntry {
    agent_id: string;
    is_temp: boolean;
    /** ISO 8601. */
    created_at: string;
    message_count: number;
    should_shutdown: boolean;
    parent_agent_id?: string | null;
    child_count: number;
    halted_at_iteration_limit: boolean;
    /** Null when no provider is configured. */
    model?: string | null;
    /** ISO 8601; null before the first turn. */
    last_action_at?: string | null;
    /** Upper case: `SANDBOXED`, `TRUSTED`. */
    permission_level: string;
    cwd: string;
    /** Null when it may write anywhere. */
    write_paths?: Array<string> | null;
    /**
     * `idle`, `running`, `waiting_provider` (its turn waits until a provider takes the next call), or `stored` (on disk,
     * not in memory); for those who watch, `elsewhere` where another process has it.
     */
    status: string;
    /** The turn that runs: a name for `cancel`. */
    running_request_id?: RequestId | null;
    /** How many turns wait. */
    queued?: number;
    /** What its model calls used. */
    usage: UsageTotals;
}
export interface AgentSummary {
    agent_id: string;
    message_count: number;
    cwd: string;
    /** Lower case: `sandboxed`, `trusted`. */
    permission_level: string;
    /** Null when no provider is configured. */
    model?: string | null;
    halted_at_iteration_limit: boolean;
    /** ISO 8601; null before the first turn. */
    last_action_at?: string | null;
    /** What its model calls used. */
    usage: UsageTotals;
    /** Where they were asked for; absent for an agent that is not in memory. */
    tokens?: SummaryTokens | null;
}
export type All = "all";
export type ApprovalDecision = "allow_once" | "allow_session" | "deny" | "accept" | "decline" | "cancel";
export interface ApprovalEntry {
    approval_id: string;
    kind?: ApprovalKind;
    agent_id: string;
    tool: string;
    arguments: unknown;
    /** What is asked for, for a person. */
    reason: string;
    /** ISO 8601. */
    created_at: string;
    /**
     * `pending`, `allowed_once`, `allowed_session`, `denied`, `accepted`, `declined`, `timed_out`, `cancelled` or
     * `denied_by_restart`.
     */
    status: string;
    /** The agents above the one that asks, the topmost first. */
    lineage?: Array<string>;
    /** The turn that waits for it. */
    request_id?: RequestId | null;
    /** ISO 8601: unless it is answered before, it is denied then. */
    expires_at?: string | null;
    /** Who answered it: `administrator`, or an agent's name. Absent where nobody did. */
    decided_by?: string | null;
    /** What was said with a denial; of an `elicitation`, what the server asks. */
    message?: string | null;
    /** Of an `elicitation`: the schema of the form to fill in, an object of texts, numbers, yes or no, and choices. */
    schema?: unknown;
    /** Of an `elicitation` without a form: the address that a person is to open. Nothing opens it but they. */
    url?: string | null;
    /** What `allow_session` adds to the agent; absent where that is more than one thing, as `reason` then says. */
    grant?: ApprovalGrant | null;
    /** What the call would do, as far as that could be seen when it was asked. */
    preview?: Preview | null;
}
/** What an agent is given for as long as it lives. */
export type ApprovalGrant = 
/** It may write this file, or all beneath this directory. */
{
    "kind": "write";
    "path": string;
}
/** This tool may run commands in this directory. */
 | {
    "kind": "command";
    "tool": string;
    "dir": string;
}
/** This tool of this MCP server may be called, by the name that the server has for it. */
 | {
    "kind": "mcp";
    "server": string;
    "tool": string;
};
/** What waits for an answer. */
export type ApprovalKind = "call" | "elicitation";
/** What `allow_session` allows. */
export type ApprovalScope = "tool" | "server";
/** An image or a document of a message. */
export interface AttachmentEntry {
    /** `image` or `file`. */
    type: string;
    mime_type: string;
    name?: string | null;
    /** In bytes, as models get it. */
    size?: number | null;
    /** Of these bytes, in hexadecimal digits. */
    sha256?: string | null;
    /** In place of size and hash, where the model's service fetches it. */
    url?: string | null;
}
export interface Bucket {
    /** The largest value that it counts; null for the last, which counts all. */
    le?: number | null;
    count: number;
}
export interface CodeDiagnostic {
    rule: string;
    /** `error` for the syntax and for rules that were asked for by name; `warning` for those of `recommended`. */
    severity: CodeSeverity;
    message: string;
    /** From 1, as the column, which counts characters. */
    line: number;
    column: number;
    /** Behind the last character. */
    end_line: number;
    end_column: number;
}
export type CodeSeverity = "error" | "warning";
/** A text that is not blank, or a list of parts. */
export type Content = string | Array<ContentPart>;
/**
 * A part of what is said. Which members it has depends on `type`: `text` has `text`; `image` and `file` have a `path`, or
 * `data` with `mime_type`; `resource` and `resource_link` are as in the Model Context Protocol.
 */
export interface ContentPart {
    type: PartType;
    text?: string | null;
    /** Absolute, or relative to the agent's directory. It is read with the agent's permissions, whoever names it. */
    path?: string | null;
    /** The bytes in base64. */
    data?: string | null;
    /** What the bytes are said to be. They are looked at, whatever it says. */
    mime_type?: string | null;
    /** The same, as the Model Context Protocol calls it. */
    mimeType?: string | null;
    /** What it is called; a path's last name when absent. */
    name?: string | null;
    /**
     * Of a `resource_link`, or of an image without data: `file://…`, which is a path. Other addresses are refused, unless
     * `images.allow_urls` is set; then the model's service fetches the image.
     */
    uri?: string | null;
    /** The same. */
    url?: string | null;
    resource?: Resource | null;
    /** Of a `resource_link`; passed over, as the next three are. */
    title?: string | null;
    description?: string | null;
    size?: number | null;
    annotations?: unknown;
    /** Passed over. */
    _meta?: unknown;
}
export type ContextAction = "add" | "remove" | "modify";
export type ContextType = "file" | "dependency" | "state";
/** Where things stand, for the planner. */
export interface CurrentState {
    completed_tasks?: Array<unknown>;
    pending_tasks?: Array<unknown>;
    context?: Record<string, unknown>;
}
/** Another protocol on the server's port. */
export type Door = "mcp" | "openai" | "websocket";
export type Effort = "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";
/** What becomes of a file. */
export interface FileChange {
    path: string;
    /** Unified, at most 64 KiB. */
    diff: string;
    /** Lines that come, and lines that go; of the whole change, whatever of it `diff` shows. */
    added: number;
    removed: number;
    /** `diff` is not all of it. */
    truncated: boolean;
}
export interface FoundMemory {
    id: string;
    content: string;
    /** From 0 to 1. */
    similarity: number;
    source: string;
    created_at: string;
    metadata: MemoryMetadata;
}
/** A turn that did not reach its end. */
export interface InterruptedTurn {
    request_id: RequestId;
    /** Tool calls of which it is not known whether they took effect. */
    unknown_tool_calls: Array<string>;
}
export interface KeyEntry {
    name: string;
    /** Absent when it is for all methods. */
    methods?: Array<string> | null;
    /** What it opens; absent when it is a key to sign with. */
    doors?: Array<Door> | null;
    agent_id?: string | null;
    created_at: string;
    expires_at: string;
}
export interface ListedMemory {
    id: string;
    content: string;
    source: string;
    created_at: string;
    expires_at?: string | null;
    subjects: Array<string>;
}
export interface ListedPlan {
    plan_id: string;
    /** Its first 500 characters. */
    user_request: string;
    status: string;
    tasks: number;
    tasks_done: number;
    created_at: string;
    updated_at: string;
}
/** How a model made a message. */
export interface MadeEntry {
    provider: string;
    /** The provider's own name for the model. */
    model: string;
    /** As `send` says it. */
    stop_reason: string;
    stop_details?: unknown;
    usage: Usage;
    /** Null where the price is not known. */
    cost_usd?: number | null;
}
/** `"all"`, or the tools by the names that the server has for them. */
export type McpAccept = All | Array<string>;
/** A login, without what one is let in by. */
export interface McpAuth {
    /** `none` (there is no login, and none is known to be wanted), `needed` (`nexus3 mcp login`) or `logged_in`. */
    state: string;
    /** ISO 8601: when what the server gave ends. It is renewed before, where the server lets us. */
    expires_at?: string | null;
    /** What was granted, as far as the server says it. */
    scopes?: Array<string>;
}
/** One thing that a server says otherwise now. */
export interface McpChange {
    /** As the server calls it. */
    tool: string;
    /** `title`, `description`, `input_schema`, `output_schema` or `annotations`; `tool` for one that is new. */
    field: string;
    before: string;
    after: string;
}
export interface McpServerEntry {
    name: string;
    /**
     * Whose configuration it is from: `user` or `project`; `agent` for one that the administrator connected this agent to,
     * `client` for one that a client of the agent brought along.
     */
    source: string;
    /** `stdio` or `http`. */
    transport: string;
    /**
     * `configured` (not needed yet), `untrusted`, `disabled`, `starting`, `ready`, `idle` (not running, starts when it is
     * needed), `needs_auth` or `failed`.
     */
    state: string;
    /** One process serves all agents. False: this is the agent's own, and ends with it. */
    shared: boolean;
    /** The agent may use some tool of it. */
    visible: boolean;
    /** Tools that the agent is offered. */
    tool_count: number;
    last_error?: string | null;
    /** With `include_tools`: the tools that the agent is offered, as its model calls them. */
    tools?: Array<string> | null;
}
export interface McpServerInfo {
    name: string;
    version: string;
}
export interface McpServerStatus {
    name: string;
    /** As in `mcp_list_servers`. */
    source?: string;
    /** As in `mcp_list_servers`. */
    state: string;
    /** As in `mcp_list_servers`. */
    shared?: boolean;
    protocol_version?: string | null;
    /** What the server says that it is. */
    server_info?: McpServerInfo | null;
    /** The process that watches over the server, and ends with it. */
    pid?: number | null;
    /** ISO 8601. */
    started_at?: string | null;
    /** Starts after the first. */
    restarts: number;
    /** Calls under way. */
    in_flight: number;
    calls: number;
    last_error?: string | null;
    /** The end of what it printed on standard error, at most 64 KiB. */
    stderr_tail: string;
    /** Of a server elsewhere: what is known of the login at it. */
    auth?: McpAuth | null;
    /** What the kernel holds it to. */
    sandbox: string;
    /** About how much of a conversation's window its tools take, four bytes to a token; those that are deferred nothing. */
    context_tokens?: number;
    tools: Array<McpTool>;
    /** What the server says otherwise of its tools than when they were first listed, or last accepted. */
    changed: Array<McpChange>;
}
/** Who brings a server along. */
export type McpSource = "agent" | "client";
export interface McpTool {
    /** As models call it. */
    name: string;
    /** As the server calls it. */
    tool: string;
    /** `offered`; `deferred`, to be found with `tool_search`; `disabled` for this agent; `quarantined` until `mcp_review`. */
    state: string;
}
export interface MemoryMetadata {
    subjects: Array<string>;
    shared: boolean;
    expires_at?: string | null;
    /** What it took the place of, the oldest first. */
    supersedes: Array<string>;
}
export interface MessageEntry {
    index: number;
    /** `user`, `assistant`, `tool`, or `system` (a summary). */
    role: string;
    content: string;
    /** In a message in which nobody said anything: what the server told the model, as that it is to go on. */
    context?: string | null;
    /** What the model thought, where it was asked for. */
    reasoning?: string | null;
    tool_calls?: Array<ToolCallEntry>;
    tool_call_id?: string | null;
    /** What stands beside the text, without its bytes. */
    attachments?: Array<AttachmentEntry>;
    meta?: MessageMeta | null;
}
export interface MessageMeta {
    /** ISO 8601. */
    at: string;
    request_id?: RequestId | null;
    source?: string | null;
    source_agent_id?: string | null;
    /** True when the text was cut short by a cancel, a failure or a restart. */
    interrupted?: boolean;
    /** On a summary: how many messages, from the first, it stands for. */
    covers?: number | null;
    /** On what a model said: how it came to be. */
    made?: MadeEntry | null;
}
/** One metric, by all its labels. */
export interface Metric {
    /** As Prometheus knows it, with its unit. */
    name: string;
    type: MetricKind;
    /** What it means. */
    help: string;
    samples: Array<Sample>;
}
export type MetricKind = "counter" | "gauge" | "histogram";
export interface ModelEntry {
    /** The name to ask for it by. */
    alias: string;
    /** The provider's name in the configuration. */
    provider: string;
    /** The provider's own name for it. */
    id: string;
    /** The format that it is spoken to in: `messages`, `chat`, `responses`, `generate_content`, `ollama`, `local`. */
    wire: string;
    context_window: number;
    /** The most tokens of one answer; null when nobody knows. */
    max_output_tokens?: number | null;
    /** `text`, `image`, `pdf`. */
    input: Array<string>;
    reasoning: ModelReasoning;
    /** What it is known to be able to do: `image`, `pdf`, `reasoning`, `schemas`, `tools`. */
    capabilities?: Array<string>;
    /** Null when nobody knows it. */
    price?: ModelPrice | null;
    /** Whether it takes tools; null when nobody knows. */
    tools?: boolean | null;
    /** Whether its answers can be held to a JSON Schema; null when nobody knows. */
    schemas?: boolean | null;
    /** The only wires that reach it; empty when every one does that its provider speaks. */
    wires: Array<string>;
    /** The day its service ends it, as `2026-01-31`; null when none is known. */
    retires?: string | null;
    sources: ModelSources;
    /** Whether a turn could have it now. */
    available?: boolean;
    /** Why it is not available. */
    reason?: string | null;
    /** Whether its provider has the key it needs, or needs none. */
    key_set: boolean;
    /** It answers when none is named. */
    default: boolean;
}
/** Dollars for a million tokens. */
export interface ModelPrice {
    input: number;
    output: number;
    /** As `input` when absent. */
    cache_read?: number | null;
    /** As `input` when absent. */
    cache_write?: number | null;
    /** What calls with longer inputs cost, in rising order. */
    above?: Array<ModelPriceAbove>;
}
export interface ModelPriceAbove {
    /** The input has more tokens than this. */
    tokens: number;
    input: number;
    output: number;
    /** As `input` when absent. */
    cache_read?: number | null;
    /** As `input` when absent. */
    cache_write?: number | null;
}
/** How a model thinks, and what is asked of it. */
export interface ModelReasoning {
    /** How it is asked to: `effort`, `budget` (a number of tokens), or `none` when it cannot be asked. */
    kind: string;
    /** The efforts it knows, in rising order; empty when nobody knows. */
    efforts: Array<string>;
    /** It cannot be told not to. */
    always_on: boolean;
    /** Whether the configuration asks for it. */
    asked: boolean;
    /** The effort that the configuration asks for. */
    effort?: string | null;
    budget_tokens?: number | null;
}
/**
 * Where each figure comes from: `configuration`, `learned` (a provider's rejection), `provider` (as it said itself when
 * `nexus3 models refresh` asked), `catalogue` (the table that is shipped with the server), `family` (the same, of the
 * nearest model that it has) or `assumed`.
 */
export interface ModelSources {
    context_window: string;
    max_output_tokens: string;
    input: string;
    reasoning: string;
    price: string;
}
export type OnFailure = "stop" | "continue";
export type PartType = "text" | "image" | "file" | "resource" | "resource_link";
/** Something that was said before an agent was made. */
export interface PastMessage {
    role: PastRole;
    content: string;
}
export type PastRole = "user" | "assistant";
export interface PlanConstraints {
    /** At most 200, which is also the limit when it is absent; the planner is told 20 then. */
    max_tasks?: number | null;
    /** The plan's own estimate is not longer. */
    time_limit_seconds?: number | null;
}
/** A plan. One that is handed to `run_plan` needs its tasks and nothing else; with a `plan_id` it has to be that plan. */
export interface PlanEntry {
    plan_id?: string | null;
    tasks: Array<PlannedTaskEntry>;
    estimated_time_seconds?: number;
    explanation?: string;
}
export interface PlanMetadata {
    execution_time_ms: number;
    tokens_used: number;
    /** Null where a price is not known. */
    cost_usd?: number | null;
}
export interface PlanOptions {
    stream?: boolean | null;
    /** From receipt; 30,000 when absent. */
    timeout_ms?: number | null;
    model?: string | null;
    /** Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes. */
    idempotency_key?: string | null;
}
export interface PlannedTaskEntry {
    /** 1 to 64 characters without spaces, unique in its plan. */
    id: string;
    type: TaskType;
    /** At most 65,536 bytes, not blank, without NUL. */
    description: string;
    /** Tasks of the plan that have to be done before. */
    dependencies?: Array<string>;
    /** 1 is the most urgent. */
    priority?: number;
    /** How often it may be tried; `options.max_attempts` of the run when absent. */
    max_attempts?: number | null;
}
export interface Policy {
    cwd: string;
    /** Directories beside that (`set_cwd`). */
    additional_directories?: Array<string>;
    /** Where it may read; null for anywhere. */
    allowed_paths?: Array<string> | null;
    blocked_paths: Array<string>;
    /** Where it may write without asking; null for anywhere. */
    write_paths?: Array<string> | null;
}
export interface PresetEntry {
    name: string;
    /** The preset that it narrows; null for those that are built in. */
    extends?: string | null;
    /** `sandboxed` or `trusted`. */
    level: string;
    built_in: boolean;
}
/** What a call would do. Clients show `arguments` for kinds that they do not know. */
export type Preview = {
    "kind": "diff";
} & FileChange
/** One of `argv`, `command` and `code` is there. */
 | {
    "kind": "command";
    "argv"?: Array<string> | null;
    "command"?: string | null;
    "code"?: string | null;
    "cwd": string;
    "sandbox": string;
}
/** Another agent would be told this. */
 | {
    "kind": "agent";
    "target": string;
    "content": string;
}
/** A file would be written whose text cannot be compared with what is there. */
 | {
    "kind": "write";
    "path": string;
    "bytes": number;
};
/** What is asked of a model's thinking: whether it thinks, or how. */
export type ReasoningChoice = boolean | ReasoningDetails;
export interface ReasoningDetails {
    /** How hard it thinks. One that the model does not know is lowered to the nearest it does. */
    effort?: Effort | null;
    /** The most tokens it thinks, for models that are asked so. */
    budget_tokens?: number | null;
    /** `none` keeps what it thinks off streams. */
    display?: ReasoningDisplay | null;
}
export type ReasoningDisplay = "stream" | "none";
/** Names a turn: a string that is not blank, or an integer. */
export type RequestId = number | string;
/** What a part of the type `resource` holds: a text, or bytes. */
export interface Resource {
    /** Its last name is what it is called. It is not fetched. */
    uri: string;
    mimeType?: string | null;
    text?: string | null;
    /** The bytes in base64. */
    blob?: string | null;
    /** Passed over. */
    _meta?: unknown;
}
export interface RunOptions {
    /** Tasks that run at once; 4 when absent. */
    max_parallel?: number | null;
    on_failure?: OnFailure | null;
    /** How often a task is tried; once when absent. */
    max_attempts?: number | null;
    /** How long one attempt at a task may take. */
    task_timeout_ms?: number | null;
    language?: string | null;
    framework?: string | null;
    style_guide?: string | null;
    /** Whether files may be changed; not when absent. */
    write?: boolean | null;
    stream?: boolean | null;
    /** From receipt, for all of it; 30,000 when absent. What is done by then stays done. */
    timeout_ms?: number | null;
    model?: string | null;
    /** Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes. */
    idempotency_key?: string | null;
}
export interface Sample {
    labels: Record<string, string>;
    /** Of a counter or a gauge. */
    value?: number | null;
    /** Of a histogram. */
    spread?: Spread | null;
}
export interface SendResult {
    content: string;
    request_id: RequestId;
    halted_at_iteration_limit: boolean;
    /** Present and true when the turn was cancelled; `content` is what had been generated. */
    cancelled?: boolean;
    /**
     * Why the model stopped: `end_turn`, `max_tokens`, `context_window`, `refusal`, `content_filter`, `empty`, `pause`; or
     * why the turn did: `iteration_limit`, `cancelled`. `other` when its provider gave a reason that is not known.
     */
    stop_reason: string;
    /** What the provider says of that: a refusal's category and explanation, or in `raw` the word that is not known. */
    stop_details?: unknown;
    /** All that the turn used. */
    usage: Usage;
    /** What that costs; null where a price is not known. */
    cost_usd?: number | null;
    /** The model that answered last. */
    model: string;
    /** How often a model was asked, not counting answers that were thrown away. */
    steps: number;
}
/** What was granted while the agent ran. */
export interface SessionAllowances {
    write_paths: Array<string>;
    /** Tools that may run commands without asking, each in these directories. */
    exec_dirs: Record<string, Array<string>>;
    /** Tools of MCP servers that may be called without asking, by server. */
    mcp?: Record<string, Array<string>>;
}
export interface SessionEntry {
    name: string;
    message_count: number;
    /** Seconds since 1970. */
    created_at: number;
    /** Seconds since 1970: the last message or change of settings. */
    updated_at: number;
    is_temp: boolean;
    /** `user`, or the agent that made it. */
    provenance: string;
    /** Null when no provider is configured. */
    model?: string | null;
    /** Lower case: `sandboxed`, `trusted`. */
    permission_level: string;
    cwd: string;
}
export interface Spread {
    count: number;
    /** All values together. */
    sum: number;
    /** Each counts also what the ones before it do. */
    buckets: Array<Bucket>;
}
export interface SummaryTokens {
    total: number;
    /** The model's window. */
    budget: number;
}
export interface TaskContext {
    /** Read for the model, at most 20, each within `current_directory`. */
    files?: Array<string>;
    /** Where the task works; the server's own when absent. */
    current_directory?: string | null;
    /** Libraries, for the model. */
    dependencies?: Array<string>;
    /** What it has to keep to, for the model. */
    constraints?: Array<unknown>;
}
export interface TaskMetadata {
    execution_time_ms: number;
    tokens_used: number;
    model: string;
    /** Why the model stopped, as `send` says it. */
    stop_reason: string;
    steps: number;
    usage: Usage;
    /** Null where a price is not known. */
    cost_usd?: number | null;
}
export interface TaskOptions {
    language?: string | null;
    framework?: string | null;
    style_guide?: string | null;
    /** Whether files may be changed; not when absent. */
    write?: boolean | null;
    stream?: boolean | null;
    /** From receipt; 30,000 when absent. */
    timeout_ms?: number | null;
    model?: string | null;
    /** Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes. */
    idempotency_key?: string | null;
}
/** What a task came to. Paths are relative to the directory it worked in. */
export interface TaskOutput {
    /** What stood in fences. */
    code: string;
    /** The rest of what was said. */
    explanation: string;
    /** All that was said, as it is streamed. */
    text: string;
    files_modified: Array<string>;
    files_created: Array<string>;
    files_deleted: Array<string>;
}
/** How far a task got. */
export interface TaskStanding {
    /** `pending`, `running`, `success`, `partial`, `failed`, `skipped` or `cancelled`. */
    status: string;
    output?: TaskOutput | null;
    /** Why it is not done. */
    error?: string | null;
    /** How often it was begun. */
    attempts: number;
    model?: string | null;
    tokens_used: number;
    /** Null where a price is not known. */
    cost_usd?: number | null;
}
export type TaskType = "code_generation" | "refactoring" | "analysis" | "testing";
export interface ToolCallEntry {
    id: string;
    name: string;
    arguments: unknown;
    /** True when the answer ended in the middle of it; it was not run. */
    cut?: boolean;
}
export interface ToolEntry {
    name: string;
    description: string;
    /** `look`, `write` (changes files), `command`, `agents`, or `mcp` (a tool of an MCP server). */
    kind: string;
    /** It is not switched off for this agent. */
    enabled: boolean;
    /** The agent's model is told of it: a call could be let through. */
    offered: boolean;
    /** Which rule stands in the way: `enabled`, `level` or `mcp`. */
    rule?: string | null;
    input_schema: unknown;
}
/** What is done with what needs leave, in one turn. */
export type TurnApprovals = "ask";
/** A turn that runs or waits. */
export interface TurnEntry {
    request_id: RequestId;
    /** `running` or `queued`. */
    status: string;
    /** What was said; empty where a turn goes on, and for `compact`. */
    content: string;
    source?: string | null;
    source_agent_id?: string | null;
    /** ISO 8601; of the one that runs. */
    started_at?: string | null;
    /** What it has said so far in all steps; at most 1 MiB, the end of it. */
    text?: string;
    /** Which model call it is at, from 1. */
    step?: number;
    /** Characters of what was said in this step: the `offset` of the next `delta`. */
    offset?: number;
    /** Tool calls without a result. */
    open_calls?: Array<ToolCallEntry>;
}
/** Tokens, counted alike for every provider. */
export interface Usage {
    /** Everything the model read, from a cache or not. */
    input: number;
    /** The part of `input` that came from the provider's cache. */
    cache_read: number;
    /** The part of `input` that was written to it. */
    cache_write: number;
    /** Everything the model wrote, thoughts included. */
    output: number;
    /** The part of `output` that was thought. */
    reasoning: number;
    /** Tokens of answers that were thrown away, beside the others. */
    discarded?: number | null;
    /** True when some of it is the server's own estimate. */
    estimated?: boolean;
}
export type UsageBy = "agent" | "model" | "day";
export interface UsageRow {
    /** The model, agent or day. */
    key: string;
    usage: Usage;
    cost_usd?: number | null;
    cost_unknown_calls: number;
    calls: number;
}
/** All that an agent's model calls used, as lists show it. */
export interface UsageTotals {
    /** Read and written, thrown-away answers included. */
    tokens: number;
    /** Of the calls whose price is known; null when none is. */
    cost_usd?: number | null;
    /** Calls whose price is not known. */
    cost_unknown_calls: number;
}
/** Members that are not known are passed over. */
export interface ValidateCodeOptions {
    /** Answers -32000 `TIMEOUT` when it takes longer; 30,000 when absent. */
    timeout_ms?: number | null;
}
/** What `watch_event` tells. */
export interface WatchEvent {
    watch_id: string;
    /** From 1, without gaps. */
    sequence: number;
    /** In the first: the id of the request that opened the watch, to the letter; null for a notification. */
    task_id?: unknown;
    /** Absent for what concerns the server as a whole. */
    agent_id?: string | null;
    /** The turn it belongs to. */
    request_id?: RequestId | null;
    /** ISO 8601. */
    at: string;
    event: WatchedEvent;
}
/** Clients ignore types that they do not know. */
export type WatchedEvent = 
/** How things stand. What follows joins it without a gap, and repeats nothing. */
{
    "type": "snapshot";
} & Snapshot
/** What a turn was asked, and by whom. */
 | {
    "type": "turn_queued";
    "content": string;
    "source"?: string | null;
    "source_agent_id"?: string | null;
    "position": number;
}
/** What a turn was asked, and by whom. */
 | {
    "type": "turn_started";
    "content": string;
    "source"?: string | null;
    "source_agent_id"?: string | null;
    "resumed"?: boolean;
    "model"?: string | null;
}
/** A piece of the answer. */
 | {
    "type": "delta";
} & Piece
/** A piece of what the model thinks. It is no part of the answer. */
 | {
    "type": "reasoning";
} & Piece
/** A message that was written down. */
 | {
    "type": "message";
    "index": number;
    "message": MessageEntry;
} | {
    "type": "tool_call";
} & ToolCallEntry
/** The call is judged, and run if it may be. */
 | {
    "type": "tool_started";
    "id": string;
}
/** A piece of what the call prints while it runs: at most ten a second, and 64 KiB in all. Only with `deltas`. */
 | {
    "type": "tool_output";
    "id": string;
    "text": string;
}
/** How far the call of a tool of an MCP server is, in the server's own numbers and words: at most four a second. */
 | {
    "type": "tool_progress";
    "id": string;
    "progress": number;
    "total"?: number | null;
    "message"?: string | null;
} | {
    "type": "tool_result";
    "id": string;
    "content": string;
    "failed": boolean;
    "duration_ms": number;
    "change"?: FileChange | null;
    "refused_by"?: string | null;
}
/** Also told to those who watch an ancestor of the agent that asks. */
 | {
    "type": "approval_requested";
    "approval": ApprovalEntry;
} | {
    "type": "approval_decided";
    "approval": ApprovalEntry;
}
/** The model's provider lets the turn wait. */
 | {
    "type": "waiting";
    "reason": string;
    "wait_ms"?: number | null;
}
/** Another model takes over for the rest of the turn. */
 | {
    "type": "fallback";
    "from": string;
    "to": string;
    "reason": string;
}
/** What one model call used. */
 | {
    "type": "usage";
} & Usage | {
    "type": "turn_ended";
    "status": string;
    "error"?: TurnFailure | null;
    "message_count": number;
    "duration_ms": number;
    "usage": Usage;
    "cost_usd"?: number | null;
}
/** The older part of the conversation was summarised. */
 | {
    "type": "compacted";
    "tokens_before": number;
    "tokens_after": number;
} | {
    "type": "agent_created";
    "agent": AgentEntry;
} | {
    "type": "agent_ended";
} | {
    "type": "agent_renamed";
    "to": string;
}
/** Its settings, or where it is. */
 | {
    "type": "agent_changed";
    "status"?: string | null;
    "model"?: string | null;
    "permission_level"?: string | null;
    "cwd"?: string | null;
}
/** It lies on disk alone; the next call takes it up again. */
 | {
    "type": "agent_left_memory";
}
/** The names that watchers gave, told to the administrator. */
 | {
    "type": "watchers";
    "watchers": Array<string>;
} | {
    "type": "server_stopping";
    "grace_ms": number;
}
/** The reader was too slow, and has missed something. The last event of its watch: watch again with `after`. */
 | {
    "type": "gap";
};
export interface Snapshot {
    agents: Array<WatchedAgent>;
    /** What waits for leave. */
    approvals: Array<ApprovalEntry>;
    /** The names that watchers gave. */
    watchers: Array<string>;
    /** A further `snapshot` with the rest follows: one has 500 agents at most. */
    more?: boolean;
}
export interface Piece {
    /** Which model call of the turn says it, from 1. */
    step: number;
    /** Where it begins in the text of the step, in characters (code points). */
    offset: number;
    text: string;
}
/** Why a turn failed, as the call that began it was told. */
export interface TurnFailure {
    code: number;
    message: string;
    data?: unknown;
}
export interface WatchedAgent {
    agent_id: string;
    is_temp: boolean;
    /** ISO 8601. */
    created_at: string;
    message_count: number;
    should_shutdown: boolean;
    parent_agent_id?: string | null;
    child_count: number;
    halted_at_iteration_limit: boolean;
    /** Null when no provider is configured. */
    model?: string | null;
    /** ISO 8601; null before the first turn. */
    last_action_at?: string | null;
    /** Upper case: `SANDBOXED`, `TRUSTED`. */
    permission_level: string;
    cwd: string;
    /** Null when it may write anywhere. */
    write_paths?: Array<string> | null;
    /**
     * `idle`, `running`, `waiting_provider` (its turn waits until a provider takes the next call), or `stored` (on disk,
     * not in memory); for those who watch, `elsewhere` where another process has it.
     */
    status: string;
    /** The turn that runs: a name for `cancel`. */
    running_request_id?: RequestId | null;
    /** How many turns wait. */
    queued?: number;
    /** What its model calls used. */
    usage: UsageTotals;
    /** The turn that runs, if one does, and those that wait, in their order. */
    turns: Array<TurnEntry>;
}
export interface CancelParams {
    request_id: RequestId;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface CancelResult {
    cancelled: boolean;
    request_id: RequestId;
    /** `not_found_or_completed` when nothing was cancelled. */
    reason?: string | null;
}
export interface CancelPlanParams {
    plan_id: string;
}
export interface CancelPlanResult {
    /** False when it does not run in this server. */
    cancelled: boolean;
}
export interface CloneSessionParams {
    src_session: string;
    /** Starts with `.` where `src_session` does, and only there. */
    dest_session: string;
    /**
     * The index of the last message that the copy keeps; all when absent. It must not lie between a tool call and its
     * results.
     */
    upto?: number | null;
}
export interface CloneSessionResult {
    cloned: boolean;
    src_session: string;
    dest_session: string;
}
export interface CompactParams {
    /** Compact even when the context is not near its limit; true when absent. */
    force?: boolean | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface CompactResult {
    compacted: boolean;
    tokens_before?: number | null;
    tokens_after?: number | null;
    tokens_saved?: number | null;
    /** Why nothing was compacted. */
    reason?: string | null;
}
export interface CreateAgentParams {
    /**
     * Name of the agent; generated when absent. A name that starts with `.` is temporary; `.` alone asks for a
     * generated temporary name.
     */
    agent_id?: string | null;
    /** `sandboxed` (default), `worker`, `trusted`, or one from the configuration. */
    preset?: string | null;
    /** Working directory; the parent's or the server's when absent. */
    cwd?: string | null;
    /** Where it may write without asking. */
    allowed_write_paths?: Array<string> | null;
    model?: string | null;
    /** What is asked of the model's thinking; as the configuration has it when absent. */
    reasoning?: ReasoningChoice | null;
    /** Replaces the layered system prompt. */
    system_prompt?: string | null;
    /** Tools to switch off. */
    disable_tools?: Array<string> | null;
    /**
     * Tools of MCP servers that it may use, by server, in place of what its preset has: `{"git": ["git_status"]}`. `*`
     * stands for all tools of a server, or alone for all servers. No more than its parent has.
     */
    mcp?: Record<string, Array<string>> | null;
    /** The agent it belongs to; it can never do more than that one. */
    parent_agent_id?: string | null;
    /**
     * What was said before, elsewhere: by turns, the first by the user and the last by the assistant, at most 10,000. For
     * temporary agents alone.
     */
    history?: Array<PastMessage> | null;
    /** Sent to the agent at once; not blank. */
    initial_message?: string | null;
    /** Answer only when the initial message was answered. */
    wait_for_initial_response?: boolean | null;
    /**
     * Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes. At
     * most 255 bytes.
     */
    idempotency_key?: string | null;
}
export interface CreateAgentResult {
    agent_id: string;
    url: string;
    /** With an initial message: the turn it started. */
    initial_request_id?: RequestId | null;
    /** `queued`, when the answer was not waited for. */
    initial_status?: string | null;
    /** The answer, when it was waited for. */
    response?: SendResult | null;
}
export interface CreateAgentTokenParams {
    agent_id: string;
}
export interface CreateAgentTokenResult {
    agent_id: string;
    token: string;
}
export interface CreateKeyParams {
    /** What requests call it in `auth.key_id`: 1 to 64 letters, digits, `.`, `_` and `-`. */
    name: string;
    /** The methods it is for: names, or beginnings of names with a `*` behind them; at most 100. All when absent. */
    methods?: Array<string> | null;
    /** Makes a key for these doors instead: a bearer token that is good there, across restarts, and acts as an agent. */
    doors?: Array<Door> | null;
    /**
     * Calls signed with it have the rights of this agent, and no more. The key ends with it, and when it is renamed. A key
     * for doors acts as this agent; when absent, as one that is made for it, `door-NAME`.
     */
    agent_id?: string | null;
    /** Preset of the agent that is made; the default one when absent. */
    preset?: string | null;
    /** Its working directory; the server's when absent. */
    cwd?: string | null;
    /** Days until it ends; 90 when absent. */
    expires_days?: number | null;
}
export interface CreateKeyResult {
    /** The secret. What signs takes its bytes as they stand here; of a key for doors it is the bearer token. */
    key: string;
    name: string;
    /** Absent when it is for all methods. */
    methods?: Array<string> | null;
    /** What it opens; absent when it is a key to sign with. */
    doors?: Array<Door> | null;
    agent_id?: string | null;
    created_at: string;
    expires_at: string;
    /** Whether signatures are looked at: `off`, `optional` or `required` (`auth.hmac.mode`). */
    mode: string;
}
export interface CreatePlanParams {
    /** At most 524,288 bytes, without NUL. */
    user_request: string;
    current_state?: CurrentState | null;
    constraints?: PlanConstraints | null;
    options?: PlanOptions | null;
}
export interface CreatePlanResult {
    plan: PlanEntry;
    metadata: PlanMetadata;
}
export interface DeleteSessionParams {
    session_name: string;
}
export interface DeleteSessionResult {
    /** False when there was no such session. */
    deleted: boolean;
    session_name: string;
}
export interface DestroyAgentParams {
    agent_id: string;
}
export interface DestroyAgentResult {
    /** False when there was no such agent. */
    success: boolean;
    agent_id: string;
    /** The agent and its descendants. */
    destroyed: Array<string>;
}
export interface ExecuteTaskParams {
    task_type: TaskType;
    /** At most 524,288 bytes, without NUL. */
    prompt: string;
    context?: TaskContext | null;
    options?: TaskOptions | null;
}
export interface ExecuteTaskResult {
    /** `success`, or `partial` when something remains undone. */
    status: string;
    /** What remains undone, and why. */
    reason?: string | null;
    output: TaskOutput;
    metadata: TaskMetadata;
}
export interface ExplainPermissionParams {
    tool: string;
    /** The tool's arguments; an empty object when absent. */
    arguments?: unknown;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface ExplainPermissionResult {
    allowed: boolean;
    /** The call would wait for somebody's leave. */
    needs_approval: boolean;
    /** Which rule refuses or asks: `known`, `schema`, `enabled`, `level`, `mcp`, `pin`, `target_agent`, `path`, `approval`. */
    rule?: string | null;
    reason?: string | null;
}
export interface GetAgentSummariesParams {
    /** Count the tokens of each agent that is in memory; false when absent. */
    include_tokens?: boolean | null;
    /** Changes nothing: what it asks for is always there. */
    include_context?: boolean | null;
}
export interface GetAgentSummariesResult {
    agents: Array<AgentSummary>;
}
export interface GetContextParams {
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface GetContextResult {
    message_count: number;
    /** Whether there is a system prompt. */
    system_prompt: boolean;
    halted_at_iteration_limit: boolean;
    last_iteration_count: number;
    max_tool_iterations: number;
    /** The turn that was cut off last and can be resumed, while no other runs. */
    interrupted_turn?: InterruptedTurn | null;
    /** The turn that runs, if one does, and those that wait, in their order. */
    turns: Array<TurnEntry>;
}
export interface GetContextStateParams {
}
export interface GetContextStateResult {
    context_version: number;
    /** As they were given, by `path`. */
    files: Array<Record<string, unknown>>;
    /** As they were given, by `name`. */
    dependencies: Array<Record<string, unknown>>;
    /** Values by their keys. */
    state: Record<string, unknown>;
}
export interface GetMessagesParams {
    /** Index of the first message, 0 when absent. With `from_end`: how many messages at the end to leave out. */
    offset?: number | null;
    /**
     * The last messages instead of the first, still oldest first; false when absent. The result's `offset` is the index
     * of the first of them.
     */
    from_end?: boolean | null;
    /** Most messages to return, 200 when absent. */
    limit?: number | null;
    /** Show what the model thought, too; false when absent. */
    include_reasoning?: boolean | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface GetMessagesResult {
    agent_id: string;
    total: number;
    offset: number;
    limit: number;
    messages: Array<MessageEntry>;
}
export interface GetMetricsParams {
}
export interface GetMetricsResult {
    /** All there are, those without a sample included. */
    metrics: Array<Metric>;
}
export interface GetModelParams {
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface GetModelResult {
    model: string;
    provider: string;
    /** What is asked of its thinking. */
    reasoning: ReasoningChoice;
}
export interface GetPermissionsParams {
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface GetPermissionsResult {
    /** Lower case: `sandboxed`, `trusted`, `yolo`. */
    permission_level: string;
    /** The highest that it may be given; absent where it has no ceiling. */
    ceiling_level?: string | null;
    preset: string;
    disabled_tools: Array<string>;
    policy: Policy;
    session_allowances: SessionAllowances;
    depth: number;
    parent_agent_id?: string | null;
    network: boolean;
    commands: boolean;
    /** Tools of MCP servers that it may use, by server; `*` for all. */
    mcp?: Record<string, Array<string>>;
    /** What holds the agent's commands within these permissions. */
    sandbox: string;
    /** What each of them may take of the machine, and what holds it to that. */
    limits: string;
}
export interface GetPlanParams {
    plan_id: string;
}
export interface GetPlanResult {
    plan: PlanEntry;
    /** What it was made for; empty where its caller brought it along. */
    user_request: string;
    /**
     * `created`, `running`, `interrupted` when the process that ran it is gone, `success`, `partial`, `failed` or
     * `cancelled`.
     */
    status: string;
    tasks: Record<string, TaskStanding>;
    created_at: string;
    updated_at: string;
    tokens_used: number;
    /** Null where a price is not known. */
    cost_usd?: number | null;
}
export interface GetSystemPromptParams {
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface GetSystemPromptResult {
    system_prompt: string;
    /** The most specific file it was read from; null when it was given or no file has a part in it. */
    system_prompt_path?: string | null;
}
export interface GetTokensParams {
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface GetTokensResult {
    system: number;
    tools: number;
    /** Of `tools`, those of MCP servers and for them. */
    mcp?: number;
    messages: number;
    total: number;
    /** The model's window. */
    budget: number;
    /** The part of the window that the context may fill before it is compacted; the whole of it with `compaction` off. */
    available: number;
    /** What is left of `available`. */
    remaining: number;
}
export interface GetUsageParams {
    /** All agents when absent, which only the administrator may ask for. */
    agent_id?: string | null;
    /** Its descendants too, those that are gone included; false when absent. */
    tree?: boolean | null;
    /** Rows by this, the dearest first. By `model` and `day`, agents that are gone are left out. */
    by?: UsageBy | null;
    /** Only since this moment, ISO 8601; agents that are gone are then left out. */
    since?: string | null;
}
export interface GetUsageResult {
    usage: Usage;
    /** Of the calls whose price is known; null when none is. */
    cost_usd?: number | null;
    /** Calls whose price is not known. */
    cost_unknown_calls: number;
    /** All calls. */
    calls: number;
    /** Where they were asked for, at most 1,000. */
    rows?: Array<UsageRow> | null;
}
export interface ListAgentsParams {
    /** Only those behind this agent: the last of the page before. */
    after?: string | null;
    /** Most agents to return, all when absent. */
    limit?: number | null;
}
export interface ListAgentsResult {
    agents: Array<AgentEntry>;
    /** With `after` or `limit`: whether there are more behind the last. */
    more?: boolean | null;
}
export interface ListApprovalsParams {
    /** Only this agent's. */
    agent_id?: string | null;
    /** Those that were decided too. */
    include_decided?: boolean | null;
}
export interface ListApprovalsResult {
    approvals: Array<ApprovalEntry>;
}
export interface ListKeysParams {
}
export interface ListKeysResult {
    /** By name. Those of the configuration are not among them. */
    keys: Array<KeyEntry>;
    /** Whether signatures are looked at: `off`, `optional` or `required` (`auth.hmac.mode`). */
    mode: string;
}
export interface ListModelsParams {
    /** Those of this provider alone, by its name in the configuration. */
    provider?: string | null;
    /** Also those that the providers have beside the configured ones, as far as they are known; false when absent. */
    all?: boolean | null;
    /** How many to leave out from the start, 0 when absent. */
    offset?: number | null;
    /** Most models to return, 100 when absent. */
    limit?: number | null;
}
export interface ListModelsResult {
    /** All that was asked for, on this page or not. */
    total: number;
    offset: number;
    limit: number;
    /** The name of the model that answers when none is named, listed here or not; null when there is none. */
    default?: string | null;
    models: Array<ModelEntry>;
}
export interface ListPlansParams {
    /** 100 when absent. */
    limit?: number | null;
    /** Only those behind this one, as the last page ended. */
    after?: string | null;
}
export interface ListPlansResult {
    plans: Array<ListedPlan>;
    /** There are more behind the last. */
    has_more: boolean;
}
export interface ListPresetsParams {
}
export interface ListPresetsResult {
    /** What an agent gets when none is named. */
    default: string;
    presets: Array<PresetEntry>;
}
export interface ListSessionsParams {
    /** How many to leave out from the start, 0 when absent. */
    offset?: number | null;
    /** Most sessions to return, 50 when absent. */
    limit?: number | null;
    include_temp?: boolean | null;
}
export interface ListSessionsResult {
    /** All that the caller may see. */
    total: number;
    offset: number;
    limit: number;
    sessions: Array<SessionEntry>;
}
export interface ListToolsParams {
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface ListToolsResult {
    tools: Array<ToolEntry>;
}
export interface LoadSessionParams {
    session_name: string;
    /** Name of the agent; the session's own when absent. One that starts with `.` is temporary. */
    agent_id?: string | null;
    /** Replaces the session's permissions. */
    preset?: string | null;
    /** Replaces the session's model. */
    model?: string | null;
}
export interface LoadSessionResult {
    restored: boolean;
    agent_id: string;
    message_count: number;
}
export interface McpConnectParams {
    /** One of those that `mcp_list_servers` lists. */
    server?: string | null;
    /**
     * Instead: the entry of a server as it stands in `mcp_servers`, with its `name`. Values of `env` and `headers` are
     * never returned, and not kept over a restart unless they name variables (`${TOKEN}`).
     */
    config?: Record<string, unknown> | null;
    /**
     * With `config`: `agent` when absent. `client` is for what a client of the agent brings along: it is not kept, and has
     * no network.
     */
    source?: McpSource | null;
    /** False: the process is this agent's own, though the server's entry says otherwise. Absent: as the entry says. */
    shared?: boolean | null;
    /** How long to wait until it is ready; 30000 when absent. */
    wait_ms?: number | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpConnectResult {
    /** False when it was not ready in time; it goes on starting. */
    connected: boolean;
    server: string;
    state: string;
    /** Of MCP, as agreed with the server. */
    protocol_version?: string | null;
    /** What the agent is offered, as its model calls it. */
    tools: Array<string>;
}
export interface McpDisconnectParams {
    server: string;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpDisconnectResult {
    /** False when there is no such server, or the agent did not use it. */
    disconnected: boolean;
    server: string;
}
export interface McpGetPromptParams {
    server: string;
    name: string;
    arguments?: Record<string, unknown> | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpGetPromptResult {
    description?: string | null;
    /** In MCP's shape: each has a `role` and its `content`. */
    messages: Array<unknown>;
}
export interface McpListServersParams {
    /** With the names of the tools. */
    include_tools?: boolean | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpListServersResult {
    servers: Array<McpServerEntry>;
}
export interface McpPromptsParams {
    server?: string | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpPromptsResult {
    /** In MCP's shape (`name`, `title`, `description`, `arguments`), each with its `server`; at most 1,000 of a server. */
    prompts: Array<Record<string, unknown>>;
}
export interface McpReadResourceParams {
    server: string;
    uri: string;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpReadResourceResult {
    /** In MCP's shape: each has `uri`, and `text` or `blob` (base64). */
    contents: Array<unknown>;
}
export interface McpResourcesParams {
    server?: string | null;
    /** Of `next_cursor`, for the next page of that server. */
    cursor?: string | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpResourcesResult {
    /** In MCP's shape (`uri`, `name`, `title`, `description`, `mimeType`, `size`), each with its `server`. */
    resources: Array<Record<string, unknown>>;
    /** There are more, of the server that was named. */
    next_cursor?: string | null;
}
export interface McpReviewParams {
    server: string;
    accept: McpAccept;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpReviewResult {
    /** Those that had waited for it. */
    accepted: Array<string>;
}
export interface McpStatusParams {
    /** Only this one. */
    server?: string | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface McpStatusResult {
    servers: Array<McpServerStatus>;
}
export interface MemoryAddParams {
    /** At most 65,536 bytes. */
    content: string;
    /** Who told it; `rpc` when absent. */
    source?: string | null;
    /** More than 0 and at most 36,500; it stays when absent. */
    expires_days?: number | null;
    /** People and things it is about, at most 32. */
    subjects?: Array<string> | null;
    /** For all of the chat; needs `chat_id`. */
    shared?: boolean | null;
    /** Nothing when absent, null or empty, as `chat_id`. */
    user_id?: string | null;
    chat_id?: string | null;
    /**
     * Signed by the host; says who calls, in place of `user_id` and `chat_id`, in this call and in those that follow on
     * the connection.
     */
    context_token?: string | null;
}
export interface MemoryAddResult {
    id: string;
    content: string;
    source: string;
    created_at: string;
    expires_at?: string | null;
    subjects: Array<string>;
    shared: boolean;
}
export interface MemoryDeleteParams {
    /** The whole id, or the beginning of it: at least 8 digits that no other memory's id begins with. */
    memory_id: string;
    user_id?: string | null;
    chat_id?: string | null;
    context_token?: string | null;
}
export interface MemoryDeleteResult {
    /** False when the caller sees no such memory. */
    deleted: boolean;
}
export interface MemoryListParams {
    /** 20 when absent. */
    limit?: number | null;
    /** Shows what expired within the last day as well. */
    include_expired?: boolean | null;
    user_id?: string | null;
    chat_id?: string | null;
    context_token?: string | null;
}
export type MemoryListResult = Array<ListedMemory>;
export interface MemorySearchParams {
    /** At most 65,536 bytes. */
    query: string;
    /** 10 when absent. */
    limit?: number | null;
    user_id?: string | null;
    chat_id?: string | null;
    context_token?: string | null;
}
export type MemorySearchResult = Array<FoundMemory>;
export interface RenameSessionParams {
    old_name: string;
    new_name: string;
}
export interface RenameSessionResult {
    renamed: boolean;
    old_name: string;
    new_name: string;
}
export interface RespondApprovalParams {
    approval_id: string;
    decision: ApprovalDecision;
    /** With `deny` only: what the model is told beside it. At most 2,000 characters, and not blank. */
    message?: string | null;
    /** With `accept` only: what stands in the form. What is left out of it has the default that its schema gives. */
    content?: Record<string, unknown> | null;
    /**
     * With `allow_session` only: what is allowed; `tool` when absent. `server` is for approvals whose `grant` is a tool of
     * an MCP server.
     */
    scope?: ApprovalScope | null;
}
export interface RespondApprovalResult {
    approval: ApprovalEntry;
}
export interface ResumeTurnParams {
    /** The turn that is expected to be unfinished, as `get_context` names it. Another is not resumed. */
    request_id?: RequestId | null;
    stream?: boolean | null;
    /** JSON Schema of the answer, as for `send`: it is not kept with the turn. */
    response_schema?: Record<string, unknown> | null;
    /** Cancels the turn and answers -32000 when it takes longer. */
    timeout_ms?: number | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface RevokeKeyParams {
    name: string;
}
export interface RevokeKeyResult {
    /** False when there was no key of this name. */
    revoked: boolean;
}
export interface RpcDiscoverParams {
}
export type RpcDiscoverResult = unknown;
export interface RpcVersionParams {
}
export interface RpcVersionResult {
    name: string;
    version: string;
    /** Protocol revision. */
    protocol: string;
    features: Array<string>;
    /** The model an agent gets when none is named; null when no provider is configured. */
    default_model?: string | null;
    /** The provider that model belongs to. */
    default_provider?: string | null;
}
export interface RunPlanParams {
    /** This or `plan_id`. */
    plan?: PlanEntry | null;
    plan_id?: string | null;
    /** For every task, as `execute_task` has it. */
    context?: TaskContext | null;
    options?: RunOptions | null;
}
export interface RunPlanResult {
    plan_id: string;
    /** `success`, `partial` when some of it is done, `failed` when nothing is, or `cancelled`. */
    status: string;
    tasks: Record<string, TaskStanding>;
    /** All that its tasks used, in this run and before; the time is this run's. */
    metadata: PlanMetadata;
}
export interface SaveSessionParams {
    agent_id: string;
    session_name: string;
}
export interface SaveSessionResult {
    saved: boolean;
    session_name: string;
    /** The agent's name from here on: another one only when it was temporary. */
    agent_id: string;
}
export interface SendParams {
    /** What is said: a text that is not blank, or parts, with at most 20 images and files among them. */
    content: Content;
    /** Names the turn for `cancel`; generated when absent. Refused while a turn of this name is in flight. */
    request_id?: RequestId | null;
    /** Where the message comes from, for the history. */
    source?: string | null;
    source_agent_id?: string | null;
    stream?: boolean | null;
    /** JSON Schema of the answer: `content` is then JSON that satisfies it. */
    response_schema?: Record<string, unknown> | null;
    /** The most tokens of one answer. One that is cut by it is answered as it is, with the stop reason `max_tokens`. */
    max_output_tokens?: number | null;
    /** Cancels the turn and answers -32000 when it takes longer. */
    timeout_ms?: number | null;
    /**
     * Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes. At
     * most 255 bytes. With it, who hangs up does not cancel the turn.
     */
    idempotency_key?: string | null;
    /**
     * `ask`: somebody is there who answers `list_approvals`, so what needs leave is asked for whatever
     * `permissions.approvals` says, in this turn and in the turns of other agents that it waits for. Administrator only,
     * with `stream` and without `idempotency_key`: who hangs up takes the turn along.
     */
    approvals?: TurnApprovals | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface ServerInfoParams {
}
export interface ServerInfoResult {
    name: string;
    version: string;
    pid: number;
    home: string;
    /** Where agents work that were given no directory. */
    cwd: string;
    /** Null where it serves no HTTP. */
    url?: string | null;
    /** Null where it has no socket. */
    socket?: string | null;
    /** ISO 8601. */
    started_at: string;
    /** What is done with what needs somebody's leave: `deny`, `ask` or `auto`. */
    approvals: string;
    /** Agents in memory. */
    agents: number;
    /** Turns that run or wait. */
    turns: number;
    /** Those of them that run. */
    turns_running: number;
    /** How many watch. */
    watches: number;
    /** The names that watchers gave. */
    watchers: Array<string>;
}
export interface SetCwdParams {
    /** An existing directory; a relative path starts at the agent's present one. */
    cwd: string;
    /**
     * Existing directories beside that, at most 64, which the agent may read and, where it writes in its own without
     * asking, write. They take the place of those that it had; absent: it keeps them. A relative path starts at `cwd`.
     */
    additional_directories?: Array<string> | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface SetCwdResult {
    /** The directory without links and `..`. */
    cwd: string;
}
export interface SetModelParams {
    /** An alias, or `provider/model-id`. */
    model: string;
    /** What is asked of its thinking; as the configuration has it when absent. */
    reasoning?: ReasoningChoice | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface SetModelResult {
    updated: boolean;
    model: string;
}
export interface SetPermissionsParams {
    preset?: string | null;
    disable_tools?: Array<string> | null;
    enable_tools?: Array<string> | null;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface SetPermissionsResult {
    updated: boolean;
    permission_level: string;
    preset: string;
}
export interface SetSystemPromptParams {
    system_prompt: string;
    /** At server scope: the agent that is called; `main` when absent. */
    agent_id?: string;
}
export interface SetSystemPromptResult {
    updated: boolean;
}
export interface ShutdownParams {
    /** At server scope: the agent that is marked; the server stops when absent. */
    agent_id?: string;
}
export interface ShutdownResult {
    success: boolean;
}
export interface ShutdownServerParams {
}
export interface ShutdownServerResult {
    success: boolean;
    message: string;
}
export interface UnloadAgentParams {
    agent_id: string;
}
export interface UnloadAgentResult {
    /** Those that were in memory and are not any more. */
    unloaded: Array<string>;
}
export interface UnwatchParams {
    watch_id: string;
}
export interface UnwatchResult {
    /** False when there is no such watch, or not for this caller. */
    ended: boolean;
}
export interface UpdateContextParams {
    /**
     * `add` puts an entry, in place of one with the same key; `modify` needs that one to be there, and is a merge patch
     * (RFC 7396) of state; `remove` changes nothing where there is none.
     */
    action: ContextAction;
    context_type: ContextType;
    /**
     * Named by `path` (a file, relative to the directory in which tasks work), `name` (a dependency) or `key` (state,
     * with its `value`). What else a file or a dependency has is kept with it. At most 65,536 bytes an entry, 1,000
     * entries and 1,048,576 bytes in all, 32 levels deep.
     */
    data: Record<string, unknown>;
    /** Changes nothing and is refused unless the context has this version. */
    if_version?: number | null;
}
export interface UpdateContextResult {
    /** `success`. */
    status: string;
    /** False when the context was so already. */
    changed: boolean;
    /** Grows by one with each change, and never otherwise. */
    context_version: number;
}
export interface ValidateCodeParams {
    /** At most 2,097,152 bytes, without NUL. */
    code: string;
    /**
     * `javascript`, `typescript`, `jsx`, `tsx`, `python`, `rust`, `go`, `java`, `c`, `cpp`, `bash`, `json`, `yaml`,
     * `toml`, `html`, `css`, `sql`, or another name of one of these, such as `js` or `c++`.
     */
    language: string;
    /**
     * Rules of the language's linter by their own names, at most 256 of at most 128 bytes, or `recommended`; the syntax
     * alone when absent.
     */
    rules?: Array<string> | null;
    options?: ValidateCodeOptions | null;
}
export interface ValidateCodeResult {
    /** Whether there is no error. */
    valid: boolean;
    /** The language by the first of its names. */
    language: string;
    /** In the order of the code, at most 1,000. */
    diagnostics: Array<CodeDiagnostic>;
    /** Those that are not among `diagnostics` included, as in `warning_count`. */
    error_count: number;
    warning_count: number;
    /** `syntax`, and the rules that were asked for and looked for. When the syntax is wrong, no other rule is applied. */
    rules_applied: Array<string>;
    /** What was asked for and cannot be checked in this language. */
    rules_unsupported: Array<string>;
}
export interface WatchParams {
    /** These; all that the caller may read when absent, later ones included. */
    agents?: Array<string> | null;
    /** With `agents`: those that descend from them, too, later ones included; false when absent. */
    descendants?: boolean | null;
    /** Text, thoughts and what commands print as they come; true when absent. False: states and whole messages only. */
    deltas?: boolean | null;
    /**
     * For an agent, the index of the last message that the client has, -1 for none: what it has missed is sent after
     * `snapshot`, before anything else of it.
     */
    after?: Record<string, number> | null;
    /**
     * This client shows approvals to a person, which is the administrator's to say; false when absent. While one is
     * there, a server with `approvals: auto` asks.
     */
    approver?: boolean | null;
    /** What other watchers see, as `pts/3`; at most 64 characters, none of them a control character. */
    name?: string | null;
}
export interface WatchResult {
    watch_id: string;
    /**
     * Why it ended: `unwatched`, `gap` (the reader was too slow, and has missed something: watch again with `after`),
     * `gone` (nothing is left that it may see), `stopping`.
     */
    reason: string;
    /** How many notifications were sent. */
    events: number;
}
/** Every method of agent scope, by its name. */
export interface AgentTable {
    "cancel": {
        params: CancelParams;
        result: CancelResult;
    };
    "compact": {
        params: CompactParams;
        result: CompactResult;
    };
    "explain_permission": {
        params: ExplainPermissionParams;
        result: ExplainPermissionResult;
    };
    "get_context": {
        params: GetContextParams;
        result: GetContextResult;
    };
    "get_messages": {
        params: GetMessagesParams;
        result: GetMessagesResult;
    };
    "get_model": {
        params: GetModelParams;
        result: GetModelResult;
    };
    "get_permissions": {
        params: GetPermissionsParams;
        result: GetPermissionsResult;
    };
    "get_system_prompt": {
        params: GetSystemPromptParams;
        result: GetSystemPromptResult;
    };
    "get_tokens": {
        params: GetTokensParams;
        result: GetTokensResult;
    };
    "list_tools": {
        params: ListToolsParams;
        result: ListToolsResult;
    };
    "mcp_connect": {
        params: McpConnectParams;
        result: McpConnectResult;
    };
    "mcp_disconnect": {
        params: McpDisconnectParams;
        result: McpDisconnectResult;
    };
    "mcp_get_prompt": {
        params: McpGetPromptParams;
        result: McpGetPromptResult;
    };
    "mcp_list_servers": {
        params: McpListServersParams;
        result: McpListServersResult;
    };
    "mcp_prompts": {
        params: McpPromptsParams;
        result: McpPromptsResult;
    };
    "mcp_read_resource": {
        params: McpReadResourceParams;
        result: McpReadResourceResult;
    };
    "mcp_resources": {
        params: McpResourcesParams;
        result: McpResourcesResult;
    };
    "mcp_review": {
        params: McpReviewParams;
        result: McpReviewResult;
    };
    "mcp_status": {
        params: McpStatusParams;
        result: McpStatusResult;
    };
    "resume_turn": {
        params: ResumeTurnParams;
        result: SendResult;
    };
    "send": {
        params: SendParams;
        result: SendResult;
    };
    "set_cwd": {
        params: SetCwdParams;
        result: SetCwdResult;
    };
    "set_model": {
        params: SetModelParams;
        result: SetModelResult;
    };
    "set_permissions": {
        params: SetPermissionsParams;
        result: SetPermissionsResult;
    };
    "set_system_prompt": {
        params: SetSystemPromptParams;
        result: SetSystemPromptResult;
    };
    "shutdown": {
        params: ShutdownParams;
        result: ShutdownResult;
    };
}
/** Every method of server scope, by its name. */
export interface ServerTable {
    "cancel_plan": {
        params: CancelPlanParams;
        result: CancelPlanResult;
    };
    "clone_session": {
        params: CloneSessionParams;
        result: CloneSessionResult;
    };
    "create_agent": {
        params: CreateAgentParams;
        result: CreateAgentResult;
    };
    "create_agent_token": {
        params: CreateAgentTokenParams;
        result: CreateAgentTokenResult;
    };
    "create_key": {
        params: CreateKeyParams;
        result: CreateKeyResult;
    };
    "create_plan": {
        params: CreatePlanParams;
        result: CreatePlanResult;
    };
    "delete_session": {
        params: DeleteSessionParams;
        result: DeleteSessionResult;
    };
    "destroy_agent": {
        params: DestroyAgentParams;
        result: DestroyAgentResult;
    };
    "execute_task": {
        params: ExecuteTaskParams;
        result: ExecuteTaskResult;
    };
    "get_agent_summaries": {
        params: GetAgentSummariesParams;
        result: GetAgentSummariesResult;
    };
    "get_context_state": {
        params: GetContextStateParams;
        result: GetContextStateResult;
    };
    "get_metrics": {
        params: GetMetricsParams;
        result: GetMetricsResult;
    };
    "get_plan": {
        params: GetPlanParams;
        result: GetPlanResult;
    };
    "get_usage": {
        params: GetUsageParams;
        result: GetUsageResult;
    };
    "list_agents": {
        params: ListAgentsParams;
        result: ListAgentsResult;
    };
    "list_approvals": {
        params: ListApprovalsParams;
        result: ListApprovalsResult;
    };
    "list_keys": {
        params: ListKeysParams;
        result: ListKeysResult;
    };
    "list_models": {
        params: ListModelsParams;
        result: ListModelsResult;
    };
    "list_plans": {
        params: ListPlansParams;
        result: ListPlansResult;
    };
    "list_presets": {
        params: ListPresetsParams;
        result: ListPresetsResult;
    };
    "list_sessions": {
        params: ListSessionsParams;
        result: ListSessionsResult;
    };
    "load_session": {
        params: LoadSessionParams;
        result: LoadSessionResult;
    };
    "memory.add": {
        params: MemoryAddParams;
        result: MemoryAddResult;
    };
    "memory.delete": {
        params: MemoryDeleteParams;
        result: MemoryDeleteResult;
    };
    "memory.list": {
        params: MemoryListParams;
        result: MemoryListResult;
    };
    "memory.search": {
        params: MemorySearchParams;
        result: MemorySearchResult;
    };
    "rename_session": {
        params: RenameSessionParams;
        result: RenameSessionResult;
    };
    "respond_approval": {
        params: RespondApprovalParams;
        result: RespondApprovalResult;
    };
    "revoke_key": {
        params: RevokeKeyParams;
        result: RevokeKeyResult;
    };
    "rpc.discover": {
        params: RpcDiscoverParams;
        result: RpcDiscoverResult;
    };
    "rpc.version": {
        params: RpcVersionParams;
        result: RpcVersionResult;
    };
    "run_plan": {
        params: RunPlanParams;
        result: RunPlanResult;
    };
    "save_session": {
        params: SaveSessionParams;
        result: SaveSessionResult;
    };
    "server_info": {
        params: ServerInfoParams;
        result: ServerInfoResult;
    };
    "shutdown_server": {
        params: ShutdownServerParams;
        result: ShutdownServerResult;
    };
    "unload_agent": {
        params: UnloadAgentParams;
        result: UnloadAgentResult;
    };
    "unwatch": {
        params: UnwatchParams;
        result: UnwatchResult;
    };
    "update_context": {
        params: UpdateContextParams;
        result: UpdateContextResult;
    };
    "validate_code": {
        params: ValidateCodeParams;
        result: ValidateCodeResult;
    };
    "watch": {
        params: WatchParams;
        result: WatchResult;
    };
}
/** The methods that can stream, and whether `stream` stands in their `params` or in the `options` there. */
export declare const STREAM_MEMBER: {
    readonly create_plan: "options";
    readonly execute_task: "options";
    readonly resume_turn: "params";
    readonly run_plan: "options";
    readonly send: "params";
};
export type StreamingMethod = keyof typeof STREAM_MEMBER;
/** The methods of agent scope. */
export declare abstract class AgentMethods<Bound extends string> extends Caller<Bound> {
    /** Summarises the older part of the conversation so that the context gets shorter. The history itself is kept. */
    compact(params?: Unbound<CompactParams, Bound>, options?: CallOptions): Promise<CompactResult>;
    /** Says whether a tool call would be let through, without making it, and if not which rule refuses it. */
    explainPermission(params: Unbound<ExplainPermissionParams, Bound>, options?: CallOptions): Promise<ExplainPermissionResult>;
    /** Returns the state of the agent's context. */
    getContext(params?: Unbound<GetContextParams, Bound>, options?: CallOptions): Promise<GetContextResult>;
    /**
     * Returns a page of the conversation, oldest first. It ends before its `limit` where its messages would be larger
     * than 4 MiB together, but holds one at least: the next page begins at `offset` and the number of messages on this.
     * With `from_end` it begins later for the same reason, and holds the last one.
     */
    getMessages(params?: Unbound<GetMessagesParams, Bound>, options?: CallOptions): Promise<GetMessagesResult>;
    /** Returns the model that the agent's next turn asks. */
    getModel(params?: Unbound<GetModelParams, Bound>, options?: CallOptions): Promise<GetModelResult>;
    /** Returns what the agent may do, what was granted to it, and how its commands are confined. */
    getPermissions(params?: Unbound<GetPermissionsParams, Bound>, options?: CallOptions): Promise<GetPermissionsResult>;
    /** Returns the prompt that the agent's next turn begins with. */
    getSystemPrompt(params?: Unbound<GetSystemPromptParams, Bound>, options?: CallOptions): Promise<GetSystemPromptResult>;
    /** Counts the tokens of the agent's context. */
    getTokens(params?: Unbound<GetTokensParams, Bound>, options?: CallOptions): Promise<GetTokensResult>;
    /** Lists the tools of this server, and of each whether the agent may have any use of it. */
    listTools(params?: Unbound<ListToolsParams, Bound>, options?: CallOptions): Promise<ListToolsResult>;
    /**
     * Starts an MCP server that the agent may use, unless it runs, and waits until it is ready. Allowed to the
     * administrator and to the agent's ancestors. A server starts by itself with the first call of one of its tools.
     *
     * With `config`, which only the administrator may give, the agent is connected to a server that is in no configuration
     * and is its own from then on.
     */
    mcpConnect(params?: Unbound<McpConnectParams, Bound>, options?: CallOptions): Promise<McpConnectResult>;
    /**
     * Says that the agent has no more use for an MCP server, which ends with the last agent that used it, with all that
     * it started. It starts again when it is needed; one that the agent was connected to with `config` is gone. Allowed to the administrator and to the agent's ancestors.
     */
    mcpDisconnect(params: Unbound<McpDisconnectParams, Bound>, options?: CallOptions): Promise<McpDisconnectResult>;
    /** Returns a prompt of an MCP server, filled in. Allowed to the administrator and to the agent's ancestors. */
    mcpGetPrompt(params: Unbound<McpGetPromptParams, Bound>, options?: CallOptions): Promise<McpGetPromptResult>;
    /**
     * Lists the MCP servers of the configuration and those that the agent was connected to alone, and of each whether the
     * agent may use any of its tools. An agent is told of those that it may use.
     */
    mcpListServers(params?: Unbound<McpListServersParams, Bound>, options?: CallOptions): Promise<McpListServersResult>;
    /**
     * Lists the prompts of an MCP server, which is started if it does not run; without one, of all that run. Allowed to the
     * administrator and to the agent's ancestors.
     */
    mcpPrompts(params?: Unbound<McpPromptsParams, Bound>, options?: CallOptions): Promise<McpPromptsResult>;
    /**
     * Returns what a resource of an MCP server holds. Allowed to the administrator and to the agent's ancestors; the agent
     * has the tool `mcp_read`.
     */
    mcpReadResource(params: Unbound<McpReadResourceParams, Bound>, options?: CallOptions): Promise<McpReadResourceResult>;
    /**
     * Lists the resources of an MCP server, which is started if it does not run; without one, the first page of each that
     * runs. Allowed to the administrator and to the agent's ancestors.
     */
    mcpResources(params?: Unbound<McpResourcesParams, Bound>, options?: CallOptions): Promise<McpResourcesResult>;
    /**
     * Accepts tools of an MCP server as they are now: those that `mcp_status` shows as quarantined, because they are new or
     * say something else of themselves than when they were first listed. Only the administrator may.
     */
    mcpReview(params: Unbound<McpReviewParams, Bound>, options?: CallOptions): Promise<McpReviewResult>;
    /** Returns how MCP servers stand: one, or all that `mcp_list_servers` lists. */
    mcpStatus(params?: Unbound<McpStatusParams, Bound>, options?: CallOptions): Promise<McpStatusResult>;
    /**
     * Goes on with the turn that was cut off last, by a restart, a cancel, its iteration limit or a provider that
     * failed, from its last finished step. A tool call whose effect is not known is not run again; the model is told
     * so. Answers as `send`.
     */
    resumeTurn(params?: Unbound<ResumeTurnParams, Bound>, options?: CallOptions): Promise<SendResult>;
    /**
     * Lets the agent work in another directory. Where it may read and write follows, and so does its prompt. Refused
     * outside its ceiling, and to the agent itself outside of what it may already use.
     */
    setCwd(params: Unbound<SetCwdParams, Bound>, options?: CallOptions): Promise<SetCwdResult>;
    /**
     * Gives the agent another model, from its next turn on. One whose window is too small for the conversation is
     * refused.
     */
    setModel(params: Unbound<SetModelParams, Bound>, options?: CallOptions): Promise<SetModelResult>;
    /** Changes what the agent may do, never above its ceiling. Takes back what was granted before. */
    setPermissions(params?: Unbound<SetPermissionsParams, Bound>, options?: CallOptions): Promise<SetPermissionsResult>;
    /** Replaces the agent's system prompt, from its next turn on. */
    setSystemPrompt(params: Unbound<SetSystemPromptParams, Bound>, options?: CallOptions): Promise<SetSystemPromptResult>;
    /**
     * Marks the agent as done; when the administrator has marked the last of all agents, the server stops. At server
     * scope without `agent_id` it stops the server, which is the administrator's to do.
     */
    shutdown(params?: Unbound<ShutdownParams, Bound>, options?: CallOptions): Promise<ShutdownResult>;
}
/** The methods of server scope. */
export declare abstract class ServerMethods extends AgentMethods<never> {
    /** Ends the run of a plan: what runs is cancelled, and what is done stays done. */
    cancelPlan(params: CancelPlanParams, options?: CallOptions): Promise<CancelPlanResult>;
    /**
     * Makes a saved copy of a session: messages, permissions, ceiling, grants, model, directory and prompt. The two
     * share their past and go on apart. Of a temporary agent it makes another temporary agent.
     */
    cloneSession(params: CloneSessionParams, options?: CallOptions): Promise<CloneSessionResult>;
    /** Makes an agent. It is on disk when this answers, unless its name starts with `.` (temporary). */
    createAgent(params?: CreateAgentParams, options?: CallOptions): Promise<CreateAgentResult>;
    /**
     * Returns a token that can act only as this agent, for a program that works on the agent's behalf. It is valid
     * until the server stops or the agent is destroyed.
     */
    createAgentToken(params: CreateAgentTokenParams, options?: CallOptions): Promise<CreateAgentTokenResult>;
    /**
     * Makes a key for signing requests (`auth`), which may be for some methods or for one agent alone. Its secret is
     * told here and never again. The administrator's alone.
     */
    createKey(params: CreateKeyParams, options?: CallOptions): Promise<CreateKeyResult>;
    /**
     * Asks the planner for a plan, which is kept for 30 days. What it answers is held to the rules of a plan, and asked for
     * again at most twice; one that breaks a rule even then is -32000 with the type `PARSE_ERROR`.
     */
    createPlan(params: CreatePlanParams, options?: CallOptions): Promise<CreatePlanResult>;
    /**
     * Removes a session for good. An agent that works on it ends, and its descendants with it; copies keep what they
     * share with it.
     */
    deleteSession(params: DeleteSessionParams, options?: CallOptions): Promise<DeleteSessionResult>;
    /** Ends an agent and its descendants for good. Allowed to the agent itself, its ancestors and the administrator. */
    destroyAgent(params: DestroyAgentParams, options?: CallOptions): Promise<DestroyAgentResult>;
    /**
     * Has a temporary agent carry out a task in a directory, beyond which it sees nothing and in which it changes files
     * only with `options.write`. Which files it changed is what differs on disk. With `options.stream` what it says
     * arrives in pieces before the response. Takes at most 30 s unless `options.timeout_ms` says otherwise.
     */
    executeTask(params: ExecuteTaskParams, options?: CallOptions): Promise<ExecuteTaskResult>;
    /** Returns a short account of each agent the caller may see. */
    getAgentSummaries(params?: GetAgentSummariesParams, options?: CallOptions): Promise<GetAgentSummariesResult>;
    /** Returns the context that planners and executors are given, all of one version. The administrator's alone. */
    getContextState(params?: GetContextStateParams, options?: CallOptions): Promise<GetContextStateResult>;
    /**
     * Returns what the server has counted and measured since it started: the figures that it also serves to Prometheus. For
     * the administrator.
     */
    getMetrics(params?: GetMetricsParams, options?: CallOptions): Promise<GetMetricsResult>;
    /** A plan, and how far it got. */
    getPlan(params: GetPlanParams, options?: CallOptions): Promise<GetPlanResult>;
    /** Returns what model calls used and cost: of one agent, of its whole tree, or (to the administrator) of all agents. */
    getUsage(params?: GetUsageParams, options?: CallOptions): Promise<GetUsageResult>;
    /**
     * Lists the agents the caller may see, those of earlier runs included: permanent ones in the order in which they
     * were made, then temporary ones.
     */
    listAgents(params?: ListAgentsParams, options?: CallOptions): Promise<ListAgentsResult>;
    /** Lists what waits for a person's leave, oldest first. */
    listApprovals(params?: ListApprovalsParams, options?: CallOptions): Promise<ListApprovalsResult>;
    /** Returns the keys for signing, without their secrets. The administrator's alone. */
    listKeys(params?: ListKeysParams, options?: CallOptions): Promise<ListKeysResult>;
    /**
     * Lists the models that agents can have, those that the configuration names first, and says of each figure where it
     * comes from. A model that is not listed can be asked for all the same, as `provider/id`.
     */
    listModels(params?: ListModelsParams, options?: CallOptions): Promise<ListModelsResult>;
    /** Plans, those touched last first. */
    listPlans(params?: ListPlansParams, options?: CallOptions): Promise<ListPlansResult>;
    /** Lists the presets that agents can be given. */
    listPresets(params?: ListPresetsParams, options?: CallOptions): Promise<ListPresetsResult>;
    /**
     * Lists sessions, the most recently changed first: every permanent agent and every saved session that the caller
     * may see. With `include_temp` the live temporary agents come before them.
     */
    listSessions(params?: ListSessionsParams, options?: CallOptions): Promise<ListSessionsResult>;
    /**
     * Makes an agent of a session, with all it had. Under another name than the session's the agent is a copy and the
     * session stays. Refused when an agent of that name is live; a preset above the session's ceiling is refused.
     */
    loadSession(params: LoadSessionParams, options?: CallOptions): Promise<LoadSessionResult>;
    /**
     * Remembers something: for a chat (`shared`), for a user, or for everybody when neither is named. It is on disk when
     * this answers. The same text in the same scope is renewed instead of kept twice; what it contradicts (the same
     * subject, nearly the same words) is hidden.
     */
    memoryAdd(params: MemoryAddParams, options?: CallOptions): Promise<MemoryAddResult>;
    /** Removes a memory that the caller sees, and what it took the place of. */
    memoryDelete(params: MemoryDeleteParams, options?: CallOptions): Promise<MemoryDeleteResult>;
    /**
     * Lists what is the user's, the chat's, and everybody's, the newest first; fewer than asked for when more would not
     * fit into an answer.
     */
    memoryList(params?: MemoryListParams, options?: CallOptions): Promise<MemoryListResult>;
    /** Finds what has to do with a query, the best first: what is the user's, the chat's, and everybody's. */
    memorySearch(params: MemorySearchParams, options?: CallOptions): Promise<MemorySearchResult>;
    /** Gives a session another name. A live agent follows it, running turns included; tokens made for the old name end. */
    renameSession(params: RenameSessionParams, options?: CallOptions): Promise<RenameSessionResult>;
    /**
     * Answers an approval. Allowed to the administrator and to the agent's ancestors, not to the agent itself. A request
     * for leave is answered by `allow_once`, `allow_session` or `deny`, a question of an MCP server by `accept`, `decline`
     * or `cancel`.
     */
    respondApproval(params: RespondApprovalParams, options?: CallOptions): Promise<RespondApprovalResult>;
    /**
     * Ends a key: what is signed with it is refused from now on, on connections that are open too. The
     * administrator's alone.
     */
    revokeKey(params: RevokeKeyParams, options?: CallOptions): Promise<RevokeKeyResult>;
    /** Returns the OpenRPC document of this interface. */
    rpcDiscover(params?: RpcDiscoverParams, options?: CallOptions): Promise<RpcDiscoverResult>;
    /** Returns the server's name, version, protocol revision and features. */
    rpcVersion(params?: RpcVersionParams, options?: CallOptions): Promise<RpcVersionResult>;
    /**
     * Runs what is not done of a plan: a task begins when those it depends on are done, independent ones run side by side.
     * How far each got is on disk: after a crash the same `plan_id` goes on with what is not done. With `options.stream`
     * what becomes of each task arrives as `stream_event` before the response.
     */
    runPlan(params?: RunPlanParams, options?: CallOptions): Promise<RunPlanResult>;
    /**
     * Saves an agent under a name. A temporary agent becomes permanent under it; of a permanent one it makes a saved
     * copy, which a later save of the same agent replaces; under the agent's own name the session stays when the agent
     * is destroyed.
     */
    saveSession(params: SaveSessionParams, options?: CallOptions): Promise<SaveSessionResult>;
    /**
     * Returns which process this is, where it works and how it is reached, and what it is busy with. The
     * administrator's alone.
     */
    serverInfo(params?: ServerInfoParams, options?: CallOptions): Promise<ServerInfoResult>;
    /** Stops the server. Running turns get a grace period and are then cancelled; everything is on disk before it exits. */
    shutdownServer(params?: ShutdownServerParams, options?: CallOptions): Promise<ShutdownServerResult>;
    /**
     * Lets an agent and its descendants out of memory and gives them free: another process of this home can take them
     * up. The next call restores them. Who works or is temporary stays, and so does everybody above.
     */
    unloadAgent(params: UnloadAgentParams, options?: CallOptions): Promise<UnloadAgentResult>;
    /** Ends a watch of the caller's, or any as the administrator. It answers then, to whoever opened it. */
    unwatch(params: UnwatchParams, options?: CallOptions): Promise<UnwatchResult>;
    /**
     * Changes the context that planners and executors are given. It is on disk when this answers. The administrator's
     * alone.
     */
    updateContext(params: UpdateContextParams, options?: CallOptions): Promise<UpdateContextResult>;
    /**
     * Parses code and checks it by rules of a linter. The code is never run. Code that cannot be read is no error of the
     * call but a diagnostic of the rule `syntax`.
     */
    validateCode(params: ValidateCodeParams, options?: CallOptions): Promise<ValidateCodeResult>;
}
