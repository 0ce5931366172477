//! Limits to what one caller may ask for in a minute. Off unless they are configured.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Setup, Wire};
use crate::support::{as_agent, create};

over_every_wire! {
    without_limits_nobody_counts,
    a_call_too_many_is_refused_and_costs_nothing: limited(json!({"calls_per_minute": 5})),
    a_method_may_have_a_limit_of_its_own: limited(json!({"methods": {"send": 2, "rpc.version": 3}})),
}

over_every_wire_of_messages! {
    every_element_of_a_batch_counts: limited(json!({"calls_per_minute": 5})),
}

fn limited(limits: Value) -> Setup {
    Setup::new().server(json!({"rate_limit": limits}))
}

async fn without_limits_nobody_counts(wire: &Wire) {
    for _ in 0..200 {
        wire.ok("rpc.version", json!({})).await;
    }
}

async fn a_call_too_many_is_refused_and_costs_nothing(wire: &Wire) {
    for _ in 0..5 {
        wire.ok("rpc.version", json!({})).await;
    }
    for _ in 0..3 {
        let fault = wire.refused("rpc.version", json!({})).await;
        assert_eq!((fault.code, &*fault.message), (-32002, "Rate limit exceeded"));
        assert_eq!(fault.data["scope"], "server");
        let rule = "There are 5 calls in a minute (server.rate_limit.calls_per_minute).";
        assert_eq!(fault.data["details"], rule);
        let wait = fault.data["retry_after_ms"].as_u64().unwrap();
        assert!((1..=12_001).contains(&wait), "{wait}");
    }
    // What was refused did nothing.
    let fault = wire.refused("create_agent", json!({"agent_id": "a"})).await;
    assert_eq!(fault.code, -32002);
}

async fn a_method_may_have_a_limit_of_its_own(wire: &Wire) {
    for _ in 0..2 {
        wire.model().push(Reply::text("said"));
        wire.ok("send", json!({"content": "x"})).await;
    }
    let fault = wire.refused("send", json!({"content": "x"})).await;
    let rule = "There are 2 calls of send in a minute (server.rate_limit.methods.send).";
    assert_eq!((fault.code, &fault.data["details"]), (-32002, &json!(rule)));
    assert_eq!(wire.model().request_count(), 2);
    for _ in 0..3 {
        wire.ok("rpc.version", json!({})).await;
    }
    assert_eq!(wire.refused("rpc.version", json!({})).await.code, -32002);
    for _ in 0..20 {
        wire.ok("list_agents", json!({})).await;
    }
}

async fn every_element_of_a_batch_counts(wire: &Wire) {
    let calls: Vec<Value> = (0..7)
        .map(|n| serde_json::from_str(&request(n, "rpc.version", json!({}))).unwrap())
        .collect();
    let answers = wire.exchange(Value::from(calls).to_string()).await;
    let refused = |answer: &&Value| answer["error"]["code"] == -32002;
    assert_eq!(answers.as_array().unwrap().iter().filter(refused).count(), 2);
}

#[tokio::test]
async fn one_caller_takes_nothing_from_another() {
    let limits = json!({"methods": {"get_context": 3}});
    let server = limited(limits).start().await;
    let wire = server.wire();
    for agent in ["a", "b"] {
        create(&wire, agent).await;
    }
    let ask = json!({"agent_id": "a"});
    for _ in 0..3 {
        as_agent(&server, "a", "get_context", ask.clone()).await.unwrap();
    }
    let refused = as_agent(&server, "a", "get_context", ask.clone()).await.unwrap_err();
    assert_eq!(refused.0, -32002);
    as_agent(&server, "b", "get_context", json!({"agent_id": "b"})).await.unwrap();
    wire.ok("get_context", ask).await;
}

#[tokio::test]
async fn over_http_it_is_429_with_the_time_to_wait() {
    let server = limited(json!({"calls_per_minute": 1})).start().await;
    let call = || server.post(request(1, "rpc.version", json!({})));
    assert_eq!(server.ask(call()).await.status, 200);
    let refused = server.ask(call()).await;
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=61).contains(&wait), "{wait}");
}

#[tokio::test]
async fn who_is_not_let_in_is_told_so_so_many_times() {
    let server = limited(json!({"failed_logins_per_minute": 4})).start().await;
    let call = |token| server.post(request(1, "rpc.version", json!({}))).bearer(token);
    for (token, status) in [(None, 401), (Some("wrong"), 403), (Some("nxk_x"), 403), (None, 401)] {
        assert_eq!(server.ask(call(token)).await.status, status);
    }
    let refused = server.ask(call(Some("wrong"))).await;
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    let details =
        "4 callers were not let in within a minute (server.rate_limit.failed_logins_per_minute).";
    assert_eq!(refused.answer()["error"]["data"]["details"], details);
    // Whoever has the token is not kept out by those who have not.
    server.wire().ok("rpc.version", json!({})).await;
}

#[tokio::test]
async fn a_limit_for_a_method_that_is_not_there_is_no_limit() {
    let world = limited(json!({"methods": {"sned": 1}})).world().await;
    let output = Setup::new().fails_in(&world).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let reason = "server.rate_limit.methods: there is no method sned";
    assert!(output.stderr.contains(reason), "{output:?}");
}
