//! What is found by meaning: how fast, how much the embedder makes, and how much of what should be found is.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nexus_core::embed::Embedder;
use nexus_core::store::{AgentStore as _, MemoriesStore as _, MemoryKey};
use nexus_local::LocalEmbedder;
use nexus_meaning::Index;
use nexus_store::SqliteStore;
use serde_json::{Value, json};

use crate::Bench;
use crate::memories::{by_words_alone, configure};
use crate::retrieval::{Kind, Set};
use crate::server::{Server, config_without_model, cpu_during, rss_kib};
use crate::stats::{median, ms};
use crate::table::{Row, Table};

/// Numbers in a vector of the built-in embedder.
const DIMS: usize = 384;

/// How many are searched for.
const NEAREST: usize = 10;

/// A question is answered when its answer is among the first so many.
const RECALLED: usize = 5;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    scans(bench, table)?;
    let embedder = LocalEmbedder::new();
    speed(bench, &embedder, table).await?;
    quality(&embedder, table).await
}

/// Searches among many vectors. Which these are does not matter to the time.
fn scans(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let mut random = Random::new(1);
    let mut index = Index::new(DIMS);
    let before = rss_kib(std::process::id())?;
    for (rows, most_ms) in [(100_000_u64, 5.0), (1_000_000, 20.0)] {
        if bench.quick && rows > 100_000 {
            break;
        }
        for id in index.len() as u64..rows {
            index.insert(id, 0, &random.vector())?;
        }
        let mut times = Vec::new();
        for _ in 0..bench.count(100) {
            let query = random.vector();
            let started = Instant::now();
            let found = index.nearest(&query, &[0], NEAREST)?;
            times.push(ms(started.elapsed()));
            anyhow::ensure!(found.len() == NEAREST, "{} were found", found.len());
        }
        let time = median(times);
        table.add(
            Row::new(format!("nearest {NEAREST} of {rows} vectors of {DIMS}, on one core"))
                .measured(format!("{time:.2} ms"))
                .reach(format!("< {most_ms} ms"), time < most_ms),
        );
        let memory = (rss_kib(std::process::id())? - before) * 1024.0 / 1e6;
        let row = Row::new("  memory they take").measured(format!("{memory:.0} MB"));
        table.add(match rows {
            100_000 => row.reach("< 60 MB", memory < 60.0),
            _ => row,
        });
    }
    Ok(())
}

/// Texts of the length of a memory.
async fn speed(bench: &Bench, embedder: &LocalEmbedder, table: &mut Table) -> anyhow::Result<()> {
    let before = rss_kib(std::process::id())?;
    let started = Instant::now();
    embedder.embed(vec!["Hello".into()]).await?;
    let load = ms(started.elapsed());
    let memory = (rss_kib(std::process::id())? - before) / 1024.0;
    let row = Row::new("embedder: load");
    table.add(row.measured(format!("{load:.0} ms, {memory:.0} MiB")));

    let texts: Vec<_> = Set::new().memories.into_iter().take(bench.count(500)).collect();
    let count = texts.len() as f64;
    let started = Instant::now();
    let work = async { Ok(embedder.embed(texts).await?) };
    let (_, cpu) = cpu_during(std::process::id(), work).await?;
    let (took, cpu) = (started.elapsed().as_secs_f64(), cpu.as_secs_f64());
    table.add(
        Row::new("  memories embedded per second of one core")
            .measured(format!("{:.0} ({:.0} per second)", count / cpu, count / took))
            .reach("≥ 500", count / cpu >= 500.0),
    );
    Ok(())
}

/// How many questions find their answer by words, by meaning and by both: of `memory.search`, with the embedder and without,
/// and of the index that it asks.
async fn quality(embedder: &LocalEmbedder, table: &mut Table) -> anyhow::Result<()> {
    let set = Set::new();
    let server = Server::start(&config_without_model()).await?;
    let ids = add(&server, &set.memories).await?;
    let index = embedded(&server, embedder, &ids).await?;
    let by_both = searched(&server, &set).await?;
    let place = server.stop().await?;
    configure(&place, &by_words_alone())?;
    let by_words = searched(&Server::start_at(place).await?, &set).await?;
    let texts = set.questions.iter().map(|question| question.text.clone()).collect();
    let vectors = embedder.embed(texts).await?;
    let mut recalled: HashMap<&str, Recalled> = HashMap::new();
    for (at, question) in set.questions.iter().enumerate() {
        let answer = &ids[question.answer];
        let by_meaning = index.nearest(&vectors[at], &[0], RECALLED)?;
        let by_meaning = by_meaning.iter().any(|(id, _)| ids[*id as usize] == *answer);
        for name in [ALL, question.kind.name()] {
            let recalled = recalled.entry(name).or_default();
            recalled.questions += 1;
            recalled.by_words += usize::from(by_words[at].contains(answer));
            recalled.by_meaning += usize::from(by_meaning);
            recalled.by_both += usize::from(by_both[at].contains(answer));
        }
    }
    for name in std::iter::once(ALL).chain(Kind::ALL.map(Kind::name)) {
        let Some(of) = recalled.get(name) else { continue };
        let part = |found: usize| found as f64 / of.questions as f64;
        let (words, meaning, both) = (part(of.by_words), part(of.by_meaning), part(of.by_both));
        let row = Row::new(match name {
            ALL => format!(
                "recall@{RECALLED} of both, {} questions on {} memories",
                of.questions,
                set.memories.len()
            ),
            _ => format!("  of {} questions: {name}", of.questions),
        });
        let row = row
            .measured(format!("{both:.3}"))
            .baseline(format!("words {words:.3}, meaning {meaning:.3}"));
        table.add(match name {
            ALL => row.reach("≥ either", both >= words.max(meaning)),
            _ => row,
        });
    }
    Ok(())
}

const ALL: &str = "";

#[derive(Default)]
struct Recalled {
    questions: usize,
    by_words: usize,
    by_meaning: usize,
    by_both: usize,
}

/// Keeps the texts, and says what their ids are.
async fn add(server: &Server, texts: &[String]) -> anyhow::Result<Vec<String>> {
    let mut connection = server.connect().await?;
    let mut ids = Vec::new();
    for content in texts {
        let add = server.request("/", "memory.add", &json!({"content": content}));
        ids.push(id(&connection.result(&add).await?)?);
    }
    Ok(ids)
}

/// Waits until the server has embedded all of them, and returns an index of its vectors, by their places among the ids.
async fn embedded(
    server: &Server,
    embedder: &LocalEmbedder,
    ids: &[String],
) -> anyhow::Result<Index> {
    let store = SqliteStore::open(&server.place.home())?;
    let (model, start) = (embedder.model_id(), MemoryKey::default());
    while !store.unembedded(model, start, 1).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let places: HashMap<&str, u64> = ids.iter().map(String::as_str).zip(0..).collect();
    let mut index = Index::new(embedder.dimensions());
    for stored in store.vectors(model, start, u32::MAX).await? {
        let place = places.get(&*stored.id.to_string()).context("a memory that nobody added")?;
        let numbers = stored.vector.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        index.insert(*place, 0, &numbers.collect::<Vec<_>>())?;
    }
    store.close().await?;
    Ok(index)
}

/// The ids that each question finds.
async fn searched(server: &Server, set: &Set) -> anyhow::Result<Vec<Vec<String>>> {
    let mut connection = server.connect().await?;
    let mut all = Vec::new();
    for question in &set.questions {
        let params = json!({"query": question.text, "limit": RECALLED});
        let search = server.request("/", "memory.search", &params);
        let found = connection.result(&search).await?;
        let found = found.as_array().context("no list of memories")?;
        all.push(found.iter().map(id).collect::<Result<_, _>>()?);
    }
    Ok(all)
}

fn id(memory: &Value) -> anyhow::Result<String> {
    Ok(memory["id"].as_str().context("a memory without an id")?.to_owned())
}

/// Numbers without order, the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn vector(&mut self) -> Vec<f32> {
        (0..DIMS).map(|_| self.number() + self.number()).collect()
    }

    /// Between -1 and 1.
    fn number(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}
