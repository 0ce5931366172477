//! The signals at which the program ends.

use std::fs;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP: the program is to end, and to leave nothing behind.
pub struct Signals {
    terminate: Signal,
    /// `None` for a server that a terminal started, which is told otherwise.
    interrupt: Option<Signal>,
    /// `None` where whoever started the program wants it to outlive the terminal.
    hangup: Option<Signal>,
    /// Unheeded, but heard: by default they end the program.
    _unheeded: Vec<Signal>,
}

/// SIGXFSZ, which has no name in tokio: a write past a file size limit should only fail.
const FILE_TOO_LARGE: SignalKind = SignalKind::from_raw(25);

impl Signals {
    pub fn listen() -> anyhow::Result<Self> {
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: Some(signal(SignalKind::interrupt())?),
            hangup,
            _unheeded: vec![signal(FILE_TOO_LARGE)?],
        })
    }

    /// For a server that a terminal started: what is meant for the terminal does not end it.
    pub fn listen_beside_terminal() -> anyhow::Result<Self> {
        let unheeded = [FILE_TOO_LARGE, SignalKind::interrupt(), SignalKind::hangup()];
        let unheeded = unheeded.map(signal).into_iter().collect::<Result<_, _>>()?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: None, hangup: None, _unheeded: unheeded })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            Some(_) = async { self.interrupt.as_mut()?.recv().await } => {}
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
