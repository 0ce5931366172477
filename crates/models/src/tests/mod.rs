//! Providers against the scripted model. What holds for every provider is said once and run for both wire formats;
//! what one format makes of a conversation is compared with golden text.

mod answers;
mod attachments;
mod bounds;
mod faults;
mod lanes;
mod reached;
mod requests;
mod settings;
mod wires;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use nexus_core::message::{Message, Meta, Part, Role, SharedMessage, ToolCall};
use nexus_core::model::ModelInfo;
use nexus_core::provider::{Answer, ModelCall, Provider, ProviderError, ProviderEvent};
use nexus_core::usage::Usage;
use nexus_testkit::ScriptedModel;

use super::{Kind, ProviderSettings, Wire, build};

const FORMATS: [Kind; 2] = [Kind::OpenAi, Kind::Anthropic];

const KEY: &str = "the-key-of-the-tests";

/// One retry, at once, and a time limit that only a hanging test meets. Where a service speaks several wires it is the one
/// that most others imitate; what the newer ones have of their own is tested in `wires`.
fn settings(kind: Kind, model: &ScriptedModel) -> ProviderSettings {
    ProviderSettings {
        wire: *Wire::spoken_by(kind).last().unwrap(),
        base_url: model.url(),
        api_key: Some(KEY.to_owned()),
        max_retries: 1,
        retry_backoff: Duration::from_millis(1),
        first_event_timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
        ..ProviderSettings::new(kind)
    }
}

fn provider(kind: Kind, model: &ScriptedModel) -> Arc<dyn Provider> {
    build(&settings(kind, model)).unwrap()
}

fn user(text: &str) -> SharedMessage {
    Arc::new(Message::new(Role::User, text, Meta::default()))
}

fn assistant(text: &str) -> SharedMessage {
    Arc::new(Message::new(Role::Assistant, text, Meta::default()))
}

fn call(messages: impl IntoIterator<Item = SharedMessage>) -> ModelCall {
    let model =
        ModelInfo { cache_minimum: 0, ..ModelInfo::undescribed("tests", "tests", "scripted-1") };
    ModelCall { system: "You are terse.".into(), ..ModelCall::of(Arc::new(model), messages) }
}

/// What came of a call.
#[derive(Debug)]
struct Heard {
    texts: Vec<String>,
    calls: Vec<ToolCall>,
    thoughts: String,
    end: Result<Box<Answer>, ProviderError>,
}

impl Heard {
    fn text(&self) -> String {
        self.texts.concat()
    }

    #[track_caller]
    fn failure(&self) -> String {
        self.end.as_ref().unwrap_err().to_string()
    }
}

async fn hear(provider: &dyn Provider, call: ModelCall) -> Heard {
    let mut heard = Heard {
        texts: Vec::new(),
        calls: Vec::new(),
        thoughts: String::new(),
        end: Ok(Box::default()),
    };
    let mut events = match provider.stream(call).await {
        Ok(events) => events,
        Err(error) => return Heard { end: Err(error), ..heard },
    };
    let mut ended = false;
    while let Some(event) = events.next().await {
        assert!(!ended, "an event after the end: {event:?}");
        match event {
            Ok(ProviderEvent::Text(text)) => heard.texts.push(text),
            Ok(ProviderEvent::Reasoning(text)) => heard.thoughts.push_str(&text),
            Ok(ProviderEvent::Usage(_) | ProviderEvent::Logprobs(_)) => {}
            Ok(ProviderEvent::Done(answer)) => {
                heard.calls.extend(answer.parts.iter().filter_map(|part| match part {
                    Part::Call(call) => Some(call.clone()),
                    _ => None,
                }));
                (heard.end, ended) = (Ok(answer), true);
            }
            Err(error) => (heard.end, ended) = (Err(error), true),
        }
    }
    assert!(ended, "the stream ended without saying how: {heard:?}");
    heard
}

/// Asks a provider of this kind one thing.
async fn ask(kind: Kind, model: &ScriptedModel) -> Heard {
    hear(&*provider(kind, model), call([user("Hi")])).await
}
