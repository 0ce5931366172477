//! What is said in a conversation.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::name::{AgentId, TurnId};
use crate::usage::Bill;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    /// The result of a tool call.
    Tool,
    /// A summary that stands for the older part of the conversation; see `context`.
    Summary,
}

/// One entry of a conversation. Messages are written once and never changed, so they are shared by `Arc`.
#[derive(Debug)]
pub struct Message {
    pub role: Role,
    /// In the order in which they were said.
    pub parts: Box<[Part]>,
    /// On `Role::Tool`: which call this answers.
    pub tool_call_id: Option<String>,
    pub meta: Meta,
    /// Where this stands for a message that is shown in part: that message.
    pub(crate) whole: Option<SharedMessage>,
    /// Filled when somebody asks for it: counting needs the tokenizer, which costs time and memory to load.
    tokens: OnceLock<u32>,
    /// Filled as well: a call's arguments have to be written out for it.
    text_bytes: OnceLock<usize>,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    /// Words of ours that the model sees and nobody said: the time, changed instructions, "go on".
    Context(String),
    Thought(Thought),
    Call(ToolCall),
    Attachment(Attachment),
}

/// What somebody says to an agent: texts and what stands beside them, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content(Vec<Part>);

/// What a model thought, or what only the wire that made it can read. Goes back to its provider in its place, and to
/// nobody else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thought {
    /// May be empty where the provider keeps it to itself.
    pub text: String,
    /// JSON of the wire that made it: signatures, encrypted text, ids.
    pub payload: Option<Box<str>>,
}

/// A tool call as the model asked for it. The arguments are JSON because that is what a model emits.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: Value,
    /// The answer ended in the middle of it: how many bytes of its arguments came. It is never run.
    pub cut: Option<u64>,
}

/// An image or a document beside the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub kind: AttachmentKind,
    pub media_type: String,
    pub name: Option<String>,
    pub source: Source,
}

/// Where a model gets an attachment from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// From us. The bytes lie in the store.
    Blob(Blob),
    /// From somebody else: its provider is given this address and fetches it, we never do.
    Address(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentKind {
    Image,
    /// A document.
    File {
        pages: u32,
    },
}

/// Bytes of attachments in one request. Services take 20 to 32 MB of text that says them.
pub const ATTACHED_BYTES_MAX: u64 = 20_000_000;

/// Bytes that are kept once, whoever shows them.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob {
    /// SHA-256.
    pub hash: [u8; 32],
    pub size: u64,
    /// None of them where a message was read that no model is going to see.
    pub bytes: Arc<[u8]>,
}

impl Blob {
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self { hash: Sha256::digest(&bytes).into(), size: bytes.len() as u64, bytes }
    }

    /// The hash in hexadecimal digits.
    pub fn name(&self) -> String {
        self.hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.size)
    }
}

/// Where a message came from and how it ended. Not shown to the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    pub at: Timestamp,
    /// The turn this message belongs to.
    pub turn: Option<TurnId>,
    pub source: Option<String>,
    pub source_agent: Option<AgentId>,
    /// The text was cut short by a cancel, a failure of the provider or a restart.
    pub interrupted: bool,
    /// On `Role::Summary`: how many messages of the history, from its start, the summary stands for.
    pub covers: Option<usize>,
    /// On `Role::Tool`: the call failed or was refused.
    pub failed: bool,
    /// The model call that made this message, or the calls that were paid for it.
    pub made: Option<Arc<Made>>,
}

/// How a model made a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    pub origin: Origin,
    /// What the model was told before the conversation: the digest of system text and tools.
    pub briefing: u64,
    pub stop: Stop,
    /// What it used: answers that were thrown away before it count too.
    pub bill: Bill,
}

/// Who answered. Thoughts go back to the same alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub provider: String,
    pub wire: String,
    pub model: String,
}

/// Why a model, or a turn, stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub reason: StopReason,
    /// What the provider says of it: a refusal's category and explanation, a word that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was done, or wants its calls run.
    #[default]
    EndTurn,
    MaxTokens,
    /// The window was full.
    ContextWindow,
    Refusal,
    ContentFilter,
    /// It wants to be asked again with what it said so far.
    Pause,
    /// It said nothing, or a call that nobody can read.
    Empty,
    /// The stream broke off.
    Broken,
    IterationLimit,
    Cancelled,
    Budget,
    /// A word we do not know; it is in the details.
    Other,
}

impl StopReason {
    pub fn name(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::MaxTokens => "max_tokens",
            Self::ContextWindow => "context_window",
            Self::Refusal => "refusal",
            Self::ContentFilter => "content_filter",
            Self::Pause => "pause",
            Self::Empty => "empty",
            Self::Broken => "broken",
            Self::IterationLimit => "iteration_limit",
            Self::Cancelled => "cancelled",
            Self::Budget => "budget",
            Self::Other => "other",
        }
    }

    /// The model would have gone on if it could.
    pub fn is_cut(self) -> bool {
        matches!(self, Self::MaxTokens | Self::ContextWindow | Self::Broken)
    }

    /// Its provider does not want this answered: said again, it would be refused again.
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Refusal | Self::ContentFilter)
    }
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        Self { reason, details: None }
    }
}

impl Content {
    /// Texts that follow each other become one. A blank line parts each from the next, also where something stands
    /// between them.
    pub fn new(parts: impl IntoIterator<Item = Part>) -> Self {
        let mut joined: Vec<Part> = Vec::new();
        for part in parts {
            if let Part::Text(next) = &part {
                let before = joined.iter_mut().rev().find_map(|part| match part {
                    Part::Text(text) => Some(text),
                    _ => None,
                });
                if let Some(before) = before {
                    before.push_str("\n\n");
                }
                if let Some(Part::Text(before)) = joined.last_mut() {
                    before.push_str(next);
                    continue;
                }
            }
            joined.push(part);
        }
        Self(joined)
    }

    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    pub fn into_parts(self) -> Vec<Part> {
        self.0
    }

    /// What is said in words.
    pub fn text(&self) -> Cow<'_, str> {
        joined_text(&self.0)
    }

    /// About how much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.0.iter().map(Part::memory_bytes).sum()
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self(vec![Part::Text(text)])
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl ToolCall {
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self { id: id.into(), name: name.into(), arguments, cut: None }
    }

    /// Bytes of text the model wrote, or would see.
    pub fn text_bytes(&self) -> usize {
        self.name.len() + self.arguments.to_string().len()
    }
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Bytes of text the model would see.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Context(text) => text.len(),
            Self::Thought(thought) => thought.text.len(),
            Self::Call(call) => call.text_bytes(),
            Self::Attachment(attachment) => attachment.tokens() as usize,
        }
    }

    fn tokens(&self, counter: &dyn crate::tokens::TokenCounter) -> u32 {
        match self {
            Self::Text(text) | Self::Context(text) => counter.count(text),
            Self::Thought(thought) => counter.count(&thought.text),
            Self::Call(call) => {
                counter.count(&call.name) + counter.count(&call.arguments.to_string())
            }
            Self::Attachment(attachment) => attachment.tokens(),
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Text(text) | Self::Context(text) => text.len(),
                Self::Thought(thought) => {
                    thought.text.len() + thought.payload.as_ref().map_or(0, |it| it.len())
                }
                Self::Call(call) => call.id.len() + call.name.len() + held_by(&call.arguments),
                Self::Attachment(Attachment { source: Source::Blob(blob), .. }) => blob.bytes.len(),
                Self::Attachment(Attachment { source: Source::Address(url), .. }) => url.len(),
            }
    }
}

impl Attachment {
    /// About what it costs a model to look at: a picture of the largest size kept, or the text and the picture of each
    /// page.
    pub fn tokens(&self) -> u32 {
        const IMAGE: u32 = 1_600;
        const PAGE: u32 = 2_000;
        match self.kind {
            AttachmentKind::Image => IMAGE,
            AttachmentKind::File { pages } => PAGE.saturating_mul(pages),
        }
    }

    /// How many bytes a request with it has more; none where there is only an address.
    pub fn size(&self) -> u64 {
        match &self.source {
            Source::Blob(blob) => blob.size,
            Source::Address(_) => 0,
        }
    }

    /// What it is, in place of showing it.
    pub fn words(&self) -> String {
        let what = match self.kind {
            AttachmentKind::Image => "An image",
            AttachmentKind::File { .. } => "A file",
        };
        let name = self.name.as_deref().unwrap_or(&self.media_type);
        match &self.source {
            Source::Blob(blob) => format!("{what}, {name}, {} bytes", blob.size),
            Source::Address(url) => format!("{what}, {url}"),
        }
    }
}

impl Message {
    pub fn new(role: Role, text: impl Into<String>, meta: Meta) -> Self {
        Self::of_parts(role, vec![Part::Text(text.into())], meta)
    }

    /// Texts that say nothing are left out.
    pub fn of_parts(role: Role, parts: Vec<Part>, meta: Meta) -> Self {
        let says = |part: &Part| !matches!(part, Part::Text(text) | Part::Context(text) if text.is_empty());
        Self {
            role,
            parts: parts.into_iter().filter(says).collect(),
            tool_call_id: None,
            meta,
            whole: None,
            tokens: OnceLock::new(),
            text_bytes: OnceLock::new(),
        }
    }

    /// The same, with calls behind all else.
    pub fn with_tool_calls(mut self, calls: Vec<ToolCall>) -> Self {
        let parts = std::mem::take(&mut self.parts).into_iter();
        self.parts = parts.chain(calls.into_iter().map(Part::Call)).collect();
        self
    }

    /// The answer to the tool call `id`.
    pub fn tool_result(id: impl Into<String>, text: impl Into<String>, meta: Meta) -> Self {
        Self { tool_call_id: Some(id.into()), ..Self::new(Role::Tool, text, meta) }
    }

    /// The same, with attachments behind all else.
    pub fn with_attachments(mut self, attachments: Vec<Attachment>) -> Self {
        let parts = std::mem::take(&mut self.parts).into_iter();
        self.parts = parts.chain(attachments.into_iter().map(Part::Attachment)).collect();
        self
    }

    /// What was said in words, without what stands around it.
    pub fn text(&self) -> Cow<'_, str> {
        joined_text(&self.parts)
    }

    /// Whether it holds more than what we have put there.
    pub fn has_words(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Context(_)))
    }

    /// What the assistant asked for in this message.
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }

    pub fn has_calls(&self) -> bool {
        self.calls().next().is_some()
    }

    /// What stands beside the text.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.parts.iter().filter_map(|part| match part {
            Part::Attachment(attachment) => Some(attachment),
            _ => None,
        })
    }

    /// Bytes that a request with the message has for its attachments.
    pub fn attached_bytes(&self) -> u64 {
        self.attachments().map(Attachment::size).sum()
    }

    /// What the model thought, as far as it may be read.
    pub fn thoughts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Thought(thought) => Some(&*thought.text).filter(|text| !text.is_empty()),
            _ => None,
        })
    }

    /// Bytes of text the model would see, counted once: an upper bound on tokens that needs no tokenizer.
    pub fn text_bytes(&self) -> usize {
        *self.text_bytes.get_or_init(|| self.parts.iter().map(Part::text_bytes).sum())
    }

    /// About how much memory the message takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.parts.iter().map(Part::memory_bytes).sum::<usize>()
    }

    /// Tokens of the text, counted once.
    pub fn tokens(&self, counter: &dyn crate::tokens::TokenCounter) -> u32 {
        *self.tokens.get_or_init(|| {
            let parts: u32 = self.parts.iter().map(|part| part.tokens(counter)).sum();
            parts + crate::tokens::PER_MESSAGE
        })
    }
}

fn joined_text(parts: &[Part]) -> Cow<'_, str> {
    let mut texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let first = texts.next().unwrap_or_default();
    match texts.next() {
        None => Cow::Borrowed(first),
        Some(second) => Cow::Owned([first, second].into_iter().chain(texts).collect()),
    }
}

/// About what a JSON value holds beside itself. Some are many times as large as their text: `[0,0]` is five bytes.
fn held_by(value: &Value) -> usize {
    let of = |value: &Value| size_of::<Value>() + held_by(value);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(of).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| size_of::<String>() + name.len() + of(value)).sum()
        }
    }
}

/// A shared, unchangeable message.
pub type SharedMessage = Arc<Message>;
