//! Keys by which callers sign their requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::{Bounded, NoParams};
use crate::schema::Name;

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
    /// Calls signed with it have the rights of this agent, and no more. The key ends with it, and when it is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub agent_id: Option<String>,
    /// Days until it ends; 90 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_days: Option<Bounded<1, 3650>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CreateKeyResult {
    /// The secret. What signs takes its bytes as they stand here.
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
