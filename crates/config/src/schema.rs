//! The configuration file as it is written: every key it may hold, its type and its range. Nothing here has a
//! default; a key that is absent (or null) stays `None` so that layers can be told apart.

use super::terminal::Theme;
use super::value::{
    Choice, Dollars, FileName, Json, Object, Ratio, Seconds, Several, Switch, Table, Text, Whole,
};

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub default_model: Option<Text>,
    pub providers: Option<Table<Object<Provider>>>,
    pub max_tool_iterations: Option<Whole<1, 10_000>>,
    pub max_concurrent_tools: Option<Whole<1, 256>>,
    pub max_calls_per_step: Option<Whole<1, 10_000>>,
    pub skill_timeout: Option<Seconds<100, 86_400_000>>,
    pub permissions: Option<Object<Permissions>>,
    pub commands: Option<Object<Commands>>,
    pub compaction: Option<Object<Compaction>>,
    pub context: Option<Object<Context>>,
    pub images: Option<Object<Images>>,
    pub memory: Option<Object<Memory>>,
    pub tasks: Option<Object<Tasks>>,
    pub server: Option<Object<Server>>,
    pub terminal: Option<Object<Terminal>>,
    pub auth: Option<Object<Auth>>,
    pub doors: Option<Object<Doors>>,
    pub mcp: Option<Object<Mcp>>,
}

/// What a directory that nobody trusted may set, of `context` and `terminal` not everything. All else could run
/// programs, send the conversation to another host or widen what agents may do.
pub(super) const UNTRUSTED_KEYS: [&str; 6] = [
    "default_model",
    "max_tool_iterations",
    "max_concurrent_tools",
    "compaction",
    "context",
    "terminal",
];

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Provider {
    pub r#type: Option<Text>,
    pub wire: Option<Text>,
    pub path: Option<Text>,
    pub api_key_env: Option<Text>,
    pub base_url: Option<Text>,
    pub auth_method: Option<Text>,
    pub extra_headers: Option<Table<Text>>,
    pub api_version: Option<Text>,
    pub deployment: Option<Text>,
    pub request_timeout: Option<Seconds<100, 3_600_000>>,
    pub first_event_timeout: Option<Seconds<100, 3_600_000>>,
    pub idle_timeout: Option<Seconds<100, 3_600_000>>,
    pub queue_timeout: Option<Seconds<100, 3_600_000>>,
    pub max_concurrent_calls: Option<Whole<1, 1024>>,
    pub requests_per_minute: Option<Whole<1, 1_000_000>>,
    pub tokens_per_minute: Option<Whole<1, 4_000_000_000>>,
    pub max_retries: Option<Whole<0, 10>>,
    pub retry_backoff: Option<Seconds<10, 60_000>>,
    pub prompt_caching: Option<bool>,
    pub cache_ttl: Option<Choice<Ttls>>,
    pub keep_alive: Option<Text>,
    pub routing: Option<Json>,
    pub ca_file: Option<Text>,
    pub proxy: Option<Text>,
    pub insecure_http: Option<bool>,
    pub models: Option<Table<Object<Model>>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub id: Option<Text>,
    pub context_window: Option<Whole<1024, 10_000_000>>,
    pub max_output_tokens: Option<Whole<16, 10_000_000>>,
    pub reasoning: Option<Switch<Reasoning>>,
    pub input: Option<Vec<Choice<Inputs>>>,
    pub price: Option<Object<Price>>,
    pub fallback: Option<Vec<Text>>,
    pub fallback_on_refusal: Option<bool>,
    pub extra_body: Option<Json>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reasoning {
    pub effort: Option<Choice<Efforts>>,
    /// Less than a thousand is no room to think in, and refused by services.
    pub budget_tokens: Option<Whole<1024, 1_000_000>>,
    pub display: Option<Choice<Displays>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Price {
    pub input: Option<Dollars>,
    pub output: Option<Dollars>,
    pub cache_read: Option<Dollars>,
    pub cache_write: Option<Dollars>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Permissions {
    pub default_preset: Option<Text>,
    pub approvals: Option<Choice<Approvals>>,
    pub approval_timeout: Option<Seconds<100, 86_400_000>>,
    pub presets: Option<Table<Object<Preset>>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preset {
    pub extends: Option<Text>,
    pub allowed_paths: Option<Vec<Text>>,
    pub blocked_paths: Option<Vec<Text>>,
    pub tool_permissions: Option<Table<Object<ToolPermission>>>,
    /// Tools of MCP servers, by server; `*` for all.
    pub mcp: Option<Table<Vec<Text>>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolPermission {
    pub enabled: Option<bool>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Commands {
    /// MiB.
    pub memory: Option<Whole<16, 1_000_000_000>>,
    pub processes: Option<Whole<8, 1_000_000>>,
    pub processor_time: Option<Seconds<1_000, 1_000_000_000>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compaction {
    pub enabled: Option<bool>,
    pub model: Option<Text>,
    pub trigger_threshold: Option<Ratio<10, 100>>,
    pub recent_preserve_ratio: Option<Ratio<1, 90>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    pub ancestor_depth: Option<Whole<0, 10>>,
    pub instruction_files: Option<Vec<FileName>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Images {
    /// More than 2,000 pixels are refused by a service as soon as a conversation holds many images.
    pub max_side: Option<Whole<64, 2000>>,
    pub allow_urls: Option<bool>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    pub recall: Option<Whole<0, 20>>,
    pub embeddings: Option<Object<Embeddings>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mcp {
    pub defer_tokens: Option<Whole<0, 1_000_000>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Doors {
    pub mcp: Option<bool>,
    pub openai: Option<bool>,
    pub websocket: Option<bool>,
    pub expose: Option<Table<Text>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tasks {
    pub planner_model: Option<Text>,
    pub executor_model: Option<Text>,
    pub executor_models: Option<Object<ExecutorModels>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecutorModels {
    pub code_generation: Option<Text>,
    pub refactoring: Option<Text>,
    pub analysis: Option<Text>,
    pub testing: Option<Text>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Embeddings {
    pub provider: Text,
    pub model: Text,
    pub dimensions: Whole<1, 65_536>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub host: Option<Choice<Loopback>>,
    pub port: Option<Whole<0, 65_535>>,
    pub metrics_port: Option<Whole<0, 65_535>>,
    pub max_concurrent: Option<Whole<1, 4096>>,
    pub max_queued: Option<Whole<0, 1_000_000>>,
    pub max_children: Option<Whole<0, 1_000_000>>,
    pub max_tree_agents: Option<Whole<0, 1_000_000>>,
    pub max_tree_turns: Option<Whole<0, 1_000_000>>,
    pub tree_memory_bytes_max: Option<Whole<65_536, 4_294_967_295>>,
    pub max_connections: Option<Whole<1, 65_536>>,
    pub body_bytes_max: Option<Whole<1024, 104_857_600>>,
    pub answer_bytes_max: Option<Whole<1024, 1_073_741_824>>,
    /// The HTTP stack needs a buffer of 8 KiB at least.
    pub header_bytes_max: Option<Whole<8192, 1_048_576>>,
    pub header_count_max: Option<Whole<8, 1024>>,
    pub request_read_timeout: Option<Seconds<100, 600_000>>,
    pub socket: Option<Text>,
    pub socket_idle_timeout: Option<Seconds<100, 86_400_000>>,
    pub shutdown_grace: Option<Seconds<0, 600_000>>,
    pub agent_idle_timeout: Option<Seconds<100, 2_592_000_000>>,
    pub temp_agent_idle_timeout: Option<Seconds<100, 2_592_000_000>>,
    pub rate_limit: Option<Object<RateLimit>>,
}

/// Calls in a minute.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimit {
    pub calls_per_minute: Option<PerMinute>,
    pub methods: Option<Table<PerMinute>>,
    pub failed_logins_per_minute: Option<PerMinute>,
}

pub(super) type PerMinute = Whole<1, 1_000_000>;

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Terminal {
    pub preset: Option<Text>,
    pub theme: Option<Theme>,
    pub wrap: Option<Choice<Wraps>>,
    /// Fewer columns break most words.
    pub width_max: Option<Whole<20, 1000>>,
    pub tool_lines: Option<Whole<0, 1000>>,
    pub diff_lines: Option<Whole<0, 10_000>>,
    pub reasoning: Option<Choice<Thoughts>>,
    pub motion: Option<bool>,
    pub plain: Option<bool>,
    pub bell: Option<Choice<Bells>>,
    pub title: Option<bool>,
    pub editor: Option<Text>,
    pub pager: Option<Text>,
    pub history: Option<bool>,
    pub keys: Option<Table<Several>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Auth {
    pub hmac: Option<Object<Hmac>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hmac {
    pub mode: Option<Choice<HmacModes>>,
    pub secret_env: Option<Text>,
    pub keys: Option<Table<Object<HmacKey>>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HmacKey {
    pub secret_env: Text,
    pub methods: Option<Vec<Text>>,
    pub agent_id: Option<Text>,
}

/// Whether signatures are looked at.
#[derive(Debug)]
pub(super) struct HmacModes;

impl super::value::Choices for HmacModes {
    const ALL: &'static [&'static str] = &["off", "optional", "required"];
}

/// What is done with an action that needs somebody's leave.
#[derive(Debug)]
pub(super) struct Approvals;

impl super::value::Choices for Approvals {
    const ALL: &'static [&'static str] = &["deny", "ask", "auto"];
}

/// How long a provider keeps what it has cached.
#[derive(Debug)]
pub(super) struct Ttls;

impl super::value::Choices for Ttls {
    const ALL: &'static [&'static str] = &["5m", "1h"];
}

/// How hard a model is to think.
#[derive(Debug)]
pub(super) struct Efforts;

impl super::value::Choices for Efforts {
    const ALL: &'static [&'static str] =
        &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
}

/// Whether what a model thinks appears on streams.
#[derive(Debug)]
pub(super) struct Displays;

impl super::value::Choices for Displays {
    const ALL: &'static [&'static str] = &["stream", "none"];
}

/// What a model takes.
#[derive(Debug)]
pub(super) struct Inputs;

impl super::value::Choices for Inputs {
    const ALL: &'static [&'static str] = &["text", "image", "pdf"];
}

/// Who breaks lines of prose.
#[derive(Debug)]
pub(super) struct Wraps;

impl super::value::Choices for Wraps {
    const ALL: &'static [&'static str] = &["word", "terminal"];
}

/// What a terminal shows of what a model thinks.
#[derive(Debug)]
pub(super) struct Thoughts;

impl super::value::Choices for Thoughts {
    const ALL: &'static [&'static str] = &["time", "text", "off"];
}

/// What a terminal's bell rings for.
#[derive(Debug)]
pub(super) struct Bells;

impl super::value::Choices for Bells {
    const ALL: &'static [&'static str] = &["approval", "turn", "both", "off"];
}

/// The names the server binds to; another host is refused, because the server is for this machine only.
#[derive(Debug)]
pub(super) struct Loopback;

impl super::value::Choices for Loopback {
    const ALL: &'static [&'static str] = &["127.0.0.1", "localhost", "::1"];
}
