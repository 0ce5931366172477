//! An embedder that is slow, refuses or fails, and memories that are gone.

use std::future::pending;

use jiff::{SignedDuration, Timestamp};
use nexus_core::memory::{Identity, Memories};
use nexus_core::store::{IdPrefix, MemoriesStore as _, MemoryRecord};
use nexus_testkit::store::MemoryStore;

use super::*;

/// Memories that a search weighs.
const WEIGHED: u128 = 100;

#[derive(Clone, Copy)]
enum Does {
    Embeds,
    Hangs,
    /// What says so.
    RefusesBad,
    RefusesAll,
}

struct Scripted(Mutex<Does>);

impl Scripted {
    fn new(does: Does) -> Arc<Self> {
        Arc::new(Self(Mutex::new(does)))
    }

    fn now(&self, does: Does) {
        *self.0.lock().unwrap() = does;
    }
}

#[async_trait]
impl Embedder for Scripted {
    fn model_id(&self) -> &'static str {
        "scripted"
    }

    fn dimensions(&self) -> usize {
        2
    }

    /// What is far points elsewhere, and is still near enough to be found.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let does = *self.0.lock().unwrap();
        match does {
            Does::Hangs => pending().await,
            Does::RefusesBad if !texts.iter().any(|text| text.contains("bad")) => {}
            Does::RefusesBad | Does::RefusesAll => return Err(EmbedError::Refused("no".into())),
            Does::Embeds => {}
        }
        let vector =
            |text: &String| if text.contains("far") { vec![0.8, 0.6] } else { vec![1.0, 0.0] };
        Ok(texts.iter().map(vector).collect())
    }
}

/// Waits and rests no longer than a test has to.
const IMPATIENT: Patience = Patience { query: Duration::from_millis(1), rest: Duration::ZERO };

fn meanings(embedder: &Arc<Scripted>) -> (Arc<MemoryStore>, Arc<Meanings>) {
    let store = Arc::new(MemoryStore::new());
    let meanings = Meanings::patient(store.clone(), embedder.clone(), IMPATIENT);
    (store, meanings)
}

fn memory(n: u128, content: &str) -> MemoryRecord {
    MemoryRecord {
        id: MemoryId(n),
        scope: MemoryScope::Global,
        content: content.into(),
        source: "test".into(),
        subjects: Vec::new(),
        created_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
        supersedes: Vec::new(),
    }
}

async fn add(store: &MemoryStore, n: u128, content: &str, expires_at: Option<Timestamp>) {
    let memory = MemoryRecord { expires_at, ..memory(n, content) };
    assert!(store.add_memory(memory, None).await.unwrap().is_some());
}

async fn embed_all(meanings: &Meanings) {
    let mut after = MemoryKey::default();
    while let Some(last) = meanings.embed_some(after).await.unwrap() {
        after = last;
    }
}

async fn near(meanings: &Meanings) -> Vec<MemoryId> {
    let near = meanings.nearest(&[MemoryScope::Global], "question", 9).await;
    near.into_iter().map(|(id, _)| id).collect()
}

#[tokio::test]
async fn a_search_does_not_wait_for_a_slow_embedder() {
    let embedder = Scripted::new(Does::Embeds);
    let (store, meanings) = meanings(&embedder);
    add(&store, 1, "here", None).await;
    embed_all(&meanings).await;
    embedder.now(Does::Hangs);
    assert_eq!(near(&meanings).await, []);
    assert!(meanings.failed.lock().unwrap().is_some());
    embedder.now(Does::Embeds);
    assert_eq!(near(&meanings).await, [MemoryId(1)]);
}

#[tokio::test]
async fn an_embedder_that_refuses_everything_has_failed() {
    let embedder = Scripted::new(Does::RefusesAll);
    let (store, meanings) = meanings(&embedder);
    for count in 1..3 {
        add(&store, count, &format!("here {count}"), None).await;
        let failed = meanings.embed_some(MemoryKey::default()).await;
        assert!(matches!(failed, Err(Failed::RefusesAll(_))), "{failed:?}");
    }
    embedder.now(Does::Embeds);
    embed_all(&meanings).await;
    assert_eq!(near(&meanings).await, [MemoryId(1), MemoryId(2)]);
}

#[tokio::test]
async fn a_text_that_is_refused_costs_itself_alone() {
    let embedder = Scripted::new(Does::RefusesBad);
    let (store, meanings) = meanings(&embedder);
    for (n, content) in [(1, "here"), (2, "bad"), (3, "there")] {
        add(&store, n, content, None).await;
    }
    embed_all(&meanings).await;
    assert_eq!(near(&meanings).await, [MemoryId(1), MemoryId(3)]);
}

#[tokio::test]
async fn memories_that_are_gone_do_not_stand_before_those_that_are_there() {
    let (store, meanings) = meanings(&Scripted::new(Does::Embeds));
    let expired = Timestamp::now() - SignedDuration::from_hours(1);
    for n in 0..WEIGHED {
        // Some expire, some another process deletes.
        let expires_at = (n % 2 == 0).then_some(expired);
        add(&store, n + 1, &format!("here {n}"), expires_at).await;
    }
    add(&store, WEIGHED + 1, "far", None).await;
    embed_all(&meanings).await;
    for n in (1..WEIGHED).step_by(2) {
        let id = MemoryId(n + 1);
        let prefix = IdPrefix { first: id, last: id };
        store.delete_memory(vec![MemoryScope::Global], prefix).await.unwrap();
    }
    let memories = Memories::alone(store);
    memories.find_by(meanings.clone());
    let found = memories.search(&Identity::default(), "question", 5).await.unwrap();
    let found: Vec<&str> = found.iter().map(|found| &*found.memory.content).collect();
    assert_eq!(found, ["far"]);
    assert_eq!(meanings.read().index.len(), 1);
}

#[tokio::test]
async fn what_another_process_removed_is_forgotten() {
    let (store, meanings) = meanings(&Scripted::new(Does::Embeds));
    let elsewhere = Memories::alone(Arc::new(store.neighbour()));
    let (admin, who) = (nexus_core::Requester::Administrator, Identity::default());
    let add = |content: &str| nexus_core::memory::NewMemory {
        content: content.into(),
        source: "test".into(),
        ..nexus_core::memory::NewMemory::default()
    };
    let gone = elsewhere.add(&admin, &who, add("tea")).await.unwrap().id;
    let kept = elsewhere.add(&admin, &who, add("coffee")).await.unwrap().id;
    meanings.embed_some(MemoryKey::default()).await.unwrap();
    let found = async || {
        let scopes = [MemoryScope::Global];
        let mut near: Vec<_> =
            meanings.nearest(&scopes, "x", 9).await.into_iter().map(|it| it.0).collect();
        near.sort();
        near
    };
    let mut both = [gone, kept];
    both.sort();
    assert_eq!(found().await, both);
    assert!(elsewhere.delete(&admin, &who, &gone.to_string()).await.unwrap());
    meanings.forget_gone().await.unwrap();
    assert_eq!(found().await, [kept]);
    let known = meanings.read();
    assert_eq!((known.ids.len(), known.keys.len()), (1, 1));
}

#[tokio::test]
async fn a_sweep_asks_for_some_and_the_next_goes_on() {
    const MANY: u128 = SWEPT_AT_ONCE as u128 + 1;
    let (store, meanings) = meanings(&Scripted::new(Does::Embeds));
    for n in 0..MANY {
        add(&store, n, &format!("here {n}"), None).await;
    }
    embed_all(&meanings).await;
    let delete = async |n: u128| {
        let prefix = IdPrefix { first: MemoryId(n), last: MemoryId(n) };
        store.delete_memory(vec![MemoryScope::Global], prefix).await.unwrap();
    };
    delete(0).await;
    delete(MANY - 1).await;
    let mut left = Vec::new();
    for _ in 0..2 {
        meanings.forget_gone().await.unwrap();
        left.push(meanings.read().index.len());
    }
    delete(1).await;
    meanings.forget_gone().await.unwrap();
    left.push(meanings.read().index.len());
    assert_eq!(left, [SWEPT_AT_ONCE, SWEPT_AT_ONCE - 1, SWEPT_AT_ONCE - 2]);
}

#[tokio::test]
async fn what_comes_back_is_near_again() {
    let (store, meanings) = meanings(&Scripted::new(Does::Embeds));
    let sarah = async |n: u128, content: &str, expires_at| {
        let memory =
            MemoryRecord { subjects: vec!["Sarah".into()], expires_at, ..memory(n, content) };
        store.add_memory(memory, None).await.unwrap();
    };
    let mut after = MemoryKey::default();
    let mut keep_up = async || {
        while let Some(last) = meanings.embed_some(after).await.unwrap() {
            after = last;
        }
        near(&meanings).await
    };
    sarah(1, "Sarah lives in Paris", None).await;
    assert_eq!(keep_up().await, [MemoryId(1)]);
    let long_ago = Timestamp::now() - SignedDuration::from_hours(48);
    sarah(2, "Sarah lives in Rome", Some(long_ago)).await;
    meanings.removed(MemoryId(1));
    assert_eq!(keep_up().await, [MemoryId(2)]);
    let memories = Memories::alone(store.clone());
    memories.find_by(meanings.clone());
    memories.sweep().await.unwrap();
    assert_eq!(keep_up().await, [MemoryId(1)]);
}
