//! One scripted answer, in words that hold for every wire format.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

/// What the scripted model does with one request.
///
/// A constructor says how the answer begins; the `then_…` methods say what follows in the same stream. A stream that
/// is not told otherwise ends as the real one does.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) answer: Answer,
    /// Nothing is sent, not even headers, until this opens.
    pub(crate) gate: Option<Gate>,
    pub(crate) chunk_delay: Option<Duration>,
    pub(crate) piece_bytes: Option<usize>,
    pub(crate) usage: Usage,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Stream(Vec<Step>),
    Echo,
    Raw(Vec<Bytes>),
    Status { status: u16, body: ErrorBody, retry_after: Option<String> },
    Hang,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Text(String),
    ToolCall {
        id: String,
        name: String,
        arguments: String,
    },
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
    /// Wrapped in the error object of the format that was asked.
    Message(String),
    Literal(String),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub input: u64,
    pub output: u64,
    pub cached: u64,
}

impl Reply {
    /// The whole text in one piece.
    pub fn text(text: impl Into<String>) -> Self {
        Self::chunks([text])
    }

    /// A text in the pieces given, each an event of its own.
    pub fn chunks<T: Into<String>>(chunks: impl IntoIterator<Item = T>) -> Self {
        Self::of(Answer::Stream(Vec::new())).then_chunks(chunks)
    }

    /// A tool call and no text. The id is unique in this process.
    pub fn tool_call(name: impl Into<String>, arguments: Value) -> Self {
        Self::of(Answer::Stream(Vec::new())).then_tool_call(name, arguments)
    }

    /// Says the last user message back.
    pub fn echo() -> Self {
        Self::of(Answer::Echo)
    }

    /// An HTTP error, with a body as the real service would send it.
    pub fn status(status: u16) -> Self {
        let body = ErrorBody::Message(format!("scripted error {status}"));
        Self::of(Answer::Status { status, body, retry_after: None })
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
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = format!("call_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.then_tool_call_as(id, name, arguments.to_string())
    }

    /// A tool call in exactly these words: `arguments` need not be JSON, and an empty `id` is not sent at all.
    pub fn then_tool_call_as(
        self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.then(Step::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
    }

    /// An event that is not JSON; the stream goes on after it.
    pub fn then_garbage(self) -> Self {
        self.then(Step::Garbage)
    }

    /// The service's error event, after which it ends the stream without the usual terminator.
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

    /// Holds the whole answer, headers too, until the gate opens.
    pub fn held_by(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Tokens reported. `input` counts everything the model read, from a cache or not.
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Usage { input, output, ..self.usage };
        self
    }

    /// The part of the input tokens that came from the provider's cache.
    pub fn cached(mut self, cached: u64) -> Self {
        self.usage.cached = cached;
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
        self.with_error_body(ErrorBody::Message(message.into()))
    }

    /// The body of a [`Reply::status`], as it stands.
    pub fn body(self, body: impl Into<String>) -> Self {
        self.with_error_body(ErrorBody::Literal(body.into()))
    }

    /// The `Retry-After` header of a [`Reply::status`]: seconds or an HTTP date.
    pub fn retry_after(mut self, value: impl Into<String>) -> Self {
        match &mut self.answer {
            Answer::Status { retry_after, .. } => *retry_after = Some(value.into()),
            other => panic!("retry_after belongs to Reply::status, not to {other:?}"),
        }
        self
    }

    fn of(answer: Answer) -> Self {
        let usage = Usage { input: 10, output: 5, cached: 0 };
        Self { answer, gate: None, chunk_delay: None, piece_bytes: None, usage }
    }

    fn then(mut self, step: Step) -> Self {
        match &mut self.answer {
            Answer::Stream(steps) => steps.push(step),
            other => panic!("{step:?} cannot follow {other:?}"),
        }
        self
    }

    fn with_error_body(mut self, new: ErrorBody) -> Self {
        match &mut self.answer {
            Answer::Status { body, .. } => *body = new,
            other => panic!("an error body belongs to Reply::status, not to {other:?}"),
        }
        self
    }
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
