//! Answers of real services, as others have recorded them, heard through our wires.
//!
//! `make recordings` fetches them. Where they are missing this is passed over, with a word on standard error; with
//! `NEXUS3_RECORDINGS=required`, as `make test` sets it, that is a failure. What each of them says is found by another
//! reader (`crates/testkit/recordings/extract.py`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use nexus_core::message::{Message, Meta, Part, Role};
use nexus_core::model::ModelInfo;
use nexus_core::provider::{Answer, ModelCall, Provider, ProviderError, ProviderEvent};
use nexus_models::{Bounds, Kind, ProviderSettings, Wire, build};
use nexus_testkit::{Reply, ScriptedModel};
use serde::Deserialize;
use serde_json::{Value, json};

const WIRES: [(Kind, Wire); 4] = [
    (Kind::Anthropic, Wire::Messages),
    (Kind::OpenAi, Wire::Chat),
    (Kind::OpenAi, Wire::Responses),
    (Kind::Gemini, Wire::GenerateContent),
];

/// A recording comes in pieces of this size, as nothing on a network comes whole.
const PIECE_BYTES: usize = 1_000;

#[derive(Deserialize)]
struct Recording {
    wire: String,
    name: String,
    /// One JSON value instead of a stream.
    document: bool,
    body: String,
    /// What it says.
    text: String,
    calls: Vec<Value>,
    /// `None` where it does not say that.
    stop: Option<String>,
    /// It ends with an error.
    failed: bool,
}

#[tokio::test]
async fn what_services_have_said_is_heard() {
    let Some(file) = recordings() else { return };
    let model = ScriptedModel::start().await;
    let providers = WIRES.map(|(kind, wire)| {
        let base_url = match wire {
            Wire::GenerateContent => model.root() + "/v1beta",
            _ => model.url(),
        };
        // Some were asked for pictures, as nothing is here; these are larger than what is said in words.
        let bounds =
            Bounds { answer_bytes_max: 16 << 20, event_bytes_max: 16 << 20, ..Bounds::default() };
        let settings = ProviderSettings {
            wire,
            base_url,
            max_retries: 0,
            bounds,
            ..ProviderSettings::new(kind)
        };
        (wire, build(&settings).unwrap())
    });
    let mut heard = BTreeMap::new();
    let mut misheard = Vec::new();
    for line in BufReader::new(file).lines() {
        let recording: Recording = serde_json::from_str(&line.unwrap()).unwrap();
        let (wire, provider) = providers
            .iter()
            .find(|(wire, _)| wire.name() == recording.wire)
            .unwrap_or_else(|| panic!("{} is no wire", recording.wire));
        let pieces = recording.body.as_bytes().chunks(PIECE_BYTES).map(<[u8]>::to_vec);
        let reply = Reply::raw(pieces);
        model.push(if recording.document { reply.as_document() } else { reply });
        let got = listen(&**provider, *wire).await;
        if !recording.is(&got) {
            let Recording { wire, name, text, calls, stop, failed, .. } = &recording;
            misheard.push(format!(
                "{wire} {name}: {got:?}, not {text:?}, {calls:?}, {stop:?}, failed: {failed}"
            ));
        }
        *heard.entry((recording.wire, recording.document)).or_insert(0) += 1;
    }
    assert!(misheard.is_empty(), "{} of {heard:?}:\n{}", misheard.len(), misheard.join("\n"));
    for wire in WIRES.map(|(_, wire)| wire.name().to_owned()) {
        assert!(heard.get(&(wire.clone(), false)) > Some(&5), "no streams of {wire}: {heard:?}");
    }
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

impl Recording {
    /// Whether this was heard.
    fn is(&self, heard: &Result<Answer, ProviderError>) -> bool {
        let Ok(answer) = heard else { return self.failed };
        let text = answer.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        let calls = answer.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(json!({"name": call.name, "arguments": call.arguments})),
            _ => None,
        });
        !self.failed
            && text.collect::<String>() == self.text
            && calls.collect::<Vec<_>>() == self.calls
            && self.stop.as_ref().is_none_or(|stop| stop == answer.stop.reason.name())
    }
}

fn recordings() -> Option<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if let Ok(file) = File::open(root.join("target/recordings/recordings.jsonl")) {
        return Some(file);
    }
    let is_required = std::env::var_os("NEXUS3_RECORDINGS").is_some_and(|it| it == "required");
    assert!(!is_required, "the recordings are missing: run make recordings");
    eprintln!("skipped: no answers of services were fetched (make recordings)");
    None
}
