//! What a person or a script sees of a call.

use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

use indicatif::ProgressBar;
use nexus_client::CallError;
use nexus_protocol::RpcError;
use serde_json::Value;

use super::args::ServerArgs;

const SPINNER_TICK: Duration = Duration::from_millis(100);

/// Where answers go. Indented for people, one line for programs.
pub struct Output<W> {
    writer: W,
    indented: bool,
}

impl Output<Stdout> {
    pub fn stdout() -> Self {
        let writer = io::stdout();
        let indented = writer.is_terminal();
        Self { writer, indented }
    }
}

impl<W: Write> Output<W> {
    #[cfg(test)]
    pub fn to(writer: W) -> Self {
        Self { writer, indented: false }
    }

    pub fn json(&mut self, value: &Value) -> io::Result<()> {
        match self.indented {
            true => writeln!(self.writer, "{value:#}"),
            false => writeln!(self.writer, "{value}"),
        }
    }

    /// Writes `text` as it is, and at once.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_all(text.as_bytes())?;
        self.writer.flush()
    }
}

/// A spinner with the time so far on stderr while it lives; nothing where stderr is no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn start(message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        let bar = ProgressBar::new_spinner().with_message(message);
        bar.enable_steady_tick(SPINNER_TICK);
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Tells on stderr why a command failed. A reader of stdout that went away needs no telling.
pub fn report(error: &anyhow::Error, server: &ServerArgs) {
    let io_error = error.downcast_ref::<io::Error>();
    if io_error.is_none_or(|error| error.kind() != io::ErrorKind::BrokenPipe) {
        eprintln!("Error: {}", explain(error, server));
    }
}

/// The error in words, and below it what can be done, where the server said so.
pub fn explain(error: &anyhow::Error, server: &ServerArgs) -> String {
    match error.downcast_ref::<CallError>() {
        Some(CallError::Connect(cause)) => {
            let authority = server.authority();
            format!("no server at {authority}: {cause}\n  Start one with 'nexus3 serve'.")
        }
        Some(CallError::Rpc(error)) => refusal(error),
        _ => format!("{error:#}"),
    }
}

/// What a server answered instead of a result.
pub fn refusal(error: &RpcError) -> String {
    let data = error.data.as_ref().unwrap_or(&Value::Null);
    let details = data["details"].as_str().filter(|details| *details != error.message);
    let details = details.map(|details| format!(": {details}")).unwrap_or_default();
    let suggestions = data["recovery_suggestions"].as_array().into_iter().flatten();
    let suggestions: String = suggestions
        .filter_map(Value::as_str)
        .map(|suggestion| format!("\n  {suggestion}"))
        .collect();
    format!("{} ({}){details}{suggestions}", error.message, error.code)
}
