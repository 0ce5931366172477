//! What this store has beside the contract that every store keeps (`tests/contract.rs`).

mod approvals;
mod blobs;
mod costs;
mod doctor;
mod faults;
mod leases;
mod migration;
mod opening;
mod remembered;
mod round_trip;
mod sessions;
mod tails;

use std::sync::Arc;

use nexus_core::store::{AgentQuery, AgentRecord, AgentStore};
use nexus_testkit::store::sample::{agent, copy, id, said, step};
use tempfile::TempDir;

use super::SqliteStore;

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn open(home: &TempDir) -> SqliteStore {
    SqliteStore::open(home.path()).unwrap()
}

/// What the store has of an agent's conversation.
async fn texts(store: &SqliteStore, name: &str) -> Vec<String> {
    let stored = store.acquire(&id(name)).await.unwrap().unwrap();
    assert_eq!(stored.record.message_count, stored.window.messages.len() as u64);
    stored.window.messages.iter().map(|message| message.text().into_owned()).collect()
}

async fn names(store: &SqliteStore) -> Vec<String> {
    listed(store).await.iter().map(|agent| agent.id.to_string()).collect()
}

/// All agents.
async fn listed(store: &SqliteStore) -> Vec<AgentRecord> {
    let query = AgentQuery { after: None, limit: 1000, line_of: None, working: false };
    let page = store.agents(query).await.unwrap();
    page.agents.into_iter().map(|agent| agent.record).collect()
}

#[tokio::test]
async fn destroyed_agents_are_gone_with_all_they_said() {
    let home = home();
    let store = open(&home);
    for name in ["a", "b", "c"] {
        let lease = store.create(agent(name)).await.unwrap();
        store.append(lease, step(0, &[name])).await.unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_from_many_tasks_keep_their_order_and_survive_a_drop() {
    let home = home();
    let store = Arc::new(open(&home));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let store = store.clone();
        tasks.spawn(async move {
            let name = format!("a{task}");
            let lease = store.create(agent(&name)).await.unwrap();
            let mut waiting = Vec::new();
            for index in 0..50 {
                let text = index.to_string();
                waiting.push(store.append(lease, step(index, &[&text])));
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
