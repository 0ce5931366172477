//! `nexus3 acp`: agents in editors that speak the Agent Client Protocol, on standard input and output.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use nexus_doors::acp::{self, Options, Unused};
use nexus_protocol::key::Door as Through;
use nexus_protocol::params::NoParams;
use nexus_protocol::server::ServerInfo;
use nexus_protocol::{Api, Target, WatchApi};
use tokio_util::sync::CancellationToken;

use crate::standard;
use crate::stdio_door::{self, PlaceArgs, Talk};
use crate::unused::Marks;
use crate::wiring;

#[derive(Args)]
pub struct AcpArgs {
    /// Permissions of the agents that are made, one for each session
    #[arg(long, value_name = "NAME", default_value = "trusted")]
    preset: String,
    /// Their model [default: that of the configuration]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub async fn run(args: AcpArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let mut config = wiring::load_config(&home, None)?;
    // Somebody sits at the editor, whatever the configuration says.
    config.permissions.ask();
    let editor = Editor { preset: args.preset, model: args.model };
    stdio_door::open(&args.place, &home, &config, Through::Acp, editor).await
}

/// An editor on standard input and output.
struct Editor {
    preset: String,
    model: Option<String>,
}

impl Talk for Editor {
    async fn talk<A>(self, api: A, stop: CancellationToken) -> anyhow::Result<()>
    where
        A: WatchApi + Clone + Send + Sync + 'static,
    {
        let (input, output) = (standard::input(), standard::output());
        let options =
            Options { preset: self.preset, model: self.model, unused: unused(&api).await };
        let talked = acp::serve(api, options, stop, input, output).await;
        talked.context("the editor cannot be read")
    }
}

/// Where it is written down which agents nothing was said to: in the home that has them, which `--connect` may have named.
async fn unused<A: Api>(api: &A) -> Arc<dyn Unused> {
    let opened = match api.call::<ServerInfo>(&Target::Server, NoParams {}).await {
        Ok(info) => Marks::open(Path::new(&info.home)).map_err(|why| why.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match opened {
        Ok(marks) => Arc::new(marks),
        Err(why) => {
            tracing::warn!(why, "agents that nothing was said to stay when this process is killed");
            Arc::new(())
        }
    }
}
