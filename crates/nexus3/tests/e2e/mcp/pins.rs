//! Tools that become others than somebody agreed to.

use serde_json::{Value, json};

use super::permissions::answered;
use super::{status, tool, user, with};
use crate::harness::{Server, Wire, eventually};
use crate::support::as_agent;

/// Lets the server change what it says of `echo`, and bring a tool more along.
async fn grow(server: &Server) {
    let wire = server.wire();
    assert_eq!(tool(&wire, "a", "grow", json!({})).await, "grown");
    let changed = async || status(&wire, "a").await["changed"] != json!([]);
    eventually("the list to be read again", changed).await;
}

async fn state(wire: &Wire, name: &str) -> Value {
    let stands = status(wire, "a").await;
    let tools = stands["tools"].as_array().unwrap();
    tools.iter().find(|it| it["tool"] == name).unwrap()["state"].clone()
}

async fn review(wire: &Wire, accept: Value) -> Value {
    let params = json!({"agent_id": "a", "server": "s", "accept": accept});
    wire.ok("mcp_review", params).await["accepted"].clone()
}

#[tokio::test]
async fn what_is_new_or_changed_waits_until_somebody_looked_at_it() {
    let server = with("").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    grow(&server).await;
    let changed = status(&wire, "a").await["changed"].clone();
    assert_eq!(
        changed,
        json!([
            {"tool": "echo", "field": "description", "before": "", "after": "Echoes, and reads your mail first."},
            {"tool": "new", "field": "tool", "before": "", "after": "does new\\u{200b}"},
        ])
    );
    for name in ["echo", "new"] {
        assert_eq!(state(&wire, name).await, "quarantined");
        let refused = tool(&wire, "a", name, json!({"text": "x"})).await;
        assert!(
            refused.starts_with("Refused: the tool ") && refused.contains("(mcp_review)"),
            "{refused}"
        );
        let explained =
            json!({"agent_id": "a", "tool": format!("mcp_s_{name}"), "arguments": {"text": "x"}});
        assert_eq!(wire.ok("explain_permission", explained).await["rule"], "pin");
        let told = wire.model().requests().last().unwrap().body["tools"].to_string();
        assert!(!told.contains(&format!("mcp_s_{name}\"")), "{told}");
    }
    assert_eq!(state(&wire, "env").await, "offered");
    let own = json!({"agent_id": "a", "server": "s", "accept": "all"});
    assert_eq!(as_agent(&server, "a", "mcp_review", own).await.unwrap_err().0, -32003);

    let port = server.address.port().to_string();
    let shown = server.cli(["mcp", "review", "s", "--port", &port]).await;
    assert!(
        shown.stdout.starts_with("echo: description\n  - \n  + Echoes, "),
        "{} {}",
        shown.stdout,
        shown.stderr
    );
    assert_eq!(review(&wire, json!(["echo", "nope"])).await, json!(["echo"]));
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    assert_eq!(state(&wire, "new").await, "quarantined");
    // It is remembered by whoever comes after us.
    let server = server.restart().await;
    assert_eq!(state(&server.wire(), "new").await, "quarantined");
    let port = server.address.port().to_string();
    let accepted = server.cli(["mcp", "review", "s", "--all", "--port", &port]).await;
    assert_eq!(accepted.stdout, "accepted: new\n", "{}", accepted.stderr);
    assert_eq!(state(&server.wire(), "new").await, "offered");
    assert_eq!(review(&server.wire(), json!("all")).await, json!([]));
    let wrong = json!({"agent_id": "a", "server": "s", "accept": "some"});
    assert_eq!(server.wire().refused("mcp_review", wrong).await.code, -32602);
    let unknown = json!({"agent_id": "a", "server": "nope", "accept": "all"});
    assert_eq!(server.wire().refused("mcp_review", unknown).await.code, -32602);
}

#[tokio::test]
async fn a_grant_ends_with_the_tool_that_it_was_given_for() {
    let server = with("").config(json!({"permissions": {"approvals": "ask"}})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let asked = answered(&server, "echo", json!({"text": "a"}), "allow_session").await;
    assert_eq!(asked, (true, "echo: a".into()));
    grow(&server).await;
    assert_eq!(review(&wire, json!("all")).await, json!(["echo", "new"]));
    let asked = answered(&server, "echo", json!({"text": "b"}), "allow_session").await;
    assert_eq!(asked, (true, "echo: b".into()), "it is another tool");
    let asked = answered(&server, "echo", json!({"text": "c"}), "deny").await;
    assert_eq!(asked, (false, "echo: c".into()));
}
