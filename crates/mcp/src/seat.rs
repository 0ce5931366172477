//! A process of one agent alone: what it may do at most, and the directory that is its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use nexus_core::permission::{Permissions, Reach};

use crate::lock;

/// Processes at once that are one agent's each. As many servers there are in a configuration, and so as many processes that
/// all agents share.
pub const OWN_PROCESSES_MAX: usize = 64;

pub struct Seat {
    /// Of its directory, which ends with it.
    pub dir: String,
    /// What its agent may do, as far as is known.
    wanted: Mutex<Bounds>,
    /// What the process was started with.
    held: Mutex<Option<Bounds>>,
}

/// What a process may do that is held to what its agent may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub read: Reach,
    pub write: Reach,
    pub blocked: BTreeSet<PathBuf>,
    pub network: bool,
}

impl Bounds {
    pub fn of(permissions: &Permissions) -> Self {
        let Permissions { read, write, blocked, network, .. } = permissions;
        // What may be written may be read.
        let read = match write {
            Reach::Anywhere => Reach::Anywhere,
            Reach::Beneath(roots) => read.with(roots.iter().cloned()),
        };
        Self { read, write: write.clone(), blocked: blocked.clone(), network: *network }
    }

    pub fn within(&self, other: &Self) -> bool {
        self.read.within(&other.read)
            && self.write.within(&other.write)
            && self.blocked.is_superset(&other.blocked)
            && (other.network || !self.network)
    }

    pub fn reads(&self, path: &Path) -> bool {
        self.read.contains(path) && !self.blocked.iter().any(|it| path.starts_with(it))
    }
}

impl Seat {
    pub fn new(server: &str, permissions: &Permissions) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            dir: format!("{server}.{}-{number}", std::process::id()),
            wanted: Mutex::new(Bounds::of(permissions)),
            held: Mutex::default(),
        }
    }

    /// Notes what the agent may do now. False when the process was started with more.
    pub fn bind(&self, permissions: &Permissions) -> bool {
        *lock(&self.wanted) = Bounds::of(permissions);
        self.is_bound()
    }

    /// Whether the process, if there is one, may do no more than the agent.
    pub fn is_bound(&self) -> bool {
        let wanted = lock(&self.wanted).clone();
        lock(&self.held).as_ref().is_none_or(|held| held.within(&wanted))
    }

    /// What a process that is started now may do.
    pub fn hold(&self) -> Bounds {
        let wanted = lock(&self.wanted).clone();
        *lock(&self.held) = Some(wanted.clone());
        wanted
    }

    pub fn bounds(&self) -> Bounds {
        lock(&self.held).clone().unwrap_or_else(|| lock(&self.wanted).clone())
    }
}

/// Where servers have directories of their own.
pub fn state_dir(home: &Path) -> PathBuf {
    home.join("mcp").join("state")
}

/// Removes directories that processes of this program left behind which are not there any more. Touches the disk.
pub fn sweep(home: &Path) {
    let Ok(found) = fs::read_dir(state_dir(home)) else { return };
    for entry in found.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|it| it.split_once('.')).and_then(|(_, of)| {
            let (pid, _) = of.split_once('-')?;
            pid.parse::<u32>().ok()
        });
        if owner.is_some_and(is_gone) {
            // What cannot be removed is looked at again with the next start.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a process is not there any more. One that has ended and is still listed has no program.
pub fn is_gone(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_err()
}

#[cfg(test)]
mod tests {
    use nexus_core::permission::Preset;

    use super::*;

    fn permissions(preset: &str, cwd: &str) -> Permissions {
        Preset::built_in(preset).unwrap().apply(Path::new(cwd), &[])
    }

    #[test]
    fn a_process_never_may_more_than_its_agent() {
        let trusted = permissions("trusted", "/w");
        let seat = Seat::new("s", &trusted);
        assert!(seat.is_bound(), "there is none yet");
        let held = seat.hold();
        assert!(held.reads(Path::new("/etc")) && held.network);
        assert!(seat.bind(&trusted) && seat.bind(&permissions("yolo", "/w")), "more is no matter");
        assert!(!seat.bind(&permissions("sandboxed", "/w")), "it was started with more");
        let mut blocked = trusted.clone();
        blocked.blocked.insert("/w/secret".into());
        assert!(!seat.bind(&blocked));
        seat.hold();
        assert!(seat.is_bound() && !seat.bounds().reads(Path::new("/w/secret/x")));
    }

    #[test]
    fn what_dead_processes_left_is_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let state = state_dir(home.path());
        let own = Seat::new("s", &permissions("trusted", "/w")).dir;
        for name in ["s", "s.4294967295-1", own.as_str(), "s.x-1", "s.1"] {
            fs::create_dir_all(state.join(name).join("deep")).unwrap();
        }
        sweep(home.path());
        let mut left: Vec<_> =
            fs::read_dir(&state).unwrap().flatten().map(|it| it.file_name()).collect();
        left.sort();
        let mut expected = [own.as_str(), "s", "s.1", "s.x-1"];
        expected.sort();
        assert_eq!(left, expected);
    }
}
