//! Doors on standard input and output: they go through the server of this home where one runs, and open the home themselves
//! where none does.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use nexus_client::home::{ANSWER, who_answers};
use nexus_client::{UnixClient, Way};
use nexus_config::Config;
use nexus_core::Requester;
use nexus_protocol::WatchApi;
use nexus_protocol::key::Door as Through;
use nexus_server::{DirectAgentApi, stored_door};
use nexus_tools::sandbox::Launcher;
use tokio_util::sync::CancellationToken;

use crate::home::home_server;
use crate::serve;
use crate::signals::Signals;
use crate::wiring::{self, Logs};

#[derive(Args)]
pub struct PlaceArgs {
    /// Open the home here, whether or not a server of it runs
    #[arg(long, conflicts_with = "connect")]
    embedded: bool,
    /// Use the server that listens on this socket
    #[arg(long, value_name = "PATH")]
    connect: Option<PathBuf>,
}

/// Whoever is at the other end of the pipes.
pub trait Talk {
    /// Serves them until they hang up, or until `stop`.
    fn talk<A>(
        self,
        api: A,
        stop: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<()>> + Send
    where
        A: WatchApi + Clone + Send + Sync + 'static;
}

/// Opens the door, with the administrator's rights. `config` is for a home that is opened here.
pub async fn open(
    place: &PlaceArgs,
    home: &Path,
    config: &Config,
    through: Through,
    whom: impl Talk,
) -> anyhow::Result<ExitCode> {
    if let Some(path) = &place.connect {
        let client = UnixClient::new(path);
        let answered = who_answers(&client, ANSWER).await;
        answered.map_err(|why| anyhow!("{}: {why}", path.display()))?;
        return talk(Arc::new(client.through(through)), whom).await;
    }
    if !place.embedded {
        match home_server(home, config).await {
            Some(Way::Unix(client)) => {
                return talk(Arc::new(client.through(through)), whom).await;
            }
            Some(Way::Http { client, .. }) => {
                return talk(Arc::new(client.through(through)), whom).await;
            }
            None => {}
        }
    }
    let wired = wiring::wire(home, &wiring::cwd()?, config, Logs::none(), Launcher::own()).await?;
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    let talked = talk(api.through(stored_door(through)), whom).await;
    wired.engine.turns.stop(Duration::ZERO).await;
    serve::close(&wired, None).await?;
    talked
}

/// Until they hang up or somebody ends us.
async fn talk<A>(api: A, whom: impl Talk) -> anyhow::Result<ExitCode>
where
    A: WatchApi + Clone + Send + Sync + 'static,
{
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let mut talking = std::pin::pin!(whom.talk(api, stop.clone()));
    tokio::select! {
        talked = &mut talking => talked?,
        () = signals.next() => {
            stop.cancel();
            talking.await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
