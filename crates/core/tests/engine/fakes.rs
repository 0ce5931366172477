//! An engine on parts in memory: a model that says what it is told to say, one tool, and the store of the testkit.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use nexus_core::account::Bounds;
use nexus_core::approval::ApprovalMode;
use nexus_core::authority::Action;
use nexus_core::compact::CompactionSettings;
use nexus_core::engine::{Parts, Settings};
use nexus_core::events::TurnOutcome;
use nexus_core::lifecycle::{AccessError, AgentSpec, Card, ListQuery};
use nexus_core::logs::AgentLogs;
use nexus_core::message::SharedMessage;
use nexus_core::permission::{Level, ToolClass};
use nexus_core::prompt::{Prompt, Prompts};
use nexus_core::provider::{
    EventStream, Model, ModelCall, ModelError, Models, Provider, ProviderError, ProviderEvent,
    ToolSpec, Usage,
};
use nexus_core::tokens::TokenCounter;
use nexus_core::tool::{CommandKind, Invocation, Need, Tool, Toolbox};
use nexus_core::turn::{TurnError, TurnHandle, TurnInput};
use nexus_core::{Agent, AgentId, Engine, Requester, ToolCall, TurnId};
use nexus_testkit::store::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::Notify;

pub const ADMIN: Requester = Requester::Administrator;

/// Longer than any test takes.
pub const LONG: Duration = Duration::from_secs(3600);

/// An engine on fakes, and the fakes.
#[derive(Clone)]
pub struct World {
    pub engine: Arc<Engine>,
    pub model: Arc<ScriptedProvider>,
    pub store: Arc<MemoryStore>,
    begun: Arc<AtomicUsize>,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Arc::default(), change)
    }

    /// One whose approvals wait for an answer.
    pub fn asking() -> Self {
        Self::with(|settings| settings.approvals = ApprovalMode::Ask { timeout: LONG })
    }

    /// An engine on a store that may hold agents already.
    pub fn on(store: Arc<MemoryStore>, change: impl FnOnce(&mut Settings)) -> Self {
        Self::logging(store, Arc::new(()), change)
    }

    /// As `on`, with a log of the caller's.
    pub fn logging(
        store: Arc<MemoryStore>,
        logs: Arc<dyn AgentLogs>,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let model = Arc::new(ScriptedProvider::default());
        let begun = Arc::new(AtomicUsize::new(0));
        let echo = |name: &str, class| {
            let description = "Echoes.".into();
            let spec = ToolSpec { name: name.into(), description, parameters: "{}".into() };
            Arc::new(Echo { spec, class, begun: begun.clone() }) as Arc<dyn Tool>
        };
        let parts = Parts {
            store: store.clone(),
            models: Arc::new(OneModel(model.clone())),
            prompts: Arc::new(FixedPrompt),
            logs,
            counter: Arc::new(Letters),
            toolbox: Toolbox::new([
                echo("echo", ToolClass::Look),
                echo("exec", ToolClass::Command),
                echo("write_file", ToolClass::Write),
            ]),
        };
        let mut settings = settings();
        change(&mut settings);
        Self { engine: Engine::new(parts, settings), model, store, begun }
    }

    /// The engine of a process that starts after this one was killed.
    pub fn restarted(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let store = Arc::new(self.store.neighbour());
        self.store.revoke();
        Self::on(store, change)
    }

    /// The engine of another process on the same store.
    pub fn beside(&self) -> Self {
        Self::on(Arc::new(self.store.neighbour()), |_| {})
    }

    pub async fn agent(&self, name: &str) -> Agent {
        self.make(named(name)).await
    }

    pub async fn make(&self, spec: AgentSpec) -> Agent {
        self.engine.agents.create(&ADMIN, spec).await.unwrap()
    }

    pub async fn find(&self, name: &str) -> Result<Agent, AccessError> {
        self.engine.agents.find(&ADMIN, &id(name), Action::Manage).await
    }

    pub async fn start(&self, agent: &Agent, content: &str) -> Result<TurnHandle, TurnError> {
        let input = TurnInput { content: content.into(), ..TurnInput::default() };
        self.engine.turns.start(agent, input).await
    }

    /// Starts a turn that is called as what is said.
    pub async fn start_named(&self, agent: &Agent, name: &str) -> Result<TurnHandle, TurnError> {
        let id = Some(turn_id(name));
        let input = TurnInput { content: name.into(), id, ..TurnInput::default() };
        self.engine.turns.start(agent, input).await
    }

    pub async fn say(&self, agent: &Agent, content: &str) -> Result<TurnOutcome, TurnError> {
        self.start(agent, content).await?.wait(None).await
    }

    /// Waits until so many tool calls were begun.
    pub async fn until_begun(&self, calls: usize) {
        until(|| self.begun.load(Ordering::Relaxed) >= calls).await;
    }

    /// All agents, as the administrator sees them.
    pub async fn cards(&self) -> Vec<Card> {
        self.engine.agents.list(&ADMIN, ListQuery::default()).await.unwrap().cards
    }

    /// All that was said, what has left memory included.
    pub async fn history(&self, agent: &Agent) -> Vec<String> {
        let page = self.engine.history(agent, 0, u32::MAX, usize::MAX).await.unwrap();
        assert_eq!(page.total, page.messages.len() as u64);
        lines(&page.messages)
    }
}

fn settings() -> Settings {
    Settings {
        cwd: PathBuf::from("/"),
        protected: ["/protected".into()].into(),
        default_preset: "sandboxed".into(),
        presets: Default::default(),
        max_tool_iterations: 3,
        max_concurrent_tools: 10,
        max_calls_per_step: 128,
        tool_timeout: Duration::from_secs(60),
        approvals: ApprovalMode::Deny,
        network: true,
        commands_confined: true,
        sandbox: "none".into(),
        limits: "none".into(),
        compaction: CompactionSettings {
            enabled: true,
            model: None,
            trigger_threshold: 0.9,
            recent_preserve_ratio: 0.25,
        },
        max_concurrent: 4,
        max_queued: 4,
        tree: Bounds::default(),
    }
}

pub fn id(name: &str) -> AgentId {
    AgentId::parse(name).unwrap()
}

pub fn turn_id(name: &str) -> TurnId {
    TurnId::Text(name.into())
}

pub fn named(name: &str) -> AgentSpec {
    AgentSpec { name: Some(name.into()), ..AgentSpec::default() }
}

/// One that may make others.
pub fn trusted(name: &str) -> AgentSpec {
    AgentSpec { preset: Some("trusted".into()), ..named(name) }
}

pub fn child(name: &str, parent: &str) -> AgentSpec {
    AgentSpec { parent: Some(id(parent)), ..named(name) }
}

/// What is in memory of the history, as `role: content` lines.
pub fn history(agent: &Agent) -> Vec<String> {
    let now = agent.snapshot();
    lines(now.conversation.history_from(0))
}

pub fn lines<'a>(messages: impl IntoIterator<Item = &'a SharedMessage>) -> Vec<String> {
    let line = |message: &SharedMessage| {
        let mark = if message.meta.interrupted { " [interrupted]" } else { "" };
        format!("{:?}: {}{mark}", message.role, message.content)
    };
    messages.into_iter().map(line).collect()
}

/// Lets others go on until `holds`. Whoever waits for what never comes hangs here, and the test with it.
pub async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

/// What the model does in one call.
pub enum Script {
    Say(&'static str),
    Call(Vec<(&'static str, Value)>),
    /// Says this, then fails.
    Break(&'static str),
    Fail,
    /// Says this, then nothing more.
    Hang(&'static str),
    Panic,
}

/// Follows its scripts in order and remembers what it was shown. Without a script it says `ok`.
#[derive(Default)]
pub struct ScriptedProvider {
    scripts: Mutex<VecDeque<Script>>,
    calls: Mutex<Vec<ModelCall>>,
    called: Notify,
}

impl ScriptedProvider {
    pub fn script(&self, scripts: impl IntoIterator<Item = Script>) {
        self.scripts.lock().unwrap().extend(scripts);
    }

    /// Calls the tool `echo` once.
    pub fn call_echo(&self, arguments: Value) {
        self.script([Script::Call(vec![("echo", arguments)])]);
    }

    pub fn calls(&self) -> Vec<ModelCall> {
        self.calls.lock().unwrap().clone()
    }

    /// What the last call was shown.
    pub fn last_context(&self) -> Vec<String> {
        lines(self.calls.lock().unwrap().last().unwrap().messages.iter())
    }

    pub async fn wait_for_calls(&self, count: usize) {
        loop {
            let called = self.called.notified();
            if self.calls.lock().unwrap().len() >= count {
                return;
            }
            called.await;
        }
    }
}

#[async_trait]
impl Provider for ScriptedProvider {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        self.calls.lock().unwrap().push(call);
        self.called.notify_waiters();
        let script = self.scripts.lock().unwrap().pop_front().unwrap_or(Script::Say("ok"));
        let text = |text: &str| (!text.is_empty()).then(|| Ok(ProviderEvent::Text(text.into())));
        let broken = || Err(ProviderError::Broken("cut".into()));
        let done = Ok(ProviderEvent::Done(Usage::default()));
        Ok(match script {
            Script::Say(said) => stream::iter(text(said).into_iter().chain([done])).boxed(),
            Script::Call(calls) => {
                let call = |(n, (name, arguments)): (usize, (&str, Value))| {
                    Ok(ProviderEvent::ToolCall(ToolCall {
                        id: format!("c{n}"),
                        name: name.into(),
                        arguments,
                    }))
                };
                stream::iter(
                    calls.into_iter().enumerate().map(call).chain([done]).collect::<Vec<_>>(),
                )
                .boxed()
            }
            Script::Break(said) => stream::iter(text(said).into_iter().chain([broken()])).boxed(),
            Script::Fail => return Err(ProviderError::Unavailable("down".into())),
            Script::Hang(said) => stream::iter(text(said)).chain(stream::pending()).boxed(),
            Script::Panic => panic!("the model was told to"),
        })
    }
}

pub const WINDOW: u32 = 1000;

struct OneModel(Arc<ScriptedProvider>);

impl Models for OneModel {
    fn resolve(&self, name: Option<&str>) -> Result<Model, ModelError> {
        match name {
            None | Some("m") => Ok(Model {
                alias: "m".into(),
                provider_name: "fake".into(),
                id: "m-1".into(),
                context_window: WINDOW,
                brief: false,
                reasoning: false,
                provider: self.0.clone(),
            }),
            Some(name) => Err(ModelError::Unknown { name: name.into(), known: "m".into() }),
        }
    }
}

struct FixedPrompt;

impl Prompts for FixedPrompt {
    fn load(&self, _: &Path) -> Prompt {
        Prompt { text: "prompt".into(), source: None }
    }
}

/// One token a letter.
struct Letters;

impl TokenCounter for Letters {
    fn count(&self, text: &str) -> u32 {
        text.len() as u32
    }
}

/// Returns its `text`. With `hang` it waits until it is cancelled, with `ending_s` so long after that, and with
/// `deaf` it hears of no cancel. With `message`, `make` or `destroy` it does that in its agent's name. Needs what its
/// arguments say: `read`, `write`, `command`.
struct Echo {
    spec: ToolSpec,
    class: ToolClass,
    begun: Arc<AtomicUsize>,
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> ToolClass {
        self.class
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, String> {
        if !arguments.is_object() {
            return Err("the arguments must be a JSON object".into());
        }
        let text = |name: &str| arguments[name].as_str().map(str::to_owned);
        let needs = [
            text("read").map(Need::Read),
            text("write").map(Need::Write),
            text("command").map(|_| Need::Command(CommandKind::Any, text("in"))),
            text("look").map(|_| Need::Command(CommandKind::ReadOnly, text("in"))),
            text("yolo").map(|what| Need::Level(Level::Yolo, what)),
            text("manage").map(|_| Need::ManageAgents),
            text("message").map(|name| Need::Message(id(&name))),
        ];
        Ok(needs.into_iter().flatten().collect())
    }

    async fn run(&self, call: Invocation) -> Result<String, String> {
        let arguments = &call.arguments;
        self.begun.fetch_add(1, Ordering::Relaxed);
        if arguments["deaf"] == json!(true) {
            std::future::pending::<()>().await;
        }
        if arguments["hang"] == json!(true) {
            call.cancel.cancelled().await;
            let ending = arguments["ending_s"].as_u64().unwrap_or(0);
            tokio::time::sleep(Duration::from_secs(ending)).await;
        }
        for _ in 0..arguments["yields"].as_u64().unwrap_or(0) {
            tokio::task::yield_now().await;
        }
        let text = |name: &str| arguments[name].as_str();
        if let (Some(to), Some(text)) = (text("message"), text("text")) {
            let (to, agent, cancel) = (id(to), &call.agent, &call.cancel);
            let asked = call.colleagues.ask(agent, &to, text.into(), cancel, call.announce);
            return asked.await.map(|outcome| outcome.content);
        }
        if let Some(name) = text("make") {
            let made = call.colleagues.create(&call.agent, named(name)).await?;
            return Ok(format!("made {}", made.id()));
        }
        if let Some(name) = text("destroy") {
            let gone = call.colleagues.destroy(&call.agent, &id(name)).await?;
            return Ok(format!("ended {}", gone.len()));
        }
        Ok(text("text").unwrap_or_default().into())
    }
}
