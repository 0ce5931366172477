//! Agents that an editor has opened and said nothing to. They end with the editor. A `nexus3 acp` that is killed cannot
//! see to that, so it writes down which they are, in a file that it has locked for as long as it lives; whoever has the home
//! open ends those of files that nobody holds any more.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::Requester;
use nexus_doors::acp::Unused;
use nexus_protocol::Api as _;
use nexus_server::{DirectAgentApi, Dispatcher};
use rustix::fs::{FlockOperation, OFlags, flock};

/// In the home.
const DIR: &str = "acp";

/// Longest that is read of a file: more names than an editor can have sessions.
const BYTES_MAX: u64 = 1 << 20;

/// Between two looks for files that nobody holds.
const PAUSE: Duration = Duration::from_secs(5);

/// The agents of this process to which nothing was said yet.
pub struct Marks {
    path: PathBuf,
    held: Mutex<Held>,
}

struct Held {
    /// Locked.
    file: File,
    agents: BTreeSet<String>,
}

impl Marks {
    pub fn open(home: &Path) -> io::Result<Self> {
        let dir = home.join(DIR);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        loop {
            let now = Timestamp::now().as_nanosecond();
            let path = dir.join(format!("{}-{now}", std::process::id()));
            let mut options = File::options();
            options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // Somebody may have found it before it was locked, and taken it for one that nobody holds.
            if file.metadata()?.nlink() > 0 {
                let held = Mutex::new(Held { file, agents: BTreeSet::new() });
                return Ok(Self { path, held });
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>)) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut held.agents);
        if let Err(error) = write(&held.file, &held.agents) {
            tracing::warn!(%error, "the agents that nothing was said to are not written down");
        }
    }
}

impl Unused for Marks {
    fn note(&self, agent: &str) {
        self.change(|agents| {
            agents.insert(agent.to_owned());
        });
    }

    fn forget(&self, agent: &str) {
        self.change(|agents| {
            agents.remove(agent);
        });
    }
}

/// Those that could not be ended are left to others.
impl Drop for Marks {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        if held.agents.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Killed in between, there are too many names in it and never too few.
fn write(file: &File, agents: &BTreeSet<String>) -> io::Result<()> {
    let text: String = agents.iter().map(|agent| format!("{agent}\n")).collect();
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Ends what killed processes left behind, for as long as there is an engine.
pub async fn clear(home: PathBuf, dispatcher: Weak<Dispatcher>) {
    let dir = home.join(DIR);
    loop {
        let looked_at = dir.clone();
        let left = tokio::task::spawn_blocking(move || left_behind(&looked_at)).await;
        for (path, file, agents) in left.unwrap_or_default() {
            let Some(dispatcher) = dispatcher.upgrade() else { return };
            let api = DirectAgentApi::new(dispatcher, Requester::Administrator);
            let mut still = BTreeSet::new();
            for agent in agents {
                if !is_ended(&api, &agent).await {
                    still.insert(agent);
                }
            }
            let kept = match still.is_empty() {
                true => fs::remove_file(&path),
                false => write(&file, &still),
            };
            if let Err(error) = kept {
                tracing::warn!(%error, path = %path.display(), "what an editor left is not forgotten");
            }
        }
        tokio::time::sleep(PAUSE).await;
        if dispatcher.strong_count() == 0 {
            return;
        }
    }
}

/// Files that nobody holds but the caller, with what stands in them.
fn left_behind(dir: &Path) -> Vec<(PathBuf, File, BTreeSet<String>)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let taken = |path: PathBuf| {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = File::options().read(true).write(true).custom_flags(flags).open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let mut text = String::new();
        (&file).take(BYTES_MAX).read_to_string(&mut text).ok()?;
        let agents = text.lines().map(str::to_owned).collect();
        Some((path, file, agents))
    };
    entries.flatten().filter_map(|entry| taken(entry.path())).collect()
}

/// Ends an agent that nobody has used. False where it may have to be tried again.
async fn is_ended(api: &DirectAgentApi, id: &str) -> bool {
    let Ok(listed) = api.list_agents().await else { return false };
    let Some(agent) = listed.agents.iter().find(|agent| agent.agent_id == id) else { return true };
    let is_used = agent.message_count > 0
        || agent.child_count > 0
        || agent.queued > 0
        || agent.running_request_id.is_some();
    is_used || api.destroy_agent(id).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(home: &Path) -> Vec<String> {
        left_behind(&home.join(DIR)).into_iter().flat_map(|(_, _, agents)| agents).collect()
    }

    #[test]
    fn what_is_held_is_nobody_elses() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(left(home.path()), [""; 0]);
        let (one, other) = (Marks::open(home.path()).unwrap(), Marks::open(home.path()).unwrap());
        for agent in ["a", "b", "c"] {
            one.note(agent);
        }
        one.forget("b");
        other.note("d");
        assert_eq!(left(home.path()), [""; 0]);
        // Killed: the lock is gone, and the file is not.
        let path = one.path.clone();
        drop(one);
        assert_eq!(left(home.path()), ["a", "c"]);
        assert!(path.exists());
        other.forget("d");
        drop(other);
        assert_eq!(fs::read_dir(home.path().join(DIR)).unwrap().count(), 1);
    }
}
