//! From a key to its echo.

use std::time::{Duration, Instant};

use super::pty::Pty;
use crate::stats::{Latencies, ms};
use crate::table::Row;

/// Between two keys: as a fast typist has it, and not a multiple of a frame.
const PAUSE: Duration = Duration::from_millis(23);

/// Keys before the input is emptied.
const LETTERS: usize = 26;

/// Presses so many keys, one after the other.
pub fn keys(pty: &mut Pty, count: usize) -> anyhow::Result<Latencies> {
    let mut took = Vec::with_capacity(count);
    for number in 0..count {
        let key = char::from(b'A' + (number % LETTERS) as u8);
        let line = if key == 'A' { format!("\x15{key}") } else { key.to_string() };
        let pressed = Instant::now();
        pty.press(&line)?;
        took.push(echo(pty, key)? - pressed);
        pty.pass(PAUSE)?;
    }
    pty.press("\x15")?;
    pty.pass(PAUSE)?;
    Ok(Latencies::new(took))
}

/// Waits until the key that was pressed last stands before the caret.
pub fn echo(pty: &mut Pty, key: char) -> anyhow::Result<Instant> {
    pty.until(&format!("{key}\x1b7"))
}

pub fn row(what: impl Into<String>, times: &Latencies) -> Row {
    let (p50, p99) = (ms(times.p50()), ms(times.p99()));
    Row::new(what)
        .measured(format!("{p50:.2} ms, p99 {p99:.2} ms, max {:.1} ms", ms(times.max())))
        .reach("< 2, < 10 ms", p50 < 2.0 && p99 < 10.0)
}
