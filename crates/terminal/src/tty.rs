//! The terminal device: its modes, its size, what comes from it and what goes to it. Whatever is set here is undone on
//! every way out.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::termios::{self, OptionalActions, Termios};
use tokio::net::unix::pipe::Receiver;

/// Bracketed paste, and keys told apart (kitty's first flag; unknown to some, who pass over it).
const SET: &str = "\x1b[?2004h\x1b[>1u";

/// All of it undone, and whatever a frame that was cut off had set.
const UNSET: &str = "\x1b[?2026l\x1b[?7h\x1b[?2004l\x1b[<1u\x1b[?25h\x1b[m";

pub struct Tty {
    /// Opened anew: not to wait must not become a property of what other programs share with us.
    device: OwnedFd,
    /// The same. It is read as a pipe would be, which asks the kernel for nothing that a terminal does not have.
    input: Receiver,
    output: File,
}

/// What the device was set to before, while it is changed; for a panic, which has nothing in its hands.
static BEFORE: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

impl Tty {
    pub fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let name = termios::ttyname(stdin.as_fd(), Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let device = rustix::fs::open(name, flags, Mode::empty())?;
        let input = Receiver::from_owned_fd_unchecked(device.try_clone()?)?;
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self { device, input, output })
    }

    /// Every key by itself from here on.
    pub fn raw(&mut self) -> io::Result<()> {
        let device = &self.device;
        let before = termios::tcgetattr(device)?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(device, OptionalActions::Now, &raw)?;
        *lock() = Some((device.try_clone()?, before));
        self.write(SET)
    }

    /// What was typed before the modes were set. The device made a line end of each Enter then.
    pub fn typed_before(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4 << 10];
        let read = rustix::io::read(&self.device, &mut bytes).unwrap_or(0);
        bytes.truncate(read);
        bytes.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'\r');
        bytes
    }

    /// As it was before.
    pub fn restore(&mut self) {
        restore();
    }

    /// Reads what was typed; 0 when the device is gone.
    pub async fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            self.input.readable().await?;
            match self.input.try_read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Columns and rows; what cannot be asked is as wide as most.
    pub fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(&self.device) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => (80, 24),
        }
    }

    /// All of it in one write, where the device takes it.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.output.write_all(text.as_bytes())
    }

    /// What it is called, as `pts/3`.
    pub fn name() -> Option<String> {
        let name = termios::ttyname(io::stdin().as_fd(), Vec::new()).ok()?;
        Some(name.to_str().ok()?.trim_start_matches("/dev/").to_owned())
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        restore();
    }
}

/// Undoes the modes, if they are set.
pub fn restore() {
    if let Some((device, before)) = lock().take() {
        let _ = io::stdout().write_all(UNSET.as_bytes());
        let _ = io::stdout().flush();
        // What was typed and not read belongs to whoever reads next.
        let _ = termios::tcsetattr(&device, OptionalActions::Drain, &before);
    }
}

/// Makes a panic find the terminal as it was, so that its message can be read.
pub fn restore_before_panics() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        hook(panic);
    }));
}

fn lock() -> std::sync::MutexGuard<'static, Option<(OwnedFd, Termios)>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}
