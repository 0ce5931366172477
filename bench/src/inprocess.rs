//! Calls within the process against calls over HTTP, one at a time.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use nexus_core::Requester;
use nexus_protocol::Api as _;
use nexus_protocol::agent::CreateAgentParams;
use nexus_server::DirectAgentApi;
use nexus_server::metrics::{CallFigures, Figures};
use nexus_server::transport::memory::MemoryConnection;
use nexus_tools::sandbox::Launcher;
use nexus3::wiring::{self, Logs, Wired};
use serde_json::json;

use crate::Bench;
use crate::client::{Until, hammer};
use crate::server::{Place, Server, config_without_model};
use crate::stats::median;
use crate::table::{Row, Table};

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(&config_without_model()).await?;
    server.create_agents("a", 1).await?;
    let request = server.request("/agent/a0", "get_context", &json!({}));

    let place = Place::new(&config_without_model())?;
    let config = wiring::load_config(&place.home(), None)?;
    let wired =
        wiring::wire(&place.home(), &place.cwd(), &config, Logs::none(), Launcher::own()).await?;
    let (mut direct, mut memory, mut http) = (Vec::new(), Vec::new(), Vec::new());
    let mut counting = Vec::new();
    create(&wired).await?;
    for _ in 0..bench.rounds() {
        direct.push(time_direct(&wired, bench.count(500_000)).await?);
        memory.push(time_memory(&wired, bench.count(200_000)).await?);
        counting.push(time_counting(bench.count(2_000_000)));
        let load =
            hammer(server.address, std::slice::from_ref(&request), Until::Time(bench.round() / 2))
                .await?;
        http.push(1e9 / load.per_second);
    }
    let row = |what: &str, times: Vec<f64>| {
        let ratio = median(times.iter().zip(&http).map(|(ours, http)| http / ours));
        let row = Row::new(format!("get_context in process ({what})"))
            .measured(format!("{:.0} ns a call", median(times)))
            .baseline(format!("{:.0} ns over HTTP", median(http.clone())))
            .ratio(ratio);
        (row, ratio)
    };
    let (direct, ratio) = row("typed, DirectAgentApi", direct);
    table.add(direct.reach("≥ 20", ratio >= 20.0));
    let share = median(counting.iter().zip(&memory).map(|(ours, call)| ours / call));
    let counted = Row::new("  what its figures add to a call")
        .measured(format!("{:.0} ns a call", median(counting)))
        .baseline(format!("{:.0} ns, bytes in process", median(memory.clone())))
        .ratio(share);
    // Messages as they are on every wire, for programs that hold them: most of it is their JSON.
    table.add(row("bytes, memory transport", memory).0);
    table.add(counted.reach("≤ 0.05", share <= 0.05));
    wired.engine.close().await?;
    Ok(())
}

async fn create(wired: &Wired) -> anyhow::Result<()> {
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    let params = CreateAgentParams { agent_id: Some("a0".into()), ..CreateAgentParams::default() };
    api.create_agent(params).await?;
    Ok(())
}

/// Nanoseconds of one call.
async fn time_direct(wired: &Wired, calls: usize) -> anyhow::Result<f64> {
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    let working = tokio::spawn(async move {
        let agent = api.for_agent("a0");
        let started = Instant::now();
        for _ in 0..calls {
            std::hint::black_box(agent.get_context().await?);
        }
        anyhow::Ok(started.elapsed())
    });
    Ok(working.await??.as_nanos() as f64 / calls as f64)
}

/// Nanoseconds that are spent on the figures of one call. They cannot be switched off, so they are measured by themselves.
fn time_counting(calls: usize) -> f64 {
    let (call, all) = (CallFigures::default(), Figures::default());
    let started = Instant::now();
    for n in 0..calls {
        call.note(Duration::from_nanos(std::hint::black_box(n as u64)), None);
        all.carried(std::hint::black_box(100), Some(300));
    }
    started.elapsed().as_nanos() as f64 / calls as f64
}

async fn time_memory(wired: &Wired, calls: usize) -> anyhow::Result<f64> {
    let dispatcher = wired.dispatcher.clone();
    let working = tokio::spawn(async move {
        let (connection, _notifications) =
            MemoryConnection::open(dispatcher, Requester::Administrator);
        let params = json!({"agent_id": "a0"});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "get_context", "params": params});
        let request = request.to_string().into_bytes();
        let started = Instant::now();
        for _ in 0..calls {
            let answer = connection.request(request.clone()).await;
            std::hint::black_box(answer.context("no answer")?);
        }
        anyhow::Ok(started.elapsed())
    });
    Ok(working.await??.as_nanos() as f64 / calls as f64)
}
