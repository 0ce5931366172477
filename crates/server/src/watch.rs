//! What happens to agents, as it travels to those who watch.

use std::fmt::Write as _;
use std::sync::Arc;

use nexus_core::agent::{LiveTurn, TurnCard};
use nexus_core::observe::TurnEnd;
use nexus_core::progress::ToolProgress;
use nexus_core::turn::TurnError;
use nexus_core::watch::{Asked, Ended, Event as Told, Happening, Piece};
use nexus_core::watching::{Outset, WatchedAgent};
use nexus_core::{AgentId, Engine, Message};
use nexus_protocol::Id;
use nexus_protocol::watch::{
    self as protocol, Event, Happened, RunningTurn, Snapshot, TurnEntry, TurnFailure, WATCH_EVENT,
    WatchEvent,
};

use crate::errors::wire;
use crate::handlers::usage::{cost_usd, usage_entry};
use crate::handlers::{
    agent_entry, approval_entry, change_entry, message_entry, request_id, tool_call_entry,
};
use crate::outbox::{Lane, Peer, Takes};

/// Agents in one `snapshot`.
const SNAPSHOT_AGENTS_MAX: usize = 500;

const ID_PREFIX: &str = "watch_";

/// The way of one watch to its reader.
pub struct Feed {
    lane: Arc<Lane>,
    id: String,
    /// The caller's own name of the call, in JSON.
    task_id: String,
    count: u64,
}

impl Feed {
    pub fn open(peer: Arc<Peer>, number: u64, request_id: Option<&Id>) -> Self {
        let lane = Arc::new(Lane::of_messages(peer));
        let task_id = request_id.map_or("null", Id::as_json).to_owned();
        Self { lane, id: format!("{ID_PREFIX}{number}"), task_id, count: 0 }
    }

    /// The number of the watch that an id names.
    pub fn number(id: &str) -> Option<u64> {
        id.strip_prefix(ID_PREFIX)?.parse().ok()
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// How many notifications there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn lane(&self) -> Arc<Lane> {
        self.lane.clone()
    }

    /// Sends what happened, when the reader has taken most of what came before.
    pub async fn put(&mut self, happened: Happened) {
        let encoded = encode(&happened);
        match self.lane.takes() {
            Takes::Values => self.put_event(happened, encoded.len()).await,
            _ => self.put_encoded(&encoded).await,
        }
    }

    /// The same of what others are told too: it is encoded once for all of them, and not at all in this process.
    pub async fn put_shared(&mut self, engine: &Engine, happening: &Happening) {
        let told = || happened(engine, happening);
        match self.lane.takes() {
            Takes::Values => self.put_event(told(), happening.event.bytes()).await,
            _ => self.put_encoded(happening.encoded.get_or_init(|| encode(&told()))).await,
        }
    }

    pub fn put_last(&mut self, happened: &Happened) {
        let message = self.message(&encode(happened));
        self.lane.put_last(|_| message);
    }

    async fn put_encoded(&mut self, happened: &[u8]) {
        self.lane.room().await;
        let message = self.message(happened);
        self.lane.put(message);
    }

    async fn put_event(&mut self, happened: Happened, bytes: usize) {
        self.lane.room().await;
        self.count += 1;
        let (watch_id, sequence) = (self.id.clone(), self.count);
        let event = WatchEvent { watch_id, sequence, task_id: None, happened };
        self.lane.put_event(Box::new(event), bytes);
    }

    /// `happened` is a JSON object; what tells one watch from another is put before its members.
    fn message(&mut self, happened: &[u8]) -> Vec<u8> {
        self.count += 1;
        let mut head = format!(
            r#"{{"jsonrpc":"2.0","method":"{WATCH_EVENT}","params":{{"watch_id":"{}","sequence":{},"#,
            self.id, self.count
        );
        if self.count == 1 {
            let _ = write!(head, r#""task_id":{},"#, self.task_id);
        }
        let mut message = Vec::with_capacity(head.len() + happened.len());
        message.extend_from_slice(head.as_bytes());
        message.extend_from_slice(&happened[1..]);
        message.push(b'}');
        message
    }
}

/// As it travels.
fn encode(happened: &Happened) -> Box<[u8]> {
    let encoded = serde_json::to_vec(happened).unwrap_or_else(|error| {
        tracing::error!(%error, "what happened could not be encoded");
        b"{}".into()
    });
    encoded.into()
}

pub fn of_server(event: Event) -> Happened {
    Happened { agent_id: None, request_id: None, at: now(), event }
}

/// A message that was written before.
pub fn of_message(agent: &AgentId, index: u64, message: &Message) -> Happened {
    let entry = Box::new(message_entry(index, message));
    Happened {
        agent_id: Some(agent.to_string()),
        request_id: message.meta.turn.as_ref().map(request_id),
        at: message.meta.at.to_string(),
        event: Event::Message { index, message: entry },
    }
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// How things stand, a part at a time.
pub fn snapshots(engine: &Engine, standing: Outset) -> Vec<Snapshot> {
    let Outset { agents, approvals, watchers } = standing;
    let default_model = default_model(engine);
    let mut parts = Vec::new();
    let mut agents = agents.into_iter().peekable();
    loop {
        let part = agents.by_ref().take(SNAPSHOT_AGENTS_MAX);
        let part = part.map(|it| watched_agent(it, default_model.as_ref())).collect();
        let more = agents.peek().is_some();
        parts.push(Snapshot { agents: part, approvals: Vec::new(), watchers: Vec::new(), more });
        if !more {
            break;
        }
    }
    if let Some(last) = parts.last_mut() {
        last.approvals = approvals.into_iter().map(approval_entry).collect();
        last.watchers = watchers;
    }
    parts
}

fn watched_agent(agent: WatchedAgent, default_model: Option<&String>) -> protocol::WatchedAgent {
    let turns = agent.turns.into_iter().map(|(card, live)| turn_entry(&card, live)).collect();
    protocol::WatchedAgent { agent: agent_entry(agent.card, default_model), turns }
}

/// A turn as lists show it.
pub fn turn_entry(card: &TurnCard, live: LiveTurn) -> TurnEntry {
    let LiveTurn { started_at, step, offset, text, open_calls } = live;
    let open_calls = open_calls.iter().map(tool_call_entry).collect();
    TurnEntry {
        request_id: request_id(&card.id),
        status: if card.running { "running" } else { "queued" }.into(),
        asked: asked(&card.asked),
        started_at: started_at.map(|at| at.to_string()),
        running: card.running.then_some(RunningTurn { text, step, offset, open_calls }),
    }
}

fn default_model(engine: &Engine) -> Option<String> {
    engine.models.resolve(None).ok().map(|model| model.alias.clone())
}

/// What is told of something that happened.
fn happened(engine: &Engine, happening: &Happening) -> Happened {
    let Happening { agent, turn, at, event, encoded: _ } = happening;
    Happened {
        agent_id: agent.as_ref().map(ToString::to_string),
        request_id: turn.as_ref().map(request_id),
        at: at.to_string(),
        event: wire_event(engine, event),
    }
}

fn wire_event(engine: &Engine, event: &Told) -> Event {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match event {
        Told::TurnQueued { asked: it, position } => {
            Event::TurnQueued { asked: asked(it), position: *position as u64 }
        }
        Told::TurnStarted { asked: it, model } => Event::TurnStarted {
            asked: asked(it),
            resumed: it.resumed,
            model: model.clone().or_else(|| default_model(engine)),
        },
        Told::Delta(it) => Event::Delta(piece(it)),
        Told::Reasoning(it) => Event::Reasoning(piece(it)),
        Told::Message { index, message } => {
            Event::Message { index: *index, message: Box::new(message_entry(*index, message)) }
        }
        Told::ToolCall(call) => Event::ToolCall(tool_call_entry(call)),
        Told::ToolStarted { id } => Event::ToolStarted { id: id.clone() },
        Told::ToolOutput { id, text } => Event::ToolOutput { id: id.clone(), text: text.clone() },
        Told::ToolProgress { id, progress } => {
            let ToolProgress { progress, total, message } = progress.clone();
            Event::ToolProgress { id: id.clone(), progress, total, message }
        }
        Told::ToolResult { id, content, failed, lasted, refused_by, change } => Event::ToolResult {
            id: id.clone(),
            content: content.clone(),
            failed: *failed,
            duration_ms: millis(*lasted),
            refused_by: refused_by.map(Into::into),
            change: change.clone().map(change_entry),
        },
        Told::ApprovalRequested { record, .. } => {
            Event::ApprovalRequested { approval: approval_entry((**record).clone()) }
        }
        Told::ApprovalDecided { record, .. } => {
            Event::ApprovalDecided { approval: approval_entry((**record).clone()) }
        }
        Told::Waiting(waiting) => {
            Event::Waiting { reason: waiting.reason.into(), wait_ms: waiting.wait.map(millis) }
        }
        Told::Fallback { from, to, reason } => {
            Event::Fallback { from: from.clone(), to: to.clone(), reason: reason.clone() }
        }
        Told::Usage(usage) => Event::Usage(usage_entry(usage)),
        Told::TurnEnded { ended, message_count, lasted } => Event::TurnEnded {
            status: status(ended).into(),
            error: ended.error.as_deref().map(failure),
            message_count: *message_count,
            duration_ms: millis(*lasted),
            usage: usage_entry(&ended.bill.usage),
            cost_usd: cost_usd(&ended.bill),
        },
        Told::Compacted { before, after } => {
            Event::Compacted { tokens_before: *before, tokens_after: *after }
        }
        Told::AgentCreated { record, .. } => {
            let card = nexus_core::lifecycle::Card::fresh((**record).clone());
            Event::AgentCreated {
                agent: Box::new(agent_entry(card, default_model(engine).as_ref())),
            }
        }
        Told::AgentEnded => Event::AgentEnded {},
        Told::AgentRenamed { to } => Event::AgentRenamed { to: to.to_string() },
        Told::AgentChanged { record } => {
            let settings = &record.settings;
            Event::AgentChanged {
                status: None,
                model: settings.model.clone().or_else(|| default_model(engine)),
                permission_level: Some(settings.permissions.level.name().to_uppercase()),
                cwd: Some(settings.cwd.display().to_string()),
            }
        }
        Told::AgentElsewhere => Event::AgentChanged {
            status: Some("elsewhere".into()),
            model: None,
            permission_level: None,
            cwd: None,
        },
        Told::AgentLeftMemory => Event::AgentLeftMemory {},
        Told::Watchers(watchers) => Event::Watchers { watchers: watchers.clone() },
        Told::ServerStopping { grace } => Event::ServerStopping { grace_ms: millis(*grace) },
    }
}

fn status(ended: &Ended) -> &'static str {
    match ended.end {
        TurnEnd::Done if ended.stop.is_some_and(|stop| stop.is_cut()) => "truncated",
        TurnEnd::Done => "done",
        TurnEnd::Cancelled => "cancelled",
        TurnEnd::Halted => "halted",
        TurnEnd::Failed => "failed",
    }
}

/// As the call that began the turn is told.
fn failure(error: &(dyn std::error::Error + Send + Sync + 'static)) -> TurnFailure {
    let error = error.downcast_ref::<TurnError>().cloned().unwrap_or(TurnError::Panicked);
    let error = wire(error);
    TurnFailure { code: error.code, message: error.message, data: error.data }
}

fn asked(asked: &Asked) -> protocol::Asked {
    protocol::Asked {
        content: asked.content.text().into_owned(),
        source: asked.source.clone(),
        source_agent_id: asked.source_agent.as_ref().map(ToString::to_string),
    }
}

fn piece(piece: &Piece) -> protocol::Piece {
    protocol::Piece { step: piece.step, offset: piece.offset, text: piece.text.clone() }
}
