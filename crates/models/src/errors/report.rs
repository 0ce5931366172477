//! A provider's error, read from whatever shape it came in. What cannot be understood is shown as it stands: a person
//! makes more of it than of a bare status.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{too_long, wait};

/// Errors lie in errors, and texts hold JSON of those behind them. A gateway of a gateway needs as much.
const DEPTH_MAX: usize = 8;

/// Entries of a list that are read. The first tells what is wrong.
const LISTED_MAX: usize = 4;

/// Bytes of what was gathered, of codes and of words each. Only a few hundred characters are shown in the end.
const TEXT_BYTES_MAX: usize = 4096;

/// Where services write what kind of error it is.
const CODE_FIELDS: [&str; 9] = [
    "type",
    "code",
    "status",
    "error_code",
    "error_type",
    "reason",
    "quotaId",
    "status_code",
    "__type",
];

/// Where they say it in words.
const WORD_FIELDS: [&str; 8] =
    ["title", "message", "Message", "msg", "status_msg", "error_description", "explanation", "raw"];

/// What else may hold an error.
const NESTED_FIELDS: [&str; 9] = [
    "error",
    "errors",
    "response",
    "detail",
    "details",
    "metadata",
    "violations",
    "base_resp",
    "exception",
];

#[derive(Default)]
pub(super) struct Report {
    /// All that names the kind of error, in small letters, with a space before and behind each.
    pub codes: String,
    /// In the provider's own words, as they came: not yet fit to be shown.
    pub message: String,
    /// The HTTP status it names.
    pub status: Option<u16>,
    /// The window it names in a field of its own.
    pub window: Option<u32>,
    /// The wait it names in a field of its own.
    pub wait: Option<Duration>,
}

impl Report {
    /// The body of an answer that is not a stream.
    pub fn of_page(page: &str) -> Self {
        let page = page.trim();
        match serde_json::from_str::<Value>(page) {
            Ok(value) => Self::of(&value),
            Err(_) if page.starts_with('<') => Self { message: title(page), ..Self::default() },
            Err(_) => Self { message: page.to_owned(), ..Self::default() },
        }
    }

    /// An error object, or an event that holds one.
    pub fn of(value: &Value) -> Self {
        let mut report = Self { codes: " ".to_owned(), ..Self::default() };
        report.read(value, DEPTH_MAX);
        if report.message.is_empty() {
            report.message = match report.codes.trim() {
                // A container that holds nothing says nothing.
                "" if value.as_object().is_some_and(Map::is_empty) => String::new(),
                "" if !value.is_null() => value.to_string(),
                codes => codes.to_owned(),
            };
        }
        report
    }

    fn read(&mut self, value: &Value, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match value {
            Value::String(text) => self.read_text(text, depth),
            Value::Array(entries) => {
                entries.iter().take(LISTED_MAX).for_each(|entry| self.read(entry, depth));
            }
            Value::Object(fields) => self.read_fields(fields, depth),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn read_fields(&mut self, fields: &Map<String, Value>, depth: usize) {
        for value in CODE_FIELDS.iter().filter_map(|name| fields.get(*name)) {
            self.read_code(value);
        }
        let number = |name: &str| fields.get(name).and_then(Value::as_u64);
        let window = number("n_ctx").and_then(|size| u32::try_from(size).ok());
        self.window = self.window.or(window.filter(|size| too_long::is_window(*size)));
        let wait = fields.get("retryDelay").and_then(Value::as_str).and_then(wait::written);
        self.wait = self.wait.or(wait);

        // A field of the request that is wrong, as validators have it.
        if let Some(Value::Array(place)) = fields.get("loc") {
            let place = place.iter().take(LISTED_MAX).map(plain).collect::<Vec<_>>();
            self.say(&place.join("."));
        }
        for name in WORD_FIELDS {
            if let Some(value) = fields.get(name) {
                self.read(value, depth);
            }
        }
        for name in NESTED_FIELDS {
            match fields.get(name) {
                // What is asked back there is no error, and may be all that was sent.
                Some(Value::Object(response)) if name == "response" => {
                    if let Some(error) = response.get("error") {
                        self.read(error, depth);
                    }
                }
                Some(value) => self.read(value, depth),
                None => {}
            }
        }
    }

    fn read_code(&mut self, value: &Value) {
        let text = plain(value);
        if let Some(status) = text.parse().ok().filter(|status| (400..600).contains(status)) {
            self.status.get_or_insert(status);
        }
        if self.codes.len() + text.len() < TEXT_BYTES_MAX && !text.is_empty() {
            self.codes.push_str(&text.to_lowercase());
            self.codes.push(' ');
        }
    }

    /// Gateways put the error of the service behind them into a text.
    fn read_text(&mut self, text: &str, depth: usize) {
        let text = text.trim();
        let inner = text.starts_with(['{', '[']).then(|| serde_json::from_str(text).ok());
        match inner.flatten() {
            Some(value @ (Value::Object(_) | Value::Array(_))) => {
                let before = self.message.len();
                self.read(&value, depth);
                if self.message.len() == before {
                    self.say(text);
                }
            }
            _ => self.say(text),
        }
    }

    fn say(&mut self, text: &str) {
        let text = text.trim();
        if text.is_empty() || self.message.split(": ").any(|piece| piece == text) {
            return;
        }
        if !self.message.is_empty() {
            self.message.push_str(": ");
        }
        self.message.push_str(text);
        let end = self.message.floor_char_boundary(TEXT_BYTES_MAX);
        self.message.truncate(end);
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// What a document for browsers is called; its text is made for the eye.
fn title(page: &str) -> String {
    // Of the same length in bytes, so that places in it are places in the page.
    let small = page.to_ascii_lowercase();
    let found = small.find("<title").and_then(|open| {
        let start = open + small[open..].find('>')? + 1;
        Some(page[start..start + small[start..].find("</title")?].trim().to_owned())
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(page: &str, message: &str, codes: &str) {
        let report = Report::of_page(page);
        assert_eq!((&*report.message, report.codes.trim()), (message, codes), "{page}");
    }

    #[test]
    fn every_shape_is_read() {
        check(r#"{"error":{"message":"no","type":"t","code":null}}"#, "no", "t");
        check(r#"{"error":{"message":"no","type":"T","code":"c"}}"#, "no", "t c");
        check(
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"r"}"#,
            "busy",
            "error overloaded_error",
        );
        check(
            r#"[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]"#,
            "slow",
            "429 resource_exhausted",
        );
        check(r#"{"error":"no model"}"#, "no model", "");
        check(r#"{"detail":"Not Found"}"#, "Not Found", "");
        check(
            r#"{"detail":[{"loc":["body","model"],"msg":"field required","type":"missing"}]}"#,
            "body.model: field required",
            "missing",
        );
        check(r#"{"message":"no","code":"c"}"#, "no", "c");
        check(r#"{"errors":[{"message":"one"},"two"]}"#, "one: two", "");
        check(r#"{"title":"Bad","detail":"so bad","status":400}"#, "Bad: so bad", "400");
        check(
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"too much\",\"type\":\"x\"}}","provider_name":"P"}}}"#,
            "Provider returned error: too much",
            "400 x",
        );
        check(
            r#"{"error":{"message":"Provider returned error","metadata":{"raw":"plain words"}}}"#,
            "Provider returned error: plain words",
            "",
        );
        check(r#"{"error":{"message":"{\"odd\":1}"}}"#, r#"{"odd":1}"#, "");
        check(r#"{"base_resp":{"status_code":1004,"status_msg":"who"}}"#, "who", "1004");
    }

    #[test]
    fn what_is_not_understood_is_shown() {
        check(r#"{"odd":{"thing":1}}"#, r#"{"odd":{"thing":1}}"#, "");
        check(r#"{"error":{"type":"overloaded_error"}}"#, "overloaded_error", "overloaded_error");
        check("upstream connect error", "upstream connect error", "");
        check("<html><head><TITLE>502 Bad\nGateway</TITLE></head>", "502 Bad\nGateway", "");
        check("<html><body>Sorry", "", "");
        check("<title>Sorry", "", "");
        check("{}", "", "");
        check("null", "", "");
        check("", "", "");
    }

    #[test]
    fn events_of_a_stream_are_read_flat_and_nested() {
        for event in [
            json!({"type": "server_error", "message": "m"}),
            json!({"error": {"type": "server_error", "message": "m"}}),
            json!({"type": "error", "code": "server_error", "message": "m", "param": null, "sequence_number": 3}),
            json!({"type": "error", "error": {"code": "server_error", "message": "m"}}),
            json!({"type": "response.failed", "response": {
                "status": "failed", "error": {"code": "server_error", "message": "m"}, "instructions": "be good"}}),
        ] {
            let report = Report::of(&event);
            assert_eq!(report.message, "m", "{event}");
            assert!(report.codes.contains(" server_error "), "{event}: {}", report.codes);
        }
        assert_eq!(Report::of(&json!("odd")).message, "odd");
    }

    #[test]
    fn figures_beside_the_words_are_read() {
        let report = Report::of(
            &json!({"error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 4096}}),
        );
        assert_eq!((report.status, report.window), (Some(400), Some(4096)));
        let report = Report::of(
            &json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"},
            ]}}),
        );
        assert_eq!(report.wait, Some(Duration::from_millis(34_400)));
        assert_eq!((report.status, &*report.message), (Some(429), "m"));
        assert!(report.codes.contains("perday"), "{}", report.codes);
    }

    #[test]
    fn what_is_gathered_is_bounded() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        let report = Report::of(&json!({"code": long, "message": long, "error": {"message": "x"}}));
        assert!(report.message.len() <= TEXT_BYTES_MAX && report.codes.len() <= TEXT_BYTES_MAX);
        let nested =
            (0..2 * DEPTH_MAX).fold(json!({"message": "deep"}), |inner, _| json!({"error": inner}));
        assert!(!Report::of(&nested).message.starts_with("deep"));
        let many = json!({"errors": ["a", "b", "c", "d", "e"]});
        assert_eq!(Report::of(&many).message, "a: b: c: d");
    }
}
