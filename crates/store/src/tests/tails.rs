//! How far a conversation has come, which is read off its messages.

use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::message::{Message, Meta, Role, SharedMessage};
use nexus_core::store::{AgentStore, Append, Progress, SessionQuery, SessionStore, StoreError};
use rusqlite::Connection;

use super::super::schema;
use super::{SqliteStore, agent, copy, home, id, listed, open};

/// What was said at the second `at`.
fn said_at(at: i64) -> SharedMessage {
    let meta = Meta { at: Timestamp::from_second(at).unwrap(), ..Meta::default() };
    Arc::new(Message::new(Role::User, at.to_string(), meta))
}

fn step(first_index: u64, ats: &[i64], progress: Option<Progress>) -> Append {
    let messages = ats.iter().copied().map(said_at).collect();
    Append { first_index, messages, progress, ..Append::default() }
}

/// How long each reader of the store says a session is, and the second of its last message.
async fn check(store: &SqliteStore, name: &str, length: u64, last_at: Option<i64>) {
    let expected = (length, last_at);
    let (session, messages) = store.read_session(&id(name)).await.unwrap().unwrap();
    assert_eq!(messages.len() as u64, length, "{name}");
    let saved = session.saved;
    let mut seen = vec![session.record, store.session(&id(name)).await.unwrap().unwrap().record];
    let query = SessionQuery { offset: 0, limit: 50, line_of: None };
    let page = store.sessions(query).await.unwrap().sessions;
    seen.extend(page.into_iter().map(|it| it.record).filter(|it| it.id == id(name)));
    seen.extend(listed(store).await.into_iter().filter(|it| it.id == id(name)));
    assert_eq!(seen.len(), if saved { 3 } else { 4 });
    for record in seen {
        let last_at = record.last_action_at.map(|at| at.as_second());
        assert_eq!((record.message_count, last_at), expected, "{name}");
    }
}

async fn order(store: &SqliteStore) -> Vec<String> {
    let query = SessionQuery { offset: 0, limit: 50, line_of: None };
    let page = store.sessions(query).await.unwrap();
    page.sessions.iter().map(|session| session.record.id.to_string()).collect()
}

/// A second that no clock has reached yet, so that it is the last whenever the test runs.
const LATER: i64 = 9_000_000_000;

#[tokio::test]
async fn a_conversation_is_as_long_as_what_lies_in_its_logs() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    check(&store, "a", 0, None).await;
    store.copy_session(&id("a"), copy("empty"), false).await.unwrap();
    check(&store, "empty", 0, None).await;
    store.append(lease, step(0, &[1, 2], None)).await.unwrap();
    check(&store, "a", 2, Some(2)).await;
    store.copy_session(&id("a"), copy("b"), false).await.unwrap();
    check(&store, "b", 2, Some(2)).await;
    store.append(lease, step(2, &[3], None)).await.unwrap();
    check(&store, "a", 3, Some(3)).await;
    check(&store, "b", 2, Some(2)).await;
    check(&store, "empty", 0, None).await;

    // A copy of a copy in which nothing was said, and one that went on.
    store.copy_session(&id("b"), copy("c"), false).await.unwrap();
    check(&store, "c", 2, Some(2)).await;
    let lease = store.load(&id("c"), None).await.unwrap().unwrap().lease;
    store.append(lease, step(2, &[4, 5], None)).await.unwrap();
    check(&store, "c", 4, Some(5)).await;
    check(&store, "b", 2, Some(2)).await;

    // Without those they came from, and in another process.
    store.delete(&id("a")).await.unwrap();
    store.close().await.unwrap();
    let store = open(&home);
    check(&store, "b", 2, Some(2)).await;
    check(&store, "c", 4, Some(5)).await;
    store.delete(&id("b")).await.unwrap();
    check(&store, "c", 4, Some(5)).await;
}

#[tokio::test]
async fn a_copy_goes_on_where_it_was_made_and_nowhere_else() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    store.append(lease, step(0, &[1, 2], None)).await.unwrap();
    let lease = store.load_copy(&id("a"), copy("b")).await.unwrap().unwrap().lease;
    for (length, refused) in [(2, [0, 1, 3]), (3, [0, 2, 4])] {
        for first_index in refused {
            let append = store.append(lease, step(first_index, &[9], None)).await;
            assert!(matches!(append, Err(StoreError::Failed(_))), "{first_index} of {length}");
        }
        check(&store, "b", length, Some(length as i64)).await;
        store.append(lease, step(length, &[length as i64 + 1], None)).await.unwrap();
    }
    check(&store, "a", 2, Some(2)).await;
}

/// Conversations that take turns, end in between and leave room that others fill: each is read as it was said.
#[tokio::test]
async fn conversations_that_take_turns_stay_apart() {
    let home = home();
    let mut store = open(&home);
    let mut random = fastrand::Rng::with_seed(7);
    let names = ["a", "b", "c"];
    let mut said = [const { Vec::<i64>::new() }; 3];
    for name in names {
        store.create(agent(name)).await.unwrap();
    }
    let mut now = 0;
    for round in 0..60 {
        let at = random.usize(..names.len());
        let name = id(names[at]);
        match round % 12 {
            // Another process goes on.
            5 => {
                store.close().await.unwrap();
                store = open(&home);
            }
            11 => {
                store.delete(&name).await.unwrap();
                store.create(agent(names[at])).await.unwrap();
                said[at].clear();
            }
            _ => {
                let lease = store.acquire(&name).await.unwrap().unwrap().lease;
                let length = random.i64(1..70);
                let ats: Vec<i64> = (now..now + length).collect();
                let first_index = said[at].len() as u64;
                store.append(lease, step(first_index, &ats, None)).await.unwrap();
                said[at].extend(ats);
                now += length;
            }
        }
        for (name, said) in names.iter().zip(&said) {
            check(&store, name, said.len() as u64, said.last().copied()).await;
            let (_, messages) = store.read_session(&id(name)).await.unwrap().unwrap();
            let read: Vec<i64> = messages.iter().map(|it| it.meta.at.as_second()).collect();
            assert_eq!(&read, said, "{name} in round {round}");
        }
    }
    // Two messages at a time, as a turn does it, across the places where a run ends.
    let lease = store.acquire(&id("a")).await.unwrap().unwrap().lease;
    let before = said[0].len() as u64;
    for turn in 0..40 {
        let ats = [now + turn, now + turn];
        store.append(lease, step(before + 2 * turn as u64, &ats, None)).await.unwrap();
        check(&store, "a", before + 2 * turn as u64 + 2, Some(now + turn)).await;
    }
}

#[tokio::test]
async fn an_append_without_progress_leaves_the_head_alone() {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    let halted = Progress {
        halted_at_iteration_limit: true,
        last_iteration_count: 7,
        ..Progress::default()
    };
    store.append(lease, step(0, &[1], Some(halted))).await.unwrap();
    let head = async || -> String {
        let sql = "SELECT format('%d %d %d', halted_at_iteration_limit, last_iteration_count, updated_at) FROM heads";
        store.readers.read(|db| Ok(db.query_row(sql, [], |row| row.get(0))?)).await.unwrap()
    };
    let before = head().await;
    store.append(lease, step(1, &[LATER], None)).await.unwrap();
    assert_eq!(head().await, before);
    let session = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!(session.record.progress, halted);
    assert_eq!(session.updated_at.as_second(), LATER, "what is shown knows the message");
}

#[tokio::test]
async fn a_session_that_was_cut_off_is_where_its_last_message_puts_it() {
    for taken in [false, true] {
        let home = home();
        let store = open(&home);
        let lease = store.create(agent("cut")).await.unwrap();
        store.create(agent("other")).await.unwrap();
        store.append(lease, step(0, &[LATER], None)).await.unwrap();
        assert_eq!(order(&store).await, ["other", "cut"], "the turn runs");
        // As after a `kill -9`: nothing is given back.
        let other = match taken {
            true => {
                store.acquire(&id("cut")).await.unwrap().unwrap();
                store
            }
            false => {
                drop(store);
                open(&home)
            }
        };
        assert_eq!(order(&other).await, ["cut", "other"]);
    }
}

/// The database as it was when the counts lay beside the log.
#[tokio::test]
async fn the_counts_of_an_older_database_are_kept() {
    let home = home();
    let path = home.path().join("nexus3.db");
    let mut db = Connection::open(&path).unwrap();
    schema::migrate(&mut db, &schema::STEPS[..3]).unwrap();
    db.execute_batch(
        r#"INSERT INTO agents (id, name, created_at, depth, permissions, cwd, saved)
           SELECT value ->> 0, value ->> 1, 1000000, 0,
               '{"level":"sandboxed","preset":"sandboxed","read":"anywhere","write":"anywhere","blocked":[],
                 "disabled_tools":[],"network":false,"commands":false,"agents":false}', '/w', value ->> 2
           FROM json_each('[[1,"spoke",0],[2,"silent",0],[4,"copy",1],[5,"went-on",0],[6,"of-a-gone",1]]');
           INSERT INTO heads (agent_id, log_id, message_count, last_action_at, halted_at_iteration_limit,
               last_iteration_count, should_shutdown, owner, fence, updated_at)
           VALUES (1, 1, 3, 13000000, 1, 4, 0, 'gone', 1, 50000000), (2, 2, 0, NULL, 0, 0, 1, NULL, 2, 40000000),
               (4, 4, 2, 12000000, 0, 1, 0, NULL, 0, 30000000), (5, 5, 3, 15000000, 0, 1, 0, NULL, 3, 20000000),
               (6, 6, 1, 16000000, 0, 1, 0, NULL, 0, 10000000);
           INSERT INTO forks VALUES (4, 1, 2), (5, 1, 2), (6, 3, 1);
           INSERT INTO messages (log_id, idx, role, at, content)
           VALUES (1, 0, 'user', 11000000, 'a'), (1, 1, 'assistant', 12000000, 'b'), (1, 2, 'user', 13000000, 'c'),
               (5, 2, 'user', 15000000, 'd'), (3, 0, 'user', 16000000, 'e');
           WITH RECURSIVE more (idx) AS (SELECT 3 UNION ALL SELECT idx + 1 FROM more WHERE idx < 99)
           INSERT INTO messages (log_id, idx, role, at, content)
           SELECT 5, idx, 'user', (13 + idx) * 1000000, 'd' FROM more;"#,
    )
    .unwrap();
    drop(db);
    let store = open(&home);
    let all = [("spoke", 3, Some(13)), ("silent", 0, None), ("copy", 2, Some(12))];
    for (name, length, last_at) in
        all.into_iter().chain([("went-on", 100, Some(112)), ("of-a-gone", 1, Some(16))])
    {
        check(&store, name, length, last_at).await;
    }
    assert_eq!(order(&store).await, ["spoke", "silent", "copy", "went-on", "of-a-gone"]);
    let spoke = store.acquire(&id("spoke")).await.unwrap().unwrap();
    let progress = spoke.record.progress;
    assert_eq!((progress.halted_at_iteration_limit, progress.last_iteration_count), (true, 4));
    store.append(spoke.lease, step(3, &[20], None)).await.unwrap();
    check(&store, "spoke", 4, Some(20)).await;
}
