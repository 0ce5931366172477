//! What is attached to messages: kept once, and for as long as a message shows it.

use std::sync::Arc;

use nexus_core::message::{
    Attachment, AttachmentKind, Blob, Message, Meta, Part, Role, SharedMessage, Source,
};
use nexus_core::store::{AgentStore, Append, SessionStore};

use super::{SqliteStore, agent, copy, home, id, open};

fn showing(bytes: &[&[u8]]) -> SharedMessage {
    let attachment = |bytes: &&[u8]| {
        Part::Attachment(Attachment {
            kind: AttachmentKind::Image,
            media_type: "image/png".into(),
            name: Some("a.png".into()),
            source: Source::Blob(Blob::new(*bytes)),
        })
    };
    let parts = bytes.iter().map(attachment).chain([Part::text("look")]);
    Arc::new(Message::of_parts(Role::User, parts.collect(), Meta::default()))
}

fn summary(covers: usize) -> SharedMessage {
    let meta = Meta { covers: Some(covers), ..Meta::default() };
    Arc::new(Message::new(Role::Summary, "sum", meta))
}

fn entry(first_index: u64, messages: Vec<SharedMessage>) -> Append {
    Append { first_index, messages, ..Append::default() }
}

/// The bytes of all that the messages show, as they were read.
fn shown(messages: &[SharedMessage]) -> Vec<Vec<u8>> {
    let bytes = |attachment: &Attachment| match &attachment.source {
        Source::Blob(blob) => blob.bytes.to_vec(),
        Source::Address(url) => url.clone().into(),
    };
    messages.iter().flat_map(|message| message.attachments()).map(bytes).collect()
}

async fn kept(store: &SqliteStore) -> (i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM blobs), (SELECT count(*) FROM blob_uses)";
    let read = move |db: &rusqlite::Connection| {
        Ok(db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
    };
    store.readers.read(read).await.unwrap()
}

#[tokio::test]
async fn bytes_are_kept_once_and_go_with_the_last_message_that_shows_them() {
    let home = home();
    let store = open(&home);
    let a = store.create(agent("a")).await.unwrap();
    store.append(a, entry(0, vec![showing(&[b"one", b"two"]), showing(&[b"one"])])).await.unwrap();
    let b = store.create(agent("b")).await.unwrap();
    store.append(b, entry(0, vec![showing(&[b"two", b"two"])])).await.unwrap();
    assert_eq!(kept(&store).await, (2, 4));
    store.destroy(vec![id("a")]).await.unwrap();
    assert_eq!(kept(&store).await, (1, 1));
    let window = store.acquire(&id("b")).await.unwrap().unwrap().window;
    assert_eq!(shown(&window.messages), [b"two", b"two"]);
    store.destroy(vec![id("b")]).await.unwrap();
    assert_eq!(kept(&store).await, (0, 0));
}

#[tokio::test]
async fn a_copy_keeps_what_it_shows_and_no_more() {
    let home = home();
    let store = open(&home);
    let a = store.create(agent("a")).await.unwrap();
    store.append(a, entry(0, vec![showing(&[b"shared"])])).await.unwrap();
    store.copy_session(&id("a"), copy("b"), false).await.unwrap();
    store.append(a, entry(1, vec![showing(&[b"own"])])).await.unwrap();
    assert_eq!(kept(&store).await, (2, 2));
    store.delete(&id("a")).await.unwrap();
    assert_eq!(kept(&store).await, (1, 1));
    let (_, messages) = store.read_session(&id("b")).await.unwrap().unwrap();
    assert_eq!(shown(&messages), [b"shared"]);
    store.delete(&id("b")).await.unwrap();
    assert_eq!(kept(&store).await, (0, 0));
}

#[tokio::test]
async fn bytes_are_the_same_after_the_store_is_opened_again() {
    let home = home();
    let bytes: Vec<u8> = (0..=255).cycle().take(3_750_000).collect();
    {
        let store = open(&home);
        let lease = store.create(agent("a")).await.unwrap();
        store.append(lease, entry(0, vec![showing(&[&bytes])])).await.unwrap();
        store.close().await.unwrap();
    }
    let store = open(&home);
    let window = store.acquire(&id("a")).await.unwrap().unwrap().window;
    assert_eq!(shown(&window.messages), [bytes]);
}

/// A page of a history, and what stands before a summary, no model sees.
#[tokio::test]
async fn bytes_are_left_in_the_store_where_no_model_sees_them() {
    let home = home();
    let store = open(&home);
    let a = store.create(agent("a")).await.unwrap();
    let said = vec![showing(&[b"old"]), summary(1), showing(&[b"new"])];
    store.append(a, entry(0, said)).await.unwrap();
    let page = store.messages(a.agent, 0, 9, usize::MAX).await.unwrap();
    assert_eq!(shown(&page), [b"", b""]);
    assert!(page.iter().flat_map(|it| it.attachments()).all(|it| it.size() == 3));
    let window = store.acquire(&id("a")).await.unwrap().unwrap().window;
    assert_eq!(shown(&window.messages), [&b""[..], b"new"]);
    // And such a message is not written as if it were whole.
    let b = store.create(agent("b")).await.unwrap();
    assert!(store.append(b, entry(0, vec![page[0].clone()])).await.is_err());
    assert_eq!(kept(&store).await, (2, 2));
}
