//! Saved sessions, copies that share their past, and names that change.

use std::collections::BTreeMap;

use nexus_core::AgentId;
use nexus_core::store::{AgentRecord, AgentStore, Lease, SessionPage, SessionQuery, SessionStore};
use proptest::prelude::*;
use rusqlite::Connection;

use super::super::schema;
use super::{SqliteStore, agent, copy, home, id, open, step};

/// An agent that said `words`.
async fn speaking(store: &SqliteStore, name: &str, words: &[&str]) -> Lease {
    let lease = store.create(agent(name)).await.unwrap();
    store.append(lease, step(0, words)).await.unwrap();
    lease
}

/// What a session holds, without taking its lease.
async fn said_in(store: &SqliteStore, name: &str) -> Vec<String> {
    let (session, messages) = store.read_session(&id(name)).await.unwrap().unwrap();
    assert_eq!(session.record.message_count, messages.len() as u64);
    messages.iter().map(|message| message.text().into_owned()).collect()
}

async fn page(store: &SqliteStore, offset: u64, limit: u32, line_of: Option<&str>) -> SessionPage {
    let query = SessionQuery { offset, limit, line_of: line_of.map(id) };
    store.sessions(query).await.unwrap()
}

fn listed(page: &SessionPage) -> Vec<String> {
    page.sessions.iter().map(|session| session.record.id.to_string()).collect()
}

async fn count(store: &SqliteStore, table: &'static str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    store.readers.read(move |db| Ok(db.query_row(&sql, [], |row| row.get(0))?)).await.unwrap()
}

#[tokio::test]
async fn a_copy_shares_its_past_and_goes_its_own_way() {
    let home = home();
    let store = open(&home);
    let lease = speaking(&store, "a", &["0", "1"]).await;
    assert!(store.copy_session(&id("a"), copy("b"), false).await.unwrap());
    assert_eq!(count(&store, "messages").await, 2, "nothing is written twice");
    store.append(lease, step(2, &["2a"])).await.unwrap();
    let loaded = store.load(&id("b"), None).await.unwrap().unwrap();
    store.append(loaded.lease, step(2, &["2b", "3b"])).await.unwrap();
    store.copy_session(&id("b"), copy("c"), false).await.unwrap();
    assert_eq!(said_in(&store, "a").await, ["0", "1", "2a"]);
    assert_eq!(said_in(&store, "b").await, ["0", "1", "2b", "3b"]);
    assert_eq!(said_in(&store, "c").await, ["0", "1", "2b", "3b"]);
    // In any order: what is left is whole, and what nobody has is gone.
    store.delete(&id("a")).await.unwrap();
    assert_eq!(count(&store, "messages").await, 4);
    store.delete(&id("b")).await.unwrap();
    assert_eq!(said_in(&store, "c").await, ["0", "1", "2b", "3b"]);
    store.delete(&id("c")).await.unwrap();
    assert_eq!((count(&store, "messages").await, count(&store, "forks").await), (0, 0));
}

/// The database as it was before there were sessions.
#[tokio::test]
async fn an_older_database_is_brought_up_to_date() {
    let home = home();
    let path = home.path().join("nexus3.db");
    let mut db = Connection::open(&path).unwrap();
    schema::migrate(&mut db, &schema::STEPS[..2]).unwrap();
    db.execute_batch(
        r#"INSERT INTO agents VALUES (7, 'old', 1000000, NULL, 0,
               '{"level":"sandboxed","preset":"sandboxed","read":"anywhere","write":"anywhere","blocked":[],
                 "disabled_tools":[],"network":false,"commands":false,"agents":false}',
               NULL, NULL, '/w', NULL, NULL);
           INSERT INTO heads VALUES (7, 7, 2, 5000000, 0, 1, 0, NULL, 1);
           INSERT INTO messages VALUES (7, 0, 'user', 0, 'hi', NULL), (7, 1, 'assistant', 0, 'ho', NULL);"#,
    )
    .unwrap();
    drop(db);
    let store = open(&home);
    let all = page(&store, 0, 50, None).await;
    assert_eq!(listed(&all), ["old"]);
    assert_eq!(all.sessions[0].updated_at.as_second(), 5);
    store.copy_session(&id("old"), copy("new"), false).await.unwrap();
    store.delete(&id("old")).await.unwrap();
    assert_eq!(said_in(&store, "new").await, ["hi", "ho"]);
}

/// One thing that can happen to sessions; they are named by their numbers.
#[derive(Clone, Debug)]
enum Deed {
    Create(u8),
    Say(u8, u8),
    Copy(u8, u8),
    Load(u8, u8),
    Rename(u8, u8),
    Delete(u8),
    Destroy(u8),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let name = || 0..6_u8;
    let deed = prop_oneof![
        2 => name().prop_map(Deed::Create),
        4 => (name(), 1..4_u8).prop_map(|(name, words)| Deed::Say(name, words)),
        4 => (name(), name()).prop_map(|(from, to)| Deed::Copy(from, to)),
        3 => (name(), name()).prop_map(|(from, to)| Deed::Load(from, to)),
        1 => (name(), name()).prop_map(|(from, to)| Deed::Rename(from, to)),
        2 => name().prop_map(Deed::Delete),
        1 => name().prop_map(Deed::Destroy),
    ];
    prop::collection::vec(deed, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However sessions are copied, go on and are deleted: each has exactly what was said in it, and no message lies
    /// there that nobody has.
    #[test]
    fn no_session_loses_or_gains_a_message(deeds in deeds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(hold_to_the_model(deeds));
    }
}

async fn hold_to_the_model(deeds: Vec<Deed>) {
    let home = home();
    let store = open(&home);
    let named = |number: u8| id(&format!("s{number}"));
    // What each session holds, and the lease of those that are agents.
    let mut model: BTreeMap<AgentId, (Vec<String>, Option<Lease>)> = BTreeMap::new();
    let mut word = 0;
    for deed in deeds {
        match deed {
            Deed::Create(name) => {
                let name = named(name);
                let made = store.create(AgentRecord { id: name.clone(), ..agent("x") }).await;
                assert_eq!(made.is_ok(), !model.contains_key(&name));
                made.into_iter().for_each(|lease| {
                    model.insert(name.clone(), (Vec::new(), Some(lease)));
                });
            }
            Deed::Say(name, words) => {
                let Some((history, Some(lease))) = model.get_mut(&named(name)) else { continue };
                let texts: Vec<_> =
                    (0..words).map(|n| format!("{}", word + u32::from(n))).collect();
                word += u32::from(words);
                let texts_ref: Vec<_> = texts.iter().map(String::as_str).collect();
                let append = step(history.len() as u64, &texts_ref);
                store.append(*lease, append).await.unwrap();
                history.extend(texts);
            }
            Deed::Copy(from, to) => {
                let copied =
                    store.copy_session(&named(from), copy(named(to).as_str()), false).await;
                match (model.get(&named(from)).cloned(), model.contains_key(&named(to))) {
                    (None, _) => assert!(!copied.unwrap()),
                    (Some(_), true) => drop(copied.unwrap_err()),
                    (Some((history, _)), false) => {
                        assert!(copied.unwrap());
                        model.insert(named(to), (history, None));
                    }
                }
            }
            Deed::Load(from, to) => {
                let loaded = match from == to {
                    true => store.load(&named(from), None).await,
                    false => store.load_copy(&named(from), copy(named(to).as_str())).await,
                };
                match (model.get(&named(from)).cloned(), model.contains_key(&named(to))) {
                    (None, _) => assert!(loaded.unwrap().is_none()),
                    (Some(_), true) if from != to => drop(loaded.map(|_| ()).unwrap_err()),
                    (Some((history, _)), _) => {
                        let lease = loaded.unwrap().unwrap().lease;
                        model.insert(named(to), (history, Some(lease)));
                    }
                }
            }
            Deed::Rename(from, to) => {
                let renamed = store.rename(&named(from), &named(to)).await;
                match (model.remove(&named(from)), model.contains_key(&named(to)) || from == to) {
                    (None, _) => assert!(renamed.unwrap().is_none()),
                    (Some(kept), true) => {
                        renamed.unwrap_err();
                        model.insert(named(from), kept);
                    }
                    (Some(moved), false) => drop(model.insert(named(to), moved)),
                }
            }
            Deed::Delete(name) => {
                let gone = store.delete(&named(name)).await.unwrap();
                assert_eq!(gone.is_empty(), model.remove(&named(name)).is_none());
            }
            Deed::Destroy(name) => {
                store.destroy(vec![named(name)]).await.unwrap();
                if let Some((_, Some(_))) = model.get(&named(name)) {
                    // A copy that became an agent was saved by name before that.
                    match store.session(&named(name)).await.unwrap() {
                        Some(session) => {
                            assert!(session.saved);
                            model.get_mut(&named(name)).unwrap().1 = None;
                        }
                        None => drop(model.remove(&named(name))),
                    }
                }
            }
        }
        for (name, (history, _)) in &model {
            assert_eq!(&said_in(&store, name.as_str()).await, history, "{name}");
        }
    }
    let distinct: std::collections::BTreeSet<_> =
        model.values().flat_map(|(history, _)| history).collect();
    assert_eq!(count(&store, "messages").await, distinct.len() as i64);
    for name in model.keys() {
        store.delete(name).await.unwrap();
    }
    assert_eq!((count(&store, "messages").await, count(&store, "forks").await), (0, 0));
}
