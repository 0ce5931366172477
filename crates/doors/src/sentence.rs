//! Words for whoever reads them at the other end of a door.

use nexus_protocol::CallError;
use nexus_protocol::hidden::is_hidden;

/// Why a call failed, with all that the server said of it.
pub fn sentence(error: &CallError) -> String {
    match error {
        CallError::Rpc(refused) => match refused.details() {
            Some(details) => format!("{}: {details}", refused.message),
            None => refused.message.clone(),
        },
        other => other.to_string(),
    }
}

/// What would make a person read something else than is asked is spelled out.
pub fn spelled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) || (c.is_control() && c != '\n') {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    out
}
