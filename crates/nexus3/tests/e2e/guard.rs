//! The guard of a terminal, on a real one: what a killed program leaves behind is put in order.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::harness::process::Process;
use crate::harness::{Setup, World, eventually};

/// The line ends as the terminal writes one, whose settings are in order before.
const UNDONE: &str = "\x1b[?2026l\x1b[?2004l\x1b[<1u\x1b[?7h\x1b[?25h\x1b[0m\r\r\n\x1b[J";

/// A terminal, seen from its screen and from its programs.
struct Pty {
    screen: OwnedFd,
    line: OwnedFd,
}

impl Pty {
    fn open() -> Self {
        let screen =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        rustix::io::ioctl_fionbio(&screen, true).unwrap();
        Self { screen, line }
    }

    fn settings(&self) -> Termios {
        tcgetattr(&self.line).unwrap()
    }

    fn make_raw(&self) {
        let mut raw = self.settings();
        raw.make_raw();
        tcsetattr(&self.line, OptionalActions::Now, &raw).unwrap();
    }

    /// What has come to the screen since the last look.
    fn shown(&self) -> String {
        let mut shown = [0; 4096];
        match rustix::io::read(&self.screen, &mut shown) {
            Ok(bytes) => String::from_utf8(shown[..bytes].to_vec()).unwrap(),
            Err(error) => {
                assert_eq!(io::Error::from(error).kind(), io::ErrorKind::WouldBlock);
                String::new()
            }
        }
    }
}

/// What can be compared of settings.
fn modes(settings: &Termios) -> String {
    format!("{settings:?}")
}

/// A guard of the terminal, with the program's end of the sockets between them.
fn start(world: &World, pty: &Pty) -> (Process, UnixStream) {
    let (own, theirs) = UnixStream::pair().unwrap();
    let mut command = world.command(["__guard"]);
    command.stdin(pty.line.try_clone().unwrap()).stdout(OwnedFd::from(theirs));
    (Process::spawn_on(command), own)
}

/// Waits until the guard knows the settings.
fn ready(program: &mut UnixStream) {
    assert_eq!(program.read(&mut [0]).unwrap(), 1);
}

async fn world() -> Arc<World> {
    Setup::new().world().await
}

#[tokio::test]
async fn a_terminal_is_in_order_after_its_program_was_killed() {
    let (world, pty) = (world().await, Pty::open());
    let before = modes(&pty.settings());
    let (mut guard, mut program) = start(&world, &pty);
    ready(&mut program);
    // The program is one that has the other end, and knows nothing of it.
    let mut holder = world.shell("exec sleep 1000");
    holder.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    holder.stdin(OwnedFd::from(program));
    let mut holder = Process::spawn_on(holder);
    pty.make_raw();
    assert_ne!(modes(&pty.settings()), before);
    // What is meant for a terminal's programs does not end it.
    for signal in [Signal::HUP, Signal::INT, Signal::TERM, Signal::QUIT, Signal::TTOU] {
        guard.signal(signal);
    }
    assert_eq!(pty.shown(), "");
    holder.signal(Signal::KILL);
    holder.exit().await;
    assert!(guard.exit().await.success());
    assert_eq!(modes(&pty.settings()), before);
    assert_eq!(pty.shown(), UNDONE);
    assert_eq!(guard.log().complete().await, "");
}

#[tokio::test]
async fn a_program_that_took_its_leave_is_believed() {
    let (world, pty) = (world().await, Pty::open());
    let (mut guard, mut program) = start(&world, &pty);
    ready(&mut program);
    pty.make_raw();
    let raw = modes(&pty.settings());
    program.write_all(b"x").unwrap();
    drop(program);
    assert!(guard.exit().await.success());
    assert_eq!((modes(&pty.settings()), pty.shown()), (raw, String::new()));
}

#[tokio::test]
async fn a_program_that_was_quicker_leaves_a_terminal_to_work_with() {
    let (world, pty) = (world().await, Pty::open());
    let before = modes(&pty.settings());
    pty.make_raw();
    let (mut guard, mut program) = start(&world, &pty);
    ready(&mut program);
    drop(program);
    assert!(guard.exit().await.success());
    assert_eq!(modes(&pty.settings()), before);
    assert_eq!(pty.shown(), UNDONE);
}

#[tokio::test]
async fn a_pipe_does_as_well() {
    let (world, pty) = (world().await, Pty::open());
    let (reading, writing) = io::pipe().unwrap();
    let mut command = world.command(["__guard"]);
    command.stdin(pty.line.try_clone().unwrap()).stdout(OwnedFd::from(reading));
    let mut guard = Process::spawn_on(command);
    // It has a session of its own when it has read the settings.
    let id = guard.id();
    eventually("a session", async || {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(3) == Some(&id.to_string())
    })
    .await;
    drop(writing);
    assert!(guard.exit().await.success());
    assert_eq!(pty.shown(), UNDONE);
}

#[tokio::test]
async fn what_is_no_terminal_is_not_guarded() {
    let world = world().await;
    let mut command = world.command(["__guard"]);
    command.stdin(Stdio::from(File::open("/dev/null").unwrap())).stdout(Stdio::null());
    let mut guard = Process::spawn_on(command);
    assert_eq!(guard.exit().await.code(), Some(1));
    assert!(guard.log().complete().await.contains("must be a terminal"));
}
