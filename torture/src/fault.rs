//! The server under torture: the program itself, on a store that breaks where it is told to.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nexus_core::store::StoreError;
use nexus_store::{Commits, OpenError, Options, SqliteStore, Verdict};
use rustix::process::{Signal, getpid, kill_process};

/// What is wrong with the store. Commits and jobs are counted from 1, from the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Dies with everything of the commit written but the commit itself.
    DieBefore(u64),
    /// Dies with the commit on disk and nobody answered.
    DieAfter(u64),
    /// Every so many commits fail, in turn as a full disk, a disk that cannot be written and anything else.
    FailEvery(u64),
    /// This one job fails.
    FailJob(u64),
    /// Every so many jobs fail, each alone.
    FailJobs(u64),
    /// From this commit on nothing reaches the disk, and nobody is told.
    LieFrom(u64),
    /// Another process is taken for dead after so many milliseconds of silence.
    Silence(u64),
}

/// Runs `nexus3 serve` with `args`.
pub fn serve(fault: Fault, args: Vec<OsString>) -> ExitCode {
    let open = move |home: &Path| open(home, fault, Arc::default());
    let program = ["nexus3", "serve"].into_iter().map(OsString::from);
    nexus3::main_on(&open, program.chain(args))
}

/// Opens a store that breaks, and counts its jobs.
pub fn open(home: &Path, fault: Fault, jobs: Arc<AtomicU64>) -> Result<SqliteStore, OpenError> {
    let mut options = Options::default();
    match fault {
        Fault::None => {}
        Fault::Silence(ms) => options.silence_max = Duration::from_millis(ms),
        fault => options.commits = Some(Box::new(Faulty { fault, jobs })),
    }
    SqliteStore::open_with(home, options)
}

struct Faulty {
    fault: Fault,
    jobs: Arc<AtomicU64>,
}

impl Commits for Faulty {
    fn before(&mut self, number: u64) -> Verdict {
        match self.fault {
            Fault::DieBefore(at) if at == number => die(),
            Fault::FailEvery(every) if number.is_multiple_of(every) => {
                Verdict::Fail(failure(number / every))
            }
            Fault::LieFrom(from) if number >= from => Verdict::Lie,
            _ => Verdict::Commit,
        }
    }

    fn after(&mut self, number: u64) {
        if self.fault == Fault::DieAfter(number) {
            die();
        }
    }

    fn fail_job(&mut self, number: u64) -> Option<StoreError> {
        self.jobs.store(number, Ordering::Relaxed);
        match self.fault {
            Fault::FailJob(at) => (at == number).then(|| failure(number)),
            Fault::FailJobs(every) => number.is_multiple_of(every).then(|| failure(number / every)),
            _ => None,
        }
    }
}

/// One of the ways in which stores fail.
fn failure(number: u64) -> StoreError {
    match number % 3 {
        0 => StoreError::DiskFull,
        1 => StoreError::ReadOnly,
        _ => StoreError::Failed("injected".into()),
    }
}

/// As `kill -9` does it, from inside.
fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => write!(f, "none"),
            Self::DieBefore(at) => write!(f, "die-before:{at}"),
            Self::DieAfter(at) => write!(f, "die-after:{at}"),
            Self::FailEvery(every) => write!(f, "fail-every:{every}"),
            Self::FailJob(at) => write!(f, "fail-job:{at}"),
            Self::FailJobs(every) => write!(f, "fail-jobs:{every}"),
            Self::LieFrom(from) => write!(f, "lie-from:{from}"),
            Self::Silence(ms) => write!(f, "silence:{ms}"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let known = text.split_once(':').and_then(|(name, number)| {
            let number = number.parse().ok().filter(|number| *number > 0)?;
            Some(match name {
                "die-before" => Self::DieBefore(number),
                "die-after" => Self::DieAfter(number),
                "fail-every" => Self::FailEvery(number),
                "fail-job" => Self::FailJob(number),
                "fail-jobs" => Self::FailJobs(number),
                "lie-from" => Self::LieFrom(number),
                "silence" => Self::Silence(number),
                _ => return None,
            })
        });
        known.ok_or_else(|| format!("{text} is no fault: see torture/src/fault.rs"))
    }
}
