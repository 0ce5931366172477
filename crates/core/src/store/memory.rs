//! What is remembered about people and chats.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use crate::name::AgentId;

/// Memories lie in scopes. What a method here is told of a scope is all it looks at: nothing of another is read,
/// counted or changed by it.
#[async_trait]
pub trait MemoriesStore: Send + Sync {
    /// Keeps a memory. One with the same text in the same scope is renewed instead: it has the new one's expiry and both
    /// subjects. What has a subject in common with it and says nearly the same (`words::nearly_same`) is superseded: kept,
    /// and shown to nobody. One whose id is there already changes nothing.
    async fn add_memory(&self, memory: MemoryRecord) -> Result<MemoryRecord, StoreError>;

    /// Memories with one of the words, in their text or among their subjects; the best first, as a full-text index has it.
    async fn memories_with(
        &self,
        scopes: Vec<MemoryScope>,
        words: Vec<String>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Vec<MemoryRecord>, StoreError>;

    /// Those of the memories that are in the scopes, in no order.
    async fn memories_by_id(
        &self,
        scopes: Vec<MemoryScope>,
        ids: Vec<MemoryId>,
        now: Timestamp,
    ) -> Result<Vec<MemoryRecord>, StoreError>;

    /// A page of memories.
    async fn memories(&self, query: MemoryQuery) -> Result<Vec<MemoryRecord>, StoreError>;

    /// Removes a memory and what it superseded.
    async fn delete_memory(
        &self,
        scopes: Vec<MemoryScope>,
        prefix: IdPrefix,
    ) -> Result<Deletion, StoreError>;

    /// Removes what expired before `before`, no more than `limit` of it, and says how many went.
    async fn remove_expired(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// Those of the ids that are no memory's any more: it was removed, or another took its place.
    async fn gone_memories(&self, ids: Vec<MemoryId>) -> Result<Vec<MemoryId>, StoreError>;

    /// The numbers of those of the scopes that anything was ever kept in.
    async fn scope_keys(&self, scopes: Vec<MemoryScope>) -> Result<Vec<ScopeKey>, StoreError>;

    /// Memories behind `after` without a vector of this model, in the order in which they were added.
    async fn unembedded(
        &self,
        model: &str,
        after: MemoryKey,
        limit: u32,
    ) -> Result<Vec<Unembedded>, StoreError>;

    /// Keeps vectors of a model, in place of those another made. What is gone by now stays gone.
    async fn put_vectors(
        &self,
        model: &str,
        vectors: Vec<(MemoryKey, Vec<u8>)>,
    ) -> Result<(), StoreError>;

    /// Vectors of a model behind `after`, in order.
    async fn vectors(
        &self,
        model: &str,
        after: MemoryKey,
        limit: u32,
    ) -> Result<Vec<StoredVector>, StoreError>;
}

/// Whose a memory is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryScope {
    Global,
    User(String),
    Chat(String),
}

impl MemoryScope {
    /// As which user an agent keeps what is its own.
    pub fn agent_as_user(agent: &AgentId) -> String {
        format!("agent:{agent}")
    }

    /// As which chat the tree beneath an agent shares.
    pub fn tree_as_chat(root: &AgentId) -> String {
        format!("tree:{root}")
    }

    /// What comes and goes with an agent and follows its name: stores remove it and rename it as they do the agent.
    pub fn of_agent(agent: &AgentId) -> [Self; 2] {
        [Self::User(Self::agent_as_user(agent)), Self::Chat(Self::tree_as_chat(agent))]
    }
}

/// A memory, as it lies in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryRecord {
    pub id: MemoryId,
    pub scope: MemoryScope,
    pub content: String,
    /// Who told it.
    pub source: String,
    pub subjects: Vec<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// What it took the place of, the oldest first.
    pub supersedes: Vec<MemoryId>,
}

impl MemoryRecord {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

#[derive(Clone, Debug)]
pub struct MemoryQuery {
    pub scopes: Vec<MemoryScope>,
    /// What expired after this moment is shown; `None` shows all that is still there.
    pub alive_at: Option<Timestamp>,
    pub limit: u32,
    /// About how much text may be returned; one memory always may.
    pub bytes_max: usize,
}

/// What became of a memory that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    Deleted(MemoryId),
    NotFound,
    /// More than one begins so; none was removed.
    Ambiguous,
}

/// Where a memory stands among all that were ever added. Never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryKey(pub i64);

/// A scope, whatever it is called: it stays the same when its agent gets another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScopeKey(pub i64);

/// What an embedder has to know of a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unembedded {
    pub key: MemoryKey,
    pub id: MemoryId,
    pub scope: ScopeKey,
    pub content: String,
    pub subjects: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVector {
    pub key: MemoryKey,
    pub id: MemoryId,
    pub scope: ScopeKey,
    pub vector: Vec<u8>,
}

/// A memory's name: 32 hexadecimal digits that nobody can guess.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId(pub u128);

impl MemoryId {
    pub fn parse(text: &str) -> Option<Self> {
        let whole = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        whole.then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const DIGITS: usize = 32;

/// The beginning of a memory's name, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    pub first: MemoryId,
    pub last: MemoryId,
}

impl IdPrefix {
    /// `None` when no id begins so.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > DIGITS || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let fill = |digit: &str| {
            let id = format!("{text}{}", digit.repeat(DIGITS - text.len()));
            MemoryId::parse(&id)
        };
        Some(Self { first: fill("0")?, last: fill("f")? })
    }

    pub fn covers(&self, id: MemoryId) -> bool {
        (self.first..=self.last).contains(&id)
    }
}
