//! The server's side: workers that are started when there is something to check, kept warm, and replaced when a code
//! was too much for one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use nexus_core::authority::AskedBy;
use nexus_core::code::{CheckError, Checker, Report, Source};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Language;
use super::frame::{self, Answer, LENGTH_BYTES, Order};
use super::worker::{MEMORY_BYTES_MAX, WORKER_ARGUMENT};

/// The longest code takes a second or two; nobody waits longer.
const SECONDS_MAX: u64 = 10;

/// How long a worker is kept warm for the next check.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Checks that wait in one line: ten full batches.
const WAITING_MAX: usize = 1_000;

/// Bytes of what waits in one line: as much as thirty of the longest codes.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Checks that a worker is told of at once. It need not wait for the server between two of them; when one takes long, so
/// many wait behind it.
pub(crate) const AHEAD_MAX: usize = 8;

/// Bytes after which a worker is told of no more.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Of what a worker says when it dies.
const LAST_WORDS_BYTES_MAX: u64 = 4 << 10;

/// Checks code in processes of `program`, one for each core at most.
pub struct Workers {
    shared: Arc<Shared>,
    _end: DropGuard,
}

impl Workers {
    /// `program` calls [`worker_main`](super::worker_main). Nothing is started before there is something to check.
    pub fn new(program: PathBuf) -> Self {
        let workers_max = std::thread::available_parallelism().map_or(1, usize::from);
        let end = CancellationToken::new();
        let shared = Shared { program, workers_max, state: Mutex::default(), end: end.clone() };
        Self { shared: Arc::new(shared), _end: end.drop_guard() }
    }
}

#[async_trait]
impl Checker for Workers {
    async fn check(&self, source: Source) -> Result<Report, CheckError> {
        let Source { code, language, rules, asked_by } = source;
        let Some(language) = Language::parse(&language) else {
            return Err(CheckError::UnknownLanguage { name: language, known: Language::known() });
        };
        let order = frame::encode(&Order { language: language.name(), code, rules });
        let order = order.map_err(|_| CheckError::Broke)?;
        let (answer, answered) = oneshot::channel();
        self.shared.submit(Job { language, order, answer }, asked_by)?;
        answered.await.unwrap_or(Err(CheckError::Broke))
    }
}

struct Job {
    language: Language,
    order: Vec<u8>,
    /// Closed when nobody waits any more.
    answer: oneshot::Sender<Result<Report, CheckError>>,
}

struct Shared {
    program: PathBuf,
    workers_max: usize,
    state: Mutex<State>,
    end: CancellationToken,
}

#[derive(Default)]
struct State {
    /// Goes first, so that agents cannot keep the administrator waiting.
    administrator: Line,
    agents: Line,
    keepers: usize,
    /// Calls the keepers that wait, the one that worked last at the end: it is the warmest.
    idle: Vec<oneshot::Sender<()>>,
}

impl State {
    fn waiting(&self) -> usize {
        self.administrator.jobs.len() + self.agents.jobs.len()
    }

    fn pop(&mut self) -> Option<Job> {
        self.administrator.pop().or_else(|| self.agents.pop())
    }
}

/// Those who wait.
#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    bytes: usize,
}

impl Line {
    fn push(&mut self, job: Job) -> Result<(), CheckError> {
        let fits = |line: &Self, job: &Job| {
            line.jobs.len() < WAITING_MAX && line.bytes + job.order.len() <= WAITING_BYTES_MAX
        };
        if !fits(self, &job) {
            // What nobody waits for any more takes no place.
            self.jobs.retain(|job| !job.answer.is_closed());
            self.bytes = self.jobs.iter().map(|job| job.order.len()).sum();
        }
        if !fits(self, &job) {
            return Err(CheckError::Full(self.jobs.len()));
        }
        self.bytes += job.order.len();
        self.jobs.push_back(job);
        Ok(())
    }

    fn pop(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.bytes -= job.order.len();
        Some(job)
    }
}

impl Shared {
    fn submit(self: &Arc<Self>, job: Job, asked_by: AskedBy) -> Result<(), CheckError> {
        let mut state = self.lock();
        match asked_by {
            AskedBy::Administrator => state.administrator.push(job)?,
            AskedBy::Agent => state.agents.push(job)?,
        }
        while let Some(call) = state.idle.pop() {
            if call.send(()).is_ok() {
                return Ok(());
            }
        }
        if state.keepers < self.workers_max {
            state.keepers += 1;
            tokio::spawn(keep(self.clone()));
        }
        Ok(())
    }

    /// What a worker does next, as soon as there is something; `None` when it is not needed any more.
    async fn next(&self) -> Option<VecDeque<Job>> {
        loop {
            let mut called = match self.take() {
                Ok(jobs) => return Some(jobs),
                Err(called) => called,
            };
            tokio::select! {
                _ = &mut called => continue,
                () = tokio::time::sleep(IDLE_MAX) => {}
                () = self.end.cancelled() => {}
            }
            let mut state = self.lock();
            // Nobody calls while the state is locked: either it was called before, or it goes.
            called.close();
            if called.try_recv().is_err() {
                state.keepers -= 1;
                return None;
            }
        }
    }

    /// The next of those that wait: a worker's share of them. Without any, what calls the keeper when there are.
    fn take(&self) -> Result<VecDeque<Job>, oneshot::Receiver<()>> {
        let mut state = self.lock();
        let (mut jobs, mut bytes) = (VecDeque::new(), 0);
        let share = (state.waiting() / self.workers_max).clamp(1, AHEAD_MAX);
        while jobs.len() < share && bytes < AHEAD_BYTES_MAX {
            let Some(job) = state.pop() else { break };
            if !job.answer.is_closed() {
                bytes += job.order.len();
                jobs.push_back(job);
            }
        }
        if jobs.is_empty() {
            let (call, called) = oneshot::channel();
            state.idle.push(call);
            return Err(called);
        }
        Ok(jobs)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one worker, for as long as it is needed.
async fn keep(shared: Arc<Shared>) {
    let mut worker = None;
    while let Some(mut jobs) = shared.next().await {
        while !jobs.is_empty() {
            if let Err(error) = carry_out(&shared, &mut worker, &mut jobs).await {
                for job in jobs.drain(..) {
                    let _ = job.answer.send(Err(CheckError::NotStarted(error.to_string())));
                }
            }
        }
    }
}

/// Has the jobs done until none is left or the worker is lost; then the job that it was at is answered.
async fn carry_out(
    shared: &Shared,
    kept: &mut Option<Worker>,
    jobs: &mut VecDeque<Job>,
) -> io::Result<()> {
    let (mut worker, mut was_idle) = match kept.take() {
        Some(worker) => (worker, true),
        None => (Worker::start(shared)?, false),
    };
    let orders: Vec<u8> = jobs.iter().flat_map(|job| &job.order).copied().collect();
    // A worker that is gone is noticed when its answer is missing.
    let _ = worker.stream.write_all(&orders).await;
    while let Some(mut job) = jobs.pop_front() {
        let answer = tokio::select! {
            answer = worker.answer() => answer,
            () = tokio::time::sleep(Duration::from_secs(SECONDS_MAX)) => {
                let _ = job.answer.send(Err(CheckError::TooSlow(SECONDS_MAX)));
                return Ok(());
            }
            // The worker is at something that nobody waits for.
            () = job.answer.closed() => return Ok(()),
        };
        let answer = match answer {
            Ok(Answer::Checked(checked)) => Ok(checked.into_report(job.language.name())),
            Ok(Answer::TooDeep) => Err(CheckError::TooDeep),
            Ok(Answer::Broke) => Err(CheckError::Broke),
            Err(_) => {
                match worker.why().await {
                    // Somebody ended it while it was idle, which is not this code's fault.
                    CheckError::Broke if was_idle => jobs.push_front(job),
                    why => {
                        let _ = job.answer.send(Err(why));
                    }
                }
                return Ok(());
            }
        };
        was_idle = false;
        let _ = job.answer.send(answer);
    }
    *kept = Some(worker);
    Ok(())
}

/// A process that ends when this is dropped.
struct Worker {
    child: Child,
    stream: BufReader<UnixStream>,
}

impl Worker {
    fn start(shared: &Shared) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = Command::new(&shared.program)
            .arg0("nexus3")
            .arg(WORKER_ARGUMENT)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // What a terminal sends to the server is not for it: calls that run may still end.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child, stream: BufReader::new(UnixStream::from_std(ours)?) })
    }

    async fn answer(&mut self) -> io::Result<Answer> {
        let mut length = [0; LENGTH_BYTES];
        self.stream.read_exact(&mut length).await?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut body).await?;
        Ok(frame::decode(&body)?)
    }

    /// Why it ended without an answer.
    async fn why(mut self) -> CheckError {
        let mut last_words = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(LAST_WORDS_BYTES_MAX).read_to_end(&mut last_words).await;
        }
        match self.child.wait().await {
            Ok(status) => why(status, &String::from_utf8_lossy(&last_words)),
            Err(_) => CheckError::Broke,
        }
    }
}

fn why(status: ExitStatus, last_words: &str) -> CheckError {
    const SIGABRT: i32 = 6;
    const SIGSEGV: i32 = 11;
    match status.signal() {
        // What the standard library says of it. Where the stack was not the thread's own, nobody says anything.
        _ if last_words.contains("overflowed its stack") => CheckError::TooDeep,
        Some(SIGSEGV) => CheckError::TooDeep,
        // What allocators do when there is no more.
        Some(SIGABRT) => CheckError::TooLarge(MEMORY_BYTES_MAX >> 20),
        _ => CheckError::Broke,
    }
}
