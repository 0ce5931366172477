//! A long tool loop of a thinking model, on every wire, with all in it that goes wrong: a cut, a storm of refusals, an
//! overload, a compaction and two kills. The scripted model is as strict as the services are.

use nexus_testkit::{RecordedRequest, Reply, StopSaid};
use serde_json::{Value, json};

use crate::harness::setup::KEY;
use crate::harness::{Server, Setup, eventually};
use crate::support::create;

/// Steps of each of the three turns.
const STEPS: usize = 66;

/// Two red and green pixels, twice.
pub const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEUlEQVR4nGP4z8DA8B+MgBgAHfAD/dPQfSYAAAAASUVORK5CYII=";

/// How each wire is configured.
fn setup(wire: &str) -> Setup {
    let kind = match wire {
        "messages" => "anthropic",
        "generate_content" => "gemini",
        "ollama" => "ollama",
        _ => "openai",
    };
    let of = |window: u32| json!({"context_window": window, "reasoning": true, "input": ["text", "image"], "fallback": ["second"]});
    let mut second = of(1_000_000);
    second["id"] = json!("other");
    second["fallback"] = json!([]);
    // It sees a part of the conversation at a time.
    let small = json!({"id": "little", "context_window": 1_500});
    let provider = json!({
        "type": kind, "wire": wire, "api_key_env": KEY.0, "max_retries": 3, "retry_backoff": 0.01,
        "models": {"scripted": of(1_000_000), "second": second, "small": small},
    });
    Setup::new().provider_keys(provider).config(json!({
        "max_tool_iterations": 100, "default_model": "scripted",
        "compaction": {"model": "small", "recent_preserve_ratio": 0.01},
    }))
}

fn step(number: usize) -> Reply {
    Reply::thought(format!("Thinking about {number}."))
        .then_text(format!("Step {number}."))
        .then_tool_call("list_directory", json!({"path": "."}))
}

async fn a_long_loop_ends_well(wire: &str) {
    let mut server = setup(wire).start().await;
    server.model().strict();
    server.model().billing();
    create(&server.wire(), "a").await;
    for turn in 0..3 {
        queue(&server, turn);
        let image = json!({"type": "image", "data": IMAGE, "mime_type": "image/png"});
        let text = json!({"type": "text", "text": format!("Turn {turn}")});
        let content = if turn == 0 { json!([image, text]) } else { json!([text]) };
        let answer = server.wire().ok("send", json!({"agent_id": "a", "content": content})).await;
        assert_eq!(answer["stop_reason"], "end_turn", "{wire}: {answer}");
        assert!(answer["content"].as_str().unwrap().ends_with("Done."), "{wire}: {answer}");
        server = server.restart().await;
    }
    assert_eq!(server.model().rejections(), [""; 0], "{wire}");
    grows_at_its_end(wire, &server.model().requests());
    // The older part is summarised in pieces by a model that could not hold it, and the agent goes on.
    server.model().set_default(Reply::text("They listed a directory many times."));
    let asked = server.model().request_count();
    let done = server.wire().ok("compact", json!({"agent_id": "a"})).await;
    assert_eq!(done["compacted"], true, "{wire}: {done}");
    let requests = server.model().requests();
    assert!(requests.len() > asked + 2, "{wire}: in pieces");
    assert!(requests[asked..].iter().all(|request| is_for(request, "little")), "{wire}");
    let server = server.restart().await;
    server.model().push(Reply::thought("Hm.").then_text("Still here."));
    let params = json!({"agent_id": "a", "content": "And now?"});
    assert_eq!(server.wire().ok("send", params).await["content"], "Still here.", "{wire}");
    assert_eq!(server.model().rejections(), [""; 0], "{wire}");
    everything_is_accounted_for(wire, &server).await;
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
            model.push(
                Reply::text("Cut:")
                    .then_cut_call("write_file", "{\"path\": \"cut.txt\", \"con")
                    .stop(StopSaid::MaxTokens),
            );
        }
        if (turn, number) == (0, 40) {
            for _ in 0..3 {
                model.push(Reply::status(429).retry_after("0"));
            }
        }
        if (turn, number) == (1, 30) {
            // Overloaded beyond all patience: the second model takes over for the rest of the turn.
            for _ in 0..4 {
                model.push(Reply::status(503));
            }
        }
    }
    model.push(Reply::thought("Enough.").then_text("Done."));
}

async fn a_kill_in_mid_thought_changes_nothing(wire: &str) {
    let server = setup(wire).start().await;
    server.model().strict();
    create(&server.wire(), "a").await;
    for number in 0..3 {
        server.model().push(step(number));
    }
    server.model().push(Reply::thought("Half a thought").then_hang());
    let call = server.wire();
    let turn = tokio::spawn(async move {
        call.ok("send", json!({"agent_id": "a", "content": "Begin"})).await;
    });
    eventually("the model thinks", async || server.model().request_count() == 4).await;
    let server = server.restart().await;
    assert!(turn.await.is_err(), "{wire}: nothing was answered");
    let model = server.model();
    model.push(step(3));
    model.push(Reply::text("Done."));
    let answer = server.wire().ok("resume_turn", json!({"agent_id": "a"})).await;
    assert_eq!(answer["content"], "Step 3.\n\nDone.", "{wire}: {answer}");
    let requests = model.requests();
    assert_eq!(requests.len(), 6, "{wire}");
    assert_eq!(requests[3].bytes, requests[4].bytes, "{wire}: what it would have been");
    assert_eq!(model.rejections(), [""; 0], "{wire}");
}

/// Of two requests to one model, one after the other, the later begins with all of the earlier.
fn grows_at_its_end(wire: &str, requests: &[RecordedRequest]) {
    for model in ["scripted", "other"] {
        let of_model = requests.iter().filter(|it| is_for(it, model));
        let bodies: Vec<Vec<Value>> = of_model.map(|it| blocks_of(&it.body)).collect();
        assert!(bodies.len() > 10, "{wire}: {model} was asked {} times", bodies.len());
        for (number, pair) in bodies.windows(2).enumerate() {
            let [mut before, mut after] = [pair[0].clone(), pair[1].clone()];
            // On some wires a model gets its thoughts back within a turn only.
            if turns(&before) != turns(&after) {
                [&mut before, &mut after].into_iter().flatten().for_each(without_thoughts);
            }
            let common = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
            assert_eq!(
                common,
                before.len(),
                "{wire}: request {number} of {model} changed its past"
            );
        }
    }
}

fn turns(blocks: &[Value]) -> usize {
    blocks.iter().filter(|block| block.to_string().contains("Turn ")).count()
}

fn without_thoughts(block: &mut Value) {
    if let Some(block) = block.as_object_mut() {
        block.remove("reasoning_content");
        block.remove("thinking");
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
    assert_eq!(used["rows"].as_array().unwrap().len(), 3, "{wire}: {used}");
}

macro_rules! on_every_wire {
    ($($wire:ident)*) => {
        $(
            mod $wire {
                #[tokio::test]
                async fn a_long_loop_ends_well() {
                    super::a_long_loop_ends_well(stringify!($wire)).await;
                }

                #[tokio::test]
                async fn a_kill_in_mid_thought_changes_nothing() {
                    super::a_kill_in_mid_thought_changes_nothing(stringify!($wire)).await;
                }
            }
        )*
    };
}

on_every_wire! { messages chat responses generate_content ollama }
