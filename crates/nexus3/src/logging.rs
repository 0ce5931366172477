//! The server's log on standard error: one line per event, JSON unless a person watches.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nexus_core::logs::RAW_TARGET;
use nexus_protocol::Id;
use nexus_server::calls::{Call, CallLog};
use nexus_store::agent_logs::AgentLogFiles;
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
    match std::thread::Builder::new().name("log".into()).spawn(move || writer.run()) {
        Ok(thread) => {
            let _ = queue.writer.set(thread.thread().clone());
        }
        Err(_) => eprintln!("Warning: no thread for the log could be started; nothing is logged"),
    }
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let ours = [
        "nexus3",
        "nexus_config",
        "nexus_core",
        "nexus_local",
        "nexus_models",
        "nexus_server",
        "nexus_store",
        "nexus_tools",
    ]
    .map(|target| (target, level));
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
    /// Waits until what was logged is written, or nobody seems to read it.
    pub fn flush(&self) {
        let queue = &self.queue;
        let busy = || !queue.is_empty() || queue.writing.load(Ordering::SeqCst);
        let started = Instant::now();
        while queue.writer.get().is_some() && busy() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

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
    /// Writes the line that `fill` makes.
    fn write(&self, fill: impl FnOnce(&mut Line)) {
        thread_local! {
            /// A busy server logs every call: the buffer is kept.
            static LINE: RefCell<(Line, Option<Arc<Lane>>)> = RefCell::default();
        }
        LINE.with_borrow_mut(|(line, lane)| {
            line.format = self.format;
            line.text.clear();
            fill(line);
            self.queue.push(lane.get_or_insert_with(|| self.queue.lane()), &line.text);
        });
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        self.write(|line| {
            line.open(*event.metadata().level(), &message.0);
            event.record(line);
            line.close();
        });
    }
}

impl CallLog for Lines {
    fn call(&self, call: &Call<'_>) {
        self.write(|line| match self.format {
            LogFormat::Json => line.put_call(call),
            LogFormat::Text => line.call_for_people(call),
        });
    }
}

/// A line in the making.
#[derive(Default)]
struct Line {
    format: LogFormat,
    text: Vec<u8>,
    /// Where the fields begin: members of a JSON object, or ` name=value` for people.
    fields: usize,
    clock: Clock,
}

impl Line {
    fn open(&mut self, level: Level, message: &str) {
        let Self { text, clock, .. } = self;
        match self.format {
            LogFormat::Json => {
                text.extend_from_slice(b"{\"timestamp\":\"");
                clock.write(Instant::now(), text);
                text.extend_from_slice(b"\",\"level\":\"");
                text.extend_from_slice(level.as_str().as_bytes());
                text.extend_from_slice(b"\",\"message\":");
                put_string(text, message);
                text.extend_from_slice(b",\"data\":{");
            }
            LogFormat::Text => {
                // Writing to memory does not fail.
                let _ =
                    write!(text, "{} {level:5} {message}", Timestamp::now().strftime("%H:%M:%S"));
            }
        }
        self.fields = self.text.len();
    }

    fn close(&mut self) {
        self.text.extend_from_slice(match self.format {
            LogFormat::Json => b"}}\n",
            LogFormat::Text => b"\n",
        });
    }

    /// The whole line of a call, in as few pieces as it has: of all lines these are the many.
    fn put_call(&mut self, call: &Call<'_>) {
        let Self { text, clock, .. } = self;
        text.extend_from_slice(b"{\"timestamp\":\"");
        clock.write(call.ended, text);
        text.extend_from_slice(
            b"\",\"level\":\"INFO\",\"message\":\"RPC Request\",\"data\":{\"method\":",
        );
        put_string(text, call.method);
        text.extend_from_slice(b",\"id\":");
        text.extend_from_slice(call.id.map_or("null", Id::as_json).as_bytes());
        text.extend_from_slice(b",\"duration_ms\":");
        put_thousandths(text, call.duration.as_micros() as u64);
        match call.error {
            None => text.extend_from_slice(b",\"status\":\"success\"}}\n"),
            Some(code) => {
                let _ = writeln!(text, ",\"status\":\"error\",\"code\":{code}}}}}");
            }
        }
    }

    fn call_for_people(&mut self, call: &Call<'_>) {
        self.open(Level::INFO, "RPC Request");
        self.put_text("method", call.method);
        self.put("id", call.id.map_or("null", Id::as_json));
        self.put_name("duration_ms");
        put_thousandths(&mut self.text, call.duration.as_micros() as u64);
        self.put_text("status", if call.error.is_none() { "success" } else { "error" });
        if let Some(code) = call.error {
            self.put("code", code);
        }
        self.close();
    }

    /// Adds a field that is written alike in JSON and for people.
    fn put(&mut self, name: &str, value: impl fmt::Display) {
        self.put_name(name);
        let _ = write!(self.text, "{value}");
    }

    fn put_text(&mut self, name: &str, value: &str) {
        self.put_name(name);
        match self.format {
            LogFormat::Json => put_string(&mut self.text, value),
            LogFormat::Text => self.text.extend_from_slice(value.as_bytes()),
        }
    }

    fn put_name(&mut self, name: &str) {
        let (before, behind): (&[u8], &[u8]) = match self.format {
            LogFormat::Json if self.text.len() == self.fields => (b"\"", b"\":"),
            LogFormat::Json => (b",\"", b"\":"),
            LogFormat::Text => (b" ", b"="),
        };
        self.text.extend_from_slice(before);
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(behind);
    }
}

/// The field of an event that is its message.
const MESSAGE: &str = "message";

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            self.0.push_str(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == MESSAGE {
            let _ = fmt::Write::write_fmt(&mut self.0, format_args!("{value:?}"));
        }
    }
}

/// The other fields.
impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        match (field.name(), self.format) {
            (MESSAGE, _) => {}
            // For a person: a text of several lines is shown as such.
            (name, LogFormat::Text) if value.contains('\n') => {
                let _ = write!(self.text, "\n  {name}: {}", value.replace('\n', "\n    "));
            }
            (name, _) => self.put_text(name, value),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.put(field.name(), value),
            false => self.put(field.name(), "null"),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != MESSAGE {
            self.put_text(field.name(), &format!("{value:?}"));
        }
    }
}

/// Writes the time to the millisecond. It is asked for, and the part down to the second made, once a second: a call
/// knows already when it ended.
#[derive(Default)]
struct Clock {
    second_began: Option<Instant>,
    text: String,
}

impl Clock {
    fn write(&mut self, now: Instant, out: &mut Vec<u8>) {
        let since = |began: Instant| now.checked_duration_since(began);
        let known = self.second_began.and_then(since).filter(|since| since.as_secs() == 0);
        let within = known.unwrap_or_else(|| self.ask(now));
        out.extend_from_slice(self.text.as_bytes());
        put_thousandth(out, within.subsec_millis().into());
        out.push(b'Z');
    }

    /// Learns the second; returns how much of it has passed.
    fn ask(&mut self, now: Instant) -> Duration {
        let time = Timestamp::now();
        self.text = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        let within = Duration::from_nanos(time.subsec_nanosecond().unsigned_abs().into());
        self.second_began = now.checked_sub(within);
        within
    }
}

/// A JSON string. Most are words.
fn put_string(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b' ');
    if text.bytes().all(is_plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(out, text);
    }
}

/// A number of thousandths as a decimal. By hand, as every call is timed: to format takes longer than many a call.
fn put_thousandths(out: &mut Vec<u8>, thousandths: u64) {
    match thousandths / 1000 {
        whole @ 0..10 => out.push(b'0' + whole as u8),
        whole => out.extend_from_slice(whole.to_string().as_bytes()),
    }
    put_thousandth(out, thousandths % 1000);
}

/// The point of a decimal and three digits behind it.
fn put_thousandth(out: &mut Vec<u8>, number: u64) {
    let digits = [number / 100, number / 10 % 10, number % 10].map(|digit| b'0' + digit as u8);
    out.push(b'.');
    out.extend_from_slice(&digits);
}

/// Lines on their way to standard error. Whoever logs only appends, each thread to a lane of its own, so that busy threads
/// do not meet at a lock; one thread writes, many lines at a time. Lines of different threads may change places within
/// the time for which it gathers.
#[derive(Default)]
struct Queue {
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// The thread that writes. There is no log without it.
    writer: OnceLock<Thread>,
    /// The writer has seen all lanes empty, and sleeps or is about to.
    asleep: AtomicBool,
    /// The writer has lines in its hands.
    writing: AtomicBool,
}

/// The lines of one thread.
type Lane = Mutex<Waiting>;

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    dropped: bool,
}

/// Bytes of one thread that may wait when standard error is not read. Further lines are dropped, and it is said that
/// some were: a full pipe must not stop the server.
const LANE_BYTES_MAX: usize = 1024 * 1024;

/// How long the thread gathers lines before it writes them.
const GATHER: Duration = Duration::from_millis(2);

impl Queue {
    /// A lane for the thread that asks.
    fn lane(&self) -> Arc<Lane> {
        let lane = Arc::default();
        lock(&self.lanes).push(Arc::clone(&lane));
        lane
    }

    fn push(&self, lane: &Lane, line: &[u8]) {
        let Some(writer) = self.writer.get() else { return };
        {
            let mut waiting = lock(lane);
            if waiting.lines.len() > LANE_BYTES_MAX {
                waiting.dropped = true;
                return;
            }
            waiting.lines.extend_from_slice(line);
        }
        // Either the writer sees the line, or this sees that the writer did not: both went through the lane's lock.
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            writer.unpark();
        }
    }

    fn run(&self) {
        let mut lines = Vec::new();
        loop {
            self.asleep.store(true, Ordering::Relaxed);
            if self.is_empty() {
                std::thread::park();
            }
            self.asleep.store(false, Ordering::Relaxed);
            std::thread::sleep(GATHER);
            self.writing.store(true, Ordering::SeqCst);
            self.gather(&mut lines);
            let _ = io::stderr().write_all(&lines);
            self.writing.store(false, Ordering::SeqCst);
            lines.clear();
            lines.shrink_to(LANE_BYTES_MAX);
        }
    }

    /// Takes what waits. A lane whose thread has ended goes with its last line.
    fn gather(&self, lines: &mut Vec<u8>) {
        let mut dropped = false;
        lock(&self.lanes).retain(|lane| {
            let ended = Arc::strong_count(lane) == 1;
            let mut waiting = lock(lane);
            lines.append(&mut waiting.lines);
            dropped |= std::mem::take(&mut waiting.dropped);
            !ended
        });
        if dropped {
            lines.extend_from_slice(
                b"{\"level\":\"WARN\",\"message\":\"log lines were dropped\"}\n",
            );
        }
    }

    fn is_empty(&self) -> bool {
        lock(&self.lanes).iter().all(|lane| lock(lane).lines.is_empty())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a flush waits for a reader of the log.
const PATIENCE: Duration = Duration::from_secs(1);

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}
