//! Readers of a stream who go away or fall behind.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{Streamed, send};
use crate::harness::wire::{Transport, run};
use crate::harness::{Framed, Setup, Wire, check, eventually};

// On stdio nobody can hang up on one stream: the end of the input is in `stdio`.

#[tokio::test]
async fn who_hangs_up_cancels_the_turn_over_http() {
    run(Transport::Http, Setup::new(), hanging_up).await;
}

#[tokio::test]
async fn who_hangs_up_cancels_the_turn_over_the_socket() {
    run(Transport::Unix, Setup::new(), hanging_up).await;
}

#[tokio::test]
async fn who_hangs_up_cancels_the_turn_in_memory() {
    run(Transport::Memory, Setup::new(), hanging_up).await;
}

async fn hanging_up(wire: &Wire) {
    wire.model().push(Reply::text("so far").then_hang());
    let mut exchange = wire.open(send(1, json!({}))).await;
    while exchange.next().await.unwrap()["method"] != "stream_data" {}
    drop(exchange);
    wire.model().wait_for_disconnects(1).await;
    eventually("the partial text in the history", async || {
        let history = wire.ok("get_messages", json!({})).await;
        let said = &history["messages"][1];
        said["content"] == "so far" && said["meta"]["interrupted"] == true
    })
    .await;
}

#[tokio::test]
async fn who_hangs_up_on_a_plain_send_cancels_nothing_over_the_socket() {
    run(Transport::Unix, Setup::new(), hanging_up_on_a_plain_send).await;
}

#[tokio::test]
async fn who_hangs_up_on_a_plain_send_cancels_nothing_over_http() {
    run(Transport::Http, Setup::new(), hanging_up_on_a_plain_send).await;
}

#[tokio::test]
async fn who_hangs_up_on_a_plain_send_cancels_nothing_in_memory() {
    run(Transport::Memory, Setup::new(), hanging_up_on_a_plain_send).await;
}

async fn hanging_up_on_a_plain_send(wire: &Wire) {
    let gate = nexus_testkit::Gate::new();
    wire.model().push(Reply::text("to the end").held_by(&gate));
    let message = send(1, json!({"stream": false}));
    {
        // Over HTTP an exchange opens with the head of the response, which is still to come.
        let opening = wire.open(&message);
        tokio::pin!(opening);
        let _open = tokio::select! {
            exchange = &mut opening => Some(exchange),
            () = wire.model().wait_for_requests(1) => None,
        };
        wire.model().wait_for_requests(1).await;
    }
    gate.release();
    eventually("the whole text in the history", async || {
        let history = wire.ok("get_messages", json!({})).await;
        let said = &history["messages"][1];
        said["content"] == "to the end" && said["meta"].get("interrupted").is_none()
    })
    .await;
    assert_eq!(wire.model().disconnects(), 0);
}

/// More than the server keeps for a reader who does not read. The characters of a chunk have six bytes on the wire: what
/// TCP keeps for a connection is megabytes. In the history it just fits into an answer.
const CHUNKS: usize = 1800;
const CHUNK: usize = 1500;

fn flood() -> Reply {
    Reply::chunks(vec!["\u{1}".repeat(CHUNK); CHUNKS])
}

async fn in_the_history(wire: &Wire) {
    eventually("the whole text in the history", async || {
        let count = wire.ok("get_context", json!({})).await["message_count"].clone();
        count == 2
    })
    .await;
    // It has a page of its own.
    let history = wire.ok("get_messages", json!({"offset": 1})).await;
    let said = &history["messages"][0];
    assert_eq!(said["content"].as_str().unwrap().len(), CHUNK * CHUNKS);
    assert!(said["meta"].get("interrupted").is_none(), "the turn went on");
}

#[tokio::test]
async fn who_reads_too_slowly_loses_the_stream_and_not_the_turn_over_http() {
    run(Transport::Http, Setup::new(), reading_too_slowly).await;
}

#[tokio::test]
async fn who_reads_too_slowly_loses_the_stream_and_not_the_turn_in_memory() {
    run(Transport::Memory, Setup::new(), reading_too_slowly).await;
}

async fn reading_too_slowly(wire: &Wire) {
    wire.model().push(flood());
    let exchange = wire.open(send("slow", json!({}))).await;
    in_the_history(wire).await;
    let (notifications, answer) = exchange.all().await;
    check_overrun(notifications, answer);
}

fn check_overrun(notifications: Vec<Value>, answer: Value) {
    let stream = Streamed::of(notifications, answer);
    assert!(!stream.chunks.is_empty() && stream.chunks.len() < CHUNKS, "{}", stream.chunks.len());
    assert_eq!(stream.answer["error"]["code"], -32001, "{}", stream.answer);
}

#[tokio::test]
async fn who_reads_too_slowly_loses_the_stream_and_not_the_turn_over_the_socket() {
    let server = Setup::new().start().await;
    server.model().push(flood());
    let mut connection = server.unix().await;
    connection.send(send("slow", json!({})).as_bytes()).await;
    in_the_history(&server.wire()).await;
    let mut notifications = Vec::new();
    let answer = loop {
        let message = connection.message().await;
        if message.get("method").is_none() {
            break message;
        }
        notifications.push(message);
    };
    check_overrun(notifications, answer);
    connection.send(send("again", json!({"stream": false})).as_bytes()).await;
    assert_eq!(connection.message().await["id"], "again");
}

#[tokio::test]
async fn who_reads_too_slowly_loses_the_stream_and_not_the_turn_on_stdio() {
    let mut stdio = Setup::new().socket("other.sock").stdio().await;
    stdio.model().push(flood());
    stdio.send(send("slow", json!({}))).await;
    stdio.model().wait_for_requests(1).await;
    eventually("the whole text in the history", async || {
        let mut other = Framed::connect(&stdio.world.path("other.sock")).await;
        other.send(br#"{"jsonrpc":"2.0","method":"get_context","id":1}"#).await;
        other.message().await["result"]["message_count"] == 2
    })
    .await;
    let mut notifications = Vec::new();
    let answer = loop {
        let message = check::message(&stdio.line().await.unwrap());
        if message.get("method").is_none() {
            break message;
        }
        notifications.push(message);
    };
    check_overrun(notifications, answer);
    assert_eq!(stdio.finish().await.1.code(), Some(0));
}
