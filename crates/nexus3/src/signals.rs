//! The signals at which the program ends.

use std::fs;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP: the program is to end, and to leave nothing behind.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where whoever started the program wants it to outlive the terminal.
    hangup: Option<Signal>,
    /// Unheeded, but heard: by default it ends the program where a write past a file size limit should only fail.
    _file_too_large: Signal,
}

/// SIGXFSZ, which has no name in tokio.
const FILE_TOO_LARGE: SignalKind = SignalKind::from_raw(25);

impl Signals {
    pub fn listen() -> anyhow::Result<Self> {
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
            _file_too_large: signal(FILE_TOO_LARGE)?,
        })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = async { self.hangup.as_mut()?.recv().await } => {}
        }
    }
}

/// Whether SIGHUP was ignored when the program was started, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The first bit is the first signal, SIGHUP.
    ignored.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1))
}
