//! Models behind `/v1`: a call and a piece of an answer through the server against the same from the provider itself, and
//! many streams at once.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use futures_util::future::try_join_all;
use nexus_testkit::{Gate, Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::Bench;
use crate::client::{Http, find, post};
use crate::model::Model;
use crate::server::{Server, config, cpu_during, rss_kib};
use crate::stats::{Latencies, median, ms, us};
use crate::table::{Row, Table};
use crate::turns::{ASKED, model_address, time};

const PATH: &str = "/v1/chat/completions";

/// What each piece of an answer says.
const WORD: &str = "word ";

/// Pieces of an answer whose pieces are counted.
const PIECES: usize = 800;

const STREAMS: usize = 1_000;

/// Pieces of each of them.
const STREAM_PIECES: usize = 100;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    calls(bench, table).await?;
    table.add(pieces(bench).await?);
    crowd(bench, table).await
}

/// Whole answers, against calling the model with the same client and the same bytes as the server does.
async fn calls(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("Certainly: here is a short answer.")).await?;
    let server = Server::start(&config(&model.url())).await?;
    let direct_request = provider_request().await?;
    let [plain, streamed] = [false, true].map(|stream| request(&server, stream));
    let (mut direct, mut connection) =
        (Http::connect(model_address(&model)?).await?, server.connect().await?);
    let (mut whole, mut in_pieces, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.count(2_000) {
        let calling = time(async { connection.call(&plain).await.map(drop) });
        whole.push(cpu_during(server.pid(), calling).await?);
        let calling = time(async { connection.stream(&streamed).await.map(drop) });
        in_pieces.push(cpu_during(server.pid(), calling).await?);
        alone.push(time(async { direct.call(&direct_request).await.map(drop) }).await?);
    }
    let said = connection.call(&plain).await?;
    ensure!(find(said, b"a short answer").is_some(), "{}", String::from_utf8_lossy(said));
    let said = connection.stream(&streamed).await?;
    ensure!(find(said, b"[DONE]").is_some(), "{}", String::from_utf8_lossy(said));
    let alone = ms(Latencies::new(alone).p50());
    for (what, times) in [
        ("/v1/chat/completions of a model, p50", whole),
        ("  streamed, to the end of the stream", in_pieces),
    ] {
        let (took, used): (Vec<_>, Vec<_>) = times.into_iter().unzip();
        let (took, used) = (ms(Latencies::new(took).p50()), us(Latencies::new(used).p50()));
        let added = took - alone;
        table.add(
            Row::new(what)
                .measured(format!("{added:.3} ms more ({took:.3} ms), {used:.0} µs CPU"))
                .baseline(format!("{alone:.3} ms the model alone"))
                .ratio(took / alone)
                .reach("≤ 0.3 ms", added <= 0.3),
        );
    }
    Ok(())
}

async fn pieces(bench: &Bench) -> anyhow::Result<Row> {
    let model = Model::instant(Reply::chunks(vec![WORD; PIECES])).await?;
    let server = Server::start(&config(&model.url())).await?;
    let (streamed, direct_request) = (request(&server, true), provider_request().await?);
    let (mut direct, mut connection) =
        (Http::connect(model_address(&model)?).await?, server.connect().await?);
    let (mut wall, mut used, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    let each = |time: Duration| us(time) / PIECES as f64;
    for _ in 0..bench.count(100) {
        let relaying = async {
            let started = Instant::now();
            let answer = connection.stream(&streamed).await?;
            Ok((started.elapsed(), words(answer)))
        };
        let ((took, told), cpu) = cpu_during(server.pid(), relaying).await?;
        ensure!(told == PIECES, "{told} of {PIECES} pieces arrived");
        let by_model = time(async { direct.stream(&direct_request).await.map(drop) }).await?;
        wall.push(each(took.saturating_sub(by_model)));
        used.push(each(cpu));
        alone.push(each(by_model));
    }
    let (wall, used, alone) = (median(wall), median(used), median(alone));
    Ok(Row::new(format!("a piece streamed by /v1, of {PIECES}, all else of the call included"))
        .measured(format!("{wall:.2} µs added, {used:.2} µs CPU"))
        .baseline(format!("{alone:.2} µs the model alone"))
        .reach("< 10 µs", wall < 10.0 && used < 10.0))
}

/// Streams that are all open before any of them goes on, against as many from the model itself.
async fn crowd(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text(WORD)).await?;
    let server = Server::start(&config(&model.url())).await?;
    let (streamed, direct_request) = (request(&server, true), provider_request().await?);
    let resting = rss_kib(server.pid())?;
    let (mut ours, mut alone, mut opened, mut held) = (vec![], vec![], vec![], vec![]);
    let mut whole = STREAMS;
    for _ in 0..bench.rounds() {
        let crowd = Crowd::open(&model, server.address, &streamed).await?;
        held.push((rss_kib(server.pid())? - resting) / STREAMS as f64);
        opened.push(ms(crowd.opened));
        let (took, finished) = crowd.finish().await?;
        ours.push(ms(took));
        whole = whole.min(finished);
        let crowd = Crowd::open(&model, model_address(&model)?, &direct_request).await?;
        alone.push(ms(crowd.finish().await?.0));
    }
    let (ours, alone, all) = (median(ours), median(alone), STREAMS * STREAM_PIECES);
    table.add(
        Row::new(format!("{STREAMS} streams of /v1 at once, {STREAM_PIECES} pieces each"))
            .measured(format!(
                "{whole} whole, {ours:.0} ms ({:.0} pieces/s)",
                all as f64 / ours * 1e3
            ))
            .baseline(format!("{alone:.0} ms the model alone"))
            .ratio(ours / alone)
            .reach("all whole", whole == STREAMS),
    );
    table.add(Row::new("  until all are open; memory of each").measured(format!(
        "{:.0} ms; {:.1} KiB",
        median(opened),
        median(held)
    )));
    Ok(())
}

/// Streams of which each has said its first word, and no more.
struct Crowd {
    streams: Vec<Http>,
    gate: Gate,
    opened: Duration,
}

impl Crowd {
    async fn open(
        model: &Model,
        address: std::net::SocketAddr,
        request: &Bytes,
    ) -> anyhow::Result<Self> {
        let gate = Gate::new();
        let rest = vec![WORD; STREAM_PIECES - 1];
        model.set_default(Reply::text(WORD).then_gate(&gate).then_chunks(rest));
        let started = Instant::now();
        let opening = (0..STREAMS).map(|_| {
            let request = request.clone();
            tokio::spawn(async move {
                let mut stream = Http::connect(address).await?;
                stream.write(&request).await?;
                stream.read_until(|answer| words(answer) == 1).await?;
                anyhow::Ok(stream)
            })
        });
        let streams = try_join_all(opening).await?.into_iter().collect::<anyhow::Result<_>>()?;
        Ok(Self { streams, gate, opened: started.elapsed() })
    }

    /// Lets them go on, and reads all of them to their ends. Returns how many had every piece, too.
    async fn finish(self) -> anyhow::Result<(Duration, usize)> {
        let started = Instant::now();
        self.gate.release();
        let reading = self.streams.into_iter().map(|mut stream| {
            tokio::spawn(async move {
                let answer = stream.read_to_end_of_stream().await;
                answer.is_ok_and(|answer| words(answer) == STREAM_PIECES)
            })
        });
        let whole = try_join_all(reading).await?.into_iter().filter(|is_whole| *is_whole).count();
        Ok((started.elapsed(), whole))
    }
}

fn words(answer: &[u8]) -> usize {
    answer.windows(WORD.len()).filter(|window| *window == WORD.as_bytes()).count()
}

fn body(stream: bool) -> Value {
    json!({
        "model": "scripted", "stream": stream, "messages": [{"role": "user", "content": ASKED}],
    })
}

fn request(server: &Server, stream: bool) -> Bytes {
    let bearer = format!("authorization: Bearer {}\r\n", server.token);
    post(PATH, &bearer, &body(stream).to_string())
}

/// The bytes with which the server asks a model for that, taken down by one that records.
async fn provider_request() -> anyhow::Result<Bytes> {
    let recorder = ScriptedModel::start().await;
    let server = Server::start(&config(&recorder.url())).await?;
    server.connect().await?.stream(&request(&server, true)).await?;
    Ok(post(PATH, "", &recorder.last_request().body.to_string()))
}
