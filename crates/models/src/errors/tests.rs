//! What errors of providers are taken for.

use reqwest::header::HeaderValue;
use serde_json::json;

use super::super::{Kind, ProviderSettings};
use super::*;

fn secrets() -> Secrets {
    Secrets::of(&ProviderSettings {
        api_key: Some("key-of-mine".to_owned()),
        ..ProviderSettings::new(Kind::OpenAi)
    })
}

fn answered(status: u16, headers: &[(&'static str, &str)], page: &str) -> Failure {
    let headers = headers
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect();
    refused(StatusCode::from_u16(status).unwrap(), &headers, page, &secrets())
}

fn said(message: &str) -> String {
    json!({"error": {"message": message}}).to_string()
}

/// What a status means: whether it is tried again, counted for the breaker, and halves the lane.
#[track_caller]
fn check(status: u16, page: &str, flags: (bool, bool, bool), expected: &str) {
    let failure = answered(status, &[], page);
    let got = (failure.retryable, failure.counts_for_breaker, failure.is_overload);
    assert_eq!((&*failure.error.to_string(), got), (expected, flags), "{status} {page}");
}

const FINAL: (bool, bool, bool) = (false, false, false);
const DOWN: (bool, bool, bool) = (true, true, false);
const BUSY: (bool, bool, bool) = (true, true, true);

#[test]
fn statuses_have_meanings() {
    let page = r#"{"error":{"message":"no","type":"t","code":null}}"#;
    check(400, page, FINAL, "the provider refused the request (400: no)");
    check(401, page, FINAL, "the provider refused the credentials (401: no)");
    check(402, page, FINAL, "the provider refused the request (402: no)");
    check(403, page, FINAL, "the provider refused the credentials (403: no)");
    check(
        404,
        r#"{"error":"no model"}"#,
        FINAL,
        "the provider refused the request (404: no model)",
    );
    let azure = r#"{"error":{"message":"no","param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#;
    check(400, azure, FINAL, "the provider's filter stopped the call (400: no)");
    let flagged = said("m requires moderation. Your input was flagged for \"x\".");
    check(
        403,
        &flagged,
        FINAL,
        "the provider's filter stopped the call (403: m requires moderation. Your input was flagged for \"x\".)",
    );
    check(408, page, (true, false, false), "the provider is not available (408: no)");
    check(409, page, (true, false, false), "the provider is not available (409: no)");
    check(
        413,
        "<html>",
        FINAL,
        "the conversation is too long for the model (413 Payload Too Large)",
    );
    check(422, page, FINAL, "the provider refused the request (422: no)");
    check(429, page, (true, false, true), "the provider's rate limit was hit (429: no)");
    check(500, "", DOWN, "the provider is not available (500 Internal Server Error)");
    check(501, "", (false, true, false), "the provider is not available (501 Not Implemented)");
    check(
        502,
        "<title>Bad\nGateway</title>",
        DOWN,
        "the provider is not available (502: Bad Gateway)",
    );
    check(503, page, BUSY, "the provider is not available (503: no)");
    check(504, page, DOWN, "the provider is not available (504: no)");
    for status in 520..=524 {
        check(status, page, DOWN, &format!("the provider is not available ({status}: no)"));
    }
    check(525, page, (false, true, false), "the provider is not available (525: no)");
    check(526, page, (false, true, false), "the provider is not available (526: no)");
    check(529, page, BUSY, "the provider is not available (529: no)");
    check(
        200,
        "<html>",
        FINAL,
        "the provider refused the request (200: not an event stream; is the base_url right?)",
    );
}

#[test]
fn codes_say_more_than_the_status() {
    let page = |code: &str| json!({"error": {"message": "m", "type": code}}).to_string();
    check(500, &page("overloaded_error"), BUSY, "the provider is not available (500: m)");
    check(
        400,
        &page("server_is_overloaded"),
        (true, false, true),
        "the provider is not available (400: m)",
    );
    check(
        200,
        &page("rate_limit_error"),
        (true, false, true),
        "the provider's rate limit was hit (200: m)",
    );
    check(200, &page("overloaded_error"), BUSY, "the provider is not available (200: m)");
    let key = json!({"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT",
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}});
    check(
        400,
        &key.to_string(),
        FINAL,
        "the provider refused the credentials (400: API key not valid.)",
    );
}

#[test]
fn limits_that_last_are_not_waited_for() {
    let lasting = |page: &str| {
        let failure = answered(429, &[("x-should-retry", "true")], page);
        assert!(matches!(failure.error, ProviderError::RateLimited { .. }), "{page}");
        (failure.retryable, failure.is_overload)
    };
    let code = |code: &str| json!({"error": {"message": "pay", "code": code}}).to_string();
    for page in [
        code("insufficient_quota"),
        code("billing_hard_limit_reached"),
        json!({"error": {"type": "rate_limit_error", "error_code": "enforced_spend_limit_reached", "message": "m"}})
            .to_string(),
        said("You have reached your specified API usage spend limit."),
        said("Rate limit reached on requests per day (RPD): Limit 200"),
        said("You exceeded your current quota, please check your plan and billing details."),
        said("Request too large on tokens per min (TPM). The input or output tokens must be reduced in order to run successfully."),
        json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [
            {"@type": "QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]},
            {"@type": "RetryInfo", "retryDelay": "3s"}]}})
        .to_string(),
    ] {
        assert_eq!(lasting(&page), (false, false), "{page}");
    }
    let minute = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota, please check your plan and billing details.",
        "details": [{"@type": "RetryInfo", "retryDelay": "34.4s"}]}});
    let failure = answered(429, &[], &minute.to_string());
    assert!(failure.retryable && failure.is_overload);
    assert_eq!(failure.retry_after, Some(Duration::from_millis(34_400)));
}

#[test]
fn the_provider_decides_whether_to_try_again() {
    for (status, told, expected) in [
        (400, "true", true),
        (500, "false", false),
        (429, "false", false),
        (429, "true", true),
        (500, "odd", true),
    ] {
        let failure = answered(status, &[("x-should-retry", told)], &said("m"));
        assert_eq!(failure.retryable, expected, "{status} {told}");
    }
    let too_long = answered(400, &[("x-should-retry", "true")], &said("prompt is too long"));
    assert!(!too_long.retryable, "it would be as long again");
}

#[test]
fn the_wait_comes_from_headers_details_or_words() {
    let wait = |headers: &[(&'static str, &str)], page: &str| {
        let failure = answered(429, headers, page);
        let ProviderError::RateLimited { retry_after, .. } = failure.error else {
            panic!("{:?}", failure.error)
        };
        assert_eq!(retry_after, failure.retry_after);
        retry_after.map(|wait| wait.as_millis())
    };
    let words = said("Please try again in 1.2s.");
    assert_eq!(wait(&[], &said("slow down")), None);
    assert_eq!(wait(&[], &words), Some(1200));
    assert_eq!(wait(&[("retry-after", "7")], &words), Some(7000));
    assert_eq!(wait(&[("retry-after-ms", "20"), ("retry-after", "7")], &words), Some(20));
}

#[test]
fn what_is_too_long_is_known_and_the_window_learned() {
    #[track_caller]
    fn check(status: u16, page: &str, expected: Option<Option<u32>>) {
        let got = match answered(status, &[], page).error {
            ProviderError::TooLong { window, .. } => Some(window),
            _ => None,
        };
        assert_eq!(got, expected, "{status} {page}");
    }
    let long = said("prompt is too long: 210000 tokens > 200000 maximum");
    check(400, &long, Some(Some(200_000)));
    check(500, &long, Some(Some(200_000)));
    check(429, &long, None);
    check(503, &long, None);
    check(401, &long, None);
    check(
        400,
        r#"{"error":{"code":400,"type":"exceed_context_size_error","n_ctx":4096,"message":"m"}}"#,
        Some(Some(4096)),
    );
    check(400, r#"{"error":{"code":"context_length_exceeded","message":"m"}}"#, Some(None));
    check(413, r#"{"error":{"type":"request_too_large","message":"m"}}"#, Some(None));
    check(400, "", Some(None));
    check(413, " ", Some(None));
    check(404, "", None);
    check(400, "<html>", None);
    check(400, &said("Too many tokens, please wait before trying again."), None);
}

#[test]
fn refused_thoughts_are_known() {
    for page in [
        said(
            "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
        ),
        said("Invalid signature in thinking block"),
        json!({"error": {"code": "invalid_encrypted_content", "message": "m"}}).to_string(),
        said("Function call is missing a thought_signature in functionCall parts."),
    ] {
        let failure = answered(400, &[], &page);
        assert!(matches!(failure.error, ProviderError::Thoughts { missed: false, .. }), "{page}");
        assert!(!failure.retryable);
    }
    let page = said("The `reasoning_content` in the thinking mode must be passed back to the API.");
    let failure = answered(400, &[], &page);
    assert!(matches!(failure.error, ProviderError::Thoughts { missed: true, .. }));
    let other = answered(400, &[], &said("reasoning_content is not a known field"));
    assert!(matches!(other.error, ProviderError::Rejected(_)));
}

#[test]
fn a_redirect_says_where_to_without_the_path() {
    let to = |place: &str| answered(302, &[("location", place)], "").error.to_string();
    assert_eq!(
        to("https://login.example.com/in?token=secret"),
        "the provider refused the request (302: it redirects to https://login.example.com, which is not followed; is the base_url right?)"
    );
    assert_eq!(
        to("/v2/x"),
        "the provider refused the request (302: it redirects, which is not followed; is the base_url right?)"
    );
}

#[test]
fn a_request_is_known_by_the_providers_name_for_it() {
    let id = |name: &'static str, value: &str| answered(500, &[(name, value)], "").request_id;
    for name in ["x-request-id", "request-id", "x-amzn-requestid", "x-goog-request-id", "cf-ray"] {
        assert_eq!(id(name, "req_1").as_deref(), Some("req_1"), "{name}");
    }
    assert_eq!(id("x-request-id", &"x".repeat(64)), Some("x".repeat(64)));
    assert_eq!(id("x-request-id", &"x".repeat(65)), None);
    assert_eq!(id("x-other", "1"), None);
}

#[test]
fn neither_keys_nor_orders_to_a_terminal_get_through() {
    for page in [
        said("bad key key-of-mine \u{1b}[2J\u{9b}2J\u{202e}"),
        "bad key key-of-mine \u{1b}[2J\u{9b}2J\u{202e}".to_owned(),
        "<title>bad key key-of-mine \u{1b}[2J\u{9b}2J\u{202e}</title>".to_owned(),
    ] {
        let shown = answered(401, &[], &page).error.to_string();
        assert!(shown.contains(r"bad key [redacted] \u{1b}[2J\u{9b}2J\u{202e}"), "{shown}");
    }
}

#[test]
fn errors_in_a_stream_have_meanings() {
    #[track_caller]
    fn check(error: Value, expected: &str, flags: (bool, bool, bool)) {
        let failure = in_stream(&error, &secrets());
        let got = (failure.retryable, failure.counts_for_breaker, failure.is_overload);
        assert_eq!((&*failure.error.to_string(), got), (expected, flags), "{error}");
    }
    check(
        json!({"type": "overloaded_error", "message": "busy"}),
        "the provider is not available (busy)",
        BUSY,
    );
    check(
        json!({"code": 429, "message": "slow"}),
        "the provider's rate limit was hit (slow)",
        (true, false, true),
    );
    check(
        json!({"type": "authentication_error", "message": "who"}),
        "the provider refused the credentials (who)",
        FINAL,
    );
    check(
        json!({"type": "invalid_request_error", "message": "x"}),
        "the provider refused the request (x)",
        FINAL,
    );
    check(json!("odd"), "the provider broke off (odd)", (true, false, false));
    check(
        json!("the input length exceeds the context length"),
        "the conversation is too long for the model (the input length exceeds the context length)",
        FINAL,
    );
    let failed = |code: &str, message: &str| json!({"type": "response.failed", "response": {"error": {"code": code, "message": message}}});
    check(failed("server_error", "m"), "the provider is not available (m)", DOWN);
    check(failed("server_is_overloaded", "m"), "the provider is not available (m)", BUSY);
    check(failed("slow_down", "m"), "the provider is not available (m)", BUSY);
    check(failed("insufficient_quota", "m"), "the provider's rate limit was hit (m)", FINAL);
    check(
        failed("context_length_exceeded", "m"),
        "the conversation is too long for the model (m)",
        FINAL,
    );
    check(failed("invalid_prompt", "m"), "the provider refused the request (m)", FINAL);
    check(failed("cyber_policy", "m"), "the provider's filter stopped the call (m)", FINAL);
    let blocked = "Output blocked by content filtering policy";
    check(
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": blocked}}),
        "the provider's filter stopped the call (Output blocked by content filtering policy)",
        FINAL,
    );
    check(
        json!({"error": {"code": "content_filter", "message": "m"}}),
        "the provider's filter stopped the call (m)",
        FINAL,
    );
    let limited = in_stream(&failed("rate_limit_exceeded", "Please try again in 1.2s"), &secrets());
    assert_eq!(limited.retry_after, Some(Duration::from_millis(1200)));
    assert!(matches!(limited.error, ProviderError::RateLimited { retry_after: Some(_), .. }));
}

proptest::proptest! {
    /// Whatever a provider writes, its error is bounded, and neither a key nor an order to a terminal is in it.
    #[test]
    fn any_page_is_read(status in 200u16..600, before in ".{0,40}", value in "[ -~]{0,70}", after in ".{0,400}") {
        let page = format!("{before}key-of-mine{after}");
        let json = json!({"error": {"message": page, "code": before, "details": [{"retryDelay": value}]}});
        for page in [page.clone(), json.to_string(), format!("<title>{page}")] {
            let headers = [("retry-after", &*value), ("x-request-id", &value), ("location", &value)];
            let failure = answered(status, &headers, &page);
            let shown = failure.error.to_string();
            proptest::prop_assert!(!shown.contains("key-of-mine"), "{}", shown);
            proptest::prop_assert!(!shown.chars().any(char::is_control), "{}", shown);
            proptest::prop_assert!(shown.len() < 8192, "{}", shown.len());
            in_stream(&Value::String(page), &secrets());
        }
    }
}
