//! What nobody hostile may have touched, looked at before and after.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::scene::{BRUTE, LAST, Places, VILLAIN, henchman};
use crate::rpc::Caller;

/// How long processes may take to be gone when their server is.
const ENDING_MAX: Duration = Duration::from_secs(20);

pub struct Borders {
    outside: BTreeMap<PathBuf, Entry>,
    blocked: BTreeMap<PathBuf, Entry>,
    config: Vec<u8>,
    permissions: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    Link(PathBuf),
    File(Vec<u8>),
}

impl Borders {
    pub async fn look(places: &Places, caller: &mut Caller) -> anyhow::Result<Self> {
        Ok(Self {
            outside: tree(&places.outside)?,
            blocked: tree(&places.blocked())?,
            config: fs::read(places.home.join("config.json"))?,
            permissions: permissions(caller).await?,
        })
    }

    /// Whether all is as it was, by a server that still runs.
    pub async fn check(&self, places: &Places, caller: &mut Caller) -> anyhow::Result<()> {
        ensure!(tree(&places.outside)? == self.outside, "what lies outside was changed");
        ensure!(tree(&places.blocked())? == self.blocked, "what is blocked was changed");
        ensure!(
            fs::read(places.home.join("config.json"))? == self.config,
            "the configuration was changed"
        );
        let now = permissions(caller).await?;
        ensure!(now == self.permissions, "permissions were {:?} and are {now:?}", self.permissions);
        for directory in directories(&places.crew)? {
            let is_trap =
                ["HEAD", "objects", "refs"].iter().all(|name| directory.join(name).exists());
            // The repository that was there from the start.
            let is_own = directory == places.repository().join(".git");
            ensure!(!is_trap || is_own, "{} is a repository", directory.display());
        }
        Ok(())
    }
}

/// What the server left when it was gone: its log without a panic, no log that steers a terminal, and no process.
pub async fn check_remains(places: &Places, log: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(log)?;
    ensure!(!text.contains("panicked"), "something panicked, see server.log");
    let mut logs: Vec<_> = directories(&places.logs)?;
    logs.push(places.logs.clone());
    let files =
        logs.iter().map(|directory| files(directory)).collect::<anyhow::Result<Vec<_>>>()?;
    for path in files.into_iter().flatten().chain([log.to_owned()]) {
        let text = fs::read(&path)?;
        let text = String::from_utf8_lossy(&text);
        let steering = text.chars().find(|char| char.is_control() && !['\n', '\t'].contains(char));
        ensure!(steering.is_none(), "{} holds {steering:?}", path.display());
    }
    let started = Instant::now();
    while let Some(process) = left_behind(places)? {
        ensure!(started.elapsed() < ENDING_MAX, "a process was left behind: {process}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn permissions(caller: &mut Caller) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for agent in [VILLAIN.to_owned(), BRUTE.to_owned(), henchman(0), henchman(LAST)] {
        all.push(caller.ok("get_permissions", &json!({"agent_id": agent})).await?);
    }
    Ok(all)
}

fn tree(root: &Path) -> anyhow::Result<BTreeMap<PathBuf, Entry>> {
    let mut found = BTreeMap::from([(root.to_owned(), Entry::Directory)]);
    for directory in directories(root)?.into_iter().chain([root.to_owned()]) {
        for path in entries(&directory)? {
            let kind = path.symlink_metadata()?;
            let entry = if kind.is_symlink() {
                Entry::Link(fs::read_link(&path)?)
            } else if kind.is_dir() {
                Entry::Directory
            } else {
                Entry::File(fs::read(&path)?)
            };
            found.insert(path, entry);
        }
    }
    Ok(found)
}

/// All directories beneath this one; links are not followed.
fn directories(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut found, mut next) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = next.pop() {
        for path in entries(&directory)? {
            if path.symlink_metadata()?.is_dir() {
                next.push(path.clone());
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = entries(directory)?;
    found.retain(|path| path.symlink_metadata().is_ok_and(|it| it.is_file()));
    Ok(found)
}

fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    read.map(|entry| Ok(entry?.path())).collect()
}

/// A process of a hostile command, or of a hostile server of tools.
fn left_behind(places: &Places) -> anyhow::Result<Option<String>> {
    for process in entries(Path::new("/proc"))? {
        // It may end while it is looked at.
        let command = fs::read(process.join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).split('\0').any(|word| word == places.sleep) {
            return Ok(Some(process.display().to_string()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_done_outside_shows() {
        let check = |change: &dyn Fn(&Path)| {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("nested")).unwrap();
            fs::write(dir.path().join("nested/a"), "a").unwrap();
            let before = tree(dir.path()).unwrap();
            assert_eq!(before, tree(dir.path()).unwrap());
            change(&dir.path().join("nested"));
            assert_ne!(before, tree(dir.path()).unwrap());
        };
        check(&|nested| fs::write(nested.join("a"), "b").unwrap());
        check(&|nested| fs::write(nested.join("b"), "").unwrap());
        check(&|nested| fs::remove_file(nested.join("a")).unwrap());
        check(&|nested| fs::rename(nested, nested.with_extension("old")).unwrap());
        check(&|nested| std::os::unix::fs::symlink("a", nested.join("b")).unwrap());
    }
}
