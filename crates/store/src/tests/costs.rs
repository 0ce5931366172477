//! What is not done again and again: compiling statements, flushing, reading what nobody asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nexus_core::message::{Message, Meta, Role, SharedMessage};
use nexus_core::store::{AgentStore, Append, ApprovalQuery, Lease, SessionStore};
use rusqlite::hooks::{AuthContext, Authorization};

use super::super::owner::{Owner, SILENCE_MAX};
use super::super::record::{AgentRow, MessageRow};
use super::super::writer::Writer;
use super::super::{agent, approval, clear_up, family, memory, open, session};
use super::{SqliteStore, copy, home, id, open as open_store, said, step};

async fn append(writer: &Writer, lease: Lease, first_index: u64) {
    let rows = vec![MessageRow::encode(&said("x")).unwrap()];
    let work = move |db: &rusqlite::Connection, me: &mut Owner| {
        let progress = Some(Default::default());
        let step = agent::Step { first_index, rows: &rows, progress, bill: None, brief: None };
        agent::append(db, me, lease, &step)
    };
    writer.submit(work).await.unwrap();
}

/// Makes an agent and does with it what else a writer does.
async fn everything_else(writer: &Writer) {
    let work = |db: &rusqlite::Connection, me: &mut Owner| {
        let (record, other) = (super::agent("x"), id("y"));
        let row = AgentRow::encode(&record)?;
        let copied = session::Copy::encode(copy("y"))?;
        let lease = agent::create(db, me, &record.id, &row)?;
        agent::update(db, me, lease, &row.settings)?;
        session::copy(db, &record.id, &copied, true)?;
        session::copy(db, &record.id, &copied, true)?;
        session::load(db, me, &other, Some(&row.settings))?;
        session::rename(db, me, &other, &id("z"))?;
        approval::page(db, me, &ApprovalQuery { limit: 10, ..Default::default() })?;
        let lease = agent::take_lease(db, me, &record.id)?.unwrap();
        session::keep(db, me, lease)?;
        agent::release(db, me, lease)?;
        family::destroy(db, me, std::slice::from_ref(&record.id))?;
        session::delete(db, me, &record.id)?;
        session::delete(db, me, &id("z"))
    };
    writer.submit(work).await.unwrap();
}

/// SQLite asks whether a statement is allowed when it compiles it, and only then.
#[tokio::test]
async fn an_append_compiles_nothing_anew() {
    let home = home();
    let mut opened = open::open(home.path()).unwrap();
    let compiled = Arc::new(AtomicU64::new(0));
    let counter = compiled.clone();
    let count = move |_: AuthContext<'_>| {
        counter.fetch_add(1, Ordering::Relaxed);
        Authorization::Allow
    };
    opened.db.authorizer(Some(count)).unwrap();
    let owner = Owner::new(home.path(), SILENCE_MAX);
    let writer = Writer::start(opened.db, owner, Arc::default(), None).unwrap();
    let create = |db: &rusqlite::Connection, me: &mut Owner| {
        agent::create(db, me, &id("a"), &AgentRow::encode(&super::agent("a"))?)
    };
    let lease = writer.submit(create).await.unwrap();
    append(&writer, lease, 0).await;
    everything_else(&writer).await;
    everything_else(&writer).await;
    append(&writer, lease, 1).await;
    let before = compiled.load(Ordering::Relaxed);
    assert!(before > 0);
    for index in 2..70 {
        everything_else(&writer).await;
        append(&writer, lease, index).await;
    }
    assert_eq!(compiled.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn a_start_flushes_once_for_all_that_were_cut_off() {
    let home = home();
    let store = open_store(&home);
    let later = "2200-01-01T00:00:00Z".parse().unwrap();
    for name in ["a", "b", "c"] {
        let lease = store.create(super::agent(name)).await.unwrap();
        let meta = Meta { at: later, ..Meta::default() };
        let messages = vec![Arc::new(Message::new(Role::User, "x", meta))];
        store.append(lease, Append { messages, ..Append::default() }).await.unwrap();
    }
    drop(store);
    let mut db = open::open(home.path()).unwrap().db;
    let commits = Arc::new(AtomicU64::new(0));
    let counter = commits.clone();
    let count = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        false
    };
    db.commit_hook(Some(count)).unwrap();
    let me = Owner::new(home.path(), SILENCE_MAX);
    clear_up(&db, &me).unwrap();
    assert_eq!(commits.load(Ordering::Relaxed), 1);
    let behind = "SELECT count(*) FROM heads WHERE updated_at < 7000000000000000";
    assert_eq!(db.query_row(behind, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    clear_up(&db, &me).unwrap();
    assert_eq!(commits.load(Ordering::Relaxed), 1, "there was nothing to do");
}

fn summary(covers: usize) -> SharedMessage {
    let meta = Meta { covers: Some(covers), ..Meta::default() };
    Arc::new(Message::new(Role::Summary, "sum", meta))
}

/// What lies before the window is not there at all here, so that reading it would fail.
#[tokio::test]
async fn what_a_summary_stands_for_is_not_read() {
    let home = home();
    let store = open_store(&home);
    let lease = store.create(super::agent("a")).await.unwrap();
    let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    store.append(lease, step(0, &words)).await.unwrap();
    let messages = vec![summary(998)];
    store.append(lease, Append { first_index: 1000, messages, ..Append::default() }).await.unwrap();
    // Of a copy, the summary and what it leaves standing lie in the log it was made from.
    let copy = store.load_copy(&id("a"), copy("b")).await.unwrap().unwrap();
    store.append(copy.lease, step(1001, &["1001"])).await.unwrap();
    let spoil = "DELETE FROM messages WHERE log_id = 1 AND idx < 997";
    store.writer.submit(|db, _| Ok(db.execute(spoil, [])?)).await.unwrap();
    for (name, length) in [("a", 1001), ("b", 1002)] {
        let stored = store.acquire(&id(name)).await.unwrap().unwrap();
        assert_eq!(stored.record.message_count, length);
        assert_eq!(stored.window.first, 997);
        assert_eq!(stored.window.messages.len() as u64, length - 997, "{name}");
        assert_eq!(stored.window.messages[0].text(), "997");
        let some = store.messages(stored.lease.agent, 999, 2, usize::MAX).await.unwrap();
        let some: Vec<_> = some.iter().map(|it| it.text().into_owned()).collect();
        assert_eq!(some, ["999", "sum"]);
    }
    assert!(store.read_session(&id("a")).await.is_err());
}

/// However large the tables are: a page is found where it lies.
#[tokio::test]
async fn pages_are_found_by_indexes() {
    let home = home();
    let store: SqliteStore = open_store(&home);
    let plan = async |sql: &'static str| -> String {
        let read = move |db: &rusqlite::Connection| {
            let mut query = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
            let lines = query.query_map([], |row| row.get::<_, String>(3))?;
            Ok(lines.collect::<rusqlite::Result<Vec<_>>>()?.join("\n"))
        };
        store.readers.read(read).await.unwrap()
    };
    for sql in [
        "SELECT * FROM agents a JOIN heads h ON h.agent_id = a.id WHERE a.saved = 0 ORDER BY a.id LIMIT 9",
        "SELECT * FROM approvals ORDER BY created_at, id LIMIT 9",
    ] {
        let plan = plan(sql).await;
        assert!(plan.contains("USING INDEX") && !plan.contains("TEMP B-TREE"), "{sql}:\n{plan}");
    }
    let children = "SELECT count(*) FROM agents WHERE parent = 'x' AND saved = 0";
    assert!(plan(children).await.contains("COVERING INDEX agents_by_parent"));
}

#[test]
fn the_vectors_of_other_models_are_not_read() {
    let home = home();
    let _store = open_store(&home);
    let db = rusqlite::Connection::open(home.path().join("nexus3.db")).unwrap();
    let explain = format!("EXPLAIN QUERY PLAN {}", memory::VECTORS);
    let mut query = db.prepare(&explain).unwrap();
    let steps = query.query_map((0, "m", 1), |row| row.get::<_, String>("detail")).unwrap();
    let first = steps.map(Result::unwrap).next().unwrap();
    assert!(first.contains("memory_vectors_by_model (model=? AND seq>?)"), "{first}");
}
