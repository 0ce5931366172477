//! What all servers are started with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use nexus_core::mcp::{ServerEntry, ServerSource};
use serde_json::{Map, Value};

use crate::results::Results;
use nexus_core::attach::Intake;
use nexus_core::embed::Embedder;
use nexus_tools::sandbox::{Launcher, Limits, Strength};

/// What all servers are started with.
pub struct Ground {
    pub launcher: Launcher,
    pub strength: Strength,
    pub limits: Limits,
    /// Where this program keeps its files: closed to servers, but for a directory of each.
    pub home: PathBuf,
    /// Looks at images that servers send.
    pub intake: Arc<dyn Intake>,
    /// Where long results are kept.
    pub results: Arc<Results>,
    /// Says what tools are about, for searches.
    pub embedder: Arc<dyn Embedder>,
    /// Reads entries of servers that are one agent's.
    pub entries: Box<dyn Entries>,
    /// The variables of this process. Servers see few of them.
    pub variables: BTreeMap<String, String>,
}

/// Reads entries of servers that are in no configuration, as if they were.
pub trait Entries: Send + Sync {
    /// The entry, or what is wrong with it, without its values.
    fn read(
        &self,
        name: &str,
        source: ServerSource,
        config: &Map<String, Value>,
    ) -> Result<ServerEntry, String>;

    /// One that cannot be used any more, and why.
    fn unusable(&self, name: &str, source: ServerSource, why: String) -> ServerEntry;
}
