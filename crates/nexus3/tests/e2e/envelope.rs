//! Ids, notifications and batches: the same on every transport.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Wire, eventually};

over_every_wire_of_messages! {
    ids_are_echoed_to_the_letter,
    other_ids_are_refused,
    a_notification_is_executed_and_not_answered,
    a_failing_notification_is_not_answered_either,
    what_is_no_request_is_answered_without_an_id,
    a_batch_keeps_its_order_and_leaves_notifications_out,
    a_batch_of_notifications_is_not_answered,
    a_batch_holds_one_to_a_hundred_requests,
    a_bad_element_is_answered_for_itself,
    elements_run_side_by_side,
    turns_of_one_agent_queue_within_a_batch,
    a_batch_can_cancel_what_it_started,
}

async fn ids_are_echoed_to_the_letter(wire: &Wire) {
    let ids = [
        "0",
        "-1",
        "9007199254740993",
        "123456789012345678901234567890123456789012345678901234567890",
        "-123456789012345678901234567890",
        r#""""#,
        r#""a""#,
        r#""null""#,
        r#""a\"b\\c\/d\n\u00e4\ud83d\ude00é""#,
    ];
    for id in ids {
        for (method, member) in [("rpc.version", "result"), ("nope", "error")] {
            let message = format!(r#"{{"jsonrpc":"2.0","method":"{method}","id":{id}}}"#);
            let answer = wire.exchange_raw(message).await;
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{{"#);
            assert!(answer.starts_with(&expected), "{answer}");
        }
    }
}

async fn other_ids_are_refused(wire: &Wire) {
    for id in ["1.0", "1.5", "1e3", "true", "false", "[]", "[1]", "{}"] {
        let message = format!(r#"{{"jsonrpc":"2.0","method":"rpc.version","id":{id}}}"#);
        let answer = wire.exchange(message).await;
        let error = json!({"code": -32600, "message": "id must be a string or an integer"});
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": null, "error": error}), "{id}");
    }
}

async fn a_notification_is_executed_and_not_answered(wire: &Wire) {
    for (agent, id) in [("absent", ""), ("null", r#","id":null"#)] {
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"create_agent","params":{{"agent_id":"{agent}"}}{id}}}"#
        );
        wire.silent(message).await;
        eventually("the agent that was asked for", async || {
            let agents = wire.ok("list_agents", json!({})).await;
            agents["agents"].as_array().unwrap().iter().any(|entry| entry["agent_id"] == agent)
        })
        .await;
    }
}

async fn a_failing_notification_is_not_answered_either(wire: &Wire) {
    wire.model().set_default(Reply::status(400));
    for message in [
        r#"{"jsonrpc":"2.0","method":"nope"}"#,
        r#"{"jsonrpc":"2.0","method":"nope","id":null}"#,
        r#"{"jsonrpc":"2.0","method":"create_agent","params":[1]}"#,
        r#"{"jsonrpc":"2.0","method":"create_agent","params":{"typo":1}}"#,
        r#"{"jsonrpc":"2.0","method":"create_agent","params":{"preset":"yolo"}}"#,
        r#"{"jsonrpc":"2.0","method":"get_context","params":{"agent_id":"nobody"}}"#,
        r#"{"jsonrpc":"2.0","method":"send","params":{"content":"the model fails"}}"#,
    ] {
        wire.silent(message).await;
    }
    wire.model().wait_for_requests(1).await;
}

async fn what_is_no_request_is_answered_without_an_id(wire: &Wire) {
    // Whether these are notifications cannot be known: they are no requests at all.
    for message in [r#"{"jsonrpc":"2.0"}"#, r#"{"method":"rpc.version"}"#, "7", "null", r#""x""#] {
        let answer = wire.exchange(message).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)));
    }
}

async fn a_batch_keeps_its_order_and_leaves_notifications_out(wire: &Wire) {
    let batch = json!([
        {"jsonrpc": "2.0", "method": "create_agent", "params": {"agent_id": "a"}, "id": "slow"},
        {"jsonrpc": "2.0", "method": "rpc.version"},
        {"jsonrpc": "2.0", "method": "rpc.version", "id": 2},
        {"jsonrpc": "2.0", "method": "nope"},
        {"jsonrpc": "2.0", "method": "nope", "id": "same"},
        {"jsonrpc": "2.0", "method": "rpc.version", "id": "same"},
    ]);
    let answers = wire.exchange(batch.to_string()).await;
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
    assert_eq!(
        ids,
        ["slow", "2", "same", "same"]
            .map(|id| match id {
                "2" => json!(2),
                text => json!(text),
            })
            .iter()
            .collect::<Vec<_>>()
    );
    assert_eq!(answers[0]["result"]["agent_id"], "a");
    assert_eq!(answers[2]["error"]["message"], "Method not found: nope");
    assert_eq!(answers[3]["result"]["name"], "nexus3");
}

async fn a_batch_of_notifications_is_not_answered(wire: &Wire) {
    wire.silent(r#"[{"jsonrpc":"2.0","method":"rpc.version"}]"#).await;
    wire.silent(r#"[{"jsonrpc":"2.0","method":"nope"},{"jsonrpc":"2.0","method":"rpc.version"}]"#)
        .await;
}

async fn a_batch_holds_one_to_a_hundred_requests(wire: &Wire) {
    let of = |count: usize| {
        let requests = (0..count).map(|id| request(id, "rpc.version", json!({})));
        format!("[{}]", requests.collect::<Vec<_>>().join(","))
    };
    for count in [1, 100] {
        let answers = wire.exchange(of(count)).await;
        let ids = answers.as_array().unwrap().iter().map(|answer| answer["id"].as_u64());
        assert!(ids.eq((0..count as u64).map(Some)), "{answers}");
    }
    let refusals = [
        (of(0), "a batch must hold at least one request"),
        (of(101), "a batch may hold at most 100 requests, got: 101"),
    ];
    for (batch, message) in refusals {
        let error = json!({"code": -32600, "message": message});
        let expected = json!({"jsonrpc": "2.0", "id": null, "error": error});
        assert_eq!(wire.exchange(batch).await, expected);
    }
}

async fn a_bad_element_is_answered_for_itself(wire: &Wire) {
    let batch = r#"[1,{"jsonrpc":"2.0","method":"rpc.version","id":1},{},[],"x",null,{"jsonrpc":"2.0","method":"rpc.version","id":{}}]"#;
    let answers = wire.exchange(batch).await;
    let answers = answers.as_array().unwrap();
    let codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].as_i64()).collect();
    let bad = Some(-32600);
    assert_eq!(codes, [bad, None, bad, bad, bad, bad, bad]);
    assert!(answers.iter().all(|answer| answer["id"].is_null() != (answer["id"] == 1)));
}

async fn elements_run_side_by_side(wire: &Wire) {
    let gate = Gate::new();
    wire.model().set_default(Reply::text("both").held_by(&gate));
    for agent in ["a", "b"] {
        wire.ok("create_agent", json!({"agent_id": agent})).await;
    }
    let sends =
        ["a", "b"].map(|agent| request(agent, "send", json!({"agent_id": agent, "content": "x"})));
    let batch = format!("[{}]", sends.join(","));
    let both_asked = async {
        wire.model().wait_for_requests(2).await;
        gate.release();
    };
    let (answers, ()) = tokio::join!(wire.exchange(batch), both_asked);
    assert_eq!(answers[0]["result"]["content"], "both");
    assert_eq!(answers[1]["result"]["content"], "both");
}

async fn turns_of_one_agent_queue_within_a_batch(wire: &Wire) {
    wire.model().set_default(Reply::echo());
    wire.ok("create_agent", json!({"agent_id": "a"})).await;
    let sends = ["first", "second", "third"]
        .map(|text| request(text, "send", json!({"agent_id": "a", "content": text})));
    let answers = wire.exchange(format!("[{}]", sends.join(","))).await;
    let said = |message: &Value| message["content"].as_str().unwrap().to_string();
    let answers = answers.as_array().unwrap().iter().map(|answer| said(&answer["result"]));
    assert_eq!(answers.collect::<Vec<_>>(), ["first", "second", "third"]);
    let history = wire.ok("get_messages", json!({"agent_id": "a"})).await;
    let history: Vec<_> = history["messages"].as_array().unwrap().iter().map(said).collect();
    assert_eq!(history, ["first", "first", "second", "second", "third", "third"]);
}

async fn a_batch_can_cancel_what_it_started(wire: &Wire) {
    wire.model().push(Reply::hang());
    wire.ok("create_agent", json!({"agent_id": "a"})).await;
    let batch = [
        request(1, "send", json!({"agent_id": "a", "content": "x", "request_id": "slow"})),
        request(2, "cancel", json!({"agent_id": "a", "request_id": "slow"})),
    ];
    let answers = wire.exchange(format!("[{}]", batch.join(","))).await;
    assert_eq!(answers[0]["result"]["cancelled"], true, "{answers}");
    assert_eq!(answers[1]["result"], json!({"cancelled": true, "request_id": "slow"}));
}
