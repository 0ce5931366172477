//! The thread that formats entries and puts them into files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use nexus_core::AgentId;
use nexus_core::message::{Message, SharedMessage};

use super::place::Directory;
use super::{Entry, Options, format};

pub(super) struct Writer {
    options: Options,
    file_bytes_max: u64,
    open: HashMap<(AgentId, Stream), LogFile>,
    warned: bool,
}

/// At this size a file is renamed to `.1` and a new one begun.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Files kept open between entries, out of a limit of often 1,024 that connections need too.
const OPEN_FILES_MAX: usize = 64;

/// After this long without an entry all files are closed, so that what a person removes is really gone.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stream {
    Context,
    Verbose,
    Raw,
}

struct LogFile {
    file: File,
    bytes: u64,
}

impl Writer {
    pub fn new(options: Options) -> Self {
        Self { options, file_bytes_max: FILE_BYTES_MAX, open: HashMap::new(), warned: false }
    }

    #[cfg(test)]
    pub fn with_file_bytes_max(options: Options, file_bytes_max: u64) -> Self {
        Self { file_bytes_max, ..Self::new(options) }
    }

    /// Runs until the last sender is gone.
    pub fn run(mut self, entries: &Receiver<Entry>, queued_bytes: &AtomicUsize) {
        loop {
            let entry = if self.open.is_empty() {
                entries.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                entries.recv_timeout(IDLE)
            };
            match entry {
                Ok(entry) => {
                    let bytes = entry.bytes();
                    self.write(entry);
                    queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => self.open.clear(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    pub fn write(&mut self, entry: Entry) {
        match entry {
            Entry::Messages { agent, messages } => {
                self.append(&agent, Stream::Context, &formatted(&messages, format::context));
                if self.options.verbose {
                    self.append(&agent, Stream::Verbose, &formatted(&messages, format::verbose));
                }
            }
            Entry::Raw { agent, event } => self.append(&agent, Stream::Raw, &event.into_line()),
            Entry::Renamed { from, to } => self.rename(&from, &to),
            // Whoever asked may have stopped waiting.
            Entry::Flush(done) => drop(done.try_send(())),
        }
    }

    /// Moves an agent's directory to its new name. Where one of that name is left from an earlier agent, nothing moves
    /// and the log goes on there.
    fn rename(&mut self, from: &AgentId, to: &AgentId) {
        self.open.clear();
        let root = Directory::open(&self.options.dir);
        let renamed = root.and_then(|root| root.rename_directory(from.as_str(), to.as_str()));
        if let Err(error) = renamed {
            self.warn(from, &error);
        }
    }

    fn append(&mut self, agent: &AgentId, stream: Stream, text: &str) {
        if let Err(error) = self.try_append(agent, stream, text) {
            self.open.remove(&(agent.clone(), stream));
            self.warn(agent, &error);
        }
    }

    /// Once: what is wrong with a disk, or planted on it, stays so with every entry.
    fn warn(&mut self, agent: &AgentId, error: &io::Error) {
        if !std::mem::replace(&mut self.warned, true) {
            let dir = self.options.dir.display();
            tracing::warn!(%agent, %dir, %error, "agent logs cannot be written; entries are lost");
        }
    }

    fn try_append(&mut self, agent: &AgentId, stream: Stream, text: &str) -> io::Result<()> {
        let key = (agent.clone(), stream);
        let bytes = text.len() as u64;
        let mut log = match self.open.remove(&key) {
            Some(log) => log,
            None => self.open_file(agent, stream)?,
        };
        if log.bytes > 0 && log.bytes.saturating_add(bytes) > self.file_bytes_max {
            let name = stream.file_name();
            self.directory(agent)?.replace(name, &format!("{name}.1"))?;
            log = self.open_file(agent, stream)?;
        }
        log.file.write_all(text.as_bytes())?;
        log.bytes += bytes;
        if self.open.len() >= OPEN_FILES_MAX {
            self.open.clear();
        }
        self.open.insert(key, log);
        Ok(())
    }

    fn open_file(&self, agent: &AgentId, stream: Stream) -> io::Result<LogFile> {
        let (file, bytes) = self.directory(agent)?.append(stream.file_name())?;
        Ok(LogFile { file, bytes })
    }

    fn directory(&self, agent: &AgentId) -> io::Result<Directory> {
        Directory::open(&self.options.dir)?.enter(agent.as_str())
    }
}

impl Stream {
    fn file_name(self) -> &'static str {
        match self {
            Self::Context => "context.md",
            Self::Verbose => "verbose.md",
            Self::Raw => "raw.jsonl",
        }
    }
}

fn formatted(messages: &[SharedMessage], format: fn(&Message, &mut String)) -> String {
    let mut text = String::new();
    for message in messages {
        format(message, &mut text);
    }
    text
}
