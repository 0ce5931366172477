//! Ollama's own chat: a line of JSON for each piece.

use serde_json::{Value, json};

use super::{Frame, Saying, as_object, ended, fragments, line, text};
use crate::reply::{Step, StopSaid};

pub(super) fn stream(saying: &Saying<'_>) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut calls = 0;
    for step in saying.steps.iter() {
        match step {
            Step::Text(said) | Step::Refusal(said) => {
                frames.push(piece(json!({"role": "assistant", "content": said})));
            }
            Step::Thought { text, .. } => {
                for piece_of_thought in fragments(text) {
                    frames.push(piece(json!({
                        "role": "assistant", "content": "", "thinking": piece_of_thought,
                    })));
                }
            }
            Step::Redacted(_) => {}
            Step::ToolCall { is_cut: true, .. } => {}
            Step::ToolCall { id, name, arguments, .. } => {
                let call = call(calls, id, name, arguments);
                frames
                    .push(piece(json!({"role": "assistant", "content": "", "tool_calls": [call]})));
                calls += 1;
            }
            Step::Ping => frames.push(piece(json!({"role": "assistant", "content": ""}))),
            Step::Garbage => frames.push(text("{\"model\": \"scri\n")),
            Step::Error { message, .. } => {
                frames.push(line(&json!({"error": message})));
                return frames;
            }
            Step::Hang => return ended(frames, Frame::Hang),
            Step::Cut => return ended(frames, Frame::Cut),
            Step::Gate(gate) => frames.push(Frame::Wait(gate.clone())),
        }
    }
    frames.push(line(&last(saying, json!({"role": "assistant", "content": ""}))));
    frames
}

pub(super) fn document(saying: &Saying<'_>) -> Value {
    let (mut said, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for step in saying.content() {
        match step {
            Step::Text(text) | Step::Refusal(text) => said.push_str(&text),
            Step::Thought { text, .. } => thoughts.push_str(&text),
            Step::ToolCall { id, name, arguments, is_cut: false } => {
                calls.push(call(calls.len(), &id, &name, &arguments));
            }
            _ => {}
        }
    }
    let mut message = json!({"role": "assistant", "content": said});
    if !thoughts.is_empty() {
        message["thinking"] = json!(thoughts);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    last(saying, message)
}

fn call(index: usize, id: &str, name: &str, arguments: &str) -> Value {
    let function = json!({"index": index, "name": name, "arguments": as_object(arguments)});
    match id {
        "" => json!({"function": function}),
        id => json!({"id": id, "function": function}),
    }
}

fn piece(message: Value) -> Frame {
    line(&json!({
        "model": "scripted", "created_at": "2023-11-14T22:13:20.000000Z", "message": message, "done": false,
    }))
}

fn last(saying: &Saying<'_>, message: Value) -> Value {
    let reason = match saying.stop() {
        StopSaid::End
        | StopSaid::Refusal { .. }
        | StopSaid::ContentFilter
        | StopSaid::Pause
        | StopSaid::MalformedCall => "stop".to_owned(),
        StopSaid::MaxTokens | StopSaid::ContextWindow => "length".to_owned(),
        StopSaid::Raw(word) => word,
    };
    json!({
        "model": "scripted", "created_at": "2023-11-14T22:13:20.000000Z", "message": message, "done": true,
        "done_reason": reason, "total_duration": 5_000_000, "load_duration": 1_000_000,
        "prompt_eval_count": saying.usage.input, "prompt_eval_duration": 2_000_000,
        "eval_count": saying.usage.output, "eval_duration": 2_000_000,
    })
}
