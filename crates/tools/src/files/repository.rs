//! Directories that git takes for a repository because of what lies in them, whatever they are called. Their settings and
//! hooks name programs that run when a person types `git status` there, as those of a `.git` directory do, which the gate
//! watches over.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD};

/// The entries of a directory by which git knows a repository: `HEAD`, and either `objects` and `refs` or `commondir`,
/// which says where those two are.
const MARKS: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Refuses a directory that is a repository not called `.git`, or lies in one.
pub(super) fn refuse_within(path: &str, dir: &Path) -> Result<(), String> {
    match dir.ancestors().any(|dir| is_repository(|mark| exists(CWD, &dir.join(mark)))) {
        true => Err(format!(
            "{path} lies in a bare git repository, where git finds programs to run: use git"
        )),
        false => Ok(()),
    }
}

/// Refuses `name` in `dir` if the directory would become a repository by it. Otherwise nobody else makes it one while the
/// guard lives.
pub(super) fn refuse_made(
    path: &str,
    dir: impl AsFd,
    name: &OsStr,
) -> Result<Option<MutexGuard<'static, ()>>, String> {
    static MAKING: Mutex<()> = Mutex::new(());
    // Some file systems do not tell cases apart.
    let is_new = |mark: &str| name.eq_ignore_ascii_case(mark);
    if !MARKS.iter().any(|mark| is_new(mark)) {
        return Ok(None);
    }
    let guard = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    match is_repository(|mark| is_new(mark) || exists(dir.as_fd(), Path::new(mark))) {
        true => Err(format!(
            "with {path} git would take the directory for a repository, whose settings name programs to run: use git init"
        )),
        false => Ok(Some(guard)),
    }
}

fn is_repository(has: impl Fn(&str) -> bool) -> bool {
    let [head, objects, refs, common] = MARKS;
    has(head) && (has(objects) && has(refs) || has(common))
}

fn exists(dir: impl AsFd, name: &Path) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
