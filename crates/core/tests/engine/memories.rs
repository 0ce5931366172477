//! Memories that are found by what they mean: what went without a word does not stand before what is there. And how many
//! agents may keep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use nexus_core::fuse::FUSED_DEPTH;
use nexus_core::memory::{
    CONTENT_BYTES_MAX, Identity, Meaning, Memories, MemoryError, NewMemory, SCOPE_BYTES_MAX,
};
use nexus_core::store::{MemoriesStore as _, MemoryId, MemoryRecord, MemoryScope, StoreError};
use nexus_core::{AgentId, Requester};
use nexus_testkit::store::MemoryStore;

use crate::fakes::ADMIN;

/// Finds all it knows, in its order.
#[derive(Default)]
struct Index {
    known: Mutex<Vec<MemoryId>>,
    looks: AtomicUsize,
    /// How often it finds something; it fails then.
    looks_max: Option<usize>,
    additions: AtomicUsize,
}

#[async_trait]
impl Meaning for Index {
    async fn nearest(&self, _: &[MemoryScope], _: &str, limit: usize) -> Vec<(MemoryId, f32)> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        if self.looks_max.is_some_and(|most| looks >= most) {
            return Vec::new();
        }
        self.known.lock().unwrap().iter().take(limit).map(|id| (*id, 0.9)).collect()
    }

    fn added(&self) {
        self.additions.fetch_add(1, Ordering::Relaxed);
    }

    fn removed(&self, id: MemoryId) {
        self.known.lock().unwrap().retain(|known| *known != id);
    }

    async fn forget_gone(&self) -> Result<(), StoreError> {
        self.known.lock().unwrap().clear();
        Ok(())
    }
}

fn about(subject: &str, content: &str, expires_days: Option<f64>) -> NewMemory {
    let (content, subjects) = (content.to_owned(), vec![subject.to_owned()]);
    NewMemory { content, source: "test".into(), expires_days, subjects, ..NewMemory::default() }
}

/// Memories of one that is kept and so many that are gone, which the index has first.
async fn with_gone(gone: u32, looks_max: Option<usize>) -> (Memories, Arc<Index>, MemoryId) {
    let memories = Memories::alone(Arc::new(MemoryStore::new()));
    let index = Arc::new(Index { looks_max, ..Index::default() });
    memories.find_by(index.clone());
    let new = about("tea", "tea", None);
    let kept = memories.add(&ADMIN, &Identity::default(), new).await.unwrap().id;
    // They went with their agents or by the hand of another process.
    let gone = (0..u128::from(gone)).map(MemoryId);
    *index.known.lock().unwrap() = gone.chain([kept]).collect();
    (memories, index, kept)
}

async fn found(memories: &Memories) -> Vec<MemoryId> {
    let found = memories.search(&Identity::default(), "a hot drink", 5).await.unwrap();
    found.into_iter().map(|found| found.memory.id).collect()
}

#[tokio::test]
async fn what_is_gone_does_not_hide_what_is_there() {
    // As many as are looked for.
    let (memories, index, kept) = with_gone(FUSED_DEPTH, None).await;
    assert_eq!(found(&memories).await, [kept]);
    assert_eq!(*index.known.lock().unwrap(), [kept], "they are not looked for again");
    memories.sweep().await.unwrap();
    assert!(index.known.lock().unwrap().is_empty(), "a sweep asks what is gone");
}

/// Each look costs an embedding.
#[tokio::test]
async fn what_is_gone_costs_no_second_look_where_it_hides_nothing() {
    let (memories, index, kept) = with_gone(FUSED_DEPTH - 2, None).await;
    assert_eq!(found(&memories).await, [kept]);
    assert_eq!(index.looks.load(Ordering::Relaxed), 1);
    assert_eq!(*index.known.lock().unwrap(), [kept], "they are not looked for again");
}

#[tokio::test]
async fn a_second_look_that_fails_takes_nothing_away() {
    let (memories, index, kept) = with_gone(FUSED_DEPTH - 1, Some(1)).await;
    assert_eq!(found(&memories).await, [kept]);
    assert_eq!(index.looks.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn what_comes_back_in_a_sweep_is_to_be_embedded() {
    let store = Arc::new(MemoryStore::new());
    let memories = Memories::alone(store.clone());
    let index = Arc::new(Index::default());
    memories.find_by(index.clone());
    let who = Identity::default();
    memories.add(&ADMIN, &who, about("Sarah", "Sarah lives in Paris", None)).await.unwrap();
    memories.sweep().await.unwrap();
    assert_eq!(index.additions.load(Ordering::Relaxed), 1, "nothing came back");
    let long_ago = Timestamp::now() - SignedDuration::from_hours(48);
    let rome = about("Sarah", "Sarah lives in Rome", None);
    let rome = memories.add(&ADMIN, &who, rome).await.unwrap();
    // Renewed for a time that is over.
    let rome =
        MemoryRecord { id: MemoryId(1), created_at: long_ago, expires_at: Some(long_ago), ..rome };
    store.add_memory(rome, None).await.unwrap();
    memories.sweep().await.unwrap();
    assert_eq!(index.additions.load(Ordering::Relaxed), 3);
}

/// The bounds of a scope hold for agents, and for what is new.
#[tokio::test]
async fn agents_have_so_much_room_for_memories() {
    let memories = Memories::alone(Arc::new(MemoryStore::new()));
    let agent = Requester::Agent(AgentId::parse("a").unwrap());
    let who = Identity { user: Some("u".into()), chat: None };
    let page = |n: u64| {
        let mut content = n.to_string();
        content.push_str(&"x".repeat(CONTENT_BYTES_MAX - content.len()));
        NewMemory { content, source: "test".into(), ..NewMemory::default() }
    };
    let add = async |by: &Requester, new| memories.add(by, &who, new).await;
    // Beside its text each has a source.
    let most = SCOPE_BYTES_MAX / CONTENT_BYTES_MAX as u64 - 1;
    for n in 0..most {
        add(&agent, page(n)).await.unwrap();
    }
    assert!(matches!(add(&agent, page(most)).await, Err(MemoryError::Full)));
    let of_guest = NewMemory { of_guest: true, ..page(most) };
    assert!(matches!(add(&ADMIN, of_guest).await, Err(MemoryError::Full)));
    add(&agent, page(0)).await.unwrap();
    add(&ADMIN, page(most)).await.unwrap();
    add(&agent, page(most)).await.unwrap();
}
