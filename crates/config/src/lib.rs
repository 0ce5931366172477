//! The configuration: JSON files in layers, checked key by key, made into plain values.
//!
//! `schema` says which keys there are, `value` what each may hold, `layers` finds and merges the files, `trust` keeps
//! the list of directories whose files may set everything, `presets`, `providers`, `service`, `entries` and `terminal`
//! check what spans several keys, `mcp` finds the MCP servers, and `models` turns the providers into something that can be called: `figures` says
//! what is known of a model, `list` what models there are. `docs/configuration.md` lists every key.

mod auth;
mod entries;
mod figures;
pub mod files;
mod layers;
mod list;
mod mcp;
mod models;
mod presets;
pub mod prompts;
mod providers;
pub mod said;
mod schema;
mod service;
mod terminal;
#[cfg(test)]
mod tests;
mod trust;
mod value;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nexus_core::AgentId;
use nexus_core::account::Bounds;
use nexus_core::approval::ApprovalMode;
use nexus_core::executor::TaskModels;
use nexus_core::mcp::ServerEntry;
use nexus_core::model::{Inputs, Reasoning};
use nexus_core::permission::Preset;
use nexus_core::plan::TaskType;
use nexus_core::toolbox::DEFER_TOKENS;
use nexus_core::usage::Prices;
use serde_json::{Map, Value};
use thiserror::Error;

pub use mcp::{check_servers, own_server, unusable_server};
pub use models::{BUILT_IN, BuiltIn, Env, Fallbacks, ModelCatalog};
pub use presets::WRITE_TOOLS;
pub use terminal::{Bell, Terminal, Thoughts, Wrap};
pub use trust::{servers as servers_of_project, trust, trusted, untrust};

use layers::Layers;
use nexus_models::ProviderSettings;
use value::{Object, Text};

/// Everything that can be configured, with defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    pub default_model: Option<String>,
    /// In the order of the files: the first model of the first provider is the default one.
    pub providers: Vec<ProviderEntry>,
    pub max_tool_iterations: u32,
    pub max_concurrent_tools: usize,
    /// Tool calls that a model may make in one step.
    pub max_calls_per_step: usize,
    /// How long one tool call may take.
    pub skill_timeout: Duration,
    pub permissions: Permissions,
    pub commands: Commands,
    pub compaction: Compaction,
    pub context: Context,
    pub images: Images,
    pub memory: Memory,
    /// Which models plan and carry out tasks.
    pub tasks: TaskModels,
    pub server: Server,
    pub terminal: Terminal,
    pub doors: Doors,
    pub hmac: Hmac,
    /// The MCP servers whose tools agents may use, by name.
    pub mcp_servers: Vec<ServerEntry>,
    /// Tokens of their tools that models are shown in full.
    pub mcp_defer_tokens: u32,
}

#[derive(Clone, Debug)]
pub struct ProviderEntry {
    pub name: String,
    pub backend: Backend,
    /// The variable that holds the key; none when no key is sent.
    pub key_env: Option<String>,
    /// Whether the provider is of no use without the key. A server on one's own machine often asks for none.
    pub key_required: bool,
    pub models: Vec<ModelEntry>,
}

/// What stands behind a provider's name.
#[derive(Clone, Debug)]
pub enum Backend {
    /// Everything but the key, which is looked up when it is needed.
    Service(Box<ProviderSettings>),
    /// Models that run in this process; a model's id is its name among the installed ones, or its path.
    Local,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelEntry {
    pub alias: String,
    /// The provider's own name for the model.
    pub id: String,
    pub context_window: Option<u32>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    pub reasoning: Reasoning,
    pub inputs: Option<Inputs>,
    pub prices: Option<Prices>,
    /// Names of models that take its place for a step, all of which are there.
    pub fallback: Vec<String>,
    pub fallback_on_refusal: bool,
    pub extra_body: Map<String, Value>,
}

impl ModelEntry {
    /// A model of which only the name is said.
    pub fn named(id: impl Into<String>) -> Self {
        let id = id.into();
        Self {
            alias: id.clone(),
            id,
            context_window: None,
            max_output_tokens: None,
            reasoning: Reasoning::Off,
            inputs: None,
            prices: None,
            fallback: Vec::new(),
            fallback_on_refusal: false,
            extra_body: Map::new(),
        }
    }
}

fn memory(written: schema::Memory) -> Memory {
    let embeddings = written.embeddings.map(|Object(it)| Embeddings {
        provider: it.provider.0,
        model: it.model.0,
        dimensions: it.dimensions.0,
    });
    Memory { recall: written.recall.map_or(0, |it| it.0), embeddings }
}

fn doors(written: schema::Doors) -> Result<Doors, Fault> {
    let mut expose = BTreeMap::new();
    for (name, purpose) in written.expose.into_iter().flat_map(|it| it.into_entries()) {
        let id = AgentId::parse(&name)
            .map_err(|error| Fault::new(&["doors", "expose", &name], error.to_string()))?;
        expose.insert(id, text(purpose));
    }
    Ok(Doors {
        mcp: written.mcp.unwrap_or(true),
        openai: written.openai.unwrap_or(true),
        websocket: written.websocket.unwrap_or(true),
        expose,
    })
}

/// Other protocols at the same port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doors {
    /// `POST /mcp`.
    pub mcp: bool,
    /// `/v1`.
    pub openai: bool,
    /// `/ws`.
    pub websocket: bool,
    /// Agents that are tools of their own there, with what they are for.
    pub expose: BTreeMap<AgentId, String>,
}

fn tasks(written: schema::Tasks) -> TaskModels {
    let by_type = section(written.executor_models);
    let by_type = [
        (TaskType::CodeGeneration, by_type.code_generation),
        (TaskType::Refactoring, by_type.refactoring),
        (TaskType::Analysis, by_type.analysis),
        (TaskType::Testing, by_type.testing),
    ];
    TaskModels {
        planner: written.planner_model.map(text),
        executor: written.executor_model.map(text),
        by_type: by_type.into_iter().filter_map(|(kind, name)| Some((kind, text(name?)))).collect(),
    }
}

/// What agents are reminded of, and how memories are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memories that are put before a turn; none when 0.
    pub recall: u32,
    /// Who says what memories mean, instead of the embedder that is built in.
    pub embeddings: Option<Embeddings>,
}

/// A model of a configured provider that makes vectors of so many numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embeddings {
    pub provider: String,
    pub model: String,
    pub dimensions: u32,
}

/// What is taken of images, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    /// The longest side in pixels; larger ones are made smaller.
    pub side_max: u32,
    /// Whether an image may be an address, which its provider then fetches.
    pub allow_urls: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Permissions {
    /// The name of a built-in or custom preset, never one of level yolo.
    pub default_preset: String,
    pub approvals: ApprovalMode,
    /// How long a question waits for its answer.
    pub approval_timeout: Duration,
    /// No file says whether any is asked.
    pub approvals_unsaid: bool,
    /// Whether agents below `yolo` may have the network at all. No file sets it: a server that asks for no token does.
    pub network: bool,
    /// The custom presets by name; the built-in ones are not among them.
    pub presets: BTreeMap<String, Preset>,
}

impl Permissions {
    /// For a server that a terminal started: unless a file says otherwise, questions are put while somebody is there.
    pub fn ask_who_watches(&mut self) {
        if self.approvals_unsaid {
            self.approvals = ApprovalMode::Auto { timeout: self.approval_timeout };
        }
    }

    /// For a program that somebody sits at: questions are put, whatever a file says.
    pub fn ask(&mut self) {
        self.approvals = ApprovalMode::Ask { timeout: self.approval_timeout };
    }
}

/// What a command of an agent may take, with all it starts; what is not said depends on the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Commands {
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub processor_time: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Compaction {
    pub enabled: bool,
    /// The model that writes the summary; the agent's own without one.
    pub model: Option<String>,
    /// The part of the context window at which older messages are summarised.
    pub trigger_threshold: f64,
    /// The part of the context window that stays verbatim.
    pub recent_preserve_ratio: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// How many directories above the working directory may add instructions.
    pub ancestor_depth: usize,
    /// In each directory the first of these that exists is read.
    pub instruction_files: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// `127.0.0.1`, `::1`, or `localhost` for both.
    pub host: String,
    pub port: u16,
    /// Where Prometheus finds the figures; nowhere when absent.
    pub metrics_port: Option<u16>,
    /// Turns that run at once.
    pub max_concurrent: usize,
    /// Turns that wait for a place.
    pub max_queued: usize,
    /// What each tree of agents may take.
    pub tree: Bounds,
    pub max_connections: usize,
    pub body_bytes_max: usize,
    pub answer_bytes_max: usize,
    pub header_bytes_max: usize,
    pub header_count_max: usize,
    /// Time to deliver a whole request.
    pub request_read_timeout: Duration,
    pub socket: Option<PathBuf>,
    pub socket_idle_timeout: Duration,
    pub shutdown_grace: Duration,
    /// After so long without a call an agent leaves memory until the next one.
    pub agent_idle_timeout: Duration,
    /// After so long without a call a temporary agent ends.
    pub temp_agent_idle_timeout: Duration,
    pub rate_limit: RateLimit,
}

/// What is allowed in a minute; what is absent has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Calls of each caller.
    pub calls: Option<u32>,
    /// Calls of single methods of each caller.
    pub methods: BTreeMap<String, u32>,
    /// Callers that were not let in.
    pub failed_logins: Option<u32>,
}

/// Whether and with what callers sign their requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hmac {
    pub mode: HmacMode,
    /// The variable that holds the secret of requests that name no key.
    pub secret_env: Option<String>,
    pub keys: BTreeMap<String, HmacKey>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HmacMode {
    #[default]
    Off,
    /// A request may be signed, and then must be rightly.
    Optional,
    Required,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacKey {
    /// The variable that holds its secret.
    pub secret_env: String,
    /// `None` for all.
    pub methods: Option<Vec<String>>,
    /// In whose name it signs.
    pub agent: Option<AgentId>,
}

/// Why there is no configuration. Every text names the file.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {}", .file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("cannot write {}", .file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error("{}:{line}:{column}: {reason}", .file.display())]
    Syntax { file: PathBuf, line: usize, column: usize, reason: String },
    #[error("{}: {key}: {reason}", .file.display())]
    Key { file: PathBuf, key: String, reason: String },
    #[error(
        "{}: {key} may only be set by a directory you trust; to trust it: nexus3 trust {}",
        .file.display(), .dir.display()
    )]
    Untrusted { file: PathBuf, key: String, dir: PathBuf },
    #[error(
        "{}: changed since you trusted its directory, and sets {key}; look at it, then trust it anew: nexus3 trust {}",
        .file.display(), .dir.display()
    )]
    Changed { file: PathBuf, key: String, dir: PathBuf },
}

impl Config {
    /// Reads all layers: defaults, `home/config.json`, then `.nexus3/config.json` of two ancestors and of `cwd`.
    /// `home` is the directory that holds the program's own files (`~/.nexus3`); `HOME` of `env` is what `~` means
    /// in a path.
    pub fn load(
        home: &Path,
        cwd: &Path,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let layers = Layers::read(home, cwd)?;
        let file = layers.merge()?;
        let user_home = env("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let mut config = resolve(file, user_home.as_deref()).map_err(|fault| {
            let key: Vec<&str> = fault.key.iter().map(String::as_str).collect();
            layers.blame(&key, fault.reason)
        })?;
        config.mcp_servers = mcp::resolve(layers.servers(), user_home.as_deref())?;
        Ok(config)
    }
}

impl Permissions {
    /// The preset of this name, custom or built in.
    pub fn preset(&self, name: &str) -> Option<Preset> {
        self.presets.get(name).cloned().or_else(|| Preset::built_in(name))
    }
}

/// A rule that the merged configuration breaks, before it is known which file is to blame.
#[derive(Debug)]
struct Fault {
    key: Vec<String>,
    reason: String,
}

impl Fault {
    fn new(key: &[&str], reason: String) -> Self {
        Self { key: key.iter().map(ToString::to_string).collect(), reason }
    }
}

fn resolve(file: schema::File, user_home: Option<&Path>) -> Result<Config, Fault> {
    let permissions = presets::resolve(section(file.permissions), user_home)?;
    Ok(Config {
        default_model: file.default_model.map(text),
        providers: providers::resolve(file.providers, user_home)?,
        max_tool_iterations: file.max_tool_iterations.map_or(100, |it| it.0),
        max_concurrent_tools: file.max_concurrent_tools.map_or(10, |it| it.0 as usize),
        max_calls_per_step: file.max_calls_per_step.map_or(128, |it| it.0 as usize),
        skill_timeout: file.skill_timeout.map_or(Duration::from_secs(600), |it| it.0),
        commands: commands(section(file.commands)),
        compaction: compaction(section(file.compaction))?,
        context: context(section(file.context))?,
        images: images(&section(file.images)),
        memory: memory(section(file.memory)),
        tasks: tasks(section(file.tasks)),
        server: server(section(file.server), user_home)?,
        terminal: terminal::resolve(section(file.terminal), &permissions)?,
        doors: doors(section(file.doors))?,
        mcp_defer_tokens: section(file.mcp).defer_tokens.map_or(DEFER_TOKENS, |it| it.0),
        permissions,
        hmac: auth::hmac(section(section(file.auth).hmac))?,
        mcp_servers: Vec::new(),
    })
}

fn commands(written: schema::Commands) -> Commands {
    Commands {
        memory_bytes: written.memory.map(|it| u64::from(it.0) << 20),
        processes: written.processes.map(|it| it.0.into()),
        processor_time: written.processor_time.map(|it| it.0),
    }
}

fn compaction(written: schema::Compaction) -> Result<Compaction, Fault> {
    let compaction = Compaction {
        enabled: written.enabled.unwrap_or(true),
        model: written.model.map(text),
        trigger_threshold: written.trigger_threshold.map_or(0.9, |it| it.0),
        recent_preserve_ratio: written.recent_preserve_ratio.map_or(0.25, |it| it.0),
    };
    if compaction.recent_preserve_ratio >= compaction.trigger_threshold {
        let reason =
            "must be below compaction.trigger_threshold, or compacting frees nothing".into();
        return Err(Fault::new(&["compaction", "recent_preserve_ratio"], reason));
    }
    Ok(compaction)
}

/// What services bring larger images to, so that more only costs more.
const IMAGE_SIDE: u32 = 1568;

fn images(written: &schema::Images) -> Images {
    Images {
        side_max: written.max_side.map_or(IMAGE_SIDE, |it| it.0),
        allow_urls: written.allow_urls.unwrap_or(false),
    }
}

/// Names tried in each directory; every one costs a look at the disk when a prompt is built.
const INSTRUCTION_FILES_MAX: usize = 16;

fn context(written: schema::Context) -> Result<Context, Fault> {
    let instruction_files = match written.instruction_files {
        Some(names) => names.into_iter().map(|name| name.0).collect(),
        None => ["NEXUS.md", "AGENTS.md", "CLAUDE.md", "README.md"].map(String::from).to_vec(),
    };
    if instruction_files.len() > INSTRUCTION_FILES_MAX {
        let reason = format!("more than {INSTRUCTION_FILES_MAX} names");
        return Err(Fault::new(&["context", "instruction_files"], reason));
    }
    Ok(Context {
        ancestor_depth: written.ancestor_depth.map_or(layers::ANCESTORS, |it| it.0 as usize),
        instruction_files,
    })
}

/// Long enough that a conversation with pauses stays in memory, short enough that yesterday's does not.
const AGENT_IDLE: Duration = Duration::from_secs(30 * 60);

/// A temporary agent is lost when it ends, so it gets the night.
const TEMP_IDLE: Duration = Duration::from_secs(24 * 60 * 60);

fn server(written: schema::Server, user_home: Option<&Path>) -> Result<Server, Fault> {
    let place = |Text(path): Text| {
        let path = presets::expand(&path, user_home)?;
        check_socket_path(&path).map(|()| path)
    };
    let tree = tree(&written);
    let socket = written.socket.map(place).transpose();
    let socket = socket.map_err(|reason| Fault::new(&["server", "socket"], reason))?;
    Ok(Server {
        host: written.host.map_or("localhost", |it| it.0).into(),
        // The schema's range is that of a port.
        port: written.port.map_or(8765, |it| it.0 as u16),
        metrics_port: written.metrics_port.map(|it| it.0 as u16),
        max_concurrent: written.max_concurrent.map_or(32, |it| it.0 as usize),
        max_queued: written.max_queued.map_or(1024, |it| it.0 as usize),
        tree,
        max_connections: written.max_connections.map_or(1024, |it| it.0 as usize),
        body_bytes_max: written.body_bytes_max.map_or(1024 * 1024, |it| it.0 as usize),
        answer_bytes_max: written.answer_bytes_max.map_or(16 * 1024 * 1024, |it| it.0 as usize),
        header_bytes_max: written.header_bytes_max.map_or(32 * 1024, |it| it.0 as usize),
        header_count_max: written.header_count_max.map_or(128, |it| it.0 as usize),
        request_read_timeout: written
            .request_read_timeout
            .map_or(Duration::from_secs(30), |it| it.0),
        socket,
        socket_idle_timeout: written
            .socket_idle_timeout
            .map_or(Duration::from_secs(300), |it| it.0),
        shutdown_grace: written.shutdown_grace.map_or(Duration::from_secs(10), |it| it.0),
        agent_idle_timeout: written.agent_idle_timeout.map_or(AGENT_IDLE, |it| it.0),
        temp_agent_idle_timeout: written.temp_agent_idle_timeout.map_or(TEMP_IDLE, |it| it.0),
        rate_limit: rate_limit(section(written.rate_limit)),
    })
}

fn rate_limit(written: schema::RateLimit) -> RateLimit {
    let methods = written.methods.into_iter().flat_map(value::Table::into_entries);
    RateLimit {
        calls: written.calls_per_minute.map(|it| it.0),
        methods: methods.map(|(name, limit)| (name, limit.0)).collect(),
        failed_logins: written.failed_logins_per_minute.map(|it| it.0),
    }
}

fn tree(written: &schema::Server) -> Bounds {
    let by_default = Bounds::default();
    let schema::Server { max_children, max_tree_agents, max_tree_turns, .. } = written;
    Bounds {
        children_max: max_children.map_or(by_default.children_max, |it| it.0 as usize),
        agents_max: max_tree_agents.map_or(by_default.agents_max, |it| it.0 as usize),
        turns_max: max_tree_turns.map_or(by_default.turns_max, |it| it.0 as usize),
        memory_bytes_max: written
            .tree_memory_bytes_max
            .map_or(by_default.memory_bytes_max, |it| it.0 as usize),
    }
}

/// Longest path the kernel takes for a socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What the server adds to the directory while it makes the socket: a hidden directory and a name in it.
const SOCKET_DRAFT: &str = "/.01234567/s";

/// Whether a Unix socket can be made at `path`; if not, why, and what to do.
pub fn check_socket_path(path: &Path) -> Result<(), String> {
    let bytes = |path: &Path| path.as_os_str().len();
    if path.as_os_str().is_empty() {
        return Err("the path is empty".into());
    }
    let directory = path.parent().map_or(0, bytes);
    let needed = bytes(path).max(directory + SOCKET_DRAFT.len());
    if needed <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let over = needed - SOCKET_PATH_BYTES_MAX;
    Err(format!(
        "too long for a socket by {over} bytes (the kernel takes {SOCKET_PATH_BYTES_MAX}); name a shorter path, such as one in /tmp"
    ))
}

fn section<T: Default>(written: Option<Object<T>>) -> T {
    written.map_or_else(T::default, |Object(section)| section)
}

fn text(written: Text) -> String {
    written.0
}
