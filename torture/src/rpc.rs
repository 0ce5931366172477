//! Calls over the Unix socket, that are never made twice: what became of a call whose connection broke is not known, and
//! that is what is tested.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// What became of a call.
#[derive(Debug)]
pub enum Answer {
    Done(Value),
    Refused(Refusal),
    /// The server went away before its answer had arrived.
    Gone,
}

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
#[derive(Clone, Debug)]
pub struct Address {
    pub socket: PathBuf,
    pub pid: u32,
}

/// Calls one of several servers on one home: the one it was told to, or the one that has the agent.
pub struct Caller {
    servers: Vec<Address>,
    connections: Vec<Option<UnixStream>>,
    /// Whom to ask first.
    pub first: usize,
}

/// Hops from owner to owner before a call is given up.
const HOPS_MAX: usize = 8;

/// Of a store that fails every second commit, so many fail in a row only if something else is wrong.
const READS_MAX: usize = 100;

impl Caller {
    pub fn new(servers: Vec<Address>) -> Self {
        let connections = servers.iter().map(|_| None).collect();
        Self { servers, connections, first: 0 }
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
            match self.servers.iter().position(|server| server.pid == owner) {
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
        let mut connection = match self.connections[at].take() {
            Some(connection) => connection,
            None => UnixStream::connect(&self.servers[at].socket).await?,
        };
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let body = body.to_string();
        let mut frame = u32::try_from(body.len())?.to_be_bytes().to_vec();
        frame.extend_from_slice(body.as_bytes());
        connection.write_all(&frame).await?;
        let length = connection.read_u32().await?;
        let mut answer = vec![0; length as usize];
        connection.read_exact(&mut answer).await?;
        self.connections[at] = Some(connection);
        parse(&answer)
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
            answer => bail!("{method} {params}: {answer:?}"),
        }
    }
}

fn parse(answer: &[u8]) -> anyhow::Result<Answer> {
    let mut answer: Value = serde_json::from_slice(answer).context("an answer that is not JSON")?;
    let Some(error) = answer.get("error") else { return Ok(Answer::Done(answer["result"].take())) };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    Ok(Answer::Refused(Refusal {
        code: error["code"].as_i64().unwrap_or_default(),
        message: text(&error["message"]),
        details: text(&error["data"]["details"]),
    }))
}
