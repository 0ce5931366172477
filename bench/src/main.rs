//! `nexus-bench`: measures the server against bare baselines in the same run and prints a table.
//!
//! The machine is shared and noisy, so what is compared runs in turns (A B A B …) and the median of the ratios counts.
//! A reach that is not met is marked and never fails the run: a number that depends on the neighbours is no test.

mod acp;
mod agents;
mod bare;
mod cancel;
mod client;
mod code;
mod compare;
mod crowd;
mod frames;
mod inprocess;
#[cfg(feature = "llama-cpp")]
mod llama;
mod local;
mod mcp;
mod meaning;
mod memories;
mod memory;
mod model;
mod models;
mod openai;
mod plans;
mod prompt;
mod requests;
mod retrieval;
mod search;
mod server;
mod sessions;
mod signing;
mod start;
mod stats;
mod streaming;
mod table;
mod terminal;
mod tools;
mod turns;
mod wal;
mod watch;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nexus_local::{WRITER_ARGUMENT, writer_main};
use nexus_tools::sandbox::close_in;

use table::Table;

const USAGE: &str = "usage: nexus-bench [--quick] [--server PATH] [--breakdown] [GROUP…]
       nexus-bench compare OLD NEW [--quick] GROUP…
--server     the server's program to measure, the one beside this when absent
--breakdown  say what the server's memory is made of (group memory)
compare      runs the groups on two servers in turns, five times each, and prints the medians
groups: http inprocess signing create turns start memory cancel frames stream prompt tools
        sessions crowd models model meaning memories code plans watch terminal mcp acp openai (all when none is named)";

const GROUPS: [&str; 25] = [
    "http",
    "inprocess",
    "signing",
    "create",
    "turns",
    "start",
    "memory",
    "cancel",
    "frames",
    "stream",
    "prompt",
    "tools",
    "sessions",
    "crowd",
    "models",
    "model",
    "meaning",
    "memories",
    "code",
    "plans",
    "watch",
    "terminal",
    "mcp",
    "acp",
    "openai",
];

/// How long to measure.
pub struct Bench {
    quick: bool,
    /// Print what memory is made of.
    pub breakdown: bool,
}

impl Bench {
    pub fn rounds(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    /// The length of one round.
    pub fn round(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 1_000 })
    }

    pub fn count(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(5) } else { full }
    }
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // The built-in model has its chat template run by the program that it is in.
    if args.first().is_some_and(|first| first == WRITER_ARGUMENT) {
        writer_main(close_in);
    }
    // As the server's own runtime, so that baselines differ from it in their work only.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match args.split_first() {
            Some((kind, rest)) if kind.starts_with("--bare-") => bare::run(kind, rest).await,
            Some((kind, rest)) if kind == "compare" => compare::run(rest),
            _ => measure(args).await,
        }
    });
    runtime.shutdown_background();
    done
}

async fn measure(mut groups: Vec<String>) -> anyhow::Result<()> {
    if let Some(at) = groups.iter().position(|group| group == "--server") {
        let path = groups.drain(at..groups.len().min(at + 2)).nth(1);
        server::measure(path.context(USAGE)?.into())?;
    }
    let mut flag = |name: &str| {
        let all = groups.len();
        groups.retain(|group| group != name);
        groups.len() < all
    };
    let bench = Bench { quick: flag("--quick"), breakdown: flag("--breakdown") };
    if let Some(unknown) = groups.iter().find(|group| !GROUPS.contains(&group.as_str())) {
        bail!("{unknown} is no group\n{USAGE}");
    }
    let started = Instant::now();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average before: {}", load.trim());
    let mut table = Table::start();
    for group in GROUPS {
        if !groups.is_empty() && !groups.iter().any(|wanted| wanted == group) {
            continue;
        }
        let (bench, table) = (&bench, &mut table);
        match group {
            "http" => requests::run(bench, table).await?,
            "inprocess" => inprocess::run(bench, table).await?,
            "signing" => signing::run(bench, table).await?,
            "create" => agents::run(bench, table).await?,
            "turns" => turns::run(bench, table).await?,
            "start" => start::run(bench, table).await?,
            "memory" => memory::run(bench, table).await?,
            "cancel" => cancel::run(bench, table).await?,
            "frames" => frames::run(bench, table).await?,
            "stream" => streaming::run(bench, table).await?,
            "prompt" => prompt::run(table).await?,
            "tools" => tools::run(bench, table).await?,
            "sessions" => sessions::run(bench, table).await?,
            "crowd" => crowd::run(bench, table).await?,
            "models" => models::run(bench, table).await?,
            "model" => local::run(bench, table).await?,
            "memories" => memories::run(bench, table).await?,
            "code" => code::run(bench, table).await?,
            "plans" => plans::run(bench, table).await?,
            "watch" => watch::run(bench, table).await?,
            "terminal" => terminal::run(bench, table).await?,
            "mcp" => mcp::run(bench, table).await?,
            "acp" => acp::run(bench, table).await?,
            "openai" => openai::run(bench, table).await?,
            _ => meaning::run(bench, table).await?,
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average after: {}", load.trim());
    println!(
        "{} of {} reaches met, in {:.0} s",
        table.met(),
        table.judged(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
