//! Paths that come in as text, made absolute and free of symlinks and `..` before they become a permission.

use std::io;
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    #[error("{path}: {reason}")]
    Unusable { path: String, reason: String },
    #[error("{0} is not a directory")]
    NotADirectory(String),
    #[error("{0}: a path that does not exist yet may not contain '..'")]
    ParentOfMissing(String),
}

/// The existing directory `path`, relative to `base`. Touches the disk: not for async threads.
pub fn directory(base: &Path, path: &str) -> Result<PathBuf, PathError> {
    let found = base.join(path).canonicalize().map_err(|error| unusable(path, &error))?;
    if found.is_dir() { Ok(found) } else { Err(PathError::NotADirectory(path.into())) }
}

/// The place `path`, relative to `base`, which need not exist yet: what exists of it is resolved, the rest is kept.
pub fn place(base: &Path, path: &str) -> Result<PathBuf, PathError> {
    let full = base.join(path);
    let mut existing = full.as_path();
    let mut missing = Vec::new();
    loop {
        match existing.canonicalize() {
            Ok(found) => return Ok(missing.iter().rev().fold(found, |path, part| path.join(part))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unusable(path, &error)),
        }
        // A dangling symlink would lead elsewhere once its target exists.
        if existing.symlink_metadata().is_ok() {
            return Err(PathError::Unusable {
                path: path.into(),
                reason: "a link that leads nowhere".into(),
            });
        }
        match (existing.components().next_back(), existing.parent()) {
            (Some(Component::Normal(part)), Some(parent)) => {
                missing.push(part.to_owned());
                existing = parent;
            }
            _ => return Err(PathError::ParentOfMissing(path.into())),
        }
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
