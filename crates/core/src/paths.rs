//! Paths that come in as text, made absolute and free of symlinks and `..` before they become a permission.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    #[error("{path}: {reason}")]
    Unusable { path: String, reason: String },
    #[error("{0} is not a directory")]
    NotADirectory(String),
    #[error("{0}: a path that does not exist yet may not contain '..'")]
    ParentOfMissing(String),
    #[error("{0} leads through a link of the kernel's (/proc, /sys, /dev), which is not followed")]
    KernelLink(String),
}

/// The existing directory `path`, relative to `base`. Touches the disk: not for async threads.
pub fn directory(base: &Path, path: &str) -> Result<PathBuf, PathError> {
    let found = place(base, path)?;
    match found.metadata() {
        Ok(meta) if meta.is_dir() => Ok(found),
        Ok(_) => Err(PathError::NotADirectory(path.into())),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// The place `path`, relative to `base`, which need not exist yet: what exists of it is resolved, the rest is kept.
///
/// Walked name by name, not by `canonicalize`, which would follow `/proc/self/root` and its like out of `/proc` again:
/// those lead wherever a process happens to be, and no tool follows them.
pub fn place(base: &Path, path: &str) -> Result<PathBuf, PathError> {
    /// As many as the kernel follows.
    const LINKS_MAX: usize = 40;
    let unusable = |error| unusable(path, &error);
    if path.contains('\0') {
        return Err(unusable(io::ErrorKind::InvalidInput.into()));
    }
    let mut steps = Steps::default();
    steps.push(&base.join(path), false);
    let (mut real, mut links) = (PathBuf::from("/"), 0);
    while let Some((step, of_link)) = steps.0.pop() {
        let name = match step {
            Step::Root => {
                real = PathBuf::from("/");
                continue;
            }
            // Of a file there is no parent to be had this way.
            Step::Parent => match real.metadata().map_err(unusable)?.is_dir() {
                true => {
                    real.pop();
                    continue;
                }
                false => return Err(unusable(io::ErrorKind::NotADirectory.into())),
            },
            Step::Name(name) => name,
        };
        real.push(&name);
        match fs::read_link(&real) {
            Ok(_) if links == LINKS_MAX => {
                return Err(PathError::Unusable {
                    path: path.into(),
                    reason: "too many links".into(),
                });
            }
            Ok(_) if of_kernel(&real) => return Err(PathError::KernelLink(path.into())),
            Ok(target) => {
                links += 1;
                real.pop();
                steps.push(&target, true);
            }
            // It is there and no link.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            // A dangling symlink would lead elsewhere once its target exists.
            Err(error) if error.kind() == io::ErrorKind::NotFound && of_link => {
                return Err(PathError::Unusable {
                    path: path.into(),
                    reason: "a link that leads nowhere".into(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return steps.missing(real).ok_or_else(|| PathError::ParentOfMissing(path.into()));
            }
            Err(error) => return Err(unusable(error)),
        }
    }
    Ok(real)
}

/// What `path`, absolute, says of itself: without `.` and `..`, and whatever links are in it.
pub fn lexical(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut found, component| {
        match component {
            Component::ParentDir => drop(found.pop()),
            component => found.push(component),
        }
        found
    })
}

/// Whether a place, absolute and without links, belongs to the kernel's own trees: processes with their environments,
/// kernel settings, devices. Memory that is lent out as files (`/dev/shm`) does not. Touches the disk.
pub fn of_kernel(place: &Path) -> bool {
    if place.starts_with("/dev/shm") {
        return false;
    }
    if ["/proc", "/sys", "/dev"].iter().any(|tree| place.starts_with(tree)) {
        return true;
    }
    // The same trees, mounted elsewhere as for a chroot, are the same devices.
    static DEVICES: OnceLock<Vec<u64>> = OnceLock::new();
    let device = |path: &Path| path.symlink_metadata().ok().map(|meta| meta.dev());
    let devices = DEVICES.get_or_init(|| {
        let root = device(Path::new("/"));
        let trees = ["/proc", "/sys"].into_iter().filter_map(|tree| device(Path::new(tree)));
        // Where nothing is mounted there, they are plain directories.
        trees.filter(|tree| Some(*tree) != root).collect()
    });
    place.ancestors().find_map(device).is_some_and(|device| devices.contains(&device))
}

/// What is left of a path to walk, the next step last; and whether a link said so.
#[derive(Default)]
struct Steps(Vec<(Step, bool)>);

enum Step {
    Root,
    Parent,
    Name(OsString),
}

impl Steps {
    fn push(&mut self, path: &Path, of_link: bool) {
        let steps = path.components().rev().filter_map(|component| match component {
            Component::RootDir => Some(Step::Root),
            Component::ParentDir => Some(Step::Parent),
            Component::Normal(name) => Some(Step::Name(name.to_owned())),
            Component::CurDir | Component::Prefix(_) => None,
        });
        self.0.extend(steps.map(|step| (step, of_link)));
    }

    /// What is left, beneath a place that does not exist.
    fn missing(self, real: PathBuf) -> Option<PathBuf> {
        self.0.into_iter().rev().try_fold(real, |real, (step, _)| match step {
            Step::Name(name) => Some(real.join(name)),
            Step::Root | Step::Parent => None,
        })
    }
}

fn unusable(path: &str, error: &io::Error) -> PathError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ if path.contains('\0') => "a path may not contain NUL".into(),
        kind => kind.to_string(),
    };
    PathError::Unusable { path: path.replace('\0', "\\0"), reason }
}
