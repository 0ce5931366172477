//! A long tool loop of a thinking model, on every wire, with all in it that goes wrong: a cut, a storm of refusals, an
//! overload, a compaction and two kills. The scripted model is as strict as the services are.

use nexus_testkit::{RecordedRequest, Reply, StopSaid};
use serde_json::{Value, json};

use crate::harness::setup::KEY;
use crate::harness::{Server, Setup};
use crate::support::{create, history};

/// Steps of each of the three turns.
const STEPS: usize = 66;

/// How each wire is configured.
fn provider(wire: &str) -> Value {
    let kind = match wire {
        "messages" => "anthropic",
        "generate_content" => "gemini",
        "ollama" => "ollama",
        _ => "openai",
    };
    let model = json!({"context_window": 1_000_000, "reasoning": true, "fallback": ["second"]});
    let second = json!({"id": "other", "context_window": 1_000_000, "reasoning": true});
    json!({
        "type": kind, "wire": wire, "api_key_env": KEY.0, "max_retries": 1, "retry_backoff": 0.01,
        "models": {"scripted": model, "second": second},
    })
}

fn step(number: usize) -> Reply {
    Reply::thought(format!("Thinking about {number}."))
        .then_text(format!("Step {number}."))
        .then_tool_call("list_directory", json!({"path": "."}))
}

async fn a_long_loop_ends_well(wire: &str) {
    let setup = Setup::new()
        .provider_keys(provider(wire))
        .config(json!({"max_tool_iterations": 100, "default_model": "scripted"}));
    let mut server = setup.start().await;
    server.model().strict();
    server.model().billing();
    create(&server.wire(), "a").await;
    for turn in 0..3 {
        queue(&server, turn);
        let params = json!({"agent_id": "a", "content": format!("Turn {turn}")});
        let answer = server.wire().ok("send", params).await;
        assert_eq!(answer["stop_reason"], "end_turn", "{wire}: {answer}");
        assert!(answer["content"].as_str().unwrap().ends_with("Done."), "{wire}: {answer}");
        server = server.restart().await;
    }
    assert_eq!(server.model().rejections(), [""; 0], "{wire}");
    grows_at_its_end(wire, &server.model().requests());
    everything_is_accounted_for(wire, &server).await;
    // The older part is summarised, and the agent goes on.
    server.model().push(Reply::text("They listed a directory many times."));
    let done = server.wire().ok("compact", json!({"agent_id": "a"})).await;
    assert_eq!(done["compacted"], true, "{wire}: {done}");
    let server = server.restart().await;
    server.model().push(Reply::thought("Hm.").then_text("Still here."));
    let params = json!({"agent_id": "a", "content": "And now?"});
    assert_eq!(server.wire().ok("send", params).await["content"], "Still here.", "{wire}");
    assert_eq!(server.model().rejections(), [""; 0], "{wire}");
    assert!(history(&server.wire(), "a").await.len() > 6 * STEPS);
}

/// What the model does in a turn.
fn queue(server: &Server, turn: usize) {
    let model = server.model();
    for number in 0..STEPS {
        model.push(step(number));
        if (turn, number) == (0, 20) {
            // Cut in the middle, and once with a call that must not be run.
            model.push(Reply::thought("Long.").then_text("Half a sen").stop(StopSaid::MaxTokens));
            model
                .push(Reply::text("tence.").then_tool_call("list_directory", json!({"path": "."})));
        }
        if (turn, number) == (0, 40) {
            model.push(Reply::status(429).retry_after("0"));
        }
        if (turn, number) == (1, 30) {
            // Overloaded beyond all patience: the second model takes over for the rest of the turn.
            model.push(Reply::status(503));
            model.push(Reply::status(503));
        }
    }
    model.push(Reply::thought("Enough.").then_text("Done."));
}

/// Of two requests to one model, one after the other, the later begins with all of the earlier.
fn grows_at_its_end(wire: &str, requests: &[RecordedRequest]) {
    for model in ["scripted", "other"] {
        let of_model = requests.iter().filter(|it| is_for(it, model));
        let bodies: Vec<Vec<Value>> = of_model.map(|it| blocks_of(&it.body)).collect();
        assert!(bodies.len() > 10, "{wire}: {model} was asked {} times", bodies.len());
        for (number, pair) in bodies.windows(2).enumerate() {
            let common = pair[0].iter().zip(&pair[1]).take_while(|(a, b)| a == b).count();
            assert_eq!(
                common,
                pair[0].len(),
                "{wire}: request {number} of {model} changed its past"
            );
        }
    }
}

fn is_for(request: &RecordedRequest, model: &str) -> bool {
    request.body["model"] == model || request.path.contains(&format!("/models/{model}:"))
}

/// The blocks of a request, without the marks that move.
fn blocks_of(body: &Value) -> Vec<Value> {
    let list = ["messages", "input", "contents"].into_iter().find_map(|name| body[name].as_array());
    let mut blocks = Vec::new();
    for message in list.expect("a request has messages") {
        match message["content"].as_array().or_else(|| message["parts"].as_array()) {
            Some(parts) => blocks.extend(parts.iter().cloned().map(|mut part| {
                if let Some(part) = part.as_object_mut() {
                    part.remove("cache_control");
                }
                part
            })),
            None => blocks.push(message.clone()),
        }
    }
    blocks
}

/// What the agent says it used is what the model has billed.
async fn everything_is_accounted_for(wire: &str, server: &Server) {
    let used = server.wire().ok("get_usage", json!({"agent_id": "a", "by": "model"})).await;
    let billed = server.model().bill();
    let count = |name: &str| used["usage"][name].as_u64().unwrap();
    assert_eq!(count("input"), billed.uncached_equivalent(), "{wire}: {used}");
    assert_eq!(count("cache_read"), billed.cache_read, "{wire}: {used}");
    assert_eq!(used["calls"], billed.requests, "{wire}: {used}");
    assert_eq!(used["rows"].as_array().unwrap().len(), 2, "{wire}: {used}");
}

macro_rules! on_every_wire {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                a_long_loop_ends_well(stringify!($name)).await;
            }
        )*
    };
}

on_every_wire! { messages chat responses generate_content ollama }
