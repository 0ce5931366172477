//! What is told apart, each on a port of its own.

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;
use crate::testing::{FORBIDDEN_BODY, FakeServer, Reply};

/// Long enough for a loaded machine; only a failing test waits for it.
const LONG: Duration = Duration::from_secs(20);

async fn check(reply: fn() -> Reply, expected: Detection) {
    let server = FakeServer::start(move |_| reply()).await;
    let address = server.address;
    assert_eq!(detect_server("127.0.0.1", address.port(), LONG).await, expected);
    let seen = server.seen();
    assert_eq!((seen[0].path.as_str(), &seen[0].body["method"]), ("/rpc", &json!("rpc.version")));
    assert_eq!(seen[0].headers[HOST], address.to_string());
    assert!(!seen[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn ours() {
    check(|| Reply::json(401, FORBIDDEN_BODY), Detection::NexusServer).await;
    check(|| Reply::error(429, -32002, json!({"type": "RATE_LIMITED"})), Detection::NexusServer)
        .await;
    check(Reply::version, Detection::NexusServer).await;
}

#[tokio::test]
async fn others_that_speak_http() {
    check(|| Reply::json(200, "<html>hello</html>"), Detection::OtherService).await;
    check(|| Reply::json(404, ""), Detection::OtherService).await;
    check(|| Reply::error(200, -32601, json!(null)), Detection::OtherService).await;
    check(|| Reply::result(json!({"ok": true})), Detection::OtherService).await;
    check(|| Reply::json(200, " ".repeat(BODY_BYTES_MAX + 1)), Detection::OtherService).await;
}

#[tokio::test]
async fn others_that_do_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let greet = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
    };
    let (detection, ()) = tokio::join!(detect_server("127.0.0.1", port, LONG), greet);
    assert_eq!(detection, Detection::OtherService);
    // Nobody accepts now, but the kernel still takes the connection.
    let detection = detect_server("127.0.0.1", port, Duration::from_millis(20)).await;
    assert_eq!(detection, Detection::Timeout);
    drop(listener);
    assert_eq!(detect_server("127.0.0.1", port, LONG).await, Detection::NoServer);
    assert_eq!(detect_server("no\0host", port, LONG).await, Detection::Error);
}

#[tokio::test]
async fn waiting_for_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // A stranger answers first; the waiting goes on until one of ours does.
    let greet = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
        FakeServer::start_on(listener, |_| Reply::json(401, FORBIDDEN_BODY))
    };
    let (found, server) = tokio::join!(wait_for_server("127.0.0.1", port, LONG), greet);
    assert!(found);
    drop(server);
    assert!(!wait_for_server("127.0.0.1", port, Duration::from_millis(20)).await);
}

#[test]
fn authorities() {
    assert_eq!(authority("127.0.0.1", 1), "127.0.0.1:1");
    assert_eq!(authority("::1", 1), "[::1]:1");
    assert_eq!(authority("[::1]", 1), "[::1]:1");
}
