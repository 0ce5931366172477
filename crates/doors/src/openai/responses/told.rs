//! An answer in the shape of `/v1/responses`: whole, and as it is made.

use std::sync::Arc;

use nexus_protocol::turn::SendResult;
use nexus_protocol::usage::Usage;
use serde_json::{Map, Value, json};

use super::super::answer::Finish;
use super::super::ask::{CalledFunction, Message, Role, ToolCall};
use super::super::bare::Call;
use super::super::failure::Failure;
use super::super::stream::{Gone, Writer};
use super::super::turns::Item;

/// What is the same in all that is said of an answer.
#[derive(Clone)]
pub struct Frame {
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    /// As it was asked for.
    pub model: String,
    /// What of the request is said again.
    pub echo: Arc<Map<String, Value>>,
}

impl Frame {
    pub fn new(turn: &str, created: i64, model: &str, echo: Arc<Map<String, Value>>) -> Self {
        Self { id: format!("resp_{turn}"), created, model: model.into(), echo }
    }

    /// Before anything is said.
    fn begun(&self) -> Value {
        self.response("in_progress", Vec::new(), Value::Null)
    }

    fn ended(&self, output: &Output, finish: Finish, usage: &Usage) -> Value {
        let reason = match finish {
            Finish::Length => Some("max_output_tokens"),
            Finish::ContentFilter => Some("content_filter"),
            Finish::Stop | Finish::ToolCalls => None,
        };
        let status = if reason.is_some() { "incomplete" } else { "completed" };
        let mut response = self.response(status, output.items.clone(), usage_entry(usage));
        if let Some(reason) = reason {
            response["incomplete_details"] = json!({"reason": reason});
        }
        response
    }

    fn failed(&self, output: &Output, failure: &Failure) -> Value {
        let mut response = self.response("failed", output.items.clone(), Value::Null);
        response["error"] = failure.in_response();
        response
    }

    fn response(&self, status: &str, output: Vec<Value>, usage: Value) -> Value {
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "error": null,
            "incomplete_details": null, "model": self.model, "output": output, "usage": usage,
        });
        for (name, value) in &*self.echo {
            response[name] = value.clone();
        }
        response
    }
}

fn usage_entry(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    })
}

/// What was said so far, item by item. Each change says what happened, in the words of the stream.
pub struct Output {
    /// Makes the names of items those of this answer alone.
    turn: String,
    items: Vec<Value>,
    open: Option<Open>,
    said: String,
    calls: Vec<ToolCall>,
}

/// The item that is being said.
struct Open {
    is_thought: bool,
    text: String,
    logprobs: Vec<Value>,
}

impl Output {
    pub fn new(frame: &Frame) -> Self {
        let turn = frame.id.trim_start_matches("resp_").to_owned();
        Self { turn, items: Vec::new(), open: None, said: String::new(), calls: Vec::new() }
    }

    pub fn text(&mut self, piece: &str, logprobs: &[Value]) -> Vec<Value> {
        self.said.push_str(piece);
        let mut events = self.opened(false);
        let mut delta = self.event("response.output_text.delta", "msg");
        delta["content_index"] = json!(0);
        delta["delta"] = json!(piece);
        delta["logprobs"] = json!(logprobs);
        events.push(delta);
        self.grow(piece, logprobs);
        events
    }

    pub fn thought(&mut self, piece: &str) -> Vec<Value> {
        let mut events = self.opened(true);
        let mut delta = self.event("response.reasoning_summary_text.delta", "rs");
        delta["summary_index"] = json!(0);
        delta["delta"] = json!(piece);
        events.push(delta);
        self.grow(piece, &[]);
        events
    }

    pub fn call(&mut self, call: &Call) -> Vec<Value> {
        let mut events = self.closed(Finish::Stop);
        let item = |status: &str, arguments: &str| {
            json!({"id": self.name("fc"), "type": "function_call", "status": status, "arguments": arguments,
                "call_id": call.id, "name": call.name})
        };
        let index = self.items.len();
        let (begun, whole) = (item("in_progress", ""), item("completed", &call.arguments));
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": begun}),
        );
        let mut delta = self.event("response.function_call_arguments.delta", "fc");
        delta["delta"] = json!(call.arguments);
        let mut done = self.event("response.function_call_arguments.done", "fc");
        done["name"] = json!(call.name);
        done["arguments"] = json!(call.arguments);
        events.extend([delta, done]);
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": whole}),
        );
        self.items.push(whole);
        let function =
            CalledFunction { name: call.name.clone(), arguments: call.arguments.clone() };
        self.calls.push(ToolCall { id: call.id.clone(), function });
        events
    }

    /// Ends the item that is being said, because of `finish` if nothing comes after it.
    pub fn closed(&mut self, finish: Finish) -> Vec<Value> {
        let Some(Open { is_thought, text, logprobs }) = self.open.take() else { return Vec::new() };
        let is_cut = matches!(finish, Finish::Length | Finish::ContentFilter);
        let status = if is_cut { "incomplete" } else { "completed" };
        let (mut done, part, item) = match is_thought {
            true => {
                let mut done = self.event("response.reasoning_summary_text.done", "rs");
                done["summary_index"] = json!(0);
                let mut part = self.event("response.reasoning_summary_part.done", "rs");
                part["summary_index"] = json!(0);
                part["part"] = summary(&text);
                (done, part, self.thoughts(&[summary(&text)]))
            }
            false => {
                let mut done = self.event("response.output_text.done", "msg");
                done["content_index"] = json!(0);
                done["logprobs"] = json!(logprobs);
                let mut part = self.event("response.content_part.done", "msg");
                part["content_index"] = json!(0);
                let words = words(&text, &logprobs);
                part["part"] = words.clone();
                (done, part, self.message(status, &[words]))
            }
        };
        done["text"] = json!(text);
        let index = self.items.len();
        let item_done =
            json!({"type": "response.output_item.done", "output_index": index, "item": item});
        self.items.push(item);
        vec![done, part, item_done]
    }

    /// What was said, as a message of the conversation.
    pub fn answer(&self) -> Message {
        Message { calls: self.calls.clone(), ..Message::of(Role::Assistant, &self.said) }
    }

    /// Sees to it that an item of this kind is being said.
    fn opened(&mut self, is_thought: bool) -> Vec<Value> {
        if self.open.as_ref().is_some_and(|open| open.is_thought == is_thought) {
            return Vec::new();
        }
        let mut events = self.closed(Finish::Stop);
        let item = if is_thought { self.thoughts(&[]) } else { self.message("in_progress", &[]) };
        let index = self.items.len();
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": item}),
        );
        let part = match is_thought {
            true => {
                let mut part = self.event("response.reasoning_summary_part.added", "rs");
                part["summary_index"] = json!(0);
                part["part"] = summary("");
                part
            }
            false => {
                let mut part = self.event("response.content_part.added", "msg");
                part["content_index"] = json!(0);
                part["part"] = words("", &[]);
                part
            }
        };
        events.push(part);
        self.open = Some(Open { is_thought, text: String::new(), logprobs: Vec::new() });
        events
    }

    fn grow(&mut self, piece: &str, logprobs: &[Value]) {
        if let Some(open) = &mut self.open {
            open.text.push_str(piece);
            open.logprobs.extend_from_slice(logprobs);
        }
    }

    fn message(&self, status: &str, content: &[Value]) -> Value {
        json!({"id": self.name("msg"), "type": "message", "status": status, "role": "assistant", "content": content})
    }

    fn thoughts(&self, summary: &[Value]) -> Value {
        json!({"id": self.name("rs"), "type": "reasoning", "summary": summary})
    }

    fn event(&self, kind: &str, item: &str) -> Value {
        json!({"type": kind, "item_id": self.name(item), "output_index": self.items.len()})
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}_{}_{}", self.turn, self.items.len())
    }
}

fn words(text: &str, logprobs: &[Value]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

fn summary(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// The answer of a turn that is over, and what it said.
pub fn of_turn(frame: &Frame, items: &[Item], answer: &SendResult) -> (Value, Message) {
    let mut output = Output::new(frame);
    for item in items {
        match item {
            Item::Text(text) => drop(output.text(text, &[])),
            Item::Thought(text) => drop(output.thought(text)),
            Item::Event(_) => {}
        }
    }
    whole(frame, output, Finish::of(&answer.stop_reason), &answer.usage)
}

/// The answer when nothing more comes, and what it said.
pub fn whole(frame: &Frame, mut output: Output, finish: Finish, usage: &Usage) -> (Value, Message) {
    output.closed(finish);
    (frame.ended(&output, finish, usage), output.answer())
}

/// Tells an answer as it is made.
pub struct Telling {
    writer: Writer,
    frame: Frame,
    pub output: Output,
    sequence: u64,
}

impl Telling {
    pub async fn begin(writer: Writer, frame: Frame) -> Result<Self, Gone> {
        let output = Output::new(&frame);
        let mut this = Self { writer, frame, output, sequence: 0 };
        for kind in ["response.created", "response.in_progress"] {
            let response = this.frame.begun();
            this.say(json!({"type": kind, "response": response})).await?;
        }
        Ok(this)
    }

    pub async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Gone> {
        self.writer.wait(work).await
    }

    pub async fn all(&mut self, events: Vec<Value>) -> Result<(), Gone> {
        for event in events {
            self.say(event).await?;
        }
        Ok(())
    }

    /// `note` is given the answer before its reader is.
    pub async fn end(
        mut self,
        finish: Finish,
        usage: &Usage,
        note: impl FnOnce(&Value, Message),
    ) -> Result<(), Gone> {
        let last = self.output.closed(finish);
        self.all(last).await?;
        let response = self.frame.ended(&self.output, finish, usage);
        note(&response, self.output.answer());
        let kind = match response["status"] == "incomplete" {
            true => "response.incomplete",
            false => "response.completed",
        };
        self.say(json!({"type": kind, "response": response})).await?;
        self.writer.flush().await
    }

    pub async fn fail(mut self, failure: &Failure) -> Result<(), Gone> {
        let last = self.output.closed(Finish::Length);
        self.all(last).await?;
        self.say(failure.in_stream()).await?;
        let response = self.frame.failed(&self.output, failure);
        self.say(json!({"type": "response.failed", "response": response})).await?;
        self.writer.flush().await
    }

    pub async fn say(&mut self, mut event: Value) -> Result<(), Gone> {
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.writer.event(&event).await
    }
}
