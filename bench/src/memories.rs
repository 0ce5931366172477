//! Memories through the server: how many it keeps, how soon it finds one among many, and what a call from a sandbox takes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use jiff::Timestamp;
use nexus_core::embed::Embedder as _;
use nexus_core::store::{
    AgentStore as _, MemoriesStore as _, MemoryId, MemoryKey, MemoryRecord, MemoryScope,
};
use nexus_local::LocalEmbedder;
use nexus_store::SqliteStore;
use serde_json::{Value, json};

use crate::Bench;
use crate::meaning::Random;
use crate::retrieval::{Question, Set};
use crate::server::{Place, Server, binary, config_without_model, rss_kib};
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};

const CALLERS: usize = 16;

/// Memories that each caller adds.
const ADDED_EACH: usize = 2_000;

/// Whose the memories are.
const USER: &str = "u";

/// Memories that are written down together when a home is filled.
const FILLED_AT_ONCE: usize = 1_000;

/// How far a vector in a filled home lies from that of its text, which many of them share: their cosine is about 0.96.
const NOISE: f32 = 0.018;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    adding(bench, table, "", &config_without_model()).await?;
    adding(bench, table, ", by words alone", &by_words_alone()).await?;
    let stock = Stock::new().await?;
    let mut place = Place::new(&config_without_model())?;
    let mut kept = 0;
    for (memories, most_ms, most_p99_ms) in
        [(100_000, 20.0, 50.0), (1_000_000, 40.0, f64::INFINITY)]
    {
        if bench.quick && memories > 100_000 {
            break;
        }
        fill(&place, &stock, kept..memories).await?;
        kept = memories;
        configure(&place, &config_without_model())?;
        let server = Server::start_at(place).await?;
        let (times, load) = searches(bench, &server, &stock.questions).await?;
        let (p50, p99) = (ms(times.p50()), ms(times.p99()));
        table.add(
            Row::new(format!("memory.search among {memories}, by words and meaning"))
                .measured(format!("p50 {p50:.1} ms, p99 {p99:.1} ms"))
                .reach(format!("< {most_ms} ms"), p50 < most_ms && p99 < most_p99_ms),
        );
        table.add(
            Row::new("  the first one, which loads the embedder and the index")
                .measured(format!("{:.0} ms", ms(load))),
        );
        let memory = rss_kib(server.pid())? / 1024.0;
        let row = Row::new("  memory of the server").measured(format!("{memory:.0} MiB"));
        table.add(match memories {
            100_000 => row.reach("< 400 MiB", memory < 400.0),
            _ => row,
        });
        place = server.stop().await?;
        configure(&place, &by_words_alone())?;
        let server = Server::start_at(place).await?;
        let (times, _) = searches(bench, &server, &stock.questions).await?;
        let (p50, p99) = (ms(times.p50()), ms(times.p99()));
        table.add(
            Row::new(format!("memory.search among {memories}, by words alone"))
                .measured(format!("p50 {p50:.1} ms, p99 {p99:.1} ms"))
                .reach("< 5 ms", p50 < 5.0),
        );
        place = server.stop().await?;
    }
    table.add(from_a_sandbox(bench).await?);
    table.add(size_of_ash()?);
    Ok(())
}

pub fn configure(place: &Place, config: &Value) -> anyhow::Result<()> {
    Ok(std::fs::write(place.home().join("config.json"), config.to_string())?)
}

/// A configuration whose embedder is never there.
pub fn by_words_alone() -> Value {
    let mut config = config_without_model();
    config["memory"] =
        json!({"embeddings": {"provider": "bench", "model": "none", "dimensions": 4}});
    config
}

async fn adding(bench: &Bench, table: &mut Table, how: &str, config: &Value) -> anyhow::Result<()> {
    let server = Server::start(config).await?;
    let each = bench.count(ADDED_EACH);
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let add = |number| {
            let content = sentence(caller * each + number);
            server.request("/", "memory.add", &json!({"content": content, "user_id": USER}))
        };
        let requests: Vec<Bytes> = (0..each).map(add).collect();
        callers.push((server.connect().await?, requests));
    }
    let started = Instant::now();
    let work = callers.into_iter().map(|(mut connection, requests)| async move {
        for request in requests {
            connection.result(&request).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(work).await?;
    let rate = (CALLERS * each) as f64 / started.elapsed().as_secs_f64();
    table.add(
        Row::new(format!("memory.add on {CALLERS} connections{how}"))
            .measured(format!("{rate:.0}/s"))
            .reach("≥ 10,000/s", rate >= 10_000.0),
    );
    Ok(())
}

/// How long searches take once what they need is there, and how long the first one took.
async fn searches(
    bench: &Bench,
    server: &Server,
    questions: &[Question],
) -> anyhow::Result<(Latencies, Duration)> {
    let mut connection = server.connect().await?;
    let (mut times, mut fruitless) = (Vec::new(), 0);
    for question in questions.iter().cycle().take(bench.count(300)) {
        let params = json!({"query": question.text, "user_id": USER});
        let search = server.request("/", "memory.search", &params);
        let started = Instant::now();
        let found = connection.result(&search).await?;
        times.push(started.elapsed());
        fruitless += usize::from(found.as_array().is_none_or(Vec::is_empty));
    }
    // They ask for what is there: to find nothing is another's work.
    ensure!(fruitless * 10 < times.len(), "{fruitless} of {} searches found nothing", times.len());
    let first = times.remove(0);
    Ok((Latencies::new(times), first))
}

/// What a home is filled with: texts that people keep, each with its vector, and questions about them.
struct Stock {
    texts: Vec<String>,
    vectors: Vec<Vec<f32>>,
    questions: Vec<Question>,
}

impl Stock {
    async fn new() -> anyhow::Result<Self> {
        let Set { memories: texts, questions } = Set::new();
        let vectors = LocalEmbedder::new().embed(texts.clone()).await?;
        Ok(Self { texts, vectors, questions })
    }

    fn memory(&self, number: usize) -> MemoryRecord {
        MemoryRecord {
            id: MemoryId(number as u128 + 1),
            scope: MemoryScope::User(USER.into()),
            content: format!("{} n{number}", self.texts[number % self.texts.len()]),
            source: "bench".into(),
            subjects: Vec::new(),
            created_at: Timestamp::now(),
            expires_at: None,
            supersedes: Vec::new(),
        }
    }

    /// What a store keeps as the vector of such a memory.
    fn vector(&self, number: usize, random: &mut Random) -> Vec<u8> {
        let vector = self.vectors[number % self.vectors.len()].iter().zip(random.vector());
        vector.flat_map(|(own, noise)| (own + noise * NOISE).to_le_bytes()).collect()
    }
}

/// Keeps memories with vectors, as a server would have them after a while. There are more than anybody waits for the
/// embedder to read, so they repeat what it made of some thousands.
async fn fill(place: &Place, stock: &Stock, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let store = SqliteStore::open(&place.home())?;
    let (embedder, mut random) = (LocalEmbedder::new(), Random::new(numbers.start as u64 + 1));
    let mut after = MemoryKey::default();
    for start in numbers.clone().step_by(FILLED_AT_ONCE) {
        let some = start..numbers.end.min(start + FILLED_AT_ONCE);
        let added = some.map(|number| store.add_memory(stock.memory(number), None));
        join_all(added).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let waiting = store.unembedded(embedder.model_id(), after, FILLED_AT_ONCE as u32).await?;
        let number = |id: MemoryId| usize::try_from(id.0 - 1);
        let vectors = waiting
            .iter()
            .map(|it| anyhow::Ok((it.key, stock.vector(number(it.id)?, &mut random))));
        let vectors = vectors.collect::<Result<_, _>>()?;
        after = waiting.last().context("nothing was added")?.key;
        store.put_vectors(embedder.model_id(), vectors).await?;
    }
    Ok(store.close().await?)
}

/// A sentence like those that people keep, and no two the same.
fn sentence(number: usize) -> String {
    const WHO: [&str; 7] =
        ["Ann", "Bob", "The team", "My sister", "Doctor Wu", "Our landlord", "He"];
    const DOES: [&str; 11] = [
        "prefers",
        "cannot stand",
        "ordered",
        "is allergic to",
        "wrote about",
        "asked for",
        "forgot",
        "pays for",
        "collects",
        "repaired",
        "dreams of",
    ];
    const WHAT: [&str; 13] = [
        "green tea",
        "the old printer",
        "trains at night",
        "peanuts",
        "a garden",
        "blue paint",
        "the invoice",
        "mountain bikes",
        "short meetings",
        "a second monitor",
        "cold weather",
        "the deployment",
        "sourdough",
    ];
    let pick = |from: &[&'static str], by: usize| from[number / by % from.len()];
    let (who, does, what) = (pick(&WHO, 1), pick(&DOES, 7), pick(&WHAT, 77));
    // No word is in all of them: people do not talk so.
    format!("{who} {does} {what}: n{number} p{}", number % 997)
}

/// From the start of `ash` to its end.
async fn from_a_sandbox(bench: &Bench) -> anyhow::Result<Row> {
    let server = Server::start(&config_without_model()).await?;
    let ash = binary()?.with_file_name("ash");
    ensure!(ash.exists(), "{} is not there: cargo build --release -p ash", ash.display());
    let mut times = Vec::new();
    for _ in 0..bench.count(200) {
        let mut command = Command::new(&ash);
        command.args(["memory", "list"]).env("ASH_RPC_SOCKET", server.place.socket());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = Instant::now();
        let status = command.status()?;
        times.push(started.elapsed());
        ensure!(status.success(), "ash ended with {status}");
    }
    let times = Latencies::new(times);
    let p50 = ms(times.p50());
    Ok(Row::new("ash memory list, from its start to its end")
        .measured(format!("p50 {p50:.2} ms, p99 {:.2} ms", ms(times.p99())))
        .reach("< 5 ms", p50 < 5.0))
}

/// As it is copied into containers.
fn size_of_ash() -> anyhow::Result<Row> {
    let beside = std::env::current_exe()?;
    let target = beside.parent().and_then(Path::parent).context("this program lies nowhere")?;
    let row = Row::new("ash, its size");
    Ok(match std::fs::metadata(target.join("small/ash")) {
        Ok(file) => {
            let size = file.len() as f64 / f64::from(1 << 20);
            row.measured(format!("{size:.2} MiB")).reach("< 2 MiB", size < 2.0)
        }
        Err(_) => row.baseline("not built: make ash"),
    })
}
