//! `/tools`, `/tool`.

use serde_json::{Value, json};

use crate::testing::{Stage, page};

fn call(id: &str, name: &str, arguments: Value) -> Value {
    let calls = json!([{"id": id, "name": name, "arguments": arguments}]);
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

fn result(id: &str, content: &str) -> Value {
    json!({"role": "tool", "content": content, "tool_call_id": id})
}

fn stage(messages: Vec<Value>) -> Stage {
    Stage::with(move |_, params| Ok(page(&messages, params)))
}

fn messages() -> Vec<Value> {
    vec![
        call("toolu_01aaaa", "exec", json!({"argv": ["cargo", "test"], "timeout": 3})),
        result("toolu_01aaaa", "ok\nmore"),
        call("toolu_02bbbb", "read_file", json!({"path": "a.rs"})),
        result("toolu_02bbbb", "text"),
        call("toolu_03cccc", "odd", json!({"count": 1, "thing": "x"})),
    ]
}

fn paged(offset: u64) -> Value {
    json!(["get_messages", {"agent_id": "main", "offset": offset, "from_end": true, "limit": 200}])
}

#[tokio::test]
async fn lists_the_last_calls() {
    let told = [
        "[aaaa] exec  cargo test  ok …",
        "[bbbb] read_file  a.rs  text",
        "[cccc] odd  1  no result",
    ];
    stage(messages()).check("/tools", json!([paged(0)]), &told).await;
    stage(messages()).check("/tools 2", json!([paged(0)]), &told[1..]).await;
    stage(vec![]).check("/tools", json!([paged(0)]), &["No tool calls."]).await;
    let usage = ["Usage: /tools [N], with N from 1 to 1000"];
    for line in ["/tools 0", "/tools 1001", "/tools x"] {
        stage(messages()).check(line, json!([]), &usage).await;
    }
    assert_eq!(stage(messages()).run("/tools 1000").await.told.len(), 3);
}

#[tokio::test]
async fn ten_calls_unless_told_otherwise() {
    let calls: Vec<_> = (0..12).map(|at| call(&format!("id_{at:04}"), "exec", json!({}))).collect();
    let told = stage(calls).run("/tools").await.told;
    assert_eq!(told.len(), 10);
    assert_eq!(told[0], "[0002] exec    no result");
}

#[tokio::test]
async fn looks_as_far_back_as_it_has_to() {
    let mut all = messages();
    all.extend((0..300).map(|_| json!({"role": "user", "content": "x"})));
    let calls = json!([paged(0), paged(200)]);
    let told = ["[cccc] odd  1  no result"];
    stage(all.clone()).check("/tools 1", calls.clone(), &told).await;
    let found = "[page exec [toolu_01aaaa]\n\n{\n  \"argv\": [\n    \"cargo\",\n    \"test\"\n  ],\n  \"timeout\": 3\n}\n\nok\nmore\n]";
    stage(all).check("/tool aaaa", calls, &[found]).await;
}

#[tokio::test]
async fn nothing_is_met_twice_while_more_is_said() {
    let said = std::sync::atomic::AtomicUsize::new(300);
    let mut stage = Stage::with(move |_, params| {
        // Each answer finds three more messages than the one before.
        let total = said.fetch_add(3, std::sync::atomic::Ordering::Relaxed);
        let all: Vec<_> =
            (0..total).map(|at| call(&format!("id_{at:04}"), "exec", json!({}))).collect();
        Ok(page(&all, params))
    });
    let told = stage.run("/tools 1000").await.told;
    let expected: Vec<_> = (0..300).map(|at| format!("[{at:04}] exec    no result")).collect();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn shows_one_call_in_full() {
    let read = "[page read_file [toolu_02bbbb]\n\n{\n  \"path\": \"a.rs\"\n}\n\ntext\n]";
    for id in ["toolu_02bbbb", "bbbb", "toolu_02"] {
        stage(messages()).check(&format!("/tool {id}"), json!([paged(0)]), &[read]).await;
    }
    let told = stage(messages()).run("/tool last").await.told;
    assert!(told[0].starts_with("[page odd [toolu_03cccc]"), "{told:?}");
    assert!(told[0].ends_with("\n\n(no result)\n]"), "{told:?}");
    let many = "'toolu' fits 3 calls (toolu_03cccc, toolu_02bbbb): say more of the id.";
    stage(messages()).check("/tool toolu", json!([paged(0)]), &[many]).await;
    let unknown = ["No tool call 'zzzz'. /tools lists the last ones."];
    stage(messages()).check("/tool zzzz", json!([paged(0)]), &unknown).await;
    stage(vec![]).check("/tool last", json!([paged(0)]), &["No tool calls."]).await;
    stage(vec![]).check("/tool", json!([]), &["Usage: /tool last|ID"]).await;
}

#[tokio::test]
async fn a_whole_id_is_found_among_longer_ones() {
    let twins = vec![call("id_1", "exec", json!({})), call("id_12", "git", json!({}))];
    let told = stage(twins).run("/tool id_1").await.told;
    assert!(told[0].starts_with("[page exec [id_1]"), "{told:?}");
}
