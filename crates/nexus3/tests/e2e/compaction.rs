//! Shortening a conversation: on demand, and when the model's window is nearly full.

use nexus_testkit::Reply;
use serde_json::json;

use crate::harness::{Setup, Wire};
use crate::support::{create, history, say, shown};

over_every_wire! {
    a_conversation_is_compacted_on_demand: narrow(),
    a_conversation_is_compacted_when_it_must: narrow(),
    a_message_larger_than_the_window_is_refused: narrow(),
}

/// A window that a few paragraphs fill. Next to nothing is kept to the letter.
fn narrow() -> Setup {
    Setup::new()
        .provider_keys(json!({"models": {"scripted": {"context_window": 2048}}}))
        .config(json!({"compaction": {"recent_preserve_ratio": 0.01}}))
}

async fn a_conversation_is_compacted_on_demand(wire: &Wire) {
    create(wire, "a").await;
    let nothing = wire.ok("compact", json!({"agent_id": "a"})).await;
    assert_eq!(nothing, json!({"compacted": false, "reason": "nothing_to_compact"}));

    wire.model().push(Reply::text("A long story. ".repeat(50)));
    say(wire, "a", "My key is sk-abcdefghijklmnop. Tell me a story").await;
    let not_yet = wire.ok("compact", json!({"agent_id": "a", "force": false})).await;
    assert_eq!(not_yet, json!({"compacted": false, "reason": "below_threshold"}));
    assert_eq!(wire.model().request_count(), 1, "no model was asked for that");

    let asked_before = wire.model().last_request().body;
    wire.model().push(Reply::text("A story was told to sk-abcdefghijklmnop."));
    let done = wire.ok("compact", json!({"agent_id": "a"})).await;
    let tokens = |name: &str| done[name].as_u64().unwrap();
    assert_eq!(done["compacted"], true);
    assert!(tokens("tokens_after") < tokens("tokens_before"), "{done}");
    assert_eq!(tokens("tokens_saved"), tokens("tokens_before") - tokens("tokens_after"));
    // It is asked for at the end of what the provider has read already.
    let asked = wire.model().last_request().body;
    let (before, now) = (&asked_before["messages"], &asked["messages"]);
    let before = before.as_array().unwrap();
    assert_eq!(now.as_array().unwrap()[..before.len()], before[..]);
    assert_eq!(
        (now.as_array().unwrap().len(), &asked["tools"]),
        (before.len() + 2, &asked_before["tools"])
    );

    say(wire, "a", "What was it?").await;
    let asked = wire.model().last_request();
    assert_eq!(shown(&asked), ["user: What was it?"]);
    let summary = &asked.body["messages"][1];
    assert_eq!(summary["role"], "user", "templates refuse a system message elsewhere");
    let told = summary["content"].as_str().unwrap();
    assert!(told.contains("A story was told to [redacted]."), "{summary}");

    // The history is whole, with the summary where it was made.
    let page = wire.ok("get_messages", json!({"agent_id": "a", "offset": 2, "limit": 1})).await;
    let entry = &page["messages"][0];
    assert_eq!((&entry["role"], &entry["meta"]["covers"]), (&json!("system"), &json!(2)));
    assert_eq!(page["total"], 5);
}

async fn a_conversation_is_compacted_when_it_must(wire: &Wire) {
    create(wire, "a").await;
    let story = "once upon a time there was ".repeat(200);
    wire.model().push(Reply::text(story));
    say(wire, "a", "Tell me a story").await;
    wire.model().push(Reply::text("A story was told."));
    wire.model().push(Reply::text("It began as they all do."));
    let question = "How did it begin? ".repeat(130);
    assert_eq!(say(wire, "a", &question).await, "It began as they all do.");
    assert_eq!(wire.model().request_count(), 3, "the second was for the summary");
    assert_eq!(shown(&wire.model().last_request()), [format!("user: {question}")]);
    assert_eq!(history(wire, "a").await[2], "system: A story was told.");
}

async fn a_message_larger_than_the_window_is_refused(wire: &Wire) {
    create(wire, "a").await;
    let fault =
        wire.refused("send", json!({"agent_id": "a", "content": "word ".repeat(3000)})).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/content")));
    assert!(fault.message.contains("the model's window is 2048"), "{}", fault.message);
    assert_eq!(wire.model().request_count(), 0);
    say(wire, "a", "Briefly").await;
    assert_eq!(history(wire, "a").await[0], "user: Briefly");
}
