//! Several servers on one home: killed in turn, and paused.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use fastrand::Rng;
use nexus_testkit::{Gate, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{Client, Clock, together};
use crate::fault::Fault;
use crate::observe;
use crate::place::{Place, Server};
use crate::report::Tally;
use crate::rpc::{Answer, Caller};
use crate::turn::Turn;
use crate::world::View;

const SERVERS: usize = 3;
const CLIENTS: usize = 4;

/// Answers in a round.
const ENOUGH_MAX: u64 = 60;

/// Clients ask any of the servers for anything and are sent to the one that has the agent. One server after the other is
/// killed; the others take its agents over.
pub async fn shared(place: &Place, seed: u64, rounds: u64) -> anyhow::Result<Tally> {
    let mut rng = Rng::with_seed(seed);
    let mut clients: Vec<_> = (0..CLIENTS).map(|n| Client::new(n, seed, place.work())).collect();
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        servers.push(place.start(&format!("server-{number}"), Fault::None).await?);
    }
    for round in 1..=rounds {
        let about = || format!("round {round}");
        let (victim, enough) = (rng.usize(..SERVERS), rng.u64(..ENOUGH_MAX));
        let clock = Clock::new();
        let running =
            together(clients, async |client| client.run(&mut caller(&servers), &clock).await);
        let killing = async { servers[victim].signal(Signal::KILL) };
        clients = clock.drive(enough, running, killing).await.with_context(about)?;
        servers.remove(victim).kill().await?;
        let survivors = &servers;
        clients = together(clients, async |client| client.check(&mut caller(survivors)).await)
            .await
            .with_context(about)?;
        for client in &clients {
            live_once(&mut caller(&servers), client).await.with_context(about)?;
        }
        servers.insert(victim, place.start(&format!("server-{victim}"), Fault::None).await?);
    }
    observe::check_database(&place.home())?;
    for server in servers {
        server.kill().await?;
    }
    let tally = Tally::of(&clients).kills(rounds);
    Ok(tally.effects(observe::count_effects(&place.work())?))
}

fn caller(servers: &[Server]) -> Caller {
    Caller::new(servers.iter().map(|server| server.address.clone()).collect())
}

/// Exactly one server answers for each agent; the others name it.
async fn live_once(caller: &mut Caller, client: &Client) -> anyhow::Result<()> {
    for (name, _) in client.world().iter().filter(|(_, session)| !session.saved) {
        let mut live = 0;
        for at in 0..caller.servers() {
            match caller.call_at(at, "get_context", &json!({"agent_id": name})).await? {
                Answer::Done(_) => live += 1,
                Answer::Refused(refusal) if refusal.owner().is_some() => {}
                answer => bail!("{name} at server {at}: {answer:?}"),
            }
        }
        ensure!(live == 1, "{name} is live {live} times");
    }
    Ok(())
}

/// A paused server counts as dead after this long. Short, so that the run is; only the other one has to be quick.
const SILENCE_MS: u64 = 500;

/// A server is paused in the middle of a turn and loses its agents; when it wakes up it can write nothing, says so to
/// those who wait, and goes on with what nobody took.
pub async fn paused(place: &Place) -> anyhow::Result<Tally> {
    let sleeper = place.start("sleeper", Fault::None).await?;
    let heir = place.start("heir", Fault::Silence(SILENCE_MS)).await?;
    let [mut asleep, mut awake] = [sleeper.caller(), heir.caller()];
    for name in ["taken", "left"] {
        let create = json!({"agent_id": name, "cwd": place.work(), "system_prompt": "p",
            "allowed_write_paths": [place.work()]});
        asleep.ok("create_agent", &create).await?;
        asleep.ok("send", &said(name, &talk(name, 0))).await?;
    }
    let gate = Gate::new();
    let late = json!({"path": "late.txt", "content": "late\n"});
    place.model.push(Reply::tool_call("append_file", late).held_by(&gate));
    let mut waiting = sleeper.caller();
    let slow = tokio::spawn(async move {
        waiting.call("send", &json!({"agent_id": "taken", "content": "slow"})).await
    });
    while asleep.ok("get_context", &json!({"agent_id": "taken"})).await?["message_count"] != 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    sleeper.signal(Signal::STOP)?;
    let work = Turn { id: "heir".into(), steps: 1, width: 1 };
    let refused = until_taken(&mut awake, &sleeper, &said("taken", &work)).await?;
    ensure!(refused > 0, "the agents of a living process were taken at once");
    gate.release();
    sleeper.signal(Signal::CONT)?;

    let answer = slow.await?;
    let lost = matches!(&answer, Answer::Refused(refusal) if refusal.code == -32001);
    ensure!(lost, "the caller of the paused server was answered {answer:?}");
    ensure!(!place.work().join("late.txt").exists(), "the paused server went on with its turn");
    match asleep.call("get_messages", &json!({"agent_id": "taken"})).await {
        Answer::Gone => {}
        answer => bail!("the paused server still speaks for the agent: {answer:?}"),
    }
    // Nobody asked for the other one: it is the woken server's again.
    asleep.ok("send", &said("left", &talk("left", 1))).await?;
    let mut taken = talk("taken", 0).lines();
    taken.push("user slow".into());
    taken.extend(work.lines());
    expect(&mut awake, "taken", &taken).await?;
    let left: Vec<_> = (0..2).flat_map(|number| talk("left", number).lines()).collect();
    expect(&mut asleep, "left", &left).await?;
    heir.kill().await?;
    expect(&mut asleep, "taken", &taken).await?;
    observe::check_database(&place.home())?;
    sleeper.kill().await?;
    Ok(Tally { kills: 2, acknowledged: 6, dropped: 0, refused: refused + 1, cut: 1, effects: 1 })
}

/// Asks until the agent is had. Until then the owner is named.
async fn until_taken(caller: &mut Caller, owner: &Server, send: &Value) -> anyhow::Result<u64> {
    for refused in 0.. {
        match caller.call_at(0, "send", send).await? {
            Answer::Done(_) => return Ok(refused),
            Answer::Refused(refusal) if refusal.owner() == Some(owner.address.pid) => {}
            answer => bail!("while its owner was paused: {answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(0)
}

fn talk(name: &str, number: usize) -> Turn {
    Turn { id: format!("{name}-{number}"), steps: 0, width: 0 }
}

fn said(name: &str, turn: &Turn) -> Value {
    json!({"agent_id": name, "content": turn.text()})
}

async fn expect(caller: &mut Caller, name: &str, lines: &[String]) -> anyhow::Result<()> {
    let view: View = observe::view(caller, name).await?;
    let found = view.get(name).map(|seen| seen.lines.clone()).unwrap_or_default();
    ensure!(found == lines, "{name} should have said {lines:#?} and has said {found:#?}");
    Ok(())
}
