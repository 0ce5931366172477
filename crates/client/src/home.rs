//! The server of a home, by its socket or one of its ports.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nexus_protocol::params::NoParams;
use nexus_protocol::server::{ServerInfo, ServerInfoResult};
use nexus_protocol::{Api, Target};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{NexusClient, UnixClient, discover_token_ports};

/// How long a server that runs may take to answer.
pub const ANSWER: Duration = Duration::from_secs(2);

/// A server that answers.
pub struct HomeServer {
    pub way: Way,
    pub info: ServerInfoResult,
}

/// How it is reached.
pub enum Way {
    Unix(Box<UnixClient>),
    Http { client: Box<NexusClient>, url: String },
}

/// Finds the server of a home, at one of these sockets or ports or where its token files say.
pub async fn find_home_server(
    home: &Path,
    sockets: &[PathBuf],
    ports: &[u16],
) -> Option<HomeServer> {
    for socket in sockets.iter().filter(|socket| socket.exists()) {
        let client = UnixClient::new(socket);
        if let Ok(info) = who_answers(&client, ANSWER).await
            && is_home(&info, home)
        {
            return Some(HomeServer { way: Way::Unix(Box::new(client)), info });
        }
    }
    // Where a server listens, its home has the token for it; one without a token is where it is configured to be.
    let mut all: Vec<u16> = discover_token_ports(home).unwrap_or_default().into_keys().collect();
    all.extend(ports.iter().filter(|port| **port != 0));
    all.sort_unstable();
    all.dedup();
    for port in all {
        // Where nobody listens that is known at once; a client would try again for a while.
        if !matches!(timeout(ANSWER, TcpStream::connect(("127.0.0.1", port))).await, Ok(Ok(_))) {
            continue;
        }
        let url = format!("http://127.0.0.1:{port}");
        let Ok(client) = NexusClient::builder().url(&url).build() else { continue };
        if let Ok(info) = who_answers(&client, ANSWER).await
            && is_home(&info, home)
        {
            return Some(HomeServer { way: Way::Http { client: Box::new(client), url }, info });
        }
    }
    None
}

/// What a server says of itself, or why it does not.
pub async fn who_answers<A: Api>(api: &A, wait: Duration) -> Result<ServerInfoResult, String> {
    match timeout(wait, api.call::<ServerInfo>(&Target::Server, NoParams {})).await {
        Ok(Ok(info)) => Ok(info),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {wait:?}")),
    }
}

/// Another home's server has other agents.
fn is_home(info: &ServerInfoResult, home: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    real(Path::new(&info.home)) == real(home)
}
