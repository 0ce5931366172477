//! What a person or a script sees of a call.

use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

use indicatif::ProgressBar;
use nexus_client::CallError;
use nexus_client::token::{self, Environment};
use nexus_core::visible;
use nexus_protocol::RpcError;
use serde_json::Value;
use serde_json::value::RawValue;

use super::args::ServerArgs;
use crate::output::{failed, for_screen};

const SPINNER_TICK: Duration = Duration::from_millis(100);

/// Where answers go. To people indented, and so that nothing in them steers their terminal; to programs in one line.
pub struct Output<W> {
    writer: W,
    is_terminal: bool,
}

impl Output<Stdout> {
    pub fn stdout() -> Self {
        let writer = io::stdout();
        let is_terminal = writer.is_terminal();
        Self { writer, is_terminal }
    }
}

impl<W: Write> Output<W> {
    #[cfg(test)]
    pub fn to(writer: W) -> Self {
        Self { writer, is_terminal: false }
    }

    pub fn json(&mut self, value: &Value) -> anyhow::Result<()> {
        let text = match self.is_terminal {
            true => format!("{value:#}\n"),
            false => format!("{value}\n"),
        };
        self.write(&visible::json(&text))
    }

    /// One line, to whoever reads.
    pub fn line(&mut self, value: &RawValue) -> anyhow::Result<()> {
        self.write(&visible::json(&format!("{value}\n")))
    }

    /// Writes what an agent says, at once.
    pub fn text(&mut self, text: &str) -> anyhow::Result<()> {
        self.write(&for_screen(text, self.is_terminal))
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.flush()).map_err(failed)
    }
}

/// A spinner with the time so far on stderr while it lives; nothing where stderr is no terminal.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn start(message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        let bar = ProgressBar::new_spinner().with_message(message);
        bar.enable_steady_tick(SPINNER_TICK);
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The error in words, and below it what can be done.
pub fn explain(error: &anyhow::Error, server: &ServerArgs) -> String {
    let (at, port) = (server.authority(), server.port);
    match error.downcast_ref::<CallError>() {
        Some(CallError::Connect(cause)) => {
            format!(
                "no server at {at}: {cause}\n  Start one with 'nexus3 serve', or name its port with -p."
            )
        }
        Some(CallError::Answer(cause)) => format!(
            "what listens at {at} is no nexus3 server: its answer is none of ours ({cause})\n  \
             See what it is with 'nexus3 rpc detect -p {port}', or name another port with -p."
        ),
        Some(CallError::Transport(cause)) => format!(
            "the connection to {at} broke, and whether the call ran is not known: {cause}\n  \
             See what listens there with 'nexus3 rpc detect -p {port}'."
        ),
        Some(CallError::Timeout(limit)) => format!(
            "no answer from {at} within {} s\n  \
             Give it more time with -t where the command has it; 'nexus3 rpc detect -p {port}' tells whether the server is there.",
            limit.as_secs_f64()
        ),
        Some(CallError::Rpc(error)) if *error == RpcError::authentication_failed() => {
            wrong_token(error, server)
        }
        Some(CallError::Rpc(error)) => refusal(error),
        _ => format!("{error:#}"),
    }
}

/// Which token it was that the server did not take.
fn wrong_token(error: &RpcError, server: &ServerArgs) -> String {
    let found = match &server.api_key {
        Some(_) => Some("--api-key".to_string()),
        None => token::find(&Environment::of_process(), server.port)
            .ok()
            .and_then(|lookup| lookup.token.map(|_| lookup.source)),
    };
    let why = match found {
        Some(source) => {
            format!("the server at {} does not take the token from {source}", server.authority())
        }
        None => format!(
            "the server at {} wants a token, and there is none in {} or in {} of its home",
            server.authority(),
            token::API_KEY_VARIABLE,
            token::file_name(server.port)
        ),
    };
    let (message, code) = (&error.message, error.code);
    let file = token::file_name(server.port);
    format!(
        "{message} ({code}): {why}\n  \
         Its own is in the file {file} of the home it was started with (its log names the path): put that into NEXUS3_API_KEY, or set NEXUS3_HOME."
    )
}

/// What a server answered instead of a result.
pub fn refusal(error: &RpcError) -> String {
    let data = error.data.as_ref().unwrap_or(&Value::Null);
    let details = error.details().map(|details| format!(": {details}")).unwrap_or_default();
    let suggestions = data["recovery_suggestions"].as_array().into_iter().flatten();
    let mut suggestions: String = suggestions
        .filter_map(Value::as_str)
        .map(|suggestion| format!("\n  {suggestion}"))
        .collect();
    if data["type"] == "TIMEOUT" {
        // The server's own advice names the parameter; whoever reads this has typed an option.
        suggestions =
            "\n  Give it more time with -t SECONDS, or none to wait without a limit.".into();
    }
    format!("{} ({}){details}{suggestions}", error.message, error.code)
}
