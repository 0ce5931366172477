//! What the core asks of a model service.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::Value;
use thiserror::Error;

use crate::list::List;
use crate::message::{SharedMessage, ToolCall};

/// A service that runs models. One implementation is one file in the adapters.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Starts one model call. Retries happen inside, and only before the first event: what was once streamed to a
    /// caller cannot be taken back. Dropping the stream ends the call at once.
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError>;
}

pub type EventStream = BoxStream<'static, Result<ProviderEvent, ProviderError>>;

/// Everything one model call sees. The stable parts come first so that providers can cache the prefix.
#[derive(Clone)]
pub struct ModelCall {
    /// The provider's own name for the model.
    pub model_id: String,
    pub reasoning: bool,
    pub system: Arc<str>,
    pub tools: Arc<[ToolSpec]>,
    /// The conversation, valid as it stands: no unanswered user message but the last, every tool call answered.
    pub messages: List<SharedMessage>,
    /// What changes from turn to turn (the time). Belongs directly before the last user message, after the cached prefix.
    pub volatile: Option<String>,
    /// Upper bound on generated tokens, where the caller wants one.
    pub max_tokens: Option<u32>,
    /// JSON Schema that the answer's text must satisfy, where the caller wants one.
    pub schema: Option<Arc<Value>>,
}

/// A tool as the model is told of it.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments, as text: every model call sends it as it stands.
    pub parameters: Arc<str>,
}

impl ToolSpec {
    /// Bytes of text the model would see: an upper bound on tokens that needs no tokenizer.
    pub fn text_bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.parameters.len()
    }

    pub fn tokens(&self, counter: &dyn crate::tokens::TokenCounter) -> u64 {
        let texts = [&*self.name, &self.description, &self.parameters];
        texts.into_iter().map(|text| u64::from(counter.count(text))).sum()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ProviderEvent {
    /// A piece of the answer's text, never empty.
    Text(String),
    /// A complete tool call.
    ToolCall(ToolCall),
    /// The last event of a call that went well.
    Done(Usage),
}

/// Tokens as the provider reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    /// Part of `input` that came from the provider's cache.
    pub cached: u64,
}

/// A model call that failed, after retries. The text is for people and holds no key.
#[derive(Debug, Clone, Error)]
pub enum ProviderError {
    #[error("the provider refused the credentials ({0})")]
    Credentials(String),
    #[error("the provider's rate limit was hit ({message})")]
    RateLimited { message: String, retry_after: Option<Duration> },
    #[error("the provider refused the request ({0})")]
    Rejected(String),
    #[error("the provider is not available ({0})")]
    Unavailable(String),
    #[error("the provider broke off ({0})")]
    Broken(String),
    #[error("the provider did not answer in time")]
    Timeout,
}

/// The models a server can use, by alias.
pub trait Models: Send + Sync {
    /// The model `name` means (`alias`, or `provider/id`); the default one without a name.
    fn resolve(&self, name: Option<&str>) -> Result<Model, ModelError>;
}

/// One model of one provider.
#[derive(Clone)]
pub struct Model {
    /// The name it is asked for by: what `list_agents` shows and what is stored with an agent.
    pub alias: String,
    pub provider_name: String,
    pub id: String,
    pub context_window: u32,
    pub reasoning: bool,
    /// Too small for tools and long instructions: it is told only what somebody set for the agent.
    pub brief: bool,
    pub provider: Arc<dyn Provider>,
}

#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ModelError {
    #[error("no model is configured")]
    NoneConfigured,
    #[error("unknown model: {name} (known: {known})")]
    Unknown { name: String, known: String },
    #[error("model {name} cannot be used: {reason}")]
    Unusable { name: String, reason: String },
}
