//! An agent with the command tools in a directory of its own.
//!
//! `World::new` makes a temporary directory with `cwd` (the agent's) and `outside` (with a file `secret`) in it. Tools
//! are run with whatever permissions a test hands over; [`World::trusted`] and [`World::confined`] are the two usual
//! ones. The launcher is the binary in `launcher.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use nexus_core::approval::{Announce, ApprovalMode, Decision};
use nexus_core::authority::Action;
use nexus_core::compact::CompactionSettings;
use nexus_core::engine::{Parts, Settings};
use nexus_core::events::TurnOutcome;
use nexus_core::lifecycle::AgentSpec;
use nexus_core::listing::Lesson;
use nexus_core::message::Part;
use nexus_core::model::ModelInfo;
use nexus_core::paths;
use nexus_core::permission::{Level, Permissions, Preset, Reach};
use nexus_core::prompt::{Prompt, Prompts};
use nexus_core::provider::{
    Answer, EventStream, Model, ModelCall, ModelError, Models, Provider, ProviderError,
    ProviderEvent,
};
use nexus_core::tokens::TokenCounter;
use nexus_core::tool::{Access, Colleagues, Invocation, Need, Tool};
use nexus_core::toolbox::Toolbox;
use nexus_core::turn::{TurnHandle, TurnInput};
use nexus_core::{Agent, AgentId, Engine, Requester, ToolCall};
use nexus_store::SqliteStore;
use nexus_tools::sandbox::{Launcher, Limits, strength};
use nexus_tools::{CommandSettings, command_tools};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub struct World {
    pub cwd: PathBuf,
    pub outside: PathBuf,
    /// Handed to the tools as the server's own files.
    pub hidden: PathBuf,
    tools: Vec<Arc<dyn Tool>>,
    engine: Arc<Engine>,
    model: Arc<OneCall>,
    pub agent: Agent,
    _dir: tempfile::TempDir,
}

pub const SECRET: &str = "not-for-agents";

impl World {
    pub async fn new() -> Self {
        Self::with_limits(Limits::default()).await
    }

    pub async fn with_limits(limits: Limits) -> Self {
        assert!(strength().sufficient(), "{}: these tests need Linux 6.12 or newer", strength());
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let [cwd, outside, hidden, home] =
            ["cwd", "outside", "hidden", "home"].map(|name| root.join(name));
        for dir in [&cwd, &outside, &hidden, &home] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(outside.join("secret"), SECRET).unwrap();
        std::fs::write(hidden.join("token"), SECRET).unwrap();
        let tools = command_tools(CommandSettings {
            launcher: launcher(),
            strength: strength(),
            hidden: BTreeSet::from([hidden.clone()]),
            variables: std::env::vars().chain([("A_KEY".into(), SECRET.into())]).collect(),
            tool_timeout: Duration::from_secs(120),
            limits,
        });
        let model = Arc::new(OneCall::default());
        let engine = engine(&home, &cwd, tools.clone(), model.clone());
        let spec = AgentSpec {
            name: Some("a".into()),
            preset: Some("trusted".into()),
            ..AgentSpec::default()
        };
        let agent = engine.agents.create(&Requester::Administrator, spec).await.unwrap();
        Self { cwd, outside, hidden, tools, engine, model, agent, _dir: dir }
    }

    /// Reads anywhere, writes in `cwd`, has the network.
    pub fn trusted(&self) -> Permissions {
        Preset::built_in("trusted").unwrap().apply(&self.cwd, &[])
    }

    /// Reads and writes in `cwd` alone, has no network, and may run commands.
    pub fn confined(&self) -> Permissions {
        let read = Reach::beneath([self.cwd.clone()]);
        Permissions { read, network: false, ..self.trusted() }
    }

    pub fn yolo(&self) -> Permissions {
        let permissions = Preset::built_in("yolo").unwrap().apply(&self.cwd, &[]);
        assert_eq!(permissions.level, Level::Yolo);
        permissions
    }

    pub async fn call(
        &self,
        permissions: Permissions,
        tool: &str,
        arguments: Value,
    ) -> Result<String, String> {
        self.call_with(permissions, tool, arguments, CancellationToken::new()).await
    }

    pub async fn call_with(
        &self,
        permissions: Permissions,
        tool: &str,
        arguments: Value,
        cancel: CancellationToken,
    ) -> Result<String, String> {
        let tool = self.tools.iter().find(|found| found.spec().name == tool).unwrap();
        // As the gate does.
        let dir = tool.needs(&arguments)?.into_iter().find_map(|need| match need {
            Need::Command(_, dir) => dir,
            _ => None,
        });
        let command_dir = paths::directory(&self.cwd, dir.as_deref().unwrap_or_default())
            .map_err(|error| error.to_string())?;
        let access = Access { cwd: self.cwd.clone(), command_dir, permissions, footprint: None };
        tool.run(Invocation {
            agent: self.agent.clone(),
            id: "call".into(),
            ticket: None,
            arguments,
            access,
            cancel,
            announce: Announce::new(|_| {}, None),
            onlookers: Arc::new(()),
            people: Arc::new(()),
            colleagues: Arc::new(Nobody),
            memories: self.engine.memories.clone(),
        })
        .await
        .map(|output| output.text)
    }

    /// Starts a turn of the agent in which its model makes this one call, and lets it through.
    pub async fn turn(&self, tool: &str, arguments: Value) -> TurnHandle {
        let call = ToolCall::new("c", tool, arguments);
        *self.model.0.lock().unwrap() = Some(call);
        let turn = self.engine.turns.start(&self.agent, TurnInput::default()).await.unwrap();
        let admin = Requester::Administrator;
        let waiting = loop {
            match self.engine.approvals.list(&admin, None, false).await.unwrap().pop() {
                Some(waiting) => break waiting,
                None => tokio::task::yield_now().await,
            }
        };
        self.engine.approvals.respond(&admin, &waiting.id, Decision::AllowOnce).await.unwrap();
        turn
    }

    /// What a shell script prints, with its exit code.
    pub async fn shell(&self, permissions: Permissions, script: &str) -> String {
        let arguments = json!({"command": script, "timeout_s": 60});
        self.call(permissions, "shell_UNSAFE", arguments).await.unwrap()
    }

    pub async fn python(&self, permissions: Permissions, code: &str) -> String {
        self.call(permissions, "run_python", json!({"code": code})).await.unwrap()
    }
}

pub fn launcher() -> Launcher {
    Launcher::new(env!("CARGO_BIN_EXE_nexus3-launcher").into())
}

fn engine(home: &Path, cwd: &Path, tools: Vec<Arc<dyn Tool>>, model: Arc<OneCall>) -> Arc<Engine> {
    let parts = Parts {
        store: Arc::new(SqliteStore::open(home).unwrap()),
        models: Arc::new(OneModel(model)),
        prompts: Arc::new(Nobody),
        logs: Arc::new(()),
        counter: Arc::new(Nobody),
        toolbox: Toolbox::new(tools),
        intake: Arc::new(()),
        checker: Arc::new(()),
        observer: Arc::new(()),
    };
    let settings = Settings {
        cwd: cwd.into(),
        protected: BTreeSet::new(),
        default_preset: "trusted".into(),
        presets: Default::default(),
        max_tool_iterations: 2,
        max_concurrent_tools: 1,
        max_calls_per_step: 128,
        tool_timeout: Duration::from_secs(120),
        approvals: ApprovalMode::Ask { timeout: Duration::from_secs(120) },
        approval_timeout: Duration::from_secs(120),
        network: true,
        commands_confined: strength().sufficient(),
        sandbox: strength().to_string(),
        limits: Limits::default().to_string(),
        compaction: CompactionSettings {
            enabled: false,
            model: None,
            trigger_threshold: 0.9,
            recent_preserve_ratio: 0.25,
        },
        allow_urls: false,
        recall: 0,
        tasks: Default::default(),
        max_concurrent: 1,
        max_queued: 1,
        tree: Default::default(),
    };
    Engine::new(parts, settings)
}

/// Waits for something another process does.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes the call it was told to make, once.
#[derive(Default)]
struct OneCall(Mutex<Option<ToolCall>>);

#[async_trait]
impl Provider for OneCall {
    async fn stream(&self, _: ModelCall) -> Result<EventStream, ProviderError> {
        let call = self.0.lock().unwrap().take().map(Part::Call);
        let parts = vec![call.unwrap_or_else(|| Part::text("done"))];
        let answer = Answer { parts, ..Answer::default() };
        Ok(stream::iter([Ok(ProviderEvent::Done(Box::new(answer)))]).boxed())
    }
}

struct OneModel(Arc<OneCall>);

impl Models for OneModel {
    fn resolve(&self, _: Option<&str>) -> Result<Model, ModelError> {
        let info =
            ModelInfo { context_window: 1_000_000, ..ModelInfo::undescribed("none", "none", "m") };
        Ok(Model { info: Arc::new(info), provider: self.0.clone() })
    }

    fn learn(&self, _: &ModelInfo, _: Lesson) {}
}

/// Fills the places that no command looks at.
struct Nobody;

impl Prompts for Nobody {
    fn load(&self, _: &Path) -> Prompt {
        Prompt { text: "prompt".into(), source: None }
    }
}

impl TokenCounter for Nobody {
    fn count(&self, _: &str) -> u32 {
        0
    }
}

#[async_trait]
impl Colleagues for Nobody {
    async fn create(&self, _: &Agent, _: AgentSpec) -> Result<Agent, String> {
        Err("there is nobody else".into())
    }

    async fn find(&self, _: &Agent, _: &AgentId, _: Action) -> Result<Agent, String> {
        Err("there is nobody else".into())
    }

    async fn ask(
        &self,
        _: &Agent,
        _: &AgentId,
        _: String,
        _: &CancellationToken,
        _: Announce,
    ) -> Result<TurnOutcome, String> {
        Err("there is nobody else".into())
    }

    async fn destroy(&self, _: &Agent, _: &AgentId) -> Result<Vec<AgentId>, String> {
        Err("there is nobody else".into())
    }
}
