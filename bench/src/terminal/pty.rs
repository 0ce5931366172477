//! A program on a terminal of its own, 80 by 24: what it writes, each piece with the time at which it came, and keys for it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::client::find;
use crate::server::Process;

/// Longest wait for something to be written.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// With what the terminal begins each of its frames.
const FRAME: &[u8] = b"\x1b[?2026h";

/// With what a text of ours begins to be drawn, or a sequence of the emulator.
const ESCAPE: u8 = 0x1b;

pub struct Pty {
    process: Process,
    screen: File,
    written: Receiver<(Instant, Vec<u8>)>,
    /// What came and was not looked at, and when the last of it did.
    seen: Vec<u8>,
    at: Instant,
    pub began: Instant,
    pub counts: Counts,
    /// Bytes of a frame's beginning that the last piece ended with.
    matched: usize,
}

/// What was written so far.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub bytes: usize,
    pub frames: usize,
}

impl Pty {
    pub fn run(mut command: Command) -> anyhow::Result<Self> {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&screen)?;
        unlockpt(&screen)?;
        let name = ptsname(&screen, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = rustix::fs::open(&*name, flags, Mode::empty())?;
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&screen, size)?;
        command.stdin(Stdio::from(line.try_clone()?));
        command.stdout(Stdio::from(line.try_clone()?)).stderr(Stdio::from(line));
        let screen = File::from(screen);
        let (sender, written) = channel();
        let mut reader = screen.try_clone()?;
        std::thread::spawn(move || {
            let mut bytes = vec![0; 64 * 1024];
            // The read fails once nobody has the terminal open any more.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send((Instant::now(), bytes[..count].to_vec())).is_err() {
                    return;
                }
            }
        });
        let began = Instant::now();
        let process = Process(command.spawn().context("the program on the terminal")?);
        // Its ends of the line are the program's alone now.
        drop(command);
        Ok(Self {
            process,
            screen,
            written,
            seen: Vec::new(),
            at: began,
            began,
            counts: Counts::default(),
            matched: 0,
        })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) -> anyhow::Result<()> {
        Ok(self.screen.write_all(keys.as_bytes())?)
    }

    /// Waits until this is written, behind what was waited for before; when it came.
    pub fn until(&mut self, what: &str) -> anyhow::Result<Instant> {
        let (what, deadline) = (what.as_bytes(), Instant::now() + WAIT_MAX);
        loop {
            if let Some(start) = find(&self.seen, what) {
                self.seen.drain(..start + what.len());
                return Ok(self.at);
            }
            // The next piece may bring the rest of it.
            let passed = self.seen.len().saturating_sub(what.len() - 1);
            let last = self.seen.clone();
            self.seen.drain(..passed);
            if !self.read(deadline)? {
                let what = String::from_utf8_lossy(what);
                bail!("{what:?} was not written; last: {:?}", String::from_utf8_lossy(&last));
            }
        }
    }

    /// What stands before the next `end`.
    pub fn before(&mut self, end: char) -> anyhow::Result<String> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let text = String::from_utf8_lossy(&self.seen);
            if let Some((before, _)) = text.split_once(end) {
                return Ok(before.to_owned());
            }
            if !self.read(deadline)? {
                bail!("{end:?} was not written");
            }
        }
    }

    /// Lets time pass; what is written meanwhile is counted and not looked at.
    pub fn pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + time;
        while self.read(deadline)? {
            self.seen.clear();
        }
        self.seen.clear();
        Ok(())
    }

    /// Waits for the program to end.
    pub fn end(mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        while self.read(deadline)? {
            self.seen.clear();
        }
        self.process.0.wait()?;
        Ok(())
    }

    /// Takes the next piece; whether one came in time.
    fn read(&mut self, deadline: Instant) -> anyhow::Result<bool> {
        match self.written.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((at, bytes)) => {
                self.at = at;
                self.count(&bytes);
                self.seen.extend(bytes);
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(false),
        }
    }

    fn count(&mut self, bytes: &[u8]) {
        self.counts.bytes += bytes.len();
        for byte in bytes {
            self.matched = match *byte {
                byte if byte == FRAME[self.matched] => self.matched + 1,
                byte => usize::from(byte == ESCAPE),
            };
            if self.matched == FRAME.len() {
                self.counts.frames += 1;
                self.matched = 0;
            }
        }
    }
}
