//! The wires without a network: bodies as they are written, and streams as they are read. What goes over HTTP is
//! tested in `crate::tests`.

mod attachments;
mod generate_content;
mod goldens;
mod histories;
mod messages;
mod ollama;
mod responses;
mod streams;

use std::sync::Arc;

use nexus_core::message::{
    Made, Message, Meta, Origin, Part, Role, SharedMessage, Stop, StopReason, Thought, ToolCall,
};
use nexus_core::model::{Effort, ModelInfo, Reasoning, Thinking, ThinkingKind};
use nexus_core::provider::{Answer, ModelCall, ProviderEvent};
use nexus_core::usage::Bill;
use serde_json::{Value, json};

use crate::bounds::Bounds;
use crate::heard::Heard;
use crate::json::Body;
use crate::lines::Lines;
use crate::stream::{Complaint, Decode, Phase};
use crate::{CacheTtl, Kind, ProviderSettings, Wire, wires};

const WIRES: [Wire; 5] =
    [Wire::Messages, Wire::Chat, Wire::Responses, Wire::GenerateContent, Wire::Ollama];

fn call(wire: Wire, messages: impl IntoIterator<Item = SharedMessage>) -> ModelCall {
    let model = ModelInfo::undescribed("tests", wire.name(), "scripted-1");
    ModelCall::of(Arc::new(model), messages)
}

/// The same, of a model that thinks in this way.
fn thinking(mut call: ModelCall, kind: ThinkingKind, reasoning: Reasoning) -> ModelCall {
    Arc::make_mut(&mut call.model).thinking = Thinking { kind, ..Thinking::default() };
    ModelCall { reasoning, ..call }
}

fn effort(effort: Effort) -> Reasoning {
    Reasoning::Asked { effort: Some(effort), budget_tokens: None, shown: true }
}

fn user(text: &str) -> SharedMessage {
    Arc::new(Message::new(Role::User, text, Meta::default()))
}

fn result(id: &str, text: &str) -> SharedMessage {
    Arc::new(Message::tool_result(id, text, Meta::default()))
}

/// What a model said that was reached over this wire.
fn said(wire: Wire, model: &str, parts: Vec<Part>) -> SharedMessage {
    Arc::new(Message::of_parts(Role::Assistant, parts, made(wire, model)))
}

fn made(wire: Wire, model: &str) -> Meta {
    let origin = Origin { provider: "tests".into(), wire: wire.name().into(), model: model.into() };
    let made = Made { origin, briefing: 0, stop: Stop::default(), bill: Bill::default() };
    Meta { made: Some(Arc::new(made)), ..Meta::default() }
}

/// What the very model said that is asked.
fn own(wire: Wire, parts: Vec<Part>) -> SharedMessage {
    said(wire, "scripted-1", parts)
}

fn thought(text: &str, payload: Value) -> Part {
    let payload = (!payload.is_null()).then(|| payload.to_string().into());
    Part::Thought(Thought { text: text.into(), payload })
}

fn calls(id: &str, name: &str) -> Part {
    Part::Call(ToolCall::new(id, name, json!({"path": "a"})))
}

fn body(wire: Wire, call: &ModelCall) -> Value {
    serde_json::from_slice(&written(wire, call).bytes).unwrap()
}

fn written(wire: Wire, call: &ModelCall) -> Body {
    let written = match wire {
        Wire::Responses => wires::responses::request_body(call, None),
        Wire::GenerateContent => wires::generate_content::request_body(call),
        Wire::Ollama => wires::ollama::request_body(call, "30m"),
        Wire::Messages => wires::messages::request_body(call, Some(CacheTtl::FiveMinutes)),
        Wire::Chat => {
            let settings = ProviderSettings::new(Kind::OpenAi);
            let base = settings.base_url.parse().unwrap();
            wires::chat::request_body(call, &wires::chat::Dialect::of(&settings, &base))
        }
    };
    written.unwrap()
}

/// What is sent of the conversation.
fn listed(wire: Wire, call: &ModelCall) -> Vec<Value> {
    let name = match wire {
        Wire::Responses => "input",
        Wire::GenerateContent => "contents",
        _ => "messages",
    };
    body(wire, call)[name].as_array().unwrap().clone()
}

/// All that came of a stream.
#[derive(Debug, Default, PartialEq)]
struct Read {
    text: String,
    thoughts: String,
    /// `Err` is what the provider complains of, or that it cannot be read.
    end: Option<Result<Answer, Value>>,
}

impl Read {
    #[track_caller]
    fn answer(self) -> Answer {
        self.end.unwrap().unwrap()
    }
}

/// Reads a body that comes in these pieces.
fn read<'a>(wire: Wire, pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    match wire {
        Wire::Responses => read_with(wires::responses::Answer::default(), pieces),
        Wire::GenerateContent => read_with(wires::generate_content::Answer::default(), pieces),
        Wire::Ollama => read_with(wires::ollama::Answer, pieces),
        Wire::Messages => read_with(wires::messages::Answer::default(), pieces),
        Wire::Chat => read_with(wires::chat::Answer::default(), pieces),
    }
}

/// As `stream` does it, but for the network.
fn read_with<'a, D: Decode>(mut decode: D, pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let most = Bounds::default().event_bytes_max as usize;
    let (mut events, mut lines) = (nexus_sse::Decoder::new(most), Lines::new(most));
    let (mut heard, mut progress) = (Heard::default(), Phase::Open);
    let mut complaint = None;
    let mut take = |events: &mut nexus_sse::Decoder, lines: &mut Lines, heard: &mut Heard| {
        while progress < Phase::Over && complaint.is_none() {
            let data = match D::LINES {
                true => lines.next_line().unwrap(),
                false => events.next_event().unwrap(),
            };
            let Some(data) = data else { break };
            match decode.event(data, heard) {
                Ok(further) => progress = progress.max(further),
                Err(error) => complaint = Some(told(error)),
            }
        }
        (progress, complaint.clone())
    };
    for piece in pieces {
        events.push(piece);
        lines.push(piece);
        take(&mut events, &mut lines, &mut heard);
    }
    events.push_end();
    lines.push_end();
    let (progress, complaint) = take(&mut events, &mut lines, &mut heard);
    match complaint {
        Some(complaint) => gathered(heard, Some(complaint)),
        None if progress == Phase::Open => gathered(heard, Some(json!("ended too early"))),
        None => {
            heard.finish(None);
            gathered(heard, None)
        }
    }
}

fn told(complaint: Complaint) -> Value {
    match complaint {
        Complaint::Error(error) => error,
        Complaint::Undecodable(error) => json!(error.to_string()),
    }
}

fn gathered(mut heard: Heard, complaint: Option<Value>) -> Read {
    let mut read = Read { end: complaint.map(Err), ..Read::default() };
    while let Some(event) = heard.next() {
        match event.unwrap() {
            ProviderEvent::Text(text) => read.text.push_str(&text),
            ProviderEvent::Reasoning(text) => read.thoughts.push_str(&text),
            ProviderEvent::Usage(_) | ProviderEvent::Logprobs(_) => {}
            ProviderEvent::Done(answer) => read.end = Some(Ok(*answer)),
        }
    }
    read
}

/// Reads one whole answer.
fn read_document(wire: Wire, document: &Value) -> Read {
    let data = document.to_string();
    let mut heard = Heard::default();
    let read = match wire {
        Wire::Responses => {
            wires::responses::Answer::default().document(data.as_bytes(), &mut heard)
        }
        Wire::GenerateContent => {
            wires::generate_content::Answer::default().document(data.as_bytes(), &mut heard)
        }
        Wire::Messages => wires::messages::Answer::default().document(data.as_bytes(), &mut heard),
        Wire::Chat => wires::chat::Answer::default().document(data.as_bytes(), &mut heard),
        Wire::Ollama => wires::ollama::Answer.document(data.as_bytes(), &mut heard),
    };
    match read {
        Ok(()) => {
            heard.finish(None);
            gathered(heard, None)
        }
        Err(complaint) => gathered(heard, Some(told(complaint))),
    }
}

/// Events as they lie in a body.
fn stream(wire: Wire, events: &[Value]) -> Vec<u8> {
    let frame = |event: &Value| match wire {
        Wire::Ollama => format!("{event}\n"),
        _ => format!("data: {event}\n\n"),
    };
    events.iter().map(frame).collect::<String>().into_bytes()
}

/// What comes of these events.
fn hear(wire: Wire, events: &[Value]) -> Read {
    read(wire, [&*stream(wire, events)])
}

/// The payload of a thought.
fn sealed(part: &Part) -> Value {
    match part {
        Part::Thought(Thought { payload: Some(payload), .. }) => {
            serde_json::from_str(payload).unwrap()
        }
        _ => Value::Null,
    }
}

/// What was heard, sent back with the next request as the model's own.
fn sent_back(wire: Wire, answer: Answer) -> Vec<Value> {
    let results: Vec<_> = answer
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Call(call) => Some(result(&call.id, "done")),
            _ => None,
        })
        .collect();
    let messages = [user("Hi"), own(wire, answer.parts)].into_iter().chain(results);
    let call = thinking(call(wire, messages), ThinkingKind::Effort, Reasoning::On);
    listed(wire, &call).split_off(1)
}
