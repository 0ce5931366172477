//! `nexus3 mcp serve`: agents as tools of an MCP host, on standard input and output.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use nexus_config::Config;
use nexus_doors::mcp::{self, Door, Exposed, Ground, Visitor};
use nexus_protocol::WatchApi;
use nexus_protocol::key::Door as Through;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::doors::exposed;
use crate::standard;
use crate::stdio_door::{self, PlaceArgs, Talk};
use crate::wiring;

#[derive(Args)]
pub struct ServeArgs {
    /// Talk to this agent, which exists, where the host names none
    #[arg(long, value_name = "ID", conflicts_with_all = ["preset", "cwd"])]
    agent: Option<String>,
    /// Permissions of the agent that is made otherwise, one for each directory [default: that of the configuration]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Its working directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let mut config = wiring::load_config(&home, None)?;
    let visitor = visitor(&args, &config)?;
    let host = Host { visitor, exposed: exposed(&config.doors) };
    // Somebody sits at the host.
    config.permissions.ask_who_watches();
    stdio_door::open(&args.place, &home, &config, Through::Mcp, host).await
}

/// An MCP host on standard input and output.
struct Host {
    visitor: Visitor,
    exposed: Arc<Exposed>,
}

impl Talk for Host {
    async fn talk<A>(self, api: A, stop: CancellationToken) -> anyhow::Result<()>
    where
        A: WatchApi + Clone + Send + Sync + 'static,
    {
        let door = Door::new(api.clone(), api, self.visitor, self.exposed);
        tokio::select! {
            talked = mcp::serve(door, standard::input(), standard::output()) => {
                talked.context("the MCP host cannot be understood")
            }
            () = stop.cancelled() => Ok(()),
        }
    }
}

fn visitor(args: &ServeArgs, config: &Config) -> anyhow::Result<Visitor> {
    let ground = match &args.agent {
        Some(agent) => Ground::Agent(agent.clone()),
        None => {
            let here = wiring::cwd()?;
            let cwd = args.cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd));
            let cwd = cwd.canonicalize().with_context(|| format!("--cwd {}", cwd.display()))?;
            let preset = args.preset.clone();
            let preset = preset.unwrap_or_else(|| config.permissions.default_preset.clone());
            let cwd = cwd.to_str().context("the directory's name is not UTF-8")?.to_owned();
            Ground::Made { name: agent_name(&cwd, &preset), preset, cwd: Some(cwd) }
        }
    };
    Ok(Visitor { name: "stdio".into(), source: "mcp".into(), ground, has_person: true })
}

/// One agent for each directory and preset, with a name that a person knows again.
fn agent_name(cwd: &str, preset: &str) -> String {
    let digest = Sha256::digest(format!("{cwd}\0{preset}"));
    let digest: String = digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    let dir = Path::new(cwd).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let dir: String = dir.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    match dir.is_empty() {
        true => format!("door-{digest}"),
        false => format!("door-{}-{digest}", dir.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_and_preset_has_an_agent_of_its_own() {
        let name = agent_name("/home/me/My Project!", "sandboxed");
        assert!(name.starts_with("door-myproject-"), "{name}");
        assert!(nexus_core::AgentId::parse(&name).is_ok());
        assert_eq!(name, agent_name("/home/me/My Project!", "sandboxed"));
        assert_ne!(name, agent_name("/home/me/My Project!", "trusted"));
        assert_ne!(name, agent_name("/home/you/My Project!", "sandboxed"));
        assert!(nexus_core::AgentId::parse(&agent_name("/", "worker")).is_ok());
    }
}
