//! Turns that were cut off, and how they go on: finished steps stay, and nothing is done twice.

use std::fs;

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use crate::harness::{Server, Wire};
use crate::support::{create, has_messages, history, say, shown};

over_every_wire! {
    a_turn_that_failed_goes_on,
    a_turn_that_was_cancelled_goes_on,
    what_was_not_cut_off_is_not_resumed,
}

/// What `get_context` says of a turn that was cut off.
async fn interrupted(wire: &Wire, agent: &str) -> Value {
    let mut context = wire.ok("get_context", json!({"agent_id": agent})).await;
    context["interrupted_turn"].take()
}

async fn resume(wire: &Wire, agent: &str) -> Value {
    wire.ok("resume_turn", json!({"agent_id": agent})).await
}

async fn a_turn_that_failed_goes_on(wire: &Wire) {
    create(wire, "a").await;
    assert_eq!(interrupted(wire, "a").await, Value::Null);
    wire.model().push(Reply::status(400));
    let send = json!({"agent_id": "a", "content": "Hi", "request_id": 7});
    wire.refused("send", send).await;
    let expected = json!({"request_id": 7, "unknown_tool_calls": []});
    assert_eq!(interrupted(wire, "a").await, expected);
    wire.model().push(Reply::text("Hello."));
    let answer = resume(wire, "a").await;
    assert_eq!((&answer["content"], &answer["request_id"]), (&json!("Hello."), &json!(7)));
    assert_eq!(history(wire, "a").await, ["user: Hi", "assistant: Hello."]);
    assert_eq!(interrupted(wire, "a").await, Value::Null);
}

async fn a_turn_that_was_cancelled_goes_on(wire: &Wire) {
    create(wire, "a").await;
    wire.model().push(Reply::text("Once upon").then_hang());
    let send = wire.ok("send", json!({"agent_id": "a", "content": "Tell", "request_id": "t"}));
    let cancel = async {
        wire.model().wait_for_requests(1).await;
        assert_eq!(interrupted(wire, "a").await, Value::Null, "it still runs");
        wire.ok("cancel", json!({"agent_id": "a", "request_id": "t"})).await;
    };
    tokio::join!(send, cancel);
    wire.model().push(Reply::text("Once upon a time."));
    assert_eq!(resume(wire, "a").await["content"], "Once upon a time.");
    assert_eq!(shown(&wire.model().last_request()), ["user: Tell"]);
    wire.model().push(Reply::text("The end."));
    assert_eq!(say(wire, "a", "And?").await, "The end.");
    assert_eq!(
        shown(&wire.model().last_request()),
        ["user: Tell", "assistant: Once upon a time.", "user: And?"]
    );
}

async fn what_was_not_cut_off_is_not_resumed(wire: &Wire) {
    create(wire, "a").await;
    let refused = async |params: Value| wire.refused("resume_turn", params).await;
    let fault = refused(json!({"agent_id": "a"})).await;
    assert_eq!((fault.code, &*fault.message), (-32602, "No turn of this agent was cut off"));
    wire.model().push(Reply::text("Hello."));
    let send = json!({"agent_id": "a", "content": "Hi", "request_id": "done"});
    wire.ok("send", send).await;
    let fault = refused(json!({"agent_id": "a", "request_id": "done"})).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/request_id")));
    assert_eq!(fault.message, "Turn done is not one that can be resumed");
    // While it runs it is not cut off; whoever asks all the same waits for its end and is told so.
    let gate = Gate::new();
    wire.model().push(Reply::text("Slow.").held_by(&gate));
    let send = wire.ok("send", json!({"agent_id": "a", "content": "Hi", "request_id": "slow"}));
    let other = async {
        wire.model().wait_for_requests(2).await;
        let fault = refused(json!({"agent_id": "a", "request_id": "slow"})).await;
        assert_eq!(fault.message, "A turn named slow is in flight already");
        gate.release();
    };
    tokio::join!(send, other);
    assert_eq!(wire.model().request_count(), 2);
}

#[tokio::test]
async fn a_turn_that_was_killed_among_its_tools_keeps_what_ended_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cwd = dir.path().canonicalize().unwrap();
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted", "cwd": cwd})).await;
    let append = |text: &str| json!({"path": "log.txt", "content": text});
    server.model().push(
        Reply::tool_call("sleep", json!({"seconds": 60}))
            .then_tool_call("append_file", append("once\n")),
    );
    let send = json!({"agent_id": "a", "content": "Go", "request_id": "job", "stream": true});
    let asked = wire.open(crate::harness::wire::request(1, "send", send)).await;
    // The message, the calls, and what the quick one came to: on disk while the slow one still runs.
    has_messages(&wire, "a", 3).await;
    let server = server.restart().await;
    drop(asked);
    let wire = server.wire();
    let page = wire.ok("get_messages", json!({"agent_id": "a"})).await;
    let calls = page["messages"][1]["tool_calls"].as_array().unwrap().clone();
    let slow = &calls[0]["id"];
    assert_eq!(
        interrupted(&wire, "a").await,
        json!({"request_id": "job", "unknown_tool_calls": [slow]})
    );
    assert_eq!(server.model().request_count(), 1, "nothing goes on by itself");

    server.model().push(Reply::text("Went on."));
    let answer = resume(&wire, "a").await;
    assert_eq!((&answer["content"], &answer["request_id"]), (&json!("Went on."), &json!("job")));
    let seen = shown(&server.model().last_request());
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert_eq!(seen[2], "tool: Interrupted: whether this call took effect is not known.");
    assert!(seen[3].starts_with("tool: ") && !seen[3].contains("Interrupted"), "{seen:?}");
    let lines = history(&wire, "a").await;
    assert!(lines[3].ends_with("(interrupted)"), "{lines:?}");
    assert_eq!(fs::read_to_string(cwd.join("log.txt")).unwrap(), "once\n");
    assert_eq!(interrupted(&wire, "a").await, Value::Null);
}
