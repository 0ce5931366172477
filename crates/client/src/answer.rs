//! What goes to a server in the end, and reading what it sends back.

use std::error::Error;

use bytes::Bytes;
use nexus_protocol::CallError;
use nexus_protocol::envelope::Outgoing;
use nexus_signing::SigningKey;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The request as it is sent: signed, if there is a key.
pub(crate) fn signed(key: Option<&SigningKey>, request: &Bytes) -> Result<Bytes, CallError> {
    let Some(key) = key else { return Ok(request.clone()) };
    let unsignable = |error: &dyn std::fmt::Display| CallError::Call(error.to_string());
    let request = str::from_utf8(request).map_err(|error| unsignable(&error))?;
    Ok(key.sign(request).map_err(|error| unsignable(&error))?.into())
}

/// The message as an envelope, or what is wrong with it.
pub(crate) fn envelope(message: &[u8]) -> Result<Outgoing<'_>, CallError> {
    serde_json::from_slice(message)
        .map_err(|error| CallError::Answer(format!("{error} in {:?}", beginning(message))))
}

/// The result in an answer to call `id`. An error answer may lack the id: what could not be read, or whom the server
/// does not know, is answered with `null`.
pub(crate) fn result<R: DeserializeOwned>(answer: Outgoing<'_>, id: u64) -> Result<R, CallError> {
    let answered = answer.id.map(RawValue::get);
    if let Some(other) = answered.filter(|answered| *answered != id.to_string()) {
        return Err(CallError::Answer(format!("it is for call {other}, not {id}")));
    }
    if let Some(error) = answer.error {
        return Err(CallError::Rpc(error));
    }
    if answered.is_none() {
        return Err(CallError::Answer("it has neither an id nor an error".into()));
    }
    // The envelope does not tell an absent result from null, which is a result too.
    serde_json::from_str(answer.result.map_or("null", RawValue::get))
        .map_err(|error| CallError::Answer(format!("the result is unexpected: {error}")))
}

/// The innermost cause, which is the one a person can act on: `Connection refused`, not `client error (Connect)`.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}

fn beginning(message: &[u8]) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    String::from_utf8_lossy(message).chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn check(message: &str, expected: &str) {
        let got = envelope(message.as_bytes()).and_then(|answer| result::<Value>(answer, 7));
        let got = got.map_or_else(|error| error.to_string(), |value| value.to_string());
        assert!(got.starts_with(expected), "{message}: {got}");
    }

    #[test]
    fn answers() {
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#, r#"{"a":1}"#);
        check(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"Oops"}}"#, "Oops");
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"No"}}"#, "No");
        check(r#"{"jsonrpc":"2.0","id":8,"result":1}"#, "not an answer: it is for call 8, not 7");
        check(r#"{"jsonrpc":"2.0","id":7,"result":null}"#, "null");
        check(r#"{"result":1}"#, "not an answer: it has neither an id nor an error");
        check("<html>", "not an answer: expected value at line 1 column 1 in \"<html>\"");
    }
}
