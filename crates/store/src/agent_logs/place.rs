//! Where logs lie: directories and files by handle, and only ours.
//!
//! Whoever else can write where logs were asked for, an agent's command or another user, can lay a link in place of a
//! directory, or a file of his own in place of a log. So no link is followed, nothing is renamed but within a directory
//! that was opened before, and what belongs to another user is neither written nor moved.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// A directory of ours.
pub(super) struct Directory(OwnedFd);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Directory {
    /// Opens the directory, made where it is missing. No part of its path may be a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        ours(reach(path).map_err(explain)?)
    }

    /// Opens a directory in this one, made where it is missing.
    pub fn enter(&self, name: &str) -> io::Result<Self> {
        ours(enter(&self.0, name).map_err(explain)?)
    }

    /// Opens a file in this directory to append to, made where it is missing, and says how long it is.
    pub fn append(&self, name: &str) -> io::Result<(File, u64)> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
        // Without `NONBLOCK`, opening a named pipe would wait for a reader for ever.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(explain)?;
        let stat = rustix::fs::fstat(&file)?;
        check_owner(&stat)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused("it is not a regular file"));
        }
        // Under its other name it may be anything, and not meant to be written to.
        if stat.st_nlink > 1 {
            return Err(refused("it has a second name elsewhere"));
        }
        Ok((File::from(file), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Gives a directory in this one another name. Where there is none, or the name is taken, nothing happens.
    pub fn rename_directory(&self, from: &str, to: &str) -> io::Result<()> {
        match rustix::fs::openat(&self.0, from, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(directory) => drop(ours(directory)?),
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(explain(error)),
        }
        match rustix::fs::renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT | Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a file in this directory another name, whose file is gone then.
    pub fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }
}

/// The directories above a log may be anybody's.
fn reach(path: &Path) -> rustix::io::Result<OwnedFd> {
    let links = ResolveFlags::NO_SYMLINKS;
    let opened = rustix::fs::openat2(rustix::fs::CWD, path, DIRECTORY, Mode::empty(), links);
    match (&opened, path.parent(), path.file_name()) {
        (Err(Errno::NOENT), Some(parent), Some(name)) => enter(&reach(parent)?, name),
        _ => opened,
    }
}

fn enter(parent: &OwnedFd, name: impl rustix::path::Arg + Copy) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    rustix::fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

fn ours(directory: OwnedFd) -> io::Result<Directory> {
    check_owner(&rustix::fs::fstat(&directory)?)?;
    Ok(Directory(directory))
}

fn check_owner(stat: &Stat) -> io::Result<()> {
    if stat.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(refused(&format!("it belongs to another user ({})", stat.st_uid)))
}

fn explain(error: Errno) -> io::Error {
    match error {
        // The kernel says this of a directory that a link stands in for.
        Errno::LOOP | Errno::NOTDIR => refused("a link or a file is in the way"),
        error => error.into(),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
