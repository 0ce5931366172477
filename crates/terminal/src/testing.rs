//! A server for tests, and the stage on which a command is run against it: what it calls, and what it tells the front.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt as _, StreamExt as _};
use nexus_client::{Api as _, Target, UnixClient};
use nexus_protocol::error::RpcError;
use nexus_protocol::params::NoParams;
use nexus_protocol::permission::ListPresets;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::bytes::Bytes;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::task::AbortOnDropHandle;

use crate::commands::{self, Said};
use crate::cx::{Chosen, Cx, Front, Making};
use crate::link::{Link, Traced};
use crate::options::Settings;

/// Listens on a Unix socket of its own until dropped, and remembers what it was asked.
pub struct Fake {
    socket: PathBuf,
    calls: Arc<Mutex<Vec<Value>>>,
    _accepting: AbortOnDropHandle<()>,
    _dir: TempDir,
}

type Answering = dyn Fn(&str, &Value) -> Result<Value, RpcError> + Send + Sync;

impl Fake {
    pub fn start(
        answer: impl Fn(&str, &Value) -> Result<Value, RpcError> + Send + Sync + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let (answer, calls): (Arc<Answering>, _) = (Arc::new(answer), Arc::default());
        let accepting = accept(listener, answer, Arc::clone(&calls));
        let accepting = AbortOnDropHandle::new(tokio::spawn(accepting));
        Self { socket, calls, _accepting: accepting, _dir: dir }
    }

    pub fn link(&self, traced: mpsc::UnboundedSender<Traced>) -> Link {
        Link::unix(UnixClient::new(&self.socket), None, traced)
    }

    /// Each call since the `first`, as `[method, params]`.
    pub fn calls(&self, first: usize) -> Vec<Value> {
        self.calls.lock().unwrap()[first..].to_vec()
    }
}

async fn accept(listener: UnixListener, answer: Arc<Answering>, calls: Arc<Mutex<Vec<Value>>>) {
    // They end with this future, which owns them.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(stream, Arc::clone(&answer), Arc::clone(&calls)));
    }
}

async fn converse(stream: UnixStream, answer: Arc<Answering>, calls: Arc<Mutex<Vec<Value>>>) {
    let codec = LengthDelimitedCodec::builder().max_frame_length(16 << 20).new_codec();
    let mut frames = Framed::new(stream, codec);
    while let Some(Ok(frame)) = frames.next().await {
        let request: Value = serde_json::from_slice(&frame).unwrap();
        let (method, params) = (request["method"].as_str().unwrap(), &request["params"]);
        calls.lock().unwrap().push(json!([method, params]));
        let response = match answer(method, params) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": request["id"], "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": request["id"], "error": error}),
        };
        if frames.send(Bytes::from(response.to_string())).await.is_err() {
            return;
        }
    }
}

/// Where one command is run. Questions are answered with no, and lists are left, unless it was said otherwise.
pub struct Stage {
    fake: Fake,
    link: Arc<Link>,
    traced: mpsc::UnboundedReceiver<Traced>,
    agent: Option<String>,
    pub making: Making,
    pub settings: Settings,
    yes: bool,
    chosen: Vec<Chosen>,
    edited: Option<String>,
}

/// What came of a command: lines as they are, all else in brackets.
pub struct Seen {
    pub calls: Value,
    pub told: Vec<String>,
}

impl Stage {
    /// Each method answers the same whatever it is asked; a text is its error.
    pub fn new(answers: &[(&'static str, Value)]) -> Self {
        let answers = answers.to_vec();
        Self::with(move |method, _| {
            let found = answers.iter().find(|(name, _)| *name == method);
            match found.map(|(_, answer)| answer) {
                Some(Value::String(error)) => Err(RpcError::invalid_params(error.as_str())),
                Some(answer) => Ok(answer.clone()),
                None => Err(RpcError::method_not_found(method)),
            }
        })
    }

    pub fn with(
        answer: impl Fn(&str, &Value) -> Result<Value, RpcError> + Send + Sync + 'static,
    ) -> Self {
        Self::at(None, answer)
    }

    /// With the address of a server, as `/curl` names it.
    pub fn at(
        url: Option<&str>,
        answer: impl Fn(&str, &Value) -> Result<Value, RpcError> + Send + Sync + 'static,
    ) -> Self {
        let fake = Fake::start(answer);
        let (tell, traced) = mpsc::unbounded_channel();
        let link = Link::unix(UnixClient::new(&fake.socket), url.map(Into::into), tell);
        let making = Making { cwd: "/src/api".into(), model: None, preset: None };
        let settings = Settings::default();
        Self {
            fake,
            link: Arc::new(link),
            traced,
            agent: Some("main".into()),
            making,
            settings,
            yes: false,
            chosen: Vec::new(),
            edited: None,
        }
    }

    pub fn showing(mut self, agent: Option<&str>) -> Self {
        self.agent = agent.map(Into::into);
        self
    }

    pub fn saying_yes(mut self) -> Self {
        self.yes = true;
        self
    }

    /// What is chosen from lists, one after another.
    pub fn choosing(mut self, chosen: &[Chosen]) -> Self {
        self.chosen = chosen.iter().rev().copied().collect();
        self
    }

    pub fn editing(mut self, text: &str) -> Self {
        self.edited = Some(text.into());
        self
    }

    /// Runs one command to its end, as it was typed.
    pub async fn run(&mut self, line: &str) -> Seen {
        let Said::Command(name, rest) = commands::read(line) else { panic!("not a command") };
        let (front, mut told) = mpsc::unbounded_channel();
        let cx = Cx {
            width: usize::MAX,
            link: Arc::clone(&self.link),
            agent: self.agent.clone(),
            making: self.making.clone(),
            settings: self.settings.clone(),
            front,
        };
        let before = self.fake.calls(0).len();
        let mut seen = Vec::new();
        let listening = async {
            while let Some(what) = told.recv().await {
                self.tell(what, &mut seen);
            }
        };
        tokio::join!(commands::run(cx, name, rest), listening);
        Seen { calls: self.fake.calls(before).into(), told: seen }
    }

    /// A call that no command makes.
    pub async fn asks_by_itself(&self) {
        let _ = self.link.call::<ListPresets>(&Target::Server, NoParams {}).await;
    }

    /// Runs a command and compares all that came of it.
    pub async fn check(&mut self, line: &str, calls: Value, told: &[&str]) {
        let seen = self.run(line).await;
        assert_eq!(seen.told, told, "{line}");
        assert_eq!(seen.calls, calls, "{line}");
    }

    /// The calls that were told since it was last asked, each with its answer.
    pub fn traced(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Ok(Traced { call, answer }) = self.traced.try_recv() {
            told.push(format!("{}: {answer}", call.method));
        }
        told
    }

    fn tell(&mut self, what: Front, seen: &mut Vec<String>) {
        match what {
            Front::Say(lines) => seen.extend(lines.iter().map(|line| line.text())),
            Front::Show(agent) => seen.push(format!("[show {agent}]")),
            Front::Fresh => seen.push("[fresh]".into()),
            Front::Confirm(question, reply) => {
                seen.push(format!("[ask {question}]"));
                reply.send(self.yes).unwrap();
            }
            Front::Choose(choice, reply) => {
                seen.push(format!("[choose {}: {}]", choice.title, choice.items.join(" | ")));
                reply.send(self.chosen.pop()).unwrap();
            }
            Front::Fill(text) => seen.push(format!("[fill {text}]")),
            Front::Page(text, reply) => {
                seen.push(format!("[page {text}]"));
                reply.send(()).unwrap();
            }
            Front::Edit(text, reply) => {
                seen.push(format!("[edit {text}]"));
                reply.send(self.edited.take()).unwrap();
            }
            Front::AskAgain(approval) => seen.push(format!("[ask again {approval}]")),
            Front::Copy(text) => seen.push(format!("[copy {text}]")),
            Front::Whisper(Some(agent)) => seen.push(format!("[whisper {agent}]")),
            Front::Whisper(None) => seen.push("[over]".into()),
            Front::Clear => seen.push("[clear]".into()),
            Front::Theme(name) => seen.push(format!("[theme {name}]")),
            Front::Leave(how) => seen.push(format!("[leave {how:?}]")),
            Front::Lobby(_) | Front::LobbyAgain(_) => seen.push("[lobby]".into()),
            Front::Begin => seen.push("[begin]".into()),
            Front::Fail(why) => seen.push(format!("[fail {why}]")),
        }
    }
}

/// An entry of `list_agents`, with these members in place of the usual ones.
pub fn agent(name: &str, members: Value) -> Value {
    let usual = json!({
        "agent_id": name, "is_temp": name.starts_with('.'), "created_at": "2026-11-17T03:00:00Z",
        "message_count": 2, "should_shutdown": false, "parent_agent_id": null, "child_count": 0,
        "halted_at_iteration_limit": false, "model": "opus", "last_action_at": null,
        "permission_level": "TRUSTED", "cwd": "/src/api", "write_paths": [], "status": "idle",
        "running_request_id": null, "queued": 0,
        "usage": {"tokens": 0, "cost_usd": null, "cost_unknown_calls": 0},
    });
    merged(usual, members)
}

pub fn agents(entries: &[Value]) -> Value {
    json!({"agents": entries})
}

/// An entry of `list_sessions`.
pub fn session(name: &str, members: Value) -> Value {
    let usual = json!({
        "name": name, "message_count": 45, "created_at": 0.0, "updated_at": 0.0, "is_temp": false,
        "provenance": "user", "model": "opus", "permission_level": "trusted", "cwd": "/src/api",
    });
    merged(usual, members)
}

pub fn sessions(entries: &[Value]) -> Value {
    json!({"total": entries.len(), "offset": 0, "limit": 1000, "sessions": entries})
}

/// What `get_context` answers.
pub fn context(members: Value) -> Value {
    let usual = json!({
        "message_count": 0, "system_prompt": true, "halted_at_iteration_limit": false,
        "last_iteration_count": 0, "max_tool_iterations": 100, "turns": [],
    });
    merged(usual, members)
}

/// Messages as `get_messages` pages them: by `offset`, `limit` and `from_end`.
pub fn page(messages: &[Value], params: &Value) -> Value {
    let (total, limit) = (messages.len(), params["limit"].as_u64().unwrap_or(200) as usize);
    let offset = params["offset"].as_u64().unwrap_or(0) as usize;
    let range = match params["from_end"] == true {
        true => {
            let end = total.saturating_sub(offset);
            end.saturating_sub(limit)..end
        }
        false => offset.min(total)..(offset + limit).min(total),
    };
    let mut shown = Vec::new();
    for index in range.clone() {
        shown.push(merged(json!({"index": index, "content": ""}), messages[index].clone()));
    }
    json!({"agent_id": "main", "total": total, "offset": range.start, "limit": limit, "messages": shown})
}

pub fn merged(mut value: Value, members: Value) -> Value {
    let Value::Object(members) = members else { return value };
    for (name, member) in members {
        value[name] = member;
    }
    value
}
