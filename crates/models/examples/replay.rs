//! Plays recorded answers of services to our wires and prints what was heard, a line of JSON for each.
//!
//! `cargo run -p nexus-models --example replay -- DIRECTORY`, with files `WIRE/NAME`, each the body of an
//! answer as it came: events, or one JSON value.

use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use nexus_core::message::{Message, Meta, Part, Role};
use nexus_core::model::ModelInfo;
use nexus_core::provider::{Answer, ModelCall, Provider, ProviderError, ProviderEvent};
use nexus_models::{Kind, ProviderSettings, Wire, build};
use nexus_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

const WIRES: [(Kind, Wire); 5] = [
    (Kind::OpenAi, Wire::Chat),
    (Kind::Anthropic, Wire::Messages),
    (Kind::OpenAi, Wire::Responses),
    (Kind::Gemini, Wire::GenerateContent),
    (Kind::Ollama, Wire::Ollama),
];

/// A recording comes in pieces of this size, as nothing on a network comes whole.
const PIECE_BYTES: usize = 1_000;

type Failed = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let directory = std::env::args().nth(1).ok_or("say which directory holds the recordings")?;
    let model = ScriptedModel::start().await;
    for (kind, wire) in WIRES {
        let settings = ProviderSettings {
            wire,
            base_url: model.url(),
            max_retries: 0,
            ..ProviderSettings::new(kind)
        };
        let provider = build(&settings)?;
        let place = Path::new(&directory).join(wire.name());
        let Ok(entries) = std::fs::read_dir(place) else { continue };
        let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        for file in files {
            let bytes = std::fs::read(&file)?;
            let reply = Reply::raw(bytes.chunks(PIECE_BYTES).map(<[u8]>::to_vec));
            let is_document = wire != Wire::Ollama && matches!(bytes.first(), Some(b'{' | b'['));
            model.push(if is_document { reply.as_document() } else { reply });
            let heard = match listen(&*provider, wire).await {
                Ok(answer) => described(&answer),
                Err(error) => json!({"error": error.to_string()}),
            };
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            println!("{}", json!({"wire": wire.name(), "file": name, "heard": heard}));
        }
    }
    Ok(())
}

async fn listen(provider: &dyn Provider, wire: Wire) -> Result<Answer, ProviderError> {
    let model = Arc::new(ModelInfo::undescribed("recorded", wire.name(), "m"));
    let asked = Message::new(Role::User, "Hi", Meta::default());
    let mut events = provider.stream(ModelCall::of(model, [asked.into()])).await?;
    while let Some(event) = events.next().await {
        if let ProviderEvent::Done(answer) = event? {
            return Ok(*answer);
        }
    }
    Err(ProviderError::Broken("no end".into()))
}

fn described(answer: &Answer) -> Value {
    let (mut text, mut thoughts, mut calls) = (String::new(), 0, Vec::new());
    for part in &answer.parts {
        match part {
            Part::Text(piece) => text.push_str(piece),
            Part::Thought(_) => thoughts += 1,
            Part::Call(call) => calls.push(json!({
                "name": call.name, "arguments": call.arguments, "cut": call.cut,
            })),
            Part::Context(_) | Part::Attachment(_) => {}
        }
    }
    json!({
        "text": text, "thoughts": thoughts, "calls": calls,
        "stop": format!("{:?}", answer.stop.reason), "input": answer.usage.input, "output": answer.usage.output,
        "cache_read": answer.usage.cache_read, "reasoning": answer.usage.reasoning,
    })
}
