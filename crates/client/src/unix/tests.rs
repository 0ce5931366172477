//! Frames, connections and answers, against a socket that a test serves by hand.

use nexus_protocol::params::NonBlank;
use nexus_protocol::turn::{Send as SendMessage, SendParams};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::*;

fn socket() -> (TempDir, UnixListener, UnixClient) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rpc.sock");
    let listener = UnixListener::bind(&path).unwrap();
    (directory, listener, UnixClient::new(path))
}

/// Reads a frame as the oldest clients and servers do: header and body are there at once.
async fn read_frame(stream: &mut UnixStream) -> Value {
    let mut frame = vec![0; 4096];
    let length = stream.read(&mut frame).await.unwrap();
    let announced = u32::from_be_bytes(frame[..4].try_into().unwrap());
    assert_eq!(usize::try_from(announced).unwrap(), length - 4);
    serde_json::from_slice(&frame[4..length]).unwrap()
}

async fn write_frame(stream: &mut UnixStream, message: &Value) {
    let message = message.to_string();
    let header = u32::try_from(message.len()).unwrap().to_be_bytes();
    stream.write_all(&[&header, message.as_bytes()].concat()).await.unwrap();
}

fn answer_to(request: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

#[tokio::test]
async fn calls_share_a_connection_one_after_another() {
    let (_directory, listener, client) = socket();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_frame(&mut stream).await;
        assert_eq!(
            request,
            json!({"jsonrpc": "2.0", "method": "list_agents", "params": {}, "id": 1})
        );
        write_frame(&mut stream, &answer_to(&request, json!({"agents": []}))).await;
        let request = read_frame(&mut stream).await;
        assert_eq!(request["params"], json!({"content": "hello", "agent_id": "a"}));
        let result = json!({"content": "hi", "request_id": 1, "halted_at_iteration_limit": false,
            "stop_reason": "end_turn", "cost_usd": null, "model": "m", "steps": 1, "usage": {"input": 1, "cache_read": 0, "cache_write": 0, "output": 1, "reasoning": 0}});
        write_frame(&mut stream, &answer_to(&request, result)).await;
    };
    let call = async {
        assert!(client.list_agents().await.unwrap().agents.is_empty());
        assert_eq!(client.for_agent("a").send("hello").await.unwrap().content, "hi");
    };
    tokio::join!(serve, call);
}

#[tokio::test]
async fn calls_side_by_side_do_not_wait_for_each_other() {
    let (_directory, listener, client) = socket();
    let serve = async {
        let (mut first, _) = listener.accept().await.unwrap();
        let first_request = read_frame(&mut first).await;
        let (mut second, _) = listener.accept().await.unwrap();
        let second_request = read_frame(&mut second).await;
        write_frame(&mut second, &answer_to(&second_request, json!("second"))).await;
        write_frame(&mut first, &answer_to(&first_request, json!("first"))).await;
    };
    let call = |method| {
        let client = &client;
        async move { client.call_value(&Target::Server, method, &json!({})).await.unwrap() }
    };
    let ((), a, b) = tokio::join!(serve, call("a"), call("b"));
    assert_eq!((a, b), (json!("first"), json!("second")));
}

#[tokio::test]
async fn a_streams_notifications_are_passed_over() {
    let (_directory, listener, client) = socket();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_frame(&mut stream).await;
        let note = json!({"jsonrpc": "2.0", "method": "stream_data", "params": {"chunk": "h"}});
        write_frame(&mut stream, &note).await;
        let result = json!({"content": "hi", "request_id": "r", "halted_at_iteration_limit": false,
            "stop_reason": "end_turn", "cost_usd": null, "model": "m", "steps": 1, "usage": {"input": 1, "cache_read": 0, "cache_write": 0, "output": 1, "reasoning": 0}});
        write_frame(&mut stream, &answer_to(&request, result)).await;
    };
    let target = Target::Agent("a".into());
    let params = SendParams { stream: Some(true), ..SendParams::new(NonBlank::new("x").unwrap()) };
    let (result, ()) = tokio::join!(client.call::<SendMessage>(&target, params), serve);
    assert_eq!(result.unwrap().content, "hi");
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_is_replaced() {
    let (_directory, listener, client) = socket();
    for _ in 0..2 {
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = read_frame(&mut stream).await;
            write_frame(&mut stream, &answer_to(&request, json!({"agents": []}))).await;
        };
        let (result, ()) = tokio::join!(client.list_agents(), serve);
        result.unwrap();
        // The server's end is dropped; wait until that is known here.
        let idle = client.take_idle().unwrap();
        idle.get_ref().readable().await.unwrap();
        client.keep(idle);
    }
}

#[tokio::test]
async fn failures() {
    let (directory, listener, client) = socket();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_frame(&mut stream).await;
    };
    let (result, ()) = tokio::join!(client.list_agents(), serve);
    assert_eq!(
        result.unwrap_err().to_string(),
        "connection lost: the server closed it before the answer"
    );

    let large = json!({"x": "y".repeat(FRAME_BYTES_MAX)});
    let result = client.call_value(&Target::Server, "m", &large).await;
    assert_eq!(result.unwrap_err().to_string(), "not a call: it is over 10485760 bytes");

    drop(listener);
    let error = client.list_agents().await.unwrap_err();
    assert!(matches!(error, CallError::Connect(_)), "{error}");
    drop(directory);
    let error = client.list_agents().await.unwrap_err();
    assert!(error.to_string().ends_with("No such file or directory (os error 2)"), "{error}");
}

#[test]
fn only_a_server_of_ours_is_spoken_to() {
    for (owner, us, expected) in
        [(1000, 1000, true), (0, 1000, true), (1001, 1000, false), (1000, 0, false)]
    {
        assert_eq!(check_peer(owner, us).is_ok(), expected, "{owner} {us}");
    }
}
