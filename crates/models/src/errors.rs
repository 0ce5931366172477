//! What goes wrong with a provider, in the core's words.

use std::error::Error;
use std::time::Duration;

use nexus_core::provider::ProviderError;
use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::redact::Secrets;

/// One attempt that failed.
pub(super) struct Failure {
    pub error: ProviderError,
    pub retryable: bool,
    pub retry_after: Option<Duration>,
}

/// The request did not get an answer at all.
pub(super) fn not_sent(error: reqwest::Error) -> Failure {
    let error = if error.is_connect() {
        let origin = error.url().map_or_else(String::new, |url| format!(" to {}", origin(url)));
        let cause = cause(&error);
        ProviderError::Unavailable(format!(
            "cannot connect{origin}: {cause}; is it running, and is its base_url right?"
        ))
    } else if error.is_timeout() {
        ProviderError::Timeout
    } else {
        ProviderError::Unavailable(cause(&error))
    };
    Failure { error, retryable: true, retry_after: None }
}

/// Where a request went, without what stands behind the host.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The provider answered with something else than a stream.
pub(super) fn refused(
    status: StatusCode,
    retry_after: Option<Duration>,
    page: &str,
    secrets: &Secrets,
) -> Failure {
    let report = Report::parse(page);
    let said = match &report {
        Some(report) => format!("{}: {}", status.as_u16(), secrets.message(&report.message)),
        None if status.is_success() => {
            format!("{}: not an event stream; is the base_url right?", status.as_u16())
        }
        None => status.to_string(),
    };
    // A quota that is used up stays so however long one waits.
    let lasting = report.is_some_and(|report| report.code.contains("insufficient_quota"));
    let (error, retryable) = match status.as_u16() {
        401 | 403 => (ProviderError::Credentials(said + secrets.key_hint()), false),
        429 => (ProviderError::RateLimited { message: said, retry_after }, !lasting),
        408 | 500 | 502 | 503 | 504 | 529 => (ProviderError::Unavailable(said), true),
        501..=599 => (ProviderError::Unavailable(said), false),
        _ => (ProviderError::Rejected(said), false),
    };
    Failure { error, retryable, retry_after }
}

/// The provider sent its error object in the middle of a stream.
pub(super) fn in_stream(error: &Value, secrets: &Secrets) -> ProviderError {
    let report = Report::of(error);
    let message = secrets.message(&report.message);
    let is = |words: &[&str]| words.iter().any(|word| report.code.contains(word));
    if is(&["authentication", "permission", "401", "403"]) {
        ProviderError::Credentials(message + secrets.key_hint())
    } else if is(&["rate_limit", "429", "insufficient_quota"]) {
        ProviderError::RateLimited { message, retry_after: None }
    } else if is(&["invalid_request", "not_found", "too_large", "400", "404", "413", "422"]) {
        ProviderError::Rejected(message)
    } else if is(&[
        "overloaded",
        "server_error",
        "api_error",
        "unavailable",
        "500",
        "502",
        "503",
        "504",
        "529",
    ]) {
        ProviderError::Unavailable(message)
    } else {
        ProviderError::Broken(message)
    }
}

/// Reading the answer failed after it had begun.
pub(super) fn broken(error: &reqwest::Error) -> ProviderError {
    if error.is_timeout() { ProviderError::Timeout } else { ProviderError::Broken(cause(error)) }
}

/// The innermost reason, which is the one that tells something ("Connection refused"); the outer ones repeat the URL.
pub(super) fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match cause.downcast_ref::<reqwest::Error>() {
        // It has no inner error, so its own text must do, which without the URL it cannot be borrowed for.
        Some(outermost) if outermost.is_request() => "the request could not be sent".to_owned(),
        _ => cause.to_string(),
    }
}

/// A provider's error object: `{"error": {"message", "type", "code"}}`, or `{"error": "…"}` as some servers have it.
struct Report {
    /// Type and code together; which of the two tells more differs from service to service.
    code: String,
    message: String,
}

impl Report {
    fn parse(page: &str) -> Option<Self> {
        let page: Value = serde_json::from_str(page).ok()?;
        match page.get("error") {
            Some(error) => Some(Self::of(error)),
            None => page.get("message").map(|_| Self::of(&page)),
        }
    }

    fn of(error: &Value) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        match error {
            Value::Object(fields) => {
                let field = |name| fields.get(name).map(text).unwrap_or_default();
                Self {
                    code: format!("{} {}", field("type"), field("code")),
                    message: field("message"),
                }
            }
            other => Self { code: String::new(), message: text(other) },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Kind, ProviderSettings};
    use super::*;

    fn secrets() -> Secrets {
        Secrets::of(&ProviderSettings::new(Kind::OpenAi))
    }

    #[track_caller]
    fn check_status(status: u16, page: &str, retryable: bool, expected: &str) {
        let failure = refused(StatusCode::from_u16(status).unwrap(), None, page, &secrets());
        assert_eq!(
            (failure.error.to_string().as_str(), failure.retryable),
            (expected, retryable),
            "{status}"
        );
    }

    #[test]
    fn statuses_have_meanings() {
        let page = r#"{"error":{"message":"no","type":"t","code":null}}"#;
        check_status(400, page, false, "the provider refused the request (400: no)");
        check_status(401, page, false, "the provider refused the credentials (401: no)");
        check_status(403, page, false, "the provider refused the credentials (403: no)");
        check_status(
            404,
            r#"{"error":"no model"}"#,
            false,
            "the provider refused the request (404: no model)",
        );
        check_status(
            413,
            "<html>",
            false,
            "the provider refused the request (413 Payload Too Large)",
        );
        check_status(429, page, true, "the provider's rate limit was hit (429: no)");
        check_status(500, "", true, "the provider is not available (500 Internal Server Error)");
        check_status(501, "", false, "the provider is not available (501 Not Implemented)");
        check_status(529, page, true, "the provider is not available (529: no)");
        check_status(302, "", false, "the provider refused the request (302 Found)");
        check_status(
            200,
            "<html>",
            false,
            "the provider refused the request (200: not an event stream; is the base_url right?)",
        );
        let quota = r#"{"error":{"message":"pay","type":"insufficient_quota"}}"#;
        check_status(429, quota, false, "the provider's rate limit was hit (429: pay)");
    }

    #[test]
    fn errors_in_a_stream_have_meanings() {
        let text = |error: Value| in_stream(&error, &secrets()).to_string();
        assert_eq!(
            text(json!({"type": "overloaded_error", "message": "busy"})),
            "the provider is not available (busy)"
        );
        assert_eq!(
            text(json!({"code": 429, "message": "slow"})),
            "the provider's rate limit was hit (slow)"
        );
        assert_eq!(
            text(json!({"type": "authentication_error", "message": "who"})),
            "the provider refused the credentials (who)"
        );
        assert_eq!(
            text(json!({"type": "invalid_request_error", "message": "x"})),
            "the provider refused the request (x)"
        );
        assert_eq!(text(json!("odd")), "the provider broke off (odd)");
    }
}
