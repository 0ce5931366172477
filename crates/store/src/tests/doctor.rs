//! What can be said of a database that may be damaged, and saved from it.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::plan::{Plan, PlanId, PlanStatus, PlannedTask, TaskRecord, TaskStatus, TaskType};
use nexus_core::store::{
    AgentRecord, AgentStore, Begun, ContextAction, ContextChange, ContextKind, ContextStore as _,
    KeyAgent, KeyRecord, KeyStore as _, Maker, MemoriesStore as _, MemoryId, MemoryQuery,
    MemoryRecord, MemoryScope, PlanRecord, PlanRoom, PlanStore as _, SessionStore,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::super::{Checkup, DoctorError, OpenError, Rows, examine};
use super::{SqliteStore, agent, copy, home, id, names, open, said, step, texts};

/// A home with an agent `a`, a copy of it and a child of it, `long` with many messages, and nothing in its log.
async fn filled() -> TempDir {
    let home = home();
    let store = open(&home);
    let lease = store.create(agent("a")).await.unwrap();
    store.append(lease, step(0, &["0", "1"])).await.unwrap();
    store.copy_session(&id("a"), copy("copy"), false).await.unwrap();
    store.append(lease, step(2, &["2"])).await.unwrap();
    store.keep(lease).await.unwrap();
    let child = AgentRecord {
        parent: Some(id("a")),
        ceiling: Some(agent("x").settings.permissions),
        ..agent("k")
    };
    store.create(child).await.unwrap();
    let lease = store.create(agent("long")).await.unwrap();
    let messages = (0..100).map(|n| said(format!("{n} {}", "x".repeat(100)))).collect();
    let append = nexus_core::store::Append { messages, ..step(0, &[]) };
    store.append(lease, append).await.unwrap();
    store.close().await.unwrap();
    home
}

fn summary(checkup: &Checkup) -> Vec<(String, u64, u64)> {
    let sessions = checkup.sessions.iter();
    sessions.map(|it| (it.name.clone(), it.messages, it.readable)).collect()
}

/// Moves what was saved into a home of its own.
fn opened(file: &Path) -> (TempDir, SqliteStore) {
    let home = home();
    fs::rename(file, home.path().join("nexus3.db")).unwrap();
    let store = open(&home);
    (home, store)
}

#[tokio::test]
async fn a_whole_database_is_whole_and_left_alone() {
    let home = filled().await;
    let path = home.path().join("nexus3.db");
    let before = fs::read(&path).unwrap();
    let file = home.path().join("saved.db");
    let checkup = examine(home.path(), Some(&file)).unwrap();
    assert!(checkup.is_whole(), "{checkup:?}");
    let expected = [("a", 3, 3), ("copy", 2, 2), ("k", 0, 0), ("long", 100, 100)];
    assert_eq!(summary(&checkup), expected.map(|(name, all, read)| (name.to_string(), all, read)));
    assert_eq!(fs::read(&path).unwrap(), before);
    let again = examine(home.path(), Some(&file));
    assert!(matches!(again, Err(DoctorError::Exists(_))), "nothing is overwritten");

    let (_other, saved) = opened(&file);
    assert_eq!(names(&saved).await, ["a", "k", "long"]);
    assert_eq!(texts(&saved, "a").await, ["0", "1", "2"]);
    let (copy, messages) = saved.read_session(&id("copy")).await.unwrap().unwrap();
    assert_eq!((copy.saved, messages.len()), (true, 2));
    let child = saved.session(&id("k")).await.unwrap().unwrap();
    assert_eq!(child.record.parent, Some(id("a")));
    assert!(child.record.ceiling.is_some());
    saved.destroy(vec![id("a")]).await.unwrap();
    assert!(saved.session(&id("a")).await.unwrap().is_some(), "it was saved by name");
}

/// Every page in turn: whatever is spoilt, the rest is told and saved, and nothing panics.
#[tokio::test]
async fn whatever_page_is_spoilt_the_rest_is_saved() {
    let home = filled().await;
    let path = home.path().join("nexus3.db");
    let whole = fs::read(&path).unwrap();
    let pages = whole.len() / 1024;
    let (mut most, mut damaged) = (0, 0);
    for page in 1..pages {
        let mut bytes = whole.clone();
        bytes[page * 1024..(page + 1) * 1024].fill(0x5a);
        fs::write(&path, &bytes).unwrap();
        let file = home.path().join(format!("saved-{page}.db"));
        match examine(home.path(), Some(&file)) {
            Ok(checkup) => {
                damaged += usize::from(!checkup.is_whole());
                most = most.max(checkup.sessions.len());
                let (_other, saved) = opened(&file);
                for (name, _, readable) in summary(&checkup) {
                    let (_, messages) = saved.read_session(&id(&name)).await.unwrap().unwrap();
                    assert_eq!(messages.len() as u64, readable, "page {page}, {name}");
                }
            }
            Err(DoctorError::Open(OpenError::Damaged { .. })) => damaged += 1,
            Err(error) => panic!("page {page}: {error:?}"),
        }
        assert_eq!(fs::read(&path).unwrap(), bytes, "it was left as it is");
    }
    assert_eq!((most, damaged), (4, pages - 1), "each is noticed");
}

#[tokio::test]
async fn a_conversation_is_saved_up_to_what_is_missing() {
    let home = filled().await;
    let path = home.path().join("nexus3.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "DELETE FROM messages WHERE log_id = 4 AND idx = 60;
         UPDATE messages SET role = 'x' WHERE log_id = 1 AND idx = 1;
         UPDATE agents SET settings = '{}' WHERE name = 'k';",
    )
    .unwrap();
    drop(db);
    let file = home.path().join("saved.db");
    let checkup = examine(home.path(), Some(&file)).unwrap();
    let expected = [("a", 3, 1), ("copy", 2, 1), ("long", 100, 60)];
    assert_eq!(summary(&checkup), expected.map(|(name, all, read)| (name.to_string(), all, read)));
    assert_eq!((checkup.unreadable, checkup.is_whole()), (1, false), "no rights, no session");
    let (_other, saved) = opened(&file);
    assert_eq!(texts(&saved, "long").await.len(), 60);
}

#[test]
fn what_is_no_store_of_ours_is_named() {
    let home = home();
    assert!(matches!(examine(home.path(), None), Err(DoctorError::Missing(_))));
    let path = home.path().join("nexus3.db");
    fs::write(&path, "not a database. ".repeat(1000)).unwrap();
    let foreign = examine(home.path(), None);
    assert!(matches!(foreign, Err(DoctorError::Open(OpenError::NotOurs { .. }))), "{foreign:?}");
    fs::remove_file(&path).unwrap();
    drop(SqliteStore::open(home.path()).unwrap());
    let set = |version: u32| {
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "user_version", version).unwrap();
        examine(home.path(), None)
    };
    assert!(matches!(set(1000), Err(DoctorError::Open(OpenError::Newer { .. }))));
    assert!(matches!(set(1), Err(DoctorError::Older { found: 1, .. })));
}

#[tokio::test]
async fn memories_are_saved_too() {
    let home = filled().await;
    let store = open(&home);
    let scopes = vec![MemoryScope::Global, MemoryScope::User("u".into())];
    for (number, content) in
        ["The tea is green", "The tea is black", "Water is wet"].iter().enumerate()
    {
        let memory = MemoryRecord {
            id: MemoryId(number as u128 + 1),
            scope: scopes[number % 2].clone(),
            content: (*content).into(),
            source: "rpc".into(),
            subjects: Vec::new(),
            created_at: jiff::Timestamp::now(),
            expires_at: None,
            supersedes: Vec::new(),
        };
        assert!(store.add_memory(memory, None).await.unwrap().is_some());
    }
    store.close().await.unwrap();
    let file = home.path().join("saved.db");
    let checkup = examine(home.path(), Some(&file)).unwrap();
    assert!(checkup.is_whole(), "{checkup:?}");
    assert_eq!(checkup.memories, Rows { readable: 3, unreadable: 0 });
    let (_home, saved) = opened(&file);
    let query = MemoryQuery { scopes, alive_at: None, limit: 10, bytes_max: 1 << 20 };
    let found = saved.memories(query).await.unwrap();
    let texts: Vec<_> = found.iter().map(|memory| &*memory.content).collect();
    assert_eq!(texts, ["Water is wet", "The tea is black", "The tea is green"]);
    // One whose row is spoilt costs itself.
    let db = Connection::open(home.path().join("nexus3.db")).unwrap();
    db.execute_batch("UPDATE memories SET subjects = 'spoilt' WHERE seq = 2").unwrap();
    let checkup = examine(home.path(), None).unwrap();
    assert!(!checkup.is_whole());
    assert_eq!(checkup.memories, Rows { readable: 2, unreadable: 1 });
}

#[tokio::test]
async fn plans_are_saved_too() {
    let home = filled().await;
    let store = open(&home);
    let ids: Vec<_> = (0..3).map(|_| PlanId::random()).collect();
    for id in &ids {
        let task = |name: &str| PlannedTask {
            id: name.into(),
            kind: TaskType::Analysis,
            description: "look".into(),
            dependencies: Vec::new(),
            priority: 1,
            max_attempts: None,
        };
        let plan = Plan {
            tasks: vec![task("first"), task("second")],
            estimated_time_seconds: 1,
            explanation: String::new(),
        };
        let record = PlanRecord {
            id: id.clone(),
            request: "look".into(),
            plan,
            maker: Maker::Agent(super::id("a"), u64::MAX),
            tree: Some(super::id("a")),
            created_at: jiff::Timestamp::UNIX_EPOCH,
        };
        let room = PlanRoom { count_max: u64::MAX, bytes_max: u64::MAX };
        store.add_plan(record, jiff::Timestamp::UNIX_EPOCH, room).await.unwrap();
    }
    let Some(Begun::Taken(run, _)) =
        store.begin_plan(&ids[0], jiff::Timestamp::UNIX_EPOCH).await.unwrap()
    else {
        panic!("the plan was not begun");
    };
    let done = TaskRecord { status: TaskStatus::Success, attempts: 1, ..TaskRecord::default() };
    store.note_task(&run, "first".into(), done).await.unwrap();
    store.close().await.unwrap();
    let file = home.path().join("saved.db");
    let checkup = examine(home.path(), Some(&file)).unwrap();
    assert!(checkup.is_whole(), "{checkup:?}");
    assert_eq!(checkup.plans, Rows { readable: 3, unreadable: 0 });
    let (_other, saved) = opened(&file);
    let begun = saved.plan(&ids[0]).await.unwrap().unwrap();
    assert_eq!(begun.status, PlanStatus::Interrupted);
    assert_eq!(begun.tasks.len(), 1);
    assert_eq!(begun.tasks[0].1.status, TaskStatus::Success);
    assert_eq!(begun.record.maker, Maker::Agent(super::id("a"), u64::MAX));
    assert_eq!(saved.plan(&ids[1]).await.unwrap().unwrap().status, PlanStatus::Created);
    // One of whose tasks something is spoilt is lost as a whole: what it did would be done again.
    let db = Connection::open(home.path().join("nexus3.db")).unwrap();
    db.execute_batch("UPDATE plan_tasks SET status = 'spoilt'").unwrap();
    let checkup = examine(home.path(), None).unwrap();
    assert!(!checkup.is_whole());
    assert_eq!(checkup.plans, Rows { readable: 2, unreadable: 1 });
}

#[tokio::test]
async fn the_shared_context_is_saved_too() {
    let home = filled().await;
    let store = open(&home);
    let put = |kind, key: &str| ContextChange {
        kind,
        key: key.into(),
        action: ContextAction::Put(serde_json::json!({"of": key})),
        if_version: None,
    };
    let gone = ContextChange { action: ContextAction::Remove, ..put(ContextKind::State, "gone") };
    for change in [
        put(ContextKind::State, "gone"),
        put(ContextKind::State, "goal"),
        put(ContextKind::File, "a.rs"),
        gone,
    ] {
        store.change_context(change).await.unwrap();
    }
    let kept = store.shared_context().await.unwrap();
    store.close().await.unwrap();
    let file = home.path().join("saved.db");
    let checkup = examine(home.path(), Some(&file)).unwrap();
    assert!(checkup.is_whole(), "{checkup:?}");
    assert_eq!(checkup.context, Rows { readable: 2, unreadable: 0 });
    let (_other, saved) = opened(&file);
    assert_eq!(saved.shared_context().await.unwrap(), kept);
    assert_eq!(kept.version, 4);
    // An entry whose row is spoilt costs itself, and without its version the context goes on behind its entries.
    let db = Connection::open(home.path().join("nexus3.db")).unwrap();
    let spoil = "UPDATE context_entries SET value = 'spoilt' WHERE key = 'goal';
                 DELETE FROM context_version";
    db.execute_batch(spoil).unwrap();
    drop(db);
    let checkup = examine(home.path(), Some(&file)).unwrap();
    assert!(!checkup.is_whole());
    assert_eq!(checkup.context, Rows { readable: 1, unreadable: 2 });
    let (_other, saved) = opened(&file);
    let left = saved.shared_context().await.unwrap();
    assert_eq!((left.version, left.entries.len()), (3, 1));
}

#[tokio::test]
async fn keys_are_saved_too_unless_they_are_an_agents() {
    let home = filled().await;
    let store = open(&home);
    let key = |name: &str, agent: Option<KeyAgent>| KeyRecord {
        name: name.into(),
        doors: Vec::new(),
        secret: format!("secret of {name}"),
        methods: Some(vec!["send".into()]),
        agent,
        created_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
    };
    let agent = KeyAgent { id: AgentId::parse("a").unwrap(), born: 1 };
    for key in [key("ci", None), key("of-a", Some(agent)), key("spoilt", None)] {
        store.add_key(key, 10).await.unwrap();
    }
    store.close().await.unwrap();
    let db = Connection::open(home.path().join("nexus3.db")).unwrap();
    db.execute_batch("UPDATE keys SET methods = 'spoilt' WHERE name = 'spoilt'").unwrap();
    drop(db);
    let file = home.path().join("saved.db");
    let checkup = examine(home.path(), Some(&file)).unwrap();
    assert!(!checkup.is_whole());
    assert_eq!(checkup.keys, Rows { readable: 1, unreadable: 1 });
    let (_other, saved) = opened(&file);
    assert!(saved.keys().await.unwrap() == [key("ci", None)]);
}
