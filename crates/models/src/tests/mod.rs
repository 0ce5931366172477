//! Providers against the scripted model. What holds for every provider is said once and run for both wire formats;
//! what one format makes of a conversation is compared with golden text.

mod answers;
mod bounds;
mod faults;
mod requests;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use nexus_core::message::{Message, Meta, Role, SharedMessage, ToolCall};
use nexus_core::provider::{ModelCall, Provider, ProviderError, ProviderEvent, Usage};
use nexus_testkit::ScriptedModel;

use super::{Kind, ProviderSettings, build};

const FORMATS: [Kind; 2] = [Kind::OpenAi, Kind::Anthropic];

const KEY: &str = "the-key-of-the-tests";

/// One retry, at once, and a time limit that only a hanging test meets.
fn settings(kind: Kind, model: &ScriptedModel) -> ProviderSettings {
    ProviderSettings {
        base_url: model.url(),
        api_key: Some(KEY.to_owned()),
        max_retries: 1,
        retry_backoff: Duration::from_millis(1),
        request_timeout: Duration::from_secs(20),
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
    ModelCall {
        model_id: "scripted-1".to_owned(),
        reasoning: false,
        system: "You are terse.".into(),
        tools: Arc::new([]),
        messages: messages.into_iter().collect(),
        volatile: None,
        max_tokens: None,
        schema: None,
    }
}

/// What came of a call.
#[derive(Debug)]
struct Heard {
    texts: Vec<String>,
    calls: Vec<ToolCall>,
    end: Result<Usage, ProviderError>,
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
    let mut heard = Heard { texts: Vec::new(), calls: Vec::new(), end: Ok(Usage::default()) };
    let mut events = match provider.stream(call).await {
        Ok(events) => events,
        Err(error) => return Heard { end: Err(error), ..heard },
    };
    let mut ended = false;
    while let Some(event) = events.next().await {
        assert!(!ended, "an event after the end: {event:?}");
        match event {
            Ok(ProviderEvent::Text(text)) => heard.texts.push(text),
            Ok(ProviderEvent::ToolCall(call)) => heard.calls.push(call),
            Ok(ProviderEvent::Done(usage)) => (heard.end, ended) = (Ok(usage), true),
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
