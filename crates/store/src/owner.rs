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
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use nexus_core::store::{Contact, Holder};
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
    /// Where this process can be reached, as far as it has said so.
    contact: Contact,
    silence_max: Duration,
    /// The last sign of life of others, and since when it is the last. Measured by this process's own clock, which
    /// stands still while the machine sleeps, and not by comparing two.
    seen: RefCell<HashMap<PathBuf, (SystemTime, Instant)>>,
    void_through: VoidThrough,
    onlooker: Onlooker,
}

/// What readers know of owners, beside the writer and never in its way: they take nothing from anybody.
#[derive(Clone)]
pub(super) struct Onlooker {
    directory: PathBuf,
    /// The id that this process has claimed.
    own: Arc<Mutex<Option<String>>>,
}

impl Onlooker {
    pub(super) fn claimed_id(&self) -> Option<String> {
        self.own().clone()
    }

    pub(super) fn whose(&self, id: &str) -> Whose {
        let is_own = self.own().as_deref() == Some(id);
        match is_own {
            true => Whose::Mine,
            false => probe(&self.directory.join(id)),
        }
    }

    fn own(&self) -> MutexGuard<'_, Option<String>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// Whose a lease is that a stored owner took.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Mine,
    /// Its owner is gone.
    Nobodys,
    /// Of another process, which lives.
    Another(Holder),
}

/// What an owner file says, in its last line: where the owner is reached. That it lives is said by the lock.
#[derive(Serialize, Deserialize)]
struct Note {
    pid: u32,
    started_at: String,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    socket: Option<PathBuf>,
}

impl Owner {
    pub(super) fn new(home: &Path, silence_max: Duration) -> Self {
        Self {
            directory: home.join("owners"),
            claim: None,
            contact: Contact::default(),
            silence_max,
            seen: RefCell::default(),
            void_through: VoidThrough::default(),
            onlooker: Onlooker { directory: home.join("owners"), own: Arc::default() },
        }
    }

    pub(super) fn void_through(&self) -> VoidThrough {
        self.void_through.clone()
    }

    pub(super) fn onlooker(&self) -> Onlooker {
        self.onlooker.clone()
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
        *self.onlooker.own() = None;
        Ok(())
    }

    /// The id under which leases are taken, claimed at the first call.
    pub(super) fn id(&mut self) -> io::Result<&str> {
        let claim = match self.claim.take() {
            Some(claim) => claim,
            None => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
                sweep(&self.directory)?;
                let claim = Claim::make(&self.directory, &self.contact)?;
                *self.onlooker.own() = Some(claim.id.clone());
                claim
            }
        };
        Ok(&self.claim.insert(claim).id)
    }

    /// Says in this process's file, and in those it has later, where it can be reached.
    pub(super) fn announce(&mut self, contact: Contact) -> io::Result<()> {
        if let Some(claim) = &mut self.claim {
            claim.note(&contact)?;
        }
        self.contact = contact;
        Ok(())
    }

    /// The id, where one was claimed.
    pub(super) fn claimed_id(&self) -> Option<&str> {
        self.claim.as_ref().map(|claim| claim.id.as_str())
    }

    pub(super) fn whose(&self, id: &str) -> Whose {
        if self.claimed_id() == Some(id) {
            return Whose::Mine;
        }
        let path = self.directory.join(id);
        match probe(&path) {
            Whose::Another(holder) if self.is_silent(&path) => match fs::remove_file(&path) {
                Ok(()) => {
                    tracing::warn!(
                        pid = holder.pid,
                        "an owner shows no sign of life and is revoked"
                    );
                    Whose::Nobodys
                }
                Err(error) => {
                    tracing::warn!(pid = holder.pid, %error, "a silent owner cannot be revoked");
                    Whose::Another(holder)
                }
            },
            whose => whose,
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
    fn make(directory: &Path, contact: &Contact) -> io::Result<Self> {
        loop {
            let id = random_hex();
            let path = directory.join(&id);
            let locked =
                OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
            if !lock(&locked)? {
                continue;
            }
            let mut claim = Self { id, path, locked };
            claim.note(contact)?;
            return Ok(claim);
        }
    }

    /// Adds a line to the file: whoever reads it meanwhile finds the line before. It cannot be replaced by another file,
    /// which would not be locked.
    fn note(&mut self, contact: &Contact) -> io::Result<()> {
        let Contact { url, socket } = contact.clone();
        let (pid, started_at) = (std::process::id(), Timestamp::now().to_string());
        let mut line = serde_json::to_vec(&Note { pid, started_at, url, socket })?;
        line.push(b'\n');
        self.locked.write_all(&line)
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
fn probe(path: &Path) -> Whose {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Whose::Nobodys,
        Err(_) => return Whose::Another(UNKNOWN),
    };
    // Shared, so that two processes that ask at the same time do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => {
            // While the lock is held: a claim in the making must see that its file is gone.
            fs::remove_file(path).ok();
            Whose::Nobodys
        }
        Err(_) => Whose::Another(read_note(&mut file).unwrap_or(UNKNOWN)),
    }
}

/// A process that lives and whose file says nothing.
const UNKNOWN: Holder = Holder { pid: 0, contact: Contact { url: None, socket: None } };

/// The last line that is whole.
fn read_note(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let note = text.lines().rev().find_map(|line| serde_json::from_str::<Note>(line).ok())?;
    Some(Holder { pid: note.pid, contact: Contact { url: note.url, socket: note.socket } })
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

    /// This process, as others see it.
    fn reached_at(url: Option<&str>) -> Holder {
        let contact = Contact { url: url.map(str::to_owned), socket: None };
        Holder { pid: std::process::id(), contact }
    }

    #[test]
    fn what_is_announced_is_read_whole_and_survives_a_new_claim() {
        let home = tempfile::tempdir().unwrap();
        let (mut a, b) = (owner(&home), owner(&home));
        let id = a.id().unwrap().to_owned();
        a.announce(reached_at(Some("http://one")).contact).unwrap();
        assert_eq!(b.whose(&id), Whose::Another(reached_at(Some("http://one"))));
        // Half of a line, as a reader may find it that comes in the middle of a write.
        a.claim.as_mut().unwrap().locked.write_all(b"{\"pid\":1,\"started").unwrap();
        assert_eq!(b.whose(&id), Whose::Another(reached_at(Some("http://one"))));
        a.claim = None;
        let id = a.id().unwrap().to_owned();
        assert_eq!(b.whose(&id), Whose::Another(reached_at(Some("http://one"))));
    }

    #[test]
    fn a_living_owner_is_named_and_a_dead_one_is_swept() {
        let home = tempfile::tempdir().unwrap();
        let (mut a, b) = (owner(&home), owner(&home));
        let id = a.id().unwrap().to_owned();
        assert_eq!(a.whose(&id), Whose::Mine);
        assert_eq!(b.whose(&id), Whose::Another(reached_at(None)));
        let file = home.path().join("owners").join(&id);
        assert!(file.exists());
        drop(a);
        let mut c = owner(&home);
        c.id().unwrap();
        assert!(!file.exists());
        assert_eq!(b.whose(&id), Whose::Nobodys);
    }

    #[test]
    fn a_silent_owner_is_revoked_and_one_that_beats_is_not() {
        let home = tempfile::tempdir().unwrap();
        let (mut beating, mut silent) = (owner(&home), owner(&home));
        let [a, b] = [&mut beating, &mut silent].map(|owner| owner.id().unwrap().to_owned());
        let patient = owner(&home);
        let hasty = Owner::new(home.path(), Duration::ZERO);
        for _ in 0..3 {
            assert!(matches!(patient.whose(&b), Whose::Another(_)));
        }
        // A minute ago, by this process's clock.
        let minute = Duration::from_secs(60);
        for (_, since) in patient.seen.borrow_mut().values_mut() {
            *since = since.checked_sub(minute).unwrap();
        }
        assert!(matches!(patient.whose(&a), Whose::Another(_)), "seen for the first time");
        for (_, since) in patient.seen.borrow_mut().values_mut() {
            *since = since.checked_sub(minute).unwrap();
        }
        let later = SystemTime::now() + Duration::from_secs(1);
        beating.claim.as_ref().unwrap().locked.set_modified(later).unwrap();
        assert!(matches!(patient.whose(&a), Whose::Another(_)), "it beat");
        assert!(silent.beat().unwrap());
        silent.claim.as_ref().unwrap().locked.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(hasty.whose(&b), Whose::Nobodys);
        assert_eq!(patient.whose(&b), Whose::Nobodys, "for everybody");
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
        assert_eq!(owner.whose(&id), Whose::Nobodys);
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
