//! Where a tool comes from, and how a server stands.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use super::Defer;

/// Where a tool comes from that is not this program's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub server: String,
    /// As the server calls it.
    pub tool: String,
    pub asks: Asks,
    /// Of all that the server says of it: what somebody allows is the tool as it is.
    pub pin: String,
    /// It is not what it was when its server was first asked, and nobody has looked at it since.
    pub quarantined: bool,
    pub defer: Defer,
}

/// When a call needs a person's leave, for agents that can be asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    /// It does not know who asks.
    NeedsAuth,
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
            Self::NeedsAuth => "needs_auth",
            Self::Failed => "failed",
        }
    }
}

/// Who configured a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSource {
    User,
    Project,
    /// The administrator, for one agent.
    Agent,
    /// A client of an agent, for as long as it uses it.
    Client,
}

impl ServerSource {
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Agent => "agent",
            Self::Client => "client",
        }
    }
}

/// A server at one moment.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    pub name: String,
    pub source: ServerSource,
    /// How it is reached.
    pub transport: &'static str,
    pub state: ServerState,
    /// One process serves all agents; otherwise this is the agent's own.
    pub shared: bool,
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
    /// What is another than when the tools were first listed, or last accepted.
    pub changed: Vec<ToolChange>,
}

/// What is known of the login at a server elsewhere. Never what one is let in by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// There is none, and none is known to be wanted.
    None,
    /// The server wants to know who asks, or wants more than it was shown.
    Needed,
    Kept {
        /// When what was given ends, unless it is renewed.
        expires_at: Option<Timestamp>,
        /// What was granted, as far as the server says it.
        scopes: Vec<String>,
    },
}

/// A tool that a server listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTool {
    /// As models call it.
    pub name: String,
    /// As the server calls it.
    pub tool: String,
    pub state: ToolState,
}

/// Whether a tool can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolState {
    Usable,
    /// The configuration leaves it out.
    Disabled,
    /// It is new, or says something else of itself than it did, and waits to be looked at.
    Quarantined,
}

/// One thing that a server says otherwise now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolChange {
    pub tool: String,
    /// `tool` for one that is new.
    pub field: String,
    pub before: String,
    pub after: String,
}

/// Which tools are accepted as they are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    All,
    /// By the names that the server has for them.
    Tools(Vec<String>),
}

/// What can be asked of a server beside its tools.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    Prompts,
    Prompt {
        name: String,
        arguments: Option<Map<String, Value>>,
    },
    /// A page of them.
    Resources {
        cursor: Option<String>,
    },
    Resource {
        uri: String,
    },
}

/// Why a server cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ServerError {
    #[error("there is no MCP server {0}")]
    NotThere(String),
    #[error("the MCP server {0} is not shared: each agent that uses it has a process of its own")]
    NotShared(String),
    #[error("the MCP server {server} does not let us in: {why}")]
    Unknown {
        server: String,
        why: String,
        /// What a person types to log in there.
        login: String,
    },
    #[error("the MCP server {server} cannot be had: {why}")]
    Unavailable { server: String, why: String },
    #[error("the MCP server {server} does not give it: {why}")]
    Failed { server: String, why: String },
}
