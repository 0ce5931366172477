//! What each agent said, in files a person can read: `context.md`, and on request `verbose.md` and `raw.jsonl`, in
//! one directory per agent.
//!
//! Callers only put entries into a bounded queue; one thread formats and writes them. A full queue or a disk that
//! refuses loses entries with a warning, because a log must never hold up a turn. What has to be kept is in the store.

mod format;
mod place;
mod raw;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use nexus_core::AgentId;
use nexus_core::logs::AgentLogs;
use nexus_core::message::SharedMessage;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

pub use raw::RawLayer;
use writer::Writer;

/// Where to write and how much.
#[derive(Clone, Debug)]
pub struct Options {
    /// Absolute. No part of it may be a link, and it must be ours where it exists.
    pub dir: PathBuf,
    pub verbose: bool,
    pub raw: bool,
}

/// The logs of all agents. Clones share one queue and one thread, which ends with the last of them.
#[derive(Clone)]
pub struct AgentLogFiles {
    queue: Arc<Queue>,
    raw: bool,
}

impl AgentLogFiles {
    /// Starts the writing thread. Directories and files are made when there is something to put into them.
    pub fn start(options: Options) -> io::Result<Self> {
        let raw = options.raw;
        let writer = Writer::new(options);
        let (queue, entries) = Queue::new();
        let queued_bytes = queue.bytes.clone();
        std::thread::Builder::new()
            .name("agent-logs".into())
            .spawn(move || writer.run(&entries, &queued_bytes))?;
        Ok(Self { queue: Arc::new(queue), raw })
    }

    /// The part of the tracing subscriber that writes provider traffic to `raw.jsonl`; nothing unless raw logs were
    /// asked for. It brings its own filter, so it must not stand behind a global one that drops debug events.
    pub fn raw_layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        self.raw.then(|| RawLayer::new(self.queue.clone()).filtered())
    }

    /// Waits until everything logged so far is written, but not for ever. For a clean stop; blocks the thread.
    pub fn flush(&self) {
        self.queue.flush(Instant::now() + FLUSH_WAIT_MAX);
    }
}

impl AgentLogs for AgentLogFiles {
    fn messages(&self, agent: &AgentId, messages: &[SharedMessage]) {
        if !messages.is_empty() {
            self.queue.push(Entry::Messages { agent: agent.clone(), messages: messages.to_vec() });
        }
    }

    fn renamed(&self, from: &AgentId, to: &AgentId) {
        self.queue.push(Entry::Renamed { from: from.clone(), to: to.clone() });
    }
}

/// A disk that hangs must not keep the program from ending.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(5);

/// Entries that may wait. A turn makes a handful, a stream one per chunk with raw logs.
const QUEUE_ENTRIES_MAX: usize = 8192;

/// Text that may wait: raw requests carry whole conversations, so their number alone bounds nothing.
const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;

enum Entry {
    Messages {
        agent: AgentId,
        messages: Vec<SharedMessage>,
    },
    Raw {
        agent: AgentId,
        event: raw::Event,
    },
    Renamed {
        from: AgentId,
        to: AgentId,
    },
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

impl Entry {
    fn bytes(&self) -> usize {
        match self {
            Self::Messages { messages, .. } => {
                messages.iter().map(|message| message.text_bytes()).sum()
            }
            Self::Raw { event, .. } => event.bytes(),
            Self::Renamed { .. } | Self::Flush(_) => 0,
        }
    }
}

/// The callers' end of the channel to the writer.
struct Queue {
    entries: SyncSender<Entry>,
    /// Of the entries that wait.
    bytes: Arc<AtomicUsize>,
    warned: AtomicBool,
}

impl Queue {
    fn new() -> (Self, std::sync::mpsc::Receiver<Entry>) {
        let (sender, receiver) = sync_channel(QUEUE_ENTRIES_MAX);
        (Self { entries: sender, bytes: Arc::default(), warned: AtomicBool::new(false) }, receiver)
    }

    fn push(&self, entry: Entry) {
        let bytes = entry.bytes();
        let waiting = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let refused = waiting.saturating_add(bytes) > QUEUE_BYTES_MAX
            || self.entries.try_send(entry).is_err();
        if refused {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!("agent logs cannot keep up; entries are lost from here on");
            }
        }
    }

    fn flush(&self, deadline: Instant) {
        let (done, written) = sync_channel(1);
        let mut marker = Entry::Flush(done);
        while let Err(TrySendError::Full(refused)) = self.entries.try_send(marker) {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
            marker = refused;
        }
        // An error is either the time limit or a writer that is gone; there is nothing left to wait for then.
        written.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    }
}

#[cfg(test)]
mod tests;
