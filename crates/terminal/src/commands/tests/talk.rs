//! `/send`, `/whisper`, `/over`, `/cancel`, `/continue`.

use serde_json::{Value, json};

use crate::cx::{MESSAGE_BYTES_MAX, terminal_name};
use crate::testing::{Stage, agent, agents, context, merged};

fn answer(members: Value) -> Value {
    let usual = json!({
        "content": "One.\nTwo.\n", "request_id": "r", "halted_at_iteration_limit": false,
        "stop_reason": "end_turn", "model": "opus", "steps": 1, "cost_usd": null,
        "usage": {"input": 1, "cache_read": 0, "cache_write": 0, "output": 1, "reasoning": 0},
    });
    merged(usual, members)
}

#[tokio::test]
async fn sends_a_turn_that_outlives_the_terminal() {
    let mut stage = Stage::new(&[("send", answer(json!({})))]);
    let seen = stage.run("/send worker  say \"this\" twice").await;
    assert_eq!(seen.told, ["worker:", "One.", "Two."]);
    let params = &seen.calls[0][1];
    let id = params["request_id"].as_str().unwrap();
    assert!(id.starts_with("term_") && id.len() == 21, "{id}");
    let source = format!("terminal:{}", terminal_name());
    let expected = json!({
        "agent_id": "worker", "content": "say \"this\" twice", "request_id": id,
        "idempotency_key": id, "source": source,
    });
    assert_eq!(seen.calls, json!([["send", expected]]));
    let again = stage.run("/send worker again").await;
    assert_ne!(again.calls[0][1]["request_id"], id);
}

#[tokio::test]
async fn the_shown_agent_s_answer_is_not_printed_twice() {
    let mut stage = Stage::new(&[("send", answer(json!({})))]);
    assert!(stage.run("/send main hello").await.told.is_empty());
}

#[tokio::test]
async fn says_why_an_answer_ended_early() {
    let cut = answer(json!({"content": "One", "stop_reason": "cancelled", "cancelled": true}));
    let mut stage = Stage::new(&[("send", cut)]);
    let told = ["worker:", "One", "(worker stopped: cancelled)"];
    assert_eq!(stage.run("/send worker x").await.told, told);
    let mut stage = Stage::new(&[("send", json!("Unknown agent"))]);
    assert_eq!(stage.run("/send worker x").await.told, ["Unknown agent"]);
    for line in ["/send", "/send worker"] {
        stage.check(line, json!([]), &["Usage: /send NAME TEXT"]).await;
    }
}

#[tokio::test]
async fn a_message_has_a_mebibyte_at_most() {
    let mut stage = Stage::new(&[("send", answer(json!({})))]);
    let most = "x".repeat(MESSAGE_BYTES_MAX);
    let seen = stage.run(&format!("/send main {most}")).await;
    assert_eq!(seen.calls.as_array().unwrap().len(), 1);
    let refused = ["A message has at most 1 MiB: put it into a file, and name that."];
    stage.check(&format!("/send main {most}x"), json!([]), &refused).await;
}

#[tokio::test]
async fn whispers_until_it_is_over() {
    let mut stage = Stage::new(&[("list_agents", agents(&[agent("worker", json!({}))]))]);
    let told = ["What you write goes to worker until /over.", "[whisper worker]"];
    stage.check("/whisper worker", json!([["list_agents", {}]]), &told).await;
    let unknown = ["Agent 'nobody' doesn't exist."];
    stage.check("/whisper nobody", json!([["list_agents", {}]]), &unknown).await;
    stage.check("/whisper", json!([]), &["Usage: /whisper NAME"]).await;
    stage.check("/over", json!([]), &["[over]"]).await;
}

#[tokio::test]
async fn cancels_what_runs_or_what_is_named() {
    let turn =
        |id: Value, status: &str| json!({"request_id": id, "status": status, "content": "x"});
    let turns = json!({"turns": [turn(json!("req_1"), "running"), turn(json!(7), "queued")]});
    let answers = [
        ("list_agents", agents(&[agent("worker", json!({}))])),
        ("get_context", context(turns)),
        ("cancel", json!({"cancelled": true, "request_id": "req_1"})),
    ];
    let mut stage = Stage::new(&answers);
    let calls = json!([
        ["get_context", {"agent_id": "main"}],
        ["cancel", {"agent_id": "main", "request_id": "req_1"}],
    ]);
    stage.check("/cancel", calls, &["Cancelled req_1 in main."]).await;
    let calls = json!([
        ["list_agents", {}],
        ["get_context", {"agent_id": "worker"}],
        ["cancel", {"agent_id": "worker", "request_id": "req_1"}],
    ]);
    stage.check("/cancel worker", calls, &["Cancelled req_1 in worker."]).await;
    let calls = json!([
        ["list_agents", {}],
        ["get_context", {"agent_id": "main"}],
        ["cancel", {"agent_id": "main", "request_id": 7}],
    ]);
    stage.check("/cancel 7", calls, &["Cancelled 7 in main."]).await;
    let calls = json!([
        ["get_context", {"agent_id": "worker"}],
        ["cancel", {"agent_id": "worker", "request_id": 7}],
    ]);
    stage.check("/cancel worker 7", calls, &["Cancelled 7 in worker."]).await;
    let calls = json!([["get_context", {"agent_id": "worker"}]]);
    stage.check("/cancel worker 8", calls, &["No turn '8' runs or waits in worker."]).await;
    stage.check("/cancel a b c", json!([]), &["Usage: /cancel [NAME] [ID]"]).await;
}

#[tokio::test]
async fn says_when_there_is_nothing_to_cancel() {
    let calls = json!([["get_context", {"agent_id": "main"}]]);
    let mut stage = Stage::new(&[("get_context", context(json!({})))]);
    stage.check("/cancel", calls, &["No turn runs in main."]).await;
    let turns = json!({"turns": [{"request_id": "a", "status": "running", "content": ""}]});
    let over = json!({"cancelled": false, "request_id": "a", "reason": "not_found_or_completed"});
    let mut stage = Stage::new(&[("get_context", context(turns)), ("cancel", over)]);
    assert_eq!(stage.run("/cancel").await.told, ["a was over already."]);
}

#[tokio::test]
async fn goes_on_with_what_was_cut_off() {
    let cut = json!({"interrupted_turn": {"request_id": "req_1", "unknown_tool_calls": ["a"]}});
    let answers = [("get_context", context(cut)), ("resume_turn", answer(json!({})))];
    let calls = json!([
        ["get_context", {"agent_id": "main"}],
        ["resume_turn", {"agent_id": "main", "request_id": "req_1"}],
    ]);
    Stage::new(&answers).check("/continue", calls, &["going on with req_1"]).await;
    let mut stage = Stage::new(&[("get_context", context(json!({})))]);
    assert_eq!(stage.run("/continue").await.told, ["No turn of main was cut off."]);
}
