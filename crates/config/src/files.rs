//! Reading files that a stranger may have put there: a project's configuration and instructions. Only regular files,
//! never more than asked for, and never waiting on a pipe.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

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

/// As [`read_regular`], for the file `name` in `dir`. A symbolic link that leads out of `dir` is refused: a
/// repository must not make us read its owner's private files.
pub fn read_beneath(dir: &Path, name: &str, bytes_max: u64) -> io::Result<Option<Contents>> {
    let opened =
        rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|dir| open_beneath(&dir, name));
    match opened {
        Ok(fd) => read(fd, bytes_max).map(Some),
        Err(error) => absent(error),
    }
}

/// The `depth` directories above `dir`, farthest first. One that everybody may write to (`/tmp`) is left out: there,
/// any user of the machine could leave instructions for our agents.
pub fn ancestors(dir: &Path, depth: usize) -> Vec<PathBuf> {
    let shared =
        |dir: &Path| dir.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0);
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

fn open_beneath(dir: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(dir, name, READ, Mode::empty(), resolve) {
            // Kernels before 5.6 and some sandboxes lack the call.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            opened => return opened,
        }
    }
    rustix::fs::openat(dir, name, READ | OFlags::NOFOLLOW, Mode::empty())
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

fn absent(error: rustix::io::Errno) -> io::Result<Option<Contents>> {
    match error {
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => Ok(None),
        error => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
    fn a_link_may_lead_inside_the_directory_but_not_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("repo");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(root.path().join("secret"), "key").unwrap();
        std::fs::write(dir.join("real"), "fine").unwrap();
        symlink("real", dir.join("inside")).unwrap();
        symlink("../secret", dir.join("outside")).unwrap();
        symlink(root.path().join("secret"), dir.join("absolute")).unwrap();
        symlink("/dev/stdin", dir.join("device")).unwrap();
        assert_eq!(text(read_beneath(&dir, "inside", 10).unwrap()), Some(("fine".into(), false)));
        for name in ["outside", "absolute", "device"] {
            assert!(read_beneath(&dir, name, 10).is_err(), "{name}");
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
