//! A long tool loop of a thinking model, on every wire, with all in it that goes wrong: a cut, a storm of refusals, an
//! overload, two kills and a compaction. The scripted model is as strict as the services are.

use std::collections::HashSet;
use std::sync::Mutex;

use nexus_testkit::{Gate, RecordedRequest, Reply, StopSaid};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::setup::KEY;
use crate::harness::{Server, Setup, eventually};
use crate::support::create;

/// Steps of the turn, but for what is tried again. What goes wrong before or in which of them.
const STEPS: usize = 200;
const CUT: usize = 20;
const STORM: usize = 40;
const OVERLOAD: usize = 60;
const KILLS: [usize; 2] = [100, 140];
const LONG: usize = 170;

/// Agents that are refused together, with the one that is in the loop.
const AGENTS: usize = 8;

/// The window of the models, and the part of it that may be filled: the long answer alone is more.
const WINDOW: u32 = 200_000;
const FULL: f64 = 0.25;
const LONG_BYTES: usize = 240_000;

/// Dollars for a million tokens, as the scripted model reckons: a read is a tenth of the input, a write a quarter more.
const INPUT_PRICE: f64 = 8.0;
const OUTPUT_PRICE: f64 = 40.0;

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
    let price = json!({
        "input": INPUT_PRICE, "output": OUTPUT_PRICE,
        "cache_read": INPUT_PRICE / 10.0, "cache_write": INPUT_PRICE * 1.25,
    });
    let of = |id: &str, window: u32| {
        json!({
            "id": id, "context_window": window, "reasoning": true, "input": ["text", "image"],
            "price": price,
        })
    };
    let mut first = of("scripted", WINDOW);
    first["fallback"] = json!(["second"]);
    // It sees a part of the conversation at a time.
    let small = json!({"id": "little", "context_window": WINDOW / 8, "price": price});
    let provider = json!({
        "type": kind, "wire": wire, "api_key_env": KEY.0, "max_retries": 3, "retry_backoff": 0.01,
        "max_concurrent_calls": 16,
        "models": {"scripted": first, "second": of("other", WINDOW), "small": small},
    });
    Setup::new().provider_keys(provider).config(json!({
        "max_tool_iterations": 300, "default_model": "scripted",
        "compaction": {"model": "small", "trigger_threshold": FULL, "recent_preserve_ratio": 0.01},
    }))
}

fn step(number: usize) -> Reply {
    Reply::thought(format!("Thinking about {number}."))
        .then_text(format!("Step {number}."))
        .then_tool_call("list_directory", json!({"path": "."}))
        .usage(0, 30 + number as u64 % 7)
        .reasoning_tokens(10 + number as u64 % 3)
}

async fn a_long_loop_ends_well(wire: &str) {
    let server = setup(wire).start().await;
    server.model().strict();
    server.model().billing();
    create(&server.wire(), "a").await;
    let storm = Gate::new();
    others_speak(&server, &storm);

    let mut asked = queue(&server, 0..STORM);
    server.model().push(Reply::status(429).retry_after("0").held_by(&storm));
    asked += queue(&server, STORM..KILLS[0]);
    server.model().push(Reply::hang());
    let image = json!({"type": "image", "data": IMAGE, "mime_type": "image/png"});
    let content = json!([image, {"type": "text", "text": "Turn 0"}]);
    let turn = begin(&server, "send", json!({"agent_id": "a", "content": content}));
    all_are_refused_together(&server, &storm).await;
    // Each of the others asks twice, and the two that come beside the steps are the refusal and the one that hangs.
    asked += 2 * (AGENTS - 1) + 2;
    server.model().wait_for_requests(asked).await;
    let server = server.restart().await;
    assert!(turn.await.is_err(), "{wire}: nothing was answered");

    asked += queue(&server, KILLS[0]..KILLS[1]) + 1;
    server.model().push(Reply::hang());
    let turn = begin(&server, "resume_turn", json!({"agent_id": "a"}));
    server.model().wait_for_requests(asked).await;
    let server = server.restart().await;
    assert!(turn.await.is_err(), "{wire}: nothing was answered");

    queue(&server, KILLS[1]..STEPS);
    server.model().push(Reply::thought("Enough.").then_text("Done."));
    let answer = server.wire().ok("resume_turn", json!({"agent_id": "a"})).await;
    assert_eq!(answer["stop_reason"], "end_turn", "{wire}: {answer}");
    assert_eq!(answer["steps"], STEPS - KILLS[1] + 1, "{wire}: {answer}");
    assert!(answer["content"].as_str().unwrap().ends_with("Step 199.\n\nDone."), "{wire}");

    server.model().push(step(STEPS));
    server.model().push(Reply::thought("Hm.").then_text("Still here."));
    let params = json!({"agent_id": "a", "content": "Turn 1: and now?"});
    let answer = server.wire().ok("send", params).await;
    assert_eq!(answer["content"], "Step 200.\n\nStill here.", "{wire}");
    assert_eq!(server.model().rejections(), [""; 0], "{wire}");
    grows_at_its_end(wire, &server.model().requests());
    everything_is_accounted_for(wire, &server).await;
}

/// A call that its server does not live to answer.
fn begin(server: &Server, method: &'static str, params: Value) -> tokio::task::JoinHandle<Value> {
    let wire = server.wire();
    tokio::spawn(async move { wire.ok(method, params).await })
}

/// What the model does in these steps. How many requests that are.
fn queue(server: &Server, steps: std::ops::Range<usize>) -> usize {
    let mut replies = Vec::new();
    for number in steps {
        if number == OVERLOAD {
            // Beyond all patience: the second model takes over until the turn is begun again.
            replies.extend((0..4).map(|_| Reply::status(503)));
        }
        replies.push(match number {
            LONG => step(number).then_text("word ".repeat(LONG_BYTES / 5)),
            _ => step(number),
        });
        if number == CUT {
            // Cut in the middle, and once with a call that must not be run.
            let list = json!({"path": "."});
            replies.extend([
                Reply::thought("Long.").then_text("Half a sen").stop(StopSaid::MaxTokens),
                Reply::text("tence.").then_tool_call("list_directory", list),
                Reply::text("Cut:")
                    .then_cut_call("write_file", "{\"path\": \"cut.txt\", \"con")
                    .stop(StopSaid::MaxTokens),
            ]);
        }
    }
    let count = replies.len();
    replies.into_iter().for_each(|reply| server.model().push(reply));
    count
}

/// What the model says to the other agents, each of which it refuses once, and to who asks for a summary.
fn others_speak(server: &Server, storm: &Gate) {
    let (refused, storm) = (Mutex::new(HashSet::new()), storm.clone());
    server.model().answer_aside(move |body| {
        let body = body.to_string();
        if body.contains("You are shown a part of a conversation") {
            return Some(Reply::text("They listed a directory many times."));
        }
        let other = (1..AGENTS).find(|number| body.contains(&aside(*number)))?;
        Some(match refused.lock().unwrap().insert(other) {
            true => Reply::status(429).retry_after("0").held_by(&storm),
            false => Reply::text("Aside done."),
        })
    });
}

fn aside(number: usize) -> String {
    format!("Aside {number}")
}

/// The loop waits for its next step. The other agents come, and then all of them hear that it is too much.
async fn all_are_refused_together(server: &Server, storm: &Gate) {
    let before = STORM + 3 + 1;
    server.model().wait_for_requests(before).await;
    let mut others = JoinSet::new();
    for number in 1..AGENTS {
        let (wire, agent) = (server.wire(), format!("other-{number}"));
        create(&wire, &agent).await;
        let params = json!({"agent_id": agent, "content": aside(number)});
        others.spawn(async move { wire.ok("send", params).await });
    }
    server.model().wait_for_requests(before + AGENTS - 1).await;
    storm.release();
    for answer in others.join_all().await {
        assert_eq!(answer["content"], "Aside done.", "{answer}");
    }
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

/// Of two requests to one model in one epoch, one after the other, the later begins with all of the earlier.
fn grows_at_its_end(wire: &str, requests: &[RecordedRequest]) {
    let of_loop: Vec<&RecordedRequest> =
        requests.iter().filter(|it| !it.body.to_string().contains("Aside")).collect();
    let is_summary = |request: &&RecordedRequest| is_for(request, "little");
    let first = of_loop.iter().position(is_summary).expect("there was a compaction");
    let pieces = of_loop.iter().filter(|it| is_summary(it)).count();
    assert!(pieces > 1, "{wire}: it was shown all at once");
    let (before, after) = (&of_loop[..first], &of_loop[first + pieces..]);
    assert!(!after.iter().any(is_summary), "{wire}: there was a second one");
    assert!(after.len() > 20, "{wire}: {} steps after it", after.len());
    for (epoch, model, least) in
        [(before, "scripted", 120), (before, "other", 40), (after, "scripted", 20)]
    {
        let of_model = epoch.iter().filter(|it| is_for(it, model));
        let bodies: Vec<Vec<Value>> = of_model.map(|it| blocks_of(&it.body)).collect();
        assert!(bodies.len() >= least, "{wire}: {model} was asked {} times", bodies.len());
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

/// All that a model reads of a request, block by block: its tools, its system text and the messages.
fn blocks_of(body: &Value) -> Vec<Value> {
    let around =
        ["tools", "system", "systemInstruction", "instructions"].map(|it| body[it].clone());
    let list = ["messages", "input", "contents"].into_iter().find_map(|name| body[name].as_array());
    let mut blocks: Vec<Value> = around.into_iter().filter(|block| !block.is_null()).collect();
    assert!(!blocks.is_empty(), "a request has tools");
    for message in list.expect("a request has messages") {
        match message["content"].as_array().or_else(|| message["parts"].as_array()) {
            Some(parts) => blocks.extend(parts.iter().cloned()),
            None => blocks.push(message.clone()),
        }
    }
    blocks.iter_mut().for_each(without_marks);
    blocks
}

/// Takes the marks out, which move.
fn without_marks(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            members.values_mut().for_each(without_marks);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_marks),
        _ => {}
    }
}

/// What the server says was used, and what it cost, is what the model has billed.
async fn everything_is_accounted_for(wire: &str, server: &Server) {
    let used = server.wire().ok("get_usage", json!({"by": "model"})).await;
    let billed = server.model().bill();
    assert_eq!(
        used["usage"],
        json!({
            "input": billed.uncached_equivalent(), "cache_read": billed.cache_read,
            "cache_write": billed.cache_write, "output": billed.output,
            "reasoning": billed.reasoning,
        }),
        "{wire}: {used}"
    );
    assert_eq!(used["calls"], billed.requests, "{wire}: {used}");
    assert_eq!(used["rows"].as_array().unwrap().len(), 3, "{wire}: {used}");
    let cost = (billed.billed * INPUT_PRICE + billed.output as f64 * OUTPUT_PRICE) / 1e6;
    let told = used["cost_usd"].as_f64().unwrap();
    assert!((told - cost).abs() < 1e-6, "{wire}: {told} dollars are not {cost}");
    assert_eq!(used["cost_unknown_calls"], 0, "{wire}: {used}");
    let is_cached = wire != "ollama";
    assert_eq!(billed.cache_read > billed.input, is_cached, "{wire}: {billed:?}");
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
