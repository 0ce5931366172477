//! What MCP's conformance suite requires of servers, asked of our route with the suite's own tools behind it: the port, its
//! rules and the sessions are those of `/mcp`. Scenarios that need no such tools are asked of the real door too (`hosts`).

mod fixtures;
mod inputs;
mod questions;
mod tasks;
mod tools;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::{Request, Response};
use nexus_core::AgentId;
use nexus_core::store::Door as Kind;
use nexus_doors::mcp::{BODY_BYTES_MAX, HttpDoor};
use nexus_server::auth::Auth;
use nexus_server::transport::door::{Door, DoorBody, Visitor};
use nexus_server::transport::http::{HttpServer, Limits};
use nexus_server::transport::listeners::Listeners;
use nexus3::wiring::Logs;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::fixtures::Fixtures;
use crate::harness::{Setup, wire};
use crate::speakers::suite;

/// As many as the spec of our doors speaks of: a suite that asks less is not the one that we mean.
const REQUIRED: [(&str, usize); 2] = [("2025-11-25", 30), ("2026-07-28", 37)];

/// Of tasks, which no version requires.
const TASKS: usize = 10;

/// Looks at what a server may tell of its tasks, and ours tells nothing.
const OPTIONAL: &str = "tasks-status-notifications";

#[tokio::test]
async fn the_route_does_what_the_suite_requires_in_2025() {
    satisfies(REQUIRED[0]).await;
}

#[tokio::test]
async fn the_route_does_what_the_suite_requires_in_2026_and_of_tasks() {
    satisfies(REQUIRED[1]).await;
}

/// Runs all scenarios of a version in one go, also those that the suite does not count.
async fn satisfies((version, required): (&str, usize)) {
    let Some(mut list) = suite() else { return };
    let listed = list.args(["list", "--requirements", version]).output().await.unwrap();
    let listed = Listed::read(&String::from_utf8(listed.stdout).unwrap());
    assert_eq!(listed.required.len(), required, "{version}");
    let tasks = listed.others.iter().filter(|name| name.starts_with("tasks-")).count();
    assert_eq!(tasks, if version >= "2026" { TASKS } else { 0 }, "{version}");

    let (served, results) = (Served::start().await, tempfile::tempdir().unwrap());
    let mut command = suite().unwrap();
    command.args(["server", "--url", &format!("http://{}/mcp", served.address)]);
    command.args(["--requirements", version, "--output-dir"]).arg(results.path());
    // Each scenario has a time limit of the suite's.
    let said = command.output().await.unwrap();
    let found = verdicts(results.path());
    let mut unsatisfied = String::new();
    for name in listed.required.iter().chain(&listed.others) {
        match found.get(name) {
            None => unsatisfied.push_str(&format!("{name}: was not run\n")),
            Some(Verdict { passed: 0, failed }) if failed.is_empty() && name != OPTIONAL => {
                unsatisfied.push_str(&format!("{name}: checked nothing\n"));
            }
            Some(Verdict { failed, .. }) => {
                failed.iter().for_each(|why| unsatisfied.push_str(&format!("{name}: {why}\n")));
            }
        }
    }
    assert!(unsatisfied.is_empty(), "{version}\n{unsatisfied}");
    assert!(said.status.success(), "{version}: {}", String::from_utf8_lossy(&said.stdout));
}

/// Scenarios for servers, as the suite lists them.
#[derive(Default)]
struct Listed {
    required: Vec<String>,
    /// Those that it runs and does not count.
    others: Vec<String>,
}

impl Listed {
    fn read(text: &str) -> Self {
        let mut listed = Self::default();
        let mut of_servers = false;
        for line in text.lines() {
            match line.strip_prefix("  - ") {
                Some(name) if of_servers => listed.required.push(name.into()),
                Some(_) => {}
                None => {
                    of_servers = line.starts_with("Server scenarios");
                    let other = line.strip_prefix("    - ");
                    let other = other.and_then(|name| name.strip_suffix(" [server]"));
                    listed.others.extend(other.map(str::to_owned));
                }
            }
        }
        listed
    }
}

/// What came of a scenario.
struct Verdict {
    passed: usize,
    failed: Vec<String>,
}

/// By scenario, from the directories that the suite makes: `server-NAME-TIME`, with the time in 24 letters.
fn verdicts(results: &Path) -> BTreeMap<String, Verdict> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let name = name.strip_prefix("server-").unwrap();
        let name = name[..name.len() - "-2026-07-28T00-00-00-000Z".len()].to_owned();
        let Ok(checks) = std::fs::read(path.join("checks.json")) else {
            return (name, Verdict { passed: 0, failed: vec!["did not come to its end".into()] });
        };
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
        let with = |status: &'static str| checks.iter().filter(move |it| it["status"] == status);
        let why =
            |check: &Value| format!("{} {:.500}", check["id"], check["errorMessage"].to_string());
        let failed = with("FAILURE").chain(with("WARNING")).map(why).collect();
        (name, Verdict { passed: with("SUCCESS").count(), failed })
    };
    std::fs::read_dir(results).unwrap().map(read).collect()
}

/// A port as the server has it, with the fixtures at `/mcp`.
struct Served {
    address: SocketAddr,
    _stop: DropGuard,
}

impl Served {
    async fn start() -> Self {
        let world = Setup::new().world().await;
        let wired = wire::wired(&world, Logs::none()).await;
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = first.local_addr().unwrap();
        let stop = CancellationToken::new();
        let mounted = Mounted { hosts: HttpDoor::new(stop.clone()), fixtures: Fixtures::default() };
        let agents = wired.engine.agents.clone();
        let server = HttpServer::new(
            Listeners { first, second: None },
            wired.dispatcher.clone(),
            // The suite cannot send a token.
            Auth::new(None, wired.agent_tokens.clone(), move |id: AgentId| {
                agents.clone().birth(id)
            }),
            LIMITS,
            vec![Arc::new(mounted)],
        );
        tokio::spawn({
            let stop = stop.clone();
            async move {
                server.run(stop).await;
                drop((world, wired));
            }
        });
        Self { address, _stop: stop.drop_guard() }
    }
}

const LIMITS: Limits = Limits {
    body_bytes_max: BODY_BYTES_MAX,
    answer_bytes_max: BODY_BYTES_MAX,
    header_bytes_max: 32 * 1024,
    header_count_max: 100,
    read_timeout: Duration::from_secs(30),
    connections_max: 256,
};

struct Mounted {
    hosts: HttpDoor<Fixtures>,
    fixtures: Fixtures,
}

impl Door for Mounted {
    fn has(&self, path: &str) -> bool {
        path == "/mcp"
    }

    fn kind(&self) -> Kind {
        Kind::Mcp
    }

    fn body_bytes_max(&self) -> usize {
        BODY_BYTES_MAX
    }

    fn answer(&self, _: Visitor, request: Request<Bytes>) -> BoxFuture<'_, Response<DoorBody>> {
        self.hosts.answer("the suite", "the suite", || self.fixtures.clone(), request).boxed()
    }
}
