//! Who gets to the door, and what it takes.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::responses::{RESPONSES, asking};
use super::{CHAT, get, json_of, post, refused, saying};
use crate::harness::{Server, Setup};
use crate::support::create;

#[tokio::test]
async fn the_rules_of_the_port_hold_and_are_told_in_the_doors_words() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let ask = || post(&server, CHAT, &saying("agent:a", "x"));
    assert_eq!(server.ask(ask()).await.status, 200);
    // Browsers' own requests of Node's fetch are no pages.
    assert_eq!(server.ask(ask().header("Sec-Fetch-Mode", "cors")).await.status, 200);
    for (status, request) in [
        (401, ask().without("Authorization")),
        (401, ask().bearer(Some("nxd_wrong"))),
        (403, ask().header("Origin", "https://evil.example")),
        (403, ask().header("Origin", format!("http://{}", server.address))),
        (403, ask().header("Host", "evil.example")),
        (415, ask().header("Content-Encoding", "br")),
        (405, ask().verb("GET")),
        (405, get(&server, "/v1/models").verb("DELETE")),
        (404, ask().path("/v1")),
        (404, ask().path("/v1/audio/speech")),
        (400, ask().body("{")),
        (400, ask().body("[1]")),
        (400, ask().body(vec![b'{', b'"', 0xff, b'"'])),
    ] {
        let (got, error) = refused(&server, request).await;
        assert_eq!(got, status, "{error}");
    }
    let (_, error) = refused(&server, ask().without("Authorization")).await;
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("invalid_api_key"), &json!("invalid_request_error"))
    );
    // What is like it is not it.
    assert_eq!(server.ask(get(&server, "/v10/models")).await.status, 404);
}

#[tokio::test]
async fn a_request_of_sixteen_mebibytes_is_taken_and_a_larger_one_is_not() {
    let server = Server::start().await;
    let of_length = |bytes: usize| {
        let mut body = saying("agent:nobody", "x");
        let rest = bytes - body.to_string().len();
        body["messages"][0]["content"] = "x".repeat(rest + 1).into();
        assert_eq!(body.to_string().len(), bytes);
        post(&server, CHAT, &body)
    };
    let most = 16 * 1024 * 1024;
    let (status, error) = refused(&server, of_length(most)).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")), "{error}");
    let (status, error) = refused(&server, of_length(most + 1)).await;
    assert_eq!(status, 413, "{error}");
}

#[tokio::test]
async fn a_body_that_is_cut_off_runs_nothing() {
    for (path, body) in [(CHAT, saying("agent:a", "x")), (RESPONSES, asking("agent:a", "x"))] {
        let server = Server::start().await;
        create(&server.wire(), "a").await;
        let request = post(&server, path, &body);
        let bytes = request.bytes();
        let mut http = server.http().await;
        http.write(&bytes[..bytes.len() - 5]).await;
        drop(http);
        assert_eq!(server.ask(request).await.status, 200);
        assert_eq!(server.model().request_count(), 1);
    }
}

#[tokio::test]
async fn a_door_that_is_closed_is_not_there() {
    let server = Setup::new().config(json!({"doors": {"openai": false}})).start().await;
    assert_eq!(server.ask(get(&server, "/v1/models")).await.status, 404);
    assert_eq!(server.ask(post(&server, CHAT, &saying("agent:a", "x"))).await.status, 404);
}

#[tokio::test]
async fn what_cannot_be_done_is_named() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let tool = json!({"type": "function", "function": {"name": "f"}});
    for (change, status, param) in [
        (json!({"model": "agent:nobody"}), 404, "model"),
        (json!({"model": "agent:../a"}), 404, "model"),
        (json!({"model": "new:emperor"}), 404, "model"),
        (json!({"model": "new:yolo"}), 404, "model"),
        (json!({"model": "no-such-model"}), 404, "model"),
        (json!({"model": 7}), 400, "model"),
        (json!({"messages": "hello"}), 400, "messages"),
        (json!({"messages": []}), 400, "messages"),
        (json!({"messages": [{"role": "user", "content": " "}]}), 400, "messages"),
        (json!({"messages": [{"role": "assistant", "content": "x"}]}), 400, "messages"),
        (
            json!({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}),
            400,
            "messages",
        ),
        (json!({"n": 2}), 400, "n"),
        (json!({"n": 100}), 400, "n"),
        (json!({"tools": [tool]}), 400, "tools"),
        (json!({"logprobs": true}), 400, "logprobs"),
        (json!({"max_tokens": -1}), 400, "max_tokens"),
        (json!({"stream": 1}), 400, "stream"),
    ] {
        for stream in [false, true] {
            let mut body = saying("agent:a", "x");
            body["stream"] = stream.into();
            for (name, value) in change.as_object().unwrap() {
                body[name] = value.clone();
            }
            let (got, error) = refused(&server, post(&server, CHAT, &body)).await;
            assert_eq!((got, error["param"].as_str()), (status, Some(param)), "{body}: {error}");
        }
    }
    assert_eq!(server.model().request_count(), 0);
}

/// What clients say beside what is known is named, in a header that can be read.
#[tokio::test]
async fn what_is_not_applied_is_named() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let mut body = saying("agent:a", "x");
    body["seed"] = json!(1);
    body["odd\r\nname: \u{1f600}"] = json!(1);
    body["store"] = json!(false);
    let response = server.ask(post(&server, CHAT, &body)).await;
    assert_eq!(response.status, 200, "{:?}", json_of(&response) as Value);
    assert_eq!(response.header("x-nexus-ignored"), Some("seed, oddname: "), "{response:?}");
}

/// Sixteen kilobytes, packed, that would be a gigabyte of values.
#[tokio::test]
async fn a_request_that_would_take_far_more_than_its_bytes_is_not_read() {
    let server = Server::start().await;
    let list = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
    let packed = |path: &str, body: String| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body.as_bytes()).unwrap();
        let request = post(&server, path, &Value::Null).body(encoder.finish().unwrap());
        request.header("Content-Encoding", "gzip")
    };
    let before = server.memory_peak_bytes();
    for path in [CHAT, RESPONSES, "/v1/embeddings"] {
        let request = packed(path, list(8_000_000));
        assert!(request.body_bytes().len() < 32 * 1024, "small on the wire");
        let (status, error) = refused(&server, request).await;
        assert_eq!(status, 400);
        assert!(error["message"].as_str().unwrap().contains("524288 JSON values"), "{error}");
    }
    let grown = server.memory_peak_bytes() - before;
    assert!(grown < 100 << 20, "{grown} bytes for three requests");
    // What is just not too much is looked at.
    let (status, error) = refused(&server, packed(CHAT, list(512 * 1024))).await;
    assert!(error["message"].as_str().unwrap().contains("must be a JSON object"), "{error}");
    assert_eq!(status, 400);
}
