//! Reading files that a stranger may have put there: a project's configuration and instructions. Only regular files,
//! never more than asked for, and never waiting on a pipe.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The start of a file.
pub struct Contents {
    pub bytes: Vec<u8>,
    /// There was more than the caller allowed.
    pub cut: bool,
}

/// Reads up to `bytes_max` bytes of a regular file; nothing when there is no such file.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Option<Contents>> {
    match rustix::fs::open(path, READ, Mode::empty()) {
        Ok(fd) => read(fd, bytes_max).map(Some),
        Err(error) => absent(error),
    }
}

/// As [`read_regular`], for the file `name` beneath `dir`, whose path is free of links, as `name` must be. Agents and
/// their commands write there: a link of theirs must not make us read for them what they may not, such as another
/// file of the directory that is closed to them. Nor does a file count that another user left where everybody may
/// write.
pub fn read_beneath(dir: &Path, name: &str, bytes_max: u64) -> io::Result<Option<Contents>> {
    match open_beneath(dir, name) {
        Ok(fd) => read(fd, bytes_max).map(Some),
        Err(error) => match Errno::from_io_error(&error) {
            Some(errno) => absent(errno),
            None => Err(error),
        },
    }
}

/// The `depth` directories above `dir`, farthest first. One that everybody may write to (`/tmp`) is left out: there,
/// any user of the machine could leave instructions for our agents.
pub fn ancestors(dir: &Path, depth: usize) -> Vec<PathBuf> {
    let shared = |dir: &Path| dir.metadata().is_ok_and(|meta| is_shared(meta.mode()));
    let mut found: Vec<PathBuf> = dir
        .ancestors()
        .skip(1)
        .take(depth)
        .filter(|dir| !shared(dir))
        .map(Path::to_path_buf)
        .collect();
    found.reverse();
    found
}

/// Without `NONBLOCK`, opening a named pipe would wait for a writer for ever.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

fn open_beneath(dir: &Path, name: &str) -> io::Result<OwnedFd> {
    const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let links = ResolveFlags::NO_SYMLINKS;
    let mut at = rustix::fs::openat2(CWD, dir, DIRECTORY, Mode::empty(), links).map_err(explain)?;
    let mut names = Path::new(name).iter().peekable();
    while let Some(name) = names.next() {
        let flags = if names.peek().is_some() { DIRECTORY } else { READ };
        let links = links | ResolveFlags::BENEATH;
        let next = rustix::fs::openat2(&at, name, flags, Mode::empty(), links).map_err(explain)?;
        let (around, found) = (rustix::fs::fstat(&at)?, rustix::fs::fstat(&next)?);
        let us = rustix::process::geteuid().as_raw();
        if is_shared(around.st_mode) && ![us, 0].contains(&found.st_uid) {
            return Err(refused(
                "it belongs to another user, in a directory that everybody may write to",
            ));
        }
        at = next;
    }
    Ok(at)
}

fn is_shared(mode: u32) -> bool {
    mode & 0o002 != 0
}

fn explain(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => refused("it is a link, or lies behind one, which is not followed here"),
        error => error.into(),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn read(fd: OwnedFd, bytes_max: u64) -> io::Result<Contents> {
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::from(fd).take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    let limit = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let cut = bytes.len() > limit;
    bytes.truncate(limit);
    Ok(Contents { bytes, cut })
}

fn absent(error: Errno) -> io::Result<Option<Contents>> {
    match error {
        Errno::NOENT | Errno::NOTDIR => Ok(None),
        error => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn text(contents: Option<Contents>) -> Option<(String, bool)> {
        contents.map(|it| (String::from_utf8(it.bytes).unwrap(), it.cut))
    }

    #[test]
    fn reads_no_more_than_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(text(read_regular(&path, 5).unwrap()), Some(("12345".into(), false)));
        assert_eq!(text(read_regular(&path, 4).unwrap()), Some(("1234".into(), true)));
        assert_eq!(text(read_regular(&path.join("under a file"), 4).unwrap()), None);
        assert_eq!(text(read_regular(&dir.path().join("missing"), 4).unwrap()), None);
    }

    #[test]
    fn a_pipe_a_device_and_a_directory_are_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [pipe.as_path(), dir.path(), Path::new("/dev/zero")] {
            let error = read_regular(path, 10).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert!(read_beneath(dir.path(), "pipe", 10).is_err());
    }

    #[test]
    fn no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let dir = root.join("repo");
        std::fs::create_dir_all(dir.join(".nexus3")).unwrap();
        for file in ["repo/real", "repo/.nexus3/config.json", "secret"] {
            std::fs::write(root.join(file), "fine").unwrap();
        }
        symlink("real", dir.join("inside")).unwrap();
        symlink("../secret", dir.join("outside")).unwrap();
        symlink(root.join("secret"), dir.join("absolute")).unwrap();
        symlink("/dev/stdin", dir.join("device")).unwrap();
        symlink(".nexus3", dir.join("behind")).unwrap();
        symlink(&dir, root.join("elsewhere")).unwrap();
        for name in ["real", ".nexus3/config.json"] {
            let found = text(read_beneath(&dir, name, 10).unwrap());
            assert_eq!(found, Some(("fine".into(), false)), "{name}");
            assert!(read_beneath(&root.join("elsewhere"), name, 10).is_err(), "{name}");
        }
        for name in ["inside", "outside", "absolute", "device", "behind/config.json", "../secret"] {
            assert!(read_beneath(&dir, name, 10).is_err(), "{name}");
        }
        for name in ["missing", "missing/config.json", "real/config.json"] {
            assert!(read_beneath(&dir, name, 10).unwrap().is_none(), "{name}");
        }
    }

    #[test]
    fn what_another_user_left_where_everybody_may_write_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join(".nexus3")).unwrap();
        for file in ["NEXUS.md", ".nexus3/config.json"] {
            std::fs::write(root.join(file), "fine").unwrap();
        }
        let given = [".nexus3", "NEXUS.md"].map(|name| chown(root.join(name), Some(65_534), None));
        if given.iter().any(Result::is_err) {
            eprintln!("only root can give files away: not tried");
            return;
        }
        for (mode, refused) in [(0o755, false), (0o1777, true)] {
            std::fs::set_permissions(&root, std::fs::Permissions::from_mode(mode)).unwrap();
            for name in ["NEXUS.md", ".nexus3/config.json"] {
                let read = read_beneath(&root, name, 10);
                assert_eq!(read.is_err(), refused, "{mode:o} {name}");
            }
        }
    }

    #[test]
    fn ancestors_come_farthest_first_and_without_shared_directories() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("a/b"));
        std::fs::create_dir_all(b.join("c")).unwrap();
        assert_eq!(ancestors(&b.join("c"), 2), [a.clone(), b.clone()]);
        assert_eq!(ancestors(&b.join("c"), 0), Vec::<PathBuf>::new());
        std::fs::set_permissions(&b, std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(ancestors(&b.join("c"), 2), [a]);
        assert_eq!(ancestors(Path::new("/"), 2), Vec::<PathBuf>::new());
    }
}
