//! What can be changed on a living agent, as one value.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::mcp::{self, OwnServer};
use crate::model::Reasoning;
use crate::permission::{Grants, Permissions};

/// What can be changed on a living agent. Stores keep it whole, so a further setting is a field here, with a default for
/// the agents that were stored without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// What the agent may do without asking.
    pub permissions: Permissions,
    /// What was granted while it ran, beside the permissions.
    #[serde(default)]
    pub grants: Grants,
    /// Alias of the model, `None` for the server's default.
    #[serde(default)]
    pub model: Option<String>,
    /// What is asked of the model's thinking, `None` for what the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    pub cwd: PathBuf,
    /// Beside that, and as much its own.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub directories: BTreeSet<PathBuf>,
    /// Replaces the layered prompt, where one was given.
    #[serde(default)]
    pub system_prompt: Option<String>,
    /// What calls of the last step began elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<Ticket>,
    /// MCP servers that it was connected to, beside those of the configuration.
    #[serde(default, skip_serializing_if = "mcp::keeps_none", serialize_with = "mcp::keep")]
    pub servers: Vec<OwnServer>,
}

/// What a tool call began elsewhere, where it goes on whatever becomes of this process, and how that is found again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticket {
    /// Where in the history the step with the call stands: ids of calls may repeat.
    pub step: u64,
    pub call: String,
    /// The tool's own words.
    pub what: String,
}
