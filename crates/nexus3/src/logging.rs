//! The server's log on standard error: one line per event, JSON unless a person watches.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use nexus_adapters::agent_logs::AgentLogFiles;
use nexus_core::logs::RAW_TARGET;
use nexus_protocol::Id;
use nexus_server::calls::{Call, CallLog};
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::LogFormat;

/// Starts logging.
pub fn init(format: Option<LogFormat>, verbose: bool, agent_logs: &AgentLogFiles) -> Log {
    let format = format.unwrap_or_else(|| match io::stderr().is_terminal() {
        true => LogFormat::Text,
        false => LogFormat::Json,
    });
    let queue = Arc::new(Queue::default());
    let writer = queue.clone();
    // Without the thread lines would pile up: then there is no log, and the server runs.
    let thread = std::thread::Builder::new().name("log".into()).spawn(move || writer.run());
    if thread.is_err() {
        eprintln!("Warning: no thread for the log could be started; nothing is logged");
        queue.state().closed = true;
    }
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let ours =
        ["nexus3", "nexus_core", "nexus_adapters", "nexus_server"].map(|target| (target, level));
    let filter = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(ours)
        .with_target(RAW_TARGET, LevelFilter::OFF);
    let lines = Lines { format, queue: queue.clone() }.with_filter(filter);
    tracing_subscriber::registry().with(lines).with(agent_logs.raw_layer()).init();
    Log { format, queue }
}

/// The log of this program. Dropped last, it writes what is still waiting.
pub struct Log {
    format: LogFormat,
    queue: Arc<Queue>,
}

impl Log {
    /// Where the lines of calls go.
    pub fn calls(&self) -> Arc<dyn CallLog> {
        Arc::new(Lines { format: self.format, queue: self.queue.clone() })
    }
}

struct Lines {
    format: LogFormat,
    queue: Arc<Queue>,
}

impl Lines {
    /// Writes a line that `fill` gives its message and its fields.
    fn write(&self, level: Level, fill: impl FnOnce(&mut Line)) {
        thread_local! {
            /// A busy server logs every call: the buffers are kept.
            static LINE: RefCell<Line> = RefCell::default();
        }
        LINE.with_borrow_mut(|line| {
            line.format = self.format;
            line.message.clear();
            line.data.clear();
            fill(line);
            line.finish(level);
            self.queue.push(&line.text);
        });
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.write(*event.metadata().level(), |line| event.record(line));
    }
}

impl CallLog for Lines {
    fn call(&self, call: &Call<'_>) {
        let duration_ms = call.duration.as_micros() as f64 / 1000.0;
        let id = call.id.map_or("null", Id::as_json);
        self.write(Level::INFO, |line| {
            line.message.push_str("RPC Request");
            line.put("method", call.method, call.method);
            line.put_json("id", id);
            line.put("duration_ms", duration_ms, duration_ms);
            let status = if call.error.is_none() { "success" } else { "error" };
            line.put("status", status, status);
            if let Some(code) = call.error {
                line.put("code", code, code);
            }
        });
    }
}

/// One event on its way to being a line.
#[derive(Default)]
struct Line {
    format: LogFormat,
    message: String,
    /// The fields: members of a JSON object, or ` name=value` for people.
    data: Vec<u8>,
    text: Vec<u8>,
    clock: Clock,
}

impl Line {
    fn finish(&mut self, level: Level) {
        let Self { message, data, text, clock, .. } = self;
        text.clear();
        // Writing to memory does not fail.
        let _ = match self.format {
            LogFormat::Json => {
                text.extend_from_slice(b"{\"timestamp\":\"");
                clock.write(text);
                text.extend_from_slice(b"\",\"level\":\"");
                text.extend_from_slice(level.as_str().as_bytes());
                text.extend_from_slice(b"\",\"message\":");
                let _ = serde_json::to_writer(&mut *text, message);
                text.extend_from_slice(b",\"data\":{");
                text.extend_from_slice(data);
                text.write_all(b"}}\n")
            }
            LogFormat::Text => {
                let _ =
                    write!(text, "{} {level:5} {message}", Timestamp::now().strftime("%H:%M:%S"));
                text.extend_from_slice(data);
                text.write_all(b"\n")
            }
        };
    }

    /// Adds a field whose value is written by `json`, or for people as `plain`.
    fn put(&mut self, name: &str, json: impl Serialize, plain: impl fmt::Display) {
        let _ = match self.format {
            LogFormat::Json => {
                self.put_name(name);
                serde_json::to_writer(&mut self.data, &json).map_err(Into::into)
            }
            LogFormat::Text => write!(self.data, " {name}={plain}"),
        };
    }

    /// Adds a field whose value is JSON text already.
    fn put_json(&mut self, name: &str, json: &str) {
        match self.format {
            LogFormat::Json => {
                self.put_name(name);
                self.data.extend_from_slice(json.as_bytes());
            }
            LogFormat::Text => self.put(name, json, json),
        }
    }

    fn put_name(&mut self, name: &str) {
        let start: &[u8] = if self.data.is_empty() { b"\"" } else { b",\"" };
        self.data.extend_from_slice(start);
        self.data.extend_from_slice(name.as_bytes());
        self.data.extend_from_slice(b"\":");
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        match (field.name(), self.format) {
            ("message", _) => self.message.push_str(value),
            // For a person: a text of several lines is shown as such.
            (name, LogFormat::Text) if value.contains('\n') => {
                let _ = write!(self.data, "\n  {name}: {}", value.replace('\n', "\n    "));
            }
            _ => self.put(field.name(), value, value),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => {
                let _ = fmt::Write::write_fmt(&mut self.message, format_args!("{value:?}"));
            }
            _ => self.put(field.name(), format!("{value:?}"), format_args!("{value:?}")),
        }
    }
}

/// Writes the time to the millisecond. The part down to the second is made once a second.
#[derive(Default)]
struct Clock {
    second: i64,
    text: String,
}

impl Clock {
    fn write(&mut self, out: &mut Vec<u8>) {
        let now = Timestamp::now();
        if self.text.is_empty() || self.second != now.as_second() {
            self.second = now.as_second();
            self.text = now.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        }
        let _ = write!(out, "{}.{:03}Z", self.text, now.subsec_millisecond());
    }
}

/// Lines on their way to standard error. Whoever logs only appends; one thread writes, many lines at a time.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    dropped: u64,
    /// The thread is writing what it took.
    writing: bool,
    closed: bool,
}

/// Bytes that may wait when standard error is not read. Further lines are dropped and counted: a full pipe must not
/// stop the server.
const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long the thread gathers lines before it writes them.
const GATHER: Duration = Duration::from_millis(2);

impl Queue {
    fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        if state.lines.len() > QUEUE_BYTES_MAX {
            state.dropped += 1;
            return;
        }
        if state.lines.is_empty() {
            self.changed.notify_all();
        }
        state.lines.extend_from_slice(line);
    }

    fn run(&self) {
        loop {
            let mut state = self.state();
            while state.lines.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            std::thread::sleep(GATHER);
            let mut state = self.state();
            let mut lines = std::mem::take(&mut state.lines);
            if std::mem::take(&mut state.dropped) > 0 {
                lines.extend_from_slice(
                    b"{\"level\":\"WARN\",\"message\":\"log lines were dropped\"}\n",
                );
            }
            state.writing = true;
            drop(state);
            let _ = io::stderr().write_all(&lines);
            self.state().writing = false;
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Log {
    /// Does not wait for ever for a reader.
    fn drop(&mut self) {
        let busy = |state: &mut State| !state.closed && (state.writing || !state.lines.is_empty());
        let _ =
            self.queue.changed.wait_timeout_while(self.queue.state(), Duration::from_secs(1), busy);
    }
}
