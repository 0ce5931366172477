//! The door on standard input and output: one host, for as long as it has something to say.

use std::io;

use nexus_protocol::WatchApi;
use rmcp::ServiceExt as _;
use tokio::io::{AsyncRead, AsyncWrite};

use super::handler::Door;

/// Serves one host until its input ends.
pub async fn serve<A, R, W>(door: Door<A>, input: R, output: W) -> io::Result<()>
where
    A: WatchApi + Clone + Send + Sync + 'static,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let running = match door.serve((input, output)).await {
        Ok(running) => running,
        // Whoever hung up before it said anything wanted nothing.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    running.waiting().await.map(drop).map_err(io::Error::other)
}
