//! Files that commands write where agents can write too: no link is followed, and nothing is replaced unasked.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Where a file is, or is to be: its directory, opened, and its name there.
pub struct Target {
    directory: OwnedFd,
    name: String,
}

/// What is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    Nothing,
    File,
    /// A link, a directory, a device: nothing that could be replaced.
    Other,
}

impl Target {
    /// Beneath `base` no link is followed on the way; the directories of an absolute path are the person's own words.
    pub fn new(base: &Path, path: &Path) -> io::Result<Self> {
        let nameless = || io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file");
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(nameless)?;
        let mut directory = match path.is_absolute() {
            true => open(path.parent().unwrap_or(base))?,
            false => open(base)?,
        };
        let parents = path.parent().filter(|_| !path.is_absolute());
        for step in parents.into_iter().flat_map(Path::components) {
            if let Component::Normal(_) | Component::ParentDir = step {
                let flags = DIRECTORY | OFlags::NOFOLLOW;
                let step = step.as_os_str();
                directory = rustix::fs::openat(&directory, step, flags, Mode::empty())?;
            }
        }
        Ok(Self { directory, name: name.into() })
    }

    /// The directory of that name in `base`, made if it is not there, and a name in it.
    pub fn within(base: &Path, directory: &str, name: &str) -> io::Result<Self> {
        let base = open(base)?;
        match rustix::fs::mkdirat(&base, directory, Mode::from(0o700)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let directory = rustix::fs::openat(&base, directory, flags, Mode::empty())?;
        Ok(Self { directory, name: name.into() })
    }

    pub fn there(&self) -> io::Result<There> {
        match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {
                Ok(There::File)
            }
            Ok(_) => Ok(There::Other),
            Err(rustix::io::Errno::NOENT) => Ok(There::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// A file beside it, which takes its place when all is written.
    pub fn draft(self, mode: u32) -> io::Result<Draft> {
        let random = getrandom::u64().map_err(io::Error::other)?;
        let beside = format!(".nexus3-{random:016x}");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, &beside, flags, Mode::from(mode))?;
        Ok(Draft { file: file.into(), place: self, beside })
    }
}

/// A file that is being written, and goes unless it is kept.
pub struct Draft {
    file: File,
    place: Target,
    beside: String,
}

impl Draft {
    /// Puts it in its place. What is there already is replaced, a link by itself and not where it leads; unless nothing
    /// may be, and then the draft goes.
    pub fn keep(mut self, may_replace: bool) -> io::Result<()> {
        self.file.flush()?;
        let directory = &self.place.directory;
        let (from, to) = (&self.beside, &self.place.name);
        if may_replace {
            return Ok(rustix::fs::renameat(directory, from, directory, to)?);
        }
        match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
            // NFS cannot rename so, but has links; where there are no links, files can be renamed so.
            Err(rustix::io::Errno::INVAL) => {
                Ok(rustix::fs::linkat(directory, from, directory, to, AtFlags::empty())?)
            }
            renamed => Ok(renamed?),
        }
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is none.
        let _ = rustix::fs::unlinkat(&self.place.directory, &self.beside, AtFlags::empty());
    }
}

fn open(directory: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(directory, DIRECTORY, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody may have put a file there after it was looked for.
    #[test]
    fn a_file_that_came_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let draft = |text: &str| {
            let place = Target::new(dir.path(), Path::new("file")).unwrap();
            assert!(place.there().is_ok());
            let mut draft = place.draft(0o600).unwrap();
            draft.write_all(text.as_bytes()).unwrap();
            draft
        };
        let late = draft("late");
        draft("first").keep(false).unwrap();
        assert_eq!(late.keep(false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "first");
        draft("second").keep(true).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "second");
        drop(draft("dropped"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
