//! How a server is started: what is configured, with its variables filled in, as an order to the launcher.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nexus_core::mcp::Program;
use nexus_tools::environment;
use nexus_tools::sandbox::{Command, Limits, Policy, Stdin};

use crate::ground::Ground;
use crate::{program, variables};

/// Longer than a server lives. It is bounded by who uses it, not by what it has done.
const PROCESSOR_TIME: Duration = Duration::from_secs(u32::MAX as u64);

/// The order, or what is missing. Touches the disk.
pub fn command(name: &str, entry: &Program, ground: &Ground) -> Result<Command, String> {
    let own = own_directory(name, ground)?;
    let cwd = match &entry.cwd {
        Some(cwd) => real("cwd", cwd)?,
        None => own.clone(),
    };
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
    let policy = Policy {
        read: read.into_iter().chain(trees).chain([cwd.clone()]).collect(),
        write: real_all("sandbox.write", &entry.sandbox.write)?,
        blocked: BTreeSet::from([ground.home.clone()]),
        own: BTreeSet::from([own]),
        programs: None,
        network: entry.sandbox.network,
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

/// What holds a server, in words.
pub fn sandbox(entry: &Program, ground: &Ground) -> String {
    let list = |paths: &BTreeSet<PathBuf>| {
        let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
        if paths.is_empty() { "nothing else".to_owned() } else { paths.join(", ") }
    };
    let network = if entry.sandbox.network { "network" } else { "no network" };
    let required = if entry.sandbox.required { "required" } else { "as far as the kernel can" };
    let (read, write) = (list(&entry.sandbox.read), list(&entry.sandbox.write));
    format!(
        "{}, {required}; beside its program and its directories reads {read}, writes {write}; {network}",
        ground.strength
    )
}

/// The directory that is the server's own: its `HOME` and its `TMPDIR`.
fn own_directory(name: &str, ground: &Ground) -> Result<PathBuf, String> {
    let own = ground.home.join("mcp").join("state").join(name);
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
