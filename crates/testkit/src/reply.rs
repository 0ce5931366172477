//! One scripted answer, in words that hold for every wire format.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

/// What the scripted model does with one request.
///
/// A constructor says how the answer begins; the `then_…` methods say what follows in the same stream. A stream that
/// is not told otherwise ends as the real one does. Where a wire has no word for something, it says what stands nearest.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) answer: Answer,
    /// Nothing is sent, not even headers, until this opens.
    pub(crate) gate: Option<Gate>,
    pub(crate) chunk_delay: Option<Duration>,
    pub(crate) piece_bytes: Option<usize>,
    pub(crate) usage: Usage,
    pub(crate) cost_usd: Option<f64>,
    pub(crate) stop: Option<StopSaid>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) retry_after: Option<String>,
    pub(crate) is_document: bool,
    pub(crate) thoughts_as: ThoughtField,
    pub(crate) odd: Vec<Odd>,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Stream(Vec<Step>),
    Echo,
    Raw(Vec<Bytes>),
    Status { status: u16, body: ErrorBody },
    Hang,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Text(String),
    Refusal(String),
    Thought {
        text: String,
        signature: String,
    },
    /// A thought that nobody but its service can read.
    Redacted(String),
    ToolCall {
        id: String,
        name: String,
        arguments: String,
        /// The answer ended inside the arguments.
        is_cut: bool,
    },
    Ping,
    /// An event whose data is not JSON.
    Garbage,
    /// The provider's own error event.
    Error {
        kind: String,
        message: String,
    },
    Hang,
    Cut,
    Gate(Gate),
}

#[derive(Clone, Debug)]
pub(crate) enum ErrorBody {
    /// Wrapped in the error object of the wire that was asked.
    Message {
        message: String,
        code: Option<String>,
    },
    Literal(String),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Everything the model read, from a cache or not.
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// The part of `cache_write` that is to live for an hour.
    pub long_cache_write: u64,
    pub reasoning: u64,
}

/// Why the model says it stopped, in no wire's words.
///
/// | | messages | chat | responses | generate_content | ollama |
/// | --- | --- | --- | --- | --- | --- |
/// | `End` | `end_turn`, `tool_use` | `stop`, `tool_calls` | completed | `STOP` | `stop` |
/// | `MaxTokens` | `max_tokens` | `length` | incomplete, `max_output_tokens` | `MAX_TOKENS` | `length` |
/// | `Refusal` | `refusal` with details | `stop` after `delta.refusal` | completed with a refusal | `SAFETY` | `stop` |
/// | `ContentFilter` | `refusal` | `content_filter` | incomplete, `content_filter` | `SAFETY`; a blocked prompt if nothing was said | `stop` |
/// | `ContextWindow` | `model_context_window_exceeded` | `length` | failed, `context_length_exceeded` | `MAX_TOKENS` | `length` |
/// | `Pause` | `pause_turn` | `stop` | completed | `CONTINUATION` | `stop` |
/// | `MalformedCall` | `malformed_tool_use` | `stop` | completed | `MALFORMED_FUNCTION_CALL` | `stop` |
/// | `Raw` | the word | the word | incomplete, the word | the word | the word |
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopSaid {
    /// It was done, or wants its calls run. Beside a cut call it hides the cut, as OpenRouter does.
    End,
    MaxTokens,
    Refusal {
        category: Option<String>,
        explanation: Option<String>,
    },
    ContentFilter,
    ContextWindow,
    Pause,
    MalformedCall,
    Raw(String),
}

/// Under which name chat completions carry a thought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThoughtField {
    #[default]
    ReasoningContent,
    Reasoning,
    /// `reasoning` and `reasoning_details`, with signatures, as OpenRouter does.
    ReasoningDetails,
    /// `reasoning` and `reasoning_content` with the same text.
    BothNames,
}

/// What servers that speak a wire do otherwise than the service it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// chat: a chunk with `choices: null` before the text.
    NullChoices,
    /// chat: a first chunk with `choices: []`, as Azure sends.
    EmptyChoices,
    /// chat: `content` as a list of parts.
    ContentParts,
    /// chat: the arguments of a call as an object.
    ArgumentsAsObject,
    /// chat: each call in one fragment, as Mistral sends.
    WholeCalls,
    /// chat: later fragments of a call with an empty name.
    EmptyNames,
    /// chat: usage in the chunk of the finish, as DeepSeek and Mistral send.
    UsageWithFinish,
    /// chat: usage inside the choice, as Moonshot sends.
    UsageInChoice,
    /// chat: usage in a second chunk that repeats the finish, as OpenRouter sends.
    FinishTwice,
    /// messages: `message_start` twice.
    StartTwice,
    /// messages: text, thought and input stand in `content_block_start`, without deltas.
    WholeBlocks,
    /// responses: the error event holds an error object.
    NestedError,
    /// responses: encrypted content comes in `response.completed` only, as Azure may send.
    EncryptedAtEnd,
    /// responses: the id of an item is another one in each event.
    RotatedIds,
    /// responses: thoughts as they are instead of a summary, as open models send.
    OpenThoughts,
}

impl Odd {
    pub const ALL: [Self; 15] = [
        Self::NullChoices,
        Self::EmptyChoices,
        Self::ContentParts,
        Self::ArgumentsAsObject,
        Self::WholeCalls,
        Self::EmptyNames,
        Self::UsageWithFinish,
        Self::UsageInChoice,
        Self::FinishTwice,
        Self::StartTwice,
        Self::WholeBlocks,
        Self::NestedError,
        Self::EncryptedAtEnd,
        Self::RotatedIds,
        Self::OpenThoughts,
    ];
}

impl Reply {
    /// The whole text in one piece.
    pub fn text(text: impl Into<String>) -> Self {
        Self::chunks([text])
    }

    /// A text in the pieces given, each an event of its own.
    pub fn chunks<T: Into<String>>(chunks: impl IntoIterator<Item = T>) -> Self {
        Self::nothing().then_chunks(chunks)
    }

    /// A tool call and no text. The id is unique in this process.
    pub fn tool_call(name: impl Into<String>, arguments: Value) -> Self {
        Self::nothing().then_tool_call(name, arguments)
    }

    /// A thought, with a signature made from its text.
    pub fn thought(text: impl Into<String>) -> Self {
        Self::nothing().then_thought(text)
    }

    /// The model says no, in these words.
    pub fn refusal(text: impl Into<String>) -> Self {
        Self::nothing().then_refusal(text)
    }

    /// An answer that begins with nothing: neither text nor calls, unless they follow.
    pub fn nothing() -> Self {
        Self::of(Answer::Stream(Vec::new()))
    }

    /// Says the last user message back.
    pub fn echo() -> Self {
        Self::of(Answer::Echo)
    }

    /// An HTTP error, with a body as the real service would send it.
    pub fn status(status: u16) -> Self {
        let body = ErrorBody::Message { message: format!("scripted error {status}"), code: None };
        Self::of(Answer::Status { status, body })
    }

    /// Takes the request and never answers, until the client goes away or the server is dropped.
    pub fn hang() -> Self {
        Self::of(Answer::Hang)
    }

    /// These bytes as the body of a 200, each element an HTTP chunk of its own; for what no well-behaved server sends.
    pub fn raw<T: Into<Bytes>>(chunks: impl IntoIterator<Item = T>) -> Self {
        Self::of(Answer::Raw(chunks.into_iter().map(Into::into).collect()))
    }

    pub fn then_text(self, text: impl Into<String>) -> Self {
        self.then(Step::Text(text.into()))
    }

    pub fn then_chunks<T: Into<String>>(self, chunks: impl IntoIterator<Item = T>) -> Self {
        chunks.into_iter().fold(self, Self::then_text)
    }

    pub fn then_tool_call(self, name: impl Into<String>, arguments: Value) -> Self {
        self.then_tool_call_as(new_call_id(), name, arguments.to_string())
    }

    /// A tool call in exactly these words: `arguments` need not be JSON, and an empty `id` is not sent at all. On the
    /// wires whose arguments are an object, those that are not JSON stand there as a string.
    pub fn then_tool_call_as(
        self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        let (id, name, arguments) = (id.into(), name.into(), arguments.into());
        self.then(Step::ToolCall { id, name, arguments, is_cut: false })
    }

    /// A tool call whose arguments the output limit ended after these words. The reason for the stop is
    /// [`StopSaid::MaxTokens`], unless [`Reply::stop`] says otherwise. Wires that send calls whole do not send it.
    pub fn then_cut_call(self, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let (id, name, arguments) = (new_call_id(), name.into(), arguments.into());
        self.then(Step::ToolCall { id, name, arguments, is_cut: true })
    }

    /// A thought, with a signature made from its text.
    pub fn then_thought(self, text: impl Into<String>) -> Self {
        let text = text.into();
        let signature = signature_of(&text);
        self.then_thought_signed(text, signature)
    }

    /// A thought whose text may be empty, as services send that keep it to themselves. An empty signature is not sent.
    /// Gemini's are base64.
    pub fn then_thought_signed(
        self,
        text: impl Into<String>,
        signature: impl Into<String>,
    ) -> Self {
        self.then(Step::Thought { text: text.into(), signature: signature.into() })
    }

    /// A thought that nobody but the service can read: `redacted_thinking`, encrypted reasoning, a signature alone.
    /// Wires that have none of these leave it out.
    pub fn then_redacted(self, data: impl Into<String>) -> Self {
        self.then(Step::Redacted(data.into()))
    }

    /// Words with which the model says no. The reason for the stop is [`StopSaid::Refusal`], unless [`Reply::stop`]
    /// says otherwise.
    pub fn then_refusal(self, text: impl Into<String>) -> Self {
        self.then(Step::Refusal(text.into()))
    }

    /// A sign of life without content: a `ping`, a comment, an empty chunk.
    pub fn then_ping(self) -> Self {
        self.then(Step::Ping)
    }

    /// An event that is not JSON; the stream goes on after it.
    pub fn then_garbage(self) -> Self {
        self.then(Step::Garbage)
    }

    /// The service's error event, after which it ends the stream without the usual terminator. `kind` is the wire's
    /// own word: `overloaded_error`, `server_error`, `UNAVAILABLE`.
    pub fn then_error(self, kind: impl Into<String>, message: impl Into<String>) -> Self {
        self.then(Step::Error { kind: kind.into(), message: message.into() })
    }

    /// Sends nothing more, until the client goes away or the server is dropped.
    pub fn then_hang(self) -> Self {
        self.then(Step::Hang)
    }

    /// Closes the connection in the middle of the body.
    pub fn then_cut(self) -> Self {
        self.then(Step::Cut)
    }

    /// Sends nothing more until the gate opens.
    pub fn then_gate(self, gate: &Gate) -> Self {
        self.then(Step::Gate(gate.clone()))
    }

    /// Why the model says it stopped.
    pub fn stop(mut self, stop: StopSaid) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Holds the whole answer, headers too, until the gate opens.
    pub fn held_by(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Tokens reported. `input` counts everything the model read, from a cache or not; `output` everything it wrote,
    /// thoughts included.
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Usage { input, output, ..self.usage };
        self
    }

    /// The part of the input tokens that came from the provider's cache.
    pub fn cached(mut self, cached: u64) -> Self {
        self.usage.cache_read = cached;
        self
    }

    /// The part of the input tokens that was written to the provider's cache.
    pub fn cache_written(mut self, written: u64) -> Self {
        self.usage.cache_write = written;
        self
    }

    /// The part of the output tokens that was thought.
    pub fn reasoning_tokens(mut self, reasoning: u64) -> Self {
        self.usage.reasoning = reasoning;
        self
    }

    /// What the call cost in dollars, as OpenRouter says it; on chat completions only.
    pub fn cost(mut self, usd: f64) -> Self {
        self.cost_usd = Some(usd);
        self
    }

    /// A header of the answer, whether it is an error or not.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Answers with one JSON document, although a stream was asked for.
    pub fn as_document(mut self) -> Self {
        self.is_document = true;
        self
    }

    /// The name that chat completions give to thoughts.
    pub fn thoughts_as(mut self, field: ThoughtField) -> Self {
        self.thoughts_as = field;
        self
    }

    /// Deviates from the service that the wire comes from. Without effect on other wires.
    pub fn odd(mut self, odd: Odd) -> Self {
        self.odd.push(odd);
        self
    }

    /// Waits this long before each event.
    pub fn chunk_delay(mut self, delay: Duration) -> Self {
        self.chunk_delay = Some(delay);
        self
    }

    /// Sends the same bytes in HTTP chunks of this size, so that events and characters are split anywhere.
    pub fn split_every(mut self, bytes: usize) -> Self {
        self.piece_bytes = Some(bytes.max(1));
        self
    }

    /// The message inside the error body of a [`Reply::status`].
    pub fn message(self, message: impl Into<String>) -> Self {
        self.with_error_body(|body| match body {
            ErrorBody::Message { message: old, .. } => *old = message.into(),
            literal => *literal = ErrorBody::Message { message: message.into(), code: None },
        })
    }

    /// The wire's own word for the error of a [`Reply::status`], such as `context_length_exceeded`. Otherwise it is the
    /// one that belongs to the status.
    pub fn code(self, code: impl Into<String>) -> Self {
        self.with_error_body(|body| match body {
            ErrorBody::Message { code: old, .. } => *old = Some(code.into()),
            ErrorBody::Literal(text) => panic!("{text:?} is a whole body and takes no code"),
        })
    }

    /// The body of a [`Reply::status`], as it stands.
    pub fn body(self, body: impl Into<String>) -> Self {
        self.with_error_body(|old| *old = ErrorBody::Literal(body.into()))
    }

    /// The `Retry-After` header of a [`Reply::status`]: seconds or an HTTP date. On `generate_content`, seconds stand in
    /// the body instead, as Google's services say it.
    pub fn retry_after(mut self, value: impl Into<String>) -> Self {
        let Answer::Status { .. } = &self.answer else {
            panic!("retry_after belongs to Reply::status, not to {:?}", self.answer);
        };
        self.retry_after = Some(value.into());
        self
    }

    pub(crate) fn is_odd(&self, odd: Odd) -> bool {
        self.odd.contains(&odd)
    }

    fn of(answer: Answer) -> Self {
        Self {
            answer,
            gate: None,
            chunk_delay: None,
            piece_bytes: None,
            usage: Usage {
                input: 10,
                output: 5,
                cache_read: 0,
                cache_write: 0,
                long_cache_write: 0,
                reasoning: 0,
            },
            cost_usd: None,
            stop: None,
            headers: Vec::new(),
            retry_after: None,
            is_document: false,
            thoughts_as: ThoughtField::default(),
            odd: Vec::new(),
        }
    }

    fn then(mut self, step: Step) -> Self {
        match &mut self.answer {
            Answer::Stream(steps) => steps.push(step),
            other => panic!("{step:?} cannot follow {other:?}"),
        }
        self
    }

    fn with_error_body(mut self, change: impl FnOnce(&mut ErrorBody)) -> Self {
        match &mut self.answer {
            Answer::Status { body, .. } => change(body),
            other => panic!("an error body belongs to Reply::status, not to {other:?}"),
        }
        self
    }
}

/// Unique in this process.
fn new_call_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("call_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Twenty letters and digits, which are also valid base64.
pub(crate) fn signature_of(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("sign{:016x}", hasher.finish())
}

/// Holds replies back until a test lets them go. Clones are the same gate; once open it stays open.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub fn release(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn opened(&self) {
        // Fails only when the sender is gone, which `self` holds.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}
