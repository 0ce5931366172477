//! `kill -9` under load, many times: whatever was acknowledged must be there afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use nexus_testkit::Reply;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::harness::wire::request;
use crate::harness::{HttpRequest, Server, within};
use crate::support::{history, names};

const KILLS: u64 = 10;

/// Each with agents of its own, so that the order of what it was answered is the order of what happened.
const CLIENTS: u64 = 4;

/// What the server acknowledged.
#[derive(Default)]
struct Oracle {
    /// What was said to each agent and answered, in order.
    said: BTreeMap<String, Vec<String>>,
    destroyed: BTreeSet<String>,
    /// Whose end was asked for and not answered: they may be there or not.
    doubtful: BTreeSet<String>,
}

#[tokio::test]
async fn nothing_acknowledged_is_lost() {
    let mut server = Server::start().await;
    server.model().set_default(Reply::echo());
    let oracle = Arc::new(Mutex::new(Oracle::default()));
    for round in 0..KILLS {
        let (acknowledged, mut count) = watch::channel(0);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| Client {
                address: server.address,
                token: server.token.clone().unwrap(),
                oracle: oracle.clone(),
                acknowledged: acknowledged.clone(),
                name: format!("r{round}-c{client}"),
            })
            .map(|client| tokio::spawn(client.run()))
            .collect();
        // Every round dies at another point of the work, always with calls in flight.
        let enough = 1 + round * 7;
        within("acknowledgements", count.wait_for(|count| *count >= enough)).await.unwrap();
        server.signal(Signal::KILL);
        for client in clients {
            within("a client to notice", client).await.unwrap();
        }
        server = server.restart().await;
        check(&server, &oracle).await;
    }
}

async fn check(server: &Server, oracle: &Mutex<Oracle>) {
    let (said, destroyed, doubtful) = {
        let oracle = oracle.lock().unwrap();
        (oracle.said.clone(), oracle.destroyed.clone(), oracle.doubtful.clone())
    };
    let wire = server.wire();
    let listed: BTreeSet<_> = names(&wire).await.into_iter().collect();
    let back: Vec<_> = listed.intersection(&destroyed).collect();
    assert!(back.is_empty(), "destroyed and there again: {back:?}");
    for (agent, texts) in said.iter().filter(|(agent, _)| !destroyed.contains(*agent)) {
        if doubtful.contains(agent) && !listed.contains(agent) {
            continue;
        }
        assert!(listed.contains(agent), "{agent} is lost");
        let kept = history(&wire, agent).await;
        let mut pairs = kept.windows(2);
        for text in texts {
            let pair = [format!("user: {text}"), format!("assistant: {text}")];
            assert!(pairs.any(|lines| lines == pair), "{agent} lost {text}: {kept:?}");
        }
    }
}

struct Client {
    address: SocketAddr,
    token: String,
    oracle: Arc<Mutex<Oracle>>,
    acknowledged: watch::Sender<u64>,
    name: String,
}

impl Client {
    /// Makes agents, talks to them and ends every third of them, until the server does not answer any more.
    async fn run(self) {
        for number in 0.. {
            let agent = format!("{}-{number}", self.name);
            if self.call("create_agent", json!({"agent_id": agent})).await.is_none() {
                return;
            }
            self.note(|oracle| oracle.said.extend([(agent.clone(), Vec::new())]));
            for text in ["one", "two", "three"] {
                if self.call("send", json!({"agent_id": agent, "content": text})).await.is_none() {
                    return;
                }
                self.note(|oracle| oracle.said.entry(agent.clone()).or_default().push(text.into()));
            }
            if number % 3 == 0 {
                self.oracle.lock().unwrap().doubtful.insert(agent.clone());
                if self.call("destroy_agent", json!({"agent_id": agent})).await.is_none() {
                    return;
                }
                self.note(|oracle| oracle.destroyed.extend([agent.clone()]));
            }
        }
    }

    fn note(&self, change: impl FnOnce(&mut Oracle)) {
        change(&mut self.oracle.lock().unwrap());
        self.acknowledged.send_modify(|count| *count += 1);
    }

    /// The result, or nothing when the server went away before all of it had arrived.
    async fn call(&self, method: &str, params: Value) -> Option<Value> {
        let request = HttpRequest::post(self.address, "/", request(1, method, params))
            .bearer(Some(&self.token))
            .header("Connection", "close");
        let mut stream = TcpStream::connect(self.address).await.ok()?;
        stream.write_all(&request.bytes()).await.ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.ok()?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        let answer: Value = serde_json::from_str(body).ok()?;
        Some(answer.get("result").unwrap_or_else(|| panic!("{method}: {answer}")).clone())
    }
}
