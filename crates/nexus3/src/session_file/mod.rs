//! Sessions as files: our own form, documented in docs/guide/sessions.md, and that of the Python original.
//!
//! A file says what was said and what a session worked with. What its agent may do is not taken from it: anybody can
//! write a file. It can only make that less.

mod own;
mod python;

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::agent::AgentSettings;
use nexus_core::message::SharedMessage;
use nexus_core::name::NameError;
use nexus_core::permission::{Grants, Permissions, Preset};
use nexus_core::store::{AgentRecord, Progress, SessionRecord};
use nexus_core::usage::Bill;
use serde_json::Value;
use thiserror::Error;

use nexus_config::files;

/// Largest file that is read. A conversation of this size fills every model's window dozens of times.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// JSON values in a file: some thirty for a message. Two bytes can be one, and one takes some seventy in memory.
const VALUES_MAX: usize = 4 << 20;

/// Messages of a session. A turn has a handful.
const MESSAGES_MAX: usize = 100_000;

/// Tool calls of one message. Models make a handful.
const CALLS_MAX: usize = 1024;

/// What a file holds, of whichever form.
pub struct SessionFile {
    pub name: String,
    pub created_at: Timestamp,
    pub model: Option<String>,
    /// Where it worked, on the machine it comes from.
    pub cwd: PathBuf,
    pub system_prompt: Option<String>,
    pub messages: Vec<SharedMessage>,
    /// Bounds on what the session may have here.
    bounds: Vec<Permissions>,
    ceiling: Option<Permissions>,
    disabled_tools: Vec<String>,
}

#[derive(Debug, Error)]
pub enum SessionFileError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is larger than {FILE_BYTES_MAX} bytes", .path.display())]
    TooLarge { path: PathBuf },
    #[error("{} is not JSON: {reason}", .path.display())]
    Json { path: PathBuf, reason: String },
    #[error("{} is no session: {reason}", .path.display())]
    Form { path: PathBuf, reason: String },
}

/// Why a session cannot be made of a file.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ImportError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the name of a session may not start with '.': {0} is temporary")]
    Temporary(AgentId),
}

/// What the person who imports a file decides.
pub struct Import<'a> {
    pub name: Option<&'a str>,
    pub preset: &'a Preset,
    /// The preset was named, so what the session had before bounds it no more; its ceiling still does.
    pub preset_was_named: bool,
    pub cwd: PathBuf,
    /// Never open to any agent.
    pub protected: &'a [PathBuf],
}

impl SessionFile {
    pub fn read(path: &Path) -> Result<Self, SessionFileError> {
        let path_buf = || path.to_path_buf();
        let contents = files::read_regular(path, FILE_BYTES_MAX)
            .and_then(|found| found.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(|source| SessionFileError::Read { path: path_buf(), source })?;
        if contents.cut {
            return Err(SessionFileError::TooLarge { path: path_buf() });
        }
        let form = |reason| SessionFileError::Form { path: path_buf(), reason };
        if nexus_json::values(&contents.bytes) > VALUES_MAX {
            return Err(form(format!("it has more than {VALUES_MAX} values")));
        }
        // Nesting is bounded by the parser.
        let value: Value = serde_json::from_slice(&contents.bytes).map_err(|error| {
            SessionFileError::Json { path: path_buf(), reason: error.to_string() }
        })?;
        Self::parse(value).map_err(form)
    }

    /// Reads a file of either form. The error names what is missing or wrong.
    pub fn parse(value: Value) -> Result<Self, String> {
        let parsed = match &value {
            Value::Object(members) if members.contains_key("format") => own::parse(value)?,
            Value::Object(members) if members.contains_key("agent_id") => python::parse(value)?,
            _ => return Err("it has neither a member \"format\" nor \"agent_id\"".into()),
        };
        if parsed.messages.len() > MESSAGES_MAX {
            return Err(format!("it has more than {MESSAGES_MAX} messages"));
        }
        let many = |message: &SharedMessage| message.calls().count() > CALLS_MAX;
        if let Some(at) = parsed.messages.iter().position(many) {
            return Err(format!("messages.{at}: it has more than {CALLS_MAX} tool calls"));
        }
        Ok(parsed)
    }

    /// The session as the store is to keep it: without a parent and without grants, and never with more than the preset
    /// gives or the file's own bounds allow.
    pub fn record(&self, import: &Import<'_>) -> Result<AgentRecord, ImportError> {
        let id = AgentId::parse(import.name.unwrap_or(&self.name))?;
        if id.is_temp() {
            return Err(ImportError::Temporary(id));
        }
        let mut permissions = import.preset.apply(&import.cwd, &[]);
        permissions.blocked.extend(import.protected.iter().cloned());
        permissions.disabled_tools.extend(self.disabled_tools.iter().cloned());
        if !import.preset_was_named {
            permissions = self.bounds.iter().fold(permissions, |met, bound| met.meet(bound));
        }
        if let Some(ceiling) = &self.ceiling {
            permissions = permissions.meet(ceiling);
        }
        Ok(AgentRecord {
            id,
            created_at: self.created_at,
            born: 0,
            parent: None,
            depth: 0,
            ceiling: self.ceiling.clone(),
            settings: AgentSettings {
                permissions,
                grants: Grants::default(),
                model: self.model.clone(),
                reasoning: None,
                cwd: import.cwd.clone(),
                directories: Default::default(),
                system_prompt: self.system_prompt.clone(),
                tickets: Vec::new(),
                servers: Vec::new(),
            },
            progress: Progress::default(),
            bill: Bill::default(),
            root: 0,
            message_count: self.messages.len() as u64,
            last_action_at: self.messages.last().map(|message| message.meta.at),
        })
    }
}

/// A session in our own form. Fails on a path that is not UTF-8.
pub fn export(session: &SessionRecord, messages: &[SharedMessage]) -> serde_json::Result<Value> {
    own::export(session, messages)
}

#[cfg(test)]
mod tests;
