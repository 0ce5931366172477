//! Anthropic's messages.

use serde_json::{Value, json};

use super::{Frame, Saying, as_object, ended, event, fragments, text};
use crate::reply::{Odd, Step, StopSaid};

pub(super) fn stream(saying: &Saying<'_>) -> Vec<Frame> {
    let start =
        json!({"type": "message_start", "message": message(saying, json!([]), Stop::NotYet)});
    let mut frames = vec![event(&start)];
    if saying.is_odd(Odd::StartTwice) {
        frames.push(event(&start));
    }
    frames.push(event(&json!({"type": "ping"})));
    let mut blocks = Blocks::default();
    for step in saying.steps.iter() {
        match step {
            Step::Text(said) | Step::Refusal(said) => {
                if saying.is_odd(Odd::WholeBlocks) {
                    blocks.open(&mut frames, block(step));
                    continue;
                }
                if !blocks.in_text {
                    blocks.open(&mut frames, json!({"type": "text", "text": ""}));
                    blocks.in_text = true;
                }
                frames.push(blocks.delta(json!({"type": "text_delta", "text": said})));
            }
            Step::Thought { .. } | Step::ToolCall { .. } if saying.is_odd(Odd::WholeBlocks) => {
                blocks.open(&mut frames, block(step));
            }
            Step::Thought { text, signature } => {
                let head = json!({"type": "thinking", "thinking": "", "signature": ""});
                blocks.open(&mut frames, head);
                for piece in fragments(text) {
                    frames.push(blocks.delta(json!({"type": "thinking_delta", "thinking": piece})));
                }
                if !signature.is_empty() {
                    let signed = json!({"type": "signature_delta", "signature": signature});
                    frames.push(blocks.delta(signed));
                }
            }
            Step::Redacted(_) => blocks.open(&mut frames, block(step)),
            Step::ToolCall { id, name, arguments, .. } => {
                let mut head = json!({"type": "tool_use", "name": name, "input": {}});
                if !id.is_empty() {
                    head["id"] = json!(id);
                }
                blocks.open(&mut frames, head);
                frames.push(blocks.delta(json!({"type": "input_json_delta", "partial_json": ""})));
                for piece in fragments(arguments) {
                    let delta = json!({"type": "input_json_delta", "partial_json": piece});
                    frames.push(blocks.delta(delta));
                }
            }
            Step::Ping => frames.push(event(&json!({"type": "ping"}))),
            Step::Garbage => {
                frames.push(text("event: content_block_delta\ndata: {\"type\": \"content_b\n\n"))
            }
            Step::Error { kind, message } => {
                let error = json!({"type": kind, "message": message});
                frames.push(event(&json!({"type": "error", "error": error})));
                return frames;
            }
            Step::Hang => return ended(frames, Frame::Hang),
            Step::Cut => return ended(frames, Frame::Cut),
            Step::Gate(gate) => frames.push(Frame::Wait(gate.clone())),
        }
    }
    blocks.close(&mut frames);
    let (reason, details) = stop(saying);
    let mut usage = json!({"output_tokens": saying.usage.output});
    add_thinking(&mut usage, saying);
    frames.push(event(&json!({
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": null, "stop_details": details},
        "usage": usage,
    })));
    frames.push(event(&json!({"type": "message_stop"})));
    frames
}

pub(super) fn document(saying: &Saying<'_>) -> Value {
    let content: Vec<Value> = saying.content().iter().map(block).collect();
    message(saying, json!(content), Stop::Said)
}

pub(super) fn error(message: &str, status: u16, code: Option<&str>) -> Value {
    let kind = code.unwrap_or(match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    });
    let error = json!({"type": kind, "message": message});
    json!({"type": "error", "error": error, "request_id": "req_scripted"})
}

/// A step as the block that is there when it is whole.
pub(crate) fn block(step: &Step) -> Value {
    match step {
        Step::Text(said) | Step::Refusal(said) => json!({"type": "text", "text": said}),
        Step::Thought { text, signature } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        Step::Redacted(data) => json!({"type": "redacted_thinking", "data": data}),
        Step::ToolCall { id, name, arguments, .. } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": as_object(arguments)})
        }
        Step::Ping
        | Step::Garbage
        | Step::Error { .. }
        | Step::Hang
        | Step::Cut
        | Step::Gate(_) => Value::Null,
    }
}

#[derive(PartialEq)]
enum Stop {
    NotYet,
    Said,
}

fn message(saying: &Saying<'_>, content: Value, stops: Stop) -> Value {
    let usage = saying.usage;
    let uncached = usage.input.saturating_sub(usage.cache_read + usage.cache_write);
    let output = if stops == Stop::Said { usage.output } else { 1 };
    let mut counted = json!({
        "input_tokens": uncached, "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write.saturating_sub(usage.long_cache_write),
            "ephemeral_1h_input_tokens": usage.long_cache_write,
        },
        "output_tokens": output, "service_tier": "standard",
    });
    let (reason, details) = match stops {
        Stop::NotYet => (Value::Null, Value::Null),
        Stop::Said => {
            add_thinking(&mut counted, saying);
            stop(saying)
        }
    };
    json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": "scripted", "content": content,
        "stop_reason": reason, "stop_sequence": null, "stop_details": details, "usage": counted,
    })
}

fn add_thinking(usage: &mut Value, saying: &Saying<'_>) {
    if saying.usage.reasoning > 0 {
        usage["output_tokens_details"] = json!({"thinking_tokens": saying.usage.reasoning});
    }
}

/// The reason and its details.
fn stop(saying: &Saying<'_>) -> (Value, Value) {
    let reason = match saying.stop() {
        StopSaid::End if saying.has_calls() => "tool_use",
        StopSaid::End => "end_turn",
        StopSaid::MaxTokens => "max_tokens",
        StopSaid::ContextWindow => "model_context_window_exceeded",
        StopSaid::Pause => "pause_turn",
        StopSaid::MalformedCall => "malformed_tool_use",
        StopSaid::ContentFilter => "refusal",
        StopSaid::Refusal { category, explanation } => {
            let details =
                json!({"type": "refusal", "category": category, "explanation": explanation});
            return (json!("refusal"), details);
        }
        StopSaid::Raw(word) => return (json!(word), Value::Null),
    };
    (json!(reason), Value::Null)
}

/// The content blocks: one open at a time, numbered.
#[derive(Default)]
struct Blocks {
    opened: usize,
    is_open: bool,
    in_text: bool,
}

impl Blocks {
    fn open(&mut self, frames: &mut Vec<Frame>, block: Value) {
        self.close(frames);
        let start =
            json!({"type": "content_block_start", "index": self.opened, "content_block": block});
        frames.push(event(&start));
        self.opened += 1;
        self.is_open = true;
    }

    fn delta(&self, delta: Value) -> Frame {
        event(&json!({"type": "content_block_delta", "index": self.opened - 1, "delta": delta}))
    }

    fn close(&mut self, frames: &mut Vec<Frame>) {
        if self.is_open {
            frames.push(event(&json!({"type": "content_block_stop", "index": self.opened - 1})));
        }
        self.is_open = false;
        self.in_text = false;
    }
}
