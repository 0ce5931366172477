//! MCP, the server's side: hosts that speak the Model Context Protocol use agents as tools. Both eras of it, over HTTP and
//! over standard input and output.

mod approve;
mod call;
mod handler;
mod http;
mod resources;
mod send;
mod stdio;
mod subscriptions;
mod tasks;
mod tools;
mod turns;

use std::collections::BTreeMap;

pub use handler::Door;
pub use http::{Answers, BODY_BYTES_MAX, HttpDoor, SESSIONS_MAX};
pub use stdio::serve;

/// Who came through the door.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// Tells callers apart: what one began another does not find.
    pub name: String,
    /// Goes into the history as the source of what is said.
    pub source: String,
    /// Whom it talks to when it names nobody.
    pub ground: Ground,
    /// A person sits there, who may be asked for leave. An agent that comes with its own token is none: it would answer its
    /// own approvals.
    pub has_person: bool,
}

/// The agent of a visitor.
#[derive(Clone, Debug)]
pub enum Ground {
    /// One that exists.
    Agent(String),
    /// One that is made when it is first needed.
    Made { name: String, preset: String, cwd: Option<String> },
}

impl Ground {
    pub fn agent(&self) -> &str {
        match self {
            Self::Agent(name) | Self::Made { name, .. } => name,
        }
    }
}

/// Agents that are tools of their own, `ask_NAME`, with what they are for.
pub type Exposed = BTreeMap<String, String>;
