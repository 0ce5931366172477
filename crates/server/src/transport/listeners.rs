//! The listening sockets of one server: one, or one for each loopback address of the machine.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::not_accepted;
use super::places::Places;

pub struct Listeners {
    pub first: TcpListener,
    pub second: Option<TcpListener>,
}

impl Listeners {
    /// The next connection; `None` when it is time to stop. What cannot be accepted is waited out.
    pub(super) async fn next(
        &self,
        places: &Places,
        stop: &CancellationToken,
    ) -> Option<TcpStream> {
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = stop.cancelled() => return None,
            };
            match accepted {
                Ok((stream, _)) => return Some(stream),
                Err(error) => not_accepted(&error, places).await,
            }
        }
    }

    /// The next connection on any of them.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let Some(second) = &self.second else { return self.first.accept().await };
        // Asked in a new order each time: who keeps one of them busy does not shut the other.
        tokio::select! {
            accepted = self.first.accept() => accepted,
            accepted = second.accept() => accepted,
        }
    }
}
