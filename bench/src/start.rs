//! From the spawn of the program to its first answer.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use crate::Bench;
use crate::client::post;
use crate::server::{Place, Process, Server, config_without_model};
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};

/// How often it is tried to connect. Blocking sleeps: an async timer is ten times coarser.
const RETRY: Duration = Duration::from_micros(100);

const START_MAX: Duration = Duration::from_secs(10);

/// Agents in the home that is not fresh.
const AGENTS: usize = 200;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let runs = bench.count(25);
    let mut fresh = Vec::new();
    for _ in 0..runs {
        fresh.push(first_answer(&Place::new(&config_without_model())?, LIST)?);
    }
    table.add(row("start to first answered request, fresh home", fresh));

    let used = used_home().await?;
    let mut again = Vec::new();
    for _ in 0..runs {
        again.push(first_answer(&used, LIST)?);
    }
    table.add(row(&format!("  home with {AGENTS} agents, server was killed"), again));
    Ok(())
}

fn row(what: &str, times: Vec<Duration>) -> Row {
    let times = Latencies::new(times);
    let p50 = ms(times.p50());
    Row::new(what)
        .measured(format!("{p50:.1} ms, worst of {} {:.1} ms", times.len(), ms(times.max())))
        .reach("< 15 ms", p50 < 15.0)
}

async fn used_home() -> anyhow::Result<Place> {
    let server = Server::start(&config_without_model()).await?;
    server.create_agents("a", AGENTS).await?;
    Ok(server.into_place())
}

/// The first thing that is asked of a server.
#[derive(Clone, Copy)]
pub struct First {
    pub path: &'static str,
    pub method: &'static str,
}

const LIST: First = First { path: "/", method: "list_agents" };

/// Starts a server, calls it as soon as it can be reached and has its token written, and kills it.
pub fn first_answer(place: &Place, first: First) -> anyhow::Result<Duration> {
    // Free a moment ago is free enough: nobody else takes ports at random here.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let token_file = place.home().join(format!("rpc-{port}.token"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut command = place.command(&["serve", &port.to_string(), "--no-socket"])?;
    let started = Instant::now();
    let _process = Process(command.spawn()?);
    let wait = || {
        std::thread::sleep(RETRY);
        ensure!(started.elapsed() < START_MAX, "the server did not come up");
        Ok(())
    };
    let token = loop {
        match std::fs::read_to_string(&token_file) {
            Ok(token) => break token,
            Err(_) => wait()?,
        }
    };
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(_) => wait()?,
        }
    };
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": first.method}).to_string();
    let authorization = format!("authorization: Bearer {}\r\n", token.trim());
    stream.write_all(&post(first.path, &authorization, &body))?;
    let mut answer = [0; 4096];
    let bytes = stream.read(&mut answer)?;
    let took = started.elapsed();
    ensure!(answer[..bytes].starts_with(b"HTTP/1.1 200"), "the first call was not answered");
    Ok(took)
}
