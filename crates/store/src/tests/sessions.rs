//! Saved sessions, copies that share their past, and names that change.

use std::collections::BTreeMap;

use nexus_core::AgentId;
use nexus_core::store::{
    AgentRecord, Fence, SessionPage, SessionQuery, SettingsRecord, Store, StoreError,
};
use proptest::prelude::*;
use rusqlite::Connection;

use super::super::schema;
use super::{SqliteStore, agent, home, id, names, open, said, step, texts};

/// An agent that said `words`.
async fn speaking(store: &SqliteStore, name: &str, words: &[&str]) -> Fence {
    let fence = store.create(agent(name)).await.unwrap();
    store.append(&id(name), fence, step(0, words)).await.unwrap();
    fence
}

/// What a session holds, without taking its lease.
async fn said_in(store: &SqliteStore, name: &str) -> Vec<String> {
    let (session, messages) = store.read_session(&id(name)).await.unwrap().unwrap();
    assert_eq!(session.record.message_count, messages.len() as u64);
    messages.iter().map(|message| message.content.clone()).collect()
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
    let fence = speaking(&store, "a", &["0", "1"]).await;
    assert!(store.copy_session(&id("a"), &id("b"), false).await.unwrap());
    assert_eq!(count(&store, "messages").await, 2, "nothing is written twice");
    store.append(&id("a"), fence, step(2, &["2a"])).await.unwrap();
    let loaded = store.load(&id("b"), &id("b"), None).await.unwrap().unwrap();
    store.append(&id("b"), loaded.fence, step(2, &["2b", "3b"])).await.unwrap();
    store.copy_session(&id("b"), &id("c"), false).await.unwrap();
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

#[tokio::test]
async fn a_copy_is_whole_but_its_own() {
    let home = home();
    let store = open(&home);
    store.create(agent("p")).await.unwrap();
    let permissions = agent("x").permissions;
    let mut source = AgentRecord {
        parent: Some(id("p")),
        depth: 3,
        ceiling: Some(permissions.clone()),
        model: Some("m".into()),
        cwd: "/elsewhere".into(),
        system_prompt: Some("Be brief.".into()),
        ..agent("a")
    };
    source.grants.write_paths.insert("/w/out".into());
    source.permissions.disabled_tools.insert("exec".into());
    store.create(source).await.unwrap();
    store.copy_session(&id("a"), &id("b"), false).await.unwrap();
    let [a, b] = ["a", "b"].map(id);
    let a = store.session(&a).await.unwrap().unwrap();
    let b = store.session(&b).await.unwrap().unwrap();
    assert_eq!((a.saved, b.saved), (false, true));
    assert!(b.record.created_at > a.record.created_at);
    let same = AgentRecord { id: id("a"), created_at: a.record.created_at, ..b.record };
    assert_eq!(format!("{same:?}"), format!("{:?}", a.record));
    assert_eq!(b.made_by, Some(id("p")));
}

#[tokio::test]
async fn a_saved_session_is_no_agent_until_it_is_loaded() {
    let home = home();
    let store = open(&home);
    speaking(&store, "a", &["0"]).await;
    store.copy_session(&id("a"), &id("b"), false).await.unwrap();
    assert_eq!(names(&store).await, ["a"]);
    assert!(store.acquire(&id("b")).await.unwrap().is_none());
    assert!(
        matches!(store.create(agent("b")).await, Err(StoreError::Saved(name)) if name == id("b"))
    );
    let taken = store.copy_session(&id("a"), &id("b"), false).await;
    assert!(matches!(taken, Err(StoreError::Saved(_))));
    let settings = SettingsRecord {
        permissions: agent("x").permissions,
        grants: Default::default(),
        model: Some("other".into()),
        cwd: "/there".into(),
        system_prompt: Some("p".into()),
    };
    let loaded = store.load(&id("b"), &id("b"), Some(settings)).await.unwrap().unwrap();
    assert_eq!(loaded.record.model.as_deref(), Some("other"));
    assert_eq!((loaded.messages.len(), names(&store).await.len()), (1, 2));
    let copied = store.load(&id("a"), &id("c"), None).await.unwrap().unwrap();
    store.append(&id("c"), copied.fence, step(1, &["1"])).await.unwrap();
    assert_eq!(texts(&store, "c").await, ["0", "1"]);
    let taken = store.load(&id("a"), &id("b"), None).await;
    assert!(matches!(taken, Err(StoreError::Exists(name)) if name == id("b")));
    assert!(store.load(&id("nobody"), &id("n"), None).await.unwrap().is_none());
}

#[tokio::test]
async fn what_was_saved_by_name_outlives_its_agent_and_its_parent() {
    let home = home();
    let store = open(&home);
    speaking(&store, "p", &["p0"]).await;
    for name in ["k", "kept"] {
        let child = AgentRecord { parent: Some(id("p")), ..agent(name) };
        let fence = store.create(child).await.unwrap();
        store.append(&id(name), fence, step(0, &[name])).await.unwrap();
        if name == "kept" {
            store.keep(&id(name), fence).await.unwrap();
        }
    }
    store.copy_session(&id("k"), &id("copy"), false).await.unwrap();
    assert_eq!(store.destroy(vec![id("p")]).await.unwrap(), ["p", "k", "kept"].map(id));
    assert_eq!(names(&store).await, [""; 0]);
    let mut left = listed(&page(&store, 0, 50, None).await);
    left.sort();
    assert_eq!(left, ["copy", "kept"]);
    for name in ["copy", "kept"] {
        let session = store.session(&id(name)).await.unwrap().unwrap();
        assert_eq!((session.record.parent, session.made_by), (None, Some(id("p"))), "{name}");
    }
    assert_eq!(said_in(&store, "copy").await, ["k"]);
    assert_eq!(store.destroy(vec![id("kept")]).await.unwrap(), [], "it is no agent any more");
    assert_eq!(store.delete(&id("kept")).await.unwrap(), [id("kept")]);
    assert_eq!(store.delete(&id("kept")).await.unwrap(), []);
}

#[tokio::test]
async fn a_later_save_of_the_same_agent_replaces_its_copy() {
    let home = home();
    let store = open(&home);
    let fence = speaking(&store, "a", &["0"]).await;
    store.copy_session(&id("a"), &id("snap"), true).await.unwrap();
    store.append(&id("a"), fence, step(1, &["1"])).await.unwrap();
    store.copy_session(&id("a"), &id("snap"), true).await.unwrap();
    assert_eq!(said_in(&store, "snap").await, ["0", "1"]);
    speaking(&store, "b", &["other"]).await;
    let other = store.copy_session(&id("b"), &id("snap"), true).await;
    assert!(matches!(other, Err(StoreError::Saved(_))), "another's copy");
    store.load(&id("snap"), &id("snap"), None).await.unwrap();
    let live = store.copy_session(&id("a"), &id("snap"), true).await;
    assert!(matches!(live, Err(StoreError::Exists(_))), "somebody works in it");
    store.destroy(vec![id("a")]).await.unwrap();
    assert_eq!(said_in(&store, "snap").await, ["0", "1"]);
}

#[tokio::test]
async fn a_name_changes_in_all_that_refers_to_it_and_the_lease_stays() {
    let home = home();
    let (store, other) = (open(&home), open(&home));
    let fence = speaking(&store, "a", &["0"]).await;
    store.create(AgentRecord { parent: Some(id("a")), ..agent("k") }).await.unwrap();
    let held = other.rename(&id("a"), &id("b")).await;
    assert!(matches!(held, Err(StoreError::HeldElsewhere { .. })));
    assert!(matches!(store.rename(&id("a"), &id("k")).await, Err(StoreError::Exists(_))));
    assert!(store.rename(&id("a"), &id("b")).await.unwrap());
    assert!(!store.rename(&id("a"), &id("b2")).await.unwrap());
    store.append(&id("b"), fence, step(1, &["1"])).await.unwrap();
    assert!(matches!(
        store.append(&id("a"), fence, step(2, &["2"])).await,
        Err(StoreError::Unknown(_))
    ));
    let child = store.session(&id("k")).await.unwrap().unwrap();
    assert_eq!(child.record.parent, Some(id("b")));
    assert_eq!(texts(&store, "b").await, ["0", "1"]);
}

#[tokio::test]
async fn a_temporary_agent_is_settled_with_all_it_said() {
    let home = home();
    let store = open(&home);
    let record = agent("t");
    let fence = store.settle(&id(".1"), record.clone(), vec![said("0"), said("1")]).await.unwrap();
    store.append(&id("t"), fence, step(2, &["2"])).await.unwrap();
    let again = store.settle(&id(".2"), record, Vec::new()).await;
    assert!(matches!(again, Err(StoreError::Exists(_))));
    store.destroy(vec![id("t")]).await.unwrap();
    assert_eq!(said_in(&store, "t").await, ["0", "1", "2"], "it was saved by name");
}

#[tokio::test]
async fn pages_are_of_one_order_and_of_one_line() {
    let home = home();
    let store = open(&home);
    let parents = [("p", None), ("k", Some("p")), ("g", Some("k")), ("q", None), ("r", Some("q"))];
    for (name, parent) in parents {
        let fence =
            store.create(AgentRecord { parent: parent.map(id), ..agent(name) }).await.unwrap();
        store.append(&id(name), fence, step(0, &["x"])).await.unwrap();
    }
    store.copy_session(&id("g"), &id("gc"), false).await.unwrap();
    let all = page(&store, 0, 50, None).await;
    assert_eq!(listed(&all), ["gc", "r", "q", "g", "k", "p"], "the last changed first");
    let middle = page(&store, 2, 3, None).await;
    assert_eq!((middle.total, listed(&middle)), (6, ["q", "g", "k"].map(String::from).to_vec()));
    let beyond = page(&store, u64::MAX, 1, None).await;
    assert_eq!((beyond.total, beyond.sessions.len()), (6, 0));
    let line = page(&store, 0, 50, Some("k")).await;
    assert_eq!((line.total, listed(&line)), (3, ["gc", "g", "k"].map(String::from).to_vec()));
    assert_eq!(page(&store, 0, 50, Some("nobody")).await.total, 0);
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
    store.copy_session(&id("old"), &id("new"), false).await.unwrap();
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
    // What each session holds, and the fence of those that are agents.
    let mut model: BTreeMap<AgentId, (Vec<String>, Option<Fence>)> = BTreeMap::new();
    let mut word = 0;
    for deed in deeds {
        match deed {
            Deed::Create(name) => {
                let name = named(name);
                let made = store.create(AgentRecord { id: name.clone(), ..agent("x") }).await;
                assert_eq!(made.is_ok(), !model.contains_key(&name));
                made.into_iter().for_each(|fence| {
                    model.insert(name.clone(), (Vec::new(), Some(fence)));
                });
            }
            Deed::Say(name, words) => {
                let Some((history, Some(fence))) = model.get_mut(&named(name)) else { continue };
                let texts: Vec<_> =
                    (0..words).map(|n| format!("{}", word + u32::from(n))).collect();
                word += u32::from(words);
                let texts_ref: Vec<_> = texts.iter().map(String::as_str).collect();
                let append = step(history.len() as u64, &texts_ref);
                store.append(&named(name), *fence, append).await.unwrap();
                history.extend(texts);
            }
            Deed::Copy(from, to) => {
                let copied = store.copy_session(&named(from), &named(to), false).await;
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
                let loaded = store.load(&named(from), &named(to), None).await;
                match (model.get(&named(from)).cloned(), model.contains_key(&named(to))) {
                    (None, _) => assert!(loaded.unwrap().is_none()),
                    (Some(_), true) if from != to => drop(loaded.map(|_| ()).unwrap_err()),
                    (Some((history, _)), _) => {
                        let fence = loaded.unwrap().unwrap().fence;
                        model.insert(named(to), (history, Some(fence)));
                    }
                }
            }
            Deed::Rename(from, to) => {
                let renamed = store.rename(&named(from), &named(to)).await;
                match (model.remove(&named(from)), model.contains_key(&named(to)) || from == to) {
                    (None, _) => assert!(!renamed.unwrap()),
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
