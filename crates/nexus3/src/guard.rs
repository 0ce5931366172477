//! `nexus3 __guard`: puts a terminal in order again when the program that had changed its modes was killed.
//!
//! Its standard input is the terminal, open for reading and writing; its standard output is one end of a pair of sockets
//! (or the reading end of a pipe), of which the program has the other. A byte from there means that the program left all
//! in order itself; an end without one, that it could not.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use anyhow::Context as _;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, Termios, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::complain;

pub const ARGUMENT: &str = "__guard";

/// Ends what a terminal program may have begun: a synchronized update, bracketed paste, kitty's keyboard flags, a line
/// without wrapping, a hidden cursor, colours, a line; and takes away what the program had drawn below that.
const UNDO: &[u8] = b"\x1b[?2026l\x1b[?2004l\x1b[<1u\x1b[?7h\x1b[?25h\x1b[0m\r\n\x1b[J";

/// SIGTTOU, which has no name in tokio.
const BACKGROUND_OUTPUT: SignalKind = SignalKind::from_raw(22);

pub fn main() -> ExitCode {
    match guard() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn guard() -> anyhow::Result<()> {
    let tty: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let before = tcgetattr(&tty).context("standard input must be a terminal")?;
    // What ends the program's group, or hangs up on its session, must not end this.
    rustix::process::setsid().context("this process cannot have a session of its own")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    let unheeded = [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::quit(),
        BACKGROUND_OUTPUT,
    ];
    let _unheeded = unheeded.map(signal).into_iter().collect::<Result<Vec<_>, _>>()?;

    let mut program = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // From now on the modes may be changed; a pipe cannot be told.
    let _ = program.write(b".");
    if left_in_order(&mut program) {
        return Ok(());
    }
    restore(tty, before)
}

/// Waits for the end of the program, and returns whether it took its leave.
fn left_in_order(program: &mut impl Read) -> bool {
    loop {
        match program.read(&mut [0]) {
            Ok(bytes) => return bytes > 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// What was typed for the program goes: a shell would take it for commands.
fn restore(tty: OwnedFd, before: Termios) -> anyhow::Result<()> {
    let settings = tcsetattr(&tty, OptionalActions::Flush, &cooked(before));
    let modes = File::from(tty).write_all(UNDO);
    settings.context("the terminal's settings cannot be restored")?;
    modes.context("the terminal's modes cannot be restored")
}

/// Settings with which a person can work. Where the program was quicker than this one, its own were found: a shell's are
/// put in their place.
fn cooked(mut found: Termios) -> Termios {
    if !found.local_modes.contains(LocalModes::ICANON) {
        found.input_modes |= InputModes::ICRNL | InputModes::IXON;
        found.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
        found.local_modes |=
            LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
    }
    found
}
