//! Spans for OpenTelemetry: what a receiver is sent of turns, model calls and tool calls, and that nobody has to wait for
//! it.

use std::collections::BTreeMap;

use nexus_testkit::receiver::{Received, Receiver, Told};
use nexus_testkit::{Reply, tls, vendors};
use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire, within};
use crate::support::create;

/// Sends to this receiver, in JSON, and not before an hour has passed or the server ends.
fn traced(receiver: &Receiver) -> Setup {
    Setup::new()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url())
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .env("OTEL_BSP_SCHEDULE_DELAY", "3600000")
}

async fn requests(receiver: &Receiver, count: usize) -> Vec<Received> {
    within("spans", receiver.wait_for(count)).await
}

/// Ends a server, which must go well.
async fn end(mut server: Server) {
    assert!(server.terminate().await.success());
}

/// A span, checked to the letter of the protocol's JSON.
#[derive(Debug)]
struct Span {
    name: String,
    trace: String,
    id: String,
    parent: Option<String>,
    began: u64,
    ended: u64,
    attributes: BTreeMap<String, Value>,
    failed: bool,
}

/// The spans of a request.
fn spans(request: &Received) -> Vec<Span> {
    assert_eq!(request.line, "POST /v1/traces HTTP/1.1");
    assert_eq!(request.headers["content-type"], "application/json");
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let only = |value: &Value, key: &str| {
        assert_eq!(value.as_object().unwrap().keys().filter(|it| *it == key).count(), 1, "{value}");
        let list = value[key].as_array().unwrap();
        assert_eq!(list.len(), 1, "{value}");
        list[0].clone()
    };
    let of_resource = only(&body, "resourceSpans");
    let resource = attributes(&of_resource["resource"]["attributes"]);
    assert_eq!(resource["telemetry.sdk.language"], "rust");
    let of_scope = only(&of_resource, "scopeSpans");
    assert_eq!(of_scope["scope"]["name"], "nexus3");
    of_scope["spans"].as_array().unwrap().iter().map(span).collect()
}

fn span(span: &Value) -> Span {
    let known = [
        "traceId",
        "spanId",
        "parentSpanId",
        "name",
        "kind",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "attributes",
        "status",
    ];
    assert!(span.as_object().unwrap().keys().all(|key| known.contains(&&**key)), "{span}");
    let hex = |key: &str, length: usize| {
        let text = span[key].as_str().unwrap().to_owned();
        let is_hex = text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        assert!(is_hex && text.len() == length && text.bytes().any(|it| it != b'0'), "{span}");
        text
    };
    let nanos = |key: &str| span[key].as_str().unwrap().parse().unwrap();
    let (began, ended) = (nanos("startTimeUnixNano"), nanos("endTimeUnixNano"));
    assert!(began <= ended, "{span}");
    Span {
        name: span["name"].as_str().unwrap().to_owned(),
        trace: hex("traceId", 32),
        id: hex("spanId", 16),
        parent: span.get("parentSpanId").map(|_| hex("parentSpanId", 16)),
        began,
        ended,
        attributes: attributes(&span["attributes"]),
        failed: match span.get("status") {
            Some(status) => *status == json!({"code": 2}),
            None => false,
        },
    }
}

fn attributes(list: &Value) -> BTreeMap<String, Value> {
    let list = list.as_array().unwrap();
    let pairs = list.iter().map(|pair| {
        let (kind, value) = pair["value"].as_object().unwrap().iter().next().unwrap();
        let value = match &**kind {
            "stringValue" => value.as_str().unwrap().into(),
            // An integer of 64 bits is a text.
            "intValue" => value.as_str().unwrap().parse::<i64>().unwrap().into(),
            "doubleValue" => value.as_f64().unwrap().into(),
            other => panic!("{other}"),
        };
        (pair["key"].as_str().unwrap().to_owned(), value)
    });
    let all: BTreeMap<String, Value> = pairs.collect();
    assert_eq!(all.len(), list.len(), "{list:?}");
    all
}

/// A turn with a tool that there is and an argument and words that nobody else may see.
async fn a_turn_with_secrets(wire: &Wire) {
    create(wire, "a").await;
    let call = Reply::tool_call("list_directory", json!({"path": "./hush-path"}));
    wire.model().push(call.usage(100, 7).cached(40));
    wire.model().push(Reply::status(400).message("hush-error"));
    let said = json!({"agent_id": "a", "content": "hush-prompt", "request_id": "r1"});
    wire.refused("send", said).await;
}

#[tokio::test]
async fn a_turn_is_a_trace_and_its_calls_are_in_it() {
    let receiver = Receiver::start().await;
    let price = json!({"input": 2, "output": 10, "cache_read": 0.5});
    let server = traced(&receiver)
        .provider_keys(json!({"models": {"scripted": {"price": price}}}))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush-header")
        .env("OTEL_SERVICE_NAME", "here")
        .start()
        .await;
    a_turn_with_secrets(&server.wire()).await;
    assert_eq!(receiver.received(), []);
    let log = server.log().clone();
    end(server).await;

    let requests = requests(&receiver, 1).await;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].headers["authorization"], "Bearer hush-header");
    let text = String::from_utf8(requests[0].body.clone()).unwrap();
    assert!(!text.contains("hush") && text.contains("here"), "{text}");
    assert!(!log.complete().await.contains("hush-header"));

    let all = spans(&requests[0]);
    let [done, tool, refused, turn] = &all[..] else { panic!("{all:#?}") };
    for child in [done, tool, refused] {
        assert_eq!((&child.trace, child.parent.as_ref()), (&turn.trace, Some(&turn.id)));
        assert!(turn.began <= child.began && child.ended <= turn.ended, "{all:#?}");
        assert_eq!(child.attributes["gen_ai.agent.id"], "a");
        assert_eq!(child.attributes["gen_ai.conversation.id"], "a");
    }
    assert!(done.ended <= tool.began && tool.ended <= refused.began, "{all:#?}");
    assert_eq!(turn.parent, None);
    assert_eq!(turn.attributes["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(turn.attributes["nexus.turn.id"], "r1");
    assert_eq!(turn.attributes["nexus.outcome"], "failed");
    let is =
        |span: &Span, key: &str, value: Value| assert_eq!(span.attributes[key], value, "{span:?}");
    is(done, "gen_ai.operation.name", "chat".into());
    is(done, "gen_ai.request.model", "scripted".into());
    is(done, "gen_ai.usage.input_tokens", 100.into());
    is(done, "gen_ai.usage.cache_read.input_tokens", 40.into());
    is(done, "gen_ai.usage.output_tokens", 7.into());
    is(refused, "error.type", "rejected".into());
    is(tool, "gen_ai.tool.name", "list_directory".into());
    let failed: Vec<bool> = all.iter().map(|span| span.failed).collect();
    assert_eq!((failed[0], failed[2], failed[3]), (false, true, true));
}

#[tokio::test]
async fn two_turns_of_one_name_are_two_traces() {
    let receiver = Receiver::start().await;
    let server = traced(&receiver).start().await;
    let wire = server.wire();
    wire.model().set_default(Reply::echo());
    create(&wire, "a").await;
    for _ in 0..2 {
        wire.ok("send", json!({"agent_id": "a", "content": "x", "request_id": "r1"})).await;
    }
    end(server).await;
    let all = spans(&requests(&receiver, 1).await[0]);
    let [call, turn, call_again, turn_again] = &all[..] else { panic!("{all:#?}") };
    for (call, turn) in [(call, turn), (call_again, turn_again)] {
        assert_eq!(turn.attributes["nexus.turn.id"], "r1");
        assert_eq!((&call.trace, call.parent.as_ref()), (&turn.trace, Some(&turn.id)));
    }
    assert_ne!(turn.trace, turn_again.trace);
}

#[tokio::test]
async fn the_usual_form_is_read_by_the_protocols_own_reader() {
    let receiver = Receiver::start().await;
    let server = traced(&receiver).env("OTEL_EXPORTER_OTLP_PROTOCOL", "").start().await;
    a_turn_with_secrets(&server.wire()).await;
    end(server).await;
    let requests = requests(&receiver, 1).await;
    assert_eq!(requests[0].headers["content-type"], "application/x-protobuf");
    assert!(!String::from_utf8_lossy(&requests[0].body).contains("hush"));
    let Some(read) = vendors::read_spans(&requests) else { return };
    assert_eq!(read[0]["resource"]["service.name"], "nexus3");
    let spans = read[0]["spans"].as_array().unwrap();
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    let expected =
        ["chat scripted", "execute_tool list_directory", "chat scripted", "invoke_agent a"];
    assert_eq!(names, expected);
    assert!(spans[..3].iter().all(|span| span["parent"] == spans[3]["id"]), "{spans:?}");
    assert_eq!(spans[3]["parent"], "");
    assert_eq!(spans[3]["status"], "STATUS_CODE_ERROR");
}

#[tokio::test]
async fn a_turn_of_the_command_line_is_sent_before_it_ends() {
    let receiver = Receiver::start().await;
    let setup = Setup::new();
    let world = setup.world().await;
    world.model.push(Reply::text("hi"));
    let mut command = world.command(["exec", "x"]);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url())
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    let output = crate::harness::process::run(command).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let spans = spans(&requests(&receiver, 1).await[0]);
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    // The agent has a name that the program made up.
    assert!(
        matches!(names[..], ["chat scripted", turn] if turn.starts_with("invoke_agent ")),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_receiver_behind_tls_is_trusted_by_the_certificates_of_the_system() {
    let receiver = Receiver::start_secure().await;
    let server = traced(&receiver).env("SSL_CERT_FILE", tls::authority()).start().await;
    a_turn_with_secrets(&server.wire()).await;
    end(server).await;
    assert_eq!(requests(&receiver, 1).await.len(), 1);
}

#[tokio::test]
async fn a_protocol_that_is_not_spoken_is_named_and_nothing_is_sent() {
    let receiver = Receiver::start().await;
    let server = traced(&receiver).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").start().await;
    let is_it = |line: &Value| {
        line["message"].as_str().is_some_and(|it| it.contains("OTEL_EXPORTER_OTLP_PROTOCOL"))
    };
    server.log().wait_for("a warning", is_it).await;
    a_turn_with_secrets(&server.wire()).await;
    end(server).await;
    assert_eq!(receiver.received(), []);
}

#[tokio::test]
async fn turns_do_not_wait_for_a_receiver_that_never_answers_nor_does_the_end() {
    let receiver = Receiver::start().await;
    receiver.set_default(Told::Silence);
    let server = traced(&receiver)
        .env("OTEL_BSP_SCHEDULE_DELAY", "0")
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "4")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
        .env("OTEL_BSP_EXPORT_TIMEOUT", "600000")
        .start()
        .await;
    let wire = server.wire();
    wire.model().set_default(Reply::echo());
    create(&wire, "a").await;
    wire.ok("send", json!({"agent_id": "a", "content": "x"})).await;
    requests(&receiver, 1).await;
    for _ in 0..10 {
        wire.ok("send", json!({"agent_id": "a", "content": "x"})).await;
    }
    let metrics = wire.ok("get_metrics", json!({})).await;
    let all = metrics["metrics"].as_array().unwrap();
    let dropped = all.iter().find(|it| it["name"] == "nexus_spans_dropped_total").unwrap();
    // Of the 22 spans at most 2 are in the request, or were gathered into it, and 4 in the queue.
    assert!(dropped["samples"][0]["value"].as_f64().unwrap() >= 16.0, "{dropped}");
    let log = server.log().clone();
    end(server).await;
    let lines = log.complete().await;
    assert_eq!(lines.matches("spans are dropped").count(), 1, "{lines}");
    assert_eq!(receiver.received().len(), 1);
}
