//! The line of each call. Of all lines these are the many, so they are made by hand: through the general way a small call
//! would spend a tenth of its time there.

use std::cell::RefCell;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nexus_core::visible;
use nexus_protocol::Id;
use nexus_server::calls::{CallLog, EndedCall};

use super::queue::Queue;
use super::time_for_people;
use crate::cli::LogFormat;

pub struct Calls {
    pub format: LogFormat,
    pub queue: Arc<Queue>,
}

impl CallLog for Calls {
    fn call(&self, call: &EndedCall<'_>) {
        thread_local! {
            /// A busy server logs every call: the buffer is kept.
            static LINE: RefCell<(Vec<u8>, Clock)> = RefCell::default();
        }
        LINE.with_borrow_mut(|(line, clock)| {
            line.clear();
            match self.format {
                LogFormat::Json => write_json(line, clock, call),
                LogFormat::Text => write_text(line, call),
            }
            self.queue.put(line);
        });
    }
}

fn write_json(line: &mut Vec<u8>, clock: &mut Clock, call: &EndedCall<'_>) {
    line.extend_from_slice(b"{\"timestamp\":\"");
    clock.write(call.ended, line);
    line.extend_from_slice(
        b"\",\"level\":\"INFO\",\"message\":\"RPC Request\",\"data\":{\"method\":",
    );
    put_string(line, call.method);
    line.extend_from_slice(b",\"id\":");
    line.extend_from_slice(visible::json(call.id.map_or("null", Id::as_json)).as_bytes());
    line.extend_from_slice(b",\"duration_ms\":");
    put_thousandths(line, call.duration.as_micros() as u64);
    match call.error {
        None => line.extend_from_slice(b",\"status\":\"success\""),
        Some(code) => {
            // Writing to memory does not fail.
            let _ = write!(line, ",\"status\":\"error\",\"code\":{code}");
        }
    }
    if let Some(door) = call.door {
        line.extend_from_slice(b",\"door\":");
        put_string(line, door.name());
    }
    line.extend_from_slice(b"}}\n");
}

fn write_text(line: &mut Vec<u8>, call: &EndedCall<'_>) {
    let id = call.id.map_or("null", Id::as_json);
    let (method, id) = (visible::line(call.method), visible::line(id));
    let _ = write!(
        line,
        "{} INFO  RPC Request method={method} id={id} duration_ms=",
        time_for_people()
    );
    put_thousandths(line, call.duration.as_micros() as u64);
    let _ = match call.error {
        None => write!(line, " status=success"),
        Some(code) => write!(line, " status=error code={code}"),
    };
    if let Some(door) = call.door {
        let _ = write!(line, " door={}", door.name());
    }
    line.push(b'\n');
}

/// Writes the time to the millisecond. It is asked for, and the part down to the second made, once a second: a call
/// knows already when it ended.
#[derive(Default)]
struct Clock {
    second_began: Option<Instant>,
    text: String,
}

impl Clock {
    fn write(&mut self, now: Instant, out: &mut Vec<u8>) {
        let since = |began: Instant| now.checked_duration_since(began);
        let known = self.second_began.and_then(since).filter(|since| since.as_secs() == 0);
        let within = known.unwrap_or_else(|| self.ask(now));
        out.extend_from_slice(self.text.as_bytes());
        put_thousandth(out, within.subsec_millis().into());
        out.push(b'Z');
    }

    /// Learns the second; returns how much of it has passed.
    fn ask(&mut self, now: Instant) -> Duration {
        let time = Timestamp::now();
        self.text = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        let within = Duration::from_nanos(time.subsec_nanosecond().unsigned_abs().into());
        self.second_began = now.checked_sub(within);
        within
    }
}

/// A JSON string. Most are words.
fn put_string(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b' ');
    if text.bytes().all(is_plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        let text = serde_json::Value::from(text).to_string();
        out.extend_from_slice(visible::json(&text).as_bytes());
    }
}

/// A number of thousandths as a decimal. By hand, as every call is timed: to format takes longer than many a call.
fn put_thousandths(out: &mut Vec<u8>, thousandths: u64) {
    match thousandths / 1000 {
        whole @ 0..10 => out.push(b'0' + whole as u8),
        whole => out.extend_from_slice(whole.to_string().as_bytes()),
    }
    put_thousandth(out, thousandths % 1000);
}

/// The point of a decimal and three digits behind it.
fn put_thousandth(out: &mut Vec<u8>, number: u64) {
    let digits = [number / 100, number / 10 % 10, number % 10].map(|digit| b'0' + digit as u8);
    out.push(b'.');
    out.extend_from_slice(&digits);
}
