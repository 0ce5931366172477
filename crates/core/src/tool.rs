//! What a model may call.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::approval::Announce;
use crate::engine::Engine;
use crate::name::AgentId;
use crate::permission::{Level, Permissions};
use crate::provider::ToolSpec;

/// Something the model may call. Implementations live in the adapters; the [gate](crate::gate) is the one way to them.
#[async_trait]
pub trait Tool: Send + Sync {
    fn spec(&self) -> &ToolSpec;

    /// What a call with these arguments would touch. An error says how the arguments do not fit the tool's schema.
    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, String>;

    /// Runs a call that the gate let through. What comes back, well or not, is for the model: a failure is a text
    /// that says what to do instead.
    async fn run(&self, call: Call) -> Result<String, String>;
}

/// One thing a call touches. Paths are as the model wrote them, relative to the agent's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    Read(String),
    Write(String),
    /// Run a program, in this directory; without one, in the agent's.
    Command(CommandKind, Option<String>),
    /// What only agents of this level, or a higher one, may do: which thing that is.
    Level(Level, String),
    /// Make, watch or end agents.
    ManageAgents,
    /// Give this agent a message.
    Message(AgentId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Fixed by the tool and known to change nothing, as `git log`.
    ReadOnly,
    Any,
}

/// A call on its way to its tool.
pub struct Call {
    pub engine: Arc<Engine>,
    pub agent: Arc<Agent>,
    pub arguments: Value,
    pub access: Access,
    /// Cancelled with the turn.
    pub cancel: CancellationToken,
    /// For tools that start turns of other agents.
    pub announce: Announce,
}

/// Within what a call runs. Tools enforce it on what they open, and the kernel on what they start.
#[derive(Clone, Debug)]
pub struct Access {
    pub cwd: PathBuf,
    /// Where a command of this call runs: the directory that the gate decided on and an approval named, whatever the
    /// call's own words lead to by now.
    pub command_dir: PathBuf,
    /// What the agent holds, with its grants and what was approved for this call.
    pub permissions: Permissions,
}

/// The tools a server offers.
#[derive(Default)]
pub struct Toolbox {
    /// By name, and so in a stable order, for the sake of the providers' prefix caches.
    tools: BTreeMap<String, Arc<dyn Tool>>,
}

impl Toolbox {
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        Self { tools: tools.into_iter().map(|tool| (tool.spec().name.clone(), tool)).collect() }
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// What an agent with these permissions is offered: a tool that could only be refused is not shown.
    pub fn specs(&self, permissions: &Permissions) -> Arc<[ToolSpec]> {
        let offered = self.tools.values().filter(|tool| permissions.offers(&tool.spec().name));
        offered.map(|tool| tool.spec().clone()).collect()
    }
}
