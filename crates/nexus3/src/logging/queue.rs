//! Lines on their way to standard error.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Whoever logs only appends, each thread to a lane of its own, so that busy threads
/// do not meet at a lock; one thread writes, many lines at a time. Lines of different threads may change places within
/// the time for which it gathers.
#[derive(Default)]
pub struct Queue {
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

/// The thread that writes the lines down.
pub(super) const WRITER: &str = "log";

/// Bytes of one thread that may wait when standard error is not read. Further lines are dropped, and it is said that
/// some were: a full pipe must not stop the server.
const LANE_BYTES_MAX: usize = 1024 * 1024;

/// How long the thread gathers lines before it writes them.
const GATHER: Duration = Duration::from_millis(2);

/// How long a flush waits for a reader of the log.
const PATIENCE: Duration = Duration::from_secs(1);

impl Queue {
    /// Starts the thread that writes. Without it lines would pile up: then there is no log, and the program runs.
    pub fn start() -> Arc<Self> {
        let queue = Arc::new(Self::default());
        let writer = queue.clone();
        match std::thread::Builder::new().name(WRITER.into()).spawn(move || writer.run()) {
            Ok(thread) => {
                let _ = queue.writer.set(thread.thread().clone());
            }
            Err(_) => {
                eprintln!("Warning: no thread for the log could be started; nothing is logged");
            }
        }
        queue
    }

    /// Puts a line, or several, behind those of this thread.
    pub fn put(&self, line: &[u8]) {
        thread_local! {
            static LANE: RefCell<Option<Arc<Lane>>> = RefCell::default();
        }
        LANE.with_borrow_mut(|lane| self.push(lane.get_or_insert_with(|| self.lane()), line));
    }

    /// Waits until what was logged is written, or nobody seems to read it.
    pub fn flush(&self) {
        let busy = || !self.is_empty() || self.writing.load(Ordering::SeqCst);
        let started = Instant::now();
        while self.writer.get().is_some() && busy() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

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
