//! Methods on sessions: agents as they lie in the store, and what was saved of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::Bounded;
use crate::schema::{Name, SavedName};

method! {
    /// Lists sessions, the most recently changed first: every permanent agent and every saved session that the caller
    /// may see. With `include_temp` the live temporary agents come before them.
    ListSessions = "list_sessions", Server Read, ListSessionsParams => ListSessionsResult
}

method! {
    /// Makes an agent of a session, with all it had. Under another name than the session's the agent is a copy and the
    /// session stays. Refused when an agent of that name is live; a preset above the session's ceiling is refused.
    LoadSession = "load_session", Server Control, LoadSessionParams => LoadSessionResult
}

method! {
    /// Saves an agent under a name. A temporary agent becomes permanent under it; of a permanent one it makes a saved
    /// copy, which a later save of the same agent replaces; under the agent's own name the session stays when the agent
    /// is destroyed.
    SaveSession = "save_session", Server Control, SaveSessionParams => SaveSessionResult
}

method! {
    /// Makes a saved copy of a session: messages, permissions, ceiling, grants, model, directory and prompt. The two
    /// share their past and go on apart. Of a temporary agent it makes another temporary agent.
    CloneSession = "clone_session", Server Control, CloneSessionParams => CloneSessionResult
}

method! {
    /// Gives a session another name. A live agent follows it, running turns included; tokens made for the old name end.
    RenameSession = "rename_session", Server Control, RenameSessionParams => RenameSessionResult
}

method! {
    /// Removes a session for good. An agent that works on it ends, and its descendants with it; copies keep what they
    /// share with it.
    DeleteSession = "delete_session", Server Control, DeleteSessionParams => DeleteSessionResult
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListSessionsParams {
    /// How many to leave out from the start, 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Most sessions to return, 50 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 1000>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_temp: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListSessionsResult {
    /// All that the caller may see.
    pub total: u64,
    pub offset: u64,
    pub limit: u32,
    pub sessions: Vec<SessionEntry>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionEntry {
    pub name: String,
    pub message_count: u64,
    /// Seconds since 1970.
    pub created_at: f64,
    /// Seconds since 1970: the last message or change of settings.
    pub updated_at: f64,
    pub is_temp: bool,
    /// `user`, or the agent that made it.
    pub provenance: String,
    /// Null when no provider is configured.
    pub model: Option<String>,
    /// Lower case: `sandboxed`, `trusted`.
    pub permission_level: String,
    pub cwd: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadSessionParams {
    #[schemars(with = "Name")]
    pub session_name: String,
    /// Name of the agent; the session's own when absent. One that starts with `.` is temporary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub agent_id: Option<String>,
    /// Replaces the session's permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Replaces the session's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct LoadSessionResult {
    pub restored: bool,
    pub agent_id: String,
    pub message_count: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveSessionParams {
    #[schemars(with = "Name")]
    pub agent_id: String,
    #[schemars(with = "SavedName")]
    pub session_name: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SaveSessionResult {
    pub saved: bool,
    pub session_name: String,
    /// The agent's name from here on: another one only when it was temporary.
    pub agent_id: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneSessionParams {
    #[schemars(with = "Name")]
    pub src_session: String,
    /// Starts with `.` where `src_session` does, and only there.
    #[schemars(with = "Name")]
    pub dest_session: String,
    /// The index of the last message that the copy keeps; all when absent. It must not lie between a tool call and its
    /// results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upto: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CloneSessionResult {
    pub cloned: bool,
    pub src_session: String,
    pub dest_session: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameSessionParams {
    #[schemars(with = "Name")]
    pub old_name: String,
    #[schemars(with = "SavedName")]
    pub new_name: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RenameSessionResult {
    pub renamed: bool,
    pub old_name: String,
    pub new_name: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteSessionParams {
    #[schemars(with = "Name")]
    pub session_name: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeleteSessionResult {
    /// False when there was no such session.
    pub deleted: bool,
    pub session_name: String,
}
