//! What is sent, to receivers of every kind, and what becomes of the rest.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nexus_core::AgentId;
use nexus_core::TurnId;
use nexus_core::model::ModelInfo;
use nexus_core::observe::{
    CallEnd, EndedModelCall, EndedToolCall, EndedTurn, Observer as _, ToolEnd, TurnEnd, TurnRun,
};
use nexus_core::usage::{Bill, Cost, Usage};
use nexus_testkit::receiver::{Received, Receiver, Told};
use nexus_testkit::vendors;
use serde_json::{Value, json};

use super::export::ANSWER_BYTES_MAX;
use super::*;

/// Long enough for whatever happens at all; only a failing test sees it.
const WAIT_MAX: Duration = Duration::from_secs(60);

struct World {
    receiver: Receiver,
    traces: Traces,
    dropped: Arc<AtomicU64>,
}

impl World {
    /// With these variables beside that of the endpoint. Spans wait for an hour unless these say otherwise.
    async fn new(variables: &[(&str, &str)]) -> Self {
        Self::at(Receiver::start().await, variables)
    }

    fn at(receiver: Receiver, variables: &[(&str, &str)]) -> Self {
        let url = receiver.url();
        let usual =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url), ("OTEL_BSP_SCHEDULE_DELAY", "3600000")];
        let env: HashMap<String, String> = (usual.iter().chain(variables))
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = dropped.clone();
        let count = move |spans| {
            counter.fetch_add(spans, Ordering::Relaxed);
        };
        let traces = Traces::start(&|name| env.get(name).cloned(), count).unwrap();
        Self { receiver, traces, dropped }
    }

    /// One whose spans leave at once.
    async fn eager(variables: &[(&str, &str)]) -> Self {
        Self::new(&[variables, &[("OTEL_BSP_SCHEDULE_DELAY", "0")]].concat()).await
    }

    fn turn(&self, number: u64) {
        turn(&self.traces, number, TurnEnd::Done);
    }

    async fn requests(&self, count: usize) -> Vec<Received> {
        let waiting = tokio::time::timeout(WAIT_MAX, self.receiver.wait_for(count));
        waiting.await.unwrap_or_else(|_| panic!("{count} requests: {:?}", self.receiver.received()))
    }

    async fn dropped(&self, expected: u64) {
        let waiting = async {
            while self.dropped.load(Ordering::Relaxed) != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(WAIT_MAX, waiting).await;
        assert!(waited.is_ok(), "{:?} instead of {expected}", self.dropped);
    }
}

fn run(number: u64) -> TurnRun {
    TurnRun { id: TurnId::Number(7), number }
}

fn turn(traces: &Traces, number: u64, end: TurnEnd) {
    let lasted = Duration::from_millis(5);
    traces.observer().turn_ended(&EndedTurn {
        agent: &AgentId::parse("a").unwrap(),
        turn: &run(number),
        began: std::time::Instant::now() - lasted,
        lasted,
        end,
    });
}

fn model_call(traces: &Traces, of: Option<u64>, end: CallEnd, bill: Bill) {
    let (run, lasted) = (of.map(run), Duration::from_millis(3));
    traces.observer().model_call_ended(&EndedModelCall {
        model: &ModelInfo::undescribed("here", "chat", "m-1"),
        agent: &AgentId::parse("a").unwrap(),
        turn: run.as_ref(),
        began: std::time::Instant::now() - lasted,
        lasted,
        first_token: Some(Duration::from_millis(250)),
        end,
        bill,
    });
}

fn tool_call(traces: &Traces, of: u64, tool: Option<&str>, end: ToolEnd) {
    let lasted = Duration::from_millis(1);
    traces.observer().tool_call_ended(&EndedToolCall {
        tool,
        agent: &AgentId::parse("a").unwrap(),
        turn: &run(of),
        began: std::time::Instant::now() - lasted,
        lasted,
        end,
    });
}

/// The spans of a request in JSON.
fn spans(request: &Received) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn attributes(span: &Value) -> Value {
    let list = span["attributes"].as_array().unwrap();
    let pair = |it: &Value| {
        let value = it["value"].as_object().unwrap();
        assert_eq!(value.len(), 1, "{it}");
        (it["key"].as_str().unwrap().to_owned(), value.values().next().unwrap().clone())
    };
    Value::Object(list.iter().map(pair).collect())
}

const AS_JSON: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");

#[tokio::test]
async fn calls_are_children_of_their_turn_and_say_how_they_ended() {
    let world = World::new(&[AS_JSON]).await;
    let traces = &world.traces;
    let usage = Usage { input: 10, cache_read: 4, output: 5, reasoning: 2, ..Usage::default() };
    model_call(traces, Some(1), CallEnd::Done, Bill::of(usage, Some(Cost(1_500_000_000))));
    tool_call(traces, 1, Some("glob"), ToolEnd::Done);
    tool_call(traces, 1, None, ToolEnd::Refused("known"));
    tool_call(traces, 1, Some("grep"), ToolEnd::Failed);
    model_call(traces, Some(1), CallEnd::Failed("rejected"), Bill::default());
    turn(traces, 1, TurnEnd::Failed);
    turn(traces, 2, TurnEnd::Halted);
    model_call(traces, None, CallEnd::Cancelled, Bill::of(usage, None));
    traces.close().await;
    let requests = world.requests(1).await;
    let spans = spans(&requests[0]);
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    let expected = [
        "chat m-1",
        "execute_tool glob",
        "execute_tool",
        "execute_tool grep",
        "chat m-1",
        "invoke_agent a",
        "invoke_agent a",
        "chat m-1",
    ];
    assert_eq!(names, expected);
    let text = |place: usize, key: &str| spans[place][key].as_str().unwrap().to_owned();
    for child in 0..5 {
        assert_eq!(text(child, "traceId"), text(5, "traceId"));
        assert_eq!(text(child, "parentSpanId"), text(5, "spanId"));
    }
    let mut ids: Vec<_> = (0..8).map(|place| text(place, "spanId")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8);
    assert!(spans[5..8].iter().all(|root| root.get("parentSpanId").is_none()));
    assert_ne!(text(6, "traceId"), text(5, "traceId"));
    assert_ne!(text(7, "traceId"), text(6, "traceId"));
    let whose =
        json!({"gen_ai.agent.id": "a", "gen_ai.agent.name": "a", "gen_ai.conversation.id": "a"});
    let check = |place: usize, kind: u64, failed: bool, own: Value| {
        let mut expected = whose.as_object().unwrap().clone();
        expected.extend(own.as_object().unwrap().clone());
        assert_eq!(attributes(&spans[place]), Value::Object(expected), "{place}");
        assert_eq!(spans[place]["kind"], kind);
        let status = spans[place].get("status");
        assert_eq!(status, failed.then(|| json!({"code": 2})).as_ref(), "{place}");
    };
    let chat = |own: Value| {
        let mut all = json!({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "here", "gen_ai.request.model": "m-1",
            "gen_ai.response.time_to_first_chunk": 0.25,
        });
        all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        all
    };
    let tokens = json!({
        "gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": "5",
        "gen_ai.usage.cache_read.input_tokens": "4", "gen_ai.usage.reasoning.output_tokens": "2",
    });
    let mut paid = tokens.clone();
    paid["nexus.outcome"] = "done".into();
    paid["nexus.cost_usd"] = 1.5.into();
    check(0, 3, false, chat(paid));
    let tool = |outcome: &str, own: Value| {
        let mut all = json!({
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function", "nexus.outcome": outcome,
        });
        all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        all
    };
    check(1, 1, false, tool("done", json!({"gen_ai.tool.name": "glob"})));
    check(2, 1, true, tool("refused", json!({"nexus.rule": "known", "error.type": "refused"})));
    check(3, 1, true, tool("failed", json!({"gen_ai.tool.name": "grep", "error.type": "_OTHER"})));
    check(4, 3, true, chat(json!({"nexus.outcome": "failed", "error.type": "rejected"})));
    let turn = json!({
        "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "nexus3", "nexus.turn.id": "7",
        "nexus.outcome": "failed", "error.type": "_OTHER",
    });
    check(5, 1, true, turn);
    let mut unpriced = tokens;
    unpriced["nexus.outcome"] = "cancelled".into();
    check(7, 3, false, chat(unpriced));
    world.dropped(0).await;
}

#[tokio::test]
async fn both_forms_say_the_same_to_the_protocols_own_reader() {
    let mut understood = Vec::new();
    for form in ["http/json", "http/protobuf"] {
        let variables = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", form),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, x-other=c"),
            ("OTEL_RESOURCE_ATTRIBUTES", "place=a%2Cb,service.name=no"),
            ("OTEL_SERVICE_NAME", "yes"),
        ];
        let world = World::new(&variables).await;
        let usage = Usage { input: u64::MAX, output: 300, ..Usage::default() };
        model_call(&world.traces, Some(1), CallEnd::Done, Bill::of(usage, Some(Cost(1))));
        tool_call(&world.traces, 1, Some("ü\"\n"), ToolEnd::Failed);
        world.turn(1);
        world.traces.close().await;
        let requests = world.requests(1).await;
        let Received { line, headers, .. } = &requests[0];
        assert_eq!(line, "POST /v1/traces HTTP/1.1");
        assert_eq!((&*headers["x-key"], &*headers["x-other"]), ("a b", "c"));
        assert!(headers["user-agent"].starts_with("nexus3/"), "{headers:?}");
        let Some(mut read) = vendors::read_spans(&requests) else { return };
        let mut read = read.remove(0);
        let resource = read["resource"].as_object_mut().unwrap();
        assert_eq!(resource.remove("service.instance.id").unwrap().as_str().unwrap().len(), 32);
        let version = env!("CARGO_PKG_VERSION");
        let expected = json!({
            "service.name": "yes", "service.version": version, "place": "a,b",
            "telemetry.sdk.name": "nexus3", "telemetry.sdk.language": "rust", "telemetry.sdk.version": version,
        });
        assert_eq!(read["resource"], expected);
        let spans = read["spans"].as_array_mut().unwrap();
        assert_eq!(spans[0]["parent"], spans[2]["id"]);
        for span in spans {
            let (began, ended) = (span["began"].as_u64().unwrap(), span["ended"].as_u64().unwrap());
            assert!(began > 1_700_000_000_000_000_000 && began < ended, "{span}");
            // What differs from process to process.
            for name in ["trace", "id", "parent", "began"] {
                span[name] = Value::Null;
            }
            span["ended"] = (ended - began).into();
        }
        understood.push(read);
    }
    assert_eq!(understood[0], understood[1]);
    let call = &understood[0]["spans"][0];
    assert_eq!(
        (&call["kind"], &call["status"]),
        (&json!("SPAN_KIND_CLIENT"), &json!("STATUS_CODE_UNSET"))
    );
    assert_eq!(call["attributes"]["gen_ai.usage.input_tokens"], i64::MAX);
    assert_eq!(call["ended"], 3_000_000);
    let tool = &understood[0]["spans"][1];
    assert_eq!(
        (&tool["name"], &tool["status"]),
        (&json!("execute_tool ü\"\n"), &json!("STATUS_CODE_ERROR"))
    );
}

#[tokio::test]
async fn a_batch_leaves_when_it_is_full() {
    let world = World::new(&[AS_JSON, ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "3")]).await;
    for number in 0..7 {
        world.turn(number);
    }
    let requests = world.requests(2).await;
    assert_eq!(requests.iter().map(|it| spans(it).len()).collect::<Vec<_>>(), [3, 3]);
    world.traces.close().await;
    assert_eq!(spans(&world.requests(3).await[2]).len(), 1);
    world.dropped(0).await;
}

#[tokio::test]
async fn what_finds_no_place_in_the_queue_is_dropped_and_counted() {
    let queue = [AS_JSON, ("OTEL_BSP_MAX_QUEUE_SIZE", "4")];
    for (turns, dropped) in [(4, 0), (5, 1)] {
        // Nothing else runs before the first await, so the queue is only filled.
        let world = World::new(&queue).await;
        (0..turns).for_each(|number| world.turn(number));
        world.dropped(dropped).await;
        world.traces.close().await;
        assert_eq!(spans(&world.requests(1).await[0]).len(), 4);
        world.dropped(dropped).await;
    }
}

#[tokio::test]
async fn who_is_busy_is_sent_the_same_again() {
    for told in [
        Told::retry_after(429, "0"),
        Told::retry_after(429, "1"),
        Told::status(429),
        Told::status(502),
        Told::retry_after(503, "Wed, 21 Oct 2015 07:28:00 GMT"),
        Told::status(504),
    ] {
        let world = World::eager(&[]).await;
        world.receiver.push(told);
        world.turn(1);
        let requests = world.requests(2).await;
        assert_eq!(requests[0], requests[1]);
        world.traces.close().await;
        world.dropped(0).await;
        assert_eq!(world.receiver.received().len(), 2);
    }
}

#[tokio::test]
async fn who_asks_for_more_time_than_there_is_gets_it_without_the_batch() {
    let world = World::eager(&[]).await;
    world.receiver.push(Told::retry_after(503, "31"));
    world.turn(1);
    world.dropped(1).await;
    world.turn(2);
    // It is still left alone, and at the end gets what came meanwhile.
    assert_eq!(world.receiver.received().len(), 1);
    world.traces.close().await;
    assert_eq!(world.requests(2).await.len(), 2);
    world.dropped(1).await;
}

#[tokio::test]
async fn who_refuses_is_not_asked_again() {
    for status in [301, 400, 401, 404, 408, 413, 500, 501] {
        let world = World::eager(&[]).await;
        // What comes next is not kept from who refused this.
        world.receiver.push(Told::retry_after(status, "300"));
        world.turn(1);
        world.dropped(1).await;
        world.turn(2);
        world.requests(2).await;
        world.traces.close().await;
        assert_eq!(world.receiver.received().len(), 2, "{status}");
        world.dropped(1).await;
    }
}

#[tokio::test]
async fn what_a_receiver_rejects_is_counted() {
    let told = |body: &[u8]| Told::Answer(200, Vec::new(), body.to_vec());
    let rejections = [
        (AS_JSON.1, told(br#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}"#)),
        ("http/protobuf", told(b"\x0a\x06\x08\x01\x12\x02no")),
    ];
    for (form, told) in rejections {
        let world = World::eager(&[("OTEL_EXPORTER_OTLP_PROTOCOL", form)]).await;
        world.receiver.push(told);
        world.turn(1);
        world.dropped(1).await;
        world.traces.close().await;
        assert_eq!(world.receiver.received().len(), 1);
    }
}

#[tokio::test]
async fn so_much_of_an_answer_is_read() {
    for (bytes, rejected) in [(ANSWER_BYTES_MAX, 1), (ANSWER_BYTES_MAX + 1, 0)] {
        let world = World::eager(&[AS_JSON]).await;
        let answer = r#"{"partialSuccess":{"rejectedSpans":"1"}}"#;
        let body = format!("{answer:>bytes$}").into_bytes();
        world.receiver.push(Told::Answer(200, Vec::new(), body));
        world.turn(1);
        world.requests(1).await;
        world.traces.close().await;
        world.dropped(rejected).await;
    }
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_loses_nothing_that_was_taken() {
    for body in [&b"\xff\xff\xff\xff"[..], b"{", b"<html>", b"\x0a\x7f", &[0xff; 100_000]] {
        for form in ["http/json", "http/protobuf"] {
            let world = World::eager(&[("OTEL_EXPORTER_OTLP_PROTOCOL", form)]).await;
            world.receiver.push(Told::Answer(200, Vec::new(), body.to_vec()));
            world.turn(1);
            world.requests(1).await;
            world.traces.close().await;
            world.dropped(0).await;
        }
    }
}

#[tokio::test]
async fn who_does_not_speak_http_or_is_not_there_or_never_answers_costs_only_spans() {
    let soon = [("OTEL_BSP_EXPORT_TIMEOUT", "1000"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "500")];
    for told in [Told::Bytes(b"what?\r\n\r\n"), Told::Silence] {
        let world = World::eager(&soon).await;
        world.receiver.set_default(told);
        world.turn(1);
        world.dropped(1).await;
        world.receiver.set_default(Told::status(200));
        let before = world.receiver.received().len();
        world.turn(2);
        world.requests(before + 1).await;
        world.traces.close().await;
    }
    let World { receiver, traces, dropped } = World::eager(&soon).await;
    drop(receiver);
    turn(&traces, 1, TurnEnd::Done);
    turn(&traces, 2, TurnEnd::Done);
    traces.close().await;
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn who_cannot_say_who_it_is_is_sent_nothing() {
    let world = World::at(Receiver::start_secure().await, &[]);
    world.turn(1);
    world.traces.close().await;
    world.dropped(1).await;
    assert_eq!(world.receiver.received(), []);
}

#[tokio::test]
async fn the_end_does_not_wait_for_who_never_answers() {
    let world = World::eager(&[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")]).await;
    world.receiver.set_default(Told::Silence);
    (0..3).for_each(|number| world.turn(number));
    world.requests(1).await;
    world.traces.close().await;
    world.dropped(3).await;
    // And one that comes later is counted too.
    world.turn(4);
    world.dropped(4).await;
}

#[tokio::test]
async fn all_spans_of_a_trace_are_sampled_or_none() {
    let sampler = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.5")];
    let world = World::new(&[&[AS_JSON][..], &sampler].concat()).await;
    for number in 0..200 {
        model_call(&world.traces, Some(number), CallEnd::Done, Bill::default());
        tool_call(&world.traces, number, None, ToolEnd::Done);
        world.turn(number);
    }
    world.traces.close().await;
    let requests = world.requests(1).await;
    let mut traces: HashMap<String, usize> = HashMap::new();
    for span in requests.iter().flat_map(spans) {
        *traces.entry(span["traceId"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!(traces.values().all(|count| *count == 3), "{traces:?}");
    // Beyond this once in a hundred million times.
    assert!((60..140).contains(&traces.len()), "{}", traces.len());
    world.dropped(0).await;
}
