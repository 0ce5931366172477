//! `kill -9` at random moments, many times, with several clients at work.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use fastrand::Rng;
use rustix::process::Signal;

use crate::client::{Client, Clock, together};
use crate::fault::Fault;
use crate::observe;
use crate::place::{Place, Server};
use crate::report::Tally;

const CLIENTS: usize = 6;

/// Answers between two kills, at most: from a server that had hardly time to start to one that is well at work.
const ACKNOWLEDGED_MAX: u64 = 60;

/// How many in a hundred calls are not waited for.
const DROPS_PERCENT: u8 = 10;

/// The job that fails, at most: most servers live as long.
const FAILS_MAX: u64 = 60;

/// The kill comes up to this long after the last answer that is waited for, to meet a commit at any of its moments.
const DELAY_MICROS_MAX: u64 = 5_000;

pub async fn run(place: &Place, seed: u64, kills: u64, fault: Fault) -> anyhow::Result<Tally> {
    let mut rng = Rng::with_seed(seed);
    let client = |number| Client::new(number, seed, place.work()).with_drops(DROPS_PERCENT);
    let mut clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let started = Instant::now();
    let mut server = place.start("server", fault).await?;
    for kill in 1..=kills {
        let delay = Duration::from_micros(rng.u64(..DELAY_MICROS_MAX));
        clients = round(&server, clients, rng.u64(..ACKNOWLEDGED_MAX), delay).await?;
        server.kill().await?;
        let fault = match fault {
            // Every other server also has a store that fails once.
            Fault::None if kill % 2 == 1 => Fault::FailJob(rng.u64(1..FAILS_MAX)),
            fault => fault,
        };
        server = place.start("server", fault).await?;
        clients = check(&server, clients).await.with_context(|| format!("after kill {kill}"))?;
        if kill % 10 == 0 {
            observe::check_database(&place.home()).with_context(|| format!("after kill {kill}"))?;
        }
        if kill % 100 == 0 {
            let seconds = started.elapsed().as_secs();
            eprintln!("kills: {kill} of {kills}, {seconds} s, {}", Tally::of(&clients));
        }
    }
    server.kill().await?;
    let tally = Tally::of(&clients);
    Ok(tally.kills(kills).effects(observe::count_effects(&place.work())?))
}

/// Lets the clients work until so many answers have arrived and a little longer. They are left with what they asked for
/// last, answered or not.
async fn round(
    server: &Server,
    clients: Vec<Client>,
    enough: u64,
    delay: Duration,
) -> anyhow::Result<Vec<Client>> {
    let clock = Clock::new();
    let running = together(clients, async |client| client.run(&mut server.caller(), &clock).await);
    let killing = async {
        tokio::time::sleep(delay).await;
        server.signal(Signal::KILL)
    };
    clock.drive(enough, running, killing).await
}

/// Lets every client compare.
pub async fn check(server: &Server, clients: Vec<Client>) -> anyhow::Result<Vec<Client>> {
    together(clients, async |client| client.check(&mut server.caller()).await).await
}
