//! A command that runs for as long as somebody talks to it: its three streams, and the leash that it is held by.

use std::os::fd::AsFd as _;

use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::task::JoinHandle;

use super::order::{Command, GRACE};
use super::passing;
use super::run::{ENDING_MAX, End, LaunchError, Launcher, encode, ended, report};

/// A command that was started, with what it reads and prints.
pub struct Living {
    pub stdin: pipe::Sender,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
    pub leash: Leash,
}

/// What ends a command and all that it started. Dropped, it does so too, and nobody hears how that went; so does the end
/// of this process, whatever it is.
pub struct Leash {
    /// Of the launcher.
    pub pid: Option<u32>,
    order: OwnedWriteHalf,
    told: JoinHandle<Result<End, LaunchError>>,
}

impl Launcher {
    /// Starts a command whose input is [`Live`](super::Stdin::Live). That it was refused or could not be started shows in
    /// how it ended.
    pub async fn live(&self, command: &Command) -> Result<Living, LaunchError> {
        let order = encode(command)?;
        let failed = LaunchError::Launcher;
        let (stdin, theirs) = pipe::pipe().map_err(failed)?;
        let theirs = theirs.into_blocking_fd().map_err(failed)?;
        let (mut child, server) = self.start().map_err(failed)?;
        let sent = passing::send(&server, &order, theirs.as_fd()).map_err(failed)?;
        let (read, mut write) = UnixStream::from_std(server).map_err(failed)?.into_split();
        // A launcher that is gone already is noticed when its report is missing.
        let _ = write.write_all(&order[sent..]).await;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(LaunchError::Lost);
        };
        let pid = child.id();
        let told = tokio::spawn(async move {
            let end = report(read).await.and_then(ended);
            // It has said its last word.
            let _ = tokio::time::timeout(ENDING_MAX, child.wait()).await;
            end
        });
        Ok(Living { stdin, stdout, stderr, leash: Leash { pid, order: write, told } })
    }
}

impl Leash {
    /// Waits for the command's own end; nothing of it runs any more then. May be dropped and asked again.
    pub async fn ended(&mut self) -> Result<End, LaunchError> {
        (&mut self.told).await.unwrap_or(Err(LaunchError::Lost))
    }

    /// Ends it, and all that it started.
    pub async fn end(mut self) -> Result<End, LaunchError> {
        // A failure means that it has ended.
        let _ = self.order.shutdown().await;
        match tokio::time::timeout(GRACE + ENDING_MAX, self.ended()).await {
            Ok(Ok(_)) => Ok(End::Cancelled),
            Ok(failed) => failed,
            Err(_) => Err(LaunchError::Lost),
        }
    }
}
