//! A server as it is configured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::{Asks, ServerSource};

/// A server as it is configured. Variables in it are still names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    pub name: String,
    pub source: ServerSource,
    pub standing: Standing,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it runs; without one, in a directory of its own.
    pub cwd: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    /// Variables of this process that it is given, beside those that commands see.
    pub env_passthrough: Vec<String>,
    pub startup_timeout: Duration,
    /// How long a call may be silent.
    pub timeout: Duration,
    /// After so long without a call it is ended.
    pub idle_timeout: Duration,
    pub asks: Asks,
    /// Patterns of tools; without any, all.
    pub allow: Vec<String>,
    /// Patterns of tools that are left out whatever `allow` says.
    pub deny: Vec<String>,
    pub pins: Pins,
    pub defer: Defer,
    /// A list without a tool is a failure.
    pub fail_if_no_tools: bool,
    pub sandbox: Sandbox,
}

/// What is done with tools that say something else of themselves than when they were first listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pins {
    /// They wait until somebody has looked at them.
    #[default]
    Strict,
    /// They are taken as they are.
    Off,
}

/// Whether the model is shown a server's tools, or how to find them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Defer {
    /// How to find them, when all tools of servers together are many.
    #[default]
    Auto,
    Never,
    Always,
}

/// Whether a server may be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Usable,
    /// A project brought it along, and nobody trusted that.
    Untrusted,
    Disabled,
    /// What a project wrote of it cannot be used.
    Wrong(String),
}

/// What the kernel lets it do, beside reading its program and its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub read: BTreeSet<PathBuf>,
    pub write: BTreeSet<PathBuf>,
    pub network: bool,
    /// Not to be started where the kernel cannot hold it.
    pub required: bool,
}

impl ServerEntry {
    /// Tells it from others of its name: what is known of its tools holds only for what was started then.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        field(&self.name);
        self.argv.iter().for_each(|word| field(word));
        field("");
        if let Some(cwd) = &self.cwd {
            field(&cwd.to_string_lossy());
        }
        for (name, value) in &self.env {
            field(name);
            field(value);
        }
        hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
