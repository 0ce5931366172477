//! Which directories a person has trusted: a list of canonical paths in `trusted.json` of the home.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::{ConfigError, layers};

/// Lets the configuration of `dir` set every key. Returns the path that is trusted from now on.
pub fn trust(home: &Path, dir: &Path) -> Result<PathBuf, ConfigError> {
    let dir = dir.canonicalize().map_err(|source| read_error(dir, source))?;
    if !dir.is_dir() {
        return Err(read_error(&dir, io::ErrorKind::NotADirectory.into()));
    }
    if dir.to_str().is_none() {
        return Err(read_error(
            &dir,
            io::Error::new(io::ErrorKind::InvalidInput, "the path is not UTF-8"),
        ));
    }
    change(home, |list| {
        if !list.contains(&dir) {
            list.push(dir.clone());
        }
    })?;
    Ok(dir)
}

/// Takes the trust back; whether there was any. The directory may be gone by now.
pub fn untrust(home: &Path, dir: &Path) -> Result<bool, ConfigError> {
    let dir = dir
        .canonicalize()
        .or_else(|_| std::path::absolute(dir))
        .map_err(|source| read_error(dir, source))?;
    let mut was_trusted = false;
    change(home, |list| {
        was_trusted = list.contains(&dir);
        list.retain(|path| *path != dir);
    })?;
    Ok(was_trusted)
}

/// The directories that are trusted, in the order they were named.
pub fn trusted(home: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let file = home.join(LIST);
    match layers::read_config(&file)? {
        Some(bytes) => layers::parse(&file, &bytes),
        None => Ok(Vec::new()),
    }
}

const LIST: &str = "trusted.json";

/// Two commands at once must not lose each other's entry, and a crash must not leave half a list: the change is made
/// under a lock, in a new file that takes the place of the old one.
fn change(home: &Path, edit: impl FnOnce(&mut Vec<PathBuf>)) -> Result<(), ConfigError> {
    let write = |source| ConfigError::Write { file: home.join(LIST), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(write)?;
    let lock = private(&home.join("trusted.lock")).map_err(write)?;
    lock.lock().map_err(write)?;

    let before = trusted(home)?;
    let mut after = before.clone();
    edit(&mut after);
    if after == before {
        return Ok(());
    }
    replace(home, &after).map_err(write)
}

fn replace(home: &Path, list: &[PathBuf]) -> io::Result<()> {
    let new = home.join("trusted.json.new");
    let mut file = private(&new)?;
    file.write_all(&serde_json::to_vec_pretty(list)?)?;
    file.sync_all()?;
    fs::rename(&new, home.join(LIST))?;
    File::open(home)?.sync_all()
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn read_error(path: &Path, source: io::Error) -> ConfigError {
    ConfigError::Read { file: path.to_path_buf(), source }
}
