//! What settings make of a provider: address, headers, refusals, and what is kept secret.

use std::fmt;
use std::sync::Mutex;

use nexus_core::logs::RAW_TARGET;
use nexus_testkit::{Reply, ScriptedModel};
use tracing::field::Field;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::super::{AuthMethod, BuildError};
use super::*;

/// Asks a provider with these settings something and says what it sent: path and the headers of interest.
async fn sent(model: &ScriptedModel, settings: ProviderSettings, headers: &[&str]) -> String {
    let heard = hear(&*build(&settings).unwrap(), call([user("Hi")])).await;
    assert!(heard.end.is_ok(), "{:?}", heard.end);
    let request = model.last_request();
    let headers =
        headers.iter().filter_map(|name| Some(format!(" {name}={}", request.header(name)?)));
    request.path.clone() + &headers.collect::<String>()
}

const AUTH: [&str; 4] = ["authorization", "api-key", "x-api-key", "anthropic-version"];

/// It keeps the calls of a conversation with one of its providers, whose cache then knows them.
#[tokio::test]
async fn openrouter_is_told_which_calls_belong_together() {
    let model = ScriptedModel::start().await;
    let sent = async |kind, conversation: &str, own: Option<&str>| {
        let own = own.map(|value| ("X-Session-Id".to_owned(), value.to_owned()));
        let settings =
            ProviderSettings { extra_headers: own.into_iter().collect(), ..settings(kind, &model) };
        let mut call = call([user("Hi")]);
        call.asker.conversation = conversation.into();
        assert!(hear(&*build(&settings).unwrap(), call).await.end.is_ok());
        model.last_request().header("x-session-id").map(str::to_owned)
    };
    let name = "0f".repeat(16);
    assert_eq!(sent(Kind::OpenRouter, &name, None).await, Some(name.clone()));
    assert_eq!(sent(Kind::OpenRouter, &name, Some("mine")).await.as_deref(), Some("mine"));
    assert_eq!(sent(Kind::OpenRouter, "", None).await, None);
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::OpenRouter) {
        assert_eq!(sent(kind, &name, None).await, None, "{kind:?}");
    }
}

#[tokio::test]
async fn each_kind_has_its_address_and_its_way_to_send_the_key() {
    let model = ScriptedModel::start().await;
    let of = |kind| settings(kind, &model);
    let origin = || model.url().trim_end_matches("/v1").to_owned();

    let bearer = "/v1/chat/completions authorization=Bearer the-key-of-the-tests";
    assert_eq!(sent(&model, of(Kind::OpenAi), &AUTH).await, bearer);
    assert_eq!(sent(&model, of(Kind::OpenRouter), &AUTH).await, bearer);
    assert_eq!(sent(&model, of(Kind::Ollama), &AUTH).await, "/v1/chat/completions");
    assert_eq!(
        sent(&model, of(Kind::Anthropic), &AUTH).await,
        "/v1/messages x-api-key=the-key-of-the-tests anthropic-version=2023-06-01"
    );

    let azure = ProviderSettings { base_url: origin(), ..of(Kind::Azure) };
    assert_eq!(
        sent(&model, azure.clone(), &AUTH).await,
        "/openai/deployments/scripted-1/chat/completions?api-version=2024-10-21 api-key=the-key-of-the-tests"
    );
    let named = ProviderSettings {
        deployment: Some("my dep".to_owned()),
        api_version: Some("v 1".to_owned()),
        ..azure
    };
    assert_eq!(
        sent(&model, named, &[]).await,
        "/openai/deployments/my%20dep/chat/completions?api-version=v+1"
    );
    let newer =
        ProviderSettings { base_url: format!("{}/openai/v1/", origin()), ..of(Kind::Azure) };
    assert_eq!(sent(&model, newer, &[]).await, "/openai/v1/chat/completions");

    for (kind, path) in [
        (Kind::OpenAi, "/v1/chat/completions"),
        (Kind::OpenRouter, "/api/v1/chat/completions"),
        (Kind::Ollama, "/v1/chat/completions"),
        (Kind::Anthropic, "/v1/messages"),
    ] {
        for base_url in [origin(), format!("{}/", origin())] {
            assert_eq!(
                sent(&model, ProviderSettings { base_url, ..of(kind) }, &[]).await,
                path,
                "{kind:?}"
            );
        }
    }
    let gateway =
        ProviderSettings { base_url: format!("{}/anthropic/", origin()), ..of(Kind::Anthropic) };
    assert_eq!(sent(&model, gateway, &[]).await, "/anthropic/v1/messages");
}

#[tokio::test]
async fn settings_have_their_effect() {
    let model = ScriptedModel::start().await;
    let of = |kind| settings(kind, &model);
    for (auth_method, expected) in [
        (AuthMethod::Bearer, " authorization=Bearer the-key-of-the-tests"),
        (AuthMethod::ApiKey, " api-key=the-key-of-the-tests"),
        (AuthMethod::XApiKey, " x-api-key=the-key-of-the-tests"),
        (AuthMethod::None, ""),
    ] {
        let settings = ProviderSettings { auth_method, ..of(Kind::OpenAi) };
        assert_eq!(sent(&model, settings, &AUTH).await, format!("/v1/chat/completions{expected}"));
    }
    let keyless = ProviderSettings { api_key: None, ..of(Kind::OpenAi) };
    assert_eq!(sent(&model, keyless, &AUTH).await, "/v1/chat/completions");
    let extra = vec![
        ("X-Title".to_owned(), "nexus3".to_owned()),
        ("anthropic-version".to_owned(), "mine".to_owned()),
    ];
    let settings = ProviderSettings { extra_headers: extra, ..of(Kind::Anthropic) };
    assert_eq!(
        sent(&model, settings, &["x-title", "anthropic-version"]).await,
        "/v1/messages x-title=nexus3 anthropic-version=mine"
    );
    let versioned = |kind| ProviderSettings { api_version: Some("7".to_owned()), ..of(kind) };
    assert_eq!(
        sent(&model, versioned(Kind::OpenAi), &[]).await,
        "/v1/chat/completions?api-version=7"
    );
    assert_eq!(
        sent(&model, versioned(Kind::Anthropic), &["anthropic-version"]).await,
        "/v1/messages anthropic-version=7"
    );
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let of = ProviderSettings::new;
    let key = |key: &str| ProviderSettings { api_key: Some(key.to_owned()), ..of(Kind::OpenAi) };
    let header = |name: &str, value: &str| ProviderSettings {
        extra_headers: vec![(name.to_owned(), value.to_owned())],
        ..of(Kind::OpenAi)
    };
    let url = |url: &str| ProviderSettings { base_url: url.to_owned(), ..of(Kind::OpenAi) };
    let refusal =
        |settings: ProviderSettings| build(&settings).err().map(|error| error.to_string());

    let bad_key = BuildError::ApiKey.to_string();
    assert_eq!(refusal(key("schlüssel")), Some(bad_key.clone()));
    assert_eq!(refusal(key("key\n")), Some(bad_key));
    assert_eq!(refusal(key("key")), None);
    let bad_header = Some("the header \"x y\" in extra_headers cannot be sent".to_owned());
    assert_eq!(refusal(header("x y", "a")), bad_header);
    assert_eq!(
        refusal(header("x", "secret\nvalue")),
        bad_header.map(|text| text.replace("x y", "x"))
    );
    for (bad, reason) in [
        ("not a url", "relative URL without a base"),
        ("ftp://host/v1", "it must begin with http:// or https://"),
        ("https://me:secret@host/v1", "it must not hold a user name or password"),
        ("https://host/v1?key=secret", "it must not hold a query or fragment"),
    ] {
        assert_eq!(refusal(url(bad)), Some(format!("the base_url is not usable: {reason}")));
    }
    assert_eq!(
        refusal(of(Kind::Azure)).as_deref(),
        Some("a provider of type azure needs a base_url")
    );
    let deployment = ProviderSettings { deployment: Some("d".to_owned()), ..of(Kind::OpenAi) };
    assert_eq!(
        refusal(deployment).as_deref(),
        Some("deployment has no meaning for a provider of type openai")
    );
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Azure) {
        assert_eq!(refusal(of(kind)), None, "{kind:?}");
    }
}

#[test]
fn names_and_defaults_agree() {
    for kind in Kind::ALL {
        assert_eq!(Kind::parse(kind.name()), Some(kind));
    }
    for method in AuthMethod::ALL {
        assert_eq!(AuthMethod::parse(method.name()), Some(method));
    }
    assert_eq!(Kind::parse("OpenAI"), None);
}

#[test]
fn debug_shows_no_secret() {
    let settings = ProviderSettings {
        api_key: Some(KEY.to_owned()),
        base_url: format!("https://u:{KEY}@host"),
        extra_headers: vec![("x".to_owned(), KEY.to_owned())],
        ..ProviderSettings::new(Kind::OpenAi)
    };
    let shown = format!("{settings:?}");
    assert!(shown.contains("has_api_key: true") && !shown.contains(KEY), "{shown}");
}

/// Keeps every event as one line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = event.metadata().target().to_owned();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            line += &format!(" {field}={value:?}")
        });
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test]
async fn raw_traffic_is_logged_without_the_key() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
    // While there is one subscriber only, another thread that meets a line first turns it off for all.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let broken = Reply::status(500).message(format!("what is {KEY}?"));
        model.push(broken.header("x-request-id", "req_7"));
        model.push(Reply::text("Heard."));
        assert!(ask(kind, &model).await.end.is_ok());
        let lines = std::mem::take(&mut *log.0.lock().unwrap());
        let find = |kind: &str, words: &str| {
            let start = format!("{RAW_TARGET} kind=\"{kind}\"");
            let found = lines.iter().any(|line| line.starts_with(&start) && line.contains(words));
            assert!(found, "no {kind} with {words} in {lines:#?}");
        };
        let named = lines
            .iter()
            .any(|line| line.contains("tried again") && line.contains("request_id=\"req_7\""));
        assert!(named, "{lines:#?}");
        find("request", "Hi");
        find("request", &model.url());
        find("response", "status=500");
        find("response", "what is [redacted]?");
        find("response", "status=200");
        find("chunk", "Heard.");
        assert!(!lines.iter().any(|line| line.contains(KEY)), "{lines:#?}");
    }
}
