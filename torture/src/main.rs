//! `nexus-torture`: kills the server, lets go of its calls, breaks its store and its disk, shares its home among several
//! processes, abuses it, and checks an oracle of everything that was answered. `make torture` runs it for long, `make test` a short
//! form.

mod abuse;
mod client;
mod commits;
mod disk;
mod dropping;
mod ended;
mod fault;
mod flush;
mod hangup;
mod inside;
mod kills;
mod observe;
mod place;
mod plans;
mod processes;
mod report;
mod rpc;
mod statements;
mod turn;
mod world;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use nexus_tools::sandbox::{LAUNCHER_ARGUMENT, confine_main};

use crate::fault::Fault;
use crate::place::Place;
use crate::report::{Tally, table};

/// Tortures a server and checks that it kept its word.
#[derive(Parser)]
#[command(name = "nexus-torture")]
struct Cli {
    /// What to run; everything when absent
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// Random kills
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// Repeats the choices of an earlier run; what runs side by side still meets differently
    #[arg(long)]
    seed: Option<u64>,
    /// A fault for the server that is killed at random, as in torture/src/fault.rs: with one that loses what was
    /// answered the oracle must fail
    #[arg(long, default_value_t = Fault::None)]
    fault: Fault,
    /// The program to torture where no fault is injected; this one's own copy of it when absent
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Killed at random moments
    Kills,
    /// Killed before and after every commit of a piece of work
    Commits,
    /// Callers that let go of their calls at any moment
    Dropping,
    /// A store that fails once, in every write of a piece of work
    Statements,
    /// A disk that refuses to flush
    Refusing,
    /// A disk that says it flushed and did not
    Lying,
    /// A disk that is full for a while
    Disk,
    /// Several servers on one home, killed in turn
    Shared,
    /// A server that is paused, loses its agents and wakes up
    Paused,
    /// Killed at random moments of plans
    Plans,
    /// Hostile agents, a hostile model, hostile tools and strangers, beside honest clients
    Abuse,
}

impl Scenario {
    fn name(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Commits => "commits",
            Self::Dropping => "dropping",
            Self::Statements => "statements",
            Self::Refusing => "refusing",
            Self::Lying => "lying",
            Self::Disk => "disk",
            Self::Shared => "shared",
            Self::Paused => "paused",
            Self::Plans => "plans",
            Self::Abuse => "abuse",
        }
    }
}

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // What the server starts of its own program is this one, too: else nothing would be confined, or run at all.
    if args.first().is_some_and(|first| first == LAUNCHER_ARGUMENT) {
        confine_main();
    }
    if args.first().is_some_and(|first| first == abuse::hostile_mcp::ARGUMENT) {
        return abuse::hostile_mcp::main();
    }
    // This program is also the server it tortures.
    if args.first().is_some_and(|first| first == "serve") {
        let fault = args.get(1).and_then(|fault| fault.to_str()).unwrap_or_default().parse();
        return match fault {
            Ok(fault) => fault::serve(fault, args.split_off(2)),
            Err(error) => {
                eprintln!("Error: {error}");
                ExitCode::from(2)
            }
        };
    }
    match torture(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn torture(cli: Cli) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let seed = cli.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let scenarios = match cli.scenarios.is_empty() {
        true => Scenario::value_variants().to_vec(),
        false => cli.scenarios.clone(),
    };
    eprintln!("seed {seed}");
    let mut rows = Vec::new();
    for scenario in scenarios {
        let started = Instant::now();
        let outcome = runtime.block_on(run(scenario, &cli, seed));
        if let Err(error) = &outcome {
            eprintln!("{}: {error:#}", scenario.name());
        }
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        rows.push((scenario.name(), started.elapsed().as_secs_f64(), outcome));
    }
    print!("{}", table(seed, &rows));
    Ok(rows.iter().all(|(_, _, outcome)| outcome.is_ok()))
}

/// One in so many of the kills is the number of rounds of the other scenarios, each of which is longer than a kill.
const KILLS_PER_ROUND: u64 = 20;

/// A run of fewer kills is a short one.
const THOROUGH_KILLS: u64 = 100;

async fn run(scenario: Scenario, cli: &Cli, seed: u64) -> anyhow::Result<Tally> {
    let rounds = (cli.kills / KILLS_PER_ROUND).max(4);
    let places = match scenario {
        Scenario::Commits => return commits::run(cli.program.as_deref()).await,
        Scenario::Statements => return statements::run(seed, cli.kills >= THOROUGH_KILLS).await,
        Scenario::Lying => rounds,
        _ => 1,
    };
    let mut tally = Tally::default();
    for number in 0..places {
        let place = Place::new(cli.program.as_deref()).await?;
        let outcome = match scenario {
            Scenario::Kills => kills::run(&place, seed, cli.kills, cli.fault).await,
            Scenario::Commits | Scenario::Statements => Ok(Tally::default()),
            Scenario::Dropping => dropping::run(&place, seed, rounds).await,
            Scenario::Refusing => flush::refusing(&place, seed, rounds).await,
            Scenario::Lying => flush::lying(&place, seed, number).await,
            Scenario::Disk => disk::run(&place, seed).await,
            Scenario::Shared => processes::shared(&place, seed, rounds).await,
            Scenario::Paused => processes::paused(&place).await,
            Scenario::Plans => plans::run(&place, seed, cli.kills).await,
            Scenario::Abuse => abuse::run(&place, seed, rounds, cli.kills >= THOROUGH_KILLS).await,
        };
        match outcome {
            Ok(one) => tally = tally.and(one),
            Err(error) => {
                let kept = place.keep();
                let about = format!("seed {seed}, evidence in {}", kept.display());
                return Err(error).with_context(|| about);
            }
        }
    }
    Ok(tally)
}
