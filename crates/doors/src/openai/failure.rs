//! Why a request is refused, in OpenAI's shape.

use bytes::Bytes;
use hyper::StatusCode;
use nexus_protocol::error::{
    FORBIDDEN, INVALID_PARAMS, INVALID_REQUEST, RATE_LIMITED, UNAVAILABLE,
};
use nexus_protocol::{CallError, RpcError};
use serde_json::{Value, json};

use crate::sentence::said;

/// When a service that is asked too much and says nothing of it is asked again.
const RETRY_MS: u64 = 1_000;

/// A refusal. OpenAI's clients act on the status, and repeat some by themselves unless they are told not to.
#[derive(Clone, Debug)]
pub struct Failure {
    pub status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
    pub retry_after_ms: Option<u64>,
    /// The verb that is served instead.
    pub allow: Option<&'static str>,
    /// What was asked for was under way: done again, it would be done twice.
    pub has_begun: bool,
}

impl Failure {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
            param: None,
            code: None,
            retry_after_ms: None,
            allow: None,
            has_begun: false,
        }
    }

    /// What was asked for is wrong, at this parameter.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = Some(param.into());
        Self { param, ..Self::malformed(message) }
    }

    /// What was asked for is wrong as a whole.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    pub fn no_model(message: impl Into<String>) -> Self {
        let (param, code) = (Some("model".into()), Some("model_not_found"));
        let (status, kind) = (StatusCode::NOT_FOUND, "invalid_request_error");
        Self { param, code, ..Self::new(status, kind, message) }
    }

    /// There is no answer to go on from by this name.
    pub fn no_previous(id: &str) -> Self {
        let message = format!("there is no response {id:?} to go on from");
        let code = Some("previous_response_not_found");
        Self { code, ..Self::invalid("previous_response_id", message) }
    }

    pub fn no_response(id: &str) -> Self {
        let message = format!("there is no response {id:?}");
        let (status, kind) = (StatusCode::NOT_FOUND, "invalid_request_error");
        Self { param: Some("response_id".into()), ..Self::new(status, kind, message) }
    }

    pub fn no_path(method: &hyper::Method, path: &str) -> Self {
        let message = format!("there is nothing at {method} {path}");
        let (status, kind) = (StatusCode::NOT_FOUND, "invalid_request_error");
        Self { code: Some("unknown_url"), ..Self::new(status, kind, message) }
    }

    pub fn wrong_verb(verb: &'static str) -> Self {
        let message = format!("only {verb} is served here");
        let (status, kind) = (StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error");
        Self { allow: Some(verb), ..Self::new(status, kind, message) }
    }

    /// The turn was cancelled, or whoever asked for it hung up.
    pub fn cancelled() -> Self {
        let message = "the turn was cancelled";
        let code = Some("cancelled");
        let failure = Self::new(StatusCode::CONFLICT, "server_error", message);
        Self { code, has_begun: true, ..failure }
    }

    /// Something went wrong that is nobody's fault who asked.
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// Whoever would have to do it cannot now.
    pub fn unavailable(message: impl Into<String>, retry_after_ms: Option<u64>) -> Self {
        let (status, kind) = (StatusCode::SERVICE_UNAVAILABLE, "server_error");
        let code = Some("overloaded");
        Self { code, retry_after_ms, ..Self::new(status, kind, message) }
    }

    pub fn rate_limited(message: impl Into<String>, retry_after_ms: Option<u64>) -> Self {
        let (status, kind) = (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error");
        let code = Some("rate_limit_exceeded");
        let retry_after_ms = retry_after_ms.or(Some(RETRY_MS));
        Self { code, retry_after_ms, ..Self::new(status, kind, message) }
    }

    /// What was said is longer than the model's window.
    pub fn too_long(message: impl Into<String>) -> Self {
        let code = Some("context_length_exceeded");
        Self { code, ..Self::invalid("messages", message) }
    }

    /// The same of something that was under way.
    pub fn after_begin(self) -> Self {
        Self { has_begun: true, ..self }
    }

    /// A request that did not get to the door.
    pub fn at_the_port(status: StatusCode, error: &RpcError) -> Self {
        if *error == RpcError::authentication_failed() {
            let message = "the API key is missing or wrong";
            let kind = "invalid_request_error";
            let code = Some("invalid_api_key");
            return Self { code, ..Self::new(StatusCode::UNAUTHORIZED, kind, message) };
        }
        Self { status, ..Self::from(error) }
    }

    pub fn to_json(&self) -> Value {
        json!({"error": {
            "message": self.message, "type": self.kind, "param": self.param, "code": self.code,
        }})
    }

    /// As it ends a stream of `/v1/responses`.
    pub fn in_stream(&self) -> Value {
        let code = self.code.unwrap_or(self.kind);
        json!({"type": "error", "code": code, "message": self.message, "param": self.param})
    }

    /// As a response says why there is no more of it; there are few codes for that.
    pub fn in_response(&self) -> Value {
        let code = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
            StatusCode::BAD_REQUEST => "invalid_prompt",
            _ => "server_error",
        };
        json!({"code": code, "message": self.message})
    }

    /// In the words of `/v1/responses`, where they are others than those of chats.
    pub fn of_response(mut self) -> Self {
        let words = [
            ("messages", "input"),
            ("response_format", "text.format"),
            ("logprobs", "top_logprobs"),
            ("max_completion_tokens", "max_output_tokens"),
        ];
        let Some(param) = self.param.take() else { return self };
        let other = words
            .into_iter()
            .find_map(|(chat, here)| Some((chat, here, param.strip_prefix(chat)?)));
        let Some((chat, here, rest)) = other else { return Self { param: Some(param), ..self } };
        if let Some(message) = self.message.strip_prefix(chat) {
            self.message = format!("{here}{message}");
        }
        Self { param: Some(format!("{here}{rest}")), ..self }
    }

    pub fn to_bytes(&self) -> Bytes {
        self.to_json().to_string().into()
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Rpc(refused) => Self::from(&refused),
            // Nobody knows whether it ran.
            other => Self { has_begun: true, ..Self::broken(other.to_string()) },
        }
    }
}

impl From<&RpcError> for Failure {
    fn from(error: &RpcError) -> Self {
        let message = said(error);
        let retry_after_ms = error.retry_after_ms();
        // What was refused before anything ran says nothing of where it was, or that it was here.
        let has_begun = error.scope().is_some_and(|scope| scope != "server");
        let failure = match error.code {
            INVALID_PARAMS if path(error) == Some("/agent_id") => Self::no_model(message),
            INVALID_PARAMS if path(error) == Some("/preset") => Self::no_model(message),
            INVALID_PARAMS => match path(error).and_then(param) {
                Some(param) => Self::invalid(param, message),
                None => Self::malformed(message),
            },
            INVALID_REQUEST => Self::malformed(message),
            FORBIDDEN => Self::new(StatusCode::FORBIDDEN, "permission_error", message),
            RATE_LIMITED => Self::rate_limited(message, retry_after_ms),
            UNAVAILABLE => Self::unavailable(message, retry_after_ms),
            // The turn ran, and came to nothing.
            _ => Self { has_begun: true, ..Self::broken(message) },
        };
        Self { retry_after_ms, has_begun: failure.has_begun || has_begun, ..failure }
    }
}

fn path(error: &RpcError) -> Option<&str> {
    error.data.as_ref()?.get("path")?.as_str()
}

/// What a parameter of a method is called here.
fn param(path: &str) -> Option<&'static str> {
    let of = |name: &str| path == name || path.starts_with(&format!("{name}/"));
    [
        ("/content", "messages"),
        ("/history", "messages"),
        ("/system_prompt", "messages"),
        ("/response_schema", "response_format"),
        ("/max_output_tokens", "max_completion_tokens"),
        ("/model", "model"),
    ]
    .into_iter()
    .find_map(|(name, here)| of(name).then_some(here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: RpcError, expected: (u16, &str, Value, bool)) {
        let failure = Failure::from(&error);
        let said = failure.to_json()["error"].clone();
        let kind = said["type"].as_str().unwrap();
        let got = (failure.status.as_u16(), kind, said["param"].clone(), failure.has_begun);
        assert_eq!(got, expected, "{said}");
    }

    #[test]
    fn each_refusal_has_its_status_and_says_whether_something_ran() {
        let invalid = "invalid_request_error";
        let at = |path: &str| RpcError::invalid_param(path, "no");
        check(at("/agent_id"), (404, invalid, json!("model"), false));
        check(at("/preset"), (404, invalid, json!("model"), false));
        check(at("/content/3/data"), (400, invalid, json!("messages"), false));
        check(at("/response_schema"), (400, invalid, json!("response_format"), false));
        check(at("/contents"), (400, invalid, json!(null), false));
        check(RpcError::not_allowed("no"), (403, "permission_error", json!(null), false));
        check(RpcError::overloaded("no", 5), (503, "server_error", json!(null), false));
        let limited = |scope| RpcError::rate_limited("no", scope, 5);
        check(limited("server"), (429, "rate_limit_error", json!(null), false));
        check(limited("upstream"), (429, "rate_limit_error", json!(null), true));
        check(RpcError::internal("no"), (500, "server_error", json!(null), true));
        check(RpcError::timeout("no"), (500, "server_error", json!(null), true));
    }

    #[test]
    fn who_asks_too_much_is_told_when_to_ask_again() {
        assert_eq!(Failure::rate_limited("no", None).retry_after_ms, Some(RETRY_MS));
        assert_eq!(Failure::rate_limited("no", Some(5)).retry_after_ms, Some(5));
    }

    #[test]
    fn responses_have_words_of_their_own() {
        let said = |param: &str, message: &str| {
            let failure = Failure::invalid(param, message).of_response().to_json();
            [failure["error"]["param"].clone(), failure["error"]["message"].clone()]
        };
        assert_eq!(said("messages", "messages: blank"), ["input", "input: blank"]);
        assert_eq!(said("messages[3].x", "too much"), ["input[3].x", "too much"]);
        assert_eq!(said("response_format", "no schema"), ["text.format", "no schema"]);
        assert_eq!(said("model", "messages"), ["model", "messages"]);
    }

    #[test]
    fn a_wrong_key_is_told_from_what_a_right_one_may_not() {
        let wrong = Failure::at_the_port(StatusCode::FORBIDDEN, &RpcError::authentication_failed());
        assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
        assert_eq!(wrong.to_json()["error"]["code"], "invalid_api_key");
        let origin = RpcError::invalid_request("no");
        assert_eq!(Failure::at_the_port(StatusCode::FORBIDDEN, &origin).status, 403);
    }
}
