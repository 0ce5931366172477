//! ACP, the agent's side: editors that speak the Agent Client Protocol use agents, on standard input and output. A session
//! is an agent; its name is the session's.

mod client;
mod commands;
mod content;
mod door;
mod fault;
mod kept;
mod lines;
mod prompt;
mod prompts;
mod questions;
mod replay;
mod servers;
mod session;
mod settings;
mod subagents;
mod told;
mod tools;

use std::sync::Arc;

pub use door::serve;
pub use lines::LINE_BYTES_MAX;

/// How sessions are begun.
pub struct Options {
    /// Permissions of the agents that are made.
    pub preset: String,
    /// Their model; that of the configuration when absent.
    pub model: Option<String>,
    /// Knows which agents nothing was said to yet.
    pub unused: Arc<dyn Unused>,
}

/// Whoever ends agents that nothing was said to when this process cannot.
pub trait Unused: Send + Sync {
    /// Said before the agent is made.
    fn note(&self, agent: &str);

    /// Something was said to it, or it is gone.
    fn forget(&self, agent: &str);
}

/// There is nobody.
impl Unused for () {
    fn note(&self, _: &str) {}

    fn forget(&self, _: &str) {}
}

/// Goes into the history as the source of what is said.
const SOURCE: &str = "acp";
