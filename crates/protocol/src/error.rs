//! The errors that travel, with their codes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub const PARSE_ERROR: i32 = -32700;
pub const INVALID_REQUEST: i32 = -32600;
pub const METHOD_NOT_FOUND: i32 = -32601;
pub const INVALID_PARAMS: i32 = -32602;
pub const INTERNAL_ERROR: i32 = -32603;
pub const EXECUTION: i32 = -32000;
pub const UNAVAILABLE: i32 = -32001;
pub const RATE_LIMITED: i32 = -32002;
pub const FORBIDDEN: i32 = -32003;

/// An error as it travels. The message is a sentence for people; what a log needs beyond it stays in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// What there is to say beyond the message.
    pub fn details(&self) -> Option<&str> {
        let details = self.data.as_ref()?.get("details")?.as_str()?;
        (details != self.message).then_some(details)
    }

    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub fn parse(detail: impl std::fmt::Display) -> Self {
        Self::new(PARSE_ERROR, format!("Invalid JSON: {detail}"))
    }

    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(INVALID_REQUEST, message)
    }

    pub fn method_not_found(name: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("Method not found: {name}"))
    }

    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// A bad parameter, with the JSON pointer to it.
    pub fn invalid_param(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { data: Some(json!({"path": path.into()})), ..Self::new(INVALID_PARAMS, message) }
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }

    pub fn timeout(details: impl Into<String>) -> Self {
        Self::execution(
            "Execution timeout",
            "TIMEOUT",
            details,
            &["Give the call more time with timeout_ms."],
        )
    }

    /// What was asked for was tried and came to nothing. `kind` is `PARSE_ERROR` or `EXECUTION_ERROR`.
    pub fn failed(kind: &str, details: impl Into<String>, suggestions: &[&str]) -> Self {
        Self::execution("Execution failed", kind, details, suggestions)
    }

    /// Something this call needs is not there now.
    pub fn unavailable(
        message: impl Into<String>,
        details: impl Into<String>,
        suggestions: &[&str],
    ) -> Self {
        let data = details_data("RESOURCE_UNAVAILABLE", details.into(), suggestions);
        Self { data: Some(data.into()), ..Self::new(UNAVAILABLE, message) }
    }

    /// The same with a further member of `data`.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        if let Some(Value::Object(data)) = &mut self.data {
            data.insert(name.into(), value);
        }
        self
    }

    /// Too much is waiting already; the same call may go through later.
    pub fn overloaded(details: impl Into<String>, retry_after_ms: u64) -> Self {
        let mut data = details_data(
            "RESOURCE_UNAVAILABLE",
            details.into(),
            &["Try again after retry_after_ms."],
        );
        data.insert("retry_after_ms".into(), retry_after_ms.into());
        Self { data: Some(data.into()), ..Self::new(UNAVAILABLE, "The server is overloaded") }
    }

    /// `scope` says whose limit it was: `server` or `upstream`.
    pub fn rate_limited(details: impl Into<String>, scope: &str, retry_after_ms: u64) -> Self {
        let mut data =
            details_data("RATE_LIMITED", details.into(), &["Try again after retry_after_ms."]);
        data.insert("scope".into(), scope.into());
        data.insert("retry_after_ms".into(), retry_after_ms.into());
        Self { data: Some(data.into()), ..Self::new(RATE_LIMITED, "Rate limit exceeded") }
    }

    /// One text for every reason of failed authentication: a guesser learns nothing from it.
    pub fn authentication_failed() -> Self {
        let suggestions =
            ["Send 'Authorization: Bearer TOKEN'; the server's start names the file of its token."];
        let data = details_data(
            "AUTHENTICATION_FAILED",
            "The token is missing or wrong.".into(),
            &suggestions,
        );
        Self { data: Some(data.into()), ..Self::new(FORBIDDEN, "Authentication failed") }
    }

    /// As above, of a call that had to be signed and was not, or not rightly.
    pub fn signature_failed() -> Self {
        let suggestions = [
            "Sign each call anew, with a clock that is right and a key that is known ('auth'); 'nexus3 key' makes one.",
        ];
        let details = "The signature is missing or does not hold.";
        let data = details_data("AUTHENTICATION_FAILED", details.into(), &suggestions);
        Self { data: Some(data.into()), ..Self::new(FORBIDDEN, "Authentication failed") }
    }

    /// The key is known, and does not lead there; `details` names the rule.
    pub fn not_of_key(details: impl Into<String>) -> Self {
        let suggestions = ["Sign it with a key that is for this method."];
        let data = details_data("AUTHENTICATION_FAILED", details.into(), &suggestions);
        Self { data: Some(data.into()), ..Self::new(FORBIDDEN, "Not allowed") }
    }

    /// The caller is known and may not do this; `details` names the rule.
    pub fn not_allowed(details: impl Into<String>) -> Self {
        let suggestions = ["Call as an ancestor of the agent, or with the server token alone."];
        let data = details_data("AUTHENTICATION_FAILED", details.into(), &suggestions);
        Self { data: Some(data.into()), ..Self::new(FORBIDDEN, "Not allowed") }
    }

    /// The token that says for whom a call speaks is not valid here. One text for every reason, as above.
    pub fn identity_failed() -> Self {
        let suggestions = ["Ask the host for a new context token."];
        let details = "The context token is not valid here.";
        let data = details_data("AUTHENTICATION_FAILED", details.into(), &suggestions);
        Self { data: Some(data.into()), ..Self::new(FORBIDDEN, "Authentication failed") }
    }

    /// The way the call came does not lead to the method; `details` names the rule.
    pub fn closed_here(details: impl Into<String>) -> Self {
        let suggestions = ["Call it on a socket that was not opened for one identity."];
        let data = details_data("AUTHENTICATION_FAILED", details.into(), &suggestions);
        Self { data: Some(data.into()), ..Self::new(FORBIDDEN, "Not allowed") }
    }

    fn execution(
        message: &str,
        kind: &str,
        details: impl Into<String>,
        suggestions: &[&str],
    ) -> Self {
        Self {
            data: Some(details_data(kind, details.into(), suggestions).into()),
            ..Self::new(EXECUTION, message)
        }
    }

    /// Where the call was when it failed, where that was said: `server` at the door, anything else behind it.
    pub fn scope(&self) -> Option<&str> {
        self.data.as_ref()?.get("scope")?.as_str()
    }

    /// How long to wait before the same call makes sense, where that was said.
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.data.as_ref()?.get("retry_after_ms")?.as_u64()
    }

    pub(crate) fn to_json(&self) -> String {
        let mut object = Map::new();
        object.insert("code".into(), self.code.into());
        object.insert("message".into(), self.message.clone().into());
        if let Some(data) = &self.data {
            object.insert("data".into(), data.clone());
        }
        Value::Object(object).to_string()
    }
}

fn details_data(kind: &str, details: String, suggestions: &[&str]) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("type".into(), kind.into());
    data.insert("details".into(), details.into());
    data.insert("recovery_suggestions".into(), suggestions.into());
    data
}
