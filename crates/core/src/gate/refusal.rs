//! Why a call is refused, and the rule on one place.

use std::path::{Component, Path, PathBuf};

use thiserror::Error;

use crate::name::AgentId;
use crate::paths::PathError;
use crate::permission::{Level, Permissions};

/// The rule that refuses what nobody gave leave for.
pub const APPROVAL_RULE: &str = "approval";

/// Why a call is refused. The sentence names the rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error(
        "one step may make at most {0} tool calls (max_calls_per_step), and this call came after them: make it in the next step"
    )]
    TooManyCalls(usize),
    #[error("there is no tool named {0}")]
    UnknownTool(String),
    #[error("the arguments do not fit the tool: {0}")]
    Arguments(String),
    #[error("the tool {0} is disabled for this agent")]
    Disabled(String),
    #[error("this agent's level ({}) allows no commands", .0.name())]
    Commands(Level),
    #[error("{what} is refused below the level {}", .least.name())]
    Level { what: String, least: Level },
    #[error("this agent's permissions exclude agent management")]
    Agents,
    #[error("this agent may not use the tool {tool} of the MCP server {server}")]
    Mcp { server: String, tool: String },
    #[error(
        "the tool {tool} of the MCP server {server} is new, or says something else of itself than it did, and waits to be looked at (mcp_review)"
    )]
    Pin { server: String, tool: String },
    #[error(
        "this agent may not message agent {0}: an agent may message its parent and, if it manages agents, its descendants"
    )]
    Message(AgentId),
    #[error("{0}")]
    Path(#[from] PathError),
    #[error("{0} is a blocked path")]
    Blocked(String),
    #[error("{0} belongs to the kernel (/proc, /sys, /dev), which no tool opens")]
    Kernel(String),
    #[error(
        "{0} lies in a {CONFIGURATION} directory: below the level yolo only a person changes what configures this server"
    )]
    Configuration(String),
    #[error(
        "{0} lies in a .git directory, where git finds programs to run: use git, or have the write approved"
    )]
    Repository(String),
    #[error("{0} lies outside what this agent may read")]
    Read(String),
    #[error("{0} lies outside what this agent may write")]
    Write(String),
    #[error("{0}")]
    Approval(&'static str),
    #[error("denied: {0}")]
    Denied(String),
    #[error("what this agent may do is not known: {0}")]
    Unknown(String),
}

impl Refusal {
    /// The rule's name, for programs.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::TooManyCalls(_) => "calls",
            Self::UnknownTool(_) => "known",
            Self::Arguments(_) => "schema",
            Self::Disabled(_) => "enabled",
            Self::Commands(_) | Self::Level { .. } | Self::Agents => "level",
            Self::Mcp { .. } => "mcp",
            Self::Pin { .. } => "pin",
            Self::Message(_) => "target_agent",
            Self::Path(_)
            | Self::Blocked(_)
            | Self::Kernel(_)
            | Self::Configuration(_)
            | Self::Repository(_)
            | Self::Read(_)
            | Self::Write(_) => "path",
            Self::Approval(_) | Self::Denied(_) => APPROVAL_RULE,
            Self::Unknown(_) => "permissions",
        }
    }
}

/// The directories that configure a server, each in its project. What they hold takes effect at the next start: other
/// providers, wider presets, programs to run.
pub const CONFIGURATION: &str = ".nexus3";

/// What a call does with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Read,
    Write,
}

/// The rule on one place, absolute and without links. The gate asks it of what a call names, and a tool again of what
/// it then finds there. `blocked` is what the permissions block, each also where it leads.
pub fn check_place<'a>(
    permissions: &Permissions,
    blocked: impl IntoIterator<Item = &'a PathBuf>,
    place: &Path,
    act: Act,
    text: &str,
) -> Result<(), Refusal> {
    if blocked.into_iter().any(|blocked| place.starts_with(blocked)) {
        return Err(Refusal::Blocked(text.into()));
    }
    // Some file systems do not tell cases apart.
    let named = |part: Component<'_>, name: &str| part.as_os_str().eq_ignore_ascii_case(name);
    let configures = || place.components().any(|part| named(part, CONFIGURATION));
    if act == Act::Write && permissions.level < Level::Yolo && configures() {
        return Err(Refusal::Configuration(text.into()));
    }
    let writable = permissions.write.contains(place);
    if act == Act::Write && writable && permissions.level < Level::Yolo {
        // Hooks and settings there run as whoever next uses git in that repository: a person, an agent with more rights.
        let of_git = |rest: &Path| rest.components().any(|part| named(part, ".git"));
        if permissions.write.below(place).all(of_git) {
            return Err(Refusal::Repository(text.into()));
        }
    }
    match act {
        Act::Read if writable || permissions.read.contains(place) => Ok(()),
        Act::Write if writable => Ok(()),
        Act::Read => Err(Refusal::Read(text.into())),
        Act::Write => Err(Refusal::Write(text.into())),
    }
}
