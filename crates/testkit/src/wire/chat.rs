//! Chat completions, as OpenAI sends them and as those do who speak alike.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Frame, Saying, as_object, data, ended, fragments, text};
use crate::reply::{Odd, Step, StopSaid, ThoughtField};

pub(super) fn stream(saying: &Saying<'_>) -> Vec<Frame> {
    let mut frames = Vec::new();
    if saying.is_odd(Odd::EmptyChoices) {
        let filters = json!([{"prompt_index": 0, "content_filter_results": {}}]);
        frames.push(data(&chunk_of(json!([]), [("prompt_filter_results", filters)])));
    }
    frames.push(delta(json!({"role": "assistant", "content": ""})));
    if saying.is_odd(Odd::NullChoices) {
        frames.push(data(&chunk_of(Value::Null, [])));
    }
    let (mut calls, mut details) = (0, 0);
    for step in saying.steps.iter() {
        match step {
            Step::Text(said) => frames.push(delta(json!({"content": content(saying, said)}))),
            Step::Refusal(said) => frames.push(delta(json!({"refusal": said}))),
            Step::Thought { text, signature } => {
                for piece in fragments(text) {
                    frames.push(delta(thought(saying, &piece, details)));
                }
                if saying.reply.thoughts_as == ThoughtField::ReasoningDetails {
                    let signed = json!({
                        "type": "reasoning.text", "signature": signature,
                        "format": "anthropic-claude-v1", "index": details,
                    });
                    frames.push(delta(json!({"reasoning_details": [signed]})));
                }
                details += 1;
            }
            Step::Redacted(hidden) => {
                if saying.reply.thoughts_as == ThoughtField::ReasoningDetails {
                    let detail = encrypted(hidden, details);
                    frames.push(delta(json!({"reasoning_details": [detail]})));
                }
                details += 1;
            }
            Step::ToolCall { id, name, arguments, .. } => {
                call(saying, &mut frames, calls, id, name, arguments);
                calls += 1;
            }
            Step::Ping => frames.push(text(": OPENROUTER PROCESSING\n\n")),
            Step::Garbage => frames.push(text("data: {\"choices\": [{\n\n")),
            Step::Error { kind, message } => {
                let error = json!({"message": message, "type": kind, "code": kind});
                frames.push(data(&json!({"error": error})));
                return frames;
            }
            Step::Hang => return ended(frames, Frame::Hang),
            Step::Cut => return ended(frames, Frame::Cut),
            Step::Gate(gate) => frames.push(Frame::Wait(gate.clone())),
        }
    }
    if let Some(words) = saying.refusal_left_to_say() {
        frames.push(delta(json!({"refusal": words})));
    }
    finish(saying, &mut frames);
    frames.push(text("data: [DONE]\n\n"));
    frames
}

/// The end, with usage wherever the service puts it.
fn finish(saying: &Saying<'_>, frames: &mut Vec<Frame>) {
    let reason = finish_reason(saying);
    let mut choice = json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": reason});
    if saying.is_odd(Odd::UsageWithFinish) {
        frames.push(data(&chunk_of(json!([choice]), [("usage", usage(saying))])));
    } else if saying.is_odd(Odd::UsageInChoice) {
        choice["usage"] = usage(saying);
        frames.push(data(&chunk_of(json!([choice]), [])));
    } else if saying.is_odd(Odd::FinishTwice) {
        choice["native_finish_reason"] = json!(reason);
        frames.push(data(&chunk_of(json!([choice]), [])));
        frames.push(data(&chunk_of(json!([choice]), [("usage", usage(saying))])));
    } else {
        frames.push(data(&chunk_of(json!([choice]), [])));
        let last = chunk_of(json!([]), [("usage", usage(saying))]);
        frames.push(Frame::UsageIfAsked(Bytes::from(format!("data: {last}\n\n"))));
    }
}

fn call(
    saying: &Saying<'_>,
    frames: &mut Vec<Frame>,
    index: usize,
    id: &str,
    name: &str,
    arguments: &str,
) {
    let is_whole = saying.is_odd(Odd::WholeCalls) || saying.is_odd(Odd::ArgumentsAsObject);
    let first = match is_whole {
        true if saying.is_odd(Odd::ArgumentsAsObject) => as_object(arguments),
        true => json!(arguments),
        false => json!(""),
    };
    let function = json!({"name": name, "arguments": first});
    let mut head = json!({"index": index, "type": "function", "function": function});
    if !id.is_empty() {
        head["id"] = json!(id);
    }
    frames.push(delta(json!({"tool_calls": [head]})));
    if is_whole {
        return;
    }
    for fragment in fragments(arguments) {
        let mut function = json!({"arguments": fragment});
        if saying.is_odd(Odd::EmptyNames) {
            function["name"] = json!("");
        }
        frames.push(delta(json!({"tool_calls": [{"index": index, "function": function}]})));
    }
}

pub(super) fn document(saying: &Saying<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    let (mut said, mut thoughts) = (String::new(), String::new());
    let (mut calls, mut details) = (Vec::new(), Vec::new());
    for step in saying.content() {
        match step {
            Step::Text(text) => said.push_str(&text),
            Step::Refusal(text) => message["refusal"] = json!(text),
            Step::Thought { text, signature } => {
                thoughts.push_str(&text);
                details.push(json!({
                    "type": "reasoning.text", "text": text, "signature": signature,
                    "format": "anthropic-claude-v1", "index": details.len(),
                }));
            }
            Step::Redacted(hidden) => details.push(encrypted(&hidden, details.len())),
            Step::ToolCall { id, name, arguments, .. } => calls.push(json!({
                "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
            })),
            _ => {}
        }
    }
    if let Some(words) = saying.refusal_left_to_say() {
        message["refusal"] = json!(words);
    }
    if !said.is_empty() {
        message["content"] = content(saying, &said);
    }
    if !thoughts.is_empty() || !details.is_empty() {
        for name in thought_names(saying.reply.thoughts_as) {
            message[*name] = json!(thoughts);
        }
        if saying.reply.thoughts_as == ThoughtField::ReasoningDetails {
            message["reasoning_details"] = json!(details);
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let reason = finish_reason(saying);
    json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": 1_700_000_000, "model": "scripted",
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}],
        "usage": usage(saying),
    })
}

pub(super) fn error(message: &str, status: u16, code: Option<&str>) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn finish_reason(saying: &Saying<'_>) -> String {
    match saying.stop() {
        StopSaid::End if saying.has_calls() => "tool_calls",
        StopSaid::End | StopSaid::Refusal { .. } | StopSaid::Pause | StopSaid::MalformedCall => {
            "stop"
        }
        StopSaid::MaxTokens | StopSaid::ContextWindow => "length",
        StopSaid::ContentFilter => "content_filter",
        StopSaid::Raw(word) => return word,
    }
    .to_owned()
}

fn content(saying: &Saying<'_>, said: &str) -> Value {
    match saying.is_odd(Odd::ContentParts) {
        true => json!([{"type": "text", "text": said}]),
        false => json!(said),
    }
}

fn thought_names(field: ThoughtField) -> &'static [&'static str] {
    match field {
        ThoughtField::ReasoningContent => &["reasoning_content"],
        ThoughtField::Reasoning | ThoughtField::ReasoningDetails => &["reasoning"],
        ThoughtField::BothNames => &["reasoning", "reasoning_content"],
    }
}

fn thought(saying: &Saying<'_>, piece: &str, index: usize) -> Value {
    let field = saying.reply.thoughts_as;
    let mut delta = json!({});
    for name in thought_names(field) {
        delta[*name] = json!(piece);
    }
    if field == ThoughtField::ReasoningDetails {
        delta["reasoning_details"] = json!([{
            "type": "reasoning.text", "text": piece, "format": "anthropic-claude-v1", "index": index,
        }]);
    }
    delta
}

fn encrypted(hidden: &str, index: usize) -> Value {
    json!({
        "type": "reasoning.encrypted", "data": hidden, "format": "anthropic-claude-v1", "index": index,
    })
}

fn usage(saying: &Saying<'_>) -> Value {
    let usage = saying.usage;
    let mut said = json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    });
    if let Some(usd) = saying.reply.cost_usd {
        said["cost"] = json!(usd);
    }
    said
}

fn delta(delta: Value) -> Frame {
    let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
    data(&chunk_of(json!([choice]), []))
}

fn chunk_of<const N: usize>(choices: Value, more: [(&str, Value); N]) -> Value {
    let mut chunk = json!({
        "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "scripted",
        "choices": choices,
    });
    for (name, value) in more {
        chunk[name] = value;
    }
    chunk
}
