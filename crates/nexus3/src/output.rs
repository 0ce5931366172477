//! Standard output, whose reader may go away (`nexus3 … | head`): that ends a command without a word.

use std::io::{self, Write as _};

/// How a command ends when nobody reads what it prints: as a shell reports a program that SIGPIPE ended.
pub const READER_GONE: u8 = 141;

/// Nobody reads standard output any more.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads standard output any more")]
pub struct ReaderGone;

/// Writes `text` as it is, and at once.
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
    let _ = writeln!(io::stderr(), "{text}");
}
