//! Words for whoever reads them at the other end of a door.

use nexus_protocol::error::UNAVAILABLE;
use nexus_protocol::hidden::is_hidden;
use nexus_protocol::{CallError, RpcError};
use serde_json::Value;

/// Why a call failed, with all that the server said of it.
pub fn sentence(error: &CallError) -> String {
    match error {
        CallError::Rpc(refused) => said(refused),
        other => other.to_string(),
    }
}

/// All that the server said of a refusal. Where something is not there that waiting does not bring, what to do about it.
pub fn said(refused: &RpcError) -> String {
    let said = match refused.details() {
        Some(details) => format!("{}: {details}", refused.message),
        None => refused.message.clone(),
    };
    if refused.code != UNAVAILABLE || refused.retry_after_ms().is_some() {
        return said;
    }
    let advice = refused.data.as_ref().and_then(|data| data["recovery_suggestions"].as_array());
    let advice = advice.into_iter().flatten().filter_map(Value::as_str);
    advice.fold(said, |said, advice| format!("{said}\n{advice}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_do_something_about_it_is_told_what() {
        let check = |refused: RpcError, expected: &str| {
            assert_eq!(sentence(&refused.into()), expected);
        };
        let advice = &["Get one.", "Or name one."];
        check(RpcError::unavailable("None", "None", advice), "None\nGet one.\nOr name one.");
        check(RpcError::unavailable("None", "none here", &[]), "None: none here");
        check(RpcError::overloaded("full", 5), "The server is overloaded: full");
        check(RpcError::failed("EXECUTION_ERROR", "no", advice), "Execution failed: no");
    }
}
