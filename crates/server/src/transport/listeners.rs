//! The listening sockets of one server: one, or one for each loopback address of the machine.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

pub struct Listeners {
    pub first: TcpListener,
    pub second: Option<TcpListener>,
}

impl Listeners {
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
