//! Hostile agents with tokens of their own, a hostile model, a hostile server of tools, strangers without a token, all at
//! once, beside honest clients of the same server. The honest ones are served: every read and every turn that they ask
//! for; the server stays small; and nothing outside of a hostile agent's borders is read or written.

mod borders;
mod canary;
mod crimes;
mod honest;
pub mod hostile_mcp;
mod model;
mod scene;
mod strangers;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use self::borders::{Borders, check_remains};
use self::canary::{BLOCKED, Canaries, LISTED, OUTSIDE, PAST};
use self::honest::{Honest, Served, Way};
use self::scene::{BRUTE, HONEST, LAST, NEIGHBOUR, Places, Scene, VILLAIN, henchman};
use crate::fault::Fault;
use crate::place::{Place, Server};
use crate::report::Tally;
use crate::rpc::Caller;

/// The most the server may ever have had in memory.
const MEMORY_MIB_MAX: u64 = 1024;

/// What an honest client's reads may take, of which one in a hundred may take longer. Judged in a thorough run only: a
/// short one shares the machine with other tests.
const READ_MAX: Duration = Duration::from_millis(50);

/// Hostile callers at once.
const VILLAINS: usize = 8;

/// How long a run is for each round.
const ROUND: Duration = Duration::from_millis(1_500);

/// Whom nobody serves for so long beyond a run's length is not slow but starved.
const STARVED: Duration = Duration::from_secs(180);

/// How long the brute may wait for leave, which it is given at once.
const LEAVE_MAX: Duration = Duration::from_secs(60);

/// Of a hostile agent that may do more than others, and so must be kept from more.
const FENCED: &str = "fenced";

pub async fn run(place: &Place, seed: u64, rounds: u64, thorough: bool) -> anyhow::Result<Tally> {
    let places = prepare(place)?;
    let server = place.start("server", Fault::None).await?;
    let places = Arc::new(Places { token_file: token_file(&places.home)?, ..places });
    let canaries = Arc::new(Canaries::default());
    canaries.add_token(&server.address.token);
    let (script, shown) = (places.clone(), canaries.clone());
    place.model.set_script(move |request| {
        shown.look_at_request(request);
        model::script(request, &script)
    });
    let mut caller = server.caller();
    make_agents(&mut caller, &places, &place.work()).await?;
    let mut tokens = Vec::new();
    for agent in [VILLAIN, BRUTE, NEIGHBOUR] {
        let made = caller.ok("create_agent_token", &json!({"agent_id": agent})).await?;
        tokens.push(made["token"].as_str().context("a token")?.to_owned());
    }
    let [villain, brute, neighbour] = &tokens[..] else { bail!("no tokens") };
    give_leave(&server).await?;
    let borders = Borders::look(&places, &mut caller).await?;
    let scene = Scene {
        address: server.address.clone(),
        villain: villain.as_str().into(),
        brute: brute.as_str().into(),
        canaries: canaries.clone(),
    };
    let http = |token: &str| Way::Http(server.address.clone(), token.to_owned());
    let honest = [
        Honest { name: "socket", way: Way::Socket(server.caller()), agent: HONEST },
        Honest { name: "http", way: http(&server.address.token), agent: HONEST },
        Honest { name: "neighbour", way: http(neighbour), agent: NEIGHBOUR },
    ];
    let (served, attempts) = attack(scene, honest, seed, ROUND * u32::try_from(rounds)?).await?;
    judge(&server, &served, thorough)?;
    try_all(&mut caller).await?;
    canaries.check()?;
    borders.check(&places, &mut caller).await?;
    server.kill().await?;
    check_remains(&places, &place.path("server.log")).await?;
    Ok(Tally {
        acknowledged: served.iter().map(|it| it.reads.len() as u64 + it.turns).sum(),
        dropped: attempts,
        ..Tally::default()
    })
}

/// All at once. Returns how the honest were served, and how many times the others tried.
async fn attack(
    scene: Scene,
    [mut first, mut second, mut third]: [Honest; 3],
    seed: u64,
    length: Duration,
) -> anyhow::Result<([Served; 3], u64)> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = || {
        let stop = stop.clone();
        move || stop.load(Ordering::Relaxed)
    };
    let mut hostile = vec![tokio::spawn(strangers::crowd(scene.address.clone(), stopped()))];
    for number in 0..VILLAINS {
        let rng = Rng::with_seed(seed.wrapping_add(number as u64));
        hostile.push(tokio::spawn(crimes::commit(scene.clone(), number, rng, stopped())));
    }
    let served =
        async { tokio::try_join!(first.live(length), second.live(length), third.live(length)) };
    let served = tokio::time::timeout(length + STARVED, served).await;
    stop.store(true, Ordering::Relaxed);
    let mut attempts = 0;
    for one in hostile {
        attempts += one.await?;
    }
    let (first, second, third) = served.context("an honest client starves")??;
    Ok(([first, second, third], attempts))
}

/// What leads out, once more and to its end: a short attack may have had no time for it.
async fn try_all(caller: &mut Caller) -> anyhow::Result<()> {
    let last = henchman(LAST);
    let last = last.as_str();
    for (agent, content) in [(last, "flee"), (last, "tool"), (last, "trap w"), (BRUTE, "pry")] {
        let said = caller.ok("send", &json!({"agent_id": agent, "content": content})).await?;
        ensure!(said["content"] == "enough", "{agent} was told '{content}' and said {said}");
    }
    Ok(())
}

/// What the hostile model's calls need, and what none of them may touch.
fn prepare(place: &Place) -> anyhow::Result<Places> {
    let places = Places {
        outside: place.path("outside").canonicalize()?,
        crew: place.work().canonicalize()?.join("crew"),
        brute: place.work().canonicalize()?.join("brute"),
        home: place.home().canonicalize()?,
        logs: place.path("").canonicalize()?.join("logs"),
        token_file: Default::default(),
        sleep: format!("271.{}", std::process::id()),
    };
    std::fs::write(places.outside.join("secret.txt"), OUTSIDE)?;
    std::fs::write(places.outside.join(LISTED), "")?;
    std::fs::create_dir(&places.crew)?;
    std::fs::create_dir(&places.brute)?;
    std::fs::write(places.crew.join("deep.java"), "A<".repeat(200_000))?;
    std::fs::write(places.crew.join("long.txt"), "a\n".repeat(2_000_000))?;
    symlink(&places.outside, places.crew.join("door"))?;
    symlink(places.outside.join("secret.txt"), places.crew.join("peep.txt"))?;
    // Where the log of an agent named like a directory there would be, if logs were kept with the agent.
    std::fs::create_dir(places.crew.join(".nexus3"))?;
    symlink(place.path("").canonicalize()?, places.crew.join(".nexus3/logs"))?;
    make_repository(&places)?;

    let path = places.home.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let blocked = [&places.outside, &places.blocked()].map(|it| it.display().to_string());
    config["permissions"]["presets"][FENCED] =
        json!({"extends": "trusted", "blocked_paths": blocked});
    config["commands"] = json!({"memory": 256, "processes": 32, "processor_time": 5});
    let program = std::env::current_exe()?;
    config["mcp_servers"][hostile_mcp::NAME] =
        json!({"command": program, "args": [hostile_mcp::ARGUMENT], "timeout": 5});
    std::fs::write(&path, config.to_string())?;
    Ok(places)
}

/// A repository whose past and present have what is blocked.
fn make_repository(places: &Places) -> anyhow::Result<()> {
    let repository = places.repository();
    std::fs::create_dir_all(places.blocked())?;
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=x", "-c", "user.email=x@example.org"]).args(args);
        command.current_dir(&repository).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.env("GIT_CONFIG_NOSYSTEM", "1").output().context("git")?;
        ensure!(output.status.success(), "git {args:?}: {output:?}");
        anyhow::Ok(())
    };
    git(&["init", "--quiet"])?;
    for text in [PAST, BLOCKED] {
        std::fs::write(places.blocked().join("k.txt"), text)?;
        std::fs::write(repository.join("open.txt"), format!("open {}", text.len()))?;
        git(&["add", "."])?;
        git(&["commit", "--quiet", "-m", "x"])?;
    }
    Ok(())
}

fn token_file(home: &Path) -> anyhow::Result<std::path::PathBuf> {
    let files = std::fs::read_dir(home)?.flatten().map(|entry| entry.path());
    let mut tokens = files.filter(|path| path.extension().is_some_and(|it| it == "token"));
    tokens.next().context("the server's token")
}

async fn make_agents(caller: &mut Caller, places: &Places, work: &Path) -> anyhow::Result<()> {
    for (name, preset, cwd) in [
        (HONEST, "trusted", work),
        (NEIGHBOUR, "trusted", work),
        (VILLAIN, FENCED, &*places.crew),
        (BRUTE, FENCED, &*places.brute),
    ] {
        let params = json!({"agent_id": name, "preset": preset, "cwd": cwd});
        caller.ok("create_agent", &params).await?;
    }
    for number in 0..=LAST {
        let params = json!({
            "agent_id": henchman(number), "parent_agent_id": VILLAIN, "cwd": places.crew,
            "allowed_write_paths": [places.crew], "mcp": {hostile_mcp::NAME: ["*"]},
        });
        caller.ok("create_agent", &params).await?;
    }
    Ok(())
}

/// A careless person lets the brute run any command in its directory.
async fn give_leave(server: &Server) -> anyhow::Result<()> {
    let (mut sender, mut person) = (server.caller(), server.caller());
    let params = json!({"agent_id": BRUTE, "content": "hungry 2"});
    let allow = async {
        loop {
            let waiting = person.ok("list_approvals", &json!({"agent_id": BRUTE})).await?;
            if let Some(id) = waiting["approvals"][0]["approval_id"].as_str() {
                let params = json!({"approval_id": id, "decision": "allow_session"});
                return person.ok("respond_approval", &params).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let both = async { tokio::try_join!(sender.ok("send", &params), allow) };
    tokio::time::timeout(LEAVE_MAX, both).await.context("the brute asks for no leave")??;
    Ok(())
}

fn judge(server: &Server, served: &[Served], thorough: bool) -> anyhow::Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.address.pid))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a peak")?;
    let peak_mib = peak.trim().trim_end_matches(" kB").parse::<u64>()? / 1024;
    for Served { name, reads, turns } in served {
        let mut reads = reads.clone();
        reads.sort_unstable();
        let p99 = reads.get(reads.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default();
        eprintln!(
            "abuse: {name}: {} reads, p99 {:.1} ms; {turns} turns; the server {peak_mib} MiB at most",
            reads.len(),
            p99.as_secs_f64() * 1e3,
        );
        ensure!(!thorough || p99 < READ_MAX, "{name}: an honest client's reads took {p99:?}");
    }
    ensure!(peak_mib < MEMORY_MIB_MAX, "the server took {peak_mib} MiB of {MEMORY_MIB_MAX}");
    Ok(())
}
