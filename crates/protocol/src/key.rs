//! Keys of callers: to sign requests, or to be let in at a door.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::{Bounded, NoParams};
use crate::schema::{Name, PATH_PATTERN};

method! {
    /// Makes a key for signing requests (`auth`), which may be for some methods or for one agent alone. Its secret is
    /// told here and never again. The administrator's alone.
    CreateKey = "create_key", Server Control, CreateKeyParams => CreateKeyResult
}

method! {
    /// Returns the keys for signing, without their secrets. The administrator's alone.
    ListKeys = "list_keys", Server Read, NoParams => ListKeysResult
}

method! {
    /// Ends a key: what is signed with it is refused from now on, on connections that are open too. The
    /// administrator's alone.
    RevokeKey = "revoke_key", Server Control, RevokeKeyParams => RevokeKeyResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKeyParams {
    /// What requests call it in `auth.key_id`: 1 to 64 letters, digits, `.`, `_` and `-`.
    #[schemars(regex(pattern = "^[A-Za-z0-9._-]{1,64}$"))]
    pub name: String,
    /// The methods it is for: names, or beginnings of names with a `*` behind them; at most 100. All when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    #[schemars(inner(length(min = 1, max = 100), regex(pattern = r"^[A-Za-z0-9._/-]*\*?$")))]
    pub methods: Option<Vec<String>>,
    /// Makes a key for these doors instead: a bearer token that is good there, across restarts, and acts as an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub doors: Option<Vec<Door>>,
    /// Calls signed with it have the rights of this agent, and no more. The key ends with it, and when it is renamed. A key
    /// for doors acts as this agent; when absent, as one that is made for it, `door-NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub agent_id: Option<String>,
    /// Preset of the agent that is made; the default one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Its working directory; the server's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = PATH_PATTERN))]
    pub cwd: Option<String>,
    /// Days until it ends; 90 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_days: Option<Bounded<1, 3650>>,
}

/// Another protocol on the server's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// `/mcp`.
    Mcp,
    /// `/v1`.
    OpenAi,
    /// `/ws`.
    WebSocket,
    /// Standard input and output of a program that an editor starts. There are no keys for it: it is a label alone.
    #[serde(skip_deserializing)]
    #[schemars(skip)]
    Acp,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CreateKeyResult {
    /// The secret. What signs takes its bytes as they stand here; of a key for doors it is the bearer token.
    pub key: String,
    #[serde(flatten)]
    pub entry: KeyEntry,
    /// Whether signatures are looked at: `off`, `optional` or `required` (`auth.hmac.mode`).
    pub mode: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListKeysResult {
    /// By name. Those of the configuration are not among them.
    pub keys: Vec<KeyEntry>,
    /// Whether signatures are looked at: `off`, `optional` or `required` (`auth.hmac.mode`).
    pub mode: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyEntry {
    pub name: String,
    /// Absent when it is for all methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// What it opens; absent when it is a key to sign with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doors: Option<Vec<Door>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    pub created_at: String,
    pub expires_at: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeKeyParams {
    pub name: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RevokeKeyResult {
    /// False when there was no key of this name.
    pub revoked: bool,
}
