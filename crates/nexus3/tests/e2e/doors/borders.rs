//! Who gets to the door, and what it takes.

use serde_json::{Value, json};

use super::host::{Era, Host};
use crate::harness::{HttpRequest, Server, Setup};

fn ping(server: &Server) -> HttpRequest {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
        },
    });
    HttpRequest::post(server.address, "/mcp", body.to_string())
        .bearer(server.token.as_deref())
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
}

#[tokio::test]
async fn the_rules_of_the_port_hold_at_the_door() {
    let server = Server::start().await;
    assert_eq!(server.ask(ping(&server)).await.status, 200);
    let own = format!("http://{}", server.address);
    assert_eq!(server.ask(ping(&server).header("Origin", own)).await.status, 200);
    for (status, request) in [
        (401, ping(&server).without("Authorization")),
        (403, ping(&server).bearer(Some("nxk_wrong"))),
        (403, ping(&server).header("Origin", "https://evil.example")),
        (403, ping(&server).header("Origin", format!("https://{}", server.address))),
        (403, ping(&server).header("Origin", "null")),
        (403, ping(&server).header("Host", "evil.example")),
        (403, ping(&server).header("Host", "evil.example").header("Origin", "http://evil.example")),
        (415, ping(&server).header("Content-Encoding", "br")),
        (406, ping(&server).header("Accept", "text/html")),
        (405, ping(&server).verb("PUT")),
    ] {
        assert_eq!(server.ask(request).await.status, status);
    }
    // Origins of our own are let in here and nowhere else.
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#;
    let elsewhere = server.post(body).header("Origin", format!("http://{}", server.address));
    assert_eq!(server.ask(elsewhere).await.status, 403);
}

#[tokio::test]
async fn a_message_of_four_mebibytes_is_taken_and_a_larger_one_is_not() {
    let server = Server::start().await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    let of_length = |bytes: usize| {
        let mut message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "nexus_status", "arguments": {"agent_id": ""}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }},
        });
        let rest = bytes - message.to_string().len();
        message["params"]["arguments"]["agent_id"] = "x".repeat(rest).into();
        message
    };
    let most = 4 * 1024 * 1024;
    assert_eq!(host.post(&of_length(most)).await.status, 200);
    assert_eq!(host.post(&of_length(most + 1)).await.status, 413);
}

#[tokio::test]
async fn a_door_that_is_closed_is_not_there() {
    let server = Setup::new().config(json!({"doors": {"mcp": false}})).start().await;
    let response = server.ask(ping(&server)).await;
    assert_eq!(response.status, 404);
}

#[tokio::test]
async fn there_are_so_many_sessions_and_they_are_their_callers() {
    let server = Server::start().await;
    let mut last = None;
    for _ in 0..256 {
        let response = server.ask(ping(&server)).await;
        assert_eq!(response.status, 200);
        last = response.header("mcp-session-id").map(str::to_owned);
    }
    let response = server.ask(ping(&server)).await;
    assert_eq!(response.status, 503);
    let said: Value = serde_json::from_slice(&response.body).unwrap();
    assert!(said["error"]["message"].as_str().unwrap().contains("256 sessions"), "{said}");
    let session = last.unwrap();
    let end = |token: Option<&str>| {
        let request = HttpRequest::post(server.address, "/mcp", "").verb("DELETE").bearer(token);
        request.header("Mcp-Session-Id", session.as_str())
    };
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "a"})).await;
    let token = wire.ok("create_agent_token", json!({"agent_id": "a"})).await["token"].clone();
    // Another caller has no such session, and so many of its own.
    let tools = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let others =
        ping(&server).bearer(token.as_str()).body(tools).header("Mcp-Session-Id", session.as_str());
    assert_eq!(server.ask(others).await.status, 404);
    assert_eq!(server.ask(ping(&server).bearer(token.as_str())).await.status, 200);
    assert_eq!(server.ask(end(server.token.as_deref())).await.status, 200);
    assert_eq!(server.ask(ping(&server)).await.status, 200);
}

/// An agent makes as many agents as it likes, each with a token of its own.
#[tokio::test]
async fn many_agents_of_a_tree_drive_no_host_out() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "root", "preset": "trusted"})).await;
    let token = async |agent: &str| {
        let made = wire.ok("create_agent_token", json!({"agent_id": agent})).await;
        made["token"].as_str().unwrap().to_owned()
    };
    let host = server.ask(ping(&server)).await;
    let session = host.header("mcp-session-id").unwrap().to_owned();
    for number in 0..256 {
        let child = format!("c{number}");
        wire.ok("create_agent", json!({"agent_id": child, "parent_agent_id": "root"})).await;
        let own = token(&child).await;
        assert_eq!(server.ask(ping(&server).bearer(Some(&own))).await.status, 200, "{child}");
    }
    let tools = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let asked = ping(&server).body(tools).header("Mcp-Session-Id", session);
    assert_eq!(server.ask(asked).await.status, 200, "the administrator's host is known");
    // One of them went for the host, and with it its session; then there are as many as there may be.
    let root = token("root").await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(server.ask(ping(&server).bearer(Some(&root))).await.status);
    }
    assert_eq!(statuses.last(), Some(&503), "{statuses:?}");
}

#[tokio::test]
async fn batches_and_broken_messages_are_refused() {
    let server = Server::start().await;
    for body in ["[]", "{", "[1]", "null", r#"{"jsonrpc":"1.0"}"#] {
        let status = server.ask(ping(&server).body(body)).await.status;
        assert!((400..500).contains(&status), "{body}: {status}");
    }
    assert_eq!(server.ask(ping(&server)).await.status, 200);
}

/// An agent that takes the name of the door's agent first would read what a host says.
#[tokio::test]
async fn an_agent_that_another_made_is_not_taken_for_the_doors_own() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "spy", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "door-mcp", "parent_agent_id": "spy"})).await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    let refused = host.tool("nexus_send", json!({"content": "a secret"})).await;
    assert_eq!(refused["isError"], json!(true), "{refused}");
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("one of spy's"), "{refused}");
    assert_eq!(wire.ok("get_messages", json!({"agent_id": "door-mcp"})).await["total"], 0);
}
