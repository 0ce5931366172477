//! `nexus3 acp`: agents in editors that speak the Agent Client Protocol, on standard input and output.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use nexus_doors::acp::{self, Options};
use nexus_protocol::WatchApi;
use tokio_util::sync::CancellationToken;

use crate::stdio_door::{self, Place, Talk};
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
    place: Place,
}

pub async fn run(args: AcpArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let mut config = wiring::load_config(&home, None)?;
    // Somebody sits at the editor, whatever the configuration says.
    config.permissions.ask();
    let editor = Editor(Options { preset: args.preset, model: args.model });
    stdio_door::open(&args.place, &home, &config, None, editor).await
}

/// An editor on standard input and output.
struct Editor(Options);

impl Talk for Editor {
    async fn talk<A>(self, api: A, stop: CancellationToken) -> anyhow::Result<()>
    where
        A: WatchApi + Clone + Send + Sync + 'static,
    {
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        let talked = acp::serve(api, self.0, stop, input, output).await;
        talked.context("the editor cannot be read")
    }
}
