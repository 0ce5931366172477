//! Model services over HTTP: what one is told apart by, and how one is made.
//!
//! [`openai`] and [`anthropic`] each are one wire format behind the core's `Provider` trait: they write a request body
//! and read events. What both need stands beside them: [`json`] writes the body, [`http`] sends and retries, [`errors`] names what
//! fails, [`stream`] drives the reading, [`calls`] gathers tool calls, [`bounds`] says when it is enough, [`redact`] keeps
//! keys to themselves.
//! [`ollama`] finds out whether one runs here.

mod anthropic;
mod bounds;
mod calls;
mod errors;
mod http;
mod json;
pub mod ollama;
mod openai;
mod redact;
mod stream;
#[cfg(test)]
mod tests;
pub mod tokenizer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nexus_core::list::List;
use nexus_core::message::{Message, Role, SharedMessage};
use nexus_core::provider::{ModelCall, Provider, ProviderError};
use reqwest::Url;
use thiserror::Error;

pub use bounds::{Bounds, json_values};

/// Makes a provider. Nothing is sent and no TLS is set up before the first call.
pub fn build(settings: &ProviderSettings) -> Result<Arc<dyn Provider>, BuildError> {
    if settings.deployment.is_some() && settings.kind != Kind::Azure {
        return Err(BuildError::Unsupported { setting: "deployment", kind: settings.kind.name() });
    }
    let base = base_url(settings)?;
    match settings.kind {
        Kind::Anthropic => Ok(Arc::new(anthropic::Anthropic::new(settings, base)?)),
        Kind::OpenAi | Kind::OpenRouter | Kind::Azure | Kind::Ollama => {
            Ok(Arc::new(openai::OpenAi::new(settings, base)?))
        }
    }
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
    pub const ALL: [Self; 5] =
        [Self::OpenAi, Self::Anthropic, Self::OpenRouter, Self::Azure, Self::Ollama];

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
        }
    }
}

impl AuthMethod {
    pub const ALL: [Self; 4] = [Self::Bearer, Self::ApiKey, Self::XApiKey, Self::None];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bearer => "bearer",
            Self::ApiKey => "api-key",
            Self::XApiKey => "x-api-key",
            Self::None => "none",
        }
    }
}

/// Everything that tells one provider from another.
#[derive(Clone)]
pub struct ProviderSettings {
    pub kind: Kind,
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
    /// The longest silence: until the answer begins, and between any two pieces of it.
    pub request_timeout: Duration,
    /// Further attempts after the first.
    pub max_retries: u32,
    /// Wait before the first retry; doubled for each further one, with up to as much again added at random.
    pub retry_backoff: Duration,
    /// Marks the stable prefix for the provider's cache, where the wire format knows such marks.
    pub prompt_caching: bool,
    /// How much of an answer is taken.
    pub bounds: Bounds,
}

impl ProviderSettings {
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            base_url: kind.default_base_url().unwrap_or_default().to_owned(),
            api_key: None,
            key_variable: None,
            auth_method: kind.default_auth_method(),
            extra_headers: Vec::new(),
            api_version: None,
            deployment: None,
            request_timeout: Duration::from_secs(120),
            max_retries: 3,
            retry_backoff: Duration::from_millis(500),
            prompt_caching: true,
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
            .field("request_timeout", &self.request_timeout)
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

/// The messages a model is shown. A message that says nothing (an answer cut short before its first word) is refused
/// by some services and useless to all.
fn visible(messages: &List<SharedMessage>) -> Vec<&Message> {
    messages
        .iter()
        .map(|message| &**message)
        .filter(|message| {
            message.role == Role::Tool
                || !message.content.is_empty()
                || !message.tool_calls.is_empty()
        })
        .collect()
}

/// Roughly the bytes a request takes, so that a body is written without being moved.
fn bytes_estimate(call: &ModelCall, messages: &[&Message]) -> usize {
    const HEAD_BYTES: usize = 1024;
    const PER_MESSAGE_BYTES: usize = 96;
    const PER_TOOL_BYTES: usize = 96;
    let bytes = |text: &str| text.len() + text.len() / 16;
    let messages: usize =
        messages.iter().map(|message| bytes(&message.content) + PER_MESSAGE_BYTES).sum();
    let tools: usize = call.tools.iter().map(|tool| tool.text_bytes() + PER_TOOL_BYTES).sum();
    HEAD_BYTES + bytes(&call.system) + tools + messages
}

/// A body that cannot be written. Only arguments or a tool's schema could do that, and none made from JSON does.
fn unwritable(error: serde_json::Error) -> ProviderError {
    ProviderError::Rejected(format!("the request could not be written: {error}"))
}

/// Where the last user message stands: what changes from turn to turn goes directly before it.
fn last_user(messages: &[&Message]) -> Option<usize> {
    messages.iter().rposition(|message| message.role == Role::User)
}
