//! The built-in model: how fast it reads and writes, alone, together and beside a busy neighbour.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use nexus_core::message::{Message, Meta, Role};
use nexus_core::provider::{ModelCall, Provider as _, ProviderEvent, Usage};
use nexus_local::Local;

use crate::Bench;
use crate::server::rss_kib;
use crate::stats::median;
use crate::table::{Row, Table};

/// Tokens of an answer that is timed.
const ANSWER_TOKENS: u32 = 64;

/// Agents that are answered together.
const TOGETHER: usize = 16;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let directory = std::env::var_os("NEXUS3_MODELS").map(PathBuf::from);
    let directory =
        directory.context("NEXUS3_MODELS names no directory of weights; say make bench")?;
    let before = rss_kib(std::process::id())?;
    let local = Local::new(directory.clone());
    let loaded = ask(&local, &[(Role::User, "Hello")], 1).await?;
    let first = ask(&local, &[(Role::User, "Hello")], 1).await?;
    let load = loaded.first_word.saturating_sub(first.first_word);
    table
        .add(Row::new("local model: load").measured(format!("{:.0} ms", load.as_secs_f64() * 1e3)));
    let memory = (rss_kib(std::process::id())? - before) / 1024.0;
    table.add(Row::new("  memory it takes").measured(format!("{memory:.0} MiB")));

    speeds(bench, &local, table).await?;
    second_turn(bench, &directory, table).await?;
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
    directory: &std::path::Path,
    table: &mut Table,
) -> anyhow::Result<()> {
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        let text = "The fox jumps over the lazy dog. ".repeat(32);
        let local = Local::new(directory.into());
        let first = ask(&local, &[(Role::User, &text)], ANSWER_TOKENS).await?;
        let turns = [
            (Role::User, text.as_str()),
            (Role::Assistant, first.text.as_str()),
            (Role::User, "And then?"),
        ];
        warm.push(ask(&local, &turns, 1).await?.first_word.as_secs_f64());
        let other = Local::new(directory.into());
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
        (self.usage.input - self.usage.cached) as f64 / self.first_word.as_secs_f64()
    }

    fn written_per_second(&self) -> f64 {
        (self.usage.output - 1) as f64 / (self.total - self.first_word).as_secs_f64()
    }
}

async fn ask(local: &Local, said: &[(Role, &str)], tokens: u32) -> anyhow::Result<Answer> {
    let message =
        |&(role, text): &(Role, &str)| Arc::new(Message::new(role, text, Meta::default()));
    let call = ModelCall {
        model_id: nexus_adapters::config::BUILT_IN.1.into(),
        reasoning: false,
        system: "".into(),
        tools: Arc::from([]),
        messages: said.iter().map(message).collect(),
        volatile: None,
        max_tokens: Some(tokens),
        schema: None,
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
            ProviderEvent::Done(usage) => {
                let first_word = first_word.unwrap_or_else(|| started.elapsed());
                return Ok(Answer { text, first_word, total: started.elapsed(), usage });
            }
            ProviderEvent::ToolCall(_) => {}
        }
    }
    bail!("the answer has no end")
}
