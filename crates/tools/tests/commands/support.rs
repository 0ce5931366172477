//! An agent with the command tools in a directory of its own.
//!
//! `World::new` makes a temporary directory with `cwd` (the agent's) and `outside` (with a file `secret`) in it. Tools
//! are run with whatever permissions a test hands over; [`World::trusted`] and [`World::confined`] are the two usual
//! ones. The launcher is the binary in `launcher.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nexus_config::prompts::PromptFiles;
use nexus_config::{Config, Fallbacks, ModelCatalog};
use nexus_core::agent::Agent;
use nexus_core::approval::ApprovalMode;
use nexus_core::authority::Requester;
use nexus_core::compact::CompactionSettings;
use nexus_core::create::AgentSpec;
use nexus_core::engine::{Engine, Parts, Settings};
use nexus_core::paths;
use nexus_core::permission::{Level, Permissions, Preset, Reach};
use nexus_core::tool::{Access, Call, Need, Tool, Toolbox};
use nexus_models::tokenizer::Tokenizer;
use nexus_store::SqliteStore;
use nexus_tools::sandbox::{Launcher, strength};
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
    agent: Arc<Agent>,
    _dir: tempfile::TempDir,
}

pub const SECRET: &str = "not-for-agents";

impl World {
    pub async fn new() -> Self {
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
        let engine = engine(&home, &cwd).await;
        let spec = AgentSpec { name: Some("a".into()), ..AgentSpec::default() };
        let agent = engine.create_agent(&Requester::Administrator, spec).await.unwrap();
        let tools = command_tools(CommandSettings {
            launcher: launcher(),
            strength: strength(),
            hidden: BTreeSet::from([hidden.clone()]),
            variables: std::env::vars().chain([("A_KEY".into(), SECRET.into())]).collect(),
            tool_timeout: Duration::from_secs(120),
        });
        Self { cwd, outside, hidden, tools, engine, agent, _dir: dir }
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
        let (engine, agent) = (self.engine.clone(), self.agent.clone());
        let access = Access { cwd: self.cwd.clone(), command_dir, permissions };
        tool.run(Call { engine, agent, arguments, access, cancel, announce: Arc::new(|_| {}) })
            .await
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

async fn engine(home: &Path, cwd: &Path) -> Arc<Engine> {
    let config = Config::load(home, cwd, &|_| None).unwrap();
    let parts = Parts {
        store: Arc::new(SqliteStore::open(home).unwrap()),
        models: Arc::new(ModelCatalog::new(&config, Arc::new(|_| None), Fallbacks::none())),
        prompts: Arc::new(PromptFiles::new(home, config.context.clone())),
        logs: Arc::new(()),
        counter: Arc::new(Tokenizer),
        toolbox: Toolbox::default(),
    };
    let settings = Settings {
        cwd: cwd.into(),
        protected: BTreeSet::new(),
        default_preset: config.permissions.default_preset.clone(),
        presets: Default::default(),
        max_tool_iterations: 1,
        max_concurrent_tools: 1,
        tool_timeout: Duration::from_secs(120),
        approvals: ApprovalMode::Deny,
        network: true,
        commands_confined: strength().sufficient(),
        sandbox: strength().to_string(),
        compaction: CompactionSettings {
            enabled: false,
            model: None,
            trigger_threshold: 0.9,
            recent_preserve_ratio: 0.25,
        },
        max_concurrent: 1,
        max_queued: 1,
    };
    Engine::open(parts, settings).await.unwrap()
}

/// Waits for something another process does.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
