//! HTTP: what is served where, and with which status.

mod connections;
mod limits;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Setup};

const VERSION: &str = r#"{"jsonrpc":"2.0","method":"rpc.version","id":1}"#;

#[tokio::test]
async fn the_root_and_rpc_are_the_server_and_agents_have_a_path() {
    let server = Server::start().await;
    for path in ["/", "/rpc"] {
        let response = server.ask(server.post(VERSION).path(path)).await;
        assert_eq!(
            (response.status, &response.answer()["result"]["name"]),
            (200, &json!("nexus3"))
        );
    }
    let created = server.wire().ok("create_agent", json!({"agent_id": "a.b-c_1"})).await;
    assert_eq!(created["url"], "/agent/a.b-c_1");

    let at_agent =
        |method: &str, params| server.post(request(1, method, params)).path("/agent/a.b-c_1");
    let response = server.ask(at_agent("get_messages", json!({}))).await;
    assert_eq!(
        (response.status, &response.answer()["result"]["agent_id"]),
        (200, &json!("a.b-c_1"))
    );
    // A method of the server is none of an agent.
    for method in ["create_agent", "list_agents", "destroy_agent", "shutdown_server", "rpc.version"]
    {
        let response = server.ask(at_agent(method, json!({}))).await;
        assert_eq!(response.refusal(), (200, -32601), "{method}");
    }
}

#[tokio::test]
async fn at_the_root_agent_methods_go_to_the_agent_named_or_to_main() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "named"})).await;
    let named = wire.ok("get_messages", json!({"agent_id": "named"})).await;
    assert_eq!(named["agent_id"], "named");
    for params in [json!({}), json!({"agent_id": null}), json!({"agent_id": "main"})] {
        assert_eq!(wire.ok("get_messages", params).await["agent_id"], "main");
    }
}

#[tokio::test]
async fn other_paths_and_agents_are_not_found() {
    let server = Server::start().await;
    for path in ["/nothing", "/rpc/", "//", "/agent", "/agents/a", "/favicon.ico"] {
        assert_eq!(
            server.ask(server.post(VERSION).path(path)).await.refusal(),
            (404, -32600),
            "{path}"
        );
    }
    for path in ["/agent/nobody", "/agent/", "/agent/.9", "/agent/..", "/agent/a%20b", "/agent/a/b"]
    {
        let request = server.post(request(1, "get_context", json!({}))).path(path);
        assert_eq!(server.ask(request).await.refusal(), (404, -32602), "{path}");
    }
    server.wire().ok("create_agent", json!({"agent_id": "a"})).await;
    server.wire().ok("destroy_agent", json!({"agent_id": "a"})).await;
    let gone = server.post(request(1, "get_context", json!({}))).path("/agent/a");
    assert_eq!(server.ask(gone).await.refusal(), (404, -32602));
}

#[tokio::test]
async fn other_verbs_are_refused_before_the_token_is_asked_for() {
    let server = Server::start().await;
    for path in ["/", "/rpc", "/agent/main"] {
        for verb in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
            let request = server.post("").path(path).verb(verb).bearer(None);
            let response = server.ask(request).await;
            assert_eq!(response.refusal(), (405, -32600), "{verb} {path}");
            assert_eq!(response.header("allow"), Some("POST"), "{verb} {path}");
        }
    }
    let mut connection = server.http().await;
    connection.write(&server.post("").verb("HEAD").bytes()).await;
    let head = connection.head().await.unwrap();
    assert_eq!((head.status, head.header("allow")), (405, Some("POST")));
    // Where there is nothing, no verb is right.
    assert_eq!(server.ask(server.post("").path("/nothing").verb("GET")).await.status, 404);
}

#[tokio::test]
async fn a_method_that_answered_is_a_200_even_with_an_error() {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    server.model().set_default(Reply::status(500));
    for (method, params, code) in [
        ("nope", json!({}), -32601),
        ("send", json!({}), -32602),
        ("send", json!([1]), -32602),
        ("get_context", json!({"agent_id": "nobody"}), -32602),
        ("send", json!({"content": "the model fails"}), -32603),
    ] {
        let response = server.ask(server.post(request(1, method, params))).await;
        assert_eq!(response.refusal(), (200, code), "{method}");
    }
    let batch = r#"[1,{"jsonrpc":"2.0","method":"nope","id":1}]"#;
    assert_eq!(server.ask(server.post(batch)).await.status, 200);
}

#[tokio::test]
async fn a_notification_is_a_202_without_a_body() {
    let server = Server::start().await;
    let notification = r#"{"jsonrpc":"2.0","method":"get_context"}"#;
    for (body, path) in [
        (notification.to_string(), "/"),
        (r#"{"jsonrpc":"2.0","method":"nope","id":null}"#.into(), "/"),
        (format!("[{notification},{notification}]"), "/"),
        (notification.into(), "/agent/main"),
        // Never answered, not even with an error.
        (notification.into(), "/agent/nobody"),
    ] {
        for accept in ["application/json", "text/event-stream"] {
            let request = server.post(body.clone()).path(path).header("Accept", accept);
            let response = server.ask(request).await;
            assert_eq!(
                (response.status, &*response.body),
                (202, &b""[..]),
                "{body} {path} {accept}"
            );
        }
    }
}

#[tokio::test]
async fn what_is_no_request_is_a_400() {
    let server = Server::start().await;
    for (body, code) in [
        (&b""[..], -32700),
        (b"   ", -32700),
        (b"nope", -32700),
        (b"\xff", -32700),
        (b"{}", -32600),
        (b"[]", -32600),
        (br#"{"jsonrpc":"1.0","method":"m","id":1}"#, -32600),
    ] {
        let response = server.ask(server.post(body)).await;
        assert_eq!(response.refusal(), (400, code), "{}", String::from_utf8_lossy(body));
        assert_eq!(response.answer()["id"], Value::Null);
    }
}

#[tokio::test]
async fn a_limit_of_the_provider_is_a_429_that_says_when_to_come_back() {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    server.model().push(Reply::status(429).retry_after("7"));
    let response = server.ask(server.post(request(1, "send", json!({"content": "x"})))).await;
    assert_eq!(response.refusal(), (429, -32002));
    assert_eq!(response.header("retry-after"), Some("7"));
}

#[tokio::test]
async fn an_overload_is_a_503_and_a_missing_provider_is_not() {
    let setup = Setup::new().server(json!({"max_concurrent": 1, "max_queued": 0}));
    let server = setup.start().await;
    server.model().set_default(Reply::hang());
    let mut busy = server.http().await;
    busy.write(&server.post(request(1, "send", json!({"content": "x"}))).bytes()).await;
    server.model().wait_for_requests(1).await;
    server.wire().ok("create_agent", json!({"agent_id": "a"})).await;
    let send = request(1, "send", json!({"agent_id": "a", "content": "x"}));
    assert_eq!(server.ask(server.post(send.clone())).await.refusal(), (503, -32001));

    let server = Setup::new().unconfigured().start().await;
    let send = request(1, "send", json!({"content": "x"}));
    assert_eq!(server.ask(server.post(send)).await.refusal(), (200, -32001));
}

#[tokio::test]
async fn a_web_page_is_refused() {
    let server = Server::start().await;
    let port = server.address.port();
    for origin in ["http://evil.example", "null", "http://localhost:3000", &server.url] {
        let response = server.ask(server.post(VERSION).header("Origin", origin)).await;
        assert_eq!(response.refusal(), (403, -32600), "{origin}");
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "10.0.0.1",
        "0.0.0.0",
        "",
    ] {
        let response = server.ask(server.post(VERSION).header("Host", host)).await;
        assert_eq!(response.refusal(), (403, -32600), "{host}");
    }
    assert_eq!(server.ask(server.post(VERSION).without("Host")).await.status, 403);
    let preflight = server.post("").verb("OPTIONS").header("Origin", "http://evil.example");
    for request in [preflight, server.post(VERSION)] {
        let mut connection = server.http().await;
        connection.write(&request.bytes()).await;
        let head = connection.head().await.unwrap();
        assert!(!head.names().any(|name| name.starts_with("access-control")), "{head:?}");
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.2:80", "[::1]", "[::1]:8080"] {
        let request = server.post(VERSION).header("Host", host);
        assert_eq!(server.ask(request).await.status, 200, "{host}");
    }
    assert_eq!(
        server.ask(server.post(VERSION).header("Host", format!("localhost:{port}"))).await.status,
        200
    );
}
