//! Methods about the server itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::method;
use crate::params::NoParams;

/// Changes when a client written for the older revision would no longer be served rightly.
pub const PROTOCOL_REVISION: &str = "1";

method! {
    /// Stops the server. Running turns get a grace period and are then cancelled; everything is on disk before it exits.
    ShutdownServer = "shutdown_server", Server Control, NoParams => ShutdownServerResult
}

method! {
    /// Returns the OpenRPC document of this interface.
    Discover = "rpc.discover", Server Read, NoParams => Value
}

method! {
    /// Returns the server's name, version, protocol revision and features.
    Version = "rpc.version", Server Read, NoParams => VersionResult
}

method! {
    /// Returns which process this is, where it works and how it is reached, and what it is busy with. The
    /// administrator's alone.
    ServerInfo = "server_info", Server Read, NoParams => ServerInfoResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfoResult {
    pub name: String,
    pub version: String,
    pub pid: u32,
    pub home: String,
    /// Where agents work that were given no directory.
    pub cwd: String,
    /// Null where it serves no HTTP.
    pub url: Option<String>,
    /// Null where it has no socket.
    pub socket: Option<String>,
    /// ISO 8601.
    pub started_at: String,
    /// What is done with what needs somebody's leave: `deny`, `ask` or `auto`.
    pub approvals: String,
    /// Agents in memory.
    pub agents: u64,
    /// Turns that run or wait.
    pub turns: u64,
    /// Those of them that run.
    pub turns_running: u64,
    /// How many watch.
    pub watches: u64,
    /// The names that watchers gave.
    pub watchers: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShutdownServerResult {
    pub success: bool,
    pub message: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct VersionResult {
    pub name: String,
    pub version: String,
    /// Protocol revision.
    pub protocol: String,
    pub features: Vec<String>,
    /// The model an agent gets when none is named; null when no provider is configured.
    pub default_model: Option<String>,
    /// The provider that model belongs to.
    pub default_provider: Option<String>,
}
