//! The built-in model: how fast it reads and writes, alone, together and beside a busy neighbour.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use nexus_core::message::{Message, Meta, Role};
use nexus_core::model::ModelInfo;
use nexus_core::provider::{ModelCall, Provider as _, ProviderEvent};
use nexus_core::usage::Usage;
use nexus_local::{Backend, Local};

use crate::Bench;
use crate::server::rss_kib;
use crate::stats::median;
use crate::table::{Row, Table};

/// Tokens of an answer that is timed.
const ANSWER_TOKENS: u32 = 64;

/// The model that is measured.
const MODEL: &str = nexus_config::BUILT_IN.1;

/// Agents that are answered together.
const TOGETHER: usize = 16;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let directory = std::env::var_os("NEXUS3_MODELS").map(PathBuf::from);
    let directory =
        directory.context("NEXUS3_MODELS names no directory of weights; say make bench")?;
    one(bench, Backend::Own, "local model", &directory, table).await?;
    #[cfg(feature = "llama-cpp")]
    one(bench, Backend::LlamaCpp, "local model on llama.cpp", &directory, table).await?;
    against_llama_cpp(bench, &directory, table).await
}

/// All that is measured of one way to run the model.
async fn one(
    bench: &Bench,
    backend: Backend,
    name: &str,
    directory: &Path,
    table: &mut Table,
) -> anyhow::Result<()> {
    let before = rss_kib(std::process::id())?;
    let local = Local::on(backend, directory.into());
    let loaded = ask(&local, &[(Role::User, "Hello")], 1).await?;
    let first = ask(&local, &[(Role::User, "Hello")], 1).await?;
    let load = loaded.first_word.saturating_sub(first.first_word);
    let load = format!("{:.0} ms", load.as_secs_f64() * 1e3);
    table.add(Row::new(format!("{name}: load")).measured(load));
    let memory = (rss_kib(std::process::id())? - before) / 1024.0;
    table.add(Row::new("  memory it takes").measured(format!("{memory:.0} MiB")));

    speeds(bench, &local, table).await?;
    second_turn(bench, backend, directory, table).await?;
    together(bench, &local, table).await?;
    beside_a_busy_core(bench, &local, table).await
}

async fn speeds(bench: &Bench, local: &Local, table: &mut Table) -> anyhow::Result<()> {
    let (mut read, mut short, mut long) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        let story = format!("Story {round}: tell me about the sea.");
        short.push(ask(local, &[(Role::User, &story)], ANSWER_TOKENS).await?.written_per_second());
        let text = format!("{round}. {}", "The fox jumps over the lazy dog. ".repeat(64));
        let answer = ask(local, &[(Role::User, &text)], ANSWER_TOKENS).await?;
        read.push(answer.read_per_second());
        long.push(answer.written_per_second());
    }
    let rate = |rates: Vec<f64>| format!("{:.0} tokens/s", median(rates));
    table.add(Row::new("  reading a prompt of some 550 tokens").measured(rate(read)));
    table.add(Row::new("  writing, in a short conversation").measured(rate(short)));
    table.add(Row::new("  writing, after that prompt").measured(rate(long)));
    Ok(())
}

/// The first word of a second turn, for a server that remembers the first turn and for one that does not.
async fn second_turn(
    bench: &Bench,
    backend: Backend,
    directory: &Path,
    table: &mut Table,
) -> anyhow::Result<()> {
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        let text = "The fox jumps over the lazy dog. ".repeat(32);
        let local = Local::on(backend, directory.into());
        let first = ask(&local, &[(Role::User, &text)], ANSWER_TOKENS).await?;
        let turns = [
            (Role::User, text.as_str()),
            (Role::Assistant, first.text.as_str()),
            (Role::User, "And then?"),
        ];
        warm.push(ask(&local, &turns, 1).await?.first_word.as_secs_f64());
        let other = Local::on(backend, directory.into());
        ask(&other, &[(Role::User, "Hello")], 1).await?;
        cold.push(ask(&other, &turns, 1).await?.first_word.as_secs_f64());
    }
    let (warm, cold) = (median(warm), median(cold));
    let milliseconds = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
    table.add(
        Row::new("  first word of a second turn; read anew")
            .measured(milliseconds(warm))
            .baseline(milliseconds(cold))
            .ratio(warm / cold)
            .reach("<= 0.33", warm / cold <= 1.0 / 3.0),
    );
    Ok(())
}

async fn together(bench: &Bench, local: &Local, table: &mut Table) -> anyhow::Result<()> {
    let (mut many, mut one) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        let started = Instant::now();
        let story = format!("Story {round} again: tell me about the sea.");
        let answer = ask(local, &[(Role::User, &story)], ANSWER_TOKENS).await?;
        one.push(answer.usage.output as f64 / started.elapsed().as_secs_f64());
        let started = Instant::now();
        let stories: Vec<_> =
            (0..TOGETHER).map(|at| format!("Story {round}-{at}: tell me about the sea.")).collect();
        let asked = stories
            .iter()
            .map(async |story| ask(local, &[(Role::User, story)], ANSWER_TOKENS).await);
        let answers = try_join_all(asked).await?;
        let tokens: u64 = answers.iter().map(|answer| answer.usage.output).sum();
        many.push(tokens as f64 / started.elapsed().as_secs_f64());
    }
    let (many, one) = (median(many), median(one));
    table.add(
        Row::new(format!("  {TOGETHER} agents together; one alone"))
            .measured(format!("{many:.0} tokens/s"))
            .baseline(format!("{one:.0} tokens/s"))
            .ratio(many / one)
            .reach(">= 1.0", many >= one),
    );
    Ok(())
}

async fn beside_a_busy_core(bench: &Bench, local: &Local, table: &mut Table) -> anyhow::Result<()> {
    let (mut busy, mut free) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        let story = format!("Tale {round}: tell me about the sea.");
        free.push(ask(local, &[(Role::User, &story)], ANSWER_TOKENS).await?.written_per_second());
        let neighbour = Neighbour::start();
        let story = format!("Tale {round}, again: tell me about the sea.");
        busy.push(ask(local, &[(Role::User, &story)], ANSWER_TOKENS).await?.written_per_second());
        drop(neighbour);
    }
    let (busy, free) = (median(busy), median(free));
    table.add(
        Row::new("  writing while another program keeps a core busy; free")
            .measured(format!("{busy:.0} tokens/s"))
            .baseline(format!("{free:.0} tokens/s"))
            .ratio(busy / free)
            .reach(">= 0.50", busy / free >= 0.5),
    );
    Ok(())
}

/// The built-in model beside llama.cpp alone, in turns, on the same weights and with as many threads.
#[cfg(feature = "llama-cpp")]
async fn against_llama_cpp(
    bench: &Bench,
    directory: &Path,
    table: &mut Table,
) -> anyhow::Result<()> {
    let own = Local::on(Backend::Own, directory.into());
    let llama = Local::on(Backend::LlamaCpp, directory.into());
    let weights = crate::llama::Weights::open(&own.file(MODEL))?;
    let threads = nexus_local::threads();
    let cores = std::thread::available_parallelism()?.get();
    let (mut bare, mut wide) = (weights.bare(threads)?, weights.bare(cores)?);
    // What a first call does once is not counted.
    ask(&own, &[(Role::User, "Hello")], 1).await?;
    ask(&llama, &[(Role::User, "Hello")], 1).await?;
    bare.answer("Hello", 2)?;
    wide.answer("Hello", 2)?;
    let [mut written, mut read] = [Speeds::default(), Speeds::default()];
    for round in 0..2 * bench.rounds() {
        let text = format!("Saga {round}: tell me a long story about the sea.");
        written.bare.push(bare.answer(&text, ANSWER_TOKENS)?.written);
        let of = |answer: Answer| answer.written_per_second();
        written.own.push(of(ask(&own, &[(Role::User, &text)], ANSWER_TOKENS).await?));
        written.llama.push(of(ask(&llama, &[(Role::User, &text)], ANSWER_TOKENS).await?));
        // With a thread on every core a neighbour makes it ten times slower: a few words must do.
        written.wide.push(wide.answer(&text, ANSWER_TOKENS / 4)?.written);
    }
    for round in 0..bench.rounds() {
        let text = format!("{round}. {}", "The fox jumps over the lazy dog. ".repeat(64));
        read.bare.push(bare.answer(&text, 2)?.read);
        let of = |answer: Answer| answer.read_per_second();
        read.own.push(of(ask(&own, &[(Role::User, &text)], 1).await?));
        read.llama.push(of(ask(&llama, &[(Role::User, &text)], 1).await?));
        read.wide.push(wide.answer(&text, 2)?.read);
    }
    let count = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
    let row = |what: &str, of: &str, speeds: &Speeds, mine: &[f64]| {
        let rate = |rates: &[f64]| format!("{:.0} tokens/s", median(rates.iter().copied()));
        let ratio = median(mine.iter().zip(&speeds.bare).map(|(mine, bare)| mine / bare));
        let row = Row::new(format!("  {what}, {of}; bare llama.cpp, {count}"))
            .measured(rate(mine))
            .baseline(rate(&speeds.bare))
            .ratio(ratio);
        (row, ratio)
    };
    let (own, ratio) = row("writing", "default engine", &written, &written.own);
    table.add(own.reach(OWN_REACH, ratio >= 0.5));
    let (llama, ratio) = row("writing", "on llama.cpp", &written, &written.llama);
    table.add(llama.reach(LLAMA_REACH, ratio >= 0.9));
    table.add(row("reading some 550 tokens", "default engine", &read, &read.own).0);
    table.add(row("reading some 550 tokens", "on llama.cpp", &read, &read.llama).0);
    table.add(Row::new(format!("  bare llama.cpp on all {cores} cores")).measured(format!(
        "writes {:.0}, reads {:.0} tokens/s",
        median(written.wide),
        median(read.wide)
    )));
    Ok(())
}

/// Tokens a second, round by round.
#[cfg(feature = "llama-cpp")]
#[derive(Default)]
struct Speeds {
    /// llama.cpp alone, with as many threads as the model gets.
    bare: Vec<f64>,
    own: Vec<f64>,
    llama: Vec<f64>,
    /// llama.cpp alone, with a thread for each core.
    wide: Vec<f64>,
}

#[cfg(not(feature = "llama-cpp"))]
async fn against_llama_cpp(_: &Bench, _: &Path, table: &mut Table) -> anyhow::Result<()> {
    let absent = "not measured; with cmake, clang and libclang-dev installed: make bench";
    for (of, reach) in [("default engine", OWN_REACH), ("on llama.cpp", LLAMA_REACH)] {
        let what = format!("  writing, {of}; bare llama.cpp, reach {reach}");
        table.add(Row::new(what).measured(absent));
    }
    Ok(())
}

const OWN_REACH: &str = ">= 0.50";
const LLAMA_REACH: &str = ">= 0.90";

/// Keeps one core busy until it is dropped.
struct Neighbour(Arc<AtomicBool>);

impl Neighbour {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        std::thread::spawn(move || while !stopped.load(Ordering::Relaxed) {});
        Self(stop)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Answer {
    text: String,
    first_word: Duration,
    total: Duration,
    usage: Usage,
}

impl Answer {
    fn read_per_second(&self) -> f64 {
        (self.usage.input - self.usage.cache_read) as f64 / self.first_word.as_secs_f64()
    }

    fn written_per_second(&self) -> f64 {
        (self.usage.output - 1) as f64 / (self.total - self.first_word).as_secs_f64()
    }
}

async fn ask(local: &Local, said: &[(Role, &str)], tokens: u32) -> anyhow::Result<Answer> {
    let message =
        |&(role, text): &(Role, &str)| Arc::new(Message::new(role, text, Meta::default()));
    let call = ModelCall {
        max_tokens: Some(tokens),
        ..ModelCall::of(
            Arc::new(ModelInfo::undescribed("local", "local", MODEL)),
            said.iter().map(message),
        )
    };
    let started = Instant::now();
    let mut events = local.stream(call).await?;
    let (mut text, mut first_word) = (String::new(), None);
    while let Some(event) = events.next().await {
        match event? {
            ProviderEvent::Text(piece) => {
                first_word.get_or_insert_with(|| started.elapsed());
                text.push_str(&piece);
            }
            ProviderEvent::Done(answer) => {
                let usage = answer.usage;
                let first_word = first_word.unwrap_or_else(|| started.elapsed());
                return Ok(Answer { text, first_word, total: started.elapsed(), usage });
            }
            ProviderEvent::Reasoning(_) | ProviderEvent::Logprobs(_) | ProviderEvent::Usage(_) => {}
        }
    }
    bail!("the answer has no end")
}
