//! The files a configuration is made of: found, read, checked one by one, then merged into one.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::ConfigError;
use super::mcp::{self, Project, Source};
use super::schema::{File, UNTRUSTED_KEYS};
use super::terminal;
use super::trust::{Trust, TrustState};
use super::value::Object;
use crate::files;

/// More than any configuration needs, and little enough to read at every start.
pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Where a project keeps its own files, and the first of them.
pub(super) const PROJECT: &str = ".nexus3";
const CONFIG: &str = "config.json";

/// Where MCP servers stand beside it, and where other programs have them in a project.
pub(super) const SERVERS: &str = "mcp.json";
pub(super) const SHARED_SERVERS: &str = ".mcp.json";

/// The key of a configuration that they stand under.
const SERVERS_KEY: &str = "mcp_servers";

/// How many directories above the working directory are looked into, for configuration and, unless told otherwise,
/// for instructions.
pub(super) const ANCESTORS: usize = 2;

/// One file, known to be valid by itself.
#[derive(Debug)]
struct Layer {
    file: PathBuf,
    keys: Map<String, Value>,
}

/// All files that apply, weakest first.
#[derive(Debug)]
pub(super) struct Layers {
    files: Vec<Layer>,
    /// What they and those beside them say of MCP servers, which are not merged key by key.
    servers: Vec<Source>,
}

impl Layers {
    pub fn read(home: &Path, cwd: &Path) -> Result<Self, ConfigError> {
        let mut layers = Self { files: Vec::new(), servers: Vec::new() };
        layers.add(home, None)?;
        let trust = Trust::read(home)?;
        let directories = project_directories(home, cwd)?;
        if let Some(cwd) =
            directories.last().filter(|it| cwd.canonicalize().is_ok_and(|cwd| cwd == **it))
        {
            // Weaker than what is meant for this program alone.
            layers.servers.extend(read_servers(cwd, SHARED_SERVERS, Some(&trust))?);
        }
        for dir in &directories {
            layers.add(&dir.join(PROJECT), Some((&trust, dir)))?;
        }
        Ok(layers)
    }

    /// Adds the files of one directory; `project` says whose it is, unless it is the user's own, and whom the user trusts.
    fn add(&mut self, place: &Path, project: Option<(&Trust, &Path)>) -> Result<(), ConfigError> {
        if let Some((layer, servers)) = read_layer(&place.join(CONFIG), project)? {
            self.files.push(layer);
            self.servers.extend(servers);
        }
        let (dir, trust) = match project {
            Some((trust, dir)) => (dir, Some(trust)),
            None => (place, None),
        };
        self.servers.extend(read_servers(dir, SERVERS, trust)?);
        Ok(())
    }

    pub fn servers(&self) -> &[Source] {
        &self.servers
    }

    /// The layers as one file: objects are merged, everything else is replaced, null takes the key away.
    pub fn merge(&self) -> Result<File, ConfigError> {
        let mut merged = Map::new();
        for layer in &self.files {
            apply(&mut merged, &layer.keys);
        }
        // Each layer was decoded by itself, so this can only fail in ways the user did not cause.
        decode(Value::Object(merged)).map_err(|(key, reason)| self.blame(&[&key], reason))
    }

    /// An error about a key, with the file that set it. A rule between several keys is only broken once all layers
    /// are merged; the strongest layer that has the key is the one to look into.
    pub fn blame(&self, key: &[&str], reason: String) -> ConfigError {
        let sets = |layer: &Layer, key: &[&str]| match key {
            [first, rest @ ..] => rest
                .iter()
                .try_fold(layer.keys.get(*first)?, |value, part| value.get(part))
                .map(drop),
            [] => None,
        };
        let prefixes = (1..=key.len()).rev().map(|count| &key[..count]);
        let mut files = prefixes
            .filter_map(|key| self.files.iter().rev().find(|layer| sets(layer, key).is_some()));
        ConfigError::Key {
            file: files.next().map(|layer| layer.file.clone()).unwrap_or_default(),
            key: key.join("."),
            reason,
        }
    }
}

/// The ancestors and the working directory itself, without the one whose `.nexus3` is the home: that file is read
/// already, and as the user's own.
fn project_directories(home: &Path, cwd: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let cwd = cwd
        .canonicalize()
        .map_err(|source| ConfigError::Read { file: cwd.to_path_buf(), source })?;
    let home = home.canonicalize().ok();
    let mut directories = files::ancestors(&cwd, ANCESTORS);
    directories.push(cwd);
    directories.retain(|dir| home.is_none() || dir.join(PROJECT).canonicalize().ok() != home);
    Ok(directories)
}

/// Reads and checks one file; `project` is its directory, unless it is the user's own, and whom the user trusts.
fn read_layer(
    file: &Path,
    project: Option<(&Trust, &Path)>,
) -> Result<Option<(Layer, Option<Source>)>, ConfigError> {
    let bytes = match project {
        Some((_, dir)) => read_project(dir, CONFIG)?,
        None => read_config(file)?,
    };
    let Some(bytes) = bytes else { return Ok(None) };
    let value = parse(file, &bytes)?;
    let key_error =
        |key: String, reason| ConfigError::Key { file: file.to_path_buf(), key, reason };
    let Value::Object(mut keys) = value else {
        return Err(key_error(String::new(), "the file must hold an object".into()));
    };
    // A stranger's are there too, and are not started.
    let servers = keys.shift_remove(SERVERS_KEY).map(|servers| Source {
        file: file.to_path_buf(),
        key: SERVERS_KEY,
        servers,
        project: project.map(|(trust, dir)| of_project(trust, dir, CONFIG, &bytes)),
    });
    let decoded =
        decode(Value::Object(keys.clone())).map_err(|(key, reason)| key_error(key, reason))?;
    if let Some((trust, dir)) = project {
        let risky = keys.keys().find(|key| !UNTRUSTED_KEYS.contains(&key.as_str())).cloned();
        let (file, dir) = (file.to_path_buf(), dir.to_path_buf());
        let risky = risky.or_else(|| overreach(&decoded)).or_else(|| beyond_looks(&keys));
        match (risky, trust.standing(&dir, CONFIG, &bytes)) {
            (None, _) | (_, TrustState::Trusted) => {}
            (Some(key), TrustState::Untrusted) => {
                return Err(ConfigError::Untrusted { file, key, dir });
            }
            (Some(key), TrustState::Changed) => {
                return Err(ConfigError::Changed { file, key, dir });
            }
        }
    }
    Ok(Some((Layer { file: file.into(), keys }, servers)))
}

/// What a file that holds servers and nothing else says of them; without `trust` it is the user's own.
fn read_servers(
    dir: &Path,
    name: &'static str,
    trust: Option<&Trust>,
) -> Result<Option<Source>, ConfigError> {
    let (file, bytes) = match trust {
        Some(_) => (project_file(dir, name), read_project(dir, name)?),
        None => (dir.join(name), read_config(&dir.join(name))?),
    };
    let Some(bytes) = bytes else { return Ok(None) };
    let found = mcp::servers_of(&file, parse(&file, &bytes)?)?;
    Ok(found.map(|(key, servers)| Source {
        file,
        key,
        servers,
        project: trust.map(|trust| of_project(trust, dir, name, &bytes)),
    }))
}

/// All that a project's files say of servers, as if it were trusted: for a person who is about to.
pub(super) fn servers_of_project(dir: &Path) -> Result<Vec<Source>, ConfigError> {
    let mut sources = Vec::new();
    for name in [SHARED_SERVERS, CONFIG, SERVERS] {
        let Some(bytes) = read_project(dir, name)? else { continue };
        let file = project_file(dir, name);
        let value: Value = parse(&file, &bytes)?;
        let found = match name {
            CONFIG => value.get(SERVERS_KEY).cloned().map(|servers| (SERVERS_KEY, servers)),
            _ => mcp::servers_of(&file, value)?,
        };
        let project = Some(Project { dir: dir.to_path_buf(), trusted: true });
        sources.extend(found.map(|(key, servers)| Source { file, key, servers, project }));
    }
    Ok(sources)
}

fn of_project(trust: &Trust, dir: &Path, name: &str, bytes: &[u8]) -> Project {
    let trusted = trust.standing(dir, name, bytes) == TrustState::Trusted;
    Project { dir: dir.to_path_buf(), trusted }
}

/// Instruction files are looked for in the ancestors too and end in the prompt. A stranger's project must not be
/// able to ask for `.netrc` in the home directory above it, or to look farther up than usual; Markdown files are what
/// instructions are written in.
fn overreach(file: &File) -> Option<String> {
    let context = &file.context.as_ref()?.0;
    if context.ancestor_depth.is_some_and(|depth| depth.0 as usize > ANCESTORS) {
        return Some("context.ancestor_depth".into());
    }
    let mut names = context.instruction_files.iter().flatten().map(|name| name.0.as_str());
    let name = names.find(|name| name.starts_with('.') || !name.ends_with(".md"))?;
    Some(format!("context.instruction_files ({name})"))
}

/// What a stranger's project says of the terminal beyond how wide and how long things are shown. A null counts, too: it
/// would take away what the user has set.
fn beyond_looks(keys: &Map<String, Value>) -> Option<String> {
    match keys.get("terminal")? {
        Value::Object(terminal) => terminal
            .keys()
            .find(|key| !terminal::UNTRUSTED_KEYS.contains(&key.as_str()))
            .map(|key| format!("terminal.{key}")),
        _ => Some("terminal".into()),
    }
}

/// The bytes of one of the user's own files, or nothing when it does not exist. A link to wherever it is kept is fine.
pub(super) fn read_config(file: &Path) -> Result<Option<Vec<u8>>, ConfigError> {
    whole(file, files::read_regular(file, FILE_BYTES_MAX))
}

/// The bytes of a file that a project brings along.
pub(super) fn read_project(dir: &Path, name: &str) -> Result<Option<Vec<u8>>, ConfigError> {
    let read = match name {
        SHARED_SERVERS => files::read_beneath(dir, name, FILE_BYTES_MAX),
        name => files::read_beneath(dir, &format!("{PROJECT}/{name}"), FILE_BYTES_MAX),
    };
    whole(&project_file(dir, name), read)
}

/// Where such a file lies.
fn project_file(dir: &Path, name: &str) -> PathBuf {
    match name {
        SHARED_SERVERS => dir.join(name),
        name => dir.join(PROJECT).join(name),
    }
}

fn whole(
    file: &Path,
    read: io::Result<Option<files::Contents>>,
) -> Result<Option<Vec<u8>>, ConfigError> {
    let failed = |source| ConfigError::Read { file: file.to_path_buf(), source };
    match read.map_err(failed)? {
        Some(contents) if contents.cut => Err(failed(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {FILE_BYTES_MAX} bytes"),
        ))),
        contents => Ok(contents.map(|contents| contents.bytes)),
    }
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(
    file: &Path,
    bytes: &[u8],
) -> Result<T, ConfigError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        let reason = text.split(" at line ").next().unwrap_or_default().to_string();
        ConfigError::Syntax {
            file: file.into(),
            line: error.line(),
            column: error.column(),
            reason,
        }
    })
}

/// The typed form of a file, or the dotted key that is wrong and what is wrong with it.
fn decode(value: Value) -> Result<File, (String, String)> {
    let decoded: Result<Object<File>, _> = serde_path_to_error::deserialize(value);
    decoded.map(|Object(file)| file).map_err(|error| {
        let (key, reason) = (error.path().to_string(), error.inner().to_string());
        let is_key = reason.starts_with("unknown field `api_key`");
        (key, if is_key { KEY_IN_FILE.into() } else { reason })
    })
}

/// Files are copied, shown and checked in; a key in one is everybody's soon.
const KEY_IN_FILE: &str = "a key is not kept in a file; put it into an environment variable and name that, as in \
                           \"api_key_env\": \"MY_API_KEY\"";

fn apply(base: &mut Map<String, Value>, layer: &Map<String, Value>) {
    for (key, value) in layer {
        match value {
            // Not `remove`, which would move the last entry here: the order of providers and models has a meaning.
            Value::Null => drop(base.shift_remove(key)),
            Value::Object(inner) => {
                let slot = base.entry(key.as_str()).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    apply(slot, inner);
                }
            }
            value => drop(base.insert(key.clone(), value.clone())),
        }
    }
}
