//! ACP, the agent's side: editors that speak the Agent Client Protocol use agents, on standard input and output. A session
//! is an agent; its name is the session's.

mod client;
mod commands;
mod content;
mod door;
mod fault;
mod lines;
mod prompt;
mod questions;
mod replay;
mod session;
mod settings;
mod told;
mod tools;

pub use door::serve;
pub use lines::LINE_BYTES_MAX;

/// How sessions are begun.
#[derive(Clone, Debug)]
pub struct Options {
    /// Permissions of the agents that are made.
    pub preset: String,
    /// Their model; that of the configuration when absent.
    pub model: Option<String>,
}

/// Goes into the history as the source of what is said.
const SOURCE: &str = "acp";
