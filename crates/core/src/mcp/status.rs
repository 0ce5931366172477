//! Where a tool comes from, and how a server stands.

use jiff::Timestamp;
use thiserror::Error;

/// Where a tool comes from that is not this program's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub server: String,
    /// As the server calls it.
    pub tool: String,
    pub asks: Asks,
}

/// When a call needs a person's leave, for agents that can be asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asks {
    Never,
    /// Until it was granted for the session.
    #[default]
    Once,
    /// Each call anew.
    Always,
}

/// How a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It was not needed yet.
    Configured,
    /// A project brought it along, and nobody trusted that.
    Untrusted,
    Disabled,
    Starting,
    Ready,
    /// It ended, by itself or because nobody used it, and starts when it is needed.
    Idle,
    /// It cannot be had: it ended too often, or what is written of it is wrong.
    Failed,
}

impl ServerState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Untrusted => "untrusted",
            Self::Disabled => "disabled",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Idle => "idle",
            Self::Failed => "failed",
        }
    }
}

/// Who configured a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSource {
    User,
    Project,
}

impl ServerSource {
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

/// A server at one moment.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    pub name: String,
    pub source: ServerSource,
    pub state: ServerState,
    pub protocol_version: Option<String>,
    /// What it says that it is, and which version.
    pub server_info: Option<(String, String)>,
    /// The process that watches over it and ends with it.
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    /// Starts after the first.
    pub restarts: u32,
    pub in_flight: u32,
    pub calls: u64,
    pub last_error: Option<String>,
    /// The end of what it printed beside the protocol.
    pub stderr_tail: String,
    /// What holds it, and to what.
    pub sandbox: String,
    pub tools: Vec<ServerTool>,
}

/// A tool that a server listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTool {
    /// As models call it.
    pub name: String,
    /// As the server calls it.
    pub tool: String,
    /// It can be called: the configuration leaves it in, and its schema can be read.
    pub usable: bool,
}

/// Why a server cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ServerError {
    #[error("there is no MCP server {0}")]
    Unknown(String),
    #[error("the MCP server {server} cannot be had: {why}")]
    Unavailable { server: String, why: String },
}
