//! What a call tells while it runs, in the types of the protocol.

use nexus_protocol::answer::{Item, StreamItem, WatchItem};
use nexus_protocol::error::INVALID_PARAMS;
use nexus_protocol::params::NonBlank;
use nexus_protocol::stream::Event as Streamed;
use nexus_protocol::turn::SendParams;
use nexus_protocol::watch::{Event, Unwatch, UnwatchParams, WatchParams};
use nexus_protocol::{Api as _, CallError, Target};
use nexus_server::DirectStream;
use nexus_testkit::{Gate, Reply};

use super::start;
use crate::harness::{eventually, within};

fn say(text: &str) -> SendParams {
    SendParams::new(NonBlank::new(text.to_owned()).unwrap())
}

async fn next<T: Item>(stream: &mut DirectStream<T>) -> T {
    within("an item", stream.next()).await.expect("it goes on").expect("no error")
}

#[tokio::test]
async fn a_turn_is_told_whole_and_in_order() {
    let process = start().await;
    process.make("a").await;
    // Far more than is held for a reader that does not read.
    let pieces: Vec<String> = (0..5_000).map(|number| format!("{number} ")).collect();
    process.world.model.push(Reply::chunks(pieces.clone()).usage(3, 7));
    let mut stream = process.api.send_stream("a", say("count")).unwrap();
    assert!(matches!(next(&mut stream).await, StreamItem::Start { .. }));
    let (mut text, mut output, mut ended) = (String::new(), 0, false);
    let result = loop {
        let item = next(&mut stream).await;
        let raw: serde_json::Value = serde_json::from_slice(stream.raw()).unwrap();
        assert_eq!(raw["jsonrpc"], "2.0");
        match item {
            StreamItem::Text(piece) => text += &piece,
            StreamItem::Event(Streamed::Usage(usage)) => output += usage.output,
            StreamItem::End { .. } => ended = true,
            StreamItem::Done(result) => break result,
            _ => {}
        }
    };
    assert_eq!((text, output, ended), (pieces.concat(), 7, true));
    assert_eq!(result.content, pieces.concat());
    assert!(stream.next().await.is_none());
    process.finish().await;
}

#[tokio::test]
async fn hanging_up_cancels_the_turn() {
    let process = start().await;
    process.make("a").await;
    process.world.model.push(Reply::text("never").held_by(&Gate::new()));
    let mut stream = process.api.send_stream("a", say("x")).unwrap();
    next(&mut stream).await;
    process.world.model.wait_for_requests(1).await;
    // A look that is given up takes nothing away.
    tokio::select! {
        biased;
        item = stream.next() => panic!("{item:?}"),
        () = tokio::task::yield_now() => {}
    }
    drop(stream);
    eventually("the model to be left", async || process.world.model.disconnects() == 1).await;
    process.finish().await;
}

#[tokio::test]
async fn a_refusal_is_an_error_and_the_last_word() {
    let process = start().await;
    let mut stream = process.api.send_stream("nobody", say("x")).unwrap();
    match within("an answer", stream.next()).await {
        Some(Err(CallError::Rpc(error))) => assert_eq!(error.code, INVALID_PARAMS),
        other => panic!("{other:?}"),
    }
    assert!(stream.next().await.is_none());
    process.finish().await;
}

#[tokio::test]
async fn agents_are_watched() {
    let process = start().await;
    process.make("a").await;
    let mut watch = process.api.watch(&WatchParams::default()).unwrap();
    let WatchItem::Event(event) = next(&mut watch).await else { panic!("no event") };
    let Event::Snapshot(snapshot) = event.happened.event else { panic!("no snapshot") };
    assert_eq!(snapshot.agents[0].agent.agent_id, "a");
    process.world.model.push(Reply::text("hello"));
    process.api.for_agent("a").send("x").await.unwrap();
    let mut told = String::new();
    loop {
        let WatchItem::Event(event) = next(&mut watch).await else { panic!("no event") };
        match event.happened.event {
            Event::Delta(piece) => told += &piece.text,
            Event::TurnEnded { status, .. } => {
                break assert_eq!((status.as_str(), told.as_str()), ("done", "hello"));
            }
            _ => {}
        }
    }
    let params = UnwatchParams { watch_id: event.watch_id };
    process.api.call::<Unwatch>(&Target::Server, params).await.unwrap();
    while !matches!(next(&mut watch).await, WatchItem::Done(_)) {}
    assert!(watch.next().await.is_none());
    process.finish().await;
}
