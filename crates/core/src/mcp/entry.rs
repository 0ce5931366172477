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
    pub standing: Eligibility,
    pub way: Way,
    pub startup_timeout: Duration,
    /// How long a call may be silent.
    pub timeout: Duration,
    /// After so long without a call it is ended.
    pub idle_timeout: Duration,
    pub asks: Asks,
    /// Patterns of tools for which it is otherwise; of several that fit, the strictest counts.
    pub asks_by: Vec<(String, Asks)>,
    /// Patterns of tools; without any, all.
    pub allow: Vec<String>,
    /// Patterns of tools that are left out whatever `allow` says.
    pub deny: Vec<String>,
    pub pins: Pins,
    pub defer: Defer,
    /// A list without a tool is a failure.
    pub fail_if_no_tools: bool,
    /// It is started with this program, not when it is first needed.
    pub eager: bool,
    /// One process serves all agents; otherwise each that uses it has its own.
    pub share: bool,
    /// It may ask people, while one of its tools runs.
    pub elicitation: bool,
    /// It may ask for what the agent's model says, each time with somebody's leave.
    pub sampling: bool,
    /// It may know the directories that it is for.
    pub roots: bool,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Program(Program),
    Remote(Remote),
}

/// A program of this machine, spoken with through its standard input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it runs; without one, in a directory of its own.
    pub cwd: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    /// Variables of this process that it is given, beside those that commands see.
    pub env_passthrough: Vec<String>,
    pub sandbox: Sandbox,
}

/// A server that somebody else runs, spoken with over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    pub url: String,
    pub headers: BTreeMap<String, String>,
    /// It may have an address of a network that is not the world's.
    pub private: bool,
    pub auth: Auth,
}

/// How a person logs in at a server elsewhere, as far as that is not found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// What is asked for; without any, what the server says.
    pub scopes: Vec<String>,
    /// As what we are known there; without it, we make ourselves known.
    pub client_id: Option<String>,
    /// The variable of this process that has the secret to it.
    pub client_secret_env: Option<String>,
}

impl Way {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Program(_) => "stdio",
            Self::Remote(_) => "http",
        }
    }

    /// The command line or the address, as it is written.
    pub fn written(&self) -> String {
        match self {
            Self::Program(program) => program.argv.join(" "),
            Self::Remote(remote) => remote.url.clone(),
        }
    }

    /// The variables of this process whose values it is told.
    pub fn taken(&self) -> BTreeSet<&str> {
        match self {
            Self::Program(program) => {
                let written = program.argv.iter().chain(program.env.values());
                let passed = program.env_passthrough.iter().map(String::as_str);
                written.flat_map(|text| variables(text)).chain(passed).collect()
            }
            Self::Remote(remote) => {
                let written = remote.headers.values().chain([&remote.url]);
                let secret = remote.auth.client_secret_env.as_deref();
                written.flat_map(|text| variables(text)).chain(secret).collect()
            }
        }
    }

    /// The names of what it is given beside that. The values are nobody's business.
    pub fn given(&self) -> Vec<&str> {
        match self {
            Self::Program(program) => {
                program.env.keys().chain(&program.env_passthrough).map(String::as_str).collect()
            }
            Self::Remote(remote) => remote.headers.keys().map(String::as_str).collect(),
        }
    }
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
pub enum Eligibility {
    Usable,
    /// A project brought it along, and nobody trusted that.
    Untrusted,
    Disabled,
    /// What a project wrote of it cannot be used.
    Wrong(String),
}

impl Eligibility {
    /// Why it may not be used, where that is so.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Usable => Ok(()),
            Self::Untrusted => {
                Err("a project brought it along: nexus3 trust shows it and lets it be used".into())
            }
            Self::Disabled => Err("it is disabled in the configuration".into()),
            Self::Wrong(why) => Err(why.clone()),
        }
    }
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

/// The names in `${NAME}` and `${NAME:-text}`.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    let named = text.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
    named.map(|(named, _)| named.split_once(":-").map_or(named, |(name, _)| name))
}

impl ServerEntry {
    /// Whether it is one agent's, and in no configuration.
    pub fn is_own(&self) -> bool {
        matches!(self.source, ServerSource::Agent | ServerSource::Client)
    }

    /// What a person types to log in there. Models read it too, and an address may have a secret in it, so it stands for
    /// itself.
    pub fn login_line(&self) -> String {
        let address = if self.is_own() { " URL" } else { "" };
        format!("nexus3 mcp login {}{address}", self.name)
    }

    /// Tells it from others of its name: what is known of its tools holds only for what was started then.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        field(&self.name);
        match &self.way {
            Way::Program(program) => {
                program.argv.iter().for_each(|word| field(word));
                field("");
                if let Some(cwd) = &program.cwd {
                    field(&cwd.to_string_lossy());
                }
                for (name, value) in &program.env {
                    field(name);
                    // Nothing that is made of a value which is not kept lies on disk.
                    field(if self.is_own() { "" } else { value });
                }
            }
            // No program has an empty name. What it is told in headers, a key mostly, makes it no other server.
            Way::Remote(remote) => ["", remote.url.as_str()].into_iter().for_each(field),
        }
        hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_is_told_of_the_environment_is_known() {
        let headers = [("A", "Bearer ${TOKEN}"), ("B", "plain"), ("C", "${ONE}-${TWO:-2}")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let remote = Remote {
            url: "https://${HOST}/x".into(),
            headers,
            private: false,
            auth: Auth { client_secret_env: Some("SECRET".into()), ..Auth::default() },
        };
        let taken: Vec<_> = Way::Remote(remote).taken().into_iter().map(str::to_owned).collect();
        assert_eq!(taken, ["HOST", "ONE", "SECRET", "TOKEN", "TWO"]);
    }
}
