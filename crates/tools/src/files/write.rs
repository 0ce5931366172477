//! Changing files: the new contents are written beside the old ones and take their name in one step. Nobody ever sees
//! half a file, and an inode that was there is never changed, so a hard link to a file elsewhere stays what it was. The
//! mode is kept; attributes beyond mode and owner are not.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool};

use nexus_core::footprint::Footprint;
use nexus_core::permission::Level;
use rustix::fs::{Access as Permission, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::{
    Act, Files, Opened, Written, explain, kind, kind_name, noted, open_exactly, open_in,
    repository, require_regular,
};

/// Largest file that is written. A model that writes more at once has lost its way.
pub(crate) const WRITE_BYTES_MAX: usize = 10 << 20;

/// Largest file that is copied: beyond this a command is the better means.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// A name in an opened directory, which the agent may write.
pub(crate) struct Slot {
    path: String,
    pub real: PathBuf,
    dir: OwnedFd,
    name: OsString,
    /// Whether what is made here may turn its directory into a repository of git.
    may_make_repository: bool,
    footprint: Option<Arc<Footprint>>,
    stop: Arc<AtomicBool>,
    written: Option<Arc<Mutex<Vec<Written>>>>,
}

/// New contents on their way to a name. Dropped, they leave nothing behind.
pub(crate) struct Staged<'a> {
    slot: &'a Slot,
    temporary: String,
    file: File,
    /// What it holds, where somebody sees what becomes of files.
    shown: Option<Vec<u8>>,
}

/// What must still hold when new contents take a name.
pub(crate) enum Before<'a> {
    Anything,
    Nothing,
    /// The file is the one that was read: nobody's change in between is lost.
    Unchanged(&'a Stat),
}

impl Files {
    /// The name that `path` leads to. Missing directories on the way are made, as far as the agent may write there.
    pub fn slot(&self, path: &str) -> Result<Slot, String> {
        let place = self.locate(path, Act::Write)?;
        let parent = place.real.parent().ok_or_else(|| format!("{path} is a directory"))?;
        let dir = self.make_directories(path, parent, place.missing.saturating_sub(1))?;
        self.slot_in(path, dir, place.real)
    }

    /// As [`Self::slot`], where something is to have the name already.
    pub fn slot_of_existing(&self, path: &str) -> Result<Slot, String> {
        let place = self.locate(path, Act::Write)?.existing(path)?;
        let parent = place.real.parent().ok_or_else(|| format!("{path} is a directory"))?;
        let dir = self.make_directories(path, parent, 0)?;
        self.slot_in(path, dir, place.real)
    }

    /// The name that `path` itself is, even if it is a link.
    pub fn slot_of_link(&self, path: &str) -> Result<Slot, String> {
        let name = Path::new(path).file_name().ok_or_else(|| format!("{path} has no name"))?;
        let parent = Path::new(path).parent().and_then(Path::to_str).unwrap_or_default();
        let parent = self.resolve(parent, Act::Write)?.existing(path)?.real;
        let real = parent.join(name);
        self.check(path, &real, Act::Write)?;
        let dir = self.make_directories(path, &parent, 0)?;
        self.slot_in(path, dir, real)
    }

    /// Makes a directory and those above it that are missing. False: it is there already.
    pub fn make_directory(&self, path: &str) -> Result<bool, String> {
        let place = self.locate(path, Act::Write)?;
        if place.missing == 0 {
            return match kind(&super::stat(path, &place.nearest)?) {
                FileType::Directory => Ok(false),
                other => Err(format!("{path} is {}", kind_name(other))),
            };
        }
        self.make_directories(path, &place.real, place.missing).map(|_| true)
    }

    /// Opens the directory `real`, whose last `missing` names are made first.
    fn make_directories(&self, path: &str, real: &Path, missing: usize) -> Result<OwnedFd, String> {
        const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
        let explained = |error| explain(path, error);
        if !self.may_make_repository(real) {
            repository::refuse_within(path, real)?;
        }
        let existing = real.ancestors().nth(missing).unwrap_or(Path::new("/"));
        let mut dir = open_exactly(existing, DIRECTORY).map_err(explained)?;
        let mut reached = existing.to_path_buf();
        for name in real.strip_prefix(existing).into_iter().flatten() {
            reached.push(name);
            self.check(path, &reached, Act::Write)?;
            let _making = match self.may_make_repository(&reached) {
                true => None,
                false => repository::refuse_made(path, &dir, name)?,
            };
            match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(explained(error)),
            }
            let flags = DIRECTORY | OFlags::NOFOLLOW;
            dir = rustix::fs::openat(&dir, name, flags, Mode::empty()).map_err(explained)?;
        }
        Ok(dir)
    }

    fn slot_in(&self, path: &str, dir: OwnedFd, real: PathBuf) -> Result<Slot, String> {
        let name = real.file_name().ok_or_else(|| format!("{path} is a directory"))?.to_owned();
        let may_make_repository = self.may_make_repository(&real);
        let (footprint, stop) = (self.access.footprint.clone(), self.stop.clone());
        let (path, written) = (path.into(), self.written.clone());
        Ok(Slot { path, real, dir, name, may_make_repository, footprint, stop, written })
    }

    /// At the highest level, and in a `.git` directory, for which the gate has its own rule.
    fn may_make_repository(&self, real: &Path) -> bool {
        let of_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        self.access.permissions.level == Level::Yolo || real.components().any(of_git)
    }
}

impl Slot {
    /// The file that has the name now, if any. One that may not be written is refused here.
    pub fn current(&self) -> Result<Option<Opened>, String> {
        match self.stat()? {
            None => return Ok(None),
            Some(stat) => require_regular(&self.path, &stat)?,
        }
        // A rename asks only whether the directory may be written; a read-only file is meant to stay.
        let writable = Permission::WRITE_OK;
        rustix::fs::accessat(&self.dir, &self.name, writable, AtFlags::EACCESS)
            .map_err(|_| format!("{} is write-protected", self.path))?;
        open_in(&self.dir, Path::new(&self.name), &self.path).map(Some)
    }

    /// What has the name now; a link is not followed.
    pub fn stat(&self) -> Result<Option<Stat>, String> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Whether what has the name is still what was read.
    pub fn is_unchanged(&self, read: &Stat) -> Result<bool, String> {
        Ok(self.stat()?.is_some_and(|now| stamp(&now) == stamp(read)))
    }

    /// Writes `bytes` beside the name. `like` is the file that they will replace.
    pub fn stage(&self, bytes: &[u8], like: Option<&Stat>) -> Result<Staged<'_>, String> {
        if bytes.len() > WRITE_BYTES_MAX {
            let mib = WRITE_BYTES_MAX >> 20;
            return Err(format!("{} would be longer than {mib} MiB", self.path));
        }
        let mut staged = self.temporary(Mode::from_raw_mode(0o644))?;
        staged.file.write_all(bytes).map_err(|error| self.explain_io(&error))?;
        staged.shown = self.written.is_some().then(|| bytes.into());
        if let Some(like) = like {
            keep_owner_and_mode(&staged.file, like).map_err(|error| self.explain(error))?;
        }
        Ok(staged)
    }

    /// Copies `from` beside the name.
    pub fn stage_copy(&self, from: Opened) -> Result<Staged<'_>, String> {
        let mut staged = self.temporary(plain_mode(&from.stat))?;
        let copied = io::copy(&mut from.file.take(COPY_BYTES_MAX + 1), &mut staged.file)
            .map_err(|error| self.explain_io(&error))?;
        if copied > COPY_BYTES_MAX {
            return Err(format!("a file of more than {} MiB is not copied", COPY_BYTES_MAX >> 20));
        }
        Ok(staged)
    }

    /// Moves what has this name to another that is free.
    pub fn rename(&self, to: &Self) -> Result<(), String> {
        self.go_on()?;
        let _making = to.refuse_repository()?;
        if let Some(footprint) = &self.footprint {
            footprint.claim_move(&self.real, &to.real, &self.stop)?;
        }
        let no_replace = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&self.dir, &self.name, &to.dir, &to.name, no_replace)
            .map_err(|error| if error == Errno::NOENT { self } else { to }.explain(error))
    }

    pub fn remove(&self) -> Result<(), String> {
        self.go_on()?;
        self.claim()?;
        let old = self.before();
        rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty())
            .map_err(|error| self.explain(error))?;
        self.note(old, Some(Vec::new()));
        Ok(())
    }

    /// What the name holds now, where somebody sees what becomes of files; `None` where that cannot be read.
    fn before(&self) -> Option<Vec<u8>> {
        self.written.as_ref()?;
        match self.stat().ok()? {
            None => Some(Vec::new()),
            Some(_) => {
                open_in(&self.dir, Path::new(&self.name), &self.path).ok()?.bytes(&self.path).ok()
            }
        }
    }

    /// Notes what became of the file. One of which too little is known counts as changed in ways that cannot be shown.
    fn note(&self, old: Option<Vec<u8>>, new: Option<Vec<u8>>) {
        if let Some(written) = &self.written {
            let (old, new) = old.zip(new).unwrap_or_default();
            noted(written).push(Written { real: self.real.clone(), old, new });
        }
    }

    /// An empty file with a name that nobody knows. It cannot be a link that somebody laid there.
    fn temporary(&self, mode: Mode) -> Result<Staged<'_>, String> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let temporary = format!(".nexus3-{:016x}.tmp", RandomState::new().build_hasher().finish());
        let file = rustix::fs::openat(&self.dir, &temporary, flags, mode)
            .map_err(|error| self.explain(error))?;
        Ok(Staged { slot: self, temporary, file: File::from(file), shown: None })
    }

    fn refuse_repository(&self) -> Result<Option<MutexGuard<'static, ()>>, String> {
        match self.may_make_repository {
            true => Ok(None),
            false => repository::refuse_made(&self.path, &self.dir, &self.name),
        }
    }

    /// Tells whoever keeps account of it that what has the name is about to be changed.
    fn claim(&self) -> Result<(), String> {
        let claimed = |footprint: &Arc<Footprint>| footprint.claim(&self.real, &self.stop);
        self.footprint.as_ref().map_or(Ok(()), claimed)
    }

    /// A call that nobody waits for any more changes nothing more.
    fn go_on(&self) -> Result<(), String> {
        if self.stop.load(Ordering::Relaxed) {
            Err("the call was cancelled".into())
        } else {
            Ok(())
        }
    }

    fn explain(&self, error: Errno) -> String {
        explain(&self.path, error)
    }

    fn explain_io(&self, error: &io::Error) -> String {
        Errno::from_io_error(error)
            .map_or_else(|| error.to_string(), |error| explain(&self.path, error))
    }
}

impl Staged<'_> {
    /// Everybody who may read the file may run it.
    pub fn make_executable(&self) -> Result<(), String> {
        rustix::fs::fstat(&self.file)
            .map(|stat| plain_mode(&stat))
            .and_then(|mode| {
                let readers = mode & Mode::from_raw_mode(0o444);
                let runners = Mode::from_raw_mode(readers.as_raw_mode() >> 2);
                rustix::fs::fchmod(&self.file, mode | runners)
            })
            .map_err(|error| self.slot.explain(error))
    }

    /// Gives the new contents their name.
    pub fn commit(mut self, before: Before<'_>) -> Result<(), String> {
        let Slot { dir, name, path, .. } = self.slot;
        self.slot.go_on()?;
        let _making = self.slot.refuse_repository()?;
        self.slot.claim()?;
        let flags = match before {
            Before::Anything => RenameFlags::empty(),
            Before::Nothing => RenameFlags::NOREPLACE,
            Before::Unchanged(read) => {
                if !self.slot.is_unchanged(read)? {
                    return Err(format!("{path} was changed meanwhile: read it again"));
                }
                RenameFlags::empty()
            }
        };
        let old = self.slot.before();
        rustix::fs::renameat_with(dir, &self.temporary, dir, name, flags)
            .map_err(|error| self.slot.explain(error))?;
        self.slot.note(old, self.shown.take());
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // After a commit the temporary name is gone, and this finds nothing.
        let _ = rustix::fs::unlinkat(&self.slot.dir, &self.temporary, AtFlags::empty());
    }
}

/// Waits until no other call of this process changes one of these files, so that two edits at once both happen.
pub(crate) fn lock<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> Vec<MutexGuard<'static, ()>> {
    /// Enough that two files rarely wait for each other.
    const STRIPES: usize = 64;
    static CHANGING: [Mutex<()>; STRIPES] = [const { Mutex::new(()) }; STRIPES];
    let stripe = |slot: &Slot| {
        let mut hasher = DefaultHasher::new();
        slot.real.hash(&mut hasher);
        usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or(0)
    };
    // Always in the same order, or two patches could wait for each other.
    let stripes: BTreeSet<usize> = slots.into_iter().map(stripe).collect();
    let taken = stripes.into_iter().map(|stripe| CHANGING[stripe].lock());
    taken.map(|held| held.unwrap_or_else(PoisonError::into_inner)).collect()
}

/// What changes when somebody writes a file or puts another in its place.
fn stamp(stat: &Stat) -> impl PartialEq {
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
}

fn keep_owner_and_mode(file: &File, like: &Stat) -> Result<(), Errno> {
    let made = rustix::fs::fstat(file)?;
    if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid) {
        let owner = rustix::fs::Uid::from_raw(like.st_uid);
        let group = rustix::fs::Gid::from_raw(like.st_gid);
        // Only root may give files away; anyone else's edit makes the file theirs, as with any editor.
        let _ = rustix::fs::fchown(file, Some(owner), Some(group));
    }
    rustix::fs::fchmod(file, plain_mode(like))
}

/// Without the bits that make a program run as its owner: new contents have not earned them.
fn plain_mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o777)
}
