//! What it costs to relay one piece of an answer to a client that listens.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use nexus_testkit::Reply;
use serde_json::json;

use crate::Bench;
use crate::client::{Http, Until, find, hammer, post};
use crate::model::Model;
use crate::server::{Server, config, cpu_during};
use crate::stats::{median, us};
use crate::table::{Row, Table};
use crate::turns::model_address;

/// What each piece of an answer says.
const WORD: &str = "word ";

/// Pieces of a short answer: fewer than a stream's queue holds, so that each leaves by itself.
const SHORT: usize = 800;

const LONG: usize = 20_000;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::chunks(vec![WORD; SHORT])).await?;
    let server = Server::start(&config(&model.url())).await?;
    let mut direct = Http::connect(model_address(&model)?).await?;
    let (mut wall, mut cpu, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    let streams = bench.count(100);
    server.create_agents("s", streams).await?;
    let mut connection = server.connect().await?;
    for agent in 0..streams {
        let send = request(&server, &format!("s{agent}"));
        let (relayed, by_model) =
            (relay(&server, &mut connection, &send).await?, model_alone(&mut direct).await?);
        ensure!(relayed.deltas == SHORT, "{} of {SHORT} deltas arrived", relayed.deltas);
        let each = |time: Duration| us(time) / SHORT as f64;
        wall.push(each(relayed.took.saturating_sub(by_model)));
        cpu.push(each(relayed.cpu));
        alone.push(each(by_model));
    }
    let (wall, cpu, alone) = (median(wall), median(cpu), median(alone));
    table.add(
        Row::new(format!("a delta relayed over SSE, of {SHORT}, all else of the turn included"))
            .measured(format!("{wall:.2} µs added, {cpu:.2} µs CPU"))
            .baseline(format!("{alone:.2} µs the model alone"))
            .reach("< 15 µs", wall < 15.0 && cpu < 15.0),
    );
    long(bench, &model, &server, table).await?;
    drop(server);
    reading(bench, table).await
}

/// Answers that come faster than any real model's, to a client that reads as fast as it can.
async fn long(
    bench: &Bench,
    model: &Model,
    server: &Server,
    table: &mut Table,
) -> anyhow::Result<()> {
    model.set_default(Reply::chunks(vec![WORD; LONG]));
    let (mut deltas, mut wall, mut cpu) = (LONG, Vec::new(), Vec::new());
    server.create_agents("l", bench.rounds()).await?;
    for agent in 0..bench.rounds() {
        let mut connection = server.connect().await?;
        let relayed =
            relay(server, &mut connection, &request(server, &format!("l{agent}"))).await?;
        deltas = deltas.min(relayed.deltas);
        wall.push(us(relayed.took) / LONG as f64);
        cpu.push(us(relayed.cpu) / LONG as f64);
    }
    table.add(
        Row::new(format!("  {LONG} deltas at full speed, some joined: the fewest that arrived"))
            .measured(format!("{deltas}"))
            .reach("all", deltas == LONG),
    );
    let cpu = median(cpu);
    table.add(
        Row::new("  processor time of each")
            .measured(format!("{cpu:.2} µs ({:.2} µs on the clock)", median(wall)))
            .reach("< 5 µs", cpu < 5.0),
    );
    Ok(())
}

/// Pieces in one write of a model that sends 10,000 a second: timers count in milliseconds, and wait for two.
const PIECES_AT_ONCE: usize = 20;

/// Reads of an agent while its own turn streams, beside reads of another meanwhile and reads when nothing streams.
async fn reading(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let writes = bench.round().as_millis() as usize;
    let words = std::iter::repeat_n(WORD, writes * PIECES_AT_ONCE);
    let model = Model::instant(steady(words)).await?;
    let server = Server::start(&config(&model.url())).await?;
    server.create_agents("r", bench.rounds()).await?;
    server.create_agents("other", 1).await?;
    let read =
        |agent: &str| [server.request(&format!("/agent/{agent}"), "get_context", &json!({}))];
    let until = Until::Time(bench.round() / 2);
    let (mut own, mut others, mut quiet, mut rates) = (vec![], vec![], vec![], vec![]);
    for agent in 0..bench.rounds() {
        let name = format!("r{agent}");
        quiet.push(us(hammer(server.address, &read(&name), until).await?.latencies.p99()));
        let mut connection = server.connect().await?;
        let send = request(&server, &name);
        let reads = async {
            let own = hammer(server.address, &read(&name), until).await?;
            let other = hammer(server.address, &read("other0"), until).await?;
            anyhow::Ok((us(own.latencies.p99()), us(other.latencies.p99())))
        };
        let (relayed, reads) = tokio::join!(relay(&server, &mut connection, &send), reads);
        let (relayed, (of_own, of_other)) = (relayed?, reads?);
        rates.push(relayed.deltas as f64 / relayed.took.as_secs_f64());
        own.push(of_own);
        others.push(of_other);
    }
    let (own, others, quiet) = (median(own), median(others), median(quiet));
    table.add(
        Row::new("p99 of get_context while the agent's own turn streams")
            .measured(format!("{own:.0} µs at {:.0} deltas/s", median(rates)))
            .baseline(format!("{others:.0} µs of another agent"))
            .ratio(own / others)
            .reach("≤ 1.2", own <= 1.2 * others),
    );
    table.add(
        Row::new("  when nothing streams").measured(format!("{quiet:.0} µs")).ratio(own / quiet),
    );
    Ok(())
}

/// A model that says these pieces at one pace.
pub fn steady<'a>(pieces: impl Iterator<Item = &'a str>) -> Reply {
    let said: Vec<String> = pieces.map(event).collect();
    let writes = said.chunks(PIECES_AT_ONCE).map(<[String]>::concat);
    Reply::raw(writes.chain([end()])).chunk_delay(Duration::from_millis(1))
}

fn event(text: &str) -> String {
    let choice = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    format!("data: {choice}\n\n")
}

fn end() -> String {
    let finished = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    format!("data: {finished}\n\ndata: [DONE]\n\n")
}

fn request(server: &Server, agent: &str) -> Bytes {
    let params = json!({"content": "Tell me a long story.", "stream": true});
    let path = format!("/agent/{agent}");
    server.request_with(&path, "accept: text/event-stream\r\n", "send", &params)
}

struct Relayed {
    took: Duration,
    cpu: Duration,
    deltas: usize,
}

async fn relay(server: &Server, connection: &mut Http, send: &[u8]) -> anyhow::Result<Relayed> {
    let started = Instant::now();
    let streaming = async {
        let answer = connection.stream(send).await?;
        Ok((answer, started.elapsed()))
    };
    let ((answer, took), cpu) = cpu_during(server.pid(), streaming).await?;
    ensure!(find(answer, b"stream_start").is_some(), "this is no stream");
    // The response behind the end of the stream has them all again.
    let streamed = &answer[..find(answer, b"\"stream_end\"").unwrap_or(answer.len())];
    let deltas = streamed.windows(WORD.len()).filter(|window| *window == WORD.as_bytes()).count();
    Ok(Relayed { took, cpu, deltas })
}

async fn model_alone(direct: &mut Http) -> anyhow::Result<Duration> {
    let body = json!({"model": "scripted", "stream": true, "messages": []}).to_string();
    let started = Instant::now();
    direct.stream(&post("/v1/chat/completions", "", &body)).await?;
    Ok(started.elapsed())
}
