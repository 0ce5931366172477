//! Why a request has no result, in the codes of the protocol. Some of ours mean something else there: -32000 asks an
//! editor to show a login.

use agent_client_protocol_schema::v1::{Error, ErrorCode};
use nexus_protocol::CallError;
use nexus_protocol::error::{INVALID_PARAMS, METHOD_NOT_FOUND};
use serde_json::json;

use crate::sentence::sentence;

/// More may wait for an answer, but not of one client.
pub const IN_FLIGHT_MAX: usize = 256;

pub fn parse(why: impl std::fmt::Display) -> Error {
    said(ErrorCode::ParseError, format!("Invalid JSON: {why}"))
}

pub fn invalid_request(why: impl Into<String>) -> Error {
    said(ErrorCode::InvalidRequest, why)
}

pub fn invalid_params(why: impl Into<String>) -> Error {
    said(ErrorCode::InvalidParams, why)
}

pub fn no_method(method: &str) -> Error {
    said(ErrorCode::MethodNotFound, format!("Method not found: {method}"))
}

pub fn no_session(session: &str) -> Error {
    let why = format!("There is no session {session} here: load or resume it first");
    said(ErrorCode::ResourceNotFound, why).data(json!({"sessionId": session}))
}

/// It is not stored either.
pub fn no_stored(session: &str) -> Error {
    let why = format!("There is no session {session}");
    said(ErrorCode::ResourceNotFound, why).data(json!({"sessionId": session}))
}

pub fn cancelled() -> Error {
    said(ErrorCode::RequestCancelled, "The request was cancelled")
}

pub fn internal(why: impl Into<String>) -> Error {
    said(ErrorCode::InternalError, why)
}

pub fn too_many() -> Error {
    internal(format!("{IN_FLIGHT_MAX} requests wait for their answers already"))
}

/// What the server said to a call.
pub fn of(error: &CallError) -> Error {
    let code = match error {
        CallError::Rpc(refused) if refused.code == INVALID_PARAMS => ErrorCode::InvalidParams,
        CallError::Rpc(refused) if refused.code == METHOD_NOT_FOUND => ErrorCode::MethodNotFound,
        _ => ErrorCode::InternalError,
    };
    said(code, renamed(sentence(error)))
}

/// What a parameter of ours that a sentence begins with is called in an editor.
fn renamed(sentence: String) -> String {
    let words = [("Additional_directories:", "additionalDirectories:"), ("Cwd:", "cwd:")];
    let word = words.iter().find_map(|(ours, theirs)| Some((sentence.strip_prefix(ours)?, theirs)));
    word.map(|(rest, theirs)| format!("{theirs}{rest}")).unwrap_or(sentence)
}

fn said(code: ErrorCode, message: impl Into<String>) -> Error {
    Error::new(code.into(), message)
}

#[cfg(test)]
mod tests {
    use nexus_protocol::RpcError;

    use super::*;

    #[test]
    fn parameters_have_the_editors_names() {
        let check = |ours: &str, expected: &str| {
            let error = of(&RpcError::invalid_params(ours).into());
            assert_eq!(error.message, expected);
        };
        check("Additional_directories: at most 64", "additionalDirectories: at most 64");
        check("Cwd: /x is not a directory", "cwd: /x is not a directory");
        check("Unknown preset: Cwd", "Unknown preset: Cwd");
    }
}
