//! The server's port: taken before anything is touched, opened when everything is ready.
//!
//! `localhost` has two addresses, and clients try one and then the other. Who listens on the one that the server left
//! free, another user or an agent's command, is handed the token by such a client. So the server takes both.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{anyhow, bail};
use nexus_server::transport::listeners::Listeners;
use rustix::io::Errno;
use tokio::net::TcpSocket;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Free ports of IPv4 that are looked at for one that IPv6 has free too. Even the second is rarely needed.
const FREE_PORTS_MAX: usize = 16;

/// Somebody else has the port.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InUse(String);

/// A port that is taken but not yet open: whoever connects is refused until it listens.
pub struct Port {
    address: SocketAddr,
    first: TcpSocket,
    second: Option<TcpSocket>,
}

impl Port {
    /// Takes the port, 0 for a free one: on both loopback addresses for `localhost`, else on the one that is named.
    /// Other hosts are refused: this server is for its own machine.
    pub fn take(host: &str, port: u16) -> anyhow::Result<Self> {
        match host {
            "localhost" => Self::take_both(port),
            "127.0.0.1" => Self::take_one(Ipv4Addr::LOCALHOST.into(), port),
            "::1" | "[::1]" => Self::take_one(Ipv6Addr::LOCALHOST.into(), port),
            _ => bail!(
                "host {host} is refused: this server binds only to 127.0.0.1, localhost or ::1"
            ),
        }
    }

    /// Where people and programs are sent. Of two addresses it is that of IPv4, which nothing has to look up.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn listen(self) -> anyhow::Result<Listeners> {
        let listen = |socket: TcpSocket| {
            let listener = socket.listen(BACKLOG)?;
            // Its connections inherit it, and so do not keep the next server from the port. Nobody shares it before that:
            // a socket that listens is alone.
            rustix::net::sockopt::set_socket_reuseaddr(&listener, true)?;
            Ok(listener)
        };
        let listen = |socket| listen(socket).map_err(|error| unbindable(self.address, error));
        Ok(Listeners { first: listen(self.first)?, second: self.second.map(listen).transpose()? })
    }

    fn take_one(ip: IpAddr, port: u16) -> anyhow::Result<Self> {
        let address = SocketAddr::new(ip, port);
        let first = bind(address).map_err(|error| unbindable(address, error))?;
        Ok(Self { address: first.local_addr()?, first, second: None })
    }

    fn take_both(port: u16) -> anyhow::Result<Self> {
        let mut left = if port == 0 { FREE_PORTS_MAX } else { 1 };
        loop {
            left -= 1;
            let one = Self::take_one(Ipv4Addr::LOCALHOST.into(), port)?;
            let other = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), one.address.port());
            match bind(other) {
                Ok(second) => return Ok(Self { second: Some(second), ..one }),
                // A machine without IPv6: nobody can listen there.
                Err(error) if has_no_address(&error) => return Ok(one),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && left > 0 => {}
                Err(error) => return Err(half_taken(other, error)),
            }
        }
    }
}

/// First for ourselves alone: two sockets that may share a port can both be bound until one of them listens. Where
/// connections of a server that ended are not forgotten yet, only a shared one can be had.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    bind_as(address, false).or_else(|_| bind_as(address, true))
}

fn bind_as(address: SocketAddr, shared: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(shared)?;
    socket.bind(address)?;
    Ok(socket)
}

fn has_no_address(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

fn unbindable(address: SocketAddr, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(InUse(format!(
            "port {0} is in use; see who has it with: nexus3 rpc detect -p {0}",
            address.port()
        ))),
        _ => anyhow::Error::new(error).context(format!("{address} cannot be bound")),
    }
}

/// One of the two addresses is somebody else's.
fn half_taken(address: SocketAddr, error: io::Error) -> anyhow::Error {
    let port = address.port();
    if error.kind() != io::ErrorKind::AddrInUse {
        return unbindable(address, error);
    }
    anyhow!(InUse(format!(
        "port {port} is in use on ::1, and whoever has it there would be handed the token by clients of \
         http://localhost:{port}; see who it is with: nexus3 rpc detect --host ::1 -p {port}\n\
         Name another port, or serve on 127.0.0.1 alone: --host 127.0.0.1"
    )))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_port_that_is_only_bound_is_taken_and_not_open() {
        let port = Port::take("localhost", 0).unwrap();
        let address = port.address();
        assert!(address.is_ipv4());
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        for shared in [false, true] {
            let taken = bind_as(address, shared).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        }
        let listeners = port.listen().unwrap();
        TcpStream::connect(address).unwrap();
        listeners.accept().await.unwrap();
        if let Some(second) = &listeners.second {
            let other = second.local_addr().unwrap();
            assert_eq!(other, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()));
            TcpStream::connect(other).unwrap();
            assert!(listeners.accept().await.unwrap().1.is_ipv6());
        }
    }

    #[tokio::test]
    async fn connections_of_a_server_that_ended_keep_nobody_from_its_port() {
        let port = Port::take("localhost", 0).unwrap();
        let address = port.address();
        let listeners = port.listen().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let accepted = listeners.accept().await.unwrap();
        // Nobody else has it while it is listened on.
        for shared in [false, true] {
            assert!(bind_as(address, shared).is_err());
        }
        // The server hangs up first, as when it is killed; the client does not notice.
        drop((accepted, listeners));
        let again = Port::take("localhost", address.port()).unwrap().listen().unwrap();
        TcpStream::connect(address).unwrap();
        again.accept().await.unwrap();
        drop(client);
    }

    #[tokio::test]
    async fn a_port_that_is_somebody_elses_on_the_other_address_is_refused() {
        // One that is free on the other address: somebody's connection may have it just now.
        let (other, port) = loop {
            let Ok(other) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
                eprintln!("there is no IPv6 on this machine: not tried");
                return;
            };
            let port = other.local_addr().unwrap().port();
            if Port::take("127.0.0.1", port).is_ok() {
                break (other, port);
            }
        };
        let refused = Port::take("localhost", port).err().unwrap().to_string();
        assert!(refused.contains(&format!("port {port} is in use on ::1")), "{refused}");
        assert!(refused.contains("--host 127.0.0.1"), "{refused}");
        assert_eq!(Port::take("127.0.0.1", port).unwrap().address().port(), port);
        drop(other);
    }
}
