//! The server's side of a command: start a launcher, tell it what to run, collect what is printed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nexus_core::tool::Onlookers;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::sync::CancellationToken;

use super::launcher::LAUNCHER_ARGUMENT;
use super::limits::Bound;
use super::live::Live;
use super::order::{Command, GRACE, Order, Report};
use super::output::Kept;

/// How long a launcher may take to end everything, beyond the grace, before it is given up. It goes on by itself.
pub(super) const ENDING_MAX: Duration = Duration::from_secs(5);

/// For what is still in the pipes when all writers have gone.
const DRAIN_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Outcome {
    pub end: End,
    pub stdout: Kept,
    pub stderr: Kept,
    pub took: Duration,
}

/// How a command ended. Whichever it is, nothing of it runs any more.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    Killed(i32),
    Exceeded(Bound),
    TimedOut,
    Cancelled,
}

/// Why a command did not run, or is not known to have.
#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("{0}")]
    NotStarted(String),
    #[error("the kernel did not confine the command, so it was not run: {0}")]
    NotConfined(String),
    #[error("the command's launcher ended before it")]
    Lost,
    #[error("the launcher cannot be started: {0}")]
    Launcher(io::Error),
    #[error("a path or argument of the command is not text: {0}")]
    Order(serde_json::Error),
}

/// Starts commands through this server's own binary.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
}

impl Launcher {
    /// The program that is running now, even if its file was replaced since.
    pub fn own() -> Self {
        Self { program: "/proc/self/exe".into() }
    }

    /// Another program that calls [`confine_main`](super::confine_main).
    pub fn new(program: PathBuf) -> Self {
        Self { program }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs a command to its end, before the eyes of `onlookers`. When this future is dropped, the command and all it started are ended.
    pub async fn run(
        &self,
        command: &Command,
        cancel: &CancellationToken,
        onlookers: &dyn Onlookers,
    ) -> Result<Outcome, LaunchError> {
        let started = Instant::now();
        let order = encode(command)?;
        let (mut child, server) = self.start().map_err(LaunchError::Launcher)?;
        let server = UnixStream::from_std(server).map_err(LaunchError::Launcher)?;
        let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
        let live = Live::new(onlookers);
        let (from, to) = (child.stdout.take(), child.stderr.take());
        let printed = async {
            let fill_stdout = async {
                if let Some(pipe) = from {
                    stdout.fill(pipe, live.stream()).await
                }
            };
            let fill_stderr = async {
                if let Some(pipe) = to {
                    stderr.fill(pipe, live.stream()).await
                }
            };
            tokio::join!(fill_stdout, fill_stderr);
        };
        let (all_ended, ended) = tokio::sync::oneshot::channel();
        let told = async {
            let end = converse(server, &order, command.timeout, cancel).await;
            let _ = all_ended.send(());
            end
        };
        let printed = async {
            tokio::pin!(printed);
            tokio::select! {
                () = &mut printed => return,
                _ = ended => {}
            }
            // Only a command without bounds can leave a pipe open: one that killed its launcher.
            let _ = tokio::time::timeout(DRAIN_MAX, printed).await;
        };
        let (end, ()) = live.during(async { tokio::join!(told, printed) }).await;
        let end = end?;
        // It has said its last word.
        let _ = tokio::time::timeout(DRAIN_MAX, child.wait()).await;
        Ok(Outcome { end, stdout, stderr, took: started.elapsed() })
    }

    /// Not killed when dropped: it has a family to end, and does so when the socket closes.
    pub(super) fn start(
        &self,
    ) -> io::Result<(tokio::process::Child, std::os::unix::net::UnixStream)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = tokio::process::Command::new(&self.program)
            .arg0("nexus3")
            .arg(LAUNCHER_ARGUMENT)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok((child, ours))
    }
}

pub(super) fn encode(command: &Command) -> Result<Vec<u8>, LaunchError> {
    let order = Order::<_, ()>::Run(command);
    let mut line = serde_json::to_vec(&order).map_err(LaunchError::Order)?;
    line.push(b'\n');
    Ok(line)
}

/// Gives the order and waits for the report; asks for the end when time is up or the turn was cancelled.
async fn converse(
    server: UnixStream,
    order: &[u8],
    timeout: Duration,
    cancel: &CancellationToken,
) -> Result<End, LaunchError> {
    let (read, mut write): (OwnedReadHalf, OwnedWriteHalf) = server.into_split();
    // A launcher that is gone already is noticed when its report is missing.
    let _ = write.write_all(order).await;
    let report = report(read);
    tokio::pin!(report);
    let stopped = tokio::select! {
        report = &mut report => return ended(report?),
        () = tokio::time::sleep(timeout) => End::TimedOut,
        () = cancel.cancelled() => End::Cancelled,
    };
    let _ = write.shutdown().await;
    match tokio::time::timeout(GRACE + ENDING_MAX, report).await {
        Ok(report) => report.map(|_| stopped),
        Err(_) => Err(LaunchError::Lost),
    }
}

pub(super) async fn report(read: OwnedReadHalf) -> Result<Report, LaunchError> {
    let mut line = String::new();
    let read = BufReader::new(read).read_line(&mut line).await;
    read.ok().and_then(|_| serde_json::from_str(&line).ok()).ok_or(LaunchError::Lost)
}

pub(super) fn ended(report: Report) -> Result<End, LaunchError> {
    match report {
        Report::Exited(code) => Ok(End::Exited(code)),
        Report::Killed(signal) => Ok(End::Killed(signal)),
        Report::Exceeded(bound) => Ok(End::Exceeded(bound)),
        Report::NotConfined(why) => Err(LaunchError::NotConfined(why)),
        Report::NotStarted(why) => Err(LaunchError::NotStarted(why)),
    }
}
