//! A long tool loop of a thinking model, on every wire, with all in it that goes wrong: a cut, a storm of refusals, an
//! overload, a compaction and two kills. And a storm that meets many at once. The scripted model is as strict as the
//! services are, and bills as they do.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;

use futures_util::future::join_all;
use nexus_testkit::{Bill, RecordedRequest, Reply, StopSaid, last_user_text};
use serde_json::{Value, json};

use crate::harness::setup::KEY;
use crate::harness::{Server, Setup, eventually};
use crate::support::{create, say};

/// Steps of the loop, each a call of a tool.
const STEPS: usize = 200;

/// Before these steps something happens.
const CUT_AT: usize = 20;
const STORM_AT: usize = 40;
const OVERLOAD_AT: usize = 145;

/// In these the server is killed: while the model says nothing yet, and while a tool runs.
const SILENT_AT: usize = 70;
const AMONG_TOOLS_AT: usize = 160;

/// A window that the loop fills once, between the first kill and the overload.
const WINDOW_TOKENS: u32 = 50_000;

/// The model that summarises sees a small part of that at a time.
const LITTLE_WINDOW_TOKENS: u32 = 4_096;

/// What the model reads again and again.
const PAGE: &str = "A line of the page that is read.\n";
const PAGE_LINES: usize = 30;

/// What a token costs, in billionths of a dollar: read, written, read from a cache, written to one.
const PRICES: [(&str, [u64; 4]); 3] = [
    ("scripted", [3_000, 15_000, 300, 3_750]),
    ("other", [1_000, 5_000, 100, 1_250]),
    ("little", [50, 400, 5, 60]),
];

const SUMMARY: &str = "They read a page, again and again.";

/// Two red and green pixels, twice.
pub const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEUlEQVR4nGP4z8DA8B+MgBgAHfAD/dPQfSYAAAAASUVORK5CYII=";

/// How every PNG begins: an image that comes in is written anew.
const ANY_PNG: &str = "iVBORw0KGgo";

/// How each wire is configured.
fn setup(wire: &str) -> Setup {
    let kind = match wire {
        "messages" => "anthropic",
        "generate_content" => "gemini",
        "ollama" => "ollama",
        _ => "openai",
    };
    let [scripted, second, small] = PRICES.map(|(id, prices)| {
        let [input, output, cache_read, cache_write] = prices.map(|price| price as f64 / 1_000.0);
        let price = json!({"input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write});
        match id {
            "little" => json!({"id": id, "price": price, "context_window": LITTLE_WINDOW_TOKENS}),
            _ => json!({
                "id": id, "price": price, "context_window": WINDOW_TOKENS, "reasoning": true, "input": ["text", "image"],
                "fallback": if id == "scripted" { json!(["second"]) } else { json!([]) },
            }),
        }
    });
    let provider = json!({
        "type": kind, "wire": wire, "api_key_env": KEY.0, "max_retries": 3, "retry_backoff": 0.01,
        "models": {"scripted": scripted, "second": second, "small": small},
    });
    Setup::new().provider_keys(provider).config(json!({
        "max_tool_iterations": 2 * STEPS, "default_model": "scripted", "compaction": {"model": "small"},
    }))
}

fn step(number: usize) -> Reply {
    said_in(number, Reply::thought(format!("Thinking about {number}.")))
        .then_tool_call("read_file", json!({"path": "page.txt"}))
}

/// The words of a step, and how many tokens they are, in no two neighbours alike.
fn said_in(number: usize, thought: Reply) -> Reply {
    let number = number as u64;
    thought
        .then_text(format!("Step {number}."))
        .usage(0, 20 + number % 7)
        .reasoning_tokens(1 + number % 5)
}

/// What the model answers from one step to another, and what comes in between.
fn script(steps: std::ops::Range<usize>) -> Vec<Reply> {
    let mut replies = Vec::new();
    for number in steps {
        match number {
            CUT_AT => {
                let begun = Reply::thought("Long.").then_text("Half a sen");
                replies.push(begun.stop(StopSaid::MaxTokens).usage(0, 31).reasoning_tokens(7));
                replies.push(
                    Reply::text("tence.").then_tool_call("read_file", json!({"path": "page.txt"})),
                );
                let cut = Reply::text("Cut:")
                    .then_cut_call("write_file", "{\"path\": \"cut.txt\", \"con");
                replies.push(cut.stop(StopSaid::MaxTokens));
            }
            STORM_AT => replies.extend(vec![Reply::status(429).retry_after("0"); 3]),
            // Beyond all patience.
            OVERLOAD_AT => replies.extend(vec![Reply::status(503); 4]),
            _ => {}
        }
        replies.push(step(number));
    }
    replies
}

/// Requests that were refused or never answered.
const UNANSWERED: usize = 3 + 4 + 1;

async fn a_long_loop_ends_well(wire: &str) {
    let server = setup(wire).start().await;
    let world = server.world.clone();
    let model = &world.model;
    model.strict();
    model.billing();
    model.set_default_of("little", Reply::text(SUMMARY).usage(0, 9));
    fs::write(world.work().join("page.txt"), PAGE.repeat(PAGE_LINES)).unwrap();
    let made = json!({"agent_id": "a", "preset": "trusted", "cwd": world.work()});
    server.wire().ok("create_agent", made).await;

    let begun = [script(0..SILENT_AT), vec![Reply::hang()]].concat();
    let asked = begun.len();
    begun.into_iter().for_each(|reply| model.push(reply));
    let image = json!({"type": "image", "data": IMAGE, "mime_type": "image/png"});
    let text = json!({"type": "text", "text": "Read the page 200 times."});
    let send = json!({"agent_id": "a", "content": [image, text]});
    let is_silent = async |_: &Server| model.request_count() == asked;
    let server = killed_when("the model is silent", is_silent, server, "send", send).await;

    script(SILENT_AT..AMONG_TOOLS_AT).into_iter().for_each(|reply| model.push(reply));
    let two_calls = said_in(AMONG_TOOLS_AT, Reply::thought("Both at once."))
        .then_tool_call("sleep", json!({"seconds": 60}))
        .then_tool_call("append_file", json!({"path": "log.txt", "content": "once\n"}));
    model.push(two_calls);
    let resume = json!({"agent_id": "a"});
    let server = killed_when(
        "one of two calls has ended",
        has_ended_one_of_two,
        server,
        "resume_turn",
        resume.clone(),
    )
    .await;

    script(AMONG_TOOLS_AT + 1..STEPS).into_iter().for_each(|reply| model.push(reply));
    model.push(Reply::thought("Enough.").then_text("Done.").usage(0, 3).reasoning_tokens(2));
    let answer = server.wire().ok("resume_turn", resume).await;
    assert_eq!(answer["stop_reason"], "end_turn", "{wire}: {answer}");
    assert!(answer["content"].as_str().unwrap().ends_with("Done."), "{wire}: {answer}");

    assert_eq!(model.rejections(), [""; 0], "{wire}");
    let steps: Vec<_> = (0..STEPS).map(|number| format!("Step {number}.")).collect();
    assert_eq!(steps_said(&server).await, steps, "{wire}: each step once");
    assert_eq!(fs::read_to_string(world.work().join("log.txt")).unwrap(), "once\n", "{wire}");
    assert!(!world.work().join("cut.txt").exists(), "{wire}: a call that was cut is not run");
    every_prefix_is_unchanged(wire, &model.requests());

    model.push(Reply::thought("Hm.").then_text("Still here.").usage(0, 4).reasoning_tokens(1));
    assert_eq!(say(&server.wire(), "a", "And now?").await, "Still here.", "{wire}");
    assert_eq!(model.rejections(), [""; 0], "{wire}");
    let answered = model.request_count() - UNANSWERED;
    assert_eq!(model.bill().requests, answered as u64, "{wire}: nothing was asked in vain");
    every_token_is_accounted_for(wire, &server).await;
}

/// Kills the server in mid-turn, at this moment, and starts it again.
async fn killed_when(
    what: &str,
    moment: impl AsyncFn(&Server) -> bool,
    server: Server,
    method: &'static str,
    params: Value,
) -> Server {
    let call = server.wire();
    let turn = tokio::spawn(async move { call.ok(method, params).await });
    eventually(what, async || turn.is_finished() || moment(&server).await).await;
    assert!(!turn.is_finished(), "{:?}", turn.await);
    let server = server.restart().await;
    assert!(turn.await.is_err(), "{what}: nothing was answered");
    server
}

/// Whether of the two calls of the last step one has its result on disk.
async fn has_ended_one_of_two(server: &Server) -> bool {
    let last = json!({"agent_id": "a", "from_end": true, "limit": 2});
    let page = server.wire().ok("get_messages", last).await;
    let calls = page["messages"][0]["tool_calls"].as_array();
    calls.is_some_and(|calls| calls.len() == 2) && page["messages"][1]["role"] == "tool"
}

/// What the agent has said in the steps of the loop.
async fn steps_said(server: &Server) -> Vec<String> {
    let all = json!({"agent_id": "a", "limit": 2_000});
    let page = server.wire().ok("get_messages", all).await;
    let messages = page["messages"].as_array().unwrap();
    assert_eq!(page["total"], messages.len());
    let by_agent = messages.iter().filter(|message| message["role"] == "assistant");
    let said = by_agent.map(|message| message["content"].as_str().unwrap().to_owned());
    said.filter(|text| text.starts_with("Step ")).collect()
}

/// Of two requests to one model, one after the other, the later begins with all of the earlier, and is told the same
/// before. What a summary stands for is another matter: there is one, in the middle.
fn every_prefix_is_unchanged(wire: &str, requests: &[RecordedRequest]) {
    let pieces = requests.iter().filter(|it| it.model() == "little").count();
    assert!(pieces > 2, "{wire}: the summary was made of {pieces} pieces");
    let epochs: Vec<_> =
        requests.split(|it| it.model() == "little").filter(|it| !it.is_empty()).collect();
    let [before, after] = epochs[..] else { panic!("{wire}: {} epochs", epochs.len()) };
    assert!(
        before.len() > SILENT_AT && after.len() > STEPS - OVERLOAD_AT,
        "{wire}: {}",
        before.len()
    );
    let has = |request: &RecordedRequest, words: &str| {
        String::from_utf8_lossy(&request.bytes).contains(words)
    };
    assert!(has(&before[0], ANY_PNG) && !has(&before[0], SUMMARY), "{wire}");
    assert!(has(&after[0], SUMMARY) && !has(&after[0], ANY_PNG), "{wire}");
    for (epoch, model, least) in
        [(before, "scripted", SILENT_AT), (after, "scripted", 40), (after, "other", 15)]
    {
        let of_model: Vec<_> = epoch.iter().filter(|it| it.model() == model).collect();
        assert!(of_model.len() > least, "{wire}: {model} was asked {} times", of_model.len());
        for (number, pair) in of_model.windows(2).enumerate() {
            let [earlier, later] = [pair[0], pair[1]].map(|request| blocks_of(&request.body));
            let common = earlier.iter().zip(&later).take_while(|(a, b)| a == b).count();
            let place = format!("{wire}: {model}, request {number}");
            assert_eq!(
                common,
                earlier.len(),
                "{place} changed its past: {:?}",
                earlier.get(common)
            );
            let [earlier, later] = [pair[0], pair[1]].map(|request| frame_of(&request.body));
            assert_eq!(earlier, later, "{place} changed what stands around it");
        }
    }
}

const CONVERSATION: [&str; 3] = ["messages", "input", "contents"];

/// The blocks of a request's conversation, without the marks that move.
fn blocks_of(body: &Value) -> Vec<Value> {
    let list = CONVERSATION.into_iter().find_map(|name| body[name].as_array());
    let mut blocks = Vec::new();
    for message in list.expect("a request has messages") {
        match message["content"].as_array().or_else(|| message["parts"].as_array()) {
            Some(parts) => blocks.extend(
                parts
                    .iter()
                    .map(|part| json!({"role": message["role"], "part": without_marks(part)})),
            ),
            None => blocks.push(message.clone()),
        }
    }
    blocks
}

/// All else that a request says, system text and tools among it, but for what it leaves of the window to the answer.
fn frame_of(body: &Value) -> Value {
    let mut frame = without_marks(body);
    for (parent, limits) in [
        ("", &["max_tokens", "max_completion_tokens", "max_output_tokens"][..]),
        ("/generationConfig", &["maxOutputTokens"]),
        ("/options", &["num_predict"]),
    ] {
        let members = frame.pointer_mut(parent).and_then(Value::as_object_mut);
        if let Some(members) = members {
            members.retain(|name, _| !limits.contains(&name.as_str()));
        }
    }
    let frame_members = frame.as_object_mut().expect("a request is an object");
    frame_members.retain(|name, _| !CONVERSATION.contains(&name.as_str()));
    frame
}

fn without_marks(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, _)| *name != "cache_control");
            kept.map(|(name, member)| (name.clone(), without_marks(member))).collect()
        }
        Value::Array(elements) => elements.iter().map(without_marks).collect(),
        plain => plain.clone(),
    }
}

/// What the agent says it used is what each model has billed, to the token and to the billionth of a dollar.
async fn every_token_is_accounted_for(wire: &str, server: &Server) {
    let used = server.wire().ok("get_usage", json!({"agent_id": "a", "by": "model"})).await;
    let mut rows = PRICES.map(|(id, prices)| {
        let bill = server.model().bill_of(id);
        let mut row = usage_of(&bill, cost_of(&bill, prices));
        row["key"] = json!(format!("scripted/{id}"));
        (cost_of(&bill, prices), row)
    });
    rows.sort_by_key(|(cost, _)| Reverse(*cost));
    let costs = rows.iter().map(|(cost, _)| cost).sum();
    let mut billed = usage_of(&server.model().bill(), costs);
    billed["rows"] = rows.into_iter().map(|(_, row)| row).collect();
    assert_eq!(used, billed, "{wire}");
}

/// In billionths of a dollar.
fn cost_of(bill: &Bill, [input, output, cache_read, cache_write]: [u64; 4]) -> u64 {
    bill.input * input
        + bill.output * output
        + bill.cache_read * cache_read
        + bill.cache_write * cache_write
}

/// How `get_usage` says it. Nothing was estimated, thrown away or without a price.
fn usage_of(bill: &Bill, cost: u64) -> Value {
    json!({
        "usage": {
            "input": bill.uncached_equivalent(), "cache_read": bill.cache_read, "cache_write": bill.cache_write,
            "output": bill.output, "reasoning": bill.reasoning,
        },
        "cost_usd": cost as f64 / 1e9, "cost_unknown_calls": 0, "calls": bill.requests,
    })
}

async fn a_kill_in_mid_thought_changes_nothing(wire: &str) {
    let server = setup(wire).start().await;
    server.model().strict();
    fs::write(server.world.work().join("page.txt"), PAGE).unwrap();
    create(&server.wire(), "a").await;
    for number in 0..3 {
        server.model().push(step(number));
    }
    server.model().push(Reply::thought("Half a thought").then_hang());
    let world = server.world.clone();
    let model = &world.model;
    let send = json!({"agent_id": "a", "content": "Begin"});
    let thinks = async |_: &Server| model.request_count() == 4;
    let server = killed_when("the model thinks", thinks, server, "send", send).await;
    model.push(step(3));
    model.push(Reply::text("Done."));
    let answer = server.wire().ok("resume_turn", json!({"agent_id": "a"})).await;
    assert_eq!(answer["content"], "Step 3.\n\nDone.", "{wire}: {answer}");
    let requests = model.requests();
    assert_eq!(requests.len(), 6, "{wire}");
    assert_eq!(requests[3].bytes, requests[4].bytes, "{wire}: what it would have been");
    assert_eq!(model.rejections(), [""; 0], "{wire}");
}

/// Eight agents at once, each of which is told three times to come again.
async fn a_storm_leaves_nobody_behind(wire: &str) {
    const AGENTS: usize = 8;
    const REFUSALS: usize = 3;
    let server = setup(wire).start().await;
    let refused: Mutex<HashMap<String, usize>> = Mutex::default();
    server.model().set_script(move |body| {
        let who = last_user_text(body).unwrap().to_owned();
        let mut refused = refused.lock().unwrap();
        let times = refused.entry(who.clone()).or_default();
        match *times < REFUSALS {
            true => {
                *times += 1;
                Reply::status(429).retry_after("0.05")
            }
            false => Reply::text(who),
        }
    });
    let call = &server.wire();
    let said = join_all((0..AGENTS).map(|number| async move {
        let (agent, words) = (format!("a{number}"), format!("I am {number}."));
        create(call, &agent).await;
        assert_eq!(say(call, &agent, &words).await, words, "{wire}");
    }));
    said.await;
    // Nobody is asked again who was answered, and nobody more often than it has to be.
    assert_eq!(server.model().request_count(), AGENTS * (REFUSALS + 1), "{wire}");
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

                #[tokio::test]
                async fn a_storm_leaves_nobody_behind() {
                    super::a_storm_leaves_nobody_behind(stringify!($wire)).await;
                }
            }
        )*
    };
}

on_every_wire! { messages chat responses generate_content ollama }
