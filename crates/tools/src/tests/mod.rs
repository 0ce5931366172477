//! The file tools as the gate calls them, on a real directory: `work`, which the agent may read and write, beside
//! `outside`, which it may not.

mod attaching;
mod changes;
mod changing;
mod escapes;
mod looking;
mod mounts;
mod patching;
mod previews;
mod specs;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nexus_core::approval::{Announce, ApprovalMode};
use nexus_core::authority::Action;
use nexus_core::compact::CompactionSettings;
use nexus_core::engine::{Parts, Settings};
use nexus_core::events::TurnOutcome;
use nexus_core::gate::Ruling;
use nexus_core::lifecycle::AgentSpec;
use nexus_core::listing::Lesson;
use nexus_core::model::ModelInfo;
use nexus_core::permission::{Permissions, Preset, Reach};
use nexus_core::prompt::{Prompt, Prompts};
use nexus_core::provider::{
    EventStream, Model, ModelCall, ModelError, Models, Provider, ProviderError,
};
use nexus_core::tokens::TokenCounter;
use nexus_core::tool::{Access, Colleagues, Invocation, Onlookers, ToolOutput};
use nexus_core::toolbox::Toolbox;
use nexus_core::{Agent, AgentId, Engine, Requester};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::file_tools;
use super::sandbox::{LAUNCHER_ARGUMENT, Launcher, confine_main};
use nexus_store::SqliteStore;

/// How large images are shown.
const SIDE_MAX: u32 = 1568;

struct World {
    root: TempDir,
    engine: Arc<Engine>,
    agent: Agent,
}

impl World {
    async fn new() -> Self {
        // In memory where that is possible: the escapes lay out their directories thousands of times.
        let memory = Path::new("/dev/shm");
        let root = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
        for dir in ["work", "outside", "home"] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
        }
        let (engine, agent) = engine(root.path()).await;
        Self { root, engine, agent }
    }

    /// Free of links, as permissions are.
    fn root(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    fn work(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root().join("work").join(path)
    }

    fn outside(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root().join("outside").join(path)
    }

    fn put(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.work(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    fn get(&self, path: &str) -> String {
        String::from_utf8(std::fs::read(self.work(path)).unwrap()).unwrap()
    }

    /// May read and write `work`.
    fn access(&self) -> Access {
        let work = self.work("");
        let permissions =
            Preset::built_in("sandboxed").unwrap().apply(&work, std::slice::from_ref(&work));
        Access { command_dir: work.clone(), cwd: work, permissions, footprint: None }
    }

    fn access_with(&self, change: impl FnOnce(&mut Permissions)) -> Access {
        let mut access = self.access();
        change(&mut access.permissions);
        access
    }

    /// May do anything, but not in `outside`.
    fn access_blocked(&self) -> Access {
        self.access_with(|permissions| {
            permissions.read = Reach::Anywhere;
            permissions.write = Reach::Anywhere;
            permissions.blocked.insert(self.outside(""));
        })
    }

    async fn run(&self, tool: &str, arguments: Value) -> Result<String, String> {
        self.run_within(self.access(), tool, arguments).await
    }

    /// What the text of a result does not say.
    async fn shown(&self, tool: &str, arguments: Value) -> Result<ToolOutput, String> {
        self.output(self.access(), tool, arguments).await
    }

    /// Runs a call as if the gate had let it through.
    async fn run_within(
        &self,
        access: Access,
        tool: &str,
        arguments: Value,
    ) -> Result<String, String> {
        Ok(self.output(access, tool, arguments).await?.text)
    }

    async fn output(
        &self,
        access: Access,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolOutput, String> {
        self.output_before(Arc::new(()), access, tool, arguments).await
    }

    async fn output_before(
        &self,
        onlookers: Arc<dyn Onlookers>,
        access: Access,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolOutput, String> {
        let tools = file_tools(&Launcher::own(), SIDE_MAX);
        let tool = tools.iter().find(|known| known.spec().name == tool).unwrap();
        tool.run(Invocation {
            agent: self.agent.clone(),
            id: "call".into(),
            ticket: None,
            arguments,
            access,
            cancel: Default::default(),
            announce: Announce::new(|_| {}, None),
            onlookers,
            people: Arc::new(()),
            colleagues: Arc::new(Silent),
            memories: self.engine.memories.clone(),
        })
        .await
    }

    /// Runs a call if the gate lets it through.
    async fn run_gated(&self, tool: &str, arguments: Value) -> Result<String, String> {
        match self.engine.gate.decide(&self.agent.snapshot(), tool, &arguments).await {
            Ok((_, Ruling::Allowed(access))) => self.run_within(access, tool, arguments).await,
            Ok((_, Ruling::Ask { reason, .. })) => Err(reason),
            Err(refusal) => Err(refusal.to_string()),
        }
    }
}

async fn engine(root: &Path) -> (Arc<Engine>, Agent) {
    let parts = Parts {
        store: Arc::new(SqliteStore::open(&root.join("home")).unwrap()),
        models: Arc::new(Silent),
        prompts: Arc::new(Silent),
        logs: Arc::new(()),
        counter: Arc::new(Silent),
        toolbox: Toolbox::new(file_tools(&Launcher::own(), SIDE_MAX)),
        intake: Arc::new(()),
        checker: Arc::new(()),
        observer: Arc::new(()),
    };
    let work = root.join("work");
    let settings = Settings {
        cwd: work.clone(),
        protected: Default::default(),
        default_preset: "sandboxed".into(),
        presets: Default::default(),
        max_tool_iterations: 3,
        max_concurrent_tools: 10,
        max_calls_per_step: 128,
        tool_timeout: Duration::from_secs(60),
        approvals: ApprovalMode::Deny,
        approval_timeout: Duration::from_secs(120),
        network: true,
        commands_confined: true,
        sandbox: "none".into(),
        limits: "none".into(),
        compaction: CompactionSettings {
            enabled: false,
            model: None,
            trigger_threshold: 0.9,
            recent_preserve_ratio: 0.25,
        },
        allow_urls: false,
        recall: 0,
        tasks: Default::default(),
        max_concurrent: 4,
        max_queued: 4,
        tree: Default::default(),
    };
    let engine = Engine::new(parts, settings);
    let spec = AgentSpec {
        name: Some("a".into()),
        cwd: Some(work.to_str().unwrap().into()),
        write_paths: vec![work.to_str().unwrap().into()],
        ..AgentSpec::default()
    };
    let agent = engine.agents.create(&Requester::Administrator, spec).await.unwrap();
    (engine, agent)
}

/// Fills the places that no tool looks at.
struct Silent;

#[async_trait]
impl Provider for Silent {
    async fn stream(&self, _: ModelCall) -> Result<EventStream, ProviderError> {
        Err(ProviderError::Unavailable("there is no model".into()))
    }
}

impl Models for Silent {
    fn resolve(&self, _: Option<&str>) -> Result<Model, ModelError> {
        let info = ModelInfo::undescribed("none", "none", "m");
        Ok(Model { info: Arc::new(info), provider: Arc::new(Silent) })
    }

    fn learn(&self, _: &ModelInfo, _: Lesson) {}
}

impl Prompts for Silent {
    fn load(&self, _: &Path) -> Prompt {
        Prompt { text: "prompt".into(), source: None }
    }
}

impl TokenCounter for Silent {
    fn count(&self, _: &str) -> u32 {
        0
    }
}

#[async_trait]
impl Colleagues for Silent {
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

/// No test: this program is also the launcher of the tools under test, which start it again with this name.
#[test]
fn __confine() {
    if std::env::args().nth(1).is_some_and(|first| first == LAUNCHER_ARGUMENT) {
        confine_main();
    }
}

/// Calls that change a file of three lines, `one`, `two` and `three`, each with the hunks that this makes.
fn edits() -> Vec<(&'static str, Value, &'static str)> {
    const MIDDLE: &str = "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
    const LONGER: &str = "@@ -1,3 +1,4 @@\n one\n two\n three\n+four\n";
    let diff = "--- a/a\n+++ b/a\n@@ -2 +2 @@\n-two\n+2\n";
    vec![
        ("write_file", json!({"path": "a", "content": "one\n2\nthree\n"}), MIDDLE),
        ("edit_file", json!({"path": "a", "old_string": "two", "new_string": "2"}), MIDDLE),
        ("edit_lines", json!({"path": "a", "start": 2, "end": 2, "text": "2"}), MIDDLE),
        ("regex_replace", json!({"path": "a", "pattern": "tw.", "replacement": "2"}), MIDDLE),
        ("patch", json!({"diff": diff}), MIDDLE),
        ("append_file", json!({"path": "a", "content": "four\n"}), LONGER),
    ]
}
