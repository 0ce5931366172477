//! Is a server there? One question without a token tells: ours answers it, or refuses it in its own words.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use nexus_protocol::envelope::Call;
use nexus_protocol::params::NoParams;
use nexus_protocol::server::{Version, VersionResult};
use nexus_protocol::{Method, RpcError};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::AbortOnDropHandle;

/// Largest body of an answer to the question; ours have a few hundred bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Between two questions of `wait_for_server`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What listens on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Detection {
    /// Nothing does.
    NoServer,
    NexusServer,
    OtherService,
    /// Something may, but it did not answer in time.
    Timeout,
    /// It could not be found out.
    Error,
}

pub async fn detect_server(host: &str, port: u16, timeout: Duration) -> Detection {
    examine(host, port, timeout).await.detection()
}

/// Waits until a server of ours answers; false when none did within `timeout`.
pub async fn wait_for_server(host: &str, port: u16, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let found = async {
        loop {
            ticks.tick().await;
            let left = deadline.saturating_duration_since(Instant::now());
            if detect_server(host, port, left).await == Detection::NexusServer {
                return;
            }
        }
    };
    tokio::time::timeout_at(deadline, found).await.is_ok()
}

/// What was seen on a port, with what a caller may want to know beyond the [`Detection`].
pub(crate) enum Finding {
    NoServer,
    /// One of ours; whether it asks for a token.
    Nexus {
        wants_token: bool,
    },
    OtherService,
    Timeout,
    Error(io::Error),
}

impl Finding {
    pub fn detection(&self) -> Detection {
        match self {
            Self::NoServer => Detection::NoServer,
            Self::Nexus { .. } => Detection::NexusServer,
            Self::OtherService => Detection::OtherService,
            Self::Timeout => Detection::Timeout,
            Self::Error(_) => Detection::Error,
        }
    }
}

pub(crate) async fn examine(host: &str, port: u16, timeout: Duration) -> Finding {
    tokio::time::timeout(timeout, ask(host, port)).await.unwrap_or(Finding::Timeout)
}

async fn ask(host: &str, port: u16) -> Finding {
    let bare_host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = match TcpStream::connect((bare_host, port)).await {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::ConnectionRefused => Finding::NoServer,
                io::ErrorKind::TimedOut => Finding::Timeout,
                _ => Finding::Error(error),
            };
        }
    };
    // Whoever took the connection and does not speak HTTP, or not to the end, is somebody else.
    match question(stream, &authority(host, port)).await {
        Ok(body) => judge(&body),
        Err(_) => Finding::OtherService,
    }
}

async fn question(
    stream: TcpStream,
    authority: &str,
) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let body = serde_json::to_vec(&Call::new(1, Version::NAME, &NoParams {}))?;
    let request = Request::post("/rpc")
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let response = sender.send_request(request).await?;
    Ok(Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await?.to_bytes())
}

fn judge(body: &[u8]) -> Finding {
    #[derive(Deserialize)]
    struct Reply {
        jsonrpc: String,
        result: Option<VersionResult>,
        error: Option<RpcError>,
    }
    match serde_json::from_slice::<Reply>(body) {
        Ok(reply) if reply.jsonrpc != "2.0" => Finding::OtherService,
        Ok(Reply { result: Some(_), error: None, .. }) => Finding::Nexus { wants_token: false },
        Ok(Reply { error: Some(error), .. }) if is_ours(&error) => {
            Finding::Nexus { wants_token: true }
        }
        _ => Finding::OtherService,
    }
}

/// Other JSON-RPC servers refuse too, but not with this `data.type`. A server that has been asked too often, or has
/// too much to do, is there all the same.
fn is_ours(error: &RpcError) -> bool {
    let kind = error.data.as_ref().and_then(|data| data["type"].as_str());
    matches!(kind, Some("AUTHENTICATION_FAILED" | "RATE_LIMITED" | "RESOURCE_UNAVAILABLE"))
}

/// `host:port` as it stands in a URL, an IPv6 address in brackets.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests;
