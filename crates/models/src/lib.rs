//! Model services over HTTP: what one is told apart by, and how one is made.
//!
//! Each of [`wires`] is one wire format behind the core's `Provider` trait: it writes a request body and reads events.
//! What all need stands beside them: [`json`] writes the body, [`http`] sends it, [`lane`] says when that may be and
//! [`attempts`] how often, [`errors`] names what fails, [`stream`] drives the reading, [`silence`] says when nothing more
//! is waited for, [`lines`] and `nexus_sse` find the events, [`heard`] puts the answer together, [`calls`] gathers tool
//! calls, [`bounds`] says when it is enough, [`redact`] keeps keys to themselves, [`lowered`] says what a model cannot think.
//! [`embeddings`] asks one for vectors, [`ollama`] finds out whether one runs here, and [`measure`] shows a benchmark pieces
//! of all this.

mod ahead;
pub mod ask;
mod attempts;
mod bounds;
mod calls;
pub mod catalogue;
mod embeddings;
mod errors;
mod heard;
mod http;
mod json;
mod lane;
mod lines;
mod lowered;
pub mod measure;
pub mod ollama;
mod redact;
mod silence;
mod stream;
#[cfg(test)]
mod tests;
pub mod tokenizer;
mod wire;
mod wires;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nexus_core::provider::{Pauses, Provider};
use reqwest::Url;
use serde_json::{Map, Value};
use thiserror::Error;

pub use bounds::{Bounds, json_values};
pub use embeddings::RemoteEmbedder;
pub use wire::{CacheTtl, Wire};

/// Makes a provider. Nothing is sent and no TLS is set up before the first call.
pub fn build(settings: &ProviderSettings) -> Result<Arc<dyn Provider>, BuildError> {
    if settings.deployment.is_some() && settings.kind != Kind::Azure {
        return Err(BuildError::Unsupported { setting: "deployment", kind: settings.kind.name() });
    }
    let base = base_url(settings)?;
    Ok(match settings.wire {
        Wire::Messages => Arc::new(wires::messages::Messages::new(settings, base)?),
        Wire::Chat => Arc::new(wires::chat::Chat::new(settings, base)?),
        Wire::Responses => Arc::new(wires::responses::Responses::new(settings, &base)?),
        Wire::GenerateContent => {
            Arc::new(wires::generate_content::GenerateContent::new(settings, base)?)
        }
        Wire::Ollama => Arc::new(wires::ollama::Ollama::new(settings, &base)?),
    })
}

/// Why settings do not make a provider. Holds no key and no header value.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum BuildError {
    #[error("a provider of type {0} needs a base_url")]
    NoBaseUrl(&'static str),
    #[error("the base_url is not usable: {0}")]
    BaseUrl(String),
    #[error("the API key holds characters that cannot be sent (line breaks or other than ASCII)")]
    ApiKey,
    #[error("the header {0:?} in extra_headers cannot be sent")]
    Header(String),
    #[error("the api_version cannot be sent")]
    ApiVersion,
    #[error(
        "the base_url begins with http:// and is not on this machine, so anybody on the way could read the key; \
         use https://, or set insecure_http to true"
    )]
    PlainHttp,
    #[error("the proxy is not usable: {0}")]
    Proxy(String),
    #[error("{setting} has no meaning for a provider of type {kind}")]
    Unsupported { setting: &'static str, kind: &'static str },
}

/// The services there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// OpenAI itself and everything that speaks its chat completions.
    OpenAi,
    OpenRouter,
    Azure,
    Ollama,
    Anthropic,
    /// Google's own service for developers.
    Gemini,
}

/// How the key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// `Authorization: Bearer …`
    Bearer,
    /// `api-key: …`
    ApiKey,
    /// `x-api-key: …`
    XApiKey,
    /// `x-goog-api-key: …`
    XGoogApiKey,
    None,
}

/// What a kind is when nothing is said about it.
struct Defaults {
    name: &'static str,
    base_url: Option<&'static str>,
    /// Path given to a base URL that has none.
    path: &'static str,
    key_env: Option<&'static str>,
    auth_method: AuthMethod,
}

impl Kind {
    /// In the order in which a key in the environment is looked for.
    pub const ALL: [Self; 6] =
        [Self::OpenAi, Self::Anthropic, Self::OpenRouter, Self::Azure, Self::Ollama, Self::Gemini];

    /// The kind of this name, as written in the configuration.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub const fn name(self) -> &'static str {
        self.defaults().name
    }

    /// `None` where each customer has an address of its own.
    pub const fn default_base_url(self) -> Option<&'static str> {
        self.defaults().base_url
    }

    /// The environment variable that holds the key; `None` where none is needed.
    pub const fn default_key_env(self) -> Option<&'static str> {
        self.defaults().key_env
    }

    pub const fn default_auth_method(self) -> AuthMethod {
        self.defaults().auth_method
    }

    const fn defaults(self) -> Defaults {
        match self {
            Self::OpenAi => Defaults {
                name: "openai",
                base_url: Some("https://api.openai.com/v1"),
                path: "/v1",
                key_env: Some("OPENAI_API_KEY"),
                auth_method: AuthMethod::Bearer,
            },
            Self::OpenRouter => Defaults {
                name: "openrouter",
                base_url: Some("https://openrouter.ai/api/v1"),
                path: "/api/v1",
                key_env: Some("OPENROUTER_API_KEY"),
                auth_method: AuthMethod::Bearer,
            },
            Self::Azure => Defaults {
                name: "azure",
                base_url: None,
                path: "/",
                key_env: Some("AZURE_OPENAI_API_KEY"),
                auth_method: AuthMethod::ApiKey,
            },
            Self::Ollama => Defaults {
                name: "ollama",
                base_url: Some("http://127.0.0.1:11434/v1"),
                path: "/v1",
                key_env: None,
                auth_method: AuthMethod::None,
            },
            Self::Anthropic => Defaults {
                name: "anthropic",
                base_url: Some("https://api.anthropic.com/v1"),
                path: "/v1",
                key_env: Some("ANTHROPIC_API_KEY"),
                auth_method: AuthMethod::XApiKey,
            },
            Self::Gemini => Defaults {
                name: "gemini",
                base_url: Some("https://generativelanguage.googleapis.com/v1beta"),
                path: "/v1beta",
                key_env: Some("GEMINI_API_KEY"),
                auth_method: AuthMethod::XGoogApiKey,
            },
        }
    }
}

impl AuthMethod {
    pub const ALL: [Self; 5] =
        [Self::Bearer, Self::ApiKey, Self::XApiKey, Self::XGoogApiKey, Self::None];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bearer => "bearer",
            Self::ApiKey => "api-key",
            Self::XApiKey => "x-api-key",
            Self::XGoogApiKey => "x-goog-api-key",
            Self::None => "none",
        }
    }
}

/// Everything that tells one provider from another.
#[derive(Clone)]
pub struct ProviderSettings {
    pub kind: Kind,
    pub wire: Wire,
    /// Without a path it gets the kind's usual one, so that `http://localhost:11434` is enough. Empty means the
    /// kind's default.
    pub base_url: String,
    /// Without one no authentication is sent: a server on one's own machine asks for none.
    pub api_key: Option<String>,
    /// The environment variable that holds the key, for whoever has to mend it.
    pub key_variable: Option<String>,
    pub auth_method: AuthMethod,
    pub extra_headers: Vec<(String, String)>,
    /// Azure's and others' `api-version` parameter, or Anthropic's `anthropic-version` header.
    pub api_version: Option<String>,
    /// Azure only: the deployment to call; without it the model's id names it.
    pub deployment: Option<String>,
    /// Calls that are under way at a time.
    pub max_concurrent_calls: u32,
    /// Calls that are sent in a minute.
    pub requests_per_minute: Option<u32>,
    /// Tokens that are sent in a minute, as far as they can be told before.
    pub tokens_per_minute: Option<u32>,
    /// How long a call waits for its turn.
    pub queue_timeout: Duration,
    /// Time to set a connection up. Shorter than the time to answer: a host that is not there will not be there later.
    pub connect_timeout: Duration,
    /// The longest silence until the first event of an answer.
    pub first_event_timeout: Duration,
    /// The longest silence between two pieces of it.
    pub idle_timeout: Duration,
    /// Certificates in PEM that are trusted beside those of the system.
    pub ca_file: Option<PathBuf>,
    /// Taken instead of the one that the environment names; neither is for this machine.
    pub proxy: Option<String>,
    /// Sends the key though everybody on the way can read it.
    pub insecure_http: bool,
    /// What other processes are told of a provider that wants to be left alone, and where they tell it.
    pub pauses: Option<Arc<dyn Pauses>>,
    /// Further attempts after the first.
    pub max_retries: u32,
    /// Wait before the first retry; doubled for each further one, with up to as much again added at random.
    pub retry_backoff: Duration,
    /// Marks the stable prefix for the provider's cache, where the wire format knows such marks.
    pub prompt_caching: bool,
    /// For how long the marks ask it to be kept.
    pub cache_ttl: CacheTtl,
    /// Ollama only: how long it keeps a model in memory after a call, as it writes times itself.
    pub keep_alive: Option<String>,
    /// OpenRouter only: its `provider` object.
    pub routing: Option<Map<String, Value>>,
    /// How much of an answer is taken.
    pub bounds: Bounds,
}

impl ProviderSettings {
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            wire: Wire::usual(kind, kind.default_base_url().unwrap_or_default()),
            base_url: kind.default_base_url().unwrap_or_default().to_owned(),
            api_key: None,
            key_variable: None,
            auth_method: kind.default_auth_method(),
            extra_headers: Vec::new(),
            api_version: None,
            deployment: None,
            max_concurrent_calls: if kind == Kind::Ollama { 1 } else { 16 },
            requests_per_minute: None,
            tokens_per_minute: None,
            queue_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(10),
            // One on this machine first reads its weights.
            first_event_timeout: Duration::from_secs(if kind == Kind::Ollama { 900 } else { 300 }),
            idle_timeout: Duration::from_secs(120),
            ca_file: None,
            proxy: None,
            insecure_http: false,
            pauses: None,
            max_retries: 3,
            retry_backoff: Duration::from_millis(500),
            prompt_caching: true,
            cache_ttl: CacheTtl::default(),
            keep_alive: None,
            routing: None,
            bounds: Bounds::default(),
        }
    }
}

/// Leaves out whatever may hold a secret: the key, the headers' values, and a URL nobody has checked yet.
impl fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("kind", &self.kind)
            .field("has_api_key", &self.api_key.is_some())
            .field("auth_method", &self.auth_method)
            .field("max_concurrent_calls", &self.max_concurrent_calls)
            .field("first_event_timeout", &self.first_event_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("max_retries", &self.max_retries)
            .finish_non_exhaustive()
    }
}

fn base_url(settings: &ProviderSettings) -> Result<Url, BuildError> {
    let text = match settings.base_url.trim() {
        "" => {
            settings.kind.default_base_url().ok_or(BuildError::NoBaseUrl(settings.kind.name()))?
        }
        text => text,
    };
    let refuse = |reason: &str| Err(BuildError::BaseUrl(reason.to_owned()));
    let mut url = Url::parse(text).map_err(|error| BuildError::BaseUrl(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return refuse("it must begin with http:// or https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("it must not hold a user name or password");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse("it must not hold a query or fragment");
    }
    if url.path() == "/" {
        url.set_path(settings.kind.defaults().path);
    }
    Ok(url)
}

/// `base` with further path segments.
fn endpoint(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    // Fails only for URLs that cannot have a path, and `base_url` lets no such URL through.
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}
