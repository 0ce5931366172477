//! Clients who do nothing wrong, each by another way and from another tree of agents. Any refusal is a defect.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::scene::{ask, request_to};
use crate::rpc::{Address, Answer, Caller, parse};

/// What they say begins so, and the model answers as they expect.
pub const HELLO: &str = "hello";

/// Beside it they say what is nobody else's business.
pub const PRIVATE: &str = "between-us-two-c4e6";

/// Turns that each has in every run.
const TURNS_MIN: u64 = 3;

/// How a client reaches the server, and as whom.
pub enum Way {
    /// On the socket, as the administrator.
    Socket(Caller),
    /// Over HTTP with this token, each call on a connection of its own: whoever takes all places keeps it out.
    Http(Address, String),
}

pub struct Honest {
    pub name: &'static str,
    pub way: Way,
    /// The agent it speaks with.
    pub agent: &'static str,
}

/// What became of it.
pub struct Served {
    pub name: &'static str,
    pub reads: Vec<Duration>,
    pub turns: u64,
}

impl Honest {
    /// Reads all the time, and asks for a turn now and then. It goes on until it had turns enough: on a slow machine a
    /// run is longer, not emptier.
    pub async fn live(&mut self, length: Duration) -> anyhow::Result<Served> {
        let started = Instant::now();
        let mut served = Served { name: self.name, reads: Vec::new(), turns: 0 };
        while started.elapsed() < length || served.turns < TURNS_MIN {
            let asked = Instant::now();
            match served.reads.len() % 3 {
                0 => self.ok("get_context", &json!({"agent_id": self.agent})).await?,
                1 => self.ok("rpc.version", &json!({})).await?,
                _ => self.ok("list_agents", &json!({"limit": 20})).await?,
            };
            served.reads.push(asked.elapsed());
            if served.reads.len().is_multiple_of(20) {
                let content = format!("{HELLO} {PRIVATE}");
                let params = json!({"agent_id": self.agent, "content": content});
                let said = self.ok("send", &params).await?;
                ensure!(said["content"] == "well", "{}: its agent said {said}", self.name);
                served.turns += 1;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(served)
    }

    async fn ok(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let name = self.name;
        let (address, token) = match &mut self.way {
            Way::Socket(caller) => return caller.ok(method, params).await.context(name),
            Way::Http(address, token) => (&*address, token.as_str()),
        };
        let request = request_to(address, "/", token, &crate::rpc::request(1, method, params));
        let answer = ask(address, &request).await.with_context(|| format!("{name}: {method}"))?;
        match parse(&answer)? {
            Answer::Done(result) => Ok(result),
            answer => bail!("{name}: {method}: {answer:?}"),
        }
    }
}
