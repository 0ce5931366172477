//! What a caller sees of how a model answered: what it thought, why it stopped, what it cost, whom it waited for, and who
//! answered in its place.

use nexus_testkit::{Gate, Reply, StopSaid};
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Setup, Wire, eventually};
use crate::support::{create, entry, say, shown};

over_every_wire! {
    why_it_stopped_is_said: Setup::new(),
    what_was_refused_is_not_shown_again: Setup::new(),
    the_callers_limit_cuts_and_is_not_mended: Setup::new(),
    what_it_used_is_kept_and_added_up: priced(),
}

over_every_wire_of_messages! {
    thoughts_are_streamed_and_are_no_part_of_the_answer: thinking(),
    thoughts_can_be_kept_off_streams: Setup::new().provider_keys(json!({
        "models": {"scripted": {"reasoning": {"effort": "low", "display": "none"}}},
    })),
    who_waits_for_a_provider_says_so: Setup::new().provider_keys(json!({"max_concurrent_calls": 1})),
    who_waited_too_long_gives_up: Setup::new().provider_keys(json!({"max_concurrent_calls": 1, "queue_timeout": 0.1})),
    another_model_takes_over_and_it_is_said: falling_back(),
}

fn thinking() -> Setup {
    Setup::new().provider_keys(json!({"models": {"scripted": {"reasoning": true}}}))
}

fn priced() -> Setup {
    let price = json!({"input": 2, "output": 10, "cache_read": 0.5});
    Setup::new().provider_keys(json!({"models": {"scripted": {"price": price}}}))
}

fn falling_back() -> Setup {
    let models = json!({"scripted": {"fallback": ["second"]}, "second": {"id": "other"}});
    Setup::new()
        .provider_keys(json!({"max_retries": 0, "models": models}))
        .config(json!({"default_model": "scripted"}))
}

async fn send(wire: &Wire, params: Value) -> Value {
    let mut all = json!({"content": "x"});
    all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    wire.ok("send", all).await
}

/// The events of a stream and its answer.
async fn streamed(wire: &Wire, params: Value) -> (Vec<Value>, Value) {
    let mut all = json!({"content": "x", "stream": true});
    all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    let (notifications, answer) = wire.open(request(1, "send", all)).await.all().await;
    let events = notifications.iter().filter(|message| message["method"] == "stream_event");
    (events.map(|message| message["params"]["event"].clone()).collect(), answer)
}

async fn why_it_stopped_is_said(wire: &Wire) {
    let limit = || Reply::text("a").stop(StopSaid::MaxTokens);
    let cases = [
        (vec![Reply::text("a")], "end_turn", "a"),
        (vec![Reply::refusal("I will not.")], "refusal", "I will not."),
        (vec![limit(), limit(), limit(), limit()], "max_tokens", "aaaa"),
        (vec![Reply::nothing(), Reply::nothing()], "empty", ""),
    ];
    for (replies, reason, content) in cases {
        let calls = replies.len();
        create(wire, reason).await;
        replies.into_iter().for_each(|reply| wire.model().push(reply));
        let answer = send(wire, json!({"agent_id": reason})).await;
        assert_eq!((&answer["stop_reason"], &answer["content"]), (&json!(reason), &json!(content)));
        let used = wire.ok("get_usage", json!({"agent_id": reason})).await;
        assert_eq!(used["calls"], calls, "{reason}: {used}");
    }
}

async fn what_was_refused_is_not_shown_again(wire: &Wire) {
    wire.model().push(Reply::text("fine"));
    wire.model().push(Reply::refusal("no"));
    wire.model().push(Reply::text("fine again"));
    for text in ["one", "bad", "two"] {
        send(wire, json!({"content": text})).await;
    }
    let last = wire.model().requests().pop().unwrap();
    assert_eq!(shown(&last), ["user: one", "assistant: fine", "user: two"]);
    // It is kept, for people.
    let total = wire.ok("get_messages", json!({})).await["total"].clone();
    assert_eq!(total, 6);
}

async fn the_callers_limit_cuts_and_is_not_mended(wire: &Wire) {
    wire.model().push(Reply::text("Once upon").stop(StopSaid::MaxTokens));
    let answer = send(wire, json!({"max_output_tokens": 2})).await;
    assert_eq!(
        (&answer["stop_reason"], &answer["content"]),
        (&json!("max_tokens"), &json!("Once upon"))
    );
    let requests = wire.model().requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0].body["max_tokens"]
            .as_u64()
            .or(requests[0].body["max_completion_tokens"].as_u64()),
        Some(2)
    );
    for bad in [json!(0), json!(-1), json!("2"), json!(1.5)] {
        let params = json!({"content": "x", "max_output_tokens": bad});
        let fault = wire.refused("send", params).await;
        assert_eq!(
            (fault.code, &fault.data["path"]),
            (-32602, &json!("/max_output_tokens")),
            "{bad}"
        );
    }
}

async fn what_it_used_is_kept_and_added_up(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "b", "parent_agent_id": "a"})).await;
    let reply = || Reply::text("hi").usage(1_000_000, 100_000).cached(400_000);
    wire.model().push(reply());
    // 600,000 at 2, 400,000 at 0.5, 100,000 at 10 for a million.
    let answer = send(wire, json!({"agent_id": "a"})).await;
    assert_eq!(answer["cost_usd"], 2.4, "{answer}");
    wire.model().push(reply());
    send(wire, json!({"agent_id": "b"})).await;
    let usage = async |params: Value| wire.ok("get_usage", params).await;
    let own = usage(json!({"agent_id": "a"})).await;
    assert_eq!((&own["cost_usd"], &own["calls"]), (&json!(2.4), &json!(1)));
    assert_eq!(
        (&own["usage"]["input"], &own["usage"]["cache_read"]),
        (&json!(1_000_000), &json!(400_000))
    );
    let tree = usage(json!({"agent_id": "a", "tree": true, "by": "agent"})).await;
    assert_eq!((&tree["cost_usd"], &tree["calls"]), (&json!(4.8), &json!(2)));
    assert_eq!(tree["rows"].as_array().unwrap().len(), 2, "{tree}");
    let all = usage(json!({"by": "model"})).await;
    assert_eq!(all["rows"][0]["cost_usd"], 4.8, "{all}");
    assert_eq!(entry(wire, "a").await["usage"]["cost_usd"], 2.4);
    // What an agent used stays on its tree's bill.
    wire.ok("destroy_agent", json!({"agent_id": "b"})).await;
    assert_eq!(usage(json!({"agent_id": "a", "tree": true})).await["cost_usd"], 4.8);
}

async fn thoughts_are_streamed_and_are_no_part_of_the_answer(wire: &Wire) {
    wire.model().push(Reply::thought("Let me see.").then_text("Seven.").reasoning_tokens(4));
    let (events, answer) = streamed(wire, json!({})).await;
    assert_eq!(answer["result"]["content"], "Seven.");
    let thought: String = events
        .iter()
        .filter(|event| event["type"] == "reasoning")
        .map(|event| event["text"].as_str().unwrap())
        .collect();
    assert_eq!(thought, "Let me see.");
    assert!(events.iter().any(|event| event["type"] == "reasoning_end"), "{events:?}");
    let usage = events.iter().find(|event| event["type"] == "usage").unwrap();
    assert_eq!(usage["reasoning"], 4);
    let page = wire.ok("get_messages", json!({})).await;
    assert_eq!(page["messages"][1].get("reasoning"), None);
    let page = wire.ok("get_messages", json!({"include_reasoning": true})).await;
    assert_eq!(page["messages"][1]["reasoning"], "Let me see.");
}

async fn thoughts_can_be_kept_off_streams(wire: &Wire) {
    wire.model().push(Reply::thought("Let me see.").then_text("Seven."));
    let (events, answer) = streamed(wire, json!({})).await;
    assert_eq!(answer["result"]["content"], "Seven.");
    assert!(events.iter().all(|event| event["type"] != "reasoning"), "{events:?}");
    let page = wire.ok("get_messages", json!({"include_reasoning": true})).await;
    assert_eq!(page["messages"][1]["reasoning"], "Let me see.");
}

async fn who_waits_for_a_provider_says_so(wire: &Wire) {
    let gate = Gate::new();
    create(wire, "a").await;
    create(wire, "b").await;
    wire.model().push(Reply::text("first").held_by(&gate));
    let first = say(wire, "a", "x");
    let second = async {
        eventually("the first to be asked", async || wire.model().request_count() == 1).await;
        streamed(wire, json!({"agent_id": "b"})).await
    };
    let look = async {
        eventually("the second to wait", async || {
            entry(wire, "b").await["status"] == "waiting_provider"
        })
        .await;
        assert_eq!(entry(wire, "a").await["status"], "running");
        gate.release();
    };
    let (first, (events, answer), ()) = tokio::join!(first, second, look);
    assert_eq!(first, "first");
    assert!(answer["result"]["content"].is_string(), "{answer}");
    assert_eq!(events[0], json!({"type": "waiting", "reason": "full"}));
    assert_eq!(entry(wire, "b").await["status"], "idle");
}

async fn who_waited_too_long_gives_up(wire: &Wire) {
    let gate = Gate::new();
    create(wire, "a").await;
    create(wire, "b").await;
    wire.model().push(Reply::text("first").held_by(&gate));
    let second = async {
        eventually("the first to be asked", async || wire.model().request_count() == 1).await;
        let fault = wire.refused("send", json!({"agent_id": "b", "content": "x"})).await;
        assert_eq!(fault.code, -32002, "{fault:?}");
        gate.release();
    };
    let (first, ()) = tokio::join!(say(wire, "a", "x"), second);
    assert_eq!(first, "first");
    assert_eq!(wire.model().request_count(), 1);
}

async fn another_model_takes_over_and_it_is_said(wire: &Wire) {
    wire.model().push(Reply::status(503));
    wire.model().push(Reply::text("from the other"));
    let (events, answer) = streamed(wire, json!({})).await;
    assert_eq!(
        (&answer["result"]["content"], &answer["result"]["model"]),
        (&json!("from the other"), &json!("second"))
    );
    let taken = events.iter().find(|event| event["type"] == "fallback").expect("it is said");
    assert_eq!((&taken["from"], &taken["to"]), (&json!("scripted"), &json!("second")));
    // The first is asked again in the next turn. A refused key is seen.
    wire.model().push(Reply::status(401));
    assert!(wire.call("send", json!({"content": "x"})).await.is_err());
    assert_eq!(wire.model().requests()[2].body["model"], "scripted");
    assert_eq!(wire.model().request_count(), 3);
}
