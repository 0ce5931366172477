//! What is remembered about people and chats.

use std::collections::HashSet;
use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use crate::name::AgentId;
use crate::words;

/// Subjects of a memory.
pub const SUBJECTS_MAX: usize = 32;

/// Memories lie in scopes. What a method here is told of a scope is all it looks at: nothing of another is read,
/// counted or changed by it.
#[async_trait]
pub trait MemoriesStore: Send + Sync {
    /// Keeps a memory. One with the same text in the same scope is renewed instead: it has the new one's expiry and both
    /// subjects, as many as a memory may have. What has a subject in common with it and says nearly the same
    /// (`words::nearly_same`) is superseded: kept, and shown to nobody. One whose id is there already changes nothing.
    /// `None` when its scope would grow beyond `room`.
    async fn add_memory(
        &self,
        memory: MemoryRecord,
        room: Option<MemoryRoom>,
    ) -> Result<Option<MemoryRecord>, StoreError>;

    /// Keeps a memory that was kept elsewhere before. What is here loses nothing by it: one with the same text keeps the
    /// later expiry, and what was said after it is not superseded.
    async fn restore_memory(
        &self,
        memory: MemoryRecord,
        now: Timestamp,
    ) -> Result<MemoryRecord, StoreError>;

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

    /// Removes what expired before `before`, no more than `limit` of it, and says how many went. What it had superseded is
    /// back, as if it were added now; where its text was kept again meanwhile, it is one with that.
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

    /// What it takes of the room of its scope: its text, its source and its subjects, in JSON.
    pub fn bytes(&self) -> u64 {
        let subjects = serde_json::to_string(&self.subjects).map_or(0, |json| json.len());
        (self.content.len() + self.source.len() + subjects) as u64
    }

    /// What it becomes when the same text is kept again: it has the subjects of both, its own first, as far as there is room
    /// for them.
    #[must_use]
    pub fn renewed(&self, by: &Self, said: Said) -> Self {
        let mut renewed = self.clone();
        let key = |subject: &String| words::subject_key(subject);
        let mut known: HashSet<String> = self.subjects.iter().map(key).collect();
        let further = by.subjects.iter().filter(|subject| known.insert(key(subject)));
        let room = SUBJECTS_MAX.saturating_sub(self.subjects.len());
        renewed.subjects.extend(further.take(room).cloned());
        renewed.expires_at = match said {
            Said::Now => by.expires_at,
            Said::Earlier => self.expires_at.zip(by.expires_at).map(|(own, other)| own.max(other)),
        };
        renewed
    }
}

/// When something was said that a memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It has the last word.
    Now,
    Earlier,
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

impl MemoryQuery {
    /// Which of the memories of these sizes are returned: what alone is too much hides nothing behind it.
    pub fn fitting(&self, sizes: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut any = false;
        let mut room = self.bytes_max;
        let fitting = sizes.enumerate().filter(|(_, bytes)| {
            any = true;
            *bytes <= self.bytes_max
        });
        let fitting = fitting.map_while(|(at, bytes)| {
            room = room.checked_sub(bytes)?;
            Some(at)
        });
        let fitting: Vec<usize> = fitting.collect();
        if fitting.is_empty() && any { vec![0] } else { fitting }
    }
}

/// How much there is in a scope, with what was superseded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoriesWeight {
    pub count: u64,
    /// Of [`MemoryRecord::bytes`].
    pub bytes: u64,
}

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    pub count_max: u64,
    pub bytes_max: u64,
}

impl MemoryRoom {
    /// Whether `more` may come to what is there. In what it does not grow, a scope may be as full as it is.
    pub fn takes(&self, there: MemoriesWeight, more: MemoriesWeight) -> bool {
        let fits = |there: u64, more: u64, most| more == 0 || there.saturating_add(more) <= most;
        fits(there.count, more.count, self.count_max)
            && fits(there.bytes, more.bytes, self.bytes_max)
    }
}

/// What became of a memory that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    Deleted(MemoryId),
    NotFound,
    /// More than one begins so; none was removed.
    Ambiguous,
}

/// Where a memory stands among all that were ever added; what comes back stands behind them all. Never used twice.
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
