//! Puts the parts together: configuration, store, models, prompts and logs into one engine with its dispatcher.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nexus_check::Workers;
use nexus_config::prompts::PromptFiles;
use nexus_config::{
    BuiltIn, Config, Embeddings, Fallbacks, Hmac, HmacMode, ModelCatalog, RateLimit, said,
};
use nexus_core::Requester;
use nexus_core::compact::CompactionSettings;
use nexus_core::embed::Embedder;
use nexus_core::engine::{Engine, Parts, Settings};
use nexus_core::lifecycle::ListQuery;
use nexus_core::logs::AgentLogs;
use nexus_core::mcp::{ServerEntry, ServerSource};
use nexus_core::toolbox::Toolbox;
use nexus_local::{Local, LocalEmbedder};
use nexus_mcp::{Entries, Ground, Results, Servers};
use nexus_models::tokenizer::Tokenizer;
use nexus_models::{RemoteEmbedder, ollama};
use nexus_server::auth::AgentTokens;
use nexus_server::calls::CallLog;
use nexus_server::context_token::ContextTokens;
use nexus_server::metrics::Figures;
use nexus_server::rates::RateLimits;
use nexus_server::signing::{self, Configured, Mode, Signatures};
use nexus_server::{Dispatcher, Services};
use nexus_signing::{SECRET_BYTES_MIN, Secret};
use nexus_store::{OpenError, Remembered, SqliteStore};
use nexus_tools::CommandSettings;
use nexus_tools::sandbox::{self, Launcher, Limits};
use serde_json::{Map, Value};

use crate::begun;
pub use crate::home::home;
use crate::meanings::Meanings;
use crate::traces::Traces;
use crate::unused;

pub fn cwd() -> anyhow::Result<PathBuf> {
    std::env::current_dir().context("the current directory is gone")
}

pub fn load_config(home: &Path, model: Option<String>) -> anyhow::Result<Config> {
    let mut config = Config::load(home, &cwd()?, &|name| std::env::var(name).ok())?;
    config.default_model = model.or(config.default_model);
    Ok(config)
}

/// A running engine and the door to it.
pub struct Wired {
    pub engine: Arc<Engine>,
    pub dispatcher: Arc<Dispatcher>,
    pub agent_tokens: AgentTokens,
    /// Of the built-in model.
    pub weights: Weights,
    pub(crate) traces: Traces,
    catalog: Arc<ModelCatalog>,
    home: PathBuf,
}

impl Wired {
    /// Which model answers, for the start of the program.
    pub fn models(&self) -> String {
        self.catalog.describe(&self.home)
    }
}

/// Where the program writes what it does.
pub struct Logs {
    pub agents: Arc<dyn AgentLogs>,
    /// Where the agents' logs lie, in which the words of all of them are; closed to them.
    pub agents_dir: Option<PathBuf>,
    pub calls: Arc<dyn CallLog>,
}

impl Logs {
    /// Writes nothing.
    pub fn none() -> Self {
        Self { agents: Arc::new(()), agents_dir: None, calls: Arc::new(()) }
    }
}

/// How the store under a home is opened. The fault harness opens one that breaks on purpose.
pub type OpenStore<'a> = &'a dyn Fn(&Path) -> Result<SqliteStore, OpenError>;

/// Wires an engine that keeps its files in `home` and whose agents work in `cwd` unless they are told otherwise. Their
/// commands are started by `launcher`.
pub async fn wire(
    home: &Path,
    cwd: &Path,
    config: &Config,
    logs: Logs,
    launcher: Launcher,
) -> anyhow::Result<Wired> {
    wire_on(SqliteStore::open(home)?, home, cwd, config, logs, launcher).await
}

/// The same on a store that is open.
pub async fn wire_on(
    store: SqliteStore,
    home: &Path,
    cwd: &Path,
    config: &Config,
    logs: Logs,
    launcher: Launcher,
) -> anyhow::Result<Wired> {
    let cwd = cwd.canonicalize().context("the working directory")?;
    let weights = Weights::of_built_in(home)?;
    let figures = Arc::new(Figures::default());
    store.observe(figures.clone());
    let traces = Traces::start(&figures);
    let store = Arc::new(store);
    let remembered = Remembered::load(store.clone()).await?;
    let catalog = catalog_with(&weights, home, config)?.with_learned(remembered.clone());
    let catalog = Arc::new(catalog.with_pauses(remembered));
    let tasks = &config.tasks;
    let named = [&config.default_model, &tasks.planner, &tasks.executor].into_iter().flatten();
    for name in named.chain(tasks.by_type.values()) {
        nexus_core::provider::Models::resolve(&*catalog, Some(name))?;
    }
    let embedder = embedder(&catalog, config)?;
    let mut protected = protected(home);
    protected.extend(logs.agents_dir);
    let servers = mcp_servers(home, config, launcher.clone());
    let results = servers.results().clone();
    let parts = Parts {
        store: store.clone(),
        models: catalog.clone(),
        prompts: Arc::new(PromptFiles::new(home, config.context.clone())),
        logs: logs.agents,
        counter: Arc::new(Tokenizer),
        intake: nexus_tools::attach::intake(&launcher, config.images.side_max),
        checker: Arc::new(Workers::new(launcher.program().to_owned())),
        toolbox: toolbox(&protected, config, launcher)
            .with_source(servers)
            .deferring(config.mcp_defer_tokens),
        observer: traces.observer(figures.clone()),
    };
    let strength = sandbox::strength();
    let settings = Settings {
        cwd,
        protected,
        default_preset: config.permissions.default_preset.clone(),
        presets: config.permissions.presets.clone().into_iter().collect(),
        max_tool_iterations: config.max_tool_iterations,
        max_concurrent_tools: config.max_concurrent_tools,
        max_calls_per_step: config.max_calls_per_step,
        tool_timeout: config.skill_timeout,
        approvals: config.permissions.approvals,
        approval_timeout: config.permissions.approval_timeout,
        network: config.permissions.network,
        commands_confined: strength.sufficient(),
        sandbox: strength.to_string(),
        limits: limits(config).to_string(),
        compaction: CompactionSettings {
            enabled: config.compaction.enabled,
            model: config.compaction.model.clone(),
            trigger_threshold: config.compaction.trigger_threshold,
            recent_preserve_ratio: config.compaction.recent_preserve_ratio,
        },
        allow_urls: config.images.allow_urls,
        recall: config.memory.recall,
        tasks: config.tasks.clone(),
        max_concurrent: config.server.max_concurrent,
        max_queued: config.server.max_queued,
        tree: config.server.tree,
    };
    let engine = Engine::new(parts, settings);
    tokio::spawn(sweep(Arc::downgrade(&engine), config.server.clone()));
    tokio::spawn(clear_results(results, Arc::downgrade(&engine)));
    let meanings = Meanings::new(store, embedder);
    engine.memories.find_by(meanings.clone());
    tokio::spawn(Meanings::keep_up(Arc::downgrade(&meanings)));
    tokio::spawn(weights.clone().watch(Arc::downgrade(&engine)));
    let agent_tokens = AgentTokens::new()?;
    let services = Services::new(engine.clone(), agent_tokens.clone(), logs.calls)
        .with_context_tokens(context_tokens())
        .with_signatures(signatures(&config.hmac)?)
        .with_failures_max(config.server.rate_limit.failed_logins)
        .with_figures(figures)
        .with_home(home.to_path_buf())
        .with_rate_limits(rate_limits(&config.server.rate_limit)?);
    let dispatcher = nexus_server::dispatcher(services);
    let home = home.to_path_buf();
    tokio::spawn(unused::clear(home.clone(), Arc::downgrade(&dispatcher)));
    Ok(Wired { engine, dispatcher, agent_tokens, weights, traces, catalog, home })
}

/// The limits of the configuration, which may name methods that there are.
fn rate_limits(written: &RateLimit) -> anyhow::Result<RateLimits> {
    let known = nexus_server::methods();
    for name in written.methods.keys() {
        let there = known.iter().any(|method| method.name == name);
        ensure!(there, "server.rate_limit.methods: there is no method {name}");
    }
    Ok(RateLimits { calls: written.calls, methods: written.methods.clone() })
}

/// What checks signatures, with the secrets that the environment holds.
fn signatures(written: &Hmac) -> anyhow::Result<Signatures> {
    let mode = signing_mode(written);
    if mode == Mode::Off {
        return Ok(Signatures::off());
    }
    let key = |variable: &str, at: &str| -> anyhow::Result<signing::Key> {
        let secret = std::env::var(variable).unwrap_or_default();
        ensure!(!secret.is_empty(), "auth.hmac.{at}: the environment has no {variable}");
        ensure!(
            secret.len() >= SECRET_BYTES_MIN,
            "auth.hmac.{at}: {variable} must be at least {SECRET_BYTES_MIN} bytes long"
        );
        let secret = Secret::new(&secret);
        Ok(signing::Key { secret, methods: None, agent: None, born: None, expires_at: None })
    };
    let unnamed = written.secret_env.as_ref().map(|it| key(it, "secret_env").map(Arc::new));
    let mut named = HashMap::new();
    for (name, written) in &written.keys {
        let key = key(&written.secret_env, &format!("keys.{name}.secret_env"))?;
        let (methods, agent) = (written.methods.clone(), written.agent.clone());
        named.insert(name.clone(), Arc::new(signing::Key { methods, agent, ..key }));
    }
    let configured = Configured { unnamed: unnamed.transpose()?, named };
    Ok(Signatures::new(mode, configured, begun::at()))
}

pub fn signing_mode(written: &Hmac) -> Mode {
    match written.mode {
        HmacMode::Off => Mode::Off,
        HmacMode::Optional => Mode::Optional,
        HmacMode::Required => Mode::Required,
    }
}

/// Who says what memories mean.
pub fn embedder(catalog: &ModelCatalog, config: &Config) -> anyhow::Result<Arc<dyn Embedder>> {
    let Some(Embeddings { provider, model, dimensions }) = &config.memory.embeddings else {
        return Ok(Arc::new(LocalEmbedder::new()));
    };
    let entry = catalog.providers().find(|entry| entry.name == *provider);
    let settings = entry.and_then(|entry| catalog.settings(entry));
    let settings = settings.with_context(|| {
        format!("memory.embeddings.provider: there is no service {provider} among the providers")
    })?;
    Ok(Arc::new(RemoteEmbedder::new(&settings, model, *dimensions as usize)?))
}

/// Holds the key of tokens that say for whom a sandbox speaks.
pub const CONTEXT_SECRET: &str = "ASH_CONTEXT_TOKEN_SECRET";

/// What makes and checks such tokens; `None` where there is no key.
pub fn context_tokens() -> Option<ContextTokens> {
    std::env::var(CONTEXT_SECRET).ok().and_then(|secret| ContextTokens::new(&secret))
}

/// Where the weights of models lie that run here.
pub fn models_dir(home: &Path) -> anyhow::Result<PathBuf> {
    match std::env::var_os("NEXUS3_MODELS").filter(|directory| !directory.is_empty()) {
        Some(directory) => std::path::absolute(directory).context("NEXUS3_MODELS"),
        None => Ok(home.join("models")),
    }
}

/// The models of the configuration, or what is found on this machine.
pub fn catalog(home: &Path, config: &Config) -> anyhow::Result<ModelCatalog> {
    catalog_with(&Weights::of_built_in(home)?, home, config)
}

fn catalog_with(weights: &Weights, home: &Path, config: &Config) -> anyhow::Result<ModelCatalog> {
    let built_in = BuiltIn {
        provider: Arc::new(Local::new(models_dir(home)?)),
        installed: weights.there.clone(),
    };
    let env = |name: &str| std::env::var(name).ok();
    let ollama = || ollama::find(env("OLLAMA_HOST").as_deref());
    let fallbacks = Fallbacks { ollama: &ollama, built_in: Some(built_in) };
    Ok(ModelCatalog::new(config, Arc::new(env), fallbacks).with_said(said::read(home)))
}

/// Whether the built-in model's weights are on disk, as of the last look: to find a model must not touch the disk.
#[derive(Clone)]
pub struct Weights {
    file: PathBuf,
    there: Arc<AtomicBool>,
}

/// Between two looks for weights that another process may fetch.
const WEIGHTS_PAUSE: Duration = Duration::from_secs(1);

impl Weights {
    fn of_built_in(home: &Path) -> anyhow::Result<Self> {
        let file = crate::model::default_file(&models_dir(home)?);
        let there = Arc::new(AtomicBool::new(file.is_file()));
        Ok(Self { file, there })
    }

    /// Looks again. They stay known once they were seen: what is wrong with them later, a call says.
    pub async fn look(&self) {
        let (file, there) = (self.file.clone(), self.there.clone());
        let look = move || there.fetch_or(file.is_file(), Ordering::Relaxed);
        let _ = tokio::task::spawn_blocking(look).await;
    }

    /// Looks until they are there, for as long as there is an engine.
    async fn watch(self, engine: Weak<Engine>) {
        while !self.there.load(Ordering::Relaxed) && engine.strong_count() > 0 {
            tokio::time::sleep(WEIGHTS_PAUSE).await;
            self.look().await;
        }
    }
}

/// Between two looks at which agents are idle.
const SWEEP_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Lets idle agents out of memory, ends idle temporary ones and removes what expired, for as long as there is an engine.
async fn sweep(engine: Weak<Engine>, server: nexus_config::Server) {
    let (idle, temp_idle) = (server.agent_idle_timeout, server.temp_agent_idle_timeout);
    let pause = (idle.min(temp_idle) / 4).min(SWEEP_PAUSE_MAX);
    loop {
        tokio::time::sleep(pause).await;
        let Some(engine) = engine.upgrade() else { return };
        engine.agents.sweep(idle, temp_idle).await;
        if let Err(error) = engine.memories.sweep().await {
            tracing::warn!(%error, "expired memories were not removed");
        }
        if let Err(error) = engine.answers.sweep().await {
            tracing::warn!(%error, "old answers were not removed");
        }
    }
}

/// Agents that are looked at together: there may be very many.
const AGENTS_AT_ONCE: u32 = 1_000;

/// Removes long results of agents that ended while nobody had an eye on what is kept for them.
async fn clear_results(results: Arc<Results>, engine: Weak<Engine>) {
    let kept = results.clone();
    let left = tokio::task::spawn_blocking(move || kept.keepers()).await.unwrap_or_default();
    let Some(engine) = engine.upgrade().filter(|_| !left.is_empty()) else { return };
    let (mut there, mut after, mut more) = (HashSet::new(), None, true);
    while more {
        let query = ListQuery { after, limit: Some(AGENTS_AT_ONCE) };
        let Ok(page) = engine.agents.list(&Requester::Administrator, query).await else { return };
        there.extend(page.cards.iter().map(|card| card.record.created_at));
        after = page.cards.last().map(|card| card.record.id.clone());
        more = page.more && after.is_some();
    }
    let forget = move || {
        let gone = left.into_iter().filter(|born| !there.contains(born));
        gone.for_each(|born| results.forget_stored(born));
    };
    let _ = tokio::task::spawn_blocking(forget).await;
}

/// The program's own files: whoever can read them is the administrator.
pub fn protected(home: &Path) -> BTreeSet<PathBuf> {
    [home.canonicalize().unwrap_or_else(|_| home.to_path_buf())].into()
}

/// What each command may take.
fn limits(config: &Config) -> Limits {
    let usual = Limits::default();
    Limits {
        memory_bytes: config.commands.memory_bytes.unwrap_or(usual.memory_bytes),
        processes: config.commands.processes.unwrap_or(usual.processes),
        processor_time: config.commands.processor_time.unwrap_or(usual.processor_time),
    }
}

/// The variables of this process that are text.
fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |text: OsString| text.into_string().ok();
    std::env::vars_os().filter_map(move |(name, value)| Some((text(name)?, text(value)?)))
}

/// The MCP servers of the configuration, none of which runs.
pub fn mcp_servers(home: &Path, config: &Config, launcher: Launcher) -> Arc<Servers> {
    let ground = Ground {
        intake: nexus_tools::attach::intake(&launcher, config.images.side_max),
        results: Arc::new(Results::new(home.join("mcp/results"))),
        launcher,
        strength: sandbox::strength(),
        limits: limits(config),
        embedder: Arc::new(LocalEmbedder::new()),
        home: home.canonicalize().unwrap_or_else(|_| home.to_path_buf()),
        entries: Box::new(OwnEntries),
        variables: variables().collect(),
    };
    Servers::new(config.mcp_servers.clone(), ground)
}

/// Reads the entries of MCP servers that are one agent's as those of the configuration are read.
struct OwnEntries;

impl Entries for OwnEntries {
    fn read(
        &self,
        name: &str,
        source: ServerSource,
        config: &Map<String, Value>,
    ) -> Result<ServerEntry, String> {
        let user_home = std::env::home_dir();
        nexus_config::own_server(name, source, config, user_home.as_deref())
    }

    fn unusable(&self, name: &str, source: ServerSource, why: String) -> ServerEntry {
        nexus_config::unusable_server(name, source, why)
    }
}

/// Every tool this server has of its own.
fn toolbox(protected: &BTreeSet<PathBuf>, config: &Config, launcher: Launcher) -> Toolbox {
    let files = nexus_tools::file_tools(&launcher, config.images.side_max).into_iter();
    let commands = CommandSettings {
        launcher,
        strength: sandbox::strength(),
        hidden: protected.clone(),
        variables: variables().collect(),
        tool_timeout: config.skill_timeout,
        limits: limits(config),
    };
    Toolbox::new(
        files
            .chain(nexus_tools::command_tools(commands))
            .chain(nexus_tools::agent_tools())
            .chain(nexus_tools::memory_tools())
            .chain([nexus_tools::plan_tool()]),
    )
}
