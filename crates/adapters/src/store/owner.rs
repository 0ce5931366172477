//! Who holds an agent's lease, and whether that process still lives.
//!
//! Each open store is an owner with a file `owners/<id>` that it keeps locked. The operating system frees the lock when
//! the process ends, however it ends, so a dead owner is known at once and without a clock. The files are never
//! flushed: after a power cut nobody lives, and a missing file says so.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// This process as an owner of agents.
pub(super) struct Owner {
    directory: PathBuf,
    /// Made with the first lease: a process that only lists agents never needs one.
    claim: Option<Claim>,
}

struct Claim {
    id: String,
    path: PathBuf,
    /// Holds the lock for as long as it is open.
    _locked: File,
}

/// Who a stored owner is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Me,
    Dead,
    /// Another process, in words for people.
    Living(String),
}

/// What an owner file says. Only for people: that the owner lives is said by the lock.
#[derive(Serialize, Deserialize)]
struct Note {
    pid: u32,
    started_at: String,
}

impl Owner {
    pub(super) fn new(home: &Path) -> Self {
        Self { directory: home.join("owners"), claim: None }
    }

    /// The id under which leases are taken, claimed at the first call.
    pub(super) fn id(&mut self) -> io::Result<&str> {
        let claim = match self.claim.take() {
            Some(claim) => claim,
            None => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
                sweep(&self.directory)?;
                Claim::make(&self.directory)?
            }
        };
        Ok(&self.claim.insert(claim).id)
    }

    /// The id, where one was claimed.
    pub(super) fn claimed_id(&self) -> Option<&str> {
        self.claim.as_ref().map(|claim| claim.id.as_str())
    }

    pub(super) fn holder(&self, id: &str) -> Holder {
        if self.claimed_id() == Some(id) { Holder::Me } else { probe(&self.directory.join(id)) }
    }

    /// Ends the claim. To be called once no lease names it any more.
    pub(super) fn retire(&mut self) {
        if let Some(claim) = self.claim.take()
            && let Err(error) = fs::remove_file(&claim.path)
        {
            // The next process sweeps it: its lock is free.
            tracing::debug!(%error, path = %claim.path.display(), "owner file not removed");
        }
    }
}

impl Claim {
    fn make(directory: &Path) -> io::Result<Self> {
        loop {
            let id = random_hex();
            let path = directory.join(&id);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            if !lock(&file)? {
                continue;
            }
            let note = Note { pid: std::process::id(), started_at: Timestamp::now().to_string() };
            file.write_all(&serde_json::to_vec(&note)?)?;
            return Ok(Self { id, path, _locked: file });
        }
    }
}

/// Locks a file that was just made. Between the two another process may have taken it for a dead owner's and swept it
/// away; then the lock is refused or the file has no name left, and the answer is no.
fn lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(file.metadata()?.nlink() > 0),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the files of owners that ended without `retire`.
fn sweep(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        probe(&entry?.path());
    }
    Ok(())
}

/// Finds out whether the owner of a file lives, and removes the file when not. What cannot be found out counts as
/// living: a lease wrongly refused is an answer, a lease wrongly taken is two owners.
fn probe(path: &Path) -> Holder {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Holder::Dead,
        Err(_) => return Holder::Living("another process".into()),
    };
    // Shared, so that two processes that ask at the same time do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => {
            // While the lock is held: a claim in the making must see that its file is gone.
            fs::remove_file(path).ok();
            Holder::Dead
        }
        Err(_) => Holder::Living(describe(&file)),
    }
}

fn describe(file: &File) -> String {
    match serde_json::from_reader::<_, Note>(file) {
        Ok(note) => format!("process {}", note.pid),
        Err(_) => "another process".into(),
    }
}

/// 64 bits that no other process has drawn: the standard library seeds its hashers from the operating system.
pub(super) fn random_hex() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_owner_is_named_and_a_dead_one_is_swept() {
        let home = tempfile::tempdir().unwrap();
        let (mut a, b) = (Owner::new(home.path()), Owner::new(home.path()));
        let id = a.id().unwrap().to_owned();
        assert_eq!(a.holder(&id), Holder::Me);
        assert_eq!(b.holder(&id), Holder::Living(format!("process {}", std::process::id())));
        let file = home.path().join("owners").join(&id);
        assert!(file.exists());
        drop(a);
        let mut c = Owner::new(home.path());
        c.id().unwrap();
        assert!(!file.exists());
        assert_eq!(b.holder(&id), Holder::Dead);
    }

    #[test]
    fn a_retired_owner_leaves_no_file() {
        let home = tempfile::tempdir().unwrap();
        let mut owner = Owner::new(home.path());
        let id = owner.id().unwrap().to_owned();
        assert_eq!(owner.id().unwrap(), id);
        owner.retire();
        assert_eq!(owner.claimed_id(), None);
        assert_eq!(fs::read_dir(home.path().join("owners")).unwrap().count(), 0);
        assert_eq!(owner.holder(&id), Holder::Dead);
    }

    #[test]
    fn a_file_that_is_swept_before_it_is_locked_is_no_claim() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("owner");
        let made = File::create(&path).unwrap();
        let sweeping = File::open(&path).unwrap();
        sweeping.lock_shared().unwrap();
        assert!(!lock(&made).unwrap());
        drop(sweeping);
        sweep(home.path()).unwrap();
        assert!(!lock(&made).unwrap());
        assert!(lock(&File::create(&path).unwrap()).unwrap());
    }
}
