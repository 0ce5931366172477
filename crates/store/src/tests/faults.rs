//! What is answered, and what stays, when something breaks.

use nexus_core::store::{AgentStore, StoreError};

use super::super::fault::Fault;
use super::super::{Commits, Options, Verdict};
use super::{SqliteStore, agent, home, id, names, open, step, texts};

#[tokio::test]
async fn a_panic_costs_the_write_it_happened_in_and_no_other() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    let (before, broken, after) = as_one_group(&store, || {
        (
            store.append(lease, step(0, &["0"])),
            store.writer.submit(|db, _| -> Result<(), Fault> {
                db.execute("DELETE FROM messages", [])?;
                panic!("broken on {}", "purpose")
            }),
            store.append(lease, step(1, &["1"])),
        )
    });
    before.await.unwrap();
    let broken = broken.await;
    assert!(
        matches!(&broken, Err(StoreError::Failed(it)) if it.contains("broken on purpose")),
        "{broken:?}"
    );
    after.await.unwrap();
    assert_eq!(texts(&store, "a").await, ["0", "1"]);
    store.close().await.unwrap();
}

/// Panics in the second commit, and fails the second job by then.
struct Broken;

impl Commits for Broken {
    fn before(&mut self, number: u64) -> Verdict {
        assert_ne!(number, 3);
        Verdict::Commit
    }

    fn after(&mut self, _: u64) {}

    fn fail_job(&mut self, number: u64) -> Option<StoreError> {
        (number == 2).then_some(StoreError::DiskFull)
    }
}

#[tokio::test]
async fn any_write_can_be_made_to_fail_and_the_thread_survives_the_harness() {
    let home = home();
    let options = Options { commits: Some(Box::new(Broken)), ..Options::default() };
    let store = SqliteStore::open_with(home.path(), options).unwrap();
    store.create(agent("a")).await.unwrap();
    assert!(matches!(store.create(agent("refused")).await, Err(StoreError::DiskFull)));
    assert!(matches!(store.create(agent("panicked")).await, Err(StoreError::Failed(_))));
    store.create(agent("b")).await.unwrap();
    assert_eq!(names(&store).await, ["a", "b"]);
}

#[tokio::test]
async fn a_failing_job_leaves_its_neighbours_alone() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    let (before, broken, gap, after) = as_one_group(&store, || {
        (
            store.append(lease, step(0, &["0"])),
            // Writes, and fails afterwards.
            store.writer.submit(|db, _| -> Result<(), Fault> {
                db.execute("DELETE FROM messages", [])?;
                db.execute("UPDATE heads SET fence = 99", [])?;
                Err(Fault::unfit("broken on purpose"))
            }),
            store.append(lease, step(7, &["x"])),
            store.append(lease, step(1, &["1"])),
        )
    });
    before.await.unwrap();
    assert!(matches!(broken.await, Err(StoreError::Failed(_))));
    assert!(matches!(gap.await, Err(StoreError::Failed(_))));
    after.await.unwrap();
    assert_eq!(texts(&store, "a").await, ["0", "1"]);
}

#[tokio::test]
async fn a_failed_commit_is_everybodys_and_leaves_nothing() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    let (good, poison, other) = as_one_group(&store, || {
        (
            store.append(lease, step(0, &["x"])),
            // A foreign key that is looked at only by the commit.
            store.writer.submit(|db, _| {
                db.execute_batch("PRAGMA defer_foreign_keys = ON")?;
                db.execute(
                    "INSERT INTO heads VALUES (99, 99, 0, 0, 0, NULL, 0, 0, NULL, NULL)",
                    [],
                )?;
                Ok(())
            }),
            store.append(lease, step(1, &["x"])),
        )
    });
    assert!(matches!(good.await, Err(StoreError::Failed(_))));
    assert!(matches!(other.await, Err(StoreError::Failed(_))));
    assert!(matches!(poison.await, Err(StoreError::Failed(_))));
    store.append(lease, step(0, &["0"])).await.unwrap();
    assert_eq!(texts(&store, "a").await, ["0"]);
}

/// Fails the second commit, lies about the third and lets the others through.
struct Faulty;

impl Commits for Faulty {
    fn before(&mut self, number: u64) -> Verdict {
        match number {
            2 => Verdict::Fail(StoreError::DiskFull),
            3 => Verdict::Lie,
            _ => Verdict::Commit,
        }
    }

    fn after(&mut self, number: u64) {
        assert_ne!(number, 2);
    }
}

#[tokio::test]
async fn a_commit_that_fails_or_is_forgotten_leaves_nothing_half_written() {
    let home = home();
    let options = Options { commits: Some(Box::new(Faulty)), ..Options::default() };
    let store = SqliteStore::open_with(home.path(), options).unwrap();
    store.create(agent("a")).await.unwrap();
    assert!(matches!(store.create(agent("refused")).await, Err(StoreError::DiskFull)));
    store.create(agent("forgotten")).await.unwrap();
    store.create(agent("b")).await.unwrap();
    assert_eq!(names(&store).await, ["a", "b"]);
}

#[tokio::test]
async fn a_full_disk_is_named_and_survived() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    let limit = |pages: i64| {
        store.writer.submit(move |db, _| {
            Ok(db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?)
        })
    };
    limit(1).await.unwrap();
    let large = "x".repeat(1 << 20);
    let (small, large) = as_one_group(&store, || {
        (store.append(lease, step(0, &["small"])), store.append(lease, step(1, &[&large])))
    });
    assert!(matches!(large.await, Err(StoreError::DiskFull)));
    // Whether the small one survives is SQLite's choice; that the answer is true is ours.
    let kept = match small.await {
        Ok(()) => vec!["small"],
        Err(StoreError::DiskFull) => vec![],
        Err(error) => panic!("{error:?}"),
    };
    limit(1 << 20).await.unwrap();
    assert_eq!(texts(&store, "a").await, kept);
}

#[tokio::test]
async fn a_database_that_became_read_only_is_named() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    store.writer.submit(|db, _| Ok(db.execute_batch("PRAGMA query_only = ON")?)).await.unwrap();
    let refused = store.append(lease, step(0, &["0"])).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly)));
}

#[tokio::test]
async fn a_process_that_stopped_in_the_middle_of_a_write_is_named() {
    let home = home();
    let store = open(&home);
    let impatient = |db: &rusqlite::Connection| db.busy_timeout(std::time::Duration::ZERO);
    store.writer.submit(move |db, _| Ok(impatient(db)?)).await.unwrap();
    let stopped = rusqlite::Connection::open(home.path().join("nexus3.db")).unwrap();
    stopped.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(store.create(agent("a")).await, Err(StoreError::Busy)));
    stopped.execute_batch("ROLLBACK").unwrap();
    store.create(agent("a")).await.unwrap();
}

#[tokio::test]
async fn what_stored_settings_cannot_say_is_an_error() {
    let home = home();
    let store = open(&home);
    store.create(agent("a")).await.unwrap();
    for broken in ["{}", "null", "", r#"{"level":"yolo"}"#] {
        let text = broken.to_owned();
        store
            .writer
            .submit(move |db, _| Ok(db.execute("UPDATE agents SET settings = ?", [text])?))
            .await
            .unwrap();
        let read = store.acquire(&id("a")).await.map(drop);
        assert!(
            matches!(read, Err(StoreError::Failed(detail)) if detail.contains("of a")),
            "{broken}"
        );
        assert!(store.lineage(&id("a")).await.is_err());
    }
}

#[tokio::test]
async fn a_missing_message_is_an_error() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    store.append(lease, step(0, &["0", "1", "2"])).await.unwrap();
    for idx in [1, 0] {
        store
            .writer
            .submit(move |db, _| Ok(db.execute("DELETE FROM messages WHERE idx = ?", [idx])?))
            .await
            .unwrap();
        assert!(matches!(store.acquire(&id("a")).await, Err(StoreError::Failed(_))));
    }
}

/// Runs `queue` while the writer is held back, so that all it queues is committed as one group.
fn as_one_group<T>(store: &SqliteStore, queue: impl FnOnce() -> T) -> T {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (started, at_work) = std::sync::mpsc::channel();
    let gate = store.writer.submit(move |_, _| {
        started.send(()).unwrap();
        wait.recv().ok();
        Ok(())
    });
    at_work.recv().unwrap();
    let queued = queue();
    drop(go);
    drop(gate);
    queued
}
