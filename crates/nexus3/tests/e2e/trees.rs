//! What an agent's token is worth against everybody else: the bounds of its tree, the places that are kept for the
//! administrator, and what it learns of agents that are not its own.

use futures_util::future::{join_all, select_all};
use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Response, Server, Setup};
use crate::support::{as_agent, create, names, say};

/// A server with these settings, and a trusted agent `own` with a token.
async fn with_token(keys: Value) -> (Server, String) {
    let server = Setup::new().server(keys).start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "own", "preset": "trusted"})).await;
    let made = wire.ok("create_agent_token", json!({"agent_id": "own"})).await;
    let token = made["token"].as_str().unwrap().to_string();
    (server, token)
}

async fn call(server: &Server, token: &str, method: &str, params: Value) -> Response {
    server.ask(server.post(request(1, method, params)).bearer(Some(token))).await
}

/// The code and the details of an error; zero for a call that went well.
fn refusal(response: &Response) -> (i64, String) {
    let error = &response.answer()["error"];
    let details = error["data"]["details"].as_str().unwrap_or_default();
    (error["code"].as_i64().unwrap_or(0), details.to_string())
}

#[tokio::test]
async fn what_an_agent_makes_is_bounded_and_the_refusal_names_the_bound() {
    let (server, token) = with_token(json!({"max_children": 3, "max_tree_agents": 5})).await;
    let make = async |name: &str| {
        refusal(&call(&server, &token, "create_agent", json!({"agent_id": name})).await)
    };
    for name in ["a", ".", "b"] {
        assert_eq!(make(name).await.0, 0, "{name}");
    }
    let (code, details) = make("c").await;
    assert!(code == -32001 && details.contains("server.max_children"), "{code} {details}");
    let clone = async |to: &str| {
        let params = json!({"src_session": "a", "dest_session": to});
        refusal(&call(&server, &token, "clone_session", params).await)
    };
    assert_eq!(clone("saved").await.0, 0);
    let (code, details) = clone("more").await;
    assert!(code == -32001 && details.contains("server.max_tree_agents"), "{code} {details}");
    // The administrator is not bound by either.
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "c", "parent_agent_id": "own"})).await;
    wire.ok("clone_session", json!({"src_session": "a", "dest_session": "more"})).await;
}

#[tokio::test]
async fn a_full_queue_of_agents_is_not_the_administrators() {
    let keys = json!({"max_concurrent": 2, "max_queued": 8, "max_tree_turns": 4});
    let (server, token) = with_token(keys).await;
    let wire = server.wire();
    create(&wire, "other").await;
    server.model().set_default(Reply::hang());
    let sends = (0..5).map(|n| {
        let params = json!({"agent_id": "own", "content": "x", "request_id": n});
        Box::pin(call(&server, &token, "send", params))
    });
    // One too many: it is the first that is answered.
    let (refused, place, mut waiting) = select_all(sends).await;
    let (code, details) = refusal(&refused);
    assert!(code == -32001 && details.contains("server.max_tree_turns"), "{code} {details}");
    server.model().wait_for_requests(1).await;
    server.model().set_default(Reply::text("Here."));
    assert_eq!(say(&wire, "other", "Are you there?").await, "Here.");
    // Otherwise one that waits would be answered when the one before it is cancelled.
    server.model().set_default(Reply::hang());
    // Nor does control wait.
    for n in (0..5).filter(|n| *n != place) {
        let cancelled = wire.ok("cancel", json!({"agent_id": "own", "request_id": n})).await;
        assert_eq!(cancelled["cancelled"], true, "{n}");
    }
    while let Some(send) = waiting.pop() {
        assert_eq!(send.await.answer()["result"]["cancelled"], true);
    }
}

/// As many as there are places at the provider.
#[tokio::test]
async fn whose_calls_never_end_leaves_the_provider_to_others() {
    let (server, token) = with_token(json!({})).await;
    let wire = server.wire();
    create(&wire, "other").await;
    server.model().set_default(Reply::hang());
    let mut sends = Vec::new();
    for number in 0..16 {
        let child = format!("c{number}");
        call(&server, &token, "create_agent", json!({"agent_id": child})).await;
        let params = json!({"agent_id": child, "content": "x"});
        let ask = server.post(request(1, "send", params)).bearer(Some(&token));
        sends.push(Box::pin(server.ask(ask)));
    }
    let mut sends = join_all(sends);
    let waited = server.model().wait_for_requests(14);
    tokio::select! {
        _ = &mut sends => panic!("an answer that never ends"),
        () = waited => {}
    }
    server.model().set_default(Reply::text("Here."));
    assert_eq!(say(&wire, "other", "Are you there?").await, "Here.");
}

/// Every method that takes the name of an agent or of a session, with that name.
fn methods(name: &str) -> Vec<(&'static str, Value)> {
    let mut methods = vec![
        ("destroy_agent", json!({"agent_id": name})),
        ("create_agent_token", json!({"agent_id": name})),
        ("create_agent", json!({"agent_id": "new", "parent_agent_id": name})),
        ("list_agents", json!({"after": name})),
        ("list_approvals", json!({"agent_id": name})),
        ("list_approvals", json!({"agent_id": name, "include_decided": true})),
        ("load_session", json!({"session_name": name})),
        ("load_session", json!({"session_name": name, "agent_id": "new"})),
        ("save_session", json!({"agent_id": name, "session_name": name})),
        ("save_session", json!({"agent_id": name, "session_name": "new"})),
        ("clone_session", json!({"src_session": name, "dest_session": "new"})),
        ("rename_session", json!({"old_name": name, "new_name": "new"})),
        ("delete_session", json!({"session_name": name})),
    ];
    methods.extend(of_agent().into_iter().map(|(method, mut params)| {
        params["agent_id"] = name.into();
        (method, params)
    }));
    methods
}

/// Every method that an agent's own path has.
fn of_agent() -> Vec<(&'static str, Value)> {
    vec![
        ("send", json!({"content": "x"})),
        ("cancel", json!({"request_id": 1})),
        ("resume_turn", json!({})),
        ("get_messages", json!({})),
        ("get_context", json!({})),
        ("get_tokens", json!({})),
        ("compact", json!({})),
        ("shutdown", json!({})),
        ("set_cwd", json!({"cwd": "/"})),
        ("get_system_prompt", json!({})),
        ("set_system_prompt", json!({"system_prompt": "x"})),
        ("get_model", json!({})),
        ("set_model", json!({"model": "x"})),
        ("get_permissions", json!({})),
        ("set_permissions", json!({"preset": "worker"})),
        ("explain_permission", json!({"tool": "nexus_send"})),
        ("no_such_method", json!({})),
    ]
}

#[tokio::test]
async fn an_agent_outside_the_line_looks_the_same_as_one_that_is_not_there() {
    let (server, token) = with_token(json!({})).await;
    let wire = server.wire();
    for name in ["stranger", ".other"] {
        create(&wire, name).await;
    }
    wire.ok("create_agent", json!({"agent_id": "deep", "parent_agent_id": null})).await;
    wire.ok("clone_session", json!({"src_session": "stranger", "dest_session": "saved"})).await;
    // What was answered, without the name.
    let seen = async |name: &str| {
        let mut answers = Vec::new();
        for (method, params) in methods(name) {
            let response = call(&server, &token, method, params).await;
            answers.push((method, response.status, response.answer().to_string()));
        }
        for (method, params) in of_agent() {
            let at_path = server.post(request(1, method, params)).path(format!("/agent/{name}"));
            let response = server.ask(at_path.bearer(Some(&token))).await;
            answers.push((method, response.status, response.answer().to_string()));
        }
        let named = |text: String| text.replace(name, "NAME");
        answers
            .into_iter()
            .map(|(method, status, text)| (method, status, named(text)))
            .collect::<Vec<_>>()
    };
    let nobody = seen("nobody").await;
    for name in ["stranger", "saved", "deep"] {
        assert_eq!(seen(name).await, nobody, "{name}");
    }
    assert_eq!(seen(".other").await, seen(".nobody").await);
    assert_eq!(names(&wire).await, ["own", "stranger", "deep", ".other"]);
    // Not even that somebody's approval waits.
    let answer = json!({"approval_id": "appr_1", "decision": "deny"});
    let unknown = as_agent(&server, "own", "respond_approval", answer).await.unwrap_err();
    assert_eq!(unknown.0, -32602);
}

#[tokio::test]
async fn a_token_ends_with_its_agents_name_and_does_not_come_back() {
    let (server, token) = with_token(json!({})).await;
    let wire = server.wire();
    let status = async || call(&server, &token, "rpc.version", json!({})).await.status;
    assert_eq!(status().await, 200);
    for (from, to) in [("own", "away"), ("away", "own")] {
        wire.ok("rename_session", json!({"old_name": from, "new_name": to})).await;
        assert_eq!(status().await, 403, "renamed to {to}");
    }
    wire.ok("save_session", json!({"agent_id": "own", "session_name": "own"})).await;
    wire.ok("destroy_agent", json!({"agent_id": "own"})).await;
    wire.ok("load_session", json!({"session_name": "own"})).await;
    assert_eq!(status().await, 403, "loaded again");
}

#[tokio::test]
async fn no_agent_stops_the_server() {
    let (mut server, token) = with_token(json!({})).await;
    for (method, params) in [("shutdown_server", json!({})), ("shutdown", json!({}))] {
        assert_eq!(refusal(&call(&server, &token, method, params).await).0, -32003, "{method}");
    }
    let marked = call(&server, &token, "shutdown", json!({"agent_id": "own"})).await;
    assert_eq!(marked.answer()["result"]["success"], true);
    // All are marked, and it is still there.
    let wire = server.wire();
    let own = wire.ok("list_agents", json!({})).await["agents"][0].take();
    assert_eq!((&own["agent_id"], &own["should_shutdown"]), (&json!("own"), &json!(true)));
    wire.ok("shutdown", json!({"agent_id": "own"})).await;
    assert!(server.exit().await.success(), "the administrator may");
}

#[tokio::test]
async fn what_agents_remember_is_bounded() {
    let (server, token) = with_token(json!({})).await;
    let add = async |content: String| {
        refusal(&call(&server, &token, "memory.add", json!({"content": content})).await)
    };
    let longest = |number: usize| {
        let number = number.to_string();
        format!("{number}{}", "x".repeat(65_536 - number.len()))
    };
    // 256 of the longest there are would have so many bytes; their sources and subjects come to that.
    for number in 0..255 {
        assert_eq!(add(longest(number)).await.0, 0);
    }
    let (code, details) = add(longest(255)).await;
    assert!(code == -32001 && details.contains("16777216 bytes"), "{code} {details}");
    // Others have room of their own, and the administrator all there is.
    let wire = server.wire();
    wire.ok("memory.add", json!({"content": "x", "user_id": "other"})).await;
    let own = json!({"content": "x", "user_id": "agent:own"});
    let own = wire.ok("memory.add", own).await;
    assert_eq!(add(longest(255)).await.0, -32001);
    let listed = wire.ok("memory.list", json!({"limit": 2, "user_id": "agent:own"})).await;
    assert_eq!(listed[0]["id"], own["id"]);
    let id = &listed[1]["id"];
    let deleted = call(&server, &token, "memory.delete", json!({"memory_id": id})).await;
    assert_eq!(deleted.answer()["result"]["deleted"], true);
    // The one that is gone made room for the longest there is, and the administrator's is one more.
    assert_eq!(add(longest(255)).await.0, 0);
}
