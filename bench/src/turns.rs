//! Turns with a model that answers at once: what the server adds, how many it does, and how they age.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use nexus_testkit::{Reply, ScriptedModel};
use serde_json::json;

use crate::Bench;
use crate::client::{Http, Until, hammer, post};
use crate::model::Model;
use crate::server::{Server, config, cpu_during, process_cpu};
use crate::stats::{Latencies, median, ms, us};
use crate::table::{Row, Table};

const PARALLEL: usize = 16;

/// Turns in flight when the server's own work is counted: as many as cores can keep busy, and far more.
const IN_FLIGHT: [usize; 2] = [20, 160];

/// The least turns that are counted: the kernel tells a process's time in hundredths of a second.
const COUNTED: usize = 4_000;

/// Turns of each agent in one round: long enough to be steady, short enough that the conversation stays an ordinary one.
const TURNS_EACH: usize = 50;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("Certainly: here is a short answer.")).await?;
    let server = Server::start(&config(&model.url())).await?;
    table.add(overhead(bench, &model, &server).await?);
    table.add(parallel(bench, &server).await?);
    table.add(aging(bench, &server).await?);
    drop(server);
    for turns in IN_FLIGHT {
        table.add(work(bench, &model, turns).await?);
    }
    Ok(())
}

/// What a turn costs the server in time of the processor, whatever it waits for meanwhile.
async fn work(bench: &Bench, model: &Model, in_flight: usize) -> anyhow::Result<Row> {
    let mut config = config(&model.url());
    config["server"]["max_concurrent"] = json!(2 * IN_FLIGHT[1]);
    let server = Server::start(&config).await?;
    let each = bench.count(COUNTED).div_ceil(in_flight);
    let mut used = Vec::new();
    let mut rates = Vec::new();
    for round in 0..=bench.rounds() {
        let prefix = format!("w{round}-");
        server.create_agents(&prefix, in_flight).await?;
        let agents = 0..in_flight;
        let sends: Vec<_> =
            agents.map(|agent| send_request(&server, &format!("{prefix}{agent}"))).collect();
        let before = process_cpu(server.pid())?;
        let load = hammer(server.address, &sends, Until::Calls(each)).await?;
        let cpu = process_cpu(server.pid())?.saturating_sub(before);
        // The first round opens connections to the model.
        if round > 0 {
            used.push(ms(cpu) / load.latencies.len() as f64);
            rates.push(load.per_second);
        }
    }
    let (used, rate) = (median(used), median(rates));
    Ok(Row::new(format!("processor time of a turn, {in_flight} in flight"))
        .measured(format!("{used:.3} ms ({rate:.0} turns/s)"))
        .reach("< 0.20 ms", used < 0.20))
}

/// A turn against calling the model with the same client and the same bytes as the server does.
async fn overhead(bench: &Bench, model: &Model, server: &Server) -> anyhow::Result<Row> {
    const TURNS: usize = 20;
    let direct_request = model_request().await?;
    let mut direct = Http::connect(model_address(model)?).await?;
    let (mut turns, mut calls) = (Vec::new(), Vec::new());
    let agents = bench.count(25);
    server.create_agents("o", agents).await?;
    let mut connection = server.connect().await?;
    for agent in 0..agents {
        let send = send_request(server, &format!("o{agent}"));
        for _ in 0..TURNS {
            turns.push(time(connection.result(&send)).await?);
            calls.push(time(direct.call(&direct_request)).await?);
        }
    }
    let (turn, call) = (Latencies::new(turns).p50(), Latencies::new(calls).p50());
    let added = ms(turn.saturating_sub(call));
    Ok(Row::new(format!("a turn's overhead, p50 of {} turns", agents * TURNS))
        .measured(format!("{added:.2} ms ({:.2} ms a turn)", ms(turn)))
        .baseline(format!("{:.2} ms the model alone", ms(call)))
        .ratio(ms(turn) / ms(call))
        .reach("< 1 ms", added < 1.0))
}

async fn parallel(bench: &Bench, server: &Server) -> anyhow::Result<Row> {
    let (mut rates, mut used) = (Vec::new(), Vec::new());
    for round in 0..=bench.count(8) {
        let prefix = format!("p{round}-");
        server.create_agents(&prefix, PARALLEL).await?;
        let sends: Vec<_> =
            (0..PARALLEL).map(|agent| send_request(server, &format!("{prefix}{agent}"))).collect();
        let load = hammer(server.address, &sends, Until::Calls(TURNS_EACH));
        let (load, cpu) = cpu_during(server.pid(), load).await?;
        // The first round opens connections to the model.
        if round > 0 {
            rates.push(load.per_second);
            used.push(us(cpu) / load.latencies.len() as f64);
        }
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    let rate = median(rates);
    Ok(Row::new(format!("durable turns, {PARALLEL} agents at once, {TURNS_EACH} turns each"))
        .measured(format!("{rate:.0}/s (best {best:.0}), {:.0} µs CPU", median(used)))
        .reach("≥ 4000/s", rate >= 4000.0))
}

async fn aging(bench: &Bench, server: &Server) -> anyhow::Result<Row> {
    let (mut young, mut old) = (Vec::new(), Vec::new());
    let conversations = bench.count(3);
    server.create_agents("c", conversations).await?;
    for agent in 0..conversations {
        let mut connection = server.connect().await?;
        let send = send_request(server, &format!("c{agent}"));
        for turn in 1..=1010 {
            let took = time(connection.result(&send)).await?;
            match turn {
                5..=25 => young.push(took),
                990..=1010 => old.push(took),
                _ => {}
            }
        }
    }
    let (young, old) = (Latencies::new(young).p50(), Latencies::new(old).p50());
    let ratio = ms(old) / ms(young);
    Ok(Row::new("turn 1000 against turn 10 (p50 of turns 990-1010 and 5-25)")
        .measured(format!("{:.2} ms", ms(old)))
        .baseline(format!("{:.2} ms", ms(young)))
        .ratio(ratio)
        .reach("≤ 2", ratio <= 2.0))
}

/// What is said in each turn.
pub const ASKED: &str = "Please have a look at this and tell me what you think of it.";

pub fn send_request(server: &Server, agent: &str) -> Bytes {
    server.request(&format!("/agent/{agent}"), "send", &json!({"content": ASKED}))
}

/// The bytes with which the server calls a model in an agent's first turn.
async fn model_request() -> anyhow::Result<Bytes> {
    let body = recorded_call().await?.to_string();
    Ok(post("/v1/chat/completions", "", &body))
}

/// What the server sends to a model, taken down by one that records.
pub async fn recorded_call() -> anyhow::Result<serde_json::Value> {
    let recorder = ScriptedModel::start().await;
    let server = Server::start(&config(&recorder.url())).await?;
    server.create_agents("r", 1).await?;
    server.connect().await?.result(&send_request(&server, "r0")).await?;
    Ok(recorder.last_request().body)
}

pub fn model_address(model: &ScriptedModel) -> anyhow::Result<std::net::SocketAddr> {
    let url = model.url();
    let address = url.trim_start_matches("http://").trim_end_matches("/v1");
    address.parse().context("the model's address")
}

pub async fn time<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<Duration> {
    let started = Instant::now();
    work.await?;
    Ok(started.elapsed())
}
