//! The store as its callers see it.

mod approvals;
mod doctor;
mod faults;
mod leases;
mod opening;
mod round_trip;
mod sessions;
mod tails;

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::message::{Message, Meta, Role, SharedMessage};
use nexus_core::permission::Preset;
use nexus_core::store::{AgentRecord, Append, Progress, Store, StoreError};
use nexus_core::{AgentId, TurnId};
use tempfile::TempDir;

use super::SqliteStore;

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn open(home: &TempDir) -> SqliteStore {
    SqliteStore::open(home.path()).unwrap()
}

fn id(name: &str) -> AgentId {
    AgentId::parse(name).unwrap()
}

fn agent(name: &str) -> AgentRecord {
    AgentRecord {
        id: id(name),
        created_at: Timestamp::UNIX_EPOCH,
        parent: None,
        depth: 0,
        permissions: Preset::built_in("sandboxed").unwrap().apply(Path::new("/w"), &[]),
        ceiling: None,
        model: None,
        cwd: "/w".into(),
        system_prompt: None,
        grants: Default::default(),
        progress: Progress::default(),
        message_count: 0,
        last_action_at: None,
    }
}

fn said(text: impl Into<String>) -> SharedMessage {
    let meta = Meta { turn: Some(TurnId::Number(1)), ..Meta::default() };
    Arc::new(Message::new(Role::User, text, meta))
}

fn step(first_index: u64, texts: &[&str]) -> Append {
    let messages = texts.iter().map(|text| said(*text)).collect();
    Append { first_index, messages, progress: Some(Progress::default()) }
}

/// What the store has of an agent's conversation.
async fn texts(store: &SqliteStore, name: &str) -> Vec<String> {
    let stored = store.acquire(&id(name)).await.unwrap().unwrap();
    assert_eq!(stored.record.message_count, stored.messages.len() as u64);
    stored.messages.iter().map(|message| message.content.clone()).collect()
}

async fn names(store: &SqliteStore) -> Vec<String> {
    store.list().await.unwrap().iter().map(|agent| agent.id.to_string()).collect()
}

#[tokio::test]
async fn a_taken_name_is_refused() {
    let home = home();
    let store = open(&home);
    store.create(agent("a")).await.unwrap();
    let again = store.create(agent("a")).await;
    assert!(matches!(again, Err(StoreError::Exists(name)) if name == id("a")));
}

#[tokio::test]
async fn an_unknown_agent_is_none() {
    let home = home();
    assert!(open(&home).acquire(&id("a")).await.unwrap().is_none());
}

#[tokio::test]
async fn agents_are_listed_in_the_order_of_their_creation() {
    let home = home();
    let store = open(&home);
    for name in ["c", "a", "b"] {
        store.create(agent(name)).await.unwrap();
    }
    assert_eq!(names(&store).await, ["c", "a", "b"]);
}

#[tokio::test]
async fn descendants_go_along_whoever_made_them() {
    let home = home();
    let store = open(&home);
    for (name, parent) in [("p", None), ("k", Some("p")), ("g", Some("k")), ("other", None)] {
        store.create(AgentRecord { parent: parent.map(id), ..agent(name) }).await.unwrap();
    }
    assert_eq!(store.destroy(vec![id("p")]).await.unwrap(), [id("p"), id("k"), id("g")]);
    assert_eq!(names(&store).await, ["other"]);
}

#[tokio::test]
async fn destroyed_agents_are_gone_with_all_they_said() {
    let home = home();
    let store = open(&home);
    for name in ["a", "b", "c"] {
        let fence = store.create(agent(name)).await.unwrap();
        store.append(&id(name), fence, step(0, &[name])).await.unwrap();
    }
    store.destroy(vec![id("a"), id("nobody"), id("c")]).await.unwrap();
    assert_eq!(names(&store).await, ["b"]);
    assert!(store.acquire(&id("a")).await.unwrap().is_none());
    let left: i64 = store
        .readers
        .read(|db| Ok(db.query_row("SELECT count(*) FROM messages", [], |row| row.get(0))?))
        .await
        .unwrap();
    assert_eq!(left, 1);
    store.create(agent("a")).await.unwrap();
    assert_eq!(texts(&store, "a").await, [""; 0]);
}

#[tokio::test]
async fn an_append_that_leaves_a_gap_or_overwrites_is_refused() {
    let home = home();
    let store = open(&home);
    let fence = store.create(agent("a")).await.unwrap();
    store.append(&id("a"), fence, step(0, &["0", "1"])).await.unwrap();
    for first_index in [0, 1, 3, u64::MAX] {
        let refused = store.append(&id("a"), fence, step(first_index, &["x"])).await;
        assert!(matches!(refused, Err(StoreError::Failed(_))), "{first_index}");
    }
    store.append(&id("a"), fence, step(2, &["2"])).await.unwrap();
    assert_eq!(texts(&store, "a").await, ["0", "1", "2"]);
}

#[tokio::test]
async fn an_append_is_queued_before_its_future_is_polled() {
    let home = home();
    let store = open(&home);
    let fence = store.create(agent("a")).await.unwrap();
    let first = store.append(&id("a"), fence, step(0, &["0"]));
    let second = store.append(&id("a"), fence, step(1, &["1"]));
    second.await.unwrap();
    drop(first);
    assert_eq!(texts(&store, "a").await, ["0", "1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_from_many_tasks_keep_their_order_and_survive_a_drop() {
    let home = home();
    let store = Arc::new(open(&home));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let store = store.clone();
        tasks.spawn(async move {
            let name = format!("a{task}");
            let fence = store.create(agent(&name)).await.unwrap();
            let mut waiting = Vec::new();
            for index in 0..50 {
                let text = index.to_string();
                waiting.push(store.append(&id(&name), fence, step(index, &[&text])));
            }
            for answer in waiting {
                answer.await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    drop(store);
    let store = open(&home);
    let expected: Vec<_> = (0..50).map(|index| index.to_string()).collect();
    for task in 0..16 {
        assert_eq!(texts(&store, &format!("a{task}")).await, expected);
    }
}
