//! Panics are lines of the log too. As the text that a panic prints of itself they would stand raw between these lines,
//! and what broke there may quote what somebody sent.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

use super::queue::WRITER;

/// Writes down every panic of this process from now on. Who ran into it is named by the lines of those who catch it.
pub fn log_them() {
    std::panic::set_hook(Box::new(log));
}

fn log(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let thread = std::thread::current();
    // Nobody is left who would write a line of the log down.
    if thread.name() == Some(WRITER) {
        eprintln!("{panic}");
    }
    let is_wanted = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        panic = panic.payload_as_str().unwrap_or("it said nothing"),
        at = panic.location().map(ToString::to_string),
        thread = thread.name(),
        backtrace = is_wanted.then(|| backtrace.to_string()),
        "something panicked"
    );
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use serde_json::Value;
    use tracing_subscriber::fmt::MakeWriter;

    use super::super::events::{Lines, Members};
    use super::*;
    use crate::cli::LogFormat;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        fn take(&self) -> String {
            let taken = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            String::from_utf8(taken).unwrap()
        }
    }

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_panic_is_one_line_with_its_words_and_its_place() {
        let written = Written::default();
        let lines = |format| {
            tracing_subscriber::fmt()
                .fmt_fields(Members)
                .event_format(Lines(format))
                .with_writer(written.clone())
                .finish()
        };
        let usual = std::panic::take_hook();
        log_them();
        for format in [LogFormat::Json, LogFormat::Text] {
            tracing::subscriber::with_default(lines(format), || {
                let words = "first\nsecond\u{1b}[2J";
                let caught = std::panic::catch_unwind::<_, ()>(|| panic!("{words}"));
                assert!(caught.is_err());
            });
        }
        std::panic::set_hook(usual);
        let written = written.take();
        let [json, text] = &written.lines().collect::<Vec<_>>()[..] else { panic!("{written:?}") };
        let line: Value = serde_json::from_str(json).unwrap();
        assert_eq!(line["level"], "ERROR");
        assert_eq!(line["message"], "something panicked");
        assert_eq!(line["data"]["panic"], "first\nsecond\u{1b}[2J");
        assert!(line["data"]["at"].as_str().unwrap().contains("panics.rs:"), "{line}");
        assert!(text.contains("panic=first\\nsecond\\u{1b}[2J at="), "{text}");
    }
}
