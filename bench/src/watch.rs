//! What it costs a turn that somebody watches, and that many do.

use std::time::Duration;

use anyhow::ensure;
use nexus_testkit::Reply;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Bench;
use crate::client::find;
use crate::model::Model;
use crate::server::{Server, config};
use crate::stats::{Latencies, median, ms};
use crate::table::{Row, Table};
use crate::turns::{send_request, time};

const MANY: usize = 1_000;

/// Turns of one round. They are counted together, since a watcher is told of a turn also after its end.
const TURNS: usize = 50;

/// Pieces of each answer: as many as a short one of a real model has.
const PIECES: usize = 100;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::chunks(vec!["word "; PIECES])).await?;
    let server = Server::start(&config(&model.url())).await?;
    let (mut none, mut one, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=bench.rounds() {
        let agent = format!("w{round}-0");
        server.create_agents(&format!("w{round}-"), 1).await?;
        let mut counts = [(0, &mut none), (1, &mut one), (MANY, &mut many)];
        for (count, took) in &mut counts {
            let turns = watched(&server, &agent, *count).await?;
            // The first round opens connections to the model.
            if round > 0 {
                took.push(ms(turns));
            }
        }
    }
    let (none, one, many) = (median(none), median(one), median(many));
    table.add(
        Row::new(format!("a turn of {PIECES} pieces that {MANY} watch, p50"))
            .measured(format!("{many:.2} ms"))
            .baseline(format!("{one:.2} ms that one watches"))
            .ratio(many / one)
            .reach("< 1.5", many < 1.5 * one),
    );
    table.add(
        Row::new("  that one watches")
            .measured(format!("{one:.2} ms"))
            .baseline(format!("{none:.2} ms that nobody does"))
            .ratio(one / none),
    );
    Ok(())
}

/// How long a turn takes while so many watch its agent, the median of some.
async fn watched(server: &Server, agent: &str, count: usize) -> anyhow::Result<Duration> {
    let mut watchers = JoinSet::new();
    for _ in 0..count {
        let stream = watch(server, agent).await?;
        watchers.spawn(drain(stream));
    }
    let mut connection = server.connect().await?;
    let send = send_request(server, agent);
    let mut took = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        took.push(time(connection.result(&send)).await?);
    }
    ensure!(watchers.try_join_next().is_none(), "a watch ended");
    watchers.shutdown().await;
    Ok(Latencies::new(took).p50())
}

/// Opens a watch, and waits until it was told how things stand.
async fn watch(server: &Server, agent: &str) -> anyhow::Result<TcpStream> {
    let params = json!({"agents": [agent]});
    let accept = "accept: text/event-stream\r\n";
    let request = server.request_with("/", accept, "watch", &params);
    let mut stream = TcpStream::connect(server.address).await?;
    stream.write_all(&request).await?;
    let mut head = Vec::new();
    while find(&head, b"\"snapshot\"").is_none() {
        ensure!(stream.read_buf(&mut head).await? > 0, "the watch was closed");
        let is_refused = find(&head, b"\"error\"").is_some();
        ensure!(!is_refused, "the watch was refused: {}", String::from_utf8_lossy(&head));
    }
    Ok(stream)
}

async fn drain(mut stream: TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(1..) = stream.read(&mut buffer).await {}
}
