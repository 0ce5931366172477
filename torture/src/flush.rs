//! A disk that refuses to flush, one that only says it did, and one that lost the end of what it was given.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use fastrand::Rng;

use crate::client::{Client, Clock, together};
use crate::fault::Fault;
use crate::kills::check;
use crate::observe;
use crate::place::Place;
use crate::report::Tally;

const CLIENTS: usize = 3;

/// Answers in a round. So few that the write-ahead log is not moved into the database yet, so that what is lost of it is
/// lost.
const ENOUGH: u64 = 40;

/// Every so many commits fail, or every so many jobs alone. What was refused left nothing, also in memory; what was answered is there.
pub async fn refusing(place: &Place, seed: u64, rounds: u64) -> anyhow::Result<Tally> {
    let mut rng = Rng::with_seed(seed);
    let mut clients: Vec<_> = (0..CLIENTS).map(|n| Client::new(n, seed, place.work())).collect();
    for round in 0..rounds {
        let fault = match round % 2 {
            0 => Fault::FailEvery(rng.u64(2..8)),
            _ => Fault::FailJobs(rng.u64(2..8)),
        };
        let about = || format!("round {round}, {fault}");
        let server = place.start("server", fault).await?;
        let clock = Clock::new();
        let running =
            together(clients, async |client| client.run(&mut server.caller(), &clock).await);
        clients = clock.drive(ENOUGH, running, async { Ok(()) }).await.with_context(about)?;
        clients = check(&server, clients).await.with_context(about)?;
        server.kill().await?;
        let server = place.start("server", Fault::None).await?;
        clients = check(&server, clients).await.with_context(about)?;
        server.kill().await?;
        observe::check_database(&place.home()).with_context(about)?;
    }
    let tally = Tally::of(&clients);
    ensure!(tally.refused > 0, "no commit failed");
    Ok(tally.kills(2 * rounds).effects(observe::count_effects(&place.work())?))
}

/// From some commit on nothing reaches the disk, or the end of the write-ahead log is torn away. What was answered after
/// that is lost, and cannot but be; what is left must be a state that once was.
pub async fn lying(place: &Place, seed: u64, round: u64) -> anyhow::Result<Tally> {
    let mut rng = Rng::with_seed(seed.wrapping_add(round));
    let clients = (0..CLIENTS).map(|n| Client::new(n, seed + round, place.work()).with_trail());
    let tear = round % 2 == 1;
    let fault = if tear { Fault::None } else { Fault::LieFrom(rng.u64(1..60)) };
    let server = place.start("server", fault).await?;
    let clock = Clock::new();
    let running = together(clients.collect(), async |client| {
        // On a store that forgets, an answer may say anything.
        let _ = client.run_until_refused(&mut server.caller(), &clock).await;
        Ok(())
    });
    let clients = clock.drive(ENOUGH, running, async { Ok(()) }).await?;
    server.kill().await?;
    if tear {
        tear_log(&place.home(), &mut rng)?;
    }
    let server = place.start("server", Fault::None).await?;
    let clients = together(clients, async |client| client.check_past(&mut server.caller()).await)
        .await
        .with_context(|| format!("round {round}, {fault}"))?;
    observe::check_database(&place.home())?;
    server.kill().await?;
    Ok(Tally { refused: 0, ..Tally::of(&clients).kills(2) })
}

/// Cuts the log off somewhere, or spoils it from there on.
fn tear_log(home: &Path, rng: &mut Rng) -> anyhow::Result<()> {
    let path = home.join("nexus3.db-wal");
    let length = fs::metadata(&path)?.len();
    let from = rng.u64(..length.max(1));
    let log = OpenOptions::new().write(true).open(&path)?;
    if rng.bool() {
        return Ok(log.set_len(from)?);
    }
    let noise: Vec<u8> = (from..length).map(|_| rng.u8(..)).collect();
    Ok(log.write_all_at(&noise, from)?)
}
