//! Memories by what they mean: a vector of each, made behind whoever adds it, and an index of them in memory.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nexus_core::embed::{EmbedError, Embedder};
use nexus_core::memory::Meaning;
use nexus_core::store::{
    MemoryId, MemoryKey, MemoryScope, ScopeKey, Store, StoreError, Unembedded,
};
use nexus_meaning::Index;
use tokio::sync::Notify;

/// Memories that are embedded and written down together.
const EMBEDDED_AT_ONCE: u32 = 16;

/// Vectors that are read together.
const READ_AT_ONCE: u32 = 1_000;

/// Memories of the index that a sweep asks for. The store answers within milliseconds, and of a million memories those that
/// nobody looks for are let go within a day; a search that meets one lets it go at once.
const SWEPT_AT_ONCE: usize = 1_000;

/// A memory has to do with a query from this nearness on: the built-in embedder puts texts that have nothing in common
/// below it.
const NEAR_MIN: f32 = 0.3;

/// How long an embedder is waited for.
#[derive(Clone, Copy)]
struct Patience {
    /// With a query, for whose answer somebody waits.
    query: Duration,
    /// How long one that failed is left alone, by searches too: the words need not wait for its next failure.
    rest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { query: Duration::from_secs(3), rest: Duration::from_secs(10) }
    }
}

/// No embedder refuses this for what it says: who does would refuse anything.
const PLAIN_TEXT: &str = "a plain text";

pub struct Meanings {
    store: Arc<dyn Store>,
    embedder: Arc<dyn Embedder>,
    known: Arc<RwLock<Known>>,
    added: Arc<Notify>,
    patience: Patience,
    /// When the embedder last failed.
    failed: Mutex<Option<Instant>>,
}

/// What is in the index.
struct Known {
    index: Index,
    ids: BTreeMap<u64, MemoryId>,
    keys: HashMap<MemoryId, u64>,
    /// Vectors up to this one were read from the store.
    read: MemoryKey,
    /// The last one that a sweep asked for.
    swept: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Embed(#[from] EmbedError),
    #[error("it made {got} vectors of {wanted} texts")]
    Count { got: usize, wanted: usize },
    #[error("a vector has {got} numbers and not {wanted}")]
    Dimensions { got: usize, wanted: usize },
    #[error("the embedder refuses whatever it is asked ({0})")]
    RefusesAll(String),
    #[error("the embedder did not answer within {0:?}")]
    Slow(Duration),
}

impl Meanings {
    pub fn new(store: Arc<dyn Store>, embedder: Arc<dyn Embedder>) -> Arc<Self> {
        Self::patient(store, embedder, Patience::default())
    }

    fn patient(
        store: Arc<dyn Store>,
        embedder: Arc<dyn Embedder>,
        patience: Patience,
    ) -> Arc<Self> {
        let known = Known {
            index: Index::new(embedder.dimensions()),
            ids: BTreeMap::new(),
            keys: HashMap::new(),
            read: MemoryKey::default(),
            swept: AtomicU64::default(),
        };
        Arc::new(Self {
            store,
            embedder,
            known: Arc::new(RwLock::new(known)),
            added: Arc::default(),
            patience,
            failed: Mutex::default(),
        })
    }

    /// Embeds what has no vector yet, in the order in which it was added, for as long as anybody looks for meanings.
    pub async fn keep_up(this: Weak<Self>) {
        let Some(added) = this.upgrade().map(|this| this.added.clone()) else { return };
        let mut after = MemoryKey::default();
        while let Some(meanings) = this.upgrade() {
            let embedded = meanings.embed_some(after).await;
            if let Err(error) = &embedded {
                meanings.complain(error);
            }
            let rest = meanings.patience.rest;
            drop(meanings);
            match embedded {
                Ok(Some(last)) => after = last,
                Ok(None) => added.notified().await,
                Err(_) => tokio::time::sleep(rest).await,
            }
        }
    }

    /// Embeds the next few. `None` when there are none.
    async fn embed_some(&self, after: MemoryKey) -> Result<Option<MemoryKey>, Failed> {
        let model = self.embedder.model_id();
        let some = self.store.unembedded(model, after, EMBEDDED_AT_ONCE).await?;
        let Some(last) = some.last().map(|memory| memory.key) else { return Ok(None) };
        let texts = some.iter().map(text).collect();
        let vectors = match self.embedder.embed(texts).await {
            Err(EmbedError::Refused(_)) => {
                self.try_plain_text().await?;
                // One of them is to blame, and costs only itself.
                self.one_by_one(&some).await?
            }
            vectors => paired(some, vectors?)?,
        };
        for (_, vector) in &vectors {
            self.check(vector)?;
        }
        let rows = vectors.iter().map(|(memory, vector)| (memory.key, bytes(vector))).collect();
        self.store.put_vectors(model, rows).await?;
        let mut known = self.write();
        for (memory, vector) in &vectors {
            known.put(memory.key, memory.id, memory.scope, vector);
        }
        Ok(Some(last))
    }

    /// Fails for an embedder that refuses everything, as one does that is not set up rightly: no text is to blame then, and
    /// none must be passed over.
    async fn try_plain_text(&self) -> Result<(), Failed> {
        match self.embedder.embed(vec![PLAIN_TEXT.to_owned()]).await {
            Err(EmbedError::Refused(why)) => Err(Failed::RefusesAll(why)),
            tried => Ok(tried.map(drop)?),
        }
    }

    async fn one_by_one(
        &self,
        some: &[Unembedded],
    ) -> Result<Vec<(Unembedded, Vec<f32>)>, EmbedError> {
        let mut vectors = Vec::new();
        for memory in some {
            match self.embedder.embed(vec![text(memory)]).await {
                Ok(made) => vectors.extend(made.into_iter().map(|it| (memory.clone(), it))),
                Err(EmbedError::Refused(why)) => {
                    tracing::warn!(id = %memory.id, why, "a memory is found by its words alone");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(vectors)
    }

    /// Reads the vectors that came into the store since, whoever made them.
    async fn read_on(&self) -> Result<(), StoreError> {
        loop {
            let read = self.read().read;
            let some = self.store.vectors(self.embedder.model_id(), read, READ_AT_ONCE).await?;
            let Some(last) = some.last().map(|vector| vector.key) else { return Ok(()) };
            let mut known = self.write();
            known.read = known.read.max(last);
            for stored in some {
                known.put(stored.key, stored.id, stored.scope, &numbers(&stored.vector));
            }
        }
    }

    async fn find(
        &self,
        scopes: &[MemoryScope],
        query: &str,
        limit: usize,
    ) -> Result<Vec<(MemoryId, f32)>, Failed> {
        self.read_on().await?;
        // Other processes add, too, and may be gone before what they added is embedded.
        self.added.notify_one();
        if self.read().index.is_empty() || self.rests() {
            return Ok(Vec::new());
        }
        let embedding = self.embedder.embed(vec![query.to_owned()]);
        let embedded = tokio::time::timeout(self.patience.query, embedding).await;
        let Some(query) = embedded.map_err(|_| Failed::Slow(self.patience.query))??.pop() else {
            return Ok(Vec::new());
        };
        self.check(&query)?;
        // Among many this takes milliseconds of a core.
        let scopes = self.store.scope_keys(scopes.to_vec()).await?;
        let known = self.known.clone();
        let search = move || {
            known.read().unwrap_or_else(PoisonError::into_inner).nearest(&query, &scopes, limit)
        };
        Ok(tokio::task::spawn_blocking(search).await.unwrap_or_default())
    }

    fn rests(&self) -> bool {
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.is_some_and(|at| at.elapsed() < self.patience.rest)
    }

    /// What is said when memories are not found by meaning.
    fn complain(&self, error: &Failed) {
        if !matches!(error, Failed::Store(_)) {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        tracing::warn!(%error, "memories are found by their words alone for now");
    }

    /// Fails for a vector of another size than the model has.
    fn check(&self, vector: &[f32]) -> Result<(), Failed> {
        let (got, wanted) = (vector.len(), self.embedder.dimensions());
        match got == wanted {
            true => Ok(()),
            false => Err(Failed::Dimensions { got, wanted }),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever keeps up sees that nobody looks any more.
impl Drop for Meanings {
    fn drop(&mut self) {
        self.added.notify_one();
    }
}

#[async_trait]
impl Meaning for Meanings {
    async fn nearest(
        &self,
        scopes: &[MemoryScope],
        query: &str,
        limit: usize,
    ) -> Vec<(MemoryId, f32)> {
        match self.find(scopes, query, limit).await {
            Ok(found) => found,
            // It may be the query, as a blank is to some: others go on being asked.
            Err(Failed::Embed(EmbedError::Refused(why))) => {
                tracing::warn!(why, "a query is looked for by its words alone");
                Vec::new()
            }
            Err(error) => {
                self.complain(&error);
                Vec::new()
            }
        }
    }

    fn added(&self) {
        self.added.notify_one();
    }

    fn removed(&self, id: MemoryId) {
        self.write().remove(id);
    }

    async fn forget_gone(&self) -> Result<(), StoreError> {
        let some = self.read().next_to_sweep();
        let gone = self.store.gone_memories(some).await?;
        if !gone.is_empty() {
            let mut known = self.write();
            gone.into_iter().for_each(|id| known.remove(id));
        }
        Ok(())
    }
}

impl Known {
    fn nearest(&self, query: &[f32], scopes: &[ScopeKey], limit: usize) -> Vec<(MemoryId, f32)> {
        let visible: Vec<u32> = scopes.iter().filter_map(|scope| number(*scope)).collect();
        let near = self.index.nearest(query, &visible, limit).unwrap_or_default();
        let near = near.into_iter().take_while(|(_, nearness)| *nearness >= NEAR_MIN);
        near.filter_map(|(key, nearness)| Some((*self.ids.get(&key)?, nearness))).collect()
    }

    fn put(&mut self, key: MemoryKey, id: MemoryId, scope: ScopeKey, vector: &[f32]) {
        let (Ok(key), Some(scope)) = (u64::try_from(key.0), number(scope)) else { return };
        // What is no vector of this model is found by its words.
        if self.index.insert(key, scope, vector).is_ok() {
            self.ids.insert(key, id);
            // Where an agent got the name that memories waited for, they were added anew.
            if let Some(old) = self.keys.insert(id, key).filter(|old| *old != key) {
                self.ids.remove(&old);
                self.index.remove(old);
            }
        }
    }

    /// Those behind the last that were asked for, and the first ones again after the end.
    fn next_to_sweep(&self) -> Vec<MemoryId> {
        let behind = (Excluded(self.swept.load(Ordering::Relaxed)), Unbounded);
        let some: Vec<_> = self.ids.range(behind).take(SWEPT_AT_ONCE).collect();
        let last = some.get(SWEPT_AT_ONCE - 1).map_or(0, |(key, _)| **key);
        self.swept.store(last, Ordering::Relaxed);
        some.into_iter().map(|(_, id)| *id).collect()
    }

    fn remove(&mut self, id: MemoryId) {
        if let Some(key) = self.keys.remove(&id) {
            self.ids.remove(&key);
            self.index.remove(key);
        }
    }
}

/// A scope as the index has it.
fn number(scope: ScopeKey) -> Option<u32> {
    u32::try_from(scope.0).ok()
}

fn paired(
    some: Vec<Unembedded>,
    vectors: Vec<Vec<f32>>,
) -> Result<Vec<(Unembedded, Vec<f32>)>, Failed> {
    match (vectors.len(), some.len()) {
        (got, wanted) if got != wanted => Err(Failed::Count { got, wanted }),
        _ => Ok(some.into_iter().zip(vectors).collect()),
    }
}

/// What of a memory is embedded.
fn text(memory: &Unembedded) -> String {
    match memory.subjects.is_empty() {
        true => memory.content.clone(),
        false => format!("{}: {}", memory.subjects.join(", "), memory.content),
    }
}

fn bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests;
