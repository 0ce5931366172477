//! Work of our own in a process of its own: both sides of it. The process is a launcher that starts nothing.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::de::DeserializeOwned;

use super::files;
use super::launcher::LAUNCHER_ARGUMENT;
use super::order::Order;
use super::policy::Policy;
use super::run::Launcher;
use super::syscalls::{self, Calls};
use crate::apart::Work;

/// The longest file and the largest image take a second or two; nobody waits longer.
const PROCESSOR_SECONDS_MAX: u64 = 10;

/// Processes of this kind at once, in the whole server.
const AT_ONCE_MAX: usize = 4;

/// Between two looks at whether anybody still waits.
const LOOK: Duration = Duration::from_millis(20);

impl Launcher {
    /// Does the work in a process of its own. Blocks. When `stopped` says so, the process is ended.
    pub(crate) fn apart<T: DeserializeOwned>(
        &self,
        work: &Work,
        stopped: &dyn Fn() -> bool,
    ) -> Result<T, String> {
        let _place = Place::wait_for(stopped)?;
        let order = serde_json::to_vec(&Order::<(), &Work>::Apart(work));
        let mut order = order.map_err(|error| error.to_string())?;
        order.push(b'\n');
        let failed = |error: io::Error| format!("a process for it cannot be started: {error}");
        let (mut worker, socket) = self.worker().map_err(failed)?;
        // A worker that is gone already is noticed when its answer is missing.
        let _ = (&socket).write_all(&order).and_then(|()| socket.shutdown(Shutdown::Write));
        socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
        let mut answer = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match (&socket).read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => answer.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
            if stopped() {
                return Err("the call was cancelled".into());
            }
        }
        match serde_json::from_slice(&answer) {
            Ok(done) => done,
            Err(_) => Err(worker.0.wait().map_or_else(
                |error| error.to_string(),
                |status| why(status, work.memory_bytes_max()),
            )),
        }
    }

    fn worker(&self) -> io::Result<(Worker, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(self.program())
            .arg0("nexus3")
            .arg(LAUNCHER_ARGUMENT)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok((Worker(child), ours))
    }
}

/// The worker's side: gives up what it does not need, works, and answers.
pub(super) fn serve(work: Work, server: &UnixStream) -> io::Result<()> {
    let most = Some(PROCESSOR_SECONDS_MAX);
    setrlimit(Resource::Cpu, Rlimit { current: most, maximum: most })?;
    close_in(work.memory_bytes_max())?;
    let mut server = server;
    server.write_all(&work.run()?)
}

/// Takes from the calling thread, and those it starts from now on, files, network and other processes, and bounds the
/// memory that the process takes beside what it has. For processes of our own that read foreign texts; to be called while
/// there is one thread.
pub fn close_in(memory_bytes_max: u64) -> io::Result<()> {
    limit(memory_bytes_max)?;
    let nothing = Policy::nothing();
    let calls = Calls { network: false, metadata: false };
    // Where the kernel cannot do this, the bounds still hold.
    let _ = files::confine(&nothing, None).and_then(|()| syscalls::refuse(calls));
    Ok(())
}

fn limit(memory_bytes_max: u64) -> io::Result<()> {
    // What was mapped so far counts too, and allocators map ahead of their needs.
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mapped = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let mapped = mapped.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let mapped = mapped.ok_or(ErrorKind::InvalidData)? << 10;
    for (resource, most) in [
        (Resource::Data, mapped + memory_bytes_max),
        (Resource::Fsize, 0),
        // A dump would hold a stranger's file.
        (Resource::Core, 0),
    ] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Why a worker ended without an answer.
fn why(status: ExitStatus, memory_bytes_max: u64) -> String {
    match status.signal() {
        Some(libc::SIGXCPU | libc::SIGKILL) => {
            format!("it takes more than {PROCESSOR_SECONDS_MAX} s of processor time")
        }
        // What allocators do when there is no more.
        Some(libc::SIGABRT) => {
            format!("it takes more than {} MiB of memory", memory_bytes_max >> 20)
        }
        Some(signal) => format!("what was to read it broke (signal {signal})"),
        None => "what was to read it broke".into(),
    }
}

/// A process that ends with whoever waits for it.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // A failure means that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One of the places for workers, taken.
struct Place;

static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl Place {
    fn wait_for(stopped: &dyn Fn() -> bool) -> Result<Self, String> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken == AT_ONCE_MAX {
            if stopped() {
                return Err("the call was cancelled".into());
            }
            let woken = FREED.wait_timeout(taken, LOOK);
            taken = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += 1;
        Ok(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FREED.notify_one();
    }
}
