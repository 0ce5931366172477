//! One agent, several processes.

use std::fs;
use std::time::Duration;

use nexus_core::store::{Fence, Store, StoreError};

use super::super::Options;
use super::{SqliteStore, agent, home, id, names, open, step, texts};

#[tokio::test]
async fn a_fence_of_a_destroyed_agent_does_not_fit_its_namesake() {
    let home = home();
    let store = open(&home);
    let old = store.create(agent("a")).await.unwrap();
    store.destroy(vec![id("a")]).await.unwrap();
    let gone = store.append(&id("a"), old, step(0, &["x"])).await;
    assert!(matches!(gone, Err(StoreError::Unknown(_))));
    store.create(agent("a")).await.unwrap();
    let stale = store.append(&id("a"), old, step(0, &["x"])).await;
    assert!(matches!(stale, Err(StoreError::LeaseLost(_))));
}

#[tokio::test]
async fn acquiring_again_makes_the_older_fence_useless() {
    let home = home();
    let store = open(&home);
    let old = store.create(agent("a")).await.unwrap();
    let new = store.acquire(&id("a")).await.unwrap().unwrap().fence;
    assert!(new > old);
    let lost = store.append(&id("a"), old, step(0, &["x"])).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost(_))));
    store.append(&id("a"), new, step(0, &["0"])).await.unwrap();
}

#[tokio::test]
async fn an_agent_that_lives_elsewhere_is_neither_taken_nor_destroyed() {
    let home = home();
    let (here, there) = (open(&home), open(&home));
    let fence = here.create(agent("a")).await.unwrap();
    there.create(agent("b")).await.unwrap();
    let expected = format!("process {}", std::process::id());
    let held = |outcome| match outcome {
        Err(StoreError::HeldElsewhere { id: name, owner }) => name == id("a") && owner == expected,
        _ => false,
    };
    assert!(held(there.acquire(&id("a")).await.map(drop)));
    assert!(held(there.destroy(vec![id("b"), id("a")]).await.map(drop)));
    assert_eq!(names(&there).await, ["a", "b"]);
    here.append(&id("a"), fence, step(0, &["0"])).await.unwrap();
    // A fence that would fit is worth nothing to another owner.
    let stolen = there.append(&id("a"), fence, step(1, &["x"])).await;
    assert!(matches!(stolen, Err(StoreError::LeaseLost(_))));
}

#[tokio::test]
async fn the_agents_of_a_dead_owner_are_taken_over() {
    let home = home();
    let (dying, heir) = (open(&home), open(&home));
    let fence = dying.create(agent("a")).await.unwrap();
    dying.append(&id("a"), fence, step(0, &["0"])).await.unwrap();
    drop(dying);
    let stored = heir.acquire(&id("a")).await.unwrap().unwrap();
    assert!(stored.fence > fence);
    heir.append(&id("a"), stored.fence, step(1, &["1"])).await.unwrap();
    assert_eq!(texts(&heir, "a").await, ["0", "1"]);
}

/// As it would be for an owner whose lock went away under it: somebody emptied the directory, or the file system lost
/// its locks.
#[tokio::test]
async fn an_owner_that_was_taken_for_dead_cannot_write() {
    let home = home();
    let (paused, heir) = (open(&home), open(&home));
    let fence = paused.create(agent("a")).await.unwrap();
    fs::remove_dir_all(home.path().join("owners")).unwrap();
    let stored = heir.acquire(&id("a")).await.unwrap().unwrap();
    let late = paused.append(&id("a"), fence, step(0, &["late"])).await;
    assert!(matches!(late, Err(StoreError::LeaseLost(_))));
    heir.append(&id("a"), stored.fence, step(0, &["0"])).await.unwrap();
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
    let fence = heir.acquire(&id("taken")).await.unwrap().unwrap().fence;

    for (name, fence) in [("taken", taken), ("left", left)] {
        let late = paused.append(&id(name), fence, step(0, &["late"])).await;
        assert!(matches!(late, Err(StoreError::LeaseLost(_))), "{name}: {late:?}");
    }
    assert!(paused.void_through() >= left);
    let refused = paused.acquire(&id("taken")).await.map(drop);
    assert!(matches!(refused, Err(StoreError::HeldElsewhere { .. })), "{refused:?}");
    let again = paused.acquire(&id("left")).await.unwrap().unwrap().fence;
    assert!(again > paused.void_through());
    paused.append(&id("left"), again, step(0, &["0"])).await.unwrap();
    heir.append(&id("taken"), fence, step(0, &["0"])).await.unwrap();
    assert_eq!(texts(&heir, "taken").await, ["0"]);
}

#[tokio::test]
async fn close_gives_leases_back_and_ends_writing() {
    let home = home();
    let (closing, other) = (open(&home), open(&home));
    let fence = closing.create(agent("a")).await.unwrap();
    let queued = closing.append(&id("a"), fence, step(0, &["0"]));
    closing.close().await.unwrap();
    queued.await.unwrap();
    let late = closing.append(&id("a"), fence, step(1, &["1"])).await;
    assert!(matches!(late, Err(StoreError::Closed)));
    assert!(matches!(closing.list().await, Err(StoreError::Closed)));
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
        let fence = store.create(agent(name)).await.unwrap();
        for index in 0..50 {
            store.append(&id(name), fence, step(index, &["x"])).await.unwrap();
        }
    };
    tokio::join!(write(&stores[0], "a"), write(&stores[1], "b"));
    assert_eq!(names(&stores[0]).await.len(), 2);
}
