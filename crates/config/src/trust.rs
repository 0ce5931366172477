//! Which directories a person has trusted, and with what in them: a list in `trusted.json` of the home.
//!
//! Trust is in what the person could see. An agent that writes in a trusted directory, or a `git pull`, can change its
//! configuration; from then on it is a stranger's again, until it is trusted anew.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nexus_core::mcp::ServerEntry;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{ConfigError, layers, mcp};

/// The files of a directory that take effect at a start, and so are trusted as they are: the first two in its `.nexus3`.
const FILES: [&str; 3] = ["config.json", layers::SERVERS, layers::SHARED_SERVERS];

/// Whom a person has trusted.
pub(super) struct Trust(Vec<Entry>);

/// What a file is to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrustState {
    Trusted,
    /// Its directory is trusted, but the file is not what it was then.
    Changed,
    Untrusted,
}

impl Trust {
    pub fn read(home: &Path) -> Result<Self, ConfigError> {
        let file = home.join(LIST);
        Ok(Self(match layers::read_config(&file)? {
            Some(bytes) => layers::parse(&file, &bytes)?,
            None => Vec::new(),
        }))
    }

    /// What the file `name` of `dir` is, with these contents.
    pub fn standing(&self, dir: &Path, name: &str, bytes: &[u8]) -> TrustState {
        match self.0.iter().find(|entry| entry.dir == dir) {
            None => TrustState::Untrusted,
            Some(entry) if entry.files.get(name) == Some(&digest(bytes)) => TrustState::Trusted,
            Some(_) => TrustState::Changed,
        }
    }
}

/// A directory, and the digests of those of [`FILES`] that it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
struct Entry {
    dir: PathBuf,
    files: BTreeMap<String, String>,
}

/// An entry as it may stand in the list: once these were paths alone, which say nothing of what was seen there.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Entry { dir: PathBuf, files: BTreeMap<String, String> },
    Path(PathBuf),
}

impl From<Written> for Entry {
    fn from(written: Written) -> Self {
        match written {
            Written::Entry { dir, files } => Self { dir, files },
            Written::Path(dir) => Self { dir, files: BTreeMap::new() },
        }
    }
}

/// The MCP servers that trust in `dir` would let agents use.
pub fn servers(dir: &Path, user_home: Option<&Path>) -> Result<Vec<ServerEntry>, ConfigError> {
    let dir = dir.canonicalize().map_err(|source| read_error(dir, source))?;
    mcp::resolve(&layers::servers_of_project(&dir)?, user_home)
}

/// Lets the configuration of `dir`, as it is now, set every key. Returns the path that is trusted from now on.
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
    let mut files = BTreeMap::new();
    for name in FILES {
        if let Some(bytes) = layers::read_project(&dir, name)? {
            files.insert(name.to_owned(), digest(&bytes));
        }
    }
    change(home, |list| match list.iter_mut().find(|entry| entry.dir == dir) {
        Some(entry) => entry.files = files,
        None => list.push(Entry { dir: dir.clone(), files }),
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
        was_trusted = list.iter().any(|entry| entry.dir == dir);
        list.retain(|entry| entry.dir != dir);
    })?;
    Ok(was_trusted)
}

/// The directories that are trusted, in the order they were named.
pub fn trusted(home: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    Ok(Trust::read(home)?.0.into_iter().map(|entry| entry.dir).collect())
}

const LIST: &str = "trusted.json";

/// Two commands at once must not lose each other's entry, and a crash must not leave half a list: the change is made
/// under a lock, in a new file that takes the place of the old one.
fn change(home: &Path, edit: impl FnOnce(&mut Vec<Entry>)) -> Result<(), ConfigError> {
    let write = |source| ConfigError::Write { file: home.join(LIST), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(write)?;
    let lock = private(&home.join("trusted.lock")).map_err(write)?;
    lock.lock().map_err(write)?;

    let Trust(before) = Trust::read(home)?;
    let mut after = before.clone();
    edit(&mut after);
    if after == before {
        return Ok(());
    }
    replace(home, &after).map_err(write)
}

fn replace(home: &Path, list: &[Entry]) -> io::Result<()> {
    let new = home.join("trusted.json.new");
    let mut file = private(&new)?;
    file.write_all(&serde_json::to_vec_pretty(list)?)?;
    file.sync_all()?;
    fs::rename(&new, home.join(LIST))?;
    File::open(home)?.sync_all()
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn read_error(path: &Path, source: io::Error) -> ConfigError {
    ConfigError::Read { file: path.to_path_buf(), source }
}
