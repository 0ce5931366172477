//! What servers have the agent's model say: with somebody's leave, without tools, and counted as the agent's.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::elicit::{asked, asking, call, last_told};
use super::{tool, user};
use crate::harness::{Wire, eventually};
use crate::support::waiting;

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": {"type": "text", "text": text}})
}

fn wanted() -> Value {
    json!({"method": "sampling/createMessage", "params": {
        "systemPrompt": "Be\u{200b} brief",
        "messages": [says("user", "One word?"), says("assistant", "Which?"), says("user", "Any.")],
        "maxTokens": 20,
        "stopSequences": ["END"],
    }})
}

/// What the server is told of these words.
fn told(text: &str, reason: &str) -> Value {
    json!({"content": {"text": text, "type": "text"}, "model": "scripted", "role": "assistant",
        "stopReason": reason})
}

/// Lets a server have something said, with leave. What it was told.
async fn sampled(wire: &Wire, words: Reply) -> Value {
    wire.model().push(call(wanted()));
    wire.model().push(words);
    wire.model().push(Reply::text("done"));
    let send = wire.ok("send", json!({"agent_id": "a", "content": "go"}));
    let respond = async {
        let approval = waiting(wire).await;
        assert_eq!(
            (&approval["kind"], &approval["reason"]),
            (&json!("elicitation"), &json!("let the MCP server s ask the agent's model"))
        );
        let shown =
            "system: Be brief\nuser: One word?\nassistant: Which?\nuser: Any.\n(at most 20 tokens)";
        assert_eq!(approval["message"], shown);
        assert_eq!(approval["schema"], json!({"type": "object", "properties": {}}));
        let id = &approval["approval_id"];
        let filled = json!({"approval_id": id, "decision": "accept", "content": {"a": 1}});
        assert_eq!(wire.refused("respond_approval", filled).await.code, -32602);
        wire.ok("respond_approval", json!({"approval_id": id, "decision": "accept"})).await;
    };
    let (sent, ()) = tokio::join!(send, respond);
    assert_eq!(sent["content"], "done");
    serde_json::from_str(&last_told(wire, "a").await).unwrap()
}

#[tokio::test]
async fn a_server_has_the_model_say_something_with_leave() {
    for (behaviour, of) in [("asks", ""), ("asks modern", "/said/q")] {
        let server = asking(behaviour, json!({"sampling": "ask"})).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        let heard = sampled(&wire, Reply::text("Yes. END of it").usage(7, 3)).await;
        assert_eq!(heard.pointer(of), Some(&told("Yes. ", "stopSequence")), "{behaviour}");
        let request = wire.model().requests()[1].body.clone();
        assert!(request["tools"].is_null(), "{request}");
        let limit = [&request["max_tokens"], &request["max_completion_tokens"]];
        assert!(limit.contains(&&json!(20)), "{request}");
        let said = request["messages"].as_array().unwrap();
        let words: Vec<_> = said.iter().map(|it| it["content"].as_str().unwrap()).collect();
        assert_eq!(words, ["Be brief", "One word?", "Which?", "Any."]);
        let used = wire.ok("get_usage", json!({"agent_id": "a"})).await;
        assert_eq!(used["calls"], 3, "{used}");
    }
}

#[tokio::test]
async fn without_leave_the_model_is_not_asked() {
    let server = asking("asks", json!({"sampling": "ask"})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let heard = asked(&wire, "a", wanted(), json!({"decision": "decline"})).await;
    assert!(heard.contains("nobody gave leave to ask the model"), "{heard}");
    assert_eq!(wire.model().requests().len(), 2);

    let deaf = super::with_entry(super::entry("asks", json!({"sampling": "ask"})));
    let server = deaf.config(json!({"permissions": {"approvals": "deny"}})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let heard = tool(&wire, "a", "elicit", wanted()).await;
    assert!(heard.contains("nobody gave leave to ask the model"), "{heard}");
}

#[tokio::test]
async fn who_was_not_offered_it_may_not_ask_the_model() {
    for (behaviour, words) in
        [("asks", "-32601"), ("asks modern", "sampling, which it was not offered")]
    {
        let server = asking(behaviour, json!({})).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        let heard = tool(&wire, "a", "elicit", wanted()).await;
        assert!(heard.contains(words), "{heard}");
    }
}

#[tokio::test]
async fn a_server_that_asks_without_end_is_left() {
    let server = asking("asks", json!({"sampling": "ask"})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let mut arguments = wanted();
    arguments["how"] = json!("loop");
    wire.model().push(call(arguments));
    (0..10).for_each(|_| wire.model().push(Reply::text("again")));
    wire.model().push(Reply::text("done"));
    let send = wire.ok("send", json!({"agent_id": "a", "content": "go"}));
    let respond = async {
        for _ in 0..10 {
            let approval = waiting(&wire).await;
            let id = &approval["approval_id"];
            wire.ok("respond_approval", json!({"approval_id": id, "decision": "accept"})).await;
        }
    };
    tokio::join!(send, respond);
    let heard = last_told(&wire, "a").await;
    assert!(heard.contains("asked more than 10 times"), "{heard}");
}

/// Whoever cancels the turn does not wait for the model, and what it used counts.
#[tokio::test]
async fn a_cancel_reaches_the_model_that_is_asked() {
    let server = asking("asks", json!({"sampling": "ask"})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    wire.model().push(call(wanted()));
    wire.model().push(Reply::text("So far").then_hang());
    let send = wire.ok("send", json!({"agent_id": "a", "content": "go", "request_id": "r1"}));
    let cancel = async {
        let approval = waiting(&wire).await;
        let id = &approval["approval_id"];
        wire.ok("respond_approval", json!({"approval_id": id, "decision": "accept"})).await;
        eventually("it comes", async || wire.model().requests().len() == 2).await;
        wire.ok("cancel", json!({"agent_id": "a", "request_id": "r1"})).await;
    };
    let (sent, ()) = tokio::join!(send, cancel);
    assert_eq!(sent["cancelled"], true);
    eventually("it comes", async || {
        let used = wire.ok("get_usage", json!({"agent_id": "a"})).await;
        used["calls"] == 2
    })
    .await;
}
