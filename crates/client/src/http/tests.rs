//! What goes over the wire, what comes of the answers, and who gets the token.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;

use nexus_protocol::agent::CreateAgentParams;
use nexus_protocol::once::IdempotencyKey;
use nexus_protocol::params::NonBlank;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::StreamItem;
use crate::testing::{FORBIDDEN_BODY, FakeServer, Reply};

fn client(server: &FakeServer) -> NexusClient {
    NexusClient::builder().url(server.url()).token("nxk_test").build().unwrap()
}

fn send_result() -> Value {
    json!({"content": "hi", "request_id": "r1", "halted_at_iteration_limit": false,
        "stop_reason": "end_turn", "cost_usd": null, "model": "m", "steps": 1, "usage": {"input": 1, "cache_read": 0, "cache_write": 0, "output": 1, "reasoning": 0}})
}

#[tokio::test]
async fn a_call_is_a_post_with_the_token() {
    let server = FakeServer::replying([
        Reply::result(json!({"agents": []})),
        Reply::result(json!({"agent_id": "a", "url": "/agent/a"})),
        Reply::result(send_result()),
    ])
    .await;
    let client = NexusClient::builder().url(server.url()).token("nxk_test").agent_identity("boss");
    let client = client.build().unwrap();
    assert!(client.list_agents().await.unwrap().agents.is_empty());
    let params = CreateAgentParams { agent_id: Some("a".into()), ..Default::default() };
    assert_eq!(client.create_agent(params).await.unwrap().url, "/agent/a");
    assert_eq!(client.for_agent("a").send("hello").await.unwrap().content, "hi");

    let seen = server.seen();
    let paths: Vec<_> = seen.iter().map(|seen| seen.path.as_str()).collect();
    assert_eq!(paths, ["/rpc", "/rpc", "/agent/a"]);
    assert_eq!(
        seen[2].body,
        json!({"jsonrpc": "2.0", "method": "send", "params": {"content": "hello"}, "id": 3})
    );
    for seen in seen {
        assert_eq!(seen.headers["authorization"], "Bearer nxk_test");
        assert_eq!(seen.headers["x-nexus-agent"], "boss");
        assert_eq!(seen.connection, 0, "a second connection was opened");
    }
}

#[tokio::test]
async fn an_agents_name_stays_one_segment_of_the_path() {
    let server = FakeServer::start(|_| Reply::result(send_result())).await;
    client(&server).for_agent("../rpc?x ü").send("x").await.unwrap();
    assert_eq!(server.seen()[0].path, "/agent/..%2Frpc%3Fx%20%C3%BC");
}

#[tokio::test]
async fn a_method_known_by_name_only() {
    let server = FakeServer::start(|seen| Reply::result(seen.body["params"].clone())).await;
    let target = Target::Agent("a".into());
    let got = client(&server).call_value(&target, "any.method", &json!({"x": [1]})).await.unwrap();
    assert_eq!(got, json!({"x": [1]}));
    assert_eq!(server.seen()[0].body["method"], "any.method");
}

/// What becomes of a `list_agents` that is answered with `reply`.
async fn check_error(reply: Reply, expected: &str) {
    let server = FakeServer::replying([reply]).await;
    let error = client(&server).list_agents().await.unwrap_err();
    assert!(format!("{error:?}").starts_with(expected), "{error:?}");
}

#[tokio::test]
async fn errors() {
    check_error(Reply::error(200, -32602, json!({})), "Rpc(RpcError { code: -32602").await;
    check_error(Reply::json(401, FORBIDDEN_BODY), "Rpc(RpcError { code: -32003").await;
    check_error(Reply::json(502, "<html>"), "Answer(").await;
    check_error(Reply::json(202, ""), "Answer(\"HTTP 202 Accepted without a body\")").await;
    check_error(Reply::result(json!({"agents": 1})), "Answer(\"the result is unexpected").await;
}

/// A server that was started anew has another token, in the same file.
#[tokio::test]
async fn a_token_that_is_refused_is_looked_for_again() {
    let server = FakeServer::start(|seen| match seen.headers.get("authorization") {
        Some(token) if token == "Bearer nxk_second" => Reply::result(json!({"agents": []})),
        _ => Reply::json(403, FORBIDDEN_BODY),
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let write = |token: &str| {
        let path = home.path().join(token::file_name(server.address.port()));
        std::fs::write(&path, token).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let with = |api_key: Option<&str>| {
        let api_key = api_key.map(OsString::from);
        let environment = Environment { api_key, home: Some(home.path().into()) };
        NexusClient::builder().url(server.url()).environment(environment).build().unwrap()
    };
    write("nxk_first");
    let (found, given) = (with(None), with(Some("nxk_first")));
    assert!(found.list_agents().await.is_err());
    assert_eq!(server.seen().len(), 1, "the same one is not sent twice");
    write("nxk_second");
    assert!(found.list_agents().await.is_ok());
    assert!(found.list_agents().await.is_ok());
    assert_eq!(server.seen().len(), 3, "it is kept");
    assert!(given.list_agents().await.is_err(), "somebody meant that one");
}

#[tokio::test]
async fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = NexusClient::builder().url(url).without_token().build().unwrap();
    let error = client.list_agents().await.unwrap_err();
    assert_eq!(error.to_string(), "no connection: Connection refused (os error 111)");
}

#[tokio::test]
async fn a_server_that_hangs_up_is_not_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = NexusClient::builder().url(url).without_token().build().unwrap();
    let hang_up = async {
        let (stream, _) = listener.accept().await.unwrap();
        stream.readable().await.unwrap();
        drop((stream, listener));
    };
    let (result, ()) = tokio::join!(client.list_agents(), hang_up);
    assert!(matches!(result, Err(CallError::Transport(_))), "{result:?}");
}

/// The first connection is closed on the call, the second answers it.
#[tokio::test]
async fn with_a_key_a_server_that_hangs_up_is_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = NexusClient::builder().url(url).without_token().build().unwrap();
    let params = CreateAgentParams {
        idempotency_key: Some(IdempotencyKey::new("k").unwrap()),
        ..Default::default()
    };
    let serve = async {
        let (stream, _) = listener.accept().await.unwrap();
        stream.readable().await.unwrap();
        drop(stream);
        let made = json!({"agent_id": "a", "url": "/agent/a"});
        FakeServer::start_on(listener, move |_| Reply::result(made.clone()))
    };
    let (made, server) = tokio::join!(client.create_agent(params), serve);
    assert_eq!(made.unwrap().agent_id, "a");
    let seen = server.seen();
    assert_eq!((seen.len(), &seen[0].body["params"]["idempotency_key"]), (1, &json!("k")));
}

#[tokio::test]
async fn a_call_that_was_turned_away_is_made_again() {
    let server = FakeServer::replying([
        Reply::error(503, -32001, json!({"retry_after_ms": 1})),
        Reply::error(429, -32002, json!({"retry_after_ms": 1, "scope": "server"})),
        Reply::result(json!({"agents": []})),
    ])
    .await;
    client(&server).list_agents().await.unwrap();
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn no_answer_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let timeout = Duration::from_millis(20);
    let client = NexusClient::builder().url(url).without_token().timeout(timeout).build().unwrap();
    let error = client.list_agents().await.unwrap_err();
    assert_eq!(error.to_string(), "no answer within 20ms");
}

/// The items of a stream, one line each.
async fn items(reply: Reply) -> Vec<String> {
    let server = FakeServer::replying([reply]).await;
    let params = SendParams::new(NonBlank::new("hello").unwrap());
    let mut lines = Vec::new();
    match client(&server).send_stream("a", params).await {
        Err(error) => lines.push(format!("not opened: {error}")),
        Ok(mut stream) => {
            while let Some(item) = stream.next().await {
                lines.push(match item {
                    Ok(StreamItem::Start { stream_id }) => format!("start {stream_id}"),
                    Ok(StreamItem::Text(text)) => format!("text {text:?}"),
                    Ok(StreamItem::Event(event)) => serde_json::to_string(&event).unwrap(),
                    Ok(StreamItem::Unknown(raw)) => format!("unknown {raw}"),
                    Ok(StreamItem::End { total_chunks }) => format!("end {total_chunks}"),
                    Ok(StreamItem::Done(result)) => format!("done {}", result.content),
                    Err(error) => format!("error {error}"),
                });
            }
        }
    }
    let seen = server.seen();
    assert_eq!(seen[0].headers["accept"], "text/event-stream");
    assert_eq!(seen[0].body["params"], json!({"content": "hello", "stream": true}));
    lines
}

#[tokio::test]
async fn a_stream_has_its_items_in_order() {
    let reply = Reply::events(&[
        r#"{"jsonrpc":"2.0","method":"stream_start","params":{"stream_id":"s","task_id":1}}"#,
        r#"{"jsonrpc":"2.0","method":"stream_data","params":{"stream_id":"s","chunk":"a\n\"b\"","sequence":1}}"#,
        r#"{"jsonrpc":"2.0","method":"stream_event","params":{"stream_id":"s","event":{"type":"tool_result","id":"t","content":"x"}}}"#,
        r#"{"jsonrpc":"2.0","method":"stream_event","params":{"stream_id":"s","event":{"type":"new"}}}"#,
        r#"{"jsonrpc":"2.0","method":"stream_end","params":{"stream_id":"s","total_chunks":1}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":"whole","request_id":7,"halted_at_iteration_limit":false,"stop_reason":"end_turn","cost_usd":null,"model":"m","steps":1,"usage":{"input":1,"cache_read":0,"cache_write":0,"output":1,"reasoning":0}}}"#,
    ]);
    let expected = [
        "start s",
        r#"text "a\n\"b\"""#,
        r#"{"type":"tool_result","id":"t","content":"x"}"#,
        r#"unknown {"type":"new"}"#,
        "end 1",
        "done whole",
    ];
    assert_eq!(items(reply).await, expected);
}

#[tokio::test]
async fn streams_that_fail() {
    let cut = r#"{"jsonrpc":"2.0","method":"stream_data","params":{"stream_id":"s","chunk":"a","sequence":1}}"#;
    let lost = "error connection lost: the stream ended before the answer";
    assert_eq!(items(Reply::events(&[cut])).await, ["text \"a\"", lost]);
    let error =
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"Execution timeout"}}"#;
    assert_eq!(items(Reply::events(&[error])).await, ["error Execution timeout"]);
    assert_eq!(
        items(Reply::json(401, FORBIDDEN_BODY)).await,
        ["not opened: Authentication failed"]
    );
    assert_eq!(items(Reply::result(send_result())).await, ["done hi"]);
}

#[test]
fn a_found_token_is_for_this_machine_only() {
    let environment = Environment { api_key: Some(OsString::from("secret")), home: None };
    let check = |url: &str, expected: bool| {
        let client = NexusClient::builder().url(url).environment(environment.clone()).build();
        assert_eq!(client.unwrap().authorization().is_some(), expected, "{url}");
    };
    for url in
        ["http://127.0.0.1:8765", "http://localhost:1/", "http://LocalHost", "http://[::1]:9"]
    {
        check(url, true);
    }
    for url in [
        "http://example.com:8765",
        "http://10.0.0.1:8765",
        "http://127.0.0.1.example.com",
        "http://127.0.0.2:8765",
    ] {
        check(url, false);
    }
    let given = NexusClient::builder().url("http://example.com").token("secret").build().unwrap();
    assert!(given.authorization().is_some());
}

/// The other address of that name may be somebody else's.
#[test]
fn localhost_is_the_address_that_servers_have() {
    for (url, expected) in [
        ("http://localhost:8765/", "http://127.0.0.1:8765"),
        ("http://LOCALHOST", "http://127.0.0.1:80"),
        ("http://[::1]:9", "http://[::1]:9"),
        ("http://example.com:9", "http://example.com:9"),
    ] {
        assert_eq!(NexusClient::builder().url(url).build().unwrap().origin, expected);
    }
}

#[test]
fn options_that_cannot_be() {
    let check = |builder: Builder, expected: &str| {
        let error = builder.build().err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let url = |url: &str| NexusClient::builder().without_token().url(url);
    check(url("https://127.0.0.1:8765"), "it must start with http://");
    check(url("127.0.0.1:8765"), "it must start with http://");
    check(url("http://127.0.0.1:8765/agent/a"), "it must not have a path");
    check(url("http://u:p@127.0.0.1"), "it must not have a user");
    check(url("http://"), "not the URL of a server");
    check(NexusClient::builder().token("schlüssel"), "visible ASCII");
    check(url("http://localhost").agent_identity("a\nb"), "not the name of an agent");
}
