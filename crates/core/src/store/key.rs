//! Keys of callers: to sign what they ask for, or to be let in at a door.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{AgentRecord, Lease, StoreError};
use crate::name::AgentId;

#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Adds a key, unless there is one of its name or there are `keys_max`.
    async fn add_key(&self, key: KeyRecord, keys_max: u64) -> Result<KeyAdded, StoreError>;

    /// Adds a key as `add_key` does, and with it the agent that its holder acts as, made as `create` makes one: both are
    /// there afterwards, or neither.
    async fn add_key_with_agent(
        &self,
        key: KeyRecord,
        agent: AgentRecord,
        keys_max: u64,
    ) -> Result<KeyAdded<Lease>, StoreError>;

    /// All of them, by name.
    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError>;

    /// False when there is none of this name.
    async fn remove_key(&self, name: &str) -> Result<bool, StoreError>;
}

#[derive(Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub name: String,
    /// As it is: who checks a signature makes it anew. Of a key for doors the SHA-256 in hexadecimal digits.
    pub secret: String,
    /// What it opens; nothing for a key to sign with.
    pub doors: Vec<Door>,
    /// Names, or beginnings of names with a `*` behind them. `None` for all.
    pub methods: Option<Vec<String>>,
    pub agent: Option<KeyAgent>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Another protocol on the server's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Mcp,
    OpenAi,
    WebSocket,
    /// Of editors, which start it themselves; there are no keys for it.
    Acp,
}

impl Door {
    pub const ALL: [Self; 4] = [Self::Mcp, Self::OpenAi, Self::WebSocket, Self::Acp];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::OpenAi => "openai",
            Self::WebSocket => "websocket",
            Self::Acp => "acp",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.name() == name)
    }
}

/// The agent in whose name a key signs, or as which its holder acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyAgent {
    pub id: AgentId,
    /// Tells it from others that have its name later.
    pub born: u64,
}

/// What became of a key that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAdded<T = ()> {
    Done(T),
    Exists,
    Full,
}

/// Without the secret: what is shown here ends in logs.
impl std::fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRecord").field("name", &self.name).finish_non_exhaustive()
    }
}
