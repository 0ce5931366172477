//! Standard output, whose reader may go away (`nexus3 … | head`): that ends a command without a word. And which may be a
//! terminal: what others wrote must not steer that one ([`nexus_core::visible`]).

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use nexus_core::visible;

/// How a command ends when nobody reads what it prints: as a shell reports a program that SIGPIPE ended.
pub const READER_GONE: u8 = 141;

/// Nobody reads standard output any more.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads standard output any more")]
pub struct ReaderGone;

/// Writes text of others at once: to a terminal so that it cannot steer it, to a file or a program as it is.
pub fn say(text: impl AsRef<str>) -> anyhow::Result<()> {
    print(for_screen(text.as_ref(), io::stdout().is_terminal()).as_bytes())
}

/// The same for any writer, which may be a terminal.
pub fn for_screen(text: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal { visible::text(text) } else { text.into() }
}

/// Writes JSON, whoever reads it: it is the same value however it is written.
pub fn print_json(text: impl AsRef<str>) -> anyhow::Result<()> {
    print(visible::json(text.as_ref()).as_bytes())
}

/// Writes `text`, which is our own, as it is and at once.
pub fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(failed)
}

/// What a failed write to standard output means for the command.
pub fn failed(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::new(error).context("standard output"),
    }
}

/// Tells a person something on standard error. Where that is closed too there is nobody to tell.
pub fn complain(text: impl std::fmt::Display) {
    let text = text.to_string();
    let _ = writeln!(io::stderr(), "{}", visible::text(&text));
}
