//! Memories that are found by what they mean: what went without a word does not stand before what is there.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use nexus_core::fuse::FUSED_DEPTH;
use nexus_core::memory::{Identity, Meaning, Memories, NewMemory};
use nexus_core::store::{MemoryId, MemoryScope, StoreError};
use nexus_testkit::store::MemoryStore;

use crate::fakes::ADMIN;

/// Finds all it knows, in its order.
#[derive(Default)]
struct Index(Mutex<Vec<MemoryId>>);

#[async_trait]
impl Meaning for Index {
    async fn nearest(&self, _: &[MemoryScope], _: &str, limit: usize) -> Vec<(MemoryId, f32)> {
        self.0.lock().unwrap().iter().take(limit).map(|id| (*id, 0.9)).collect()
    }

    fn added(&self) {}

    fn removed(&self, id: MemoryId) {
        self.0.lock().unwrap().retain(|known| *known != id);
    }

    async fn forget_gone(&self) -> Result<(), StoreError> {
        self.0.lock().unwrap().clear();
        Ok(())
    }
}

#[tokio::test]
async fn what_is_gone_does_not_hide_what_is_there() {
    let memories = Memories::alone(Arc::new(MemoryStore::new()));
    let index = Arc::new(Index::default());
    memories.find_by(index.clone());
    let (who, content) = (Identity::default(), "tea".to_owned());
    let new = NewMemory { content, source: "test".into(), ..NewMemory::default() };
    let kept = memories.add(&ADMIN, &who, new).await.unwrap();
    // As many as are looked for, and they went with their agents or by the hand of another process.
    let gone = (0..u128::from(FUSED_DEPTH)).map(MemoryId);
    *index.0.lock().unwrap() = gone.chain([kept.id]).collect();
    let found = memories.search(&who, "a hot drink", 5).await.unwrap();
    let found: Vec<_> = found.iter().map(|found| found.memory.id).collect();
    assert_eq!(found, [kept.id]);
    assert_eq!(*index.0.lock().unwrap(), [kept.id], "they are not looked for again");
    memories.sweep().await.unwrap();
    assert!(index.0.lock().unwrap().is_empty(), "a sweep asks what is gone");
}
