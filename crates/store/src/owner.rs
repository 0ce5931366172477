//! Who holds an agent's lease, and whether that process still lives.
//!
//! Each open store is an owner with a file `owners/<id>` that it keeps locked. The operating system frees the lock when
//! the process ends, however it ends, so a dead owner is known at once and without a clock. The files are never
//! flushed: after a power cut nobody lives, and a missing file says so.
//!
//! A paused process keeps its lock. It also touches its file again and again; one whose file another process has seen
//! unchanged for `SILENCE_MAX` is revoked: its file is removed, and it counts as dead. When it wakes up it finds the
//! file gone before it writes anything, and all its leases are lost. Whoever revokes does so inside a write transaction,
//! and whoever looks for its file does too, so the two never overlap. See docs/decisions/0015.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::agent::last_fence;
use super::fault::Fault;

/// How long an owner that holds its lock may show no sign of life. Far longer than a busy machine or a write that waits
/// for the disk makes one wait, short enough that a person who paused a server and forgot it gets the agents back.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Signs of life in that time: one or two may come late.
const BEATS: u32 = 6;

/// However impatient a test is, the writer has other things to do.
const BEAT_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// This process as an owner of agents.
pub(super) struct Owner {
    directory: PathBuf,
    /// Made with the first lease: a process that only lists agents never needs one.
    claim: Option<Claim>,
    silence_max: Duration,
    /// The last sign of life of others, and since when it is the last. Measured by this process's own clock, which
    /// stands still while the machine sleeps, and not by comparing two.
    seen: RefCell<HashMap<PathBuf, (SystemTime, Instant)>>,
    void_through: VoidThrough,
}

/// The highest fence that this process may have held under a claim that was taken from it: 0 while none was.
#[derive(Clone, Default)]
pub(super) struct VoidThrough(Arc<AtomicU64>);

impl VoidThrough {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

struct Claim {
    id: String,
    path: PathBuf,
    /// Holds the lock for as long as it is open.
    locked: File,
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
    pub(super) fn new(home: &Path, silence_max: Duration) -> Self {
        Self {
            directory: home.join("owners"),
            claim: None,
            silence_max,
            seen: RefCell::default(),
            void_through: VoidThrough::default(),
        }
    }

    pub(super) fn void_through(&self) -> VoidThrough {
        self.void_through.clone()
    }

    pub(super) fn beat_interval(&self) -> Duration {
        (self.silence_max / BEATS).max(BEAT_INTERVAL_MIN)
    }

    /// Shows that this process lives. False when its claim was taken from it.
    pub(super) fn beat(&self) -> io::Result<bool> {
        let Some(claim) = &self.claim else { return Ok(true) };
        claim.locked.set_modified(SystemTime::now())?;
        claim.stands()
    }

    /// Gives the claim up when another process has revoked it: its leases are lost, taken already or not. The next
    /// lease is taken under a new claim.
    pub(super) fn notice_revocation(&mut self, db: &Connection) -> Result<(), Fault> {
        let Some(claim) = &self.claim else { return Ok(()) };
        if claim.stands()? {
            return Ok(());
        }
        tracing::warn!(
            "another process took this one for dead, and may have taken its agents over"
        );
        // All that were ever given, whoever has them.
        self.void_through.0.store(last_fence(db)?.0, Ordering::Release);
        self.claim = None;
        Ok(())
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
        if self.claimed_id() == Some(id) {
            return Holder::Me;
        }
        let path = self.directory.join(id);
        match probe(&path) {
            Holder::Living(_) if self.is_silent(&path) => {
                tracing::warn!(path = %path.display(), "an owner shows no sign of life and is revoked");
                match fs::remove_file(&path) {
                    Ok(()) => Holder::Dead,
                    Err(error) => Holder::Living(format!("a silent process: {error}")),
                }
            }
            holder => holder,
        }
    }

    /// Whether this process has seen no new sign of life in that file for too long.
    fn is_silent(&self, path: &Path) -> bool {
        let Ok(beat) = fs::metadata(path).and_then(|file| file.modified()) else { return false };
        let mut seen = self.seen.borrow_mut();
        let (last, since) =
            seen.entry(path.to_path_buf()).or_insert_with(|| (beat, Instant::now()));
        if *last != beat {
            (*last, *since) = (beat, Instant::now());
        }
        since.elapsed() >= self.silence_max
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
            return Ok(Self { id, path, locked: file });
        }
    }

    /// Whether the file still has its name.
    fn stands(&self) -> io::Result<bool> {
        Ok(self.locked.metadata()?.nlink() > 0)
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

    fn owner(home: &tempfile::TempDir) -> Owner {
        Owner::new(home.path(), SILENCE_MAX)
    }

    #[test]
    fn a_living_owner_is_named_and_a_dead_one_is_swept() {
        let home = tempfile::tempdir().unwrap();
        let (mut a, b) = (owner(&home), owner(&home));
        let id = a.id().unwrap().to_owned();
        assert_eq!(a.holder(&id), Holder::Me);
        assert_eq!(b.holder(&id), Holder::Living(format!("process {}", std::process::id())));
        let file = home.path().join("owners").join(&id);
        assert!(file.exists());
        drop(a);
        let mut c = owner(&home);
        c.id().unwrap();
        assert!(!file.exists());
        assert_eq!(b.holder(&id), Holder::Dead);
    }

    #[test]
    fn a_silent_owner_is_revoked_and_one_that_beats_is_not() {
        let home = tempfile::tempdir().unwrap();
        let (mut beating, mut silent) = (owner(&home), owner(&home));
        let [a, b] = [&mut beating, &mut silent].map(|owner| owner.id().unwrap().to_owned());
        let patient = owner(&home);
        let hasty = Owner::new(home.path(), Duration::ZERO);
        for _ in 0..3 {
            assert!(matches!(patient.holder(&b), Holder::Living(_)));
        }
        // A minute ago, by this process's clock.
        let minute = Duration::from_secs(60);
        for (_, since) in patient.seen.borrow_mut().values_mut() {
            *since = since.checked_sub(minute).unwrap();
        }
        assert!(matches!(patient.holder(&a), Holder::Living(_)), "seen for the first time");
        for (_, since) in patient.seen.borrow_mut().values_mut() {
            *since = since.checked_sub(minute).unwrap();
        }
        let later = SystemTime::now() + Duration::from_secs(1);
        beating.claim.as_ref().unwrap().locked.set_modified(later).unwrap();
        assert!(matches!(patient.holder(&a), Holder::Living(_)), "it beat");
        assert!(silent.beat().unwrap());
        silent.claim.as_ref().unwrap().locked.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(hasty.holder(&b), Holder::Dead);
        assert_eq!(patient.holder(&b), Holder::Dead, "for everybody");
        assert!(beating.beat().unwrap());
        assert!(!silent.beat().unwrap());
    }

    #[test]
    fn a_retired_owner_leaves_no_file() {
        let home = tempfile::tempdir().unwrap();
        let mut owner = owner(&home);
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
