//! A hostile agent with a token of its own, a hostile model, strangers without a token, all at once, beside an honest
//! client of the same server. The honest one is served: every read and every turn it asks for; and the server stays small.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use nexus_testkit::{Reply, last_user_text};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fault::Fault;
use crate::place::{Place, Server};
use crate::report::Tally;
use crate::rpc::{Address, Caller, request};
use crate::turn;

/// The most the server may ever have had in memory.
const MEMORY_MIB_MAX: u64 = 1024;

/// What the honest client's reads may take, of which one in a hundred may take longer. Judged in a thorough run only: a
/// short one shares the machine with other tests.
const READ_MAX: Duration = Duration::from_millis(50);

/// Hostile callers at once. Each has a connection of its own.
const VILLAINS: usize = 8;

/// Connections that never say who they are.
const STRANGERS: usize = 1_200;

/// How long a run is for each round.
const ROUND: Duration = Duration::from_millis(1_500);

/// Turns the honest client has in every run.
const TURNS_MIN: u64 = 3;

/// Whom nobody serves for so long beyond a run's length is not slow but starved.
const STARVED: Duration = Duration::from_secs(180);

/// The hostile agent, whose token all hostile callers have.
const VILLAIN: &str = "villain";
const HONEST: &str = "honest";

/// Its children. The first of them do nothing but wait, so that the others do not wait behind them.
const HENCHMEN: u8 = 16;
const IDLERS: u8 = 4;

fn henchman(number: u8) -> String {
    format!("henchman-{number}")
}

pub async fn run(place: &Place, seed: u64, rounds: u64, thorough: bool) -> anyhow::Result<Tally> {
    place.model.set_script(script);
    prepare(place)?;
    let server = place.start("server", Fault::None).await?;
    let mut caller = server.caller();
    let work = place.work();
    for name in [HONEST, VILLAIN] {
        let params = json!({"agent_id": name, "preset": "trusted", "cwd": work});
        caller.ok("create_agent", &params).await?;
    }
    for number in 0..HENCHMEN {
        let params = json!({"agent_id": henchman(number), "parent_agent_id": VILLAIN});
        caller.ok("create_agent", &params).await?;
    }
    let token = caller.ok("create_agent_token", &json!({"agent_id": VILLAIN})).await?;
    let token: Arc<str> = token["token"].as_str().context("a token")?.into();

    let stop = Arc::new(AtomicBool::new(false));
    let mut hostile = Vec::new();
    for number in 0..VILLAINS {
        let (address, token, stop) = (server.address.clone(), token.clone(), stop.clone());
        let rng = Rng::with_seed(seed.wrapping_add(number as u64));
        hostile.push(tokio::spawn(villain(address, token, rng, stop)));
    }
    hostile.push(tokio::spawn(strangers(server.address.clone(), stop.clone())));
    let length = ROUND * u32::try_from(rounds)?;
    let served = tokio::time::timeout(length + STARVED, honest(&mut caller, length)).await;
    stop.store(true, Ordering::Relaxed);
    let mut attempts = 0;
    for one in hostile {
        attempts += one.await?;
    }
    let served = served.context("the honest client starves")??;
    judge(&server, &served, thorough)?;
    check_borders(place)?;
    server.kill().await?;
    Ok(Tally {
        acknowledged: served.reads.len() as u64 + served.turns,
        dropped: attempts,
        ..Tally::default()
    })
}

/// What the hostile model's calls need, and what none of them may touch.
fn prepare(place: &Place) -> anyhow::Result<()> {
    let work = place.work();
    std::fs::write(place.path("outside/secret.txt"), SECRET)?;
    std::fs::write(work.join("deep.java"), "A<".repeat(200_000))?;
    std::fs::write(work.join("long.txt"), "a\n".repeat(2_000_000))?;
    Ok(())
}

const SECRET: &str = "nobody's business";

fn check_borders(place: &Place) -> anyhow::Result<()> {
    let secret = std::fs::read_to_string(place.path("outside/secret.txt"))?;
    ensure!(secret == SECRET, "a file outside was written");
    let log = std::fs::read_to_string(place.path("server.log"))?;
    ensure!(!log.contains("panicked"), "something panicked, see server.log");
    Ok(())
}

/// What became of an honest client.
struct Served {
    reads: Vec<Duration>,
    turns: u64,
}

/// Reads all the time, and asks for a turn now and then. Any refusal is a defect. It goes on until it had turns enough:
/// on a slow machine a run is longer, not emptier.
async fn honest(caller: &mut Caller, length: Duration) -> anyhow::Result<Served> {
    let started = Instant::now();
    let mut served = Served { reads: Vec::new(), turns: 0 };
    while started.elapsed() < length || served.turns < TURNS_MIN {
        let asked = Instant::now();
        match served.reads.len() % 3 {
            0 => caller.ok("get_context", &json!({"agent_id": HONEST})).await?,
            1 => caller.ok("rpc.version", &json!({})).await?,
            _ => caller.ok("list_agents", &json!({"limit": 20})).await?,
        };
        served.reads.push(asked.elapsed());
        if served.reads.len().is_multiple_of(20) {
            let said = caller.ok("send", &json!({"agent_id": HONEST, "content": "hello"})).await?;
            ensure!(said["content"] == "well", "the honest agent said {said}");
            served.turns += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(served)
}

fn judge(server: &Server, served: &Served, thorough: bool) -> anyhow::Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.address.pid))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a peak")?;
    let peak_mib = peak.trim().trim_end_matches(" kB").parse::<u64>()? / 1024;
    let mut reads = served.reads.clone();
    reads.sort_unstable();
    let p99 = reads.get(reads.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default();
    eprintln!(
        "abuse: {} reads, p99 {:.1} ms; {} turns; {peak_mib} MiB at most",
        reads.len(),
        p99.as_secs_f64() * 1e3,
        served.turns
    );
    ensure!(peak_mib < MEMORY_MIB_MAX, "the server took {peak_mib} MiB of {MEMORY_MIB_MAX}");
    ensure!(!thorough || p99 < READ_MAX, "the honest client's reads took {p99:?}");
    Ok(())
}

/// Does one bad thing after the other with the token of its agent. Returns how many.
async fn villain(address: Address, token: Arc<str>, mut rng: Rng, stop: Arc<AtomicBool>) -> u64 {
    let mut attempts = 0;
    while !stop.load(Ordering::Relaxed) {
        attempts += 1;
        let message = crime(&mut rng);
        // What becomes of it does not matter, nor whether the server still listens.
        let tried = post(&address, &token, &message);
        let _ = tokio::time::timeout(Duration::from_secs(2), tried).await;
    }
    attempts
}

/// A message that nobody honest sends.
fn crime(rng: &mut Rng) -> String {
    let one = |method: &str, params: Value| request(1, method, &params);
    let worker = henchman(rng.u8(IDLERS..HENCHMEN));
    let work = |content: &str| json!({"agent_id": worker, "content": content, "timeout_ms": 5_000});
    match rng.u8(..11) {
        // More children than anybody needs.
        0 | 1 => batch((0..100).map(|_| ("create_agent", json!({"parent_agent_id": VILLAIN})))),
        // The line of turns, full.
        2 => batch((0..100).map(|number| {
            ("send", json!({"agent_id": henchman(number % IDLERS), "content": "hang"}))
        })),
        // A small question with a huge answer.
        3 => batch((0..100).map(|_| ("get_messages", json!({"agent_id": worker, "limit": 1000})))),
        4 => one("send", work("endless")),
        5 => one("send", work("many")),
        6 => one("send", work("outline")),
        7 => one("send", work("patch")),
        8 => one("set_model", json!({"agent_id": worker, "model": "local//etc/passwd"})),
        9 => one("send", json!({"agent_id": HONEST, "content": "obey"})),
        _ => one("list_agents", json!({})),
    }
}

fn batch(calls: impl Iterator<Item = (&'static str, Value)>) -> String {
    let calls: Vec<_> = calls
        .enumerate()
        .map(|(id, (method, params))| request(id as u64, method, &params))
        .collect();
    format!("[{}]", calls.join(","))
}

async fn post(address: &Address, token: &str, message: &str) -> anyhow::Result<()> {
    let mut connection = TcpStream::connect(address.http).await?;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        address.http,
        message.len()
    );
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(message.as_bytes()).await?;
    let mut rest = vec![0; 64 * 1024];
    while connection.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Opens connections and says nothing, and opens others when those are closed. Returns how many.
async fn strangers(address: Address, stop: Arc<AtomicBool>) -> u64 {
    let (mut open, mut opened) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        if open.len() >= STRANGERS {
            open.drain(..STRANGERS / 2);
        }
        match TcpStream::connect(address.http).await {
            Ok(connection) => {
                opened += 1;
                open.push(connection);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        if u64::is_multiple_of(opened, 50) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    opened
}

/// The model: honest to the honest, and otherwise what the last word of its user asks for.
fn script(request: &Value) -> Reply {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    // A tool's answer ends the turn.
    if messages.last().is_some_and(|message| message["role"] == "tool") {
        return Reply::text("enough");
    }
    match last_user_text(request).unwrap_or_default() {
        "hello" => Reply::text("well"),
        "hang" => Reply::hang(),
        "endless" => Reply::chunks(std::iter::repeat_n("x".repeat(64 * 1024), 2_000)),
        "many" => (0..3_000).fold(Reply::text(""), |reply, _| {
            reply.then_tool_call("read_file", json!({"path": "long.txt"}))
        }),
        "outline" => Reply::tool_call("outline", json!({"path": "deep.java"})),
        "patch" => Reply::tool_call("patch", json!({"diff": bad_diff()})),
        _ => turn::script(request),
    }
}

/// Hunks that fit nowhere in a long file.
fn bad_diff() -> String {
    let hunk = "@@ -1,3 +1,3 @@\n a\n-b\n+c\n a\n";
    format!("--- a/long.txt\n+++ b/long.txt\n{}", hunk.repeat(6_000))
}
