//! One agent, several processes.

use std::fs;
use std::time::Duration;

use nexus_core::store::{AgentStore, Fence, StoreError};

use super::super::Options;
use super::{SqliteStore, agent, home, id, names, open, step, texts};

/// As it would be for an owner whose lock went away under it: somebody emptied the directory, or the file system lost
/// its locks.
#[tokio::test]
async fn an_owner_that_was_taken_for_dead_cannot_write() {
    let home = home();
    let (paused, heir) = (open(&home), open(&home));
    let lease = paused.create(agent("a")).await.unwrap();
    fs::remove_dir_all(home.path().join("owners")).unwrap();
    let stored = heir.acquire(&id("a")).await.unwrap().unwrap();
    let late = paused.append(lease, step(0, &["late"])).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)));
    heir.append(stored.lease, step(0, &["0"])).await.unwrap();
    assert_eq!(texts(&heir, "a").await, ["0"]);
}

/// An owner that is paused holds its lock. Here it has not the time to show that it lives.
#[tokio::test]
async fn a_silent_owner_loses_all_its_leases_and_can_take_new_ones() {
    let home = home();
    let paused = open(&home);
    let [taken, left] =
        [paused.create(agent("taken")).await.unwrap(), paused.create(agent("left")).await.unwrap()];
    assert_eq!(paused.void_through(), Fence(0));
    let hasty = Options { silence_max: Duration::ZERO, ..Options::default() };
    let heir = SqliteStore::open_with(home.path(), hasty).unwrap();
    let lease = heir.acquire(&id("taken")).await.unwrap().unwrap().lease;

    for (name, lease) in [("taken", taken), ("left", left)] {
        let late = paused.append(lease, step(0, &["late"])).await;
        assert!(matches!(late, Err(StoreError::LeaseLost)), "{name}: {late:?}");
    }
    assert!(paused.void_through() >= left.fence);
    let refused = paused.acquire(&id("taken")).await.map(drop);
    assert!(matches!(refused, Err(StoreError::HeldElsewhere { .. })), "{refused:?}");
    let again = paused.acquire(&id("left")).await.unwrap().unwrap().lease;
    assert!(again.fence > paused.void_through());
    paused.append(again, step(0, &["0"])).await.unwrap();
    heir.append(lease, step(0, &["0"])).await.unwrap();
    assert_eq!(texts(&heir, "taken").await, ["0"]);
}

#[tokio::test]
async fn close_gives_leases_back_and_ends_writing() {
    let home = home();
    let (closing, other) = (open(&home), open(&home));
    let lease = closing.create(agent("a")).await.unwrap();
    let queued = closing.append(lease, step(0, &["0"]));
    closing.close().await.unwrap();
    queued.await.unwrap();
    let late = closing.append(lease, step(1, &["1"])).await;
    assert!(matches!(late, Err(StoreError::Closed)));
    assert!(matches!(closing.lineage(&id("a")).await, Err(StoreError::Closed)));
    assert!(matches!(closing.close().await, Err(StoreError::Closed)));
    let owned: i64 = other
        .readers
        .read(|db| Ok(db.query_row("SELECT count(owner) FROM heads", [], |row| row.get(0))?))
        .await
        .unwrap();
    assert_eq!(owned, 0);
    assert_eq!(texts(&other, "a").await, ["0"]);
    other.close().await.unwrap();
    assert_eq!(fs::read_dir(home.path().join("owners")).unwrap().count(), 0);
    assert!(!home.path().join("nexus3.db-wal").exists());
}

/// Two processes that append at the same time wait for each other instead of failing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_home_write_side_by_side() {
    let home = home();
    let stores = [open(&home), open(&home)];
    let write = async |store: &SqliteStore, name: &str| {
        let lease = store.create(agent(name)).await.unwrap();
        for index in 0..50 {
            store.append(lease, step(index, &["x"])).await.unwrap();
        }
    };
    tokio::join!(write(&stores[0], "a"), write(&stores[1], "b"));
    assert_eq!(names(&stores[0]).await.len(), 2);
}
