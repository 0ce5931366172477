//! Which servers are there? Many ports asked at once.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use nexus_protocol::agent::AgentEntry;
use nexus_protocol::error::FORBIDDEN;
use nexus_protocol::shared::Shared;
use nexus_protocol::{Api, CallError};
use serde::Serialize;

use crate::detection::{Detection, Finding, authority, examine};
use crate::token::{self, Environment, Lookup, Token};
use crate::{NexusClient, PORT_DEFAULT, http};

/// Ports asked at once: enough to walk a thousand in some seconds, and far from any limit of open files.
const PROBES_MAX: usize = 50;

/// Time for one port. A server on this machine answers within some milliseconds.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// What was found on one port.
#[derive(Debug, Serialize)]
pub struct DiscoveredServer {
    pub host: String,
    pub port: u16,
    pub base_url: String,
    pub detection: Detection,
    /// For a server of ours, how it took the token.
    pub auth: Option<Auth>,
    /// Its agents, if it told.
    pub agents: Option<Shared<Vec<AgentEntry>>>,
    /// The port's token file, if there is one.
    pub token_path: Option<PathBuf>,
    /// Whether there was a token to try.
    pub token_present: bool,
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// The token was accepted.
    Ok,
    /// It wants a token and there is none.
    Required,
    InvalidToken,
    /// It answers without one.
    Disabled,
}

/// Asks all `ports`, 50 at a time, each for at most `timeout`; one entry for each, by port.
pub async fn discover_servers(
    host: &str,
    ports: &[u16],
    timeout: Duration,
    environment: &Environment,
) -> Vec<DiscoveredServer> {
    let probes = ports.iter().copied().map(|port| probe_server(host, port, timeout, environment));
    let mut found: Vec<_> =
        futures_util::stream::iter(probes).buffer_unordered(PROBES_MAX).collect().await;
    found.sort_by_key(|server| server.port);
    found
}

/// Asks one port what it is and, if it is a server of ours, for its agents.
///
/// The token tried is that of the port's own file, else that of the environment; none on another machine.
pub async fn probe_server(
    host: &str,
    port: u16,
    timeout: Duration,
    environment: &Environment,
) -> DiscoveredServer {
    let token_path = environment.home.as_deref().map(|home| home.join(token::file_name(port)));
    let mut server = DiscoveredServer {
        host: host.into(),
        port,
        base_url: format!("http://{}", authority(host, port)),
        detection: Detection::NoServer,
        auth: None,
        agents: None,
        token_path: token_path.filter(|path| path.exists()),
        token_present: false,
        error: None,
    };
    let finding = examine(host, port, timeout).await;
    server.detection = finding.detection();
    match finding {
        Finding::Nexus { wants_token: false } => {
            server.auth = Some(Auth::Disabled);
            ask_agents(&mut server, None, timeout).await;
        }
        Finding::Nexus { wants_token: true } => match token_for(environment, host, port) {
            Ok(Lookup { token: Some(token), .. }) => {
                server.token_present = true;
                ask_agents(&mut server, Some(&token), timeout).await;
            }
            Ok(Lookup { token: None, warnings, .. }) => {
                server.auth = Some(Auth::Required);
                server.error = warnings.into_iter().next();
            }
            Err(error) => {
                server.auth = Some(Auth::Required);
                server.error = Some(error.to_string());
            }
        },
        Finding::Error(error) => server.error = Some(error.to_string()),
        Finding::NoServer | Finding::OtherService | Finding::Timeout => {}
    }
    server
}

fn token_for(environment: &Environment, host: &str, port: u16) -> Result<Lookup, token::Error> {
    let none = Lookup { token: None, source: String::new(), warnings: Vec::new() };
    if !http::is_ours(host) {
        return Ok(none);
    }
    let mut lookup = match &environment.home {
        Some(home) => token::of_port(home, port)?,
        None => none,
    };
    if lookup.token.is_none() {
        lookup.token = environment.api_key()?;
    }
    Ok(lookup)
}

async fn ask_agents(server: &mut DiscoveredServer, token: Option<&Token>, timeout: Duration) {
    let builder = NexusClient::builder().url(&server.base_url).timeout(timeout);
    let builder = match token {
        Some(token) => builder.token(token.as_str()),
        None => builder.without_token(),
    };
    let client = match builder.build() {
        Ok(client) => client,
        Err(error) => {
            server.error = Some(error.to_string());
            return;
        }
    };
    match client.list_agents().await {
        Ok(list) => {
            server.auth.get_or_insert(Auth::Ok);
            server.agents = Some(list.agents);
        }
        Err(CallError::Rpc(error)) if error.code == FORBIDDEN && token.is_some() => {
            server.auth = Some(Auth::InvalidToken);
        }
        Err(error) => server.error = Some(error.to_string()),
    }
}

/// The ports for which `home` holds a token file, with the file.
pub fn discover_token_ports(home: &Path) -> io::Result<BTreeMap<u16, PathBuf>> {
    let mut ports = BTreeMap::new();
    for entry in home.read_dir()? {
        let path = entry?.path();
        if let Some(port) = path.file_name().and_then(|name| port_of_file(name.to_str()?)) {
            ports.insert(port, path);
        }
    }
    Ok(ports)
}

fn port_of_file(name: &str) -> Option<u16> {
    if name == token::file_name(PORT_DEFAULT) {
        return Some(PORT_DEFAULT);
    }
    let port = name.strip_prefix("rpc-")?.strip_suffix(".token")?.parse().ok()?;
    // Of the spellings that parse (`+80`, `080`) only the one that a server writes counts.
    (port != 0 && token::file_name(port) == name).then_some(port)
}

/// Reads `8765,9000-9005`: single ports and ranges, each port once, in the order named.
pub fn parse_port_spec(spec: &str) -> Result<Vec<u16>, PortSpecError> {
    let mut named = vec![false; usize::from(u16::MAX) + 1];
    let mut ports = Vec::new();
    for part in spec.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_port(first)?, parse_port(last)?);
        if first > last {
            return Err(PortSpecError::Reversed { first, last });
        }
        for port in first..=last {
            if !std::mem::replace(&mut named[usize::from(port)], true) {
                ports.push(port);
            }
        }
    }
    Ok(ports)
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortSpecError {
    #[error("{0:?} is not a port: use numbers from 1 to 65535, as in 8765,9000-9005")]
    NotAPort(String),
    #[error("the range {first}-{last} runs backwards")]
    Reversed { first: u16, last: u16 },
}

fn parse_port(text: &str) -> Result<u16, PortSpecError> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits && port != 0 => Ok(port),
        _ => Err(PortSpecError::NotAPort(text.into())),
    }
}

#[cfg(test)]
mod tests;
