//! Answers in pieces, on every transport that carries them.

mod readers;

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Setup, Wire};
use crate::support::answered;

over_every_wire_of_messages! {
    a_stream_is_start_data_event_end_and_the_whole_answer,
    text_comes_as_it_is_said,
    pieces_may_come_as_fast_as_they_like,
    so_may_large_ones,
    the_task_is_the_request_to_the_letter,
    without_being_asked_for_there_is_no_stream,
    tool_calls_travel_between_the_text,
    a_stream_without_text_has_no_data,
    what_fails_before_the_first_word_ends_all_the_same: without_retries(),
    what_breaks_off_ends_with_what_was_said: without_retries(),
    what_is_cancelled_ends_with_what_was_said,
    who_has_seen_the_start_can_cancel,
    what_takes_too_long_ends_with_what_was_said,
    what_was_queued_and_cancelled_ends_empty,
    what_is_refused_at_once_is_only_answered,
    streams_of_two_agents_do_not_mix,
}

fn without_retries() -> Setup {
    Setup::new().provider_keys(json!({"max_retries": 0}))
}

/// A stream taken apart and found in order: start, then data and events, then the end, then the answer.
struct Streamed {
    task_id: Value,
    chunks: Vec<String>,
    /// With the number of chunks that came before.
    events: Vec<(usize, Value)>,
    answer: Value,
}

impl Streamed {
    fn of(notifications: Vec<Value>, answer: Value) -> Self {
        let mut notifications = notifications.into_iter();
        let start = notifications.next().expect("a start");
        assert_eq!(start["method"], "stream_start");
        let id = start["params"]["stream_id"].as_str().unwrap().to_string();
        assert!(!id.is_empty());
        let (mut chunks, mut events) = (Vec::new(), Vec::new());
        let end = loop {
            let notification = notifications.next().expect("an end");
            let params = &notification["params"];
            assert_eq!(params["stream_id"], *id);
            match notification["method"].as_str().unwrap() {
                "stream_data" => {
                    chunks.push(params["chunk"].as_str().unwrap().to_string());
                    let expected = json!({"stream_id": id, "chunk": params["chunk"], "sequence": chunks.len()});
                    assert_eq!(params, &expected, "from 1, without gaps");
                }
                "stream_event" => events.push((chunks.len(), params["event"].clone())),
                "stream_end" => break notification,
                other => panic!("{other} within a stream"),
            }
        };
        assert_eq!(end["params"], json!({"stream_id": id, "total_chunks": chunks.len()}));
        assert_eq!(notifications.next(), None, "nothing between the end and the answer");
        let task_id = start["params"]["task_id"].clone();
        assert_eq!(start["params"], json!({"stream_id": id, "task_id": task_id}));
        assert_eq!(answer["id"], task_id);
        if let Some(content) = answer["result"]["content"].as_str() {
            assert_eq!(chunks.concat(), content, "the chunks joined are the text");
        }
        Self { task_id, chunks, events, answer }
    }
}

fn send(id: impl Into<Value>, params: Value) -> String {
    let mut all = json!({"content": "x", "stream": true});
    all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    request(id, "send", all)
}

async fn streamed(wire: &Wire, id: impl Into<Value>, params: Value) -> Streamed {
    let (notifications, answer) = wire.open(send(id, params)).await.all().await;
    Streamed::of(notifications, answer)
}

async fn a_stream_is_start_data_event_end_and_the_whole_answer(wire: &Wire) {
    let words = ["It ", "", "wörks", "\n\ndata: ", "\u{1f600}\u{0}\"\\", "."];
    wire.model().push(Reply::chunks(words).usage(120, 9).cached(100).split_every(7));
    let stream = streamed(wire, 7, json!({"request_id": "turn"})).await;
    assert_eq!(stream.task_id, 7);
    assert_eq!(stream.chunks.concat(), words.concat());
    let usage = json!({"type": "usage", "input": 120, "cache_read": 100, "cache_write": 0, "output": 9, "reasoning": 0});
    assert_eq!(stream.events, [(stream.chunks.len(), usage)]);
    let mut result = answered(&words.concat(), &json!("turn"));
    result["usage"]["input"] = json!(120);
    result["usage"]["cache_read"] = json!(100);
    result["usage"]["output"] = json!(9);
    assert_eq!(stream.answer["result"], result);
}

async fn text_comes_as_it_is_said(wire: &Wire) {
    let gate = Gate::new();
    wire.model().push(Reply::text("So far").then_gate(&gate).then_text(", and the rest."));
    let mut exchange = wire.open(send(1, json!({}))).await;
    let mut notifications = Vec::new();
    while said(&notifications) != "So far" {
        notifications.push(exchange.next().await.unwrap());
    }
    gate.release();
    let (rest, answer) = exchange.all().await;
    notifications.extend(rest);
    assert_eq!(Streamed::of(notifications, answer).chunks.concat(), "So far, and the rest.");
}

/// The text in notifications so far.
fn said(notifications: &[Value]) -> String {
    let data = notifications.iter().filter(|message| message["method"] == "stream_data");
    data.map(|message| message["params"]["chunk"].as_str().unwrap()).collect()
}

/// Who is too slow is a matter of time and bytes, never of the number of pieces.
async fn pieces_may_come_as_fast_as_they_like(wire: &Wire) {
    let burst = vec!["word "; 20_000];
    wire.model().push(
        Reply::chunks(burst.clone()).usage(10, 20_000).then_tool_call("no_such_tool", json!({})),
    );
    wire.model().push(Reply::chunks(burst.clone()).usage(20_000, 20_000));
    let stream = streamed(wire, 1, json!({})).await;
    assert!(stream.answer.get("result").is_some(), "{}", stream.answer);
    assert_eq!(stream.chunks.concat(), format!("{0}\n\n{0}", burst.concat()));
    let kinds: Vec<_> =
        stream.events.iter().map(|(_, event)| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["tool_call", "usage", "tool_result", "usage"]);
    let before = |event: usize| stream.chunks[..stream.events[event].0].concat().len();
    let places: Vec<_> = (0..4).map(before).collect();
    let (first, all) = (burst.concat().len(), 2 * burst.concat().len() + 2);
    assert_eq!(places, [first, first, first, all], "events keep their place among the text");
}

/// A model may be quicker than any reader: then it is heard no faster than one reads who does read.
async fn so_may_large_ones(wire: &Wire) {
    let burst = vec!["a word in a long text ".repeat(1_500); 120];
    wire.model().push(Reply::chunks(burst.clone()).usage(10, 2_000_000));
    let stream = streamed(wire, 1, json!({})).await;
    assert!(stream.answer.get("result").is_some(), "{}", stream.answer);
    assert_eq!(stream.chunks.concat().len(), burst.concat().len());
    assert_eq!(stream.answer["result"]["content"].as_str().unwrap().len(), burst.concat().len());
}

async fn the_task_is_the_request_to_the_letter(wire: &Wire) {
    for id in ["5", "-5", r#""text""#, r#""a\"\u00e4""#, "123456789012345678901234567890"] {
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"send","params":{{"content":"x","stream":true}},"id":{id}}}"#
        );
        let mut exchange = wire.open(message).await;
        let start = exchange.next_raw().await.unwrap();
        assert!(start.contains(&format!(r#""task_id":{id}}}"#)), "{start}");
        while exchange.next_raw().await.is_some() {}
    }
}

async fn without_being_asked_for_there_is_no_stream(wire: &Wire) {
    for params in [json!({"stream": false}), json!({"stream": null})] {
        let (notifications, answer) = wire.open(send(1, params)).await.all().await;
        assert_eq!(notifications, [json!(null); 0]);
        assert_eq!(answer["result"]["content"], "Hello from the scripted model.");
    }
}

async fn tool_calls_travel_between_the_text(wire: &Wire) {
    wire.model().push(Reply::text("Let me look.").then_tool_call("no_such_tool", json!({"a": 1})));
    wire.model().push(Reply::text("It is not there."));
    let stream = streamed(wire, "tools", json!({})).await;
    assert_eq!(stream.chunks.concat(), "Let me look.\n\nIt is not there.");
    let kinds: Vec<_> =
        stream.events.iter().map(|(_, event)| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["tool_call", "usage", "tool_result", "usage"]);
    let (call, result) = (&stream.events[0].1, &stream.events[2].1);
    assert_eq!((&call["name"], &call["arguments"]), (&json!("no_such_tool"), &json!({"a": 1})));
    assert_eq!(call["id"], result["id"]);
    assert!(result["content"].is_string());
}

async fn a_stream_without_text_has_no_data(wire: &Wire) {
    // It is asked once more before it is believed.
    wire.model().push(Reply::nothing());
    wire.model().push(Reply::nothing());
    let stream = streamed(wire, 1, json!({})).await;
    assert_eq!((stream.chunks.len(), &stream.answer["result"]["content"]), (0, &json!("")));
    assert_eq!(stream.answer["result"]["stop_reason"], "empty");
}

async fn what_fails_before_the_first_word_ends_all_the_same(wire: &Wire) {
    wire.model().push(Reply::status(400));
    let stream = streamed(wire, 1, json!({})).await;
    assert_eq!((stream.chunks.len(), &stream.answer["error"]["code"]), (0, &json!(-32603)));
}

async fn what_breaks_off_ends_with_what_was_said(wire: &Wire) {
    for _ in 0..4 {
        wire.model().push(Reply::chunks(["so ", "far"]).then_cut());
    }
    let stream = streamed(wire, 1, json!({})).await;
    assert_eq!(stream.chunks.concat(), "so far".repeat(4));
    assert_eq!(stream.answer["error"]["code"], -32603);
    // The conversation is as good as new.
    assert!(streamed(wire, 2, json!({})).await.answer.get("result").is_some());
}

async fn what_is_cancelled_ends_with_what_was_said(wire: &Wire) {
    wire.model().push(Reply::chunks(["so ", "far"]).then_hang());
    let mut exchange = wire.open(send("s", json!({"request_id": "r"}))).await;
    let mut notifications = Vec::new();
    while said(&notifications) != "so far" {
        notifications.push(exchange.next().await.unwrap());
    }
    let cancelled = wire.ok("cancel", json!({"request_id": "r"})).await;
    assert_eq!(cancelled["cancelled"], true);
    let (rest, answer) = exchange.all().await;
    notifications.extend(rest);
    let stream = Streamed::of(notifications, answer);
    assert_eq!(stream.answer["result"]["cancelled"], true);
    assert_eq!(stream.answer["result"]["content"], "so far");
    wire.model().wait_for_disconnects(1).await;
}

async fn who_has_seen_the_start_can_cancel(wire: &Wire) {
    wire.model().set_default(Reply::hang());
    for n in 0..40 {
        let mut exchange = wire.open(send(n, json!({"request_id": n}))).await;
        assert_eq!(exchange.next().await.unwrap()["method"], "stream_start");
        assert_eq!(wire.ok("cancel", json!({"request_id": n})).await["cancelled"], true);
        assert_eq!(exchange.all().await.1["result"]["cancelled"], true);
    }
}

async fn what_takes_too_long_ends_with_what_was_said(wire: &Wire) {
    wire.model().push(Reply::text("so far").then_hang());
    let stream = streamed(wire, 1, json!({"timeout_ms": 500})).await;
    // On a slow machine the time may be over before the model has spoken.
    assert!(["", "so far"].contains(&&*stream.chunks.concat()), "{:?}", stream.chunks);
    assert_eq!(stream.answer["error"]["code"], -32000);
}

async fn what_was_queued_and_cancelled_ends_empty(wire: &Wire) {
    wire.model().push(Reply::hang());
    let running = wire.open(send("running", json!({"request_id": "first"}))).await;
    wire.model().wait_for_requests(1).await;
    let mut queued = wire.open(send("queued", json!({"request_id": "second"}))).await;
    let start = queued.next().await.unwrap();
    wire.ok("cancel", json!({"request_id": "second"})).await;
    let (rest, answer) = queued.all().await;
    let stream = Streamed::of([vec![start], rest].concat(), answer);
    assert_eq!((stream.chunks.len(), &stream.answer["result"]["cancelled"]), (0, &json!(true)));
    wire.ok("cancel", json!({"request_id": "first"})).await;
    assert_eq!(running.all().await.1["result"]["cancelled"], true);
    assert_eq!(wire.model().request_count(), 1, "the second never reached the model");
}

async fn what_is_refused_at_once_is_only_answered(wire: &Wire) {
    let params = [json!({"agent_id": "nobody"}), json!({"typo": 1}), json!({"content": 7})];
    for params in params {
        let (notifications, answer) = wire.open(send(1, params)).await.all().await;
        assert_eq!((notifications.len(), &answer["error"]["code"]), (0, &json!(-32602)));
    }
}

async fn streams_of_two_agents_do_not_mix(wire: &Wire) {
    let gate = Gate::new();
    wire.model().set_default(Reply::echo());
    for agent in ["a", "b"] {
        wire.ok("create_agent", json!({"agent_id": agent})).await;
    }
    wire.model().push(Reply::text("held ").then_gate(&gate).then_chunks(["back"; 50]));
    let first = wire.open(send("first", json!({"agent_id": "a"}))).await;
    wire.model().wait_for_requests(1).await;
    // The second begins and ends within the first.
    let second = streamed(wire, "second", json!({"agent_id": "b", "content": "echo"})).await;
    assert_eq!(second.chunks.concat(), "echo");
    gate.release();
    let (notifications, answer) = first.all().await;
    let first = Streamed::of(notifications, answer);
    assert_eq!(first.chunks.concat(), format!("held {}", "back".repeat(50)));
}

#[tokio::test]
async fn over_http_a_stream_needs_the_header() {
    let server = Server::start().await;
    let ask = async |accept: Option<&str>| {
        let request = server.post(send(1, json!({})));
        let request = match accept {
            Some(accept) => request.header("Accept", accept),
            None => request,
        };
        let mut connection = server.http().await;
        connection.write(&request.bytes()).await;
        let head = connection.head().await.unwrap();
        let body = String::from_utf8(connection.body(&head).await).unwrap();
        // The connection is as good as new, whichever it was.
        connection.write(&server.post(send(2, json!({}))).bytes()).await;
        assert_eq!(connection.response().await.answer()["id"], 2);
        (head, body)
    };
    for accept in [None, Some("*/*"), Some("application/json"), Some("text/event-stream;q=0")] {
        let (head, body) = ask(accept).await;
        assert_eq!(head.header("content-type"), Some("application/json"), "{accept:?}");
        assert!(!body.contains("stream_"), "{accept:?}: {body}");
    }
    for accept in ["text/event-stream", "application/json, Text/Event-Stream;q=0.9"] {
        let (head, body) = ask(Some(accept)).await;
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        assert_eq!(head.header("cache-control"), Some("no-store"));
        assert!(body.ends_with("\n\n") && body.contains("stream_end"), "{accept}: {body}");
    }
    // What never became a stream keeps its status.
    let bad = server.post("nope").header("Accept", "text/event-stream");
    assert_eq!(server.ask(bad).await.refusal(), (400, -32700));
    let nobody = server.post(send(1, json!({}))).path("/agent/nobody");
    let response = server.ask(nobody.header("Accept", "text/event-stream")).await;
    assert_eq!(response.refusal(), (404, -32602));
}
