//! The built-in model, for real: weights, tokens, streams. What it says is its own affair; how it says it is ours.

use std::path::PathBuf;

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::harness::process::Process;
use crate::harness::wire::request;
use crate::harness::{Server, Setup, Wire, within};
use crate::support::{create, history, say};

/// Where `make test` puts the weights.
pub fn weights() -> PathBuf {
    let directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/models"));
    let file = directory.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(file.is_file(), "{} is missing; `make test` gets it", file.display());
    directory
}

/// One model at a time: several that share two cores only wait for each other.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A server with nothing but the built-in model.
async fn server() -> Server {
    Setup::new().unconfigured().env("NEXUS3_MODELS", weights()).start().await
}

#[tokio::test]
async fn a_fresh_machine_answers() {
    let _turn = TURN.lock().await;
    let server = server().await;
    let wire = server.wire();
    let version = wire.ok("rpc.version", json!({})).await;
    assert_eq!(
        (&version["default_model"], &version["default_provider"]),
        (&json!("smollm2-135m"), &json!("local"))
    );
    let listening = server.log().wait_for("listening", |line| line["message"] == "listening").await;
    let models = listening["data"]["models"].as_str().unwrap();
    assert!(models.contains("smollm2-135m") && models.contains("built in"), "{models}");
    create(&wire, "a").await;
    assert!(!say(&wire, "a", "Hello").await.trim().is_empty());
    server.log().wait_for("the load", |line| line["message"] == "the local model is loaded").await;
    // Two turns: the second is shown the first, and does not pay for it again.
    let (_, usage) = stream(&wire, "a", "And who are you?").await;
    assert_eq!(history(&wire, "a").await.len(), 4);
    let tokens = |name: &str| usage[name].as_u64().unwrap();
    assert!(tokens("cache_read") * 2 > tokens("input"), "{usage}");
    assert!(tokens("output") > 0, "{usage}");
    let counted = wire.ok("get_tokens", json!({"agent_id": "a"})).await;
    assert_eq!((&counted["tools"], &counted["budget"]), (&json!(0), &json!(8192)), "{counted}");
}

/// The pieces of a streamed answer and what it used.
async fn stream(wire: &Wire, agent: &str, content: &str) -> (Vec<String>, Value) {
    let params = json!({"agent_id": agent, "content": content, "stream": true});
    let (notifications, answer) = wire.open(request(1, "send", params)).await.all().await;
    let of = |method: &'static str| notifications.iter().filter(move |it| it["method"] == method);
    let pieces: Vec<String> = of("stream_data")
        .map(|data| data["params"]["chunk"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(answer["result"]["content"], pieces.concat(), "{answer}");
    let usage = of("stream_event").next_back().unwrap()["params"]["event"].clone();
    (pieces, usage)
}

#[tokio::test]
async fn a_stream_comes_piece_by_piece_and_can_be_cancelled() {
    let _turn = TURN.lock().await;
    let server = server().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let (pieces, _) = stream(&wire, "a", "Hello").await;
    assert!(pieces.len() > 1, "{pieces:?}");

    create(&wire, "b").await;
    let long = json!({
        "agent_id": "b", "content": "Write a very long story about the sea.", "stream": true,
        "request_id": "story",
    });
    let mut exchange = wire.open(request(1, "send", long)).await;
    while exchange.next().await.unwrap()["method"] != "stream_data" {}
    let cancel = json!({"agent_id": "b", "request_id": "story"});
    assert_eq!(wire.ok("cancel", cancel).await["cancelled"], true);
    let (_, answer) = exchange.all().await;
    assert_eq!(answer["result"]["cancelled"], true, "{answer}");
    let said = history(&wire, "b").await;
    assert!(said[1].ends_with("(interrupted)"), "{said:?}");
    // The model is free for the next one.
    say(&wire, "a", "Hello again").await;
}

/// What `make run` does once the program is built.
#[tokio::test]
async fn a_server_that_greets_prints_the_answer_and_goes_on() {
    let _turn = TURN.lock().await;
    let world = Setup::new().unconfigured().world().await;
    let mut command = world.command(["serve", "0", "--no-socket", "--greet"]);
    command.env("NEXUS3_MODELS", weights());
    let (mut process, _stdin, stdout) = Process::spawn(command);
    let mut lines = BufReader::new(stdout).lines();
    let mut printed = Vec::new();
    while !printed.last().is_some_and(|line: &String| line.ends_with(" s]")) {
        printed.push(within("a line", lines.next_line()).await.unwrap().expect("a line"));
    }
    assert_eq!(printed[0], "You to smollm2-135m (local): Hello");
    assert!(printed.len() >= 3 && !printed[1].is_empty(), "{printed:?}");
    assert!(printed.last().unwrap().contains(" tokens/s, first word after "), "{printed:?}");
    process.signal(Signal::TERM);
    assert!(process.exit().await.success());
    let server = Setup::new().unconfigured().start_in(&world).await;
    assert_eq!(history(&server.wire(), "main").await.len(), 2);
}

#[tokio::test]
async fn an_answer_under_a_schema_satisfies_it() {
    let _turn = TURN.lock().await;
    let server = server().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let schema = json!({
        "type": "object",
        "properties": {
            "mood": {"enum": ["good", "bad"]},
            "reasons": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 2},
        },
        "required": ["mood", "reasons"],
        "additionalProperties": false,
    });
    let ask = json!({"agent_id": "a", "content": "I love this song!", "response_schema": schema});
    let answer = wire.ok("send", ask).await;
    let said: Value = serde_json::from_str(answer["content"].as_str().unwrap()).unwrap();
    assert!(["good", "bad"].contains(&said["mood"].as_str().unwrap()), "{said}");
    let reasons = said["reasons"].as_array().unwrap();
    assert!(reasons.len() <= 2 && reasons.iter().all(Value::is_string), "{said}");
}

#[tokio::test]
async fn sixteen_agents_are_answered_together() {
    let _turn = TURN.lock().await;
    let server = server().await;
    let wire = server.wire();
    let names: Vec<String> = (0..16).map(|at| format!("agent-{at}")).collect();
    for name in &names {
        create(&wire, name).await;
    }
    let answers = join_all(names.iter().map(|name| say(&wire, name, "Hello"))).await;
    assert!(answers.iter().all(|answer| !answer.trim().is_empty()), "{answers:?}");
    // One seed and one conversation: whoever else is asked, the answer is the same.
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

#[tokio::test]
async fn what_does_not_fit_or_cannot_be_read_is_said_and_the_server_goes_on() {
    let _turn = TURN.lock().await;
    let broken = tempfile::tempdir().unwrap();
    let path = broken.path().join("broken.gguf");
    std::fs::write(&path, "GGUF, but not really").unwrap();
    let providers = json!({"providers": {"local": {"models": {
        "small": {"id": "SmolLM2-135M-Instruct.Q4_1", "context_window": 100_000},
        "broken": {"id": path},
        "absent": {"id": "no-such-model"},
    }}}});
    let server = Setup::new().config(providers).env("NEXUS3_MODELS", weights()).start().await;
    let wire = server.wire();
    for (model, why) in [("broken", "damaged or no GGUF file"), ("absent", "nexus3 model pull")] {
        wire.ok("create_agent", json!({"agent_id": model, "model": model})).await;
        let fault = wire.refused("send", json!({"agent_id": model, "content": "Hi"})).await;
        assert!(fault.message.contains(why), "{}", fault.message);
    }
    wire.ok("create_agent", json!({"agent_id": "small", "model": "small"})).await;
    let long = "word ".repeat(9000);
    let fault = wire.refused("send", json!({"agent_id": "small", "content": long})).await;
    assert!(fault.message.contains("the window of the local model is 8192"), "{}", fault.message);
    wire.ok("create_agent", json!({"agent_id": "well", "model": "small"})).await;
    assert!(!say(&wire, "well", "Hello").await.is_empty());
}
