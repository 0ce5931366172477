//! Callers that let go of every second call, at any moment: over HTTP and the socket with servers that are killed, and
//! inside the process, by dropping the future. What was not waited for happened whole or not at all, and memory and store
//! agree on which.

use anyhow::{Context as _, ensure};
use rustix::process::Signal;

use crate::client::{Client, Clock, together};
use crate::fault::Fault;
use crate::inside::Inside;
use crate::kills;
use crate::observe;
use crate::place::Place;
use crate::report::Tally;

const CLIENTS: usize = 4;

const DROPS_PERCENT: u8 = 50;

/// Answers in a round.
const ENOUGH: u64 = 30;

pub async fn run(place: &Place, seed: u64, rounds: u64) -> anyhow::Result<Tally> {
    let client = |number| Client::new(number, seed, place.work()).with_drops(DROPS_PERCENT);
    let mut clients: Vec<_> = (0..CLIENTS).map(client).collect();
    for round in 0..rounds {
        let about = || format!("round {round}");
        // What one of the two left behind is the other's beginning.
        clients = outside(place, clients).await.with_context(about)?;
        clients = inside(place, clients).await.with_context(about)?;
        observe::check_database(&place.home()).with_context(about)?;
    }
    let tally = Tally::of(&clients);
    ensure!(tally.dropped > 0, "no call was dropped");
    Ok(tally.kills(rounds).effects(observe::count_effects(&place.work())?))
}

async fn outside(place: &Place, clients: Vec<Client>) -> anyhow::Result<Vec<Client>> {
    let server = place.start("server", Fault::None).await?;
    let clients = kills::check(&server, clients).await?;
    let clock = Clock::new();
    let running = together(clients, async |client| client.run(&mut server.caller(), &clock).await);
    let killing = async { server.signal(Signal::KILL) };
    let clients = clock.drive(ENOUGH, running, killing).await?;
    server.kill().await?;
    Ok(clients)
}

async fn inside(place: &Place, clients: Vec<Client>) -> anyhow::Result<Vec<Client>> {
    let server = Inside::start(place, Fault::None).await?;
    let clients = check(&server, clients).await.context("after a kill")?;
    let clock = Clock::new();
    let running = together(clients, async |client| {
        client.run(&mut server.caller(client.is_odd()), &clock).await
    });
    let clients = clock.drive(ENOUGH, running, async { Ok(()) }).await?;
    let clients = check(&server, clients).await.context("in memory")?;
    server.stop().await?;
    Ok(clients)
}

async fn check(server: &Inside, clients: Vec<Client>) -> anyhow::Result<Vec<Client>> {
    together(clients, async |client| client.check(&mut server.caller(false)).await).await
}
