//! What is remembered about people and chats. Parameters that are not known are passed over here: clients in the field
//! send several.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::{Bounded, NonBlank};
use crate::schema::blank;

method! {
    /// Remembers something: for a chat (`shared`), for a user, or for everybody when neither is named. It is on disk when
    /// this answers. The same text in the same scope is renewed instead of kept twice; what it contradicts (the same
    /// subject, nearly the same words) is hidden.
    MemoryAdd = "memory.add", Server Control, MemoryAddParams => MemoryEntry
}

method! {
    /// Finds what has to do with a query, the best first: what is the user's, the chat's, and everybody's.
    MemorySearch = "memory.search", Server Read, MemorySearchParams => Vec<FoundMemory>
}

method! {
    /// Lists what is the user's, the chat's, and everybody's, the newest first; fewer than asked for when more would not
    /// fit into an answer.
    MemoryList = "memory.list", Server Read, MemoryListParams => Vec<ListedMemory>
}

method! {
    /// Removes a memory that the caller sees, and what it took the place of.
    MemoryDelete = "memory.delete", Server Control, MemoryDeleteParams => MemoryDeleteResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemoryAddParams {
    /// At most 65,536 bytes.
    #[schemars(length(max = 65_536))]
    pub content: NonBlank,
    /// Who told it; `rpc` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub source: Option<String>,
    /// More than 0 and at most 36,500; it stays when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 36_500), extend("exclusiveMinimum" = 0))]
    pub expires_days: Option<f64>,
    /// People and things it is about, at most 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(max = 256)))]
    pub subjects: Option<Vec<NonBlank>>,
    /// For all of the chat; needs `chat_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// Nothing when absent, null or empty, as `chat_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub chat_id: Option<String>,
    /// Signed by the host; says who calls, in place of `user_id` and `chat_id`, in this call and in those that follow on
    /// the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_token: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemorySearchParams {
    /// At most 65,536 bytes.
    #[schemars(length(max = 65_536))]
    pub query: NonBlank,
    /// 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 200>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub chat_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_token: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemoryListParams {
    /// 20 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 1000>>,
    /// Shows what expired within the last day as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_expired: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub chat_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_token: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemoryDeleteParams {
    /// The whole id, or the beginning of it: at least 8 digits that no other memory's id begins with.
    #[schemars(length(min = 8))]
    pub memory_id: NonBlank,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("not" = blank()))]
    pub chat_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_token: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemoryEntry {
    pub id: String,
    pub content: String,
    pub source: String,
    pub created_at: String,
    pub expires_at: Option<String>,
    pub subjects: Vec<String>,
    pub shared: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FoundMemory {
    pub id: String,
    pub content: String,
    /// From 0 to 1.
    pub similarity: f64,
    pub source: String,
    pub created_at: String,
    pub metadata: MemoryMetadata,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemoryMetadata {
    pub subjects: Vec<String>,
    pub shared: bool,
    pub expires_at: Option<String>,
    /// What it took the place of, the oldest first.
    pub supersedes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedMemory {
    pub id: String,
    pub content: String,
    pub source: String,
    pub created_at: String,
    pub expires_at: Option<String>,
    pub subjects: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemoryDeleteResult {
    /// False when the caller sees no such memory.
    pub deleted: bool,
}
