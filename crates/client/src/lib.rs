//! The typed client: [`NexusClient`] over HTTP, [`UnixClient`] over the framed socket and [`ChannelClient`] over one
//! connection to a server that the caller started, all behind [`Api`](nexus_protocol::Api), which the in-process interface has too. Around them: finding the token, finding out
//! whether a server is there, and finding all that are.

mod channel;
pub mod detection;
pub mod discovery;
pub mod home;
mod http;
mod incoming;
mod outgoing;
mod retry;
mod stream;
#[cfg(test)]
mod testing;
pub mod token;
mod unix;
mod watch;

pub use channel::ChannelClient;
pub use detection::{Detection, detect_server, wait_for_server};
pub use discovery::{
    Auth, DiscoveredServer, discover_servers, discover_token_ports, parse_port_spec, probe_server,
};
pub use home::{HomeServer, Way, find_home_server};
pub use http::{BuildError, Builder, NexusClient, is_of_this_machine};
pub use nexus_protocol::answer::{StreamItem, WatchItem};
pub use nexus_protocol::{AgentScopedApi, Api, CallError, Target};
pub use nexus_signing::{NoSigningKey, SigningKey};
pub use stream::SendStream;
pub use token::{Environment, Token};
pub use unix::UnixClient;
pub use watch::WatchStream;

/// Where a server listens unless told otherwise.
pub const PORT_DEFAULT: u16 = 8765;
