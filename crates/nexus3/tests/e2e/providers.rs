//! Model services that fail, and which model is asked.
//!
//! Whatever goes wrong, three things must hold: the error says what it was, the conversation stays one that a model
//! can be shown, and the next turn works.

use std::fs;
use std::path::Path;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::setup::KEY;
use crate::harness::{Fault, Provider, Server, Setup, eventually};
use crate::support::{at_path, create, entry, history, say, shown};

/// How a model fails, and what is expected of it.
struct Case {
    replies: Vec<Reply>,
    /// The start of the error's text.
    error: &'static str,
    code: i64,
    /// What the model had said before it failed.
    partial: &'static str,
    /// Calls of the model, retries included.
    calls: usize,
    /// Short only where silence is what is tested: a loaded machine is silent too.
    silence_seconds_max: f64,
}

/// Runs a case on both formats: one failed turn, then one that works.
async fn check(case: Case) {
    for provider in [Provider::OpenAi, Provider::Anthropic] {
        let keys = json!({"max_retries": 2, "retry_backoff": 0.01, "request_timeout": case.silence_seconds_max});
        let server = Setup::new().provider(provider).provider_keys(keys).start().await;
        let wire = server.wire();
        create(&wire, "a").await;
        say(&wire, "a", "one").await;
        for reply in &case.replies {
            server.model().push(reply.clone());
        }
        let fault = wire.refused("send", json!({"agent_id": "a", "content": "two"})).await;
        assert_eq!(fault.code, case.code, "{provider:?}: {fault:?}");
        let said = if fault.code == -32002 {
            fault.data["details"].as_str().unwrap()
        } else {
            &*fault.message
        };
        assert!(said.starts_with(case.error), "{provider:?}: {fault:?}");
        assert_eq!(server.model().request_count(), 1 + case.calls, "{provider:?}: {fault:?}");

        let hello = "assistant: Hello from the scripted model.";
        let cut = (!case.partial.is_empty()).then(|| format!("assistant: {}", case.partial));
        let mut kept = vec!["user: one".to_string(), hello.into(), "user: two".into()];
        if let Some(line) = &cut {
            // What was said is kept, and the model told to go on, as often as it was.
            for _ in 1..case.calls {
                kept.extend([line.clone(), "user: ".into()]);
            }
            kept.push(format!("{line} (interrupted)"));
        }
        assert_eq!(history(&wire, "a").await, kept, "{provider:?}");

        say(&wire, "a", "three").await;
        let mut seen = vec!["user: one".to_string(), hello.into()];
        // A message that nobody answered is not shown again.
        seen.extend(cut.iter().map(|_| "user: two".into()));
        let seen_at_last = shown(&server.model().last_request());
        assert_eq!(seen_at_last[..seen.len()], seen, "{provider:?}");
        assert_eq!(
            seen_at_last.len(),
            seen.len() + 2 * case.calls * cut.iter().count() + usize::from(cut.is_none())
        );
        assert_eq!(seen_at_last.last().unwrap(), "user: three", "{provider:?}");
    }
}

fn failing(reply: Reply, error: &'static str) -> Case {
    Case {
        replies: vec![reply],
        error,
        code: -32603,
        partial: "",
        calls: 1,
        silence_seconds_max: 20.0,
    }
}

#[tokio::test]
async fn a_refused_request() {
    check(failing(
        Reply::status(400).message("too odd"),
        "The provider refused the request (400: too odd)",
    ))
    .await;
}

#[tokio::test]
async fn refused_credentials() {
    let told = Reply::status(401).message(format!("Incorrect API key: {}", KEY.1));
    check(failing(told, "The provider refused the credentials (401: Incorrect API key: ")).await;
}

#[tokio::test]
async fn a_service_that_stays_away() {
    let replies = vec![Reply::status(503); 3];
    let error = "The provider is not available (503: scripted error 503)";
    check(Case { replies, calls: 3, ..failing(Reply::hang(), error) }).await;
}

#[tokio::test]
async fn a_rate_limit_that_lasts() {
    let replies = vec![Reply::status(429).retry_after("0"); 3];
    let error = "The provider's rate limit was hit";
    check(Case { replies, calls: 3, code: -32002, ..failing(Reply::hang(), error) }).await;
}

#[tokio::test]
async fn silence_in_mid_answer() {
    let reply = Reply::text("Half ").then_hang();
    let case = failing(reply, "The provider did not answer in time");
    let replies = vec![Reply::text("Half ").then_hang(); 4];
    check(Case { replies, calls: 4, partial: "Half ", silence_seconds_max: 1.0, ..case }).await;
}

#[tokio::test]
async fn a_connection_that_breaks_in_mid_answer() {
    let replies = vec![Reply::chunks(["Half ", "a"]).then_cut(); 4];
    let case = failing(Reply::hang(), "The provider broke off");
    check(Case { replies, calls: 4, partial: "Half a", ..case }).await;
}

#[tokio::test]
async fn a_call_for_a_tool_that_breaks_off() {
    let reply =
        Reply::text("Let me see. ").then_tool_call("read_file", json!({"path": "a"})).then_cut();
    let case = failing(Reply::hang(), "The provider broke off");
    check(Case { replies: vec![reply; 4], calls: 4, partial: "Let me see. ", ..case }).await;
}

#[tokio::test]
async fn an_error_in_mid_answer() {
    let reply = Reply::text("Half ").then_error("overloaded_error", "busy");
    let case = failing(Reply::hang(), "The provider is not available (busy)");
    check(Case { replies: vec![reply; 4], calls: 4, partial: "Half ", ..case }).await;
}

#[tokio::test]
async fn an_answer_that_is_no_answer() {
    let replies = vec![Reply::nothing().then_garbage(); 3];
    check(Case { replies, calls: 3, ..failing(Reply::hang(), "The provider broke off") }).await;
}

#[tokio::test]
async fn silence_from_the_start_is_tried_again() {
    let keys = json!({"max_retries": 1, "retry_backoff": 0.01, "request_timeout": 0.5});
    let server = Setup::new().provider_keys(keys).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    for _ in 0..2 {
        server.model().push(Reply::hang());
    }
    let fault = wire.refused("send", json!({"agent_id": "a", "content": "Hi"})).await;
    assert_eq!((fault.code, &*fault.message), (-32603, "The provider did not answer in time"));
    assert_eq!(server.model().request_count(), 2);
    say(&wire, "a", "Again").await;
}

#[tokio::test]
async fn what_passes_is_tried_again_unseen() {
    for provider in [Provider::OpenAi, Provider::Anthropic] {
        let keys = json!({"retry_backoff": 0.01});
        let server = Setup::new().provider(provider).provider_keys(keys).start().await;
        let wire = server.wire();
        create(&wire, "a").await;
        for (number, reply) in
            [Reply::status(429).retry_after("0"), Reply::status(503), Reply::status(500)]
                .into_iter()
                .enumerate()
        {
            server.model().push(reply);
            assert_eq!(say(&wire, "a", "Hi").await, "Hello from the scripted model.");
            assert_eq!(server.model().request_count(), 2 * (number + 1));
        }
        assert_eq!(history(&wire, "a").await.len(), 6);
    }
}

#[tokio::test]
async fn a_rate_limit_is_429_with_its_wait() {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::status(429).retry_after("7"));
    let body = crate::harness::wire::request(1, "send", json!({"content": "Hi"}));
    let response = server.ask(server.post(body).path("/agent/a")).await;
    assert_eq!(response.refusal(), (429, -32002));
    assert_eq!(response.header("retry-after"), Some("7"));
    let data = &response.answer()["error"]["data"];
    assert_eq!((&data["scope"], &data["retry_after_ms"]), (&json!("upstream"), &json!(7000)));
}

#[tokio::test]
async fn without_a_provider_everything_but_a_turn_works() {
    let server = Setup::new().unconfigured().start().await;
    let wire = server.wire();
    let said = server.log().text();
    for hint in ["no model is configured", "nexus3 model pull", "ANTHROPIC_API_KEY", "config.json"]
    {
        assert!(said.contains(hint), "the start does not say {hint}: {said}");
    }
    create(&wire, "a").await;
    let fault = wire.refused("send", json!({"agent_id": "a", "content": "Hi"})).await;
    assert_eq!((fault.code, &*fault.message), (-32001, "No model is configured"));
    assert!(!fault.data["recovery_suggestions"].as_array().unwrap().is_empty());
    assert_eq!(at_path(&server, "a", "send", json!({"content": "Hi"})).await.0, 200);
    assert_eq!(history(&wire, "a").await, [""; 0], "what could not be said is not kept");
    assert_eq!(entry(&wire, "a").await["model"], Value::Null);
    assert_eq!(wire.ok("rpc.version", json!({})).await["default_model"], Value::Null);
    assert_eq!(wire.ok("get_tokens", json!({"agent_id": "a"})).await["budget"], 0);
}

#[tokio::test]
async fn a_model_is_asked_for_by_any_of_its_names() {
    let models = json!({"fast": {"id": "m-1"}, "deep": {"id": "m-2", "context_window": 4096}});
    let setup = Setup::new().provider_keys(json!({"models": models}));
    let server = setup.config(json!({"default_model": "deep"})).start().await;
    let wire = server.wire();
    let names = [
        (None, "m-2", 4096),
        (Some("fast"), "m-1", 128_000),
        (Some("scripted/fast"), "m-1", 128_000),
        (Some("scripted/org/any:id"), "org/any:id", 128_000),
    ];
    for (name, id, window) in names {
        let made = wire.ok("create_agent", json!({"model": name})).await;
        let agent = made["agent_id"].as_str().unwrap();
        say(&wire, agent, "Hi").await;
        assert_eq!(server.model().last_request().body["model"], id);
        assert_eq!(entry(&wire, agent).await["model"], name.unwrap_or("deep"));
        assert_eq!(wire.ok("get_tokens", json!({"agent_id": agent})).await["budget"], window);
    }
    for unknown in ["m-1", "other/fast", "", "scripted/"] {
        let fault = wire.refused("create_agent", json!({"model": unknown})).await;
        assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/model")), "{unknown}");
        assert!(fault.message.contains("known: scripted, fast, deep, scripted/ID"), "{fault:?}");
    }
    assert_eq!(wire.ok("rpc.version", json!({})).await["default_model"], "deep");
}

#[tokio::test]
async fn a_model_that_is_gone_from_the_configuration_is_named() {
    let setup = Setup::new().provider_keys(json!({"models": {"old": {}}}));
    let mut server = setup.start().await;
    server.wire().ok("create_agent", json!({"agent_id": "a", "model": "old"})).await;
    server.terminate().await;
    let world = server.world.clone();
    let config = fs::read_to_string(world.home().join("config.json")).unwrap();
    fs::write(world.home().join("config.json"), config.replace("\"old\"", "\"new\"")).unwrap();
    let server = Setup::new().start_in(&world).await;
    let wire = server.wire();
    let fault: Fault = wire.refused("send", json!({"agent_id": "a", "content": "Hi"})).await;
    assert_eq!(fault.code, -32001);
    assert!(fault.message.starts_with("Unknown model: old (known: scripted, new, "), "{fault:?}");
}

#[tokio::test]
async fn a_default_model_that_does_not_exist_stops_the_start() {
    let world = Setup::new().config(json!({"default_model": "nope"})).world().await;
    let output = Setup::new().fails_in(&world).await;
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("unknown model: nope"), "{}", output.stderr);
    let output = Setup::new().arg("--model").arg("neither").fails_in(&world).await;
    assert!(output.stderr.contains("unknown model: neither"), "{}", output.stderr);
    let server = Setup::new().arg("-m").arg("scripted").start_in(&world).await;
    assert_eq!(server.wire().ok("rpc.version", json!({})).await["default_model"], "scripted");
}

/// The key arrives at the service and nowhere else: not in an answer, a log or a file, even when the service itself
/// repeats it and everything is logged.
#[tokio::test]
async fn a_key_is_seen_by_its_service_only() {
    for (provider, header, value) in [
        (Provider::OpenAi, "authorization", format!("Bearer {}", KEY.1)),
        (Provider::Anthropic, "x-api-key", KEY.1.to_string()),
    ] {
        let keys = json!({"api_key_env": KEY.0, "max_retries": 0});
        let setup = Setup::new().provider(provider).provider_keys(keys);
        let mut server = setup.arg("--verbose").arg("--raw-log").start().await;
        let wire = server.wire();
        create(&wire, "a").await;
        say(&wire, "a", "Hi").await;
        assert_eq!(server.model().last_request().header(header), Some(&*value));
        server.model().push(Reply::status(401).message(format!("bad key {}", KEY.1)));
        let fault = wire.refused("send", json!({"agent_id": "a", "content": "Hi"})).await;
        assert!(!format!("{fault:?}").contains(KEY.1), "{fault:?}");
        let broken = Reply::text("Half ").then_error("x", format!("bad key {}", KEY.1));
        for _ in 0..4 {
            server.model().push(broken.clone());
        }
        let fault = wire.refused("send", json!({"agent_id": "a", "content": "Hi"})).await;
        assert!(!format!("{fault:?}").contains(KEY.1), "{fault:?}");
        server.terminate().await;
        let log = server.log().complete().await;
        assert!(!log.contains(KEY.1), "{log}");
        let found = files_with(&server.world.path(""), KEY.1);
        assert!(found.is_empty(), "{found:?}");
        assert!(
            !files_with(&server.world.path(""), "bad key ").is_empty(),
            "the search finds things"
        );
    }
}

/// Files below `dir` that hold `text`.
fn files_with(dir: &Path, text: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let holds = |path: &Path| {
        fs::read(path)
            .is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    };
    let found = entries.flat_map(|path| match path.is_dir() {
        true => files_with(&path, text),
        false => Vec::from_iter(holds(&path).then_some(path)),
    });
    found.collect()
}

#[tokio::test]
async fn a_missing_key_is_named_by_its_variable() {
    let server = Setup::new().provider_keys(json!({"api_key_env": "NO_SUCH_KEY"})).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let fault = wire.refused("send", json!({"agent_id": "a", "content": "Hi"})).await;
    assert_eq!(fault.code, -32001);
    assert!(fault.message.contains("NO_SUCH_KEY"), "{fault:?}");
}

#[tokio::test]
async fn a_key_in_the_environment_is_configuration_enough() {
    let (openai, anthropic) =
        (("OPENAI_API_KEY", "OPENAI_BASE_URL"), ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"));
    for ((key, address), path, model) in [
        (openai, "/v1/chat/completions", "gpt-5.2"),
        (anthropic, "/v1/messages", "claude-sonnet-5-5"),
    ] {
        let world = Setup::new().unconfigured().world().await;
        let url = world.model.url();
        let url = if key.starts_with("ANTHROPIC") { url.trim_end_matches("/v1") } else { &url };
        let setup = Setup::new().unconfigured().env(key, KEY.1).env(address, url);
        let server: Server = setup.start_in(&world).await;
        assert!(server.log().text().contains(&format!("because {key} is set")));
        let wire = server.wire();
        create(&wire, "a").await;
        say(&wire, "a", "Hi").await;
        let asked = server.model().last_request();
        assert_eq!((&*asked.path, &asked.body["model"]), (path, &json!(model)));
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_named_with_what_to_do() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let keys = json!({"base_url": format!("http://{free}/v1"), "max_retries": 0});
    let world = Setup::new().provider_keys(keys).world().await;
    let output = crate::harness::process::run(world.command(["exec", "Hi"])).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let why = format!(
        "Error: The provider is not available (cannot connect to http://{free}: Connection refused"
    );
    assert!(output.stderr.starts_with(&why), "{output:?}");
    assert!(output.stderr.contains("is it running, and is its base_url right?"), "{output:?}");
}

#[tokio::test]
async fn a_provider_without_models_is_named_with_what_to_do() {
    let world = Setup::new().world().await;
    let provider = json!({"type": "openai", "base_url": world.model.url()});
    let config = json!({"providers": {"mine": provider}}).to_string();
    fs::write(world.home().join("config.json"), config).unwrap();
    let output = crate::harness::process::run(world.command(["exec", "Hi"])).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let why = "provider mine names no models; name one under providers.mine.models, as in {\"llama3.2\": {}}, or ask for mine/ID";
    assert!(output.stderr.contains(why) && output.stderr.contains("config.json"), "{output:?}");
    let named = crate::harness::process::run(world.command(["exec", "-m", "mine/x", "Hi"])).await;
    assert_eq!(named.code, Some(0), "{named:?}");
}

#[tokio::test]
async fn weights_that_come_while_the_server_runs_are_found() {
    let world = Setup::new().unconfigured().world().await;
    let models = world.path("models");
    let server = Setup::new().unconfigured().env("NEXUS3_MODELS", &models).start_in(&world).await;
    let default =
        async || server.wire().ok("rpc.version", json!({})).await["default_model"].clone();
    assert_eq!(default().await, Value::Null);
    fs::create_dir(&models).unwrap();
    fs::write(models.join("SmolLM2-135M-Instruct.Q4_1.gguf"), "as if").unwrap();
    eventually("the model to be found", async || default().await == "smollm2-135m").await;
}

#[tokio::test]
async fn a_key_that_is_not_taken_is_named_by_its_variable() {
    let keys = json!({"api_key_env": KEY.0});
    let world = Setup::new().provider_keys(keys).world().await;
    world.model.push(Reply::status(401).message("bad key"));
    let mut command = world.command(["exec", "Hi"]);
    let output = crate::harness::process::run({
        command.env(KEY.0, KEY.1);
        command
    })
    .await;
    let why = format!(
        "Error: The provider refused the credentials (401: bad key; the key is that of {}: mend it there and start again)",
        KEY.0
    );
    assert!(output.code == Some(1) && output.stderr.starts_with(&why), "{output:?}");
    assert!(!output.stderr.contains(KEY.1), "{output:?}");
}
