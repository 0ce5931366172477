//! Frames as the client of the field sends them, by what is known of three of its versions: one that says nothing of itself,
//! one that says for whom it asks, and one that brings a token and more with every call, of any method.

use serde_json::{Value, json};

use super::add;
use super::identity::{forged, token};
use crate::harness::{Server, Setup};

/// Each call comes on a connection of its own, as the client makes it, and is read from there.
async fn sent(server: &Server, frame: &str) -> Value {
    let mut connection = server.unix().await;
    connection.send(frame.as_bytes()).await;
    let answer = connection.message().await;
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(1)), "{answer}");
    connection.end_input().await;
    answer
}

async fn result(server: &Server, frame: &str) -> Value {
    let answer = sent(server, frame).await;
    assert!(answer["error"].is_null(), "{frame}: {answer}");
    answer["result"].clone()
}

/// What the client prints of an answer: it takes the members without asking whether they are there.
fn check_found(found: &Value, content: &str) {
    let [one] = &found.as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!(one["content"], content);
    assert!(one["similarity"].is_f64() && one["id"].as_str().unwrap().len() >= 8, "{one}");
    assert!(one["source"].is_string() && one["created_at"].is_string(), "{one}");
}

fn check_listed(listed: &Value, content: &str) {
    let [one] = &listed.as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!(one["content"], content);
    assert!(one["id"].as_str().unwrap().len() >= 8 && one["source"].is_string(), "{one}");
    assert!(one["created_at"].is_string() && one.get("expires_at").is_some(), "{one}");
}

#[tokio::test]
async fn one_that_says_nothing_of_itself_is_served() {
    let server = Server::start().await;
    let added = result(&server, r#"{"jsonrpc": "2.0", "method": "memory.add", "params": {"content": "caf\u00e9 at eight", "source": "agent"}, "id": 1}"#).await;
    assert_eq!((&added["content"], &added["source"]), (&json!("café at eight"), &json!("agent")));
    let found = result(&server, r#"{"jsonrpc": "2.0", "method": "memory.search", "params": {"query": "caf\u00e9", "limit": 5}, "id": 1}"#).await;
    check_found(&found, "café at eight");
    let listed = result(&server, r#"{"jsonrpc": "2.0", "method": "memory.list", "params": {"limit": 20, "include_expired": false}, "id": 1}"#).await;
    check_listed(&listed, "café at eight");
    let id = added["id"].as_str().unwrap();
    let frame = format!(
        r#"{{"jsonrpc": "2.0", "method": "memory.delete", "params": {{"memory_id": "{id}"}}, "id": 1}}"#
    );
    assert_eq!(result(&server, &frame).await, json!({"deleted": true}));
    assert_eq!(result(&server, &frame).await, json!({"deleted": false}));
    // Without parameters it leaves the member out.
    assert_eq!(
        result(&server, r#"{"jsonrpc": "2.0", "method": "memory.list", "id": 1}"#).await,
        json!([])
    );
    let unknown =
        sent(&server, r#"{"jsonrpc": "2.0", "method": "memory.forget", "params": {}, "id": 1}"#)
            .await;
    assert_eq!(unknown["error"]["code"], -32601);
}

#[tokio::test]
async fn one_that_says_for_whom_it_asks_is_served() {
    let server = Server::start().await;
    let added = result(&server, r#"{"jsonrpc": "2.0", "method": "memory.add", "params": {"content": "Ann is allergic to nuts", "source": "agent", "expires_days": 30, "user_id": "ann", "chat_id": "-1001", "subjects": ["Ann"], "shared": false}, "id": 1}"#).await;
    assert_eq!((&added["shared"], &added["subjects"]), (&json!(false), &json!(["Ann"])));
    // What its environment does not name is null, or nothing.
    let shared = result(&server, r#"{"jsonrpc": "2.0", "method": "memory.add", "params": {"content": "we meet on Monday", "source": "agent", "expires_days": null, "user_id": "", "chat_id": "-1001", "subjects": null, "shared": true}, "id": 1}"#).await;
    assert_eq!(shared["shared"], true);
    let found = result(&server, r#"{"jsonrpc": "2.0", "method": "memory.search", "params": {"query": "nuts", "limit": 10, "user_id": "ann", "chat_id": null}, "id": 1}"#).await;
    check_found(&found, "Ann is allergic to nuts");
    let listed = result(&server, r#"{"jsonrpc": "2.0", "method": "memory.list", "params": {"limit": 20, "include_expired": true, "user_id": null, "chat_id": "-1001"}, "id": 1}"#).await;
    check_listed(&listed, "we meet on Monday");
    let id = &added["id"].as_str().unwrap()[..8];
    let delete = |user: &str| {
        format!(
            r#"{{"jsonrpc": "2.0", "method": "memory.delete", "params": {{"memory_id": "{id}", "user_id": {user}, "chat_id": "-1001"}}, "id": 1}}"#
        )
    };
    assert_eq!(result(&server, &delete("null")).await["deleted"], false);
    assert_eq!(result(&server, &delete(r#""bob""#)).await["deleted"], false);
    assert_eq!(result(&server, &delete(r#""ann""#)).await["deleted"], true);
}

#[tokio::test]
async fn one_that_brings_a_token_with_every_call_is_served() {
    let server = Setup::new().env("ASH_CONTEXT_TOKEN_SECRET", "a secret of the host").start().await;
    add(&server.wire(), json!({"content": "nuts of bob", "user_id": "bob"})).await;
    let frame = |method: &str, params: &str, token: &str| {
        // Beside the token it says where it is, and what was said there.
        format!(
            r#"{{"jsonrpc": "2.0", "method": "{method}", "params": {{{params}"context_token": "{token}", "provider": "telegram", "thread_id": null, "this_chat": false, "session_id": "s-1", "messages": [{{"role": "user", "content": "hi"}}]}}, "id": 1}}"#
        )
    };
    let own = token("ann", Some("-1001"), 60);
    let add_own = frame(
        "memory.add",
        r#""content": "nuts of ann", "source": "agent", "shared": false, "subjects": [], "#,
        &own,
    );
    assert_eq!(result(&server, &add_own).await["shared"], false);
    // What it says beside the token does not count.
    let search =
        frame("memory.search", r#""query": "nuts", "limit": 10, "user_id": "bob", "#, &own);
    check_found(&result(&server, &search).await, "nuts of ann");
    let listed = result(&server, &frame("memory.list", r#""limit": 20, "#, &own)).await;
    check_listed(&listed, "nuts of ann");
    for wrong in [forged("ann"), token("ann", None, -1)] {
        let refused = sent(&server, &frame("memory.list", "", &wrong)).await;
        assert_eq!(refused["error"]["code"], -32003, "{refused}");
    }
    let id = listed[0]["id"].as_str().unwrap();
    let delete = frame("memory.delete", &format!(r#""memory_id": "{id}", "#), &own);
    assert_eq!(result(&server, &delete).await, json!({"deleted": true}));
    // Methods that have nothing to do with it get it too.
    let other = format!(
        r#"{{"jsonrpc": "2.0", "method": "rpc.version", "params": {{"context_token": "{own}"}}, "id": 1}}"#
    );
    assert_eq!(result(&server, &other).await["name"], "nexus3");
}
