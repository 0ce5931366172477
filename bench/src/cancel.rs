//! How long a cancelled turn takes to answer, alone and on a busy server.

use std::time::{Duration, Instant};

use anyhow::ensure;
use nexus_testkit::Reply;
use serde_json::json;

use crate::Bench;
use crate::client::Http;
use crate::model::Model;
use crate::server::{Server, config};
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};
use crate::turns::send_request;

const TURNS: usize = 64;
const HALF_OPEN: usize = 60;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("A beginning").then_hang()).await?;
    let server = Server::start(&config(&model.url())).await?;
    server.create_agents("a", 1).await?;
    let count = bench.count(300);
    let alone = cancel_many(&server, &model, count).await?;
    table.add(row("cancel until the turn's answer, alone", &alone));

    server.create_agents("b", TURNS).await?;
    let before = model.request_count();
    let mut held = Vec::new();
    for turn in 0..TURNS {
        let mut connection = server.connect().await?;
        connection.write(&send_request(&server, &format!("b{turn}"))).await?;
        held.push(connection);
    }
    for _ in 0..HALF_OPEN {
        let mut connection = server.connect().await?;
        connection.write(b"POST /rpc HTTP/1.1\r\nhost: 127.0.0.1\r\nauthor").await?;
        held.push(connection);
    }
    model.wait_for_requests(before + TURNS).await;
    let busy = cancel_many(&server, &model, count).await?;
    let what = format!("  with {TURNS} turns running and {HALF_OPEN} half-open connections");
    table.add(row(&what, &busy));
    Ok(())
}

fn row(what: &str, times: &Latencies) -> Row {
    let p99 = ms(times.p99());
    Row::new(what)
        .measured(format!("p99 {p99:.2} ms, p50 {:.2} ms", ms(times.p50())))
        .reach("< 50 ms", p99 < 50.0)
}

async fn cancel_many(server: &Server, model: &Model, count: usize) -> anyhow::Result<Latencies> {
    let (mut turns, mut control) = (server.connect().await?, server.connect().await?);
    let mut times = Vec::with_capacity(count);
    for index in 0..count {
        times.push(cancel_one(server, model, &mut turns, &mut control, index).await?);
    }
    Ok(Latencies::new(times))
}

async fn cancel_one(
    server: &Server,
    model: &Model,
    turns: &mut Http,
    control: &mut Http,
    index: usize,
) -> anyhow::Result<Duration> {
    let params = json!({"content": "Take your time.", "request_id": index});
    let send = server.request("/agent/a0", "send", &params);
    let cancel = server.request("/agent/a0", "cancel", &json!({"request_id": index}));
    let asked = model.request_count();
    let turn = async {
        let outcome = turns.result(&send).await?;
        anyhow::Ok((outcome, Instant::now()))
    };
    let cancelling = async {
        model.wait_for_requests(asked + 1).await;
        let started = Instant::now();
        let outcome = control.result(&cancel).await?;
        ensure!(outcome["cancelled"] == true, "nothing was cancelled: {outcome}");
        Ok(started)
    };
    let ((outcome, answered), started) = tokio::try_join!(turn, cancelling)?;
    ensure!(outcome["cancelled"] == true, "the turn was not cancelled: {outcome}");
    Ok(answered.saturating_duration_since(started))
}
