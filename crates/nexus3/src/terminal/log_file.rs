//! The log of a server that a terminal started: a file, since the screen is the terminal's.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nexus_core::visible;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::output::complain;

const DIRECTORY: &str = "logs";
const FILE: &str = "server.log";

/// The one before, and from which size on a start begins another.
const OLD: &str = "server.log.old";
const BYTES_MAX: i64 = 10 << 20;

/// Makes the file this program's standard error, and returns what was that before. Where there can be no such file there
/// is no log: a name that somebody else took must not keep the server from its work.
pub fn redirect(home: &Path) -> io::Result<OwnedFd> {
    let person = io::stderr().as_fd().try_clone_to_owned()?;
    let log = open(home).or_else(|error| {
        let path = home.join(DIRECTORY).join(FILE);
        let why = format!("Warning: no log is kept: {}: {error}", path.display());
        complain(visible::text(&why));
        Ok::<_, io::Error>(std::fs::File::options().write(true).open("/dev/null")?.into())
    })?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(person)
}

/// Opens the log at its end. No link is followed below the home.
fn open(home: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    let home = rustix::fs::open(home, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::fs::mkdirat(&home, DIRECTORY, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let logs = rustix::fs::openat(&home, DIRECTORY, flags, Mode::empty())?;
    let (log, bytes) = open_in(&logs)?;
    if bytes < BYTES_MAX {
        return Ok(log);
    }
    rustix::fs::renameat(&logs, FILE, &logs, OLD)?;
    Ok(open_in(&logs)?.0)
}

/// The log, and how large it is.
fn open_in(logs: &OwnedFd) -> io::Result<(OwnedFd, i64)> {
    // One that another program reads would wait for it here.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let log = rustix::fs::openat(logs, FILE, flags, Mode::RUSR | Mode::WUSR)?;
    let found = rustix::fs::fstat(&log)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 1 {
        return Err(io::Error::other("it is no file of its own"));
    }
    rustix::fs::fchmod(&log, Mode::RUSR | Mode::WUSR)?;
    Ok((log, found.st_size))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn what_was_logged_stays_and_nobody_else_reads_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("logs/server.log");
        for line in ["one\n", "two\n"] {
            fs::File::from(open(home.path()).unwrap()).write_all(line.as_bytes()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        open(home.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn one_that_is_too_long_is_put_aside() {
        let home = tempfile::tempdir().unwrap();
        let logs = home.path().join("logs");
        let old = |bytes: i64| {
            let log = fs::File::from(open(home.path()).unwrap());
            log.set_len(bytes as u64).unwrap();
            open(home.path()).unwrap();
            fs::metadata(logs.join("server.log.old")).map(|old| old.len()).ok()
        };
        assert_eq!(old(BYTES_MAX - 1), None);
        assert_eq!(old(BYTES_MAX), Some(BYTES_MAX as u64));
        assert_eq!(fs::read(logs.join("server.log")).unwrap(), b"");
        assert_eq!(old(BYTES_MAX + 1), Some(BYTES_MAX as u64 + 1));
    }

    #[test]
    fn links_lead_nowhere() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path(), home.path().join("logs")).unwrap();
        open(home.path()).unwrap_err();
        fs::remove_file(home.path().join("logs")).unwrap();
        fs::create_dir(home.path().join("logs")).unwrap();
        let target = other.path().join("target");
        fs::write(&target, "").unwrap();
        symlink(&target, home.path().join("logs/server.log")).unwrap();
        open(home.path()).unwrap_err();
        fs::remove_file(home.path().join("logs/server.log")).unwrap();
        fs::hard_link(&target, home.path().join("logs/server.log")).unwrap();
        open(home.path()).unwrap_err();
        assert_eq!(fs::read(&target).unwrap(), b"");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
    }
}
