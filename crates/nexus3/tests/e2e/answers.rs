//! What answers may cost: pages that end by their bytes, batches that share their room, readers that do not read.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Setup, Wire, eventually};

const MIB: usize = 1024 * 1024;

/// What the messages of a page may be.
const PAGE_BYTES_MAX: usize = 4 * MIB;

/// A model that sees everything. Next to nothing is kept to the letter when that is summarised.
fn wide() -> Setup {
    Setup::new()
        .provider_keys(json!({"models": {"scripted": {"context_window": 10_000_000}}}))
        .config(json!({"compaction": {"recent_preserve_ratio": 0.01}}))
}

over_every_wire! {
    a_page_ends_by_its_bytes: wide(),
    a_page_holds_one_message_whatever_its_size: wide(),
}

/// Says things that are 900 kB each in JSON, and a sixth of that without it.
async fn say(wire: &Wire, messages: usize) {
    for _ in 0..messages {
        wire.ok("send", json!({"content": "\u{1}".repeat(150_000)})).await;
    }
}

async fn a_page_ends_by_its_bytes(wire: &Wire) {
    say(wire, 6).await;
    // What a summary stands for is read from the store, the rest from memory.
    wire.ok("compact", json!({})).await;
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let page = wire.ok("get_messages", json!({"offset": seen.len(), "limit": 2000})).await;
        let messages = page["messages"].as_array().unwrap();
        assert!(
            messages.iter().map(|it| it.to_string().len() + 1).sum::<usize>() <= PAGE_BYTES_MAX
        );
        assert_eq!(
            (&page["total"], page["offset"].as_u64()),
            (&json!(13), Some(seen.len() as u64))
        );
        seen.extend(messages.iter().map(|message| message["index"].as_u64().unwrap()));
        pages += 1;
        if seen.len() as u64 == page["total"] {
            break;
        }
        assert!(!messages.is_empty(), "the next page begins where this one ends");
    }
    assert_eq!((seen, pages), ((0..13).collect(), 2));
}

async fn a_page_holds_one_message_whatever_its_size(wire: &Wire) {
    // Each of these is six bytes in JSON.
    wire.model().push(Reply::chunks(vec!["\u{1}".repeat(MIB / 8); 8]));
    wire.ok("send", json!({"content": "x"})).await;
    let offsets = [(0, 1), (1, 1), (2, 0)];
    for (offset, expected) in offsets {
        let page = wire.ok("get_messages", json!({"offset": offset})).await;
        assert_eq!(page["messages"].as_array().unwrap().len(), expected, "from {offset}");
    }
    assert!(wire.ok("get_messages", json!({"offset": 1})).await.to_string().len() > PAGE_BYTES_MAX);
}

/// A hundred pages of a conversation that is in the store.
fn hundred_pages() -> String {
    let calls: Vec<_> = (0..100).map(|id| request(id, "get_messages", json!({}))).collect();
    format!("[{}]", calls.join(","))
}

#[tokio::test]
async fn a_batch_of_pages_has_the_room_of_one_answer() {
    let server = wide().start().await;
    say(&server.wire(), 6).await;
    server.wire().ok("compact", json!({})).await;
    let before = server.memory_peak_bytes();
    let response = server.ask(server.post(hundred_pages())).await;
    assert_eq!(response.status, 200);
    assert!(response.body.len() <= 16 * MIB);
    let answers = response.answer();
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 100);
    let errors: Vec<&Value> = answers.iter().filter_map(|answer| answer.get("error")).collect();
    assert!(!errors.is_empty() && errors.len() < 98, "{}", errors.len());
    for error in &errors {
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("larger than"), "{message}");
    }
    // Those that could have no answer were not even asked.
    let last = errors[errors.len() - 1];
    assert_eq!(
        (&last["code"], &last["data"]["details"]),
        (&json!(-32001), &json!("This call was not run."))
    );
    let grown = server.memory_peak_bytes().saturating_sub(before);
    assert!(grown < 160 * MIB, "{grown} bytes for one request");
}

#[tokio::test]
async fn readers_that_do_not_read_hold_only_so_much() {
    let bytes_max = 32 * MIB;
    let limits = json!({"body_bytes_max": bytes_max, "answer_bytes_max": bytes_max});
    let server = Setup::new().server(limits).start().await;
    // The id is echoed, so its length decides that of the answer.
    let large = || server.post(request("x".repeat(20 * MIB), "rpc.version", json!({})));
    let before = server.memory_peak_bytes();
    let mut slow = Vec::new();
    let refused = loop {
        let mut connection = server.http().await;
        connection.write_some(&large().bytes()).await;
        let head = connection.head().await.unwrap();
        if head.status == 503 {
            break connection.body(&head).await;
        }
        assert!(slow.len() < 20, "nobody is refused");
        slow.push(connection);
    };
    let refused: Value = serde_json::from_slice(&refused).unwrap();
    let details = refused["error"]["data"]["details"].as_str().unwrap();
    assert!(details.contains("are together 268435456 bytes already"), "{details}");
    let grown = server.memory_peak_bytes().saturating_sub(before);
    assert!(grown < 600 * MIB, "{grown} bytes for {} who do not read", slow.len());

    // What is small is answered as ever, and what was given up makes room.
    server.wire().ok("get_context", json!({})).await;
    drop(slow);
    eventually("room for a large answer", async || server.ask(large()).await.status == 200).await;
}

/// The same on a connection with many calls, each of which may be large.
#[tokio::test]
async fn answers_on_one_connection_come_in_order_however_large() {
    let server: Server = wide().start().await;
    say(&server.wire(), 6).await;
    let mut connection = server.unix().await;
    for id in 0..8 {
        connection.send(request(id, "get_messages", json!({})).as_bytes()).await;
    }
    for id in 0..8 {
        let answer = connection.message().await;
        assert_eq!(
            (&answer["id"], answer["result"]["messages"].as_array().unwrap().len()),
            (&json!(id), 8)
        );
    }
}
