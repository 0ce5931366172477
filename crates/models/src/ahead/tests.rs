//! Whoever hands over goes on, and whoever reads misses nothing.

use std::sync::Weak;

use futures_util::FutureExt as _;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::*;

type Handed = Result<Bytes, &'static str>;

/// A body, and who hands it over one chunk at a time.
fn body() -> (mpsc::Sender<Handed>, Body<&'static str>) {
    let (sender, mut receiver) = mpsc::channel(1);
    (sender, Body::new(stream::poll_fn(move |cx| receiver.poll_recv(cx)).boxed()))
}

fn chunk(text: &'static str) -> Handed {
    Ok(Bytes::from_static(text.as_bytes()))
}

/// What is there without waiting.
fn now(body: &mut Body<&'static str>) -> Option<Result<Option<Bytes>, &'static str>> {
    body.chunk().now_or_never()
}

#[tokio::test]
async fn all_is_taken_while_the_reader_waits() {
    let (sender, mut body) = body();
    assert_eq!(now(&mut body), None);
    for text in ["a", "b", "c"] {
        sender.try_send(chunk(text)).unwrap();
    }
    for text in ["a", "b", "c"] {
        assert_eq!(body.chunk().await, chunk(text).map(Some));
    }
    assert_eq!(now(&mut body), None);
    sender.try_send(chunk("d")).unwrap();
    assert_eq!(body.chunk().await, chunk("d").map(Some));
}

#[tokio::test]
async fn the_end_comes_last_and_stays() {
    let (sender, mut body) = body();
    assert_eq!(now(&mut body), None);
    sender.try_send(chunk("a")).unwrap();
    drop(sender);
    assert_eq!(body.chunk().await, chunk("a").map(Some));
    for _ in 0..2 {
        assert_eq!(body.chunk().await, Ok(None));
    }
}

#[tokio::test]
async fn so_does_a_failure_which_is_told_once() {
    let (sender, mut body) = body();
    assert_eq!(now(&mut body), None);
    sender.try_send(chunk("a")).unwrap();
    sender.try_send(Err("broken")).unwrap();
    assert_eq!(body.chunk().await, chunk("a").map(Some));
    assert_eq!(body.chunk().await, Err("broken"));
    assert_eq!(body.chunk().await, Ok(None));
}

/// Who hands over waits then, until the reader has looked.
#[tokio::test]
async fn so_much_is_taken_and_no_more() {
    let kibibyte = || Ok(Bytes::from(vec![b'x'; 1 << 10]));
    let (sender, mut body) = body();
    assert_eq!(now(&mut body), None);
    // The last of them waits where it was handed over.
    for _ in 0..=AHEAD_BYTES_MAX >> 10 {
        sender.try_send(kibibyte()).unwrap();
    }
    assert!(matches!(sender.try_send(kibibyte()), Err(TrySendError::Full(_))));
    for _ in 0..=AHEAD_BYTES_MAX >> 10 {
        assert_eq!(body.chunk().await, kibibyte().map(Some));
    }
    assert_eq!(now(&mut body), None);
    for _ in 0..10 {
        sender.try_send(kibibyte()).unwrap();
    }
}

/// The connection hears that nobody reads any more, and nothing is left.
#[tokio::test]
async fn a_body_that_is_dropped_is_gone() {
    let (sender, mut body) = body();
    assert_eq!(now(&mut body), None);
    sender.try_send(chunk("a")).unwrap();
    let source: Weak<_> = Arc::downgrade(&body.source);
    drop(body);
    assert!(sender.is_closed());
    assert!(source.upgrade().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_missed_between_threads() {
    const BODIES: u64 = 8;
    const CHUNKS: u64 = 20_000;
    let reading = (0..BODIES).map(|_| {
        let (sender, mut body) = body();
        let handing = tokio::spawn(async move {
            for number in 0..CHUNKS {
                sender.send(Ok(Bytes::copy_from_slice(&number.to_be_bytes()))).await.unwrap();
                if number % 97 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
        tokio::spawn(async move {
            for number in 0..CHUNKS {
                let chunk = body.chunk().await.unwrap().unwrap();
                assert_eq!(chunk[..], number.to_be_bytes());
            }
            assert_eq!(body.chunk().await, Ok(None));
            handing.await.unwrap();
        })
    });
    for read in reading.collect::<Vec<_>>() {
        read.await.unwrap();
    }
}
