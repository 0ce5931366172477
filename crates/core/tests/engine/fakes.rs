//! Parts in memory: a store that can fail, a model that says what it is told to say, one tool.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use nexus_core::approval::ApprovalMode;
use nexus_core::compact::CompactionSettings;
use nexus_core::create::AgentSpec;
use nexus_core::engine::{Parts, Settings};
use nexus_core::message::SharedMessage;
use nexus_core::permission::Level;
use nexus_core::prompt::{Prompt, Prompts};
use nexus_core::provider::{
    EventStream, Model, ModelCall, ModelError, Models, Provider, ProviderError, ProviderEvent,
    ToolSpec, Usage,
};
use nexus_core::store::{
    AgentRecord, Append, ApprovalRecord, Fence, SessionPage, SessionQuery, SessionRecord,
    SettingsRecord, Store, StoreError, StoredAgent,
};
use nexus_core::tokens::TokenCounter;
use nexus_core::tool::{Call, CommandKind, Need, Tool, Toolbox};
use nexus_core::turn::{TurnError, TurnInput, TurnOutcome};
use nexus_core::{Agent, AgentId, Engine, Requester, ToolCall, TurnId};
use serde_json::{Value, json};
use tokio::sync::Notify;

pub const ADMIN: Requester = Requester::Administrator;

/// An engine on fakes, and the fakes.
pub struct World {
    pub engine: Arc<Engine>,
    pub model: Arc<ScriptedProvider>,
    pub store: Arc<MemoryStore>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Arc::default(), change).await
    }

    /// An engine on a store that may hold agents already, as after a restart.
    pub async fn on(store: Arc<MemoryStore>, change: impl FnOnce(&mut Settings)) -> Self {
        let model = Arc::new(ScriptedProvider::default());
        let parts = Parts {
            store: store.clone(),
            models: Arc::new(OneModel(model.clone())),
            prompts: Arc::new(FixedPrompt),
            logs: Arc::new(()),
            counter: Arc::new(Letters),
            toolbox: Toolbox::new(
                ["echo", "exec", "write_file"]
                    .map(|name| Arc::new(Echo::new(name)) as Arc<dyn Tool>),
            ),
        };
        let mut settings = Settings {
            cwd: PathBuf::from("/"),
            protected: ["/protected".into()].into(),
            default_preset: "sandboxed".into(),
            presets: Default::default(),
            max_tool_iterations: 3,
            max_concurrent_tools: 10,
            tool_timeout: Duration::from_secs(60),
            approvals: ApprovalMode::Deny,
            commands_confined: true,
            sandbox: "none".into(),
            compaction: CompactionSettings {
                enabled: true,
                model: None,
                trigger_threshold: 0.9,
                recent_preserve_ratio: 0.25,
            },
            max_concurrent: 4,
            max_queued: 4,
        };
        change(&mut settings);
        Self { engine: Engine::open(parts, settings).await.unwrap(), model, store }
    }

    pub async fn agent(&self, name: &str) -> Arc<Agent> {
        let spec = AgentSpec { name: Some(name.into()), ..AgentSpec::default() };
        self.engine.create_agent(&ADMIN, spec).await.unwrap()
    }

    pub async fn say(&self, agent: &Arc<Agent>, content: &str) -> Result<TurnOutcome, TurnError> {
        let input = TurnInput { content: content.into(), ..TurnInput::default() };
        self.engine.start_turn(agent, input)?.wait(None).await
    }
}

pub fn id(name: &str) -> AgentId {
    AgentId::parse(name).unwrap()
}

pub fn turn_id(name: &str) -> TurnId {
    TurnId::Text(name.into())
}

/// The history as `role: content` lines.
pub fn history(agent: &Agent) -> Vec<String> {
    agent.with_conversation(|conversation| lines(conversation.history()))
}

pub fn lines(messages: &[SharedMessage]) -> Vec<String> {
    let line = |message: &SharedMessage| {
        let mark = if message.meta.interrupted { " [interrupted]" } else { "" };
        format!("{:?}: {}{mark}", message.role, message.content)
    };
    messages.iter().map(line).collect()
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

    pub fn calls(&self) -> Vec<ModelCall> {
        self.calls.lock().unwrap().clone()
    }

    /// What the last call was shown.
    pub fn last_context(&self) -> Vec<String> {
        lines(&self.calls.lock().unwrap().last().unwrap().messages)
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
                reasoning: false,
                provider: self.0.clone(),
            }),
            Some(name) => Err(ModelError::Unknown { name: name.into(), known: "m".into() }),
        }
    }
}

struct FixedPrompt;

impl Prompts for FixedPrompt {
    fn load(&self, _: &std::path::Path) -> Prompt {
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

/// Returns its `text`; with `hang` it waits until it is cancelled. Needs what its arguments say: `read`, `write`,
/// `command`.
struct Echo(ToolSpec);

impl Echo {
    fn new(name: &str) -> Self {
        Self(ToolSpec { name: name.into(), description: "Echoes.".into(), parameters: json!({}) })
    }
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, String> {
        if !arguments.is_object() {
            return Err("the arguments must be a JSON object".into());
        }
        let text = |name: &str| arguments[name].as_str().map(str::to_owned);
        let needs = [
            text("read").map(Need::Read),
            text("write").map(Need::Write),
            text("command").map(|_| Need::Command(CommandKind::Any)),
            text("look").map(|_| Need::Command(CommandKind::ReadOnly)),
            text("yolo").map(|what| Need::Level(Level::Yolo, what)),
            text("manage").map(|_| Need::ManageAgents),
            text("message").map(|name| Need::Message(id(&name))),
        ];
        Ok(needs.into_iter().flatten().collect())
    }

    async fn run(&self, call: Call) -> Result<String, String> {
        let arguments = &call.arguments;
        if arguments["hang"] == json!(true) {
            call.cancel.cancelled().await;
        }
        for _ in 0..arguments["yields"].as_u64().unwrap_or(0) {
            tokio::task::yield_now().await;
        }
        if let (Some(to), Some(text)) = (arguments["message"].as_str(), arguments["text"].as_str())
        {
            let asked = call
                .engine
                .ask_agent(&call.agent, &id(to), text.into(), &call.cancel, call.announce)
                .await;
            return asked.map(|outcome| outcome.content).map_err(|error| error.to_string());
        }
        Ok(arguments["text"].as_str().unwrap_or_default().into())
    }
}

/// A store in memory. `fail_appends` makes it refuse, as a full disk would.
#[derive(Default)]
pub struct MemoryStore {
    agents: Mutex<BTreeMap<AgentId, Kept>>,
    approvals: Mutex<BTreeMap<String, ApprovalRecord>>,
    pub fail_appends: std::sync::atomic::AtomicBool,
}

#[derive(Clone)]
struct Kept {
    record: AgentRecord,
    messages: Vec<SharedMessage>,
    saved: bool,
    kept: bool,
    copy_of: Option<AgentId>,
}

impl Kept {
    fn new(record: AgentRecord, messages: Vec<SharedMessage>) -> Self {
        Self { record, messages, saved: false, kept: false, copy_of: None }
    }

    fn session(&self) -> SessionRecord {
        SessionRecord {
            record: self.record.clone(),
            saved: self.saved,
            updated_at: self.record.created_at,
            made_by: self.record.parent.clone(),
        }
    }

    fn set(&mut self, settings: SettingsRecord) {
        let SettingsRecord { permissions, grants, model, cwd, system_prompt } = settings;
        self.record.permissions = permissions;
        self.record.grants = grants;
        self.record.model = model;
        self.record.cwd = cwd;
        self.record.system_prompt = system_prompt;
    }
}

impl MemoryStore {
    fn family(&self, ids: &[AgentId]) -> Vec<AgentId> {
        let agents = self.agents.lock().unwrap();
        let mut family = ids.to_vec();
        let mut next = 0;
        while next < family.len() {
            let children = agents.values().filter(|kept| !kept.saved);
            let children =
                children.filter(|kept| kept.record.parent.as_ref() == Some(&family[next]));
            let children: Vec<_> = children.map(|kept| kept.record.id.clone()).collect();
            family.extend(children.into_iter().filter(|id| !ids.contains(id)));
            next += 1;
        }
        family
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, agent: AgentRecord) -> Result<Fence, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        if agents.contains_key(&agent.id) {
            return Err(StoreError::Exists(agent.id));
        }
        agents.insert(agent.id.clone(), Kept::new(agent, Vec::new()));
        Ok(Fence(1))
    }

    async fn acquire(&self, id: &AgentId) -> Result<Option<StoredAgent>, StoreError> {
        let found = self.agents.lock().unwrap().get(id).filter(|kept| !kept.saved).cloned();
        Ok(found.map(|Kept { record, messages, .. }| StoredAgent {
            record,
            fence: Fence(1),
            messages,
        }))
    }

    async fn list(&self) -> Result<Vec<AgentRecord>, StoreError> {
        let agents = self.agents.lock().unwrap();
        Ok(agents.values().filter(|kept| !kept.saved).map(|kept| kept.record.clone()).collect())
    }

    async fn destroy(&self, ids: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError> {
        let family = self.family(&ids);
        let mut agents = self.agents.lock().unwrap();
        agents.retain(|id, kept| kept.saved || kept.kept || !family.contains(id));
        for kept in agents.values_mut() {
            kept.saved |= family.contains(&kept.record.id);
            if kept.record.parent.as_ref().is_some_and(|parent| family.contains(parent)) {
                kept.record.parent = None;
            }
        }
        Ok(family)
    }

    async fn sessions(&self, query: SessionQuery) -> Result<SessionPage, StoreError> {
        let agents = self.agents.lock().unwrap();
        let all: Vec<_> = agents.values().map(Kept::session).collect();
        let total = all.len() as u64;
        let page = all.into_iter().skip(query.offset as usize).take(query.limit as usize);
        Ok(SessionPage { total, sessions: page.collect() })
    }

    async fn session(&self, name: &AgentId) -> Result<Option<SessionRecord>, StoreError> {
        Ok(self.agents.lock().unwrap().get(name).map(Kept::session))
    }

    async fn read_session(
        &self,
        name: &AgentId,
    ) -> Result<Option<(SessionRecord, Vec<SharedMessage>)>, StoreError> {
        let found = self.agents.lock().unwrap().get(name).cloned();
        Ok(found.map(|kept| (kept.session(), kept.messages)))
    }

    async fn settle(
        &self,
        _: &AgentId,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<Fence, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        if agents.contains_key(&record.id) {
            return Err(StoreError::Exists(record.id));
        }
        agents.insert(record.id.clone(), Kept { kept: true, ..Kept::new(record, messages) });
        Ok(Fence(1))
    }

    async fn keep(&self, id: &AgentId, _: Fence) -> Result<(), StoreError> {
        self.agents.lock().unwrap().get_mut(id).unwrap().kept = true;
        Ok(())
    }

    async fn copy_session(
        &self,
        from: &AgentId,
        to: &AgentId,
        replace: bool,
    ) -> Result<bool, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        let Some(mut copy) = agents.get(from).cloned() else { return Ok(false) };
        if agents.get(to).is_some_and(|old| !(replace && old.copy_of.as_ref() == Some(from))) {
            return Err(StoreError::Exists(to.clone()));
        }
        copy.record.id = to.clone();
        (copy.saved, copy.kept, copy.copy_of) = (true, true, replace.then(|| from.clone()));
        agents.insert(to.clone(), copy);
        Ok(true)
    }

    async fn load(
        &self,
        from: &AgentId,
        to: &AgentId,
        settings: Option<SettingsRecord>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        let Some(mut found) = agents.get(from).cloned() else { return Ok(None) };
        if from != to && agents.contains_key(to) {
            return Err(StoreError::Exists(to.clone()));
        }
        found.record.id = to.clone();
        (found.saved, found.copy_of) = (false, None);
        settings.into_iter().for_each(|settings| found.set(settings));
        agents.insert(to.clone(), found.clone());
        let Kept { record, messages, .. } = found;
        Ok(Some(StoredAgent { record, fence: Fence(1), messages }))
    }

    async fn rename(&self, from: &AgentId, to: &AgentId) -> Result<bool, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        if agents.contains_key(to) {
            return Err(StoreError::Exists(to.clone()));
        }
        let Some(mut found) = agents.remove(from) else { return Ok(false) };
        found.record.id = to.clone();
        agents.insert(to.clone(), found);
        for kept in agents.values_mut().filter(|kept| kept.record.parent.as_ref() == Some(from)) {
            kept.record.parent = Some(to.clone());
        }
        Ok(true)
    }

    async fn delete(&self, name: &AgentId) -> Result<Vec<AgentId>, StoreError> {
        match self.agents.lock().unwrap().get_mut(name) {
            Some(found) => (found.saved, found.kept) = (false, false),
            None => return Ok(Vec::new()),
        }
        self.destroy(vec![name.clone()]).await
    }

    fn append(
        &self,
        id: &AgentId,
        _: Fence,
        append: Append,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        if self.fail_appends.load(std::sync::atomic::Ordering::Relaxed) {
            return async { Err(StoreError::DiskFull) }.boxed();
        }
        let mut agents = self.agents.lock().unwrap();
        let result = match agents.get_mut(id) {
            None => Err(StoreError::Unknown(id.clone())),
            Some(Kept { record, messages, .. }) => {
                assert_eq!(append.first_index, messages.len() as u64);
                messages.extend(append.messages);
                record.message_count = messages.len() as u64;
                record.progress = append.progress;
                Ok(())
            }
        };
        async { result }.boxed()
    }

    fn update(
        &self,
        id: &AgentId,
        _: Fence,
        settings: SettingsRecord,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let mut agents = self.agents.lock().unwrap();
        agents.get_mut(id).unwrap().set(settings);
        async { Ok(()) }.boxed()
    }

    async fn put_approval(&self, approval: ApprovalRecord) -> Result<(), StoreError> {
        self.approvals.lock().unwrap().insert(approval.id.clone(), approval);
        Ok(())
    }

    async fn approvals(&self) -> Result<Vec<ApprovalRecord>, StoreError> {
        Ok(self.approvals.lock().unwrap().values().cloned().collect())
    }

    fn changes_elsewhere(&self) -> u64 {
        0
    }

    fn void_through(&self) -> Fence {
        Fence(0)
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
