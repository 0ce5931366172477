//! An engine on parts in memory: a model that says what it is told to say, one tool, and the store of the testkit.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use nexus_core::account::Bounds;
use nexus_core::approval::ApprovalMode;
use nexus_core::attach::{Intake, Taken, Wanted};
use nexus_core::authority::Action;
use nexus_core::compact::CompactionSettings;
use nexus_core::engine::{Parts, Settings};
use nexus_core::events::TurnOutcome;
use nexus_core::lifecycle::{AccessError, AgentSpec, Card, ListQuery};
use nexus_core::listing::{self, Lesson, ListedModel, ModelPage, ModelQuery, Sources};
use nexus_core::logs::AgentLogs;
use nexus_core::message::{
    Attachment, AttachmentKind, Blob, Part, SharedMessage, Source, Stop, StopReason,
};
use nexus_core::model::{Inputs, ModelInfo};
use nexus_core::observe::{EndedModelCall, EndedToolCall, EndedTurn, Observer};
use nexus_core::permission::{Level, ToolClass};
use nexus_core::preview::Preview;
use nexus_core::prompt::{Prompt, Prompts};
use nexus_core::provider::{
    Answer, EventStream, Model, ModelCall, ModelError, Models, Provider, ProviderError,
    ProviderEvent, ToolSpec,
};
use nexus_core::tokens::TokenCounter;
use nexus_core::tool::{Access, CommandKind, Invocation, Need, Tool, ToolOutput};
use nexus_core::toolbox::Toolbox;
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
    pub models: Arc<FakeModels>,
    pub counter: Arc<Letters>,
    pub seen: Arc<Seen>,
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
        let models = Arc::new(FakeModels::new(model.clone()));
        let counter = Arc::new(Letters::default());
        let seen = Arc::new(Seen::default());
        let begun = Arc::new(AtomicUsize::new(0));
        let echo = |name: &str, class| {
            let description = "Echoes.".into();
            let spec = ToolSpec { name: name.into(), description, parameters: "{}".into() };
            Arc::new(Echo { spec, class, begun: begun.clone() }) as Arc<dyn Tool>
        };
        let parts = Parts {
            store: store.clone(),
            models: models.clone(),
            prompts: Arc::new(FixedPrompt),
            logs,
            counter: counter.clone(),
            toolbox: Toolbox::new([
                echo("echo", ToolClass::Look),
                echo("exec", ToolClass::Command),
                echo("write_file", ToolClass::Write),
            ]),
            intake: Arc::new(Eyes),
            checker: Arc::new(()),
            observer: seen.clone(),
        };
        let mut settings = settings();
        change(&mut settings);
        Self { engine: Engine::new(parts, settings), model, store, models, counter, seen, begun }
    }

    /// The engine of a process that starts after this one was killed.
    pub fn restarted(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let store = Arc::new(self.store.neighbour());
        self.store.revoke();
        Self::on(store, change)
    }

    /// The engine of another process on the same store.
    pub fn beside(&self) -> Self {
        self.beside_with(|_| {})
    }

    pub fn beside_with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Arc::new(self.store.neighbour()), change)
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
        let page = self.engine.agents.history(agent, 0, u32::MAX, usize::MAX).await.unwrap();
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
        approval_timeout: LONG,
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
        allow_urls: false,
        recall: 0,
        tasks: Default::default(),
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
        format!("{:?}: {}{mark}", message.role, message.text())
    };
    messages.into_iter().map(line).collect()
}

/// Lets others go on until `holds`. Whoever waits for what never comes hangs here, and the test with it.
pub async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

/// What the observer was told, a line for each.
#[derive(Default)]
pub struct Seen(Mutex<Vec<String>>);

impl Seen {
    /// What came since the last time.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Observer for Seen {
    fn turn_ended(&self, turn: &EndedTurn<'_>) {
        assert!(turn.began.elapsed() >= turn.lasted);
        self.note(format!("turn of {}: {:?}", turn.agent, turn.end));
    }

    fn model_call_ended(&self, call: &EndedModelCall<'_>) {
        assert!(call.first_token.is_none_or(|first| first <= call.lasted));
        let EndedModelCall { model, end, turn, first_token, bill, .. } = call;
        let whose = if turn.is_some() { "turn" } else { "summary" };
        let heard = if first_token.is_some() { "heard" } else { "unheard" };
        self.note(format!("{} for a {whose}: {end:?}, {heard}, {}", model.alias, bill.calls));
    }

    fn tool_call_ended(&self, call: &EndedToolCall<'_>) {
        self.note(format!("{}: {:?}", call.tool.unwrap_or("nothing"), call.end));
    }
}

/// What the model does in one call.
pub enum Script {
    Say(&'static str),
    /// The same letter by letter, and others have their turn between them.
    Spell(&'static str),
    Call(Vec<(&'static str, Value)>),
    /// Ends as this says.
    Answer(Answer),
    /// Says this, then the stream breaks.
    Break(&'static str),
    /// Says this, then fails in a way that does not pass.
    Fall(&'static str),
    /// Is refused before anything comes.
    Refuse(ProviderError),
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

    /// Forgets what it was told to do.
    pub fn unscript(&self) {
        self.scripts.lock().unwrap().clear();
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
        let whole = |answer: Answer| {
            let said = answer.parts.iter().filter_map(|part| match part {
                Part::Text(said) => text(said),
                Part::Thought(it) => Some(Ok(ProviderEvent::Reasoning(it.text.clone()))),
                _ => None,
            });
            let said: Vec<_> = said.collect();
            let done = Ok(ProviderEvent::Done(Box::new(answer)));
            stream::iter(said.into_iter().chain([done])).boxed()
        };
        Ok(match script {
            Script::Say(said) => whole(answer([Part::text(said)], StopReason::EndTurn)),
            Script::Spell(said) => {
                let letters = said.chars().map(|letter| ProviderEvent::Text(letter.into()));
                let done = answer([Part::text(said)], StopReason::EndTurn);
                let events = letters.chain([ProviderEvent::Done(Box::new(done))]);
                let paced = |event| async move {
                    tokio::task::yield_now().await;
                    Ok(event)
                };
                stream::iter(events.collect::<Vec<_>>()).then(paced).boxed()
            }
            Script::Answer(said) => whole(said),
            Script::Refuse(error) => return Err(error),
            Script::Call(calls) => {
                let call = |(n, (name, arguments)): (usize, (&str, Value))| {
                    Part::Call(ToolCall::new(format!("c{n}"), name, arguments))
                };
                whole(answer(calls.into_iter().enumerate().map(call), StopReason::EndTurn))
            }
            Script::Break(said) => stream::iter(text(said).into_iter().chain([broken()])).boxed(),
            Script::Fall(said) => {
                let fall = Err(ProviderError::Rejected("fallen".into()));
                stream::iter(text(said).into_iter().chain([fall])).boxed()
            }
            Script::Fail => return Err(ProviderError::Unavailable("down".into())),
            Script::Hang(said) => stream::iter(text(said)).chain(stream::pending()).boxed(),
            Script::Panic => panic!("the model was told to"),
        })
    }
}

/// What a model came to.
pub fn answer(parts: impl IntoIterator<Item = Part>, reason: StopReason) -> Answer {
    let stop = Stop::from(reason);
    Answer { parts: parts.into_iter().collect(), stop, ..Answer::default() }
}

pub const WINDOW: u32 = 1000;

const PROVIDER: &str = "fake";

/// The model `m`, and others by their aliases. All of them do what the one provider is told to do; those whose provider
/// has another name have one of their own that does so too.
pub struct FakeModels {
    provider: Arc<ScriptedProvider>,
    other: Arc<Other>,
    known: Mutex<BTreeMap<String, ModelInfo>>,
}

impl FakeModels {
    fn new(provider: Arc<ScriptedProvider>) -> Self {
        let other = Arc::new(Other(provider.clone()));
        let models = Self { provider, other, known: Mutex::default() };
        models.describe("m", WINDOW, |_| {});
        // Takes all there is, and has room for it.
        models.describe("sees", 1_000_000, |info| info.inputs = Inputs { image: true, pdf: true });
        models
    }

    /// There is such a model from now on.
    pub fn describe(&self, alias: &str, window: u32, change: impl FnOnce(&mut ModelInfo)) {
        let mut info = ModelInfo {
            alias: alias.into(),
            context_window: window,
            ..ModelInfo::undescribed(PROVIDER, "fake", &format!("{alias}-1"))
        };
        change(&mut info);
        self.known.lock().unwrap().insert(alias.into(), info);
    }
}

/// Another service.
struct Other(Arc<ScriptedProvider>);

#[async_trait]
impl Provider for Other {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        self.0.stream(call).await
    }
}

impl Models for FakeModels {
    fn resolve(&self, name: Option<&str>) -> Result<Model, ModelError> {
        let name = name.unwrap_or("m");
        match self.known.lock().unwrap().get(name) {
            Some(info) => {
                let provider: Arc<dyn Provider> = match info.provider_name == PROVIDER {
                    true => self.provider.clone(),
                    false => self.other.clone(),
                };
                Ok(Model { info: Arc::new(info.clone()), provider })
            }
            None => Err(ModelError::Unknown { name: name.into(), known: "m".into() }),
        }
    }

    fn learn(&self, model: &ModelInfo, lesson: Lesson) {
        if let Some(known) = self.known.lock().unwrap().get_mut(&model.alias) {
            known.context_window = lesson.window.unwrap_or(known.context_window);
            known.thinking.replayed_always |= lesson.thoughts_always;
        }
    }

    fn list(&self, _: &ModelQuery) -> Result<ModelPage, ModelError> {
        let assumed = listing::Source::Assumed;
        let sources = Sources {
            context_window: assumed,
            max_output: assumed,
            inputs: assumed,
            thinking: assumed,
            prices: assumed,
        };
        let listed = |info: &ModelInfo| ListedModel {
            info: Arc::new(info.clone()),
            sources,
            tools: None,
            schemas: None,
            wires: Vec::new(),
            retires: None,
            unavailable: None,
            key_set: true,
            default: false,
        };
        let models: Vec<_> = self.known.lock().unwrap().values().map(listed).collect();
        Ok(ModelPage { total: models.len() as u64, models, ..ModelPage::default() })
    }
}

struct FixedPrompt;

impl Prompts for FixedPrompt {
    fn load(&self, _: &Path) -> Prompt {
        Prompt { text: "prompt".into(), source: None }
    }
}

/// One token a letter.
#[derive(Default)]
pub struct Letters {
    /// How often it was asked.
    pub counts: AtomicUsize,
}

impl TokenCounter for Letters {
    fn count(&self, text: &str) -> u32 {
        self.counts.fetch_add(1, Ordering::Relaxed);
        text.len() as u32
    }
}

/// Returns its `text`, and an image of the bytes `picture`. With `hang` it waits until it is cancelled, with `ending_s` so long after that, and with
/// `deaf` it hears of no cancel. With `panic` it does. With `message`, `make` or `destroy` it does that in its agent's name. Needs what its
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

    async fn preview(&self, arguments: &Value, _: Access) -> Option<Preview> {
        let content = arguments["text"].as_str()?.into();
        Some(Preview::Agent { target: "nobody".into(), content })
    }

    async fn run(&self, call: Invocation) -> Result<ToolOutput, String> {
        let picture = call.arguments["picture"].as_str().map(picture);
        let attachments = picture.into_iter().collect();
        Ok(ToolOutput { text: self.echo(call).await?, attachments, change: None })
    }
}

impl Echo {
    async fn echo(&self, call: Invocation) -> Result<String, String> {
        let arguments = &call.arguments;
        self.begun.fetch_add(1, Ordering::Relaxed);
        assert!(arguments["panic"] != json!(true), "the tool was told to panic");
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

/// Takes everything for an image that begins so, the rest for text; of files, what their names say.
struct Eyes;

#[async_trait]
impl Intake for Eyes {
    async fn file(&self, access: Access, path: &str, wanted: Wanted) -> Result<Taken, String> {
        let place = access.cwd.join(path);
        self.bytes(place.to_str().unwrap().into(), path, wanted).await
    }

    async fn bytes(&self, bytes: Vec<u8>, name: &str, wanted: Wanted) -> Result<Taken, String> {
        match (bytes.as_slice(), wanted) {
            ([.., b'.', b'p', b'n', b'g'], _) => {
                Ok(Taken::Image { media_type: "image/png", bytes })
            }
            ([.., b'.', b'p', b'd', b'f'], Wanted::Any) => {
                Ok(Taken::Document { media_type: "application/pdf", pages: 3, bytes })
            }
            (_, Wanted::Any) => Ok(Taken::Text(String::from_utf8(bytes).unwrap())),
            (_, Wanted::Image) => Err(format!("{name} is no image")),
        }
    }
}

/// An image of these bytes.
pub fn picture(bytes: &str) -> Attachment {
    Attachment {
        kind: AttachmentKind::Image,
        media_type: "image/png".into(),
        name: None,
        source: Source::Blob(Blob::new(bytes.as_bytes())),
    }
}
