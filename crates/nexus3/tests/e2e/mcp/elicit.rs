//! What servers ask of people while one of their tools runs: it waits as an approval of its own kind, whoever answers it
//! decides, and a server that asks in vain, without end or for nobody is told so.

use std::fs;
use std::time::Duration;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{entry, status, tool, user, with_entry};
use crate::harness::{Setup, Wire, eventually};
use crate::support::{as_agent, history, waiting};

over_every_wire! {
    a_question_waits_until_it_is_answered: asking("asks", json!({})),
    a_question_of_now_waits_until_it_is_answered: asking("asks modern", json!({})),
}

/// A server of nexus3 that asks people, whose MCP server does so too.
pub(super) fn asking(behaviour: &str, keys: Value) -> Setup {
    let config =
        json!({"permissions": {"approvals": "ask"}, "mcp_servers": {"s": entry(behaviour, keys)}});
    Setup::new().config(config)
}

fn form() -> Value {
    let properties = json!({
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "default": 30},
    });
    json!({"message": "Who are\u{200b} you?",
        "requestedSchema": {"type": "object", "properties": properties, "required": ["name"]}})
}

pub(super) fn call(arguments: Value) -> Reply {
    Reply::tool_call("mcp_s_elicit", arguments)
}

/// Lets the model call `elicit` and answers what comes of it. What the model is told.
pub(super) async fn asked(wire: &Wire, agent: &str, arguments: Value, answer: Value) -> String {
    wire.model().push(call(arguments));
    wire.model().push(Reply::text("done"));
    let send = wire.ok("send", json!({"agent_id": agent, "content": "go"}));
    let respond = async {
        let mut params = answer;
        params["approval_id"] = waiting(wire).await["approval_id"].clone();
        wire.ok("respond_approval", params).await
    };
    tokio::join!(send, respond);
    last_told(wire, agent).await
}

pub(super) async fn last_told(wire: &Wire, agent: &str) -> String {
    let lines = history(wire, agent).await;
    lines[lines.len() - 2].strip_prefix("tool: ").unwrap().to_owned()
}

async fn a_question_waits_until_it_is_answered(wire: &Wire) {
    check_answers(wire, |answer| answer).await;
}

async fn a_question_of_now_waits_until_it_is_answered(wire: &Wire) {
    check_answers(wire, |answer| json!({"state": "so far", "said": {"q": answer}})).await;
}

async fn check_answers(wire: &Wire, told: fn(Value) -> Value) {
    user(wire, "a").await;
    wire.model().push(call(json!({"params": form()})));
    wire.model().push(Reply::text("done"));
    let send = wire.ok("send", json!({"agent_id": "a", "content": "go"}));
    let respond = async {
        let approval = waiting(wire).await;
        let id = approval["approval_id"].clone();
        assert_eq!(
            (&approval["kind"], &approval["message"], &approval["reason"]),
            (
                &json!("elicitation"),
                &json!("Who are you?"),
                &json!("answer a question of the MCP server s")
            )
        );
        assert_eq!(approval["tool"], "mcp_s_elicit");
        assert_eq!(approval["schema"]["properties"]["age"]["default"], 30);
        assert!(approval["grant"].is_null() && approval["expires_at"].is_string(), "{approval}");
        for (answer, path) in [
            (json!({"decision": "allow_once"}), "/decision"),
            (json!({"decision": "deny", "message": "no"}), "/decision"),
            (json!({"decision": "accept"}), "/content"),
            (json!({"decision": "accept", "content": {"name": "A"}}), "/content"),
            (json!({"decision": "accept", "content": {"name": "Ada", "age": "old"}}), "/content"),
            (json!({"decision": "decline", "content": {"name": "Ada"}}), "/content"),
        ] {
            let mut params = answer;
            params["approval_id"] = id.clone();
            let refused = wire.refused("respond_approval", params.clone()).await;
            let at = (refused.code, refused.data["path"].as_str());
            assert_eq!(at, (-32602, Some(path)), "{params}: {}", refused.message);
        }
        let params = json!({"approval_id": id, "decision": "accept", "content": {"name": "Ada"}});
        let answered = wire.ok("respond_approval", params.clone()).await["approval"].clone();
        assert_eq!(
            (&answered["status"], &answered["decided_by"]),
            (&json!("accepted"), &json!("administrator"))
        );
        assert!(!answered.to_string().contains("Ada"), "{answered}");
        wire.refused("respond_approval", params).await;
    };
    tokio::join!(send, respond);
    let expected = told(json!({"action": "accept", "content": {"name": "Ada", "age": 30}}));
    assert_eq!(last_told(wire, "a").await, expected.to_string());
    for (decision, status) in [("decline", "declined"), ("cancel", "cancelled")] {
        let answer = json!({"decision": decision});
        let heard = asked(wire, "a", json!({"params": form()}), answer).await;
        assert_eq!(heard, told(json!({"action": decision})).to_string());
        let all = wire.ok("list_approvals", json!({"include_decided": true})).await;
        let last = all["approvals"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&last["status"], &last["kind"]), (&json!(status), &json!("elicitation")));
    }
}

#[tokio::test]
async fn an_address_is_shown_and_opened_by_nobody() {
    let server = asking("asks", json!({})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let visit = json!({"mode": "url", "message": "Log in", "elicitationId": "1",
        "url": "https://login.example/x?y=1"});
    wire.model().push(call(json!({"params": visit})));
    wire.model().push(Reply::text("done"));
    let send = wire.ok("send", json!({"agent_id": "a", "content": "go"}));
    let respond = async {
        let approval = waiting(&wire).await;
        assert_eq!(approval["url"], "https://login.example/x?y=1");
        assert_eq!(approval["reason"], "open a page of login.example for the MCP server s");
        assert!(approval["schema"].is_null());
        let id = &approval["approval_id"];
        let wrong = json!({"approval_id": id, "decision": "accept", "content": {"a": 1}});
        wire.refused("respond_approval", wrong).await;
        wire.ok("respond_approval", json!({"approval_id": id, "decision": "accept"})).await;
    };
    tokio::join!(send, respond);
    assert_eq!(last_told(&wire, "a").await, r#"{"action":"accept"}"#);
    let mut wrong = visit;
    wrong["url"] = json!("javascript:alert(1)");
    let told = tool(&wire, "a", "elicit", json!({"params": wrong})).await;
    assert!(told.contains("begins with https://"), "{told}");
}

#[tokio::test]
async fn an_ancestor_answers_for_its_child_and_the_child_does_not() {
    let server = asking("asks", json!({})).start().await;
    let wire = server.wire();
    let top = json!({"agent_id": "top", "preset": "trusted"});
    wire.ok("create_agent", top).await;
    let child = json!({"agent_id": "a", "parent_agent_id": "top", "mcp": {"s": ["elicit"]}});
    wire.ok("create_agent", child).await;
    wire.model().push(call(json!({"params": form()})));
    wire.model().push(Reply::text("done"));
    let send = wire.ok("send", json!({"agent_id": "a", "content": "go"}));
    let respond = async {
        let id = waiting(&wire).await["approval_id"].clone();
        let answer = json!({"approval_id": id, "decision": "accept", "content": {"name": "Ada"}});
        let own = as_agent(&server, "a", "respond_approval", answer.clone()).await.unwrap_err();
        assert!(own.1.contains("its own"), "{own:?}");
        as_agent(&server, "top", "respond_approval", answer).await.unwrap();
    };
    tokio::join!(send, respond);
    assert!(last_told(&wire, "a").await.contains("Ada"));
}

#[tokio::test]
async fn nobody_is_waited_for_who_cannot_answer() {
    let denied = json!({"action": "decline"}).to_string();
    for behaviour in ["asks", "asks modern"] {
        let server = with_entry(entry(behaviour, json!({}))).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        let told = tool(&wire, "a", "elicit", json!({"params": form()})).await;
        assert!(told.contains(&denied), "{told}");
        assert_eq!(
            wire.ok("list_approvals", json!({"include_decided": true})).await["approvals"],
            json!([])
        );
    }
    let setup = asking("asks", json!({})).config(json!({"permissions": {"approval_timeout": 1}}));
    let server = setup.start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let told = tool(&wire, "a", "elicit", json!({"params": form()})).await;
    assert_eq!(told, r#"{"action":"cancel"}"#);
    let all = wire.ok("list_approvals", json!({"include_decided": true})).await;
    assert_eq!(all["approvals"][0]["status"], "timed_out");
}

#[tokio::test]
async fn what_a_server_may_not_ask_it_is_not_offered() {
    for (behaviour, refused) in [("asks", "-32601"), ("asks modern", "which it was not offered")] {
        let server = asking(behaviour, json!({"elicitation": "deny"})).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        for (method, params) in [
            ("elicitation/create", form()),
            ("sampling/createMessage", json!({"messages": [], "maxTokens": 5})),
            ("roots/list", json!({})),
        ] {
            let told =
                tool(&wire, "a", "elicit", json!({"method": method, "params": params})).await;
            assert!(told.contains(refused), "{behaviour} {method}: {told}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    let keys = json!({"roots": true, "sandbox": {"read": [&path]}});
    for behaviour in ["asks", "asks modern"] {
        let server = asking(behaviour, keys.clone()).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        let told = tool(&wire, "a", "elicit", json!({"method": "roots/list"})).await;
        assert!(told.contains(&format!("file://{}/", path.display())), "{told}");
    }
}

#[tokio::test]
async fn a_person_may_take_longer_than_a_server_or_a_tool() {
    for behaviour in ["asks", "asks modern"] {
        let setup = asking(behaviour, json!({"timeout": 0.5}));
        let server = setup.config(json!({"skill_timeout": 1})).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        wire.model().push(call(json!({"params": form()})));
        wire.model().push(Reply::text("done"));
        let send = wire.ok("send", json!({"agent_id": "a", "content": "go"}));
        let respond = async {
            let id = waiting(&wire).await["approval_id"].clone();
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            let answer =
                json!({"approval_id": id, "decision": "accept", "content": {"name": "Ada"}});
            wire.ok("respond_approval", answer).await;
        };
        tokio::join!(send, respond);
        let told = last_told(&wire, "a").await;
        assert!(told.contains("Ada"), "{behaviour}: {told}");
    }
}

#[tokio::test]
async fn a_server_that_asks_without_end_is_left() {
    for behaviour in ["asks", "asks modern"] {
        let server = asking(behaviour, json!({})).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        wire.model().push(call(json!({"params": form(), "how": "loop"})));
        wire.model().push(Reply::text("done"));
        let send = wire.ok("send", json!({"agent_id": "a", "content": "go"}));
        let respond = async {
            for _ in 0..10 {
                let id = waiting(&wire).await["approval_id"].clone();
                wire.ok("respond_approval", json!({"approval_id": id, "decision": "cancel"})).await;
            }
        };
        tokio::join!(send, respond);
        let told = last_told(&wire, "a").await;
        assert!(told.contains("asked more than 10 times within one call"), "{behaviour}: {told}");
    }
}

/// It may only want to be called again.
#[tokio::test]
async fn a_server_that_wants_nothing_is_called_again() {
    let server = asking("asks modern", json!({})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let told = tool(&wire, "a", "elicit", json!({"how": "state"})).await;
    assert_eq!(told, r#"{"state":"so far","said":null}"#);
}

/// The question goes with the call, the server, or its own withdrawal.
#[tokio::test]
async fn a_question_that_nobody_waits_for_is_withdrawn() {
    let server = asking("asks", json!({})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let told = tool(&wire, "a", "elicit", json!({"params": form(), "how": "die"})).await;
    assert!(told.contains("ended during the call"), "{told}");
    let told = tool(&wire, "a", "elicit", json!({"params": form(), "how": "go on"})).await;
    assert_eq!(told, "gone on");
    assert_eq!(wire.ok("list_approvals", json!({})).await["approvals"], json!([]));
    user(&wire, "b").await;
    for withdraws in [true, false] {
        wire.model().push(call(json!({"params": form()})));
        let send = wire.call("send", json!({"agent_id": "a", "content": "go", "request_id": "r"}));
        let end = async {
            let id = waiting(&wire).await["approval_id"].clone();
            if withdraws {
                let told = tool(&wire, "b", "echo", json!({"text": "withdraw"})).await;
                assert_eq!(told, "withdrawn");
                eventually("the end", async || is_cancelled(&wire, &id).await).await;
            }
            wire.ok("cancel", json!({"agent_id": "a", "request_id": "r"})).await;
            eventually("the end", async || is_cancelled(&wire, &id).await).await;
        };
        let (sent, ()) = tokio::join!(send, end);
        assert_eq!(sent.unwrap()["cancelled"], true);
    }
    assert_eq!(status(&wire, "a").await["restarts"], 1);
}

async fn is_cancelled(wire: &Wire, id: &Value) -> bool {
    let all = wire.ok("list_approvals", json!({"include_decided": true})).await;
    let found = all["approvals"].as_array().unwrap().iter().find(|it| it["approval_id"] == *id);
    found.unwrap()["status"] == "cancelled"
}

/// One process serves many agents, and a question of the older era does not say for whom it is.
#[tokio::test]
async fn a_question_is_not_put_to_the_people_of_another_agent() {
    let server = asking("asks", json!({})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    user(&wire, "b").await;
    wire.model().push(Reply::tool_call("mcp_s_hang", json!({})));
    let params = json!({"agent_id": "b", "content": "go", "request_id": "r"});
    let hangs = wire.call("send", params);
    let ask = async {
        eventually("the call", async || status(&wire, "a").await["in_flight"] == 1).await;
        let told = tool(&wire, "a", "elicit", json!({"params": form()})).await;
        assert!(told.contains("calls of several agents are under way"), "{told}");
        wire.ok("cancel", json!({"agent_id": "b", "request_id": "r"})).await;
    };
    tokio::join!(hangs, ask).0.unwrap();
    let answer = json!({"decision": "accept", "content": {"name": "Ada"}});
    assert!(asked(&wire, "a", json!({"params": form()}), answer).await.contains("Ada"));
}

/// What a person says to a server is the server's: nothing of it is written down.
#[tokio::test]
async fn what_was_entered_is_kept_nowhere() {
    let server = asking("asks", json!({})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let answer = json!({"decision": "accept", "content": {"name": "xyzzy-plugh"}});
    let told = asked(&wire, "a", json!({"params": form(), "how": "secret"}), answer).await;
    assert_eq!(told, "thanks");
    let home = server.world.home();
    let mut server = server;
    server.terminate().await;
    let mut looked = 0;
    let mut dirs = vec![home];
    while let Some(dir) = dirs.pop() {
        for found in fs::read_dir(dir).unwrap() {
            let path = found.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if let Ok(bytes) = fs::read(&path) {
                looked += 1;
                let found = bytes.windows(11).any(|it| it == b"xyzzy-plugh");
                assert!(!found, "{}", path.display());
            }
        }
    }
    assert!(looked > 2, "{looked}");
}

/// After `kill -9` nobody waits for the answer.
#[tokio::test]
async fn a_question_ends_with_the_process_that_asked() {
    let server = asking("asks", json!({})).start().await;
    let wire = server.wire();
    wire.model().push(call(json!({"params": form()})));
    let own = json!({"agent_id": "b", "mcp": {"s": ["*"]}, "initial_message": "go"});
    wire.ok("create_agent", own).await;
    let id = waiting(&wire).await["approval_id"].clone();
    let server = server.restart().await;
    let wire = server.wire();
    let all = wire.ok("list_approvals", json!({"include_decided": true})).await;
    let found = &all["approvals"][0];
    assert_eq!((&found["approval_id"], &found["status"]), (&id, &json!("denied_by_restart")));
    assert_eq!(
        (&found["kind"], &found["message"]),
        (&json!("elicitation"), &json!("Who are you?"))
    );
    let answer = json!({"approval_id": id, "decision": "accept", "content": {"name": "Ada"}});
    assert!(wire.refused("respond_approval", answer).await.message.contains("decided already"));
}

/// A server works on 32 calls at once. One that waits for a person is none of them.
#[tokio::test]
async fn those_who_wait_for_people_are_in_nobodys_way() {
    let setup = asking("asks modern", json!({})).server(json!({"max_concurrent": 64}));
    let server = setup.start().await;
    let wire = server.wire();
    for number in 0..33 {
        wire.model().push(call(json!({"params": form()})));
        let own =
            json!({"agent_id": format!("a{number}"), "mcp": {"s": ["*"]}, "initial_message": "go"});
        wire.ok("create_agent", own).await;
    }
    let waiting = async || wire.ok("list_approvals", json!({})).await["approvals"].clone();
    eventually("33 questions", async || waiting().await.as_array().unwrap().len() == 33).await;
    user(&wire, "b").await;
    assert_eq!(tool(&wire, "b", "echo", json!({"text": "x"})).await, "echo: x");
    for approval in waiting().await.as_array().unwrap() {
        wire.model().push(Reply::text("done"));
        let id = &approval["approval_id"];
        let content = json!({"name": approval["agent_id"]});
        let answer = json!({"approval_id": id, "decision": "accept", "content": content});
        wire.ok("respond_approval", answer).await;
    }
    for number in 0..33 {
        let name = format!("a{number}");
        eventually("its answer", async || history(&wire, &name).await.len() == 4).await;
        assert!(last_told(&wire, &name).await.contains(&format!("{name:?}")), "{name}");
    }
}
