//! What is found by meaning: how fast, how much the embedder makes, and how much of what should be found is.

use std::collections::HashMap;
use std::time::Instant;

use nexus_core::embed::Embedder;
use nexus_core::fuse::{FUSED_DEPTH, MEANING_WEIGHT, WORDS_WEIGHT, fuse};
use nexus_local::LocalEmbedder;
use nexus_meaning::Index;
use rusqlite::Connection;

use crate::Bench;
use crate::retrieval::{Kind, Set};
use crate::server::{cpu_during, rss_kib};
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

/// How many questions find their answer by words, by meaning and by both.
async fn quality(embedder: &LocalEmbedder, table: &mut Table) -> anyhow::Result<()> {
    let set = Set::new();
    let words = Words::new(&set.memories)?;
    let mut index = Index::new(embedder.dimensions());
    for (id, vector) in (0..).zip(embedder.embed(set.memories.clone()).await?) {
        index.insert(id, 0, &vector)?;
    }
    let texts = set.questions.iter().map(|question| question.text.clone()).collect();
    let vectors = embedder.embed(texts).await?;
    let mut recalled: HashMap<&str, Recalled> = HashMap::new();
    for (question, vector) in set.questions.iter().zip(vectors) {
        let by_words = words.find(&question.text)?;
        let by_meaning = index.nearest(&vector, &[0], FUSED_DEPTH as usize)?;
        let lists = [(WORDS_WEIGHT, &*by_words), (MEANING_WEIGHT, &*by_meaning)];
        let fused = fuse(&lists, RECALLED);
        let has = |list: &[(u64, f32)]| {
            list.iter().take(RECALLED).any(|(id, _)| *id == question.answer as u64)
        };
        for name in [ALL, question.kind.name()] {
            let recalled = recalled.entry(name).or_default();
            recalled.questions += 1;
            recalled.by_words += usize::from(has(&by_words));
            recalled.by_meaning += usize::from(has(&by_meaning));
            recalled.by_both += usize::from(has(&fused));
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

/// Full text in SQLite: any of the words, the best by BM25 first.
struct Words(Connection);

impl Words {
    fn new(texts: &[String]) -> anyhow::Result<Self> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(
            "CREATE VIRTUAL TABLE memory USING fts5(text, tokenize = 'porter unicode61')",
        )?;
        for (id, text) in texts.iter().enumerate() {
            let sql = "INSERT INTO memory (rowid, text) VALUES (?1, ?2)";
            connection.prepare_cached(sql)?.execute((id as i64, text))?;
        }
        Ok(Self(connection))
    }

    fn find(&self, question: &str) -> anyhow::Result<Vec<(u64, f32)>> {
        let words = question.split(|char: char| !char.is_alphanumeric());
        let words: Vec<_> =
            words.filter(|word| !word.is_empty()).map(|word| format!("\"{word}\"")).collect();
        // A rank of SQLite is less for what is better.
        let sql = "SELECT rowid, -rank FROM memory WHERE memory MATCH ?1
                   ORDER BY rank, rowid LIMIT ?2";
        let mut statement = self.0.prepare_cached(sql)?;
        let rows = statement.query_map((words.join(" OR "), FUSED_DEPTH), |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, f64>(1)? as f32))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// Numbers without order, the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A vector as stores keep it.
    pub fn vector_bytes(&mut self) -> Vec<u8> {
        self.vector().iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn vector(&mut self) -> Vec<f32> {
        (0..DIMS).map(|_| self.number() + self.number()).collect()
    }

    /// Between -1 and 1.
    fn number(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}
