//! What the core asks of a model service.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use crate::list::List;
use crate::listing::{Lesson, ModelPage, ModelQuery};
use crate::message::{Origin, Part, SharedMessage, Stop};
use crate::model::{ModelInfo, Reasoning};
use crate::observe::Observer;
use crate::usage::{Cost, Usage};

/// A service that runs models. One implementation is one file in the adapters.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Starts one model call. Retries happen inside, and only before the first event: what was once streamed to a
    /// caller cannot be taken back. Dropping the stream ends the call at once.
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError>;
}

pub type EventStream = BoxStream<'static, Result<ProviderEvent, ProviderError>>;

/// Everything one model call sees. Within an epoch each call begins with all of the one before it, so that providers can
/// read the prefix from their caches and take their own signed thoughts back.
#[derive(Clone)]
pub struct ModelCall {
    pub model: Arc<ModelInfo>,
    pub reasoning: Reasoning,
    pub system: Arc<str>,
    pub tools: Arc<[ToolSpec]>,
    /// The conversation, valid as it stands: no unanswered user message but the last, every tool call answered.
    pub messages: List<SharedMessage>,
    /// How many of `messages`, from the first, belong to earlier epochs: thoughts in them are bound to what was said
    /// before them then, and stay out.
    pub earlier: usize,
    /// Upper bound on generated tokens; `None` where nobody knows the model's own.
    pub max_tokens: Option<u32>,
    /// JSON Schema that the answer's text must satisfy, where the caller wants one.
    pub schema: Option<Arc<Value>>,
    /// The caller says that the schema lies within what services enforce by themselves, and wants them to.
    pub strict: bool,
    pub asker: Asker,
    pub recurs: Recurs,
}

/// What of a call is said again by later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recurs {
    /// The next call of the conversation begins with it.
    #[default]
    Whole,
    /// It begins as the conversation does, and its end is no part of that: a summary is asked for so.
    Beginning,
    /// It stands alone, and is not worth a place in a provider's cache.
    Nothing,
}

/// On whose behalf a model is called: who shares what a provider gives, and who goes first.
#[derive(Clone, Default)]
pub struct Asker {
    /// The tree that the call is of; empty where the administrator makes it without an agent.
    pub root: Arc<str>,
    pub agent: Arc<str>,
    /// Tells it from others that had its name.
    pub born: u64,
    /// Stays the same for as long as a conversation and its copies do: 32 hex digits.
    pub conversation: Arc<str>,
    pub urgency: Urgency,
    /// The longest wait that is slept through, where another model may be asked instead; else the provider's adapter has
    /// one of its own.
    pub wait_max: Option<Duration>,
    /// Told when the call has to wait before it is sent.
    pub waiting: Option<Arc<dyn Fn(Waiting) + Send + Sync>>,
    /// Told when the call is sent again.
    pub observer: Option<Arc<dyn Observer>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody watches the answer come.
    Watched,
    #[default]
    Usual,
    /// Housekeeping, such as a summary.
    Background,
}

/// That a call waits, why, and for how long if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `rate_limit`, `overloaded`, `full`, `retry`.
    pub reason: &'static str,
    pub wait: Option<Duration>,
}

/// Until when providers want to be left alone, kept where every process of this home sees it. A lane is all that is sent
/// to one provider with one key; its name tells neither.
pub trait Pauses: Send + Sync {
    /// The latest pause of this lane. Asked with every call, so it answers from memory.
    fn until(&self, lane: &str) -> Option<Timestamp>;

    /// Nobody is to ask this lane's provider before `until`. Returns at once.
    fn pause(&self, lane: &str, until: Timestamp);
}

/// A tool as the model is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A piece of what the model thinks, never empty.
    Reasoning(String),
    /// How likely the tokens of the text were that comes next, one entry each, as chat completions say it. Only where it was
    /// asked for.
    Logprobs(Vec<Value>),
    /// What was counted so far. Replaces what was said before.
    Usage(Usage),
    /// The last event of a call that went well.
    Done(Box<Answer>),
}

/// What a model call came to. The text in it is what was streamed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// In the order in which the model made them. A call that is not whole is marked so.
    pub parts: Vec<Part>,
    pub stop: Stop,
    pub usage: Usage,
    /// What the provider itself says it costs.
    pub cost: Option<Cost>,
}

/// A model call that failed, after retries. The text is for people and holds no key.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ProviderError {
    #[error("the provider refused the credentials ({0})")]
    Credentials(String),
    #[error("the provider's rate limit was hit ({message})")]
    RateLimited { message: String, retry_after: Option<Duration> },
    #[error("the provider refused the request ({0})")]
    Rejected(String),
    /// The conversation is longer than the model's window, which the provider may have named.
    #[error("the conversation is too long for the model ({message})")]
    TooLong { message: String, window: Option<u32> },
    /// A filter of the provider's has found something in what was said, by whomever.
    #[error("the provider's filter stopped the call ({0})")]
    Filtered(String),
    /// Thoughts of an earlier answer were refused, or `missed`.
    #[error("the provider refused what the model had thought before ({message})")]
    Thoughts { message: String, missed: bool },
    #[error("the provider is not available ({0})")]
    Unavailable(String),
    /// It failed again and again a moment ago, and is not asked until it had some rest.
    #[error("the provider is not asked for now ({message})")]
    Resting { message: String, retry_after: Duration },
    /// The call waited for its turn longer than it is allowed to.
    #[error("the provider had no room for the call in time ({0})")]
    Crowded(String),
    #[error("the provider broke off ({0})")]
    Broken(String),
    #[error("the provider did not answer in time")]
    Timeout,
}

impl ModelCall {
    /// A call that says only this.
    pub fn of(model: Arc<ModelInfo>, messages: impl IntoIterator<Item = SharedMessage>) -> Self {
        Self {
            reasoning: model.reasoning,
            model,
            system: "".into(),
            tools: Arc::default(),
            messages: messages.into_iter().collect(),
            earlier: 0,
            max_tokens: None,
            schema: None,
            strict: false,
            asker: Asker::default(),
            recurs: Recurs::Whole,
        }
    }
}

impl ProviderError {
    /// The error's name, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Credentials(_) => "credentials",
            Self::RateLimited { .. } => "rate_limited",
            Self::Rejected(_) => "rejected",
            Self::TooLong { .. } => "too_long",
            Self::Filtered(_) => "filtered",
            Self::Thoughts { .. } => "thoughts",
            Self::Unavailable(_) => "unavailable",
            Self::Resting { .. } => "resting",
            Self::Crowded(_) => "crowded",
            Self::Broken(_) => "broken",
            Self::Timeout => "timeout",
        }
    }

    /// Whether another model may take over: what is wrong with the request or the key must be seen.
    pub fn may_fall_back(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Unavailable(_)
            | Self::Resting { .. }
            | Self::Crowded(_)
            | Self::Timeout => true,
            Self::Credentials(_)
            | Self::Rejected(_)
            | Self::TooLong { .. }
            | Self::Filtered(_)
            | Self::Thoughts { .. }
            | Self::Broken(_) => false,
        }
    }
}

/// The models a server can use, by alias.
pub trait Models: Send + Sync {
    /// The model `name` means (`alias`, or `provider/id`); the default one without a name.
    fn resolve(&self, name: Option<&str>) -> Result<Model, ModelError>;

    /// Keeps in mind what the provider of this model was found to enforce.
    fn learn(&self, model: &ModelInfo, lesson: Lesson);

    /// What can be asked for, and where each figure of it comes from.
    fn list(&self, _: &ModelQuery) -> Result<ModelPage, ModelError> {
        Ok(ModelPage::default())
    }
}

/// One model of one provider.
#[derive(Clone)]
pub struct Model {
    pub info: Arc<ModelInfo>,
    pub provider: Arc<dyn Provider>,
}

impl Model {
    /// Who answers when it is asked.
    pub fn origin(&self) -> Origin {
        Origin {
            provider: self.provider_name.clone(),
            wire: self.wire.to_owned(),
            model: self.id.clone(),
        }
    }

    /// Whether both are one model of one service, by whatever name.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.provider_name == other.provider_name
    }
}

impl Deref for Model {
    type Target = ModelInfo;

    fn deref(&self) -> &ModelInfo {
        &self.info
    }
}

#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ModelError {
    #[error("no model is configured")]
    NoneConfigured,
    #[error("unknown model: {name} (known: {known})")]
    Unknown { name: String, known: String },
    #[error("unknown provider: {name} (known: {known})")]
    UnknownProvider { name: String, known: String },
    #[error("model {name} cannot be used: {reason}")]
    Unusable { name: String, reason: String },
}
