//! Opening what a model names, so that what is opened is provably within the agent's permissions.
//!
//! A path is followed once, links and `..` included, to a handle that can neither be read nor written (`O_PATH`). The
//! kernel says where that handle really lies; this place is checked; and then exactly this place is opened again with
//! `openat2` and links forbidden. So whatever is swapped in between, the path that was checked is, name for name, the
//! path that was walked. Without `openat2` (Linux before 5.6) the tools refuse.
//!
//! A hard link is the file itself and cannot be told apart when reading; writing never changes a file in place (see
//! [`write`]), so whoever else holds a link to it keeps what they had.

mod repository;
pub(super) mod write;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nexus_core::gate::{Act, Refusal, check_place};
use nexus_core::paths;
use nexus_core::preview::FileChange;
use nexus_core::tool::Access;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use super::apart::Work;
use super::change::change;
use super::sandbox::Launcher;

/// Largest file that is read as a whole. Tools hold it in memory, several at once; longer files are logs and data,
/// which `tail` and `search_text` read piecewise.
pub(super) const READ_BYTES_MAX: u64 = 10 << 20;

/// Longest path that the kernel takes.
const PATH_BYTES_MAX: usize = 4096;

/// The file system within one call's access.
pub(super) struct Files {
    access: Access,
    /// The access's blocked places, each also where it really lies: written with a link in it, it would block nothing.
    blocked: Vec<PathBuf>,
    stop: Arc<AtomicBool>,
    launcher: Launcher,
    image_side_max: u32,
    /// What was written so far, where somebody sees what becomes of files. Otherwise no file is read for it.
    written: Option<Arc<Mutex<Vec<Written>>>>,
}

/// What a file held before it was changed, and after that.
struct Written {
    real: PathBuf,
    old: Vec<u8>,
    new: Vec<u8>,
}

/// Where a path leads.
struct Resolved {
    /// Absolute and without links.
    real: PathBuf,
    /// How many of its last names do not exist yet.
    missing: usize,
    /// A handle on what exists: the place itself, or the nearest directory above it.
    nearest: OwnedFd,
}

/// A regular file, opened for reading.
#[derive(Debug)]
pub(super) struct Opened {
    pub file: File,
    pub stat: Stat,
}

/// A directory, opened for listing.
pub(super) struct Directory {
    pub fd: OwnedFd,
    pub real: PathBuf,
}

impl Files {
    /// `stop` ends long work: it is set when nobody waits for the result any more.
    pub fn new(
        access: Access,
        stop: Arc<AtomicBool>,
        launcher: Launcher,
        image_side_max: u32,
    ) -> Self {
        let written = access.permissions.blocked.iter();
        let blocked = written.flat_map(|path| [path.clone(), real_place(path)]).collect();
        Self { access, blocked, stop, launcher, image_side_max, written: None }
    }

    /// Keeps account of what is written.
    pub fn seen(self, seen: bool) -> Self {
        Self { written: seen.then(Arc::default), ..self }
    }

    /// What became of the file that was changed; `None` where it was not one, or no text.
    pub fn change(&self) -> Option<FileChange> {
        let written = std::mem::take(&mut *noted(self.written.as_ref()?));
        let [Written { real, old, new }] = written.as_slice() else { return None };
        change(real, old, new)
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A call that nobody waits for any more does nothing more.
    pub fn go_on(&self) -> Result<(), String> {
        if self.stopped() { Err("the call was cancelled".into()) } else { Ok(()) }
    }

    /// Does the work in a process of its own, which ends with this call.
    pub fn apart<T: DeserializeOwned>(&self, work: &Work) -> Result<T, String> {
        self.launcher.apart(work, &|| self.stopped())
    }

    /// Images are shown with at most so many pixels a side.
    pub fn image_side_max(&self) -> u32 {
        self.image_side_max
    }

    /// Opens a regular file for reading.
    pub fn open(&self, path: &str) -> Result<Opened, String> {
        let place = self.locate(path, Act::Read)?.existing(path)?;
        // Asked of the handle first: to open a device can have effects of its own.
        require_regular(path, &stat(path, &place.nearest)?)?;
        let fd = open_exactly(&place.real, READ).map_err(|error| explain(path, error))?;
        opened(path, fd)
    }

    /// What is there now at a place that is to be written, and where it really lies; no bytes where nothing is there.
    pub fn look(&self, path: &str) -> Result<(PathBuf, Option<Vec<u8>>), String> {
        let place = self.locate(path, Act::Read)?;
        let found = (place.missing == 0).then(|| self.open(path)?.bytes(path)).transpose()?;
        Ok((place.real, found))
    }

    /// Opens a directory for listing.
    pub fn directory(&self, path: &str) -> Result<Directory, String> {
        let place = self.locate(path, Act::Read)?.existing(path)?;
        let flags = READ | OFlags::DIRECTORY;
        let fd = open_exactly(&place.real, flags).map_err(|error| explain(path, error))?;
        Ok(Directory { fd, real: place.real })
    }

    /// What is known of a file of any kind, and where it really lies.
    pub fn stat(&self, path: &str) -> Result<(Stat, PathBuf), String> {
        let place = self.locate(path, Act::Read)?.existing(path)?;
        Ok((stat(path, &place.nearest)?, place.real))
    }

    /// Whether something is there that the agent may write.
    pub fn exists(&self, path: &str) -> Result<bool, String> {
        Ok(self.locate(path, Act::Write)?.missing == 0)
    }

    /// Whether a place, absolute and without links, may be read.
    pub fn readable(&self, real: &Path) -> bool {
        self.check("", real, Act::Read).is_ok()
    }

    /// The blocked places beneath `real`.
    pub fn blocked_beneath<'a>(&'a self, real: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.blocked.iter().map(PathBuf::as_path).filter(move |blocked| blocked.starts_with(real))
    }

    /// Follows `path` as far as it exists and checks where it leads.
    fn locate(&self, path: &str, act: Act) -> Result<Resolved, String> {
        let place = self.resolve(path, act)?;
        self.check(path, &place.real, act)?;
        Ok(place)
    }

    fn resolve(&self, path: &str, act: Act) -> Result<Resolved, String> {
        if path.contains('\0') {
            return Err("a path may not contain NUL".into());
        }
        let full = self.access.cwd.join(path);
        if full.as_os_str().len() >= PATH_BYTES_MAX {
            return Err(format!("a path has at most {PATH_BYTES_MAX} bytes"));
        }
        let mut existing = full.as_path();
        let mut missing = Vec::new();
        let (nearest, found) = loop {
            match follow_to_its_place(existing) {
                Ok(found) => break found,
                Err(Errno::NOENT) if follow(existing, OFlags::NOFOLLOW).is_ok() => {
                    // Written through, it would make the file that it names, wherever that is.
                    return Err(format!("{path} is a link that leads nowhere"));
                }
                Err(Errno::NOENT) => {}
                Err(error) => return Err(self.explain_within(path, &full, act, error)),
            }
            match (existing.components().next_back(), existing.parent()) {
                (Some(Component::Normal(part)), Some(parent)) => {
                    missing.push(part.to_owned());
                    existing = parent;
                }
                _ => return Err(format!("{path}: '..' may not follow what does not exist")),
            }
        };
        refuse_kernel(path, &nearest, &found)?;
        let real = missing.iter().rev().fold(found, |real, part| real.join(part));
        Ok(Resolved { real, nearest, missing: missing.len() })
    }

    /// The rule on paths. `real` is absolute and without links.
    fn check(&self, path: &str, real: &Path, act: Act) -> Result<(), String> {
        check_place(&self.access.permissions, &self.blocked, real, act, path)
            .map_err(|refusal| refusal.to_string())
    }

    /// Why a path could not be followed, unless that would tell of places the agent may not see.
    fn explain_within(&self, path: &str, full: &Path, act: Act, error: Errno) -> String {
        self.check(path, &paths::lexical(full), act).err().unwrap_or_else(|| explain(path, error))
    }
}

impl Resolved {
    fn existing(self, path: &str) -> Result<Self, String> {
        if self.missing == 0 { Ok(self) } else { Err(explain(path, Errno::NOENT)) }
    }
}

impl Opened {
    /// The whole file.
    pub fn bytes(mut self, path: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.len()).unwrap_or(0).min(1 << 20));
        let too_long = || {
            let mib = READ_BYTES_MAX >> 20;
            format!("{path} is longer than {mib} MiB: use tail or search_text on it")
        };
        if self.len() > READ_BYTES_MAX {
            return Err(too_long());
        }
        let mut limited = (&mut self.file).take(READ_BYTES_MAX + 1);
        limited.read_to_end(&mut bytes).map_err(|error| format!("{path}: {error}"))?;
        if bytes.len() as u64 > READ_BYTES_MAX { Err(too_long()) } else { Ok(bytes) }
    }

    pub fn len(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }
}

fn noted(written: &Mutex<Vec<Written>>) -> MutexGuard<'_, Vec<Written>> {
    written.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Without `NONBLOCK`, opening a named pipe would wait for a writer for ever.
pub(super) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens a file for reading by its name in an opened directory; a link is not followed.
pub(super) fn open_in(dir: impl AsFd, name: &Path, path: &str) -> Result<Opened, String> {
    let fd = rustix::fs::openat(dir, name, READ, Mode::empty());
    opened(path, fd.map_err(|error| explain(path, error))?)
}

fn opened(path: &str, fd: OwnedFd) -> Result<Opened, String> {
    let stat = stat(path, &fd)?;
    require_regular(path, &stat)?;
    Ok(Opened { file: File::from(fd), stat })
}

/// Where an absolute path leads, as far as it exists.
fn real_place(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|existing| {
        let (_, real) = follow_to_its_place(existing).ok()?;
        Some(real.join(path.strip_prefix(existing).ok()?))
    });
    found.unwrap_or_else(|| path.to_path_buf())
}

/// What `path` leads to, and where that really lies. While others put new files in the place of old ones, as our own
/// writing does, it may be the old file that was found, and the kernel then says that it is deleted.
fn follow_to_its_place(path: &Path) -> Result<(OwnedFd, PathBuf), Errno> {
    /// A file may also be named so, and then each attempt finds it so.
    const ATTEMPTS: usize = 100;
    let mut attempts = 0;
    loop {
        let fd = follow(path, OFlags::empty())?;
        let real = real_path(&fd)?;
        attempts += 1;
        if attempts == ATTEMPTS || !real.as_os_str().as_bytes().ends_with(b" (deleted)") {
            return Ok((fd, real));
        }
    }
}

/// A handle on what `path` leads to, which can neither be read nor written. `/proc`'s magic links, which lead past every
/// other rule, are not followed.
fn follow(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(path, OFlags::PATH | OFlags::CLOEXEC | flags, Resolve::Links)
}

/// Opens a place that was checked. A link anywhere on the way means that it is no longer this place.
fn open_exactly(real: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(real, flags, Resolve::NoLinks)
}

enum Resolve {
    Links,
    NoLinks,
}

#[cfg(target_os = "linux")]
fn openat2(path: &Path, flags: OFlags, resolve: Resolve) -> Result<OwnedFd, Errno> {
    use rustix::fs::{CWD, ResolveFlags, openat2};
    let resolve = match resolve {
        Resolve::Links => ResolveFlags::NO_MAGICLINKS,
        Resolve::NoLinks => ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS,
    };
    openat2(CWD, path, flags, Mode::empty(), resolve)
}

#[cfg(not(target_os = "linux"))]
fn openat2(_: &Path, _: OFlags, _: Resolve) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// Where a handle really lies, as the kernel knows it.
fn real_path(fd: &OwnedFd) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let real = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(real.into_bytes())))
}

/// Refuses the kernel's own trees, wherever they are mounted: the server's environment, with its keys, can be read in
/// `/proc`.
fn refuse_kernel(path: &str, fd: &OwnedFd, real: &Path) -> Result<(), String> {
    match file_system(fd) {
        Ok(FileSystem::Ordinary) if !paths::of_kernel(real) => Ok(()),
        Ok(_) => Err(Refusal::Kernel(path.into()).to_string()),
        Err(error) => Err(explain(path, error)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystem {
    /// The kernel's view of processes and of devices: full of secrets, and endless for who walks it.
    Kernel,
    Ordinary,
}

pub(super) fn file_system(fd: impl AsFd) -> Result<FileSystem, Errno> {
    const PROC_MAGIC: u64 = 0x9fa0;
    const SYSFS_MAGIC: u64 = 0x6265_6572;
    let kind = rustix::fs::fstatfs(fd)?.f_type;
    Ok(match u64::try_from(kind) {
        Ok(PROC_MAGIC | SYSFS_MAGIC) => FileSystem::Kernel,
        _ => FileSystem::Ordinary,
    })
}

fn stat(path: &str, fd: impl AsFd) -> Result<Stat, String> {
    rustix::fs::fstat(fd).map_err(|error| explain(path, error))
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn require_regular(path: &str, stat: &Stat) -> Result<(), String> {
    match kind(stat) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(format!("{path} is a directory")),
        other => Err(format!("{path} is {}, not a regular file", kind_name(other))),
    }
}

pub(super) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

/// An error of the kernel in words that say what to do.
pub(super) fn explain(path: &str, error: Errno) -> String {
    let reason = match error {
        Errno::NOENT => "no such file or directory",
        Errno::NOTDIR => "a part of the path is not a directory",
        Errno::ACCESS | Errno::PERM => "the operating system denies access",
        Errno::EXIST => "it exists already",
        Errno::NAMETOOLONG => "a name has at most 255 bytes",
        Errno::LOOP => "the path leads through a link that may not be followed",
        Errno::XDEV => "it lies on another file system",
        Errno::BUSY => "it is a mount point, and stays what it is",
        Errno::ROFS => "the file system is read-only",
        Errno::NOSPC | Errno::DQUOT => "no space is left on the disk",
        Errno::NOTEMPTY => "the directory is not empty",
        Errno::NOSYS => {
            "this kernel lacks openat2 (Linux 5.6), without which paths cannot be opened safely"
        }
        error => return format!("{}: {error}", shown(path)),
    };
    format!("{}: {reason}", shown(path))
}

/// A path as messages show it: what a model made up at length is not said back to it at length.
fn shown(path: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 200;
    match path.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.into(),
    }
}

/// The name of a directory's entry.
pub(super) fn name(entry: &rustix::fs::DirEntry) -> &Path {
    Path::new(OsStr::from_bytes(entry.file_name().to_bytes()))
}
