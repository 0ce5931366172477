//! `nexus3 mcp add` and `remove`: entries of `mcp.json` in the home.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use nexus_config::check_servers;
use nexus_core::mcp::server_name;
use serde_json::{Map, Value, json};

#[derive(Args)]
pub struct AddArgs {
    /// Name of the server: a-z, 0-9 and '-', at most 24
    pub name: String,
    /// Address of a server that somebody else runs: https://, or http:// on this machine
    #[arg(required_unless_present = "command", conflicts_with_all = ["command", "env", "read", "write", "no_network"])]
    url: Option<String>,
    /// A header that a server with an address is told, as NAME=VALUE; may be given several times. Let a value that is a
    /// secret be '${VARIABLE}', which is looked up when the server is used
    #[arg(long = "header", value_name = "NAME=VALUE", conflicts_with = "command")]
    headers: Vec<String>,
    /// Let a server with an address be in a network that is not the world's
    #[arg(long, conflicts_with = "command")]
    private: bool,
    /// A variable that it is given, as NAME=VALUE; may be given several times. Other users see a command line: let a value
    /// that is a secret be '${VARIABLE}', which is looked up when the server starts
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A directory or file that it may read, beside its program and its own directory
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// A directory or file that it may write
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Let it have no network
    #[arg(long)]
    no_network: bool,
    /// The program and its arguments, behind --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl AddArgs {
    fn entry(&self) -> anyhow::Result<Value> {
        if let Some(url) = &self.url {
            let mut entry = json!({"url": url});
            put_all(&mut entry, "headers", "--header", &self.headers)?;
            if self.private {
                entry["private"] = json!(true);
            }
            return Ok(entry);
        }
        let [program, arguments @ ..] = self.command.as_slice() else {
            bail!("the program is missing");
        };
        let mut entry = json!({"command": program});
        if !arguments.is_empty() {
            entry["args"] = json!(arguments);
        }
        put_all(&mut entry, "env", "--env", &self.env)?;
        let paths = |paths: &[PathBuf]| -> anyhow::Result<Vec<PathBuf>> {
            let real =
                |path: &PathBuf| path.canonicalize().with_context(|| path.display().to_string());
            paths.iter().map(real).collect()
        };
        let (read, write) = (paths(&self.read)?, paths(&self.write)?);
        if !read.is_empty() {
            entry["sandbox"]["read"] = json!(read);
        }
        if !write.is_empty() {
            entry["sandbox"]["write"] = json!(write);
        }
        if self.no_network {
            entry["sandbox"]["network"] = json!(false);
        }
        Ok(entry)
    }
}

/// Puts what was given as NAME=VALUE under a key of an entry.
fn put_all(entry: &mut Value, key: &str, option: &str, given: &[String]) -> anyhow::Result<()> {
    for pair in given {
        // What stands behind it may be a secret.
        let (name, value) =
            pair.split_once('=').with_context(|| format!("{option} is given as NAME=VALUE"))?;
        entry[key][name] = json!(value);
    }
    Ok(())
}

/// Writes a server down. The name that it has from now on.
pub fn add(home: &Path, args: &AddArgs) -> anyhow::Result<String> {
    let name = server_name(&args.name)
        .with_context(|| format!("{:?} cannot be the name of a server", args.name))?;
    insert(home, &name, args.entry()?)?;
    Ok(name)
}

/// Writes an entry down, unless there is one of its name or it cannot be read.
pub fn insert(home: &Path, name: &str, entry: Value) -> anyhow::Result<()> {
    // What cannot be read would be in the way of every start.
    check(name, &entry)?;
    change(home, |servers| {
        let there = servers.keys().any(|key| server_name(key).as_deref() == Some(name));
        ensure!(!there, "there is a server {name} in mcp.json: nexus3 mcp remove {name}");
        servers.insert(name.to_owned(), entry);
        Ok(())
    })
}

/// Whether an entry can be read.
pub fn check(name: &str, entry: &Value) -> anyhow::Result<()> {
    let user_home = std::env::home_dir();
    let servers = json!({name: entry});
    Ok(check_servers(Path::new("mcp.json"), "servers", servers, user_home.as_deref())?)
}

/// Takes a server out.
pub fn remove(home: &Path, name: &str) -> anyhow::Result<()> {
    change(home, |servers| {
        let before = servers.len();
        servers.retain(|key, _| key != name && server_name(key).as_deref() != Some(name));
        ensure!(
            servers.len() < before,
            "mcp.json in {} has no server {name}; those of config.json and of projects are taken out there",
            home.display()
        );
        Ok(())
    })
}

/// Two commands at once must not lose each other's entry, and a crash must not leave half a file.
fn change(
    home: &Path,
    edit: impl FnOnce(&mut Map<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    let private = |name: &str| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).open(home.join(name))
    };
    let lock = private("mcp.lock")?;
    lock.lock()?;
    let file = home.join("mcp.json");
    let mut value: Value = match fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| file.display().to_string())?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => json!({}),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    let filled = value["mcpServers"].as_object().is_some_and(|servers| !servers.is_empty());
    let key = if filled { "mcpServers" } else { "servers" };
    if value[key].is_null() {
        value[key] = json!({});
    }
    let servers = value[key].as_object_mut();
    edit(servers.with_context(|| format!("{}: {key} is no object", file.display()))?)?;
    let mut new = private("mcp.json.new")?;
    new.write_all(format!("{value:#}\n").as_bytes())?;
    new.sync_all()?;
    fs::rename(home.join("mcp.json.new"), &file)?;
    File::open(home)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AddArgs,
    }

    fn parsed(words: &[&str]) -> AddArgs {
        Line::parse_from(["x"].iter().chain(words)).args
    }

    #[test]
    fn what_is_added_is_there_and_can_be_taken_out() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path();
        let shown = || -> Value {
            serde_json::from_slice(&fs::read(path.join("mcp.json")).unwrap()).unwrap()
        };
        let full = ["Files", "--env", "K=${V}", "--read", "/", "--no-network", "--", "prog", "-a"];
        assert_eq!(add(path, &parsed(&full)).unwrap(), "files");
        let entry = json!({"command": "prog", "args": ["-a"], "env": {"K": "${V}"},
            "sandbox": {"read": ["/"], "network": false}});
        assert_eq!(shown(), json!({"servers": {"files": entry}}));
        let again = add(path, &parsed(&["files", "--", "other"])).unwrap_err().to_string();
        assert!(again.contains("there is a server files"), "{again}");
        assert!(add(path, &parsed(&["x", "--env", "K", "--", "p"])).is_err());
        let remote = ["r", "https://x/mcp", "--header", "Authorization=Bearer ${T}", "--private"];
        add(path, &parsed(&remote)).unwrap();
        let entry = json!({"url": "https://x/mcp", "headers": {"Authorization": "Bearer ${T}"}, "private": true});
        assert_eq!(shown()["servers"]["r"], entry);
        remove(path, "r").unwrap();
        let wrong = add(path, &parsed(&["w", "ftp://x"])).unwrap_err().to_string();
        assert!(wrong.contains("servers.w.url: must begin with https://"), "{wrong}");
        assert_eq!(shown()["servers"]["w"], Value::Null, "nothing was written");
        for words in [
            &["x"][..],
            &["x", "https://x", "--", "p"],
            &["x", "--private", "--", "p"],
            &["x", "https://x", "--env", "A=B"],
        ] {
            assert!(Line::try_parse_from(["y"].iter().chain(words)).is_err(), "{words:?}");
        }
        assert!(add(path, &parsed(&["___", "--", "p"])).is_err());
        assert!(remove(path, "nope").is_err());
        remove(path, "files").unwrap();
        assert_eq!(shown(), json!({"servers": {}}));
    }

    #[test]
    fn the_form_of_another_program_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("mcp.json");
        fs::write(&path, r#"{"mcpServers": {"My One": {"command": "x"}}}"#).unwrap();
        add(home.path(), &parsed(&["b", "--", "y"])).unwrap();
        remove(home.path(), "my-one").unwrap();
        let value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(value["mcpServers"], json!({"b": {"command": "y"}}));
    }
}
