//! Replies as bytes: the wire formats, each as the real service sends it, and what they share.

mod chat;
mod generate_content;
mod messages;
mod ollama;
mod responses;

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::reply::{Answer, ErrorBody, Gate, Odd, Reply, Step, StopSaid, Usage};

pub(crate) use generate_content::Signatures;
pub(crate) use messages::block as messages_block;

/// Characters of a thought or of a call's arguments in one event. Few, so that a client that does not gather fragments
/// fails.
const FRAGMENT_CHARS: usize = 7;

/// What a model says that is told to refuse and not how.
const REFUSAL: &str = "I can't help with that.";

/// A format that model services speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    Chat,
    Messages,
    Responses,
    GenerateContent,
    Ollama,
}

impl Wire {
    pub const ALL: [Self; 5] =
        [Self::Chat, Self::Messages, Self::Responses, Self::GenerateContent, Self::Ollama];

    /// As the configuration names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::GenerateContent => "generate_content",
            Self::Ollama => "ollama",
        }
    }

    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let (_, last) = path.rsplit_once('/')?;
        match last {
            "completions" if path.ends_with("/chat/completions") => Some(Self::Chat),
            "messages" => Some(Self::Messages),
            "responses" => Some(Self::Responses),
            "chat" if path.ends_with("/api/chat") => Some(Self::Ollama),
            _ if last.ends_with(":streamGenerateContent") || last.ends_with(":generateContent") => {
                Some(Self::GenerateContent)
            }
            _ => None,
        }
    }

    /// Whether a request wants its answer in one document. One whose body was not looked at wants a stream.
    pub(crate) fn wants_document(self, path: &str, body: &Value) -> bool {
        match self {
            Self::GenerateContent => path.ends_with(":generateContent"),
            Self::Ollama => body["stream"] == false,
            Self::Chat | Self::Messages | Self::Responses => {
                body.is_object() && body["stream"] != true
            }
        }
    }

    pub(crate) fn stream_type(self) -> &'static str {
        match self {
            Self::Ollama => "application/x-ndjson",
            _ => "text/event-stream; charset=utf-8",
        }
    }

    /// The header by which the service names a request.
    pub(crate) fn request_id_header(self) -> Option<&'static str> {
        match self {
            Self::Messages => Some("request-id"),
            Self::Chat | Self::Responses => Some("x-request-id"),
            Self::GenerateContent | Self::Ollama => None,
        }
    }
}

/// One thing the server does while it sends a body.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Bytes(Bytes),
    /// The usage event of chat completions, which is sent only to those who ask for it.
    UsageIfAsked(Bytes),
    Wait(Gate),
    Hang,
    Cut,
}

impl Frame {
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) | Self::UsageIfAsked(bytes) => Some(bytes),
            Self::Wait(_) | Self::Hang | Self::Cut => None,
        }
    }
}

/// One answer on its way into a wire's words.
struct Saying<'a> {
    steps: Cow<'a, [Step]>,
    reply: &'a Reply,
    usage: Usage,
}

impl Saying<'_> {
    fn has_calls(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::ToolCall { .. }))
    }

    fn stop(&self) -> StopSaid {
        let refuses = |step: &Step| matches!(step, Step::Refusal(_));
        let is_cut = |step: &Step| matches!(step, Step::ToolCall { is_cut: true, .. });
        match &self.reply.stop {
            Some(stop) => stop.clone(),
            None if self.steps.iter().any(is_cut) => StopSaid::MaxTokens,
            None if self.steps.iter().any(refuses) => {
                StopSaid::Refusal { category: None, explanation: None }
            }
            None => StopSaid::End,
        }
    }

    /// The words of a refusal that the steps do not hold, on a wire that cannot refuse without any.
    fn refusal_left_to_say(&self) -> Option<String> {
        match self.stop() {
            StopSaid::Refusal { explanation, .. }
                if !self.steps.iter().any(|step| matches!(step, Step::Refusal(_))) =>
            {
                Some(explanation.unwrap_or_else(|| REFUSAL.to_owned()))
            }
            _ => None,
        }
    }

    fn is_odd(&self, odd: Odd) -> bool {
        self.reply.is_odd(odd)
    }

    fn content(&self) -> Vec<Step> {
        content(&self.steps)
    }
}

/// What is said in the end, as one document has it: pieces of text joined, and nothing but content.
fn content(steps: &[Step]) -> Vec<Step> {
    let mut content: Vec<Step> = Vec::new();
    for step in steps {
        match (content.last_mut(), step) {
            (Some(Step::Text(said)), Step::Text(more))
            | (Some(Step::Refusal(said)), Step::Refusal(more)) => said.push_str(more),
            (
                _,
                Step::Text(_)
                | Step::Refusal(_)
                | Step::Thought { .. }
                | Step::Redacted(_)
                | Step::ToolCall { .. },
            ) => content.push(step.clone()),
            (
                _,
                Step::Ping
                | Step::Garbage
                | Step::Error { .. }
                | Step::Hang
                | Step::Cut
                | Step::Gate(_),
            ) => {}
        }
    }
    content
}

/// What a reply says, whatever becomes of it on the way.
pub(crate) fn content_of(reply: &Reply) -> Vec<Step> {
    match &reply.answer {
        Answer::Stream(steps) => content(steps),
        Answer::Echo | Answer::Raw(_) | Answer::Status { .. } | Answer::Hang => Vec::new(),
    }
}

/// The frames of a reply that is not an HTTP error. `said` is what an echo repeats.
pub(crate) fn frames(
    reply: &Reply,
    wire: Wire,
    said: &str,
    usage: Usage,
    is_document: bool,
) -> Vec<Frame> {
    let steps = match &reply.answer {
        Answer::Raw(chunks) => return chunks.iter().cloned().map(Frame::Bytes).collect(),
        Answer::Status { .. } | Answer::Hang => return Vec::new(),
        Answer::Stream(steps) => Cow::Borrowed(&**steps),
        Answer::Echo => Cow::Owned(vec![Step::Text(said.to_owned())]),
    };
    let saying = Saying { steps, reply, usage };
    let frames = if is_document { document(&saying, wire) } else { stream(&saying, wire) };
    match reply.piece_bytes {
        Some(size) => split(frames, size),
        None => frames,
    }
}

fn stream(saying: &Saying<'_>, wire: Wire) -> Vec<Frame> {
    match wire {
        Wire::Chat => chat::stream(saying),
        Wire::Messages => messages::stream(saying),
        Wire::Responses => responses::stream(saying),
        Wire::GenerateContent => generate_content::stream(saying),
        Wire::Ollama => ollama::stream(saying),
    }
}

/// The whole answer at once. Where the steps say to stop in the middle, it does.
fn document(saying: &Saying<'_>, wire: Wire) -> Vec<Frame> {
    let whole = match wire {
        Wire::Chat => chat::document(saying),
        Wire::Messages => messages::document(saying),
        Wire::Responses => responses::document(saying),
        Wire::GenerateContent => generate_content::document(saying),
        Wire::Ollama => ollama::document(saying),
    };
    let whole = Bytes::from(whole.to_string());
    let mut frames = Vec::new();
    for step in saying.steps.iter() {
        match step {
            Step::Gate(gate) => frames.push(Frame::Wait(gate.clone())),
            Step::Hang | Step::Cut => {
                frames.push(Frame::Bytes(whole.slice(..whole.len() / 2)));
                frames.push(if let Step::Hang = step { Frame::Hang } else { Frame::Cut });
                return frames;
            }
            Step::Error { kind, message } => {
                let body =
                    ErrorBody::Message { message: message.clone(), code: Some(kind.clone()) };
                frames.push(Frame::Bytes(Bytes::from(error_body(&body, 500, None, wire))));
                return frames;
            }
            _ => {}
        }
    }
    frames.push(Frame::Bytes(whole));
    frames
}

pub(crate) fn error_body(
    body: &ErrorBody,
    status: u16,
    retry_after: Option<&str>,
    wire: Wire,
) -> String {
    let (message, code) = match body {
        ErrorBody::Literal(text) => return text.clone(),
        ErrorBody::Message { message, code } => (message.as_str(), code.as_deref()),
    };
    match wire {
        Wire::Chat | Wire::Responses => chat::error(message, status, code),
        Wire::Messages => messages::error(message, status, code),
        Wire::GenerateContent => generate_content::error(message, status, code, retry_after),
        Wire::Ollama => json!({"error": message}),
    }
    .to_string()
}

/// Whether the time to wait is said by a header. Google says seconds in the body.
pub(crate) fn waits_in_header(wire: Wire, retry_after: &str) -> bool {
    wire != Wire::GenerateContent || !generate_content::in_seconds(retry_after)
}

/// The id of the model that is asked for: Google's stands in the path.
pub(crate) fn model_of<'a>(path: &'a str, body: &'a Value) -> &'a str {
    let of_path = || path.rsplit_once("/models/")?.1.split_once(':').map(|(model, _)| model);
    body["model"].as_str().or_else(of_path).unwrap_or_default()
}

/// The last thing a user said, whatever the wire; of several text blocks the last.
pub fn last_user_text(body: &Value) -> Option<&str> {
    let messages = match (&body["messages"], &body["input"], &body["contents"]) {
        (Value::Array(messages), _, _)
        | (_, Value::Array(messages), _)
        | (_, _, Value::Array(messages)) => messages,
        (_, Value::String(input), _) => return Some(input),
        _ => return None,
    };
    // Anthropic and Google take tool results as user messages; those hold no text of a user.
    messages.iter().rev().filter(|message| message["role"] == "user").find_map(|message| {
        match (&message["content"], &message["parts"]) {
            (Value::String(text), _) => Some(own_words(text)),
            (Value::Array(blocks), _) | (_, Value::Array(blocks)) => {
                blocks.iter().rev().find_map(|block| block["text"].as_str())
            }
            _ => None,
        }
    })
}

/// What a user said last, where a wire has one text for all that nobody answered and for our lines between.
fn own_words(text: &str) -> &str {
    const OURS: &str = "Current time: ";
    let at = match text.rfind(&format!("\n\n{OURS}")) {
        Some(at) => at + 2,
        None if text.starts_with(OURS) => 0,
        None => return text,
    };
    text[at..].split_once("\n\n").map_or(text, |(_, said)| said)
}

/// A call's arguments where the wire wants an object.
fn as_object(arguments: &str) -> Value {
    match arguments {
        "" => json!({}),
        _ => serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments)),
    }
}

fn ended(mut frames: Vec<Frame>, last: Frame) -> Vec<Frame> {
    frames.push(last);
    frames
}

/// An event without a name.
fn data(value: &Value) -> Frame {
    Frame::Bytes(Bytes::from(format!("data: {value}\n\n")))
}

/// An event that is named after its `type`.
fn event(value: &Value) -> Frame {
    let name = value["type"].as_str().unwrap_or_default();
    Frame::Bytes(Bytes::from(format!("event: {name}\ndata: {value}\n\n")))
}

fn line(value: &Value) -> Frame {
    Frame::Bytes(Bytes::from(format!("{value}\n")))
}

fn text(text: &'static str) -> Frame {
    Frame::Bytes(Bytes::from_static(text.as_bytes()))
}

fn fragments(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(FRAGMENT_CHARS).map(|fragment| fragment.iter().collect()).collect()
}

fn split(frames: Vec<Frame>, size: usize) -> Vec<Frame> {
    let pieces = |bytes: Bytes, frame: fn(Bytes) -> Frame| -> Vec<Frame> {
        let starts = (0..bytes.len()).step_by(size);
        starts.map(|at| frame(bytes.slice(at..bytes.len().min(at + size)))).collect()
    };
    let split_one = |frame| match frame {
        Frame::Bytes(bytes) => pieces(bytes, Frame::Bytes),
        Frame::UsageIfAsked(bytes) => pieces(bytes, Frame::UsageIfAsked),
        other => vec![other],
    };
    frames.into_iter().flat_map(split_one).collect()
}
