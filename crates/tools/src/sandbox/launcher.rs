//! The launcher: the process between the server and a command. Synchronous, short-lived, and without a runtime.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use rustix::fs::{MemfdFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, WaitOptions, WaitStatus, getpid, set_child_subreaper, setpgid,
    setrlimit, setsid,
};

use super::limits::Bound;
use super::order::{self, GRACE, Order, Report, Stdin};
use super::syscalls::Calls;
use super::{apart, files, groups, limits, passing, syscalls, tree};

/// The argument that makes the program a launcher. Not for people.
pub const LAUNCHER_ARGUMENT: &str = "__confine";

/// Serves the server at the other end of standard input, then ends. To be called first in `main`, while the process has
/// one thread and has opened nothing, when the first argument is [`LAUNCHER_ARGUMENT`].
pub fn confine_main() -> ! {
    let served = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).and_then(serve);
    std::process::exit(match served {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("nexus3 {LAUNCHER_ARGUMENT}: {error}");
            1
        }
    })
}

fn serve(server: UnixStream) -> io::Result<()> {
    let (first, stdin) = passing::receive(&server)?;
    let mut lines = BufReader::new(io::Cursor::new(first).chain(server.try_clone()?));
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let order: order::Command = match serde_json::from_str(&line)? {
        Order::Run(order) => order,
        Order::Apart(work) => return apart::serve(work, &server),
    };
    let report = match prepare().and_then(|()| limits::take(order.limits)) {
        Ok(()) => run(order, stdin, lines),
        Err(error) => Report::NotStarted(format!("preparing to watch over it: {error}")),
    };
    let mut report = serde_json::to_vec(&report)?;
    report.push(b'\n');
    match (&server).write_all(&report) {
        // The server is not obliged to wait.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn prepare() -> io::Result<()> {
    // Out of the server's process group, so that what ends the server does not end us before we tidied up; and out of
    // its terminal, if there is one. Where there is none, a new session would only slow the start: the scheduler shares
    // a busy machine out by sessions.
    match fs::File::open("/dev/tty") {
        Ok(_) => setsid().map(|_| ())?,
        Err(_) => setpgid(None, None)?,
    }
    // Whoever loses its parent becomes ours, not init's.
    set_child_subreaper(Some(getpid()))?;
    // A dump would hold whatever secrets the program had in memory.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}

/// Runs the command to its end, and its family's.
fn run(
    order: order::Command,
    stdin: Option<OwnedFd>,
    mut server: impl io::Read + Send + 'static,
) -> Report {
    let tmp = match order.tmp.as_deref().map(PrivateDir::make).transpose() {
        Ok(tmp) => tmp,
        Err(error) => return Report::NotStarted(format!("making a private directory: {error}")),
    };
    let begin =
        || std::thread::scope(|scope| scope.spawn(|| start(&order, tmp.as_ref(), stdin)).join());
    let (group, started) = match groups::place() {
        Some(place) => place.within(order.limits, begin),
        None => (None, begin()),
    };
    let meter = group.as_ref().map(|group| group.meter().clone());
    let command = match started {
        Ok(Ok(command)) => command,
        Ok(Err(report)) => return report,
        Err(_) => return Report::NotStarted("the launcher failed".into()),
    };
    std::thread::spawn(move || {
        // Nothing more is ever said; what is waited for is the end.
        let _ = server.read(&mut [0]);
        tree::end(GRACE)
    });
    let exceeded = Arc::new(OnceLock::new());
    let (limits, told, read) = (order.limits, exceeded.clone(), meter.clone());
    std::thread::spawn(move || limits::watch(limits, command, read.as_ref(), &told));
    let Some(status) = reap(command) else {
        return Report::NotStarted("the end of the command was missed".into());
    };
    // What the kernel ended was over before it could be looked at.
    let met = || meter.as_ref().and_then(|meter| meter.exceeded(limits));
    if let Some(bound) = exceeded.get().copied().or_else(met) {
        return Report::Exceeded(bound);
    }
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Report::Exited(code),
        (None, Some(libc::SIGXCPU)) => Report::Exceeded(Bound::ProcessorTime),
        (None, signal) => Report::Killed(signal.unwrap_or_default()),
    }
}

/// Starts the command from a thread that has given up what the command may not have. The thread then ends.
fn start(
    order: &order::Command,
    tmp: Option<&PrivateDir>,
    stdin: Option<OwnedFd>,
) -> Result<Pid, Report> {
    let failed = |error: io::Error| Report::NotStarted(error.to_string());
    let [program, arguments @ ..] = order.argv.as_slice() else {
        return Err(Report::NotStarted("no program was named".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&order.env);
    enter(&order.cwd)?;
    if let Some(tmp) = tmp {
        command.env("TMPDIR", &tmp.0);
        if !order.env.contains_key("HOME") {
            command.env("HOME", &tmp.0);
        }
    }
    command.stdin(match (&order.stdin, stdin) {
        (Stdin::Text(text), _) => in_memory(text).map_err(failed)?.into(),
        (Stdin::Live, Some(pipe)) => pipe.into(),
        (Stdin::Live, None) => return Err(Report::NotStarted("its input is missing".into())),
        (Stdin::Empty, _) => Stdio::null(),
    });
    // Its own group, so that what it does to its group does not reach the launcher.
    command.process_group(0);
    if let Some(policy) = &order.policy {
        let writes = !policy.write.is_empty() || !policy.own.is_empty() || tmp.is_some();
        let calls = Calls { network: policy.network, metadata: writes };
        let confined = files::confine(policy, tmp.map(|tmp| tmp.0.as_path()))
            .and_then(|()| syscalls::refuse(calls));
        if let (Err(error), true) = (confined, policy.required) {
            return Err(Report::NotConfined(error));
        }
    }
    let started = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Report::NotStarted(format!("there is no program {program}")),
        _ => Report::NotStarted(format!("{program}: {error}")),
    })?;
    i32::try_from(started.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| Report::NotStarted("the command has no process id".into()))
}

/// Goes where the command is to start, which it inherits. A link on the way was not there when somebody gave leave for
/// this directory. Being in a directory gives no right there.
fn enter(dir: &Path) -> Result<(), Report> {
    let (flags, resolve) =
        (OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS);
    rustix::fs::openat2(rustix::fs::CWD, dir, flags, Mode::empty(), resolve)
        .and_then(rustix::process::fchdir)
        .map_err(|error| {
            let dir = dir.display();
            Report::NotStarted(match error {
                Errno::NOENT | Errno::NOTDIR => format!("there is no directory {dir}"),
                Errno::LOOP => format!("{dir} leads through a link by now"),
                error => format!("{dir}: {error}"),
            })
        })
}

/// Reaps until no descendant is left. Those that outlive the command are ended.
fn reap(command: Pid) -> Option<WaitStatus> {
    let mut status = None;
    let mut waiting = WaitOptions::empty();
    loop {
        match rustix::process::wait(waiting) {
            Ok(Some((pid, ended))) if pid == command => {
                status = Some(ended);
                waiting = WaitOptions::NOHANG;
            }
            // The command has ended, and others have not.
            Ok(None) => {
                std::thread::spawn(|| tree::end(GRACE));
                waiting = WaitOptions::empty();
            }
            Err(Errno::CHILD) => return status,
            _ => {}
        }
    }
}

/// A file that holds `text` and has no name.
fn in_memory(text: &str) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// A directory for temporary files, which goes when the command has gone.
struct PrivateDir(PathBuf);

impl PrivateDir {
    fn make(parent: &Path) -> io::Result<Self> {
        // Another launcher of the same number may have been killed before it tidied up.
        for attempt in 0.. {
            let path = parent.join(format!("nexus3-{}-{attempt}", getpid().as_raw_pid()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // What a command made undeletable stays; it is the user's own.
        let _ = fs::remove_dir_all(&self.0);
    }
}
