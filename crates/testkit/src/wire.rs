//! Replies as bytes: the two streaming formats, as the real services send them.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::reply::{Answer, ErrorBody, Gate, Reply, Step, Usage};

/// Bytes of a tool call's arguments in one event. Small, so that a client that does not gather fragments fails.
const ARGUMENT_FRAGMENT_CHARS: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenAi,
    Anthropic,
}

impl Format {
    pub fn of_path(path: &str) -> Option<Self> {
        if path.ends_with("/chat/completions") {
            Some(Self::OpenAi)
        } else if path.ends_with("/messages") {
            Some(Self::Anthropic)
        } else {
            None
        }
    }
}

/// One thing the server does while it sends a body.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Bytes(Bytes),
    /// OpenAI's usage event, which is sent only to those who ask for it.
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

/// The frames of a streamed reply. `said` is what an echo repeats.
pub(crate) fn frames(reply: &Reply, format: Format, said: &str) -> Vec<Frame> {
    let frames = match &reply.answer {
        Answer::Raw(chunks) => chunks.iter().cloned().map(Frame::Bytes).collect(),
        Answer::Stream(steps) => encode(steps, reply.usage, format),
        Answer::Echo => encode(&[Step::Text(said.to_owned())], reply.usage, format),
        Answer::Status { .. } | Answer::Hang => Vec::new(),
    };
    match reply.piece_bytes {
        Some(size) => split(frames, size),
        None => frames,
    }
}

pub(crate) fn error_body(body: &ErrorBody, status: u16, format: Format) -> String {
    match (body, format) {
        (ErrorBody::Literal(text), _) => text.clone(),
        (ErrorBody::Message(message), Format::OpenAi) => {
            json!({"error": {"message": message, "type": "scripted_error", "param": null, "code": status}}).to_string()
        }
        (ErrorBody::Message(message), Format::Anthropic) => {
            json!({"type": "error", "error": {"type": "scripted_error", "message": message}}).to_string()
        }
    }
}

fn encode(steps: &[Step], usage: Usage, format: Format) -> Vec<Frame> {
    match format {
        Format::OpenAi => openai(steps, usage),
        Format::Anthropic => anthropic(steps, usage),
    }
}

fn openai(steps: &[Step], usage: Usage) -> Vec<Frame> {
    let chunk = |delta: Value, finish: Value| {
        data(&json!({
            "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        }))
    };
    let mut frames = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let mut calls = 0;
    for step in steps {
        match step {
            Step::Text(text) => frames.push(chunk(json!({"content": text}), Value::Null)),
            Step::ToolCall { id, name, arguments } => {
                let mut head = json!({"index": calls, "type": "function", "function": {"name": name, "arguments": ""}});
                if !id.is_empty() {
                    head["id"] = json!(id);
                }
                frames.push(chunk(json!({"tool_calls": [head]}), Value::Null));
                for fragment in fragments(arguments) {
                    let call = json!({"index": calls, "function": {"arguments": fragment}});
                    frames.push(chunk(json!({"tool_calls": [call]}), Value::Null));
                }
                calls += 1;
            }
            Step::Garbage => frames.push(text("data: {\"choices\": [{\n\n")),
            Step::Error { kind, message } => {
                frames.push(data(
                    &json!({"error": {"message": message, "type": kind, "code": kind}}),
                ));
                return frames;
            }
            Step::Hang => return ended(frames, Frame::Hang),
            Step::Cut => return ended(frames, Frame::Cut),
            Step::Gate(gate) => frames.push(Frame::Wait(gate.clone())),
        }
    }
    frames.push(chunk(json!({}), json!(if calls > 0 { "tool_calls" } else { "stop" })));
    frames.push(openai_usage(usage));
    frames.push(text("data: [DONE]\n\n"));
    frames
}

fn openai_usage(usage: Usage) -> Frame {
    let event = json!({
        "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "scripted",
        "choices": [],
        "usage": {
            "prompt_tokens": usage.input, "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output, "prompt_tokens_details": {"cached_tokens": usage.cached},
        },
    });
    Frame::UsageIfAsked(Bytes::from(format!("data: {event}\n\n")))
}

fn anthropic(steps: &[Step], usage: Usage) -> Vec<Frame> {
    let mut frames = vec![
        event(json!({"type": "message_start", "message": {
            "id": "msg_scripted", "type": "message", "role": "assistant", "model": "scripted", "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {
                "input_tokens": usage.input.saturating_sub(usage.cached), "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": usage.cached, "output_tokens": 1,
            },
        }})),
        event(json!({"type": "ping"})),
    ];
    let mut blocks = Blocks::default();
    let mut calls = 0;
    for step in steps {
        match step {
            Step::Text(text) => {
                if !blocks.in_text {
                    blocks.open(&mut frames, json!({"type": "text", "text": ""}));
                    blocks.in_text = true;
                }
                frames.push(blocks.delta(json!({"type": "text_delta", "text": text})));
            }
            Step::ToolCall { id, name, arguments } => {
                let mut head = json!({"type": "tool_use", "name": name, "input": {}});
                if !id.is_empty() {
                    head["id"] = json!(id);
                }
                blocks.open(&mut frames, head);
                for fragment in fragments(arguments) {
                    frames.push(
                        blocks.delta(json!({"type": "input_json_delta", "partial_json": fragment})),
                    );
                }
                calls += 1;
            }
            Step::Garbage => {
                frames.push(text("event: content_block_delta\ndata: {\"type\": \"content_b\n\n"))
            }
            Step::Error { kind, message } => {
                frames.push(event(
                    json!({"type": "error", "error": {"type": kind, "message": message}}),
                ));
                return frames;
            }
            Step::Hang => return ended(frames, Frame::Hang),
            Step::Cut => return ended(frames, Frame::Cut),
            Step::Gate(gate) => frames.push(Frame::Wait(gate.clone())),
        }
    }
    blocks.close(&mut frames);
    let reason = if calls > 0 { "tool_use" } else { "end_turn" };
    frames.push(event(json!({
        "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": usage.output},
    })));
    frames.push(event(json!({"type": "message_stop"})));
    frames
}

/// Anthropic's content blocks: one open at a time, numbered.
#[derive(Default)]
struct Blocks {
    opened: usize,
    is_open: bool,
    in_text: bool,
}

impl Blocks {
    fn open(&mut self, frames: &mut Vec<Frame>, block: Value) {
        self.close(frames);
        frames.push(event(
            json!({"type": "content_block_start", "index": self.opened, "content_block": block}),
        ));
        self.opened += 1;
        self.is_open = true;
    }

    fn delta(&self, delta: Value) -> Frame {
        event(json!({"type": "content_block_delta", "index": self.opened - 1, "delta": delta}))
    }

    fn close(&mut self, frames: &mut Vec<Frame>) {
        if self.is_open {
            frames.push(event(json!({"type": "content_block_stop", "index": self.opened - 1})));
        }
        self.is_open = false;
        self.in_text = false;
    }
}

fn ended(mut frames: Vec<Frame>, last: Frame) -> Vec<Frame> {
    frames.push(last);
    frames
}

fn data(value: &Value) -> Frame {
    Frame::Bytes(Bytes::from(format!("data: {value}\n\n")))
}

/// An Anthropic event, named after its `type`.
fn event(value: Value) -> Frame {
    let name = value["type"].as_str().unwrap_or_default();
    Frame::Bytes(Bytes::from(format!("event: {name}\ndata: {value}\n\n")))
}

fn text(text: &'static str) -> Frame {
    Frame::Bytes(Bytes::from_static(text.as_bytes()))
}

fn fragments(arguments: &str) -> Vec<String> {
    let chars: Vec<char> = arguments.chars().collect();
    chars.chunks(ARGUMENT_FRAGMENT_CHARS).map(|fragment| fragment.iter().collect()).collect()
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
