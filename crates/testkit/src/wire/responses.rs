//! OpenAI's responses.

use serde_json::{Value, json};

use super::{Frame, Saying, ended, event, fragments, text};
use crate::reply::{Odd, Step, StopSaid};

pub(super) fn stream(saying: &Saying<'_>) -> Vec<Frame> {
    let mut output = Output::new(saying);
    for name in ["response.created", "response.in_progress"] {
        let response = response(saying, &[], &End::under_way());
        output.event(json!({"type": name, "response": response}));
    }
    for step in saying.steps.iter() {
        match step {
            Step::Text(said) => output.say(Part::Text, said),
            Step::Refusal(said) => output.say(Part::Refusal, said),
            Step::Thought { text, signature } => output.think(text, signature),
            Step::Redacted(data) => output.think("", data),
            Step::ToolCall { id, name, arguments, is_cut } => {
                output.call(id, name, arguments, *is_cut);
            }
            Step::Ping => output.event(json!({"type": "keepalive"})),
            Step::Garbage => output
                .frames
                .push(text("event: response.output_text.delta\ndata: {\"type\": \"respo\n\n")),
            Step::Error { kind, message } => {
                output.fail(kind, message);
                return output.frames;
            }
            Step::Hang => return ended(output.frames, Frame::Hang),
            Step::Cut => return ended(output.frames, Frame::Cut),
            Step::Gate(gate) => output.frames.push(Frame::Wait(gate.clone())),
        }
    }
    if let Some(words) = saying.refusal_left_to_say() {
        output.say(Part::Refusal, &words);
    }
    let end = End::of(saying);
    output.close(end.item_status());
    let response = response(saying, &output.items, &end);
    output.event(json!({"type": format!("response.{}", end.status), "response": response}));
    output.frames
}

pub(super) fn document(saying: &Saying<'_>) -> Value {
    let mut output = Output::new(saying);
    for step in saying.content() {
        match &step {
            Step::Text(said) => output.say(Part::Text, said),
            Step::Refusal(said) => output.say(Part::Refusal, said),
            Step::Thought { text, signature } => output.think(text, signature),
            Step::Redacted(data) => output.think("", data),
            Step::ToolCall { id, name, arguments, is_cut } => {
                output.call(id, name, arguments, *is_cut);
            }
            _ => {}
        }
    }
    if let Some(words) = saying.refusal_left_to_say() {
        output.say(Part::Refusal, &words);
    }
    let end = End::of(saying);
    output.close(end.item_status());
    response(saying, &output.items, &end)
}

/// How a response ends, or that it has not yet.
struct End {
    status: &'static str,
    error: Value,
    incomplete: Value,
}

impl End {
    fn under_way() -> Self {
        Self { status: "in_progress", error: Value::Null, incomplete: Value::Null }
    }

    fn of(saying: &Saying<'_>) -> Self {
        let incomplete = |reason: &str| Self {
            status: "incomplete",
            error: Value::Null,
            incomplete: json!({"reason": reason}),
        };
        match saying.stop() {
            StopSaid::End
            | StopSaid::Refusal { .. }
            | StopSaid::Pause
            | StopSaid::MalformedCall => Self { status: "completed", ..Self::under_way() },
            StopSaid::MaxTokens => incomplete("max_output_tokens"),
            StopSaid::ContentFilter => incomplete("content_filter"),
            StopSaid::Raw(word) => incomplete(&word),
            StopSaid::ContextWindow => Self::failed(
                "context_length_exceeded",
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
            ),
        }
    }

    fn failed(code: &str, message: &str) -> Self {
        let error = json!({"code": code, "message": message});
        Self { status: "failed", error, incomplete: Value::Null }
    }

    /// What the last item is when the response ends so.
    fn item_status(&self) -> &'static str {
        match self.status {
            "completed" => "completed",
            _ => "incomplete",
        }
    }
}

fn response(saying: &Saying<'_>, items: &[Value], end: &End) -> Value {
    let usage = saying.usage;
    let counted = match end.status {
        "completed" | "incomplete" => json!({
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }),
        _ => Value::Null,
    };
    json!({
        "id": "resp_scripted", "object": "response", "created_at": 1_700_000_000, "status": end.status,
        "error": end.error, "incomplete_details": end.incomplete, "instructions": null, "metadata": {},
        "model": "scripted", "output": items, "parallel_tool_calls": true, "previous_response_id": null,
        "store": false, "temperature": null, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
        "tools": [], "top_p": null, "truncation": "disabled", "usage": counted,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Text,
    Refusal,
}

impl Part {
    fn of(self, said: &str) -> Value {
        match self {
            Self::Text => {
                json!({"type": "output_text", "text": said, "annotations": [], "logprobs": []})
            }
            Self::Refusal => json!({"type": "refusal", "refusal": said}),
        }
    }

    fn event(self) -> &'static str {
        match self {
            Self::Text => "response.output_text",
            Self::Refusal => "response.refusal",
        }
    }
}

/// The items of an answer as they grow, and the events that tell of it.
struct Output<'a> {
    saying: &'a Saying<'a>,
    frames: Vec<Frame>,
    sequence: u64,
    /// Those that are whole. A message that is not stands behind them.
    items: Vec<Value>,
    /// The parts of that message; the last is being said.
    message: Option<Vec<(Part, String)>>,
}

impl<'a> Output<'a> {
    fn new(saying: &'a Saying<'a>) -> Self {
        Self { saying, frames: Vec::new(), sequence: 0, items: Vec::new(), message: None }
    }

    fn event(&mut self, mut data: Value) {
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        self.frames.push(event(&data));
    }

    /// The item that is being said, and the place it has in the output.
    fn item_id(&self, prefix: &str) -> String {
        match self.saying.is_odd(Odd::RotatedIds) {
            true => format!("{prefix}_{}_{}", self.items.len(), self.sequence),
            false => format!("{prefix}_{}", self.items.len()),
        }
    }

    fn item_event(&mut self, name: &str, item: &Value) {
        let index = self.items.len();
        let name = format!("response.output_item.{name}");
        self.event(json!({"type": name, "output_index": index, "item": item}));
    }

    fn say(&mut self, part: Part, said: &str) {
        if self.message.is_none() {
            let item = self.message_item(&[], "in_progress");
            self.item_event("added", &item);
            self.message = Some(Vec::new());
        }
        let parts = self.message.as_mut().map_or(&mut [][..], Vec::as_mut_slice);
        match parts.last_mut() {
            Some((kind, text)) if *kind == part => text.push_str(said),
            _ => {
                self.close_part();
                if let Some(parts) = &mut self.message {
                    parts.push((part, said.to_owned()));
                }
                self.part_event("response.content_part.added", json!({"part": part.of("")}));
            }
        }
        let mut more = json!({"delta": said});
        if part == Part::Text {
            more["logprobs"] = json!([]);
        }
        self.part_event(&format!("{}.delta", part.event()), more);
    }

    /// An event of the part that is being said.
    fn part_event(&mut self, name: &str, more: Value) {
        let index = self.message.as_ref().map_or(0, |parts| parts.len().saturating_sub(1));
        let mut data = json!({
            "type": name, "item_id": self.item_id("msg"), "output_index": self.items.len(), "content_index": index,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            data[key] = value.clone();
        }
        self.event(data);
    }

    fn close_part(&mut self) {
        let last = self.message.as_ref().and_then(|parts| parts.last().cloned());
        let Some((part, said)) = last else { return };
        let whole = match part {
            Part::Text => json!({"text": said, "logprobs": []}),
            Part::Refusal => json!({"refusal": said}),
        };
        self.part_event(&format!("{}.done", part.event()), whole);
        self.part_event("response.content_part.done", json!({"part": part.of(&said)}));
    }

    /// Ends the message that is being said, if there is one.
    fn close(&mut self, status: &str) {
        self.close_part();
        let Some(parts) = self.message.take() else { return };
        let item = self.message_item(&parts, status);
        self.item_event("done", &item);
        self.items.push(item);
    }

    fn message_item(&self, parts: &[(Part, String)], status: &str) -> Value {
        let content: Vec<Value> = parts.iter().map(|(part, said)| part.of(said)).collect();
        let phase = if self.saying.has_calls() { "commentary" } else { "final_answer" };
        json!({
            "id": self.item_id("msg"), "type": "message", "role": "assistant", "status": status, "content": content,
            "phase": phase,
        })
    }

    fn think(&mut self, text: &str, encrypted: &str) {
        self.close("completed");
        let begun = encrypted.get(..encrypted.len() / 2).unwrap_or_default();
        let added = self.reasoning_item("", json!(begun));
        self.item_event("added", &added);
        if !text.is_empty() && self.saying.is_odd(Odd::OpenThoughts) {
            for piece in fragments(text) {
                self.thought_event("response.reasoning_text.delta", json!({"delta": piece}));
            }
            self.thought_event("response.reasoning_text.done", json!({"text": text}));
        } else if !text.is_empty() {
            let part = |text: &str| json!({"part": {"type": "summary_text", "text": text}});
            self.thought_event("response.reasoning_summary_part.added", part(""));
            for piece in fragments(text) {
                let delta = json!({"delta": piece});
                self.thought_event("response.reasoning_summary_text.delta", delta);
            }
            self.thought_event("response.reasoning_summary_text.done", json!({"text": text}));
            self.thought_event("response.reasoning_summary_part.done", part(text));
        }
        let at_once = match self.saying.is_odd(Odd::EncryptedAtEnd) {
            true => Value::Null,
            false => json!(encrypted),
        };
        let done = self.reasoning_item(text, at_once);
        self.item_event("done", &done);
        let whole = self.reasoning_item(text, json!(encrypted));
        self.items.push(whole);
    }

    fn reasoning_item(&self, text: &str, encrypted: Value) -> Value {
        let part = |kind: &str| match text {
            "" => json!([]),
            text => json!([{"type": kind, "text": text}]),
        };
        let mut item = json!({
            "id": self.item_id("rs"), "type": "reasoning", "summary": [], "encrypted_content": encrypted,
        });
        match self.saying.is_odd(Odd::OpenThoughts) {
            true => item["content"] = part("reasoning_text"),
            false => item["summary"] = part("summary_text"),
        }
        item
    }

    fn thought_event(&mut self, name: &str, more: Value) {
        let index = if name.contains("reasoning_text") { "content_index" } else { "summary_index" };
        let mut data = json!({
            "type": name, "item_id": self.item_id("rs"), "output_index": self.items.len(), index: 0,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            data[key] = value.clone();
        }
        self.event(data);
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str, is_cut: bool) {
        self.close("completed");
        let item = |item_id: String, arguments: &str, status: &str| {
            let mut item = json!({
                "id": item_id, "type": "function_call", "status": status, "arguments": arguments, "name": name,
            });
            if !id.is_empty() {
                item["call_id"] = json!(id);
            }
            item
        };
        let added = item(self.item_id("fc"), "", "in_progress");
        self.item_event("added", &added);
        let index = self.items.len();
        for piece in fragments(arguments) {
            self.event(json!({
                "type": "response.function_call_arguments.delta", "item_id": self.item_id("fc"),
                "output_index": index, "delta": piece,
            }));
        }
        self.event(json!({
            "type": "response.function_call_arguments.done", "item_id": self.item_id("fc"),
            "output_index": index, "name": name, "arguments": arguments,
        }));
        let status = if is_cut { "incomplete" } else { "completed" };
        let whole = item(self.item_id("fc"), arguments, status);
        self.item_event("done", &whole);
        self.items.push(whole);
    }

    fn fail(&mut self, code: &str, message: &str) {
        let told = match self.saying.is_odd(Odd::NestedError) {
            true => json!({"type": "error", "error": {
                "type": code, "code": code, "message": message, "param": null,
            }}),
            false => json!({"type": "error", "code": code, "message": message, "param": null}),
        };
        self.event(told);
        let response = response(self.saying, &self.items, &End::failed(code, message));
        self.event(json!({"type": "response.failed", "response": response}));
    }
}
