//! What all who take part know: the server, its paths, the agents, and how one speaks to it with bare bytes.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::canary::Canaries;
use crate::rpc::Address;

/// The hostile agent; its children are sandboxed.
pub const VILLAIN: &str = "villain";

/// A hostile agent that was allowed to run commands, in a tree of its own.
pub const BRUTE: &str = "brute";

/// An agent whose client is honest, and one of another tree.
pub const HONEST: &str = "honest";
pub const NEIGHBOUR: &str = "neighbour";

/// The villain's children. The first of them do nothing but wait, so that the others do not wait behind them.
pub const HENCHMEN: u8 = 16;
pub const IDLERS: u8 = 4;

/// One more, whom nobody else gives work: it tries everything once, whatever became of the same among all the rest.
pub const LAST: u8 = HENCHMEN;

pub fn henchman(number: u8) -> String {
    format!("henchman-{number}")
}

/// What somebody hostile has in hand.
#[derive(Clone)]
pub struct Scene {
    pub address: Address,
    /// Tokens of the villain and of the brute.
    pub villain: Arc<str>,
    pub brute: Arc<str>,
    pub canaries: Arc<Canaries>,
}

/// Where everything lies.
#[derive(Clone, Debug)]
pub struct Places {
    /// Within nobody's borders.
    pub outside: PathBuf,
    /// The villain's directory and its children's, with links that lead out, and a repository.
    pub crew: PathBuf,
    /// The brute's.
    pub brute: PathBuf,
    pub home: PathBuf,
    /// The administrator's token.
    pub token_file: PathBuf,
    pub logs: PathBuf,
    /// How many seconds processes sleep that are to be left behind: no other process of the machine sleeps so long.
    pub sleep: String,
}

impl Places {
    /// The repository in the villain's directory, and the directory in it that is blocked.
    pub fn repository(&self) -> PathBuf {
        self.crew.join("repo")
    }

    pub fn blocked(&self) -> PathBuf {
        self.repository().join("blocked")
    }
}

/// A POST of JSON.
pub fn request_to(address: &Address, path: &str, token: &str, message: &str) -> Vec<u8> {
    // Hosts of MCP have to take both. Of the methods, who takes events is answered with events.
    let accept = match path {
        "/mcp" => "application/json, text/event-stream",
        _ => "application/json",
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nAccept: {accept}\r\nContent-Length: {}\r\n\r\n{message}",
        address.http,
        message.len()
    );
    head.into_bytes()
}

/// Sends a request and returns the body of its answer, which must be a success.
pub async fn ask(address: &Address, request: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut connection = TcpStream::connect(address.http).await?;
    connection.write_all(request).await?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await?;
    let end = b"\r\n\r\n";
    let at = answer.windows(end.len()).position(|it| it == end).context("an answer without end")?;
    let head = String::from_utf8_lossy(&answer[..at]).into_owned();
    ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
    Ok(answer.split_off(at + end.len()))
}
