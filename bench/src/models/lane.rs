//! Many agents before a provider that takes few calls at a time, and what it costs a call that need not wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::join_all;
use nexus_core::provider::Asker;
use nexus_models::measure::Lane;
use nexus_models::{Kind, ProviderSettings};
use nexus_store::{Remembered, SqliteStore};
use nexus_testkit::Reply;
use serde_json::json;

use super::config;
use crate::Bench;
use crate::client::{Http, post};
use crate::model::Model;
use crate::server::{Place, Server, config_without_model};
use crate::stats::{median, us};
use crate::table::{Row, Table};
use crate::turns::{model_address, send_request};

const AGENTS: usize = 64;
const AT_ONCE: usize = 8;

/// Turns of each agent: enough that the second for which the provider wants to be left alone is a small part.
const TURNS: usize = 8;

/// Pieces of an answer, and the time before each: not much less than half a second in all.
const PIECES: usize = 4;
const PIECE: Duration = Duration::from_millis(45);

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    crowded(table).await?;
    passing(bench, table).await
}

async fn crowded(table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::chunks(vec!["word "; PIECES]).chunk_delay(PIECE)).await?;
    let alone = alone(&model).await?;
    model.at_once(AT_ONCE);
    let server = Server::start(&config(&model.url())).await?;
    server.create_agents("a", AGENTS).await?;
    let started = Instant::now();
    let done = join_all((0..AGENTS).map(|agent| turns(&server, agent, started))).await;
    let took = started.elapsed().as_secs_f64();
    let failed: usize = done.iter().map(|agent| agent.failed).sum();
    let refused = model.refused();
    table.add(
        Row::new(format!("{AGENTS} agents, a provider that takes {AT_ONCE} calls: 429s"))
            .measured(format!("{refused} of {} requests", model.request_count()))
            .reach("≤ 8", refused <= 8),
    );
    let ideal = alone.as_secs_f64() * (AGENTS * TURNS / AT_ONCE) as f64;
    table.add(
        Row::new(format!("  time for {TURNS} turns each"))
            .measured(format!("{took:.1} s"))
            .baseline(format!("{ideal:.1} s always {AT_ONCE} at once"))
            .ratio(took / ideal)
            .reach("≤ 1.15", took / ideal <= 1.15),
    );
    let times = || done.iter().map(|agent| agent.took.as_secs_f64());
    let (fastest, slowest) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
    table.add(
        Row::new("  the slowest agent")
            .measured(format!("{slowest:.1} s"))
            .baseline(format!("{fastest:.1} s the fastest"))
            .ratio(slowest / fastest)
            .reach("≤ 1.3", slowest / fastest <= 1.3),
    );
    table
        .add(Row::new("  turns that failed").measured(format!("{failed}")).reach("0", failed == 0));
    Ok(())
}

/// What one agent's turns came to.
struct Turns {
    took: Duration,
    failed: usize,
}

async fn turns(server: &Server, agent: usize, started: Instant) -> Turns {
    let send = send_request(server, &format!("a{agent}"));
    let mut failed = 0;
    for _ in 0..TURNS {
        let turn = async { server.connect().await?.result(&send).await };
        failed += usize::from(turn.await.is_err());
    }
    Turns { took: started.elapsed(), failed }
}

/// How long the model takes for a call when nobody else calls.
async fn alone(model: &Model) -> anyhow::Result<Duration> {
    let body = json!({"model": "m", "max_tokens": 9, "stream": true, "messages": []}).to_string();
    let call = post("/v1/messages", "", &body);
    let mut direct = Http::connect(model_address(model)?).await?;
    let mut times = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        direct.stream(&call).await?;
        times.push(started.elapsed().as_secs_f64());
    }
    Ok(Duration::from_secs_f64(median(times)))
}

/// The lane by itself, with what is remembered for other processes, as the server has it.
async fn passing(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let place = Place::new(&config_without_model())?;
    let store = Arc::new(SqliteStore::open(&place.home())?);
    let pauses = Some(Remembered::load(store).await?);
    let settings = ProviderSettings {
        pauses: pauses.map(|it| it as _),
        ..ProviderSettings::new(Kind::Anthropic)
    };
    let lane = Lane::new(&settings);
    let asker = Asker { root: "root".into(), agent: "agent".into(), ..Asker::default() };
    let passes = bench.count(100_000);
    let mut times = Vec::new();
    for _ in 0..bench.rounds() {
        let started = Instant::now();
        for _ in 0..passes {
            lane.pass(&asker, "claude-sonnet-5-5").await.context("nobody else is on this lane")?;
        }
        times.push(us(started.elapsed()) / passes as f64);
    }
    let each = median(times);
    table.add(
        Row::new("a call's way through its lane, when it need not wait")
            .measured(format!("{each:.2} µs"))
            .reach("≤ 3 µs", each <= 3.0),
    );
    Ok(())
}
