//! Watching agents: everything that happens to them, as notifications.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

use crate::agent::AgentEntry;
use crate::conversation::{MessageEntry, ToolCallEntry};
use crate::method;
use crate::permission::{ApprovalEntry, FileChange};
use crate::schema::{Cursors, Name};
use crate::turn::RequestId;
use crate::usage::Usage;

method! {
    /// Tells all that happens to agents, by notifications `watch_event`: first how things stand (`snapshot`), then each
    /// event as it comes. The call stays open until the caller hangs up, which ends the watch and nothing else, or until
    /// `unwatch`; its answer comes last. Over HTTP it needs `Accept: text/event-stream`. On the Unix socket it has its
    /// connection for itself. It cannot stand in a batch.
    Watch = "watch", Server Watch, WatchParams => WatchResult
}

method! {
    /// Ends a watch of the caller's, or any as the administrator. It answers then, to whoever opened it.
    Unwatch = "unwatch", Server Control, UnwatchParams => UnwatchResult
}

/// The notification of a watch.
pub const WATCH_EVENT: &str = "watch_event";

/// Longest name of a watcher, in characters.
pub const WATCHER_NAME_CHARS_MAX: usize = 64;

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WatchParams {
    /// These; all that the caller may read when absent, later ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Name>>", length(min = 1, max = 1_000))]
    pub agents: Option<Vec<String>>,
    /// With `agents`: those that descend from them, too, later ones included; false when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descendants: Option<bool>,
    /// Text, thoughts and what commands print as they come; true when absent. False: states and whole messages only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deltas: Option<bool>,
    /// For an agent, the index of the last message that the client has, -1 for none: what it has missed is sent after
    /// `snapshot`, before anything else of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cursors>")]
    pub after: Option<BTreeMap<String, i64>>,
    /// This client shows approvals to a person, which is the administrator's to say; false when absent. While one is
    /// there, a server with `approvals: auto` asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approver: Option<bool>,
    /// What other watchers see, as `pts/3`; at most 64 characters, none of them a control character.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"))]
    pub name: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WatchResult {
    pub watch_id: String,
    /// Why it ended: `unwatched`, `gap` (the reader was too slow, and has missed something: watch again with `after`),
    /// `gone` (nothing is left that it may see), `stopping`.
    pub reason: String,
    /// How many notifications were sent.
    pub events: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnwatchParams {
    pub watch_id: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UnwatchResult {
    /// False when there is no such watch, or not for this caller.
    pub ended: bool,
}

/// What `watch_event` tells.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WatchEvent {
    pub watch_id: String,
    /// From 1, without gaps.
    pub sequence: u64,
    /// In the first: the id of the request that opened the watch, to the letter; null for a notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Value>,
    #[serde(flatten)]
    pub happened: Happened,
}

/// Read as it is written: of what is flattened, serde makes a copy first, and there are many of these.
impl<'de> Deserialize<'de> for WatchEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            watch_id: String,
            sequence: u64,
            #[serde(default)]
            task_id: Option<Value>,
            #[serde(default)]
            agent_id: Option<String>,
            #[serde(default)]
            request_id: Option<RequestId>,
            at: String,
            event: Event,
        }
        let Written { watch_id, sequence, task_id, agent_id, request_id, at, event } =
            Written::deserialize(deserializer)?;
        let happened = Happened { agent_id, request_id, at, event };
        Ok(Self { watch_id, sequence, task_id, happened })
    }
}

/// The part of it that is the same for all who watch.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Happened {
    /// Absent for what concerns the server as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The turn it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// ISO 8601.
    pub at: String,
    pub event: Event,
}

/// Clients ignore types that they do not know.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "WatchedEvent")]
pub enum Event {
    /// How things stand. What follows joins it without a gap, and repeats nothing.
    Snapshot(Snapshot),
    TurnQueued {
        #[serde(flatten)]
        asked: Asked,
        /// How many turns are before it.
        position: u64,
    },
    TurnStarted {
        #[serde(flatten)]
        asked: Asked,
        /// It goes on with one that was cut off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        resumed: bool,
        /// Null when no provider is configured.
        model: Option<String>,
    },
    /// A piece of the answer.
    Delta(Piece),
    /// A piece of what the model thinks. It is no part of the answer.
    Reasoning(Piece),
    /// A message that was written down.
    Message {
        index: u64,
        message: Box<MessageEntry>,
    },
    ToolCall(ToolCallEntry),
    /// The call is judged, and run if it may be.
    ToolStarted {
        id: String,
    },
    /// A piece of what the call prints while it runs: at most ten a second, and 64 KiB in all. Only with `deltas`.
    ToolOutput {
        id: String,
        text: String,
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
        failed: bool,
        duration_ms: u64,
        /// What became of the file that the call changed; absent where it was none, several or no text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<FileChange>,
        /// The rule that refused the call, as `explain_permission` names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused_by: Option<String>,
    },
    /// Also told to those who watch an ancestor of the agent that asks.
    ApprovalRequested {
        approval: ApprovalEntry,
    },
    ApprovalDecided {
        approval: ApprovalEntry,
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
    /// What one model call used.
    Usage(Usage),
    TurnEnded {
        /// `done`, `cancelled`, `failed`, `halted` (at the limit of its iterations) or `truncated` (its answer was cut).
        status: String,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<TurnFailure>,
        message_count: u64,
        duration_ms: u64,
        usage: Usage,
        /// Null where the price is not known.
        cost_usd: Option<f64>,
    },
    /// The older part of the conversation was summarised.
    Compacted {
        tokens_before: u64,
        tokens_after: u64,
    },
    AgentCreated {
        agent: Box<AgentEntry>,
    },
    AgentEnded {},
    AgentRenamed {
        /// Its new name; the event has the old one.
        to: String,
    },
    /// Its settings, or where it is.
    AgentChanged {
        /// `elsewhere` when another process has it; nothing more is told of it here then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Upper case, as in `list_agents`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permission_level: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    },
    /// It lies on disk alone; the next call takes it up again.
    AgentLeftMemory {},
    /// The names that watchers gave, told to the administrator.
    Watchers {
        watchers: Vec<String>,
    },
    ServerStopping {
        /// What turns that run are given to end.
        grace_ms: u64,
    },
    /// The reader was too slow, and has missed something. The last event of its watch: watch again with `after`.
    Gap {},
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    pub agents: Vec<WatchedAgent>,
    /// What waits for leave.
    pub approvals: Vec<ApprovalEntry>,
    /// The names that watchers gave.
    pub watchers: Vec<String>,
    /// A further `snapshot` with the rest follows: one has 500 agents at most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WatchedAgent {
    #[serde(flatten)]
    pub agent: AgentEntry,
    /// The turn that runs, if one does, and those that wait, in their order.
    pub turns: Vec<TurnEntry>,
}

/// A turn that runs or waits.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TurnEntry {
    pub request_id: RequestId,
    /// `running` or `queued`.
    pub status: String,
    #[serde(flatten)]
    pub asked: Asked,
    /// ISO 8601; of the one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// What the one that runs has come to.
    #[serde(flatten)]
    pub running: Option<RunningTurn>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunningTurn {
    /// What it has said so far in all steps; at most 1 MiB, the end of it.
    pub text: String,
    /// Which model call it is at, from 1.
    pub step: u32,
    /// Characters of what was said in this step: the `offset` of the next `delta`.
    pub offset: u64,
    /// Tool calls without a result.
    pub open_calls: Vec<ToolCallEntry>,
}

/// What a turn was asked, and by whom.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// What was said; empty where a turn goes on, and for `compact`.
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_agent_id: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Piece {
    /// Which model call of the turn says it, from 1.
    pub step: u32,
    /// Where it begins in the text of the step, in characters (code points).
    pub offset: u64,
    pub text: String,
}

/// Why a turn failed, as the call that began it was told.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TurnFailure {
    pub code: i32,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}
