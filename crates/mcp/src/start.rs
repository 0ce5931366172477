//! How a server is started: what is configured, with its variables filled in, as an order to the launcher.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nexus_core::mcp::{Program, Sandbox};
use nexus_core::permission::Reach;
use nexus_tools::environment;
use nexus_tools::sandbox::{Command, Limits, Policy, Stdin};

use crate::ground::Ground;
use crate::seat::{Bounds, Seat, state_dir};
use crate::{program, variables};

/// Longer than a server lives. It is bounded by who uses it, not by what it has done.
const PROCESSOR_TIME: Duration = Duration::from_secs(u32::MAX as u64);

/// The order, or what is missing. Touches the disk.
pub fn command(
    name: &str,
    entry: &Program,
    ground: &Ground,
    seat: Option<&Seat>,
) -> Result<Command, String> {
    let bounds = seat.map(Seat::hold);
    let own = own_directory(seat.map_or(name, |seat| &seat.dir), ground)?;
    let cwd = match &entry.cwd {
        Some(cwd) => real("cwd", cwd)?,
        None => own.clone(),
    };
    if let Some(bounds) = &bounds
        && entry.cwd.is_some()
        && !bounds.reads(&cwd)
    {
        return Err(format!("cwd: {} lies outside what its agent may read", cwd.display()));
    }
    let env = env(entry, ground, &own)?;
    let argv = argv(entry, ground)?;
    let [first, arguments @ ..] = argv.as_slice() else {
        return Err("no program is named".into());
    };
    let path = env.get("PATH").map_or("", String::as_str);
    let program = program::find(first, &cwd, path)?;
    let read = real_all("sandbox.read", &entry.sandbox.read)?;
    let interpreter = program::interpreter(&program, path);
    let homes = homes(ground);
    let loaded = [Some(&program), interpreter.as_ref()].into_iter().flatten();
    let trees = loaded.flat_map(|file| program::trees(file, &homes));
    let write = real_all("sandbox.write", &entry.sandbox.write)?;
    let (read, write, network) = met(read, write, entry.sandbox.network, bounds.as_ref());
    let blocked = bounds.into_iter().flat_map(|it| it.blocked).chain([ground.home.clone()]);
    let policy = Policy {
        read: read.into_iter().chain(trees).chain([cwd.clone()]).collect(),
        write,
        blocked: blocked.collect(),
        own: BTreeSet::from([own]),
        programs: None,
        network,
        required: entry.sandbox.required,
    };
    let program = program.into_os_string().into_string();
    let program = program.map_err(|_| "the path of its program is no text".to_owned())?;
    Ok(Command {
        argv: [program].into_iter().chain(arguments.iter().cloned()).collect(),
        cwd,
        env,
        stdin: Stdin::Live,
        policy: Some(policy),
        tmp: None,
        limits: Limits { processor_time: PROCESSOR_TIME, ..ground.limits },
        timeout: Duration::MAX,
    })
}

/// What is left of what an entry lets a server do, where it may do no more than its agent.
fn met(
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
    network: bool,
    bounds: Option<&Bounds>,
) -> (BTreeSet<PathBuf>, BTreeSet<PathBuf>, bool) {
    let Some(bounds) = bounds else { return (read, write, network) };
    let met = |paths: BTreeSet<PathBuf>, reach: &Reach| match Reach::Beneath(paths).meet(reach) {
        Reach::Beneath(roots) => roots,
        Reach::Anywhere => BTreeSet::new(),
    };
    (met(read, &bounds.read), met(write, &bounds.write), network && bounds.network)
}

/// What holds a server, in words.
pub fn sandbox(entry: &Program, ground: &Ground, bounds: Option<&Bounds>) -> String {
    let list = |paths: &BTreeSet<PathBuf>| {
        let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
        if paths.is_empty() { "nothing else".to_owned() } else { paths.join(", ") }
    };
    let Sandbox { read, write, network, required } = entry.sandbox.clone();
    let (read, write, network) = met(read, write, network, bounds);
    let network = if network { "network" } else { "no network" };
    let required = if required { "required" } else { "as far as the kernel can" };
    let (read, write) = (list(&read), list(&write));
    format!(
        "{}, {required}; beside its program and its directories reads {read}, writes {write}; {network}",
        ground.strength
    )
}

/// The directory that is the server's own: its `HOME` and its `TMPDIR`.
fn own_directory(name: &str, ground: &Ground) -> Result<PathBuf, String> {
    let own = state_dir(&ground.home).join(name);
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&own);
    made.and_then(|()| own.canonicalize()).map_err(|error| format!("{}: {error}", own.display()))
}

/// Never inside the tree of a program: this program's home, and the user's.
fn homes(ground: &Ground) -> Vec<PathBuf> {
    let user = ground.variables.get("HOME").and_then(|home| Path::new(home).canonicalize().ok());
    [ground.home.clone()].into_iter().chain(user).collect()
}

fn env(entry: &Program, ground: &Ground, own: &Path) -> Result<BTreeMap<String, String>, String> {
    let own = own.to_str().ok_or("the path of its directory is no text")?;
    let mut env = environment::cleaned(ground.variables.clone());
    for name in ["HOME", "TMPDIR"] {
        env.insert(name.into(), own.into());
    }
    for name in &entry.env_passthrough {
        let value = ground.variables.get(name);
        let value =
            value.ok_or_else(|| format!("env_passthrough: the environment has no {name}"))?;
        env.insert(name.clone(), value.clone());
    }
    for (name, value) in &entry.env {
        let value = variables::fill(value, &ground.variables);
        env.insert(name.clone(), value.map_err(|why| format!("env.{name}: {why}"))?);
    }
    Ok(env)
}

fn argv(entry: &Program, ground: &Ground) -> Result<Vec<String>, String> {
    let fill = |word: &String| variables::fill(word, &ground.variables);
    let filled: Result<_, _> = entry.argv.iter().map(fill).collect();
    filled.map_err(|why| format!("args: {why}"))
}

fn real_all(key: &str, paths: &BTreeSet<PathBuf>) -> Result<BTreeSet<PathBuf>, String> {
    paths.iter().map(|path| real(key, path)).collect()
}

/// Where a path leads: a rule on a link would be a rule on nothing.
fn real(key: &str, path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("{key}: {}: {error}", path.display()))
}
