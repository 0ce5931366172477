//! Calls that are never made twice: what became of a call whose connection broke is not known, and that is what is
//! tested.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::ended::Ended;
use crate::hangup;
use crate::inside::Connection;

/// What became of a call.
#[derive(Debug)]
pub enum Answer {
    Done(Value),
    Refused(Refusal),
    /// The caller let go before the server had the whole call: nothing may come of it.
    Unsent,
    /// The caller let go, and the call has ended since.
    Dropped,
    /// The server went away before its answer had arrived, or the caller let go and nobody knows what became of it.
    Gone,
}

/// The server went away, and so nothing could be looked at.
#[derive(Debug)]
pub struct Gone(pub String);

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server did not answer {}", self.0)
    }
}

impl std::error::Error for Gone {}

#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: i64,
    pub message: String,
    pub details: String,
}

impl Refusal {
    /// Whether the store could not do it, and says so.
    pub fn is_of_the_store(&self) -> bool {
        let known = [
            "There is no space left on the disk",
            "The store cannot be written",
            "The store failed",
            "The store is held by another process",
        ];
        known.contains(&&*self.message)
    }

    /// The process that has the agent, where the refusal says so.
    pub fn owner(&self) -> Option<u32> {
        if self.code != -32001 {
            return None;
        }
        let (_, rest) = self.details.rsplit_once("process ")?;
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
    }
}

/// A running server, as callers know it.
#[derive(Clone)]
pub struct Address {
    pub socket: PathBuf,
    pub http: SocketAddr,
    pub token: String,
    pub pid: u32,
    /// The calls that have ended, as its log says.
    pub ended: Ended,
}

/// Calls one of several servers on one home: the one it was told to, or the one that has the agent.
pub struct Caller {
    servers: Vec<Way>,
    /// Whom to ask first.
    pub first: usize,
}

/// How a server is reached.
enum Way {
    Process { address: Address, connection: Option<UnixStream> },
    Inside(Connection),
}

/// Hops from owner to owner before a call is given up.
const HOPS_MAX: usize = 8;

/// Of a store that fails every second commit, so many fail in a row only if something else is wrong.
const READS_MAX: usize = 100;

/// The id of every call that is waited for.
const WAITED_FOR: u64 = 1;

impl Caller {
    pub fn new(servers: Vec<Address>) -> Self {
        let way = |address| Way::Process { address, connection: None };
        Self { servers: servers.into_iter().map(way).collect(), first: 0 }
    }

    /// Calls a server in this process.
    pub fn inside(connection: Connection) -> Self {
        Self { servers: vec![Way::Inside(connection)], first: 0 }
    }

    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    pub async fn call(&mut self, method: &str, params: &Value) -> Answer {
        let mut at = self.first;
        for _ in 0..HOPS_MAX {
            let Ok(answer) = self.call_at(at, method, params).await else { return Answer::Gone };
            let owner = match &answer {
                Answer::Refused(refusal) => refusal.owner(),
                _ => None,
            };
            let Some(owner) = owner else { return answer };
            let is_owner =
                |way: &Way| matches!(way, Way::Process { address, .. } if address.pid == owner);
            match self.servers.iter().position(is_owner) {
                Some(next) => at = next,
                // A process of an earlier round: it is dead, or about to be.
                None => tokio::task::yield_now().await,
            }
        }
        Answer::Gone
    }

    /// Calls this one server; an error when it is gone.
    pub async fn call_at(
        &mut self,
        at: usize,
        method: &str,
        params: &Value,
    ) -> anyhow::Result<Answer> {
        let (address, kept) = match &mut self.servers[at] {
            Way::Inside(inside) => return inside.call(method, params).await,
            Way::Process { address, connection } => (address, connection),
        };
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => UnixStream::connect(&address.socket).await?,
        };
        connection.write_all(&frame(&request(WAITED_FOR, method, params))?).await?;
        let length = connection.read_u32().await?;
        let mut answer = vec![0; length as usize];
        connection.read_exact(&mut answer).await?;
        *kept = Some(connection);
        parse(&answer)
    }

    /// Calls the first server and lets go at some moment.
    pub async fn call_and_drop(
        &mut self,
        method: &str,
        params: &Value,
        rng: &mut Rng,
    ) -> anyhow::Result<Answer> {
        match &mut self.servers[self.first] {
            Way::Inside(inside) => inside.call_and_drop(method, params, rng).await,
            Way::Process { address, .. } => {
                Ok(hangup::call(address, method, params, rng).await.unwrap_or(Answer::Gone))
            }
        }
    }

    /// What a read comes to. It may have to take a lease first, and is asked for again when the store refuses that.
    pub async fn read(&mut self, method: &str, params: &Value) -> Answer {
        for _ in 0..READS_MAX {
            match self.call(method, params).await {
                Answer::Refused(refusal) if refusal.is_of_the_store() => {}
                answer => return answer,
            }
        }
        Answer::Gone
    }

    /// The result of a call that must succeed.
    pub async fn ok(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        match self.call(method, params).await {
            Answer::Done(result) => Ok(result),
            Answer::Gone => Err(Gone(format!("{method} {params}")).into()),
            answer => bail!("{method} {params}: {answer:?}"),
        }
    }
}

pub fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// A message as it travels over the socket.
pub fn frame(message: &str) -> anyhow::Result<Vec<u8>> {
    let mut frame = u32::try_from(message.len())?.to_be_bytes().to_vec();
    frame.extend_from_slice(message.as_bytes());
    Ok(frame)
}

pub fn parse(answer: &[u8]) -> anyhow::Result<Answer> {
    let mut answer: Value = serde_json::from_slice(answer).context("an answer that is not JSON")?;
    Ok(match answer.get("error") {
        Some(error) => Answer::Refused(refusal(error)),
        None => Answer::Done(answer["result"].take()),
    })
}

pub fn refusal(error: &Value) -> Refusal {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    Refusal {
        code: error["code"].as_i64().unwrap_or_default(),
        message: text(&error["message"]),
        details: text(&error["data"]["details"]),
    }
}
