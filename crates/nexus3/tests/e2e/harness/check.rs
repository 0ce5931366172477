//! What every message of the server must look like, whatever it says.

use serde_json::Value;

/// The error of an answer.
#[derive(Debug)]
pub struct Fault {
    pub code: i64,
    pub message: String,
    /// `Null` when there is none.
    pub data: Value,
}

/// A message, a batch of answers included, checked to the last member.
pub fn message(raw: &str) -> Value {
    let value: Value = serde_json::from_str(raw).unwrap_or_else(|error| panic!("{error}: {raw}"));
    assert!(is_compact(raw), "not compact: {raw}");
    match &value {
        Value::Array(answers) => {
            assert!(!answers.is_empty(), "an empty batch of answers");
            answers.iter().for_each(answer);
        }
        one if one.get("method").is_some() => notification(one),
        one => answer(one),
    }
    value
}

fn notification(value: &Value) {
    assert_eq!(names(value), ["jsonrpc", "method", "params"], "{value}");
    assert_eq!(value["jsonrpc"], "2.0");
    let method = value["method"].as_str().unwrap();
    assert!(
        ["stream_start", "stream_data", "stream_event", "stream_end", "watch_event"]
            .contains(&method),
        "{value}"
    );
    assert!(value["params"].is_object(), "{value}");
}

fn answer(value: &Value) {
    assert_eq!(value["jsonrpc"], "2.0", "{value}");
    let id = &value["id"];
    match names(value).as_slice() {
        ["jsonrpc", "id", "result"] => assert!(id.is_string() || id.is_number(), "{value}"),
        ["jsonrpc", "id", "error"] => {
            assert!(id.is_string() || id.is_number() || id.is_null(), "{value}");
            error(&value["error"]);
        }
        other => panic!("members {other:?} in {value}"),
    }
}

/// An error with a code of the table, and with the data that the table demands.
fn error(error: &Value) {
    match names(error).as_slice() {
        ["code", "message"] => {}
        ["code", "message", "data"] => assert!(error["data"].is_object(), "{error}"),
        other => panic!("members {other:?} in {error}"),
    }
    let message = error["message"].as_str().expect("a message is a string");
    let data = &error["data"];
    let types: &[&str] = match error["code"].as_i64().expect("a code is an integer") {
        -32700 => return assert!(message.starts_with("Invalid JSON: "), "{error}"),
        -32601 => return assert!(message.starts_with("Method not found: "), "{error}"),
        -32600 => return assert!(!message.is_empty() && data.is_null(), "{error}"),
        -32602 => {
            let path = data["path"].as_str().unwrap_or_default();
            assert!(path.is_empty() || path.starts_with('/'), "{error}");
            return assert!(!message.is_empty(), "{error}");
        }
        -32603 => {
            for secret in ["/tmp", "/.nexus3", "SELECT", "sqlite", "panicked", "sk-"] {
                assert!(!message.contains(secret), "{error}");
            }
            return assert!(!message.is_empty(), "{error}");
        }
        -32000 => &["TIMEOUT", "EXECUTION_ERROR", "PARSE_ERROR"],
        -32001 => &["RESOURCE_UNAVAILABLE"],
        -32002 => {
            assert!(data["retry_after_ms"].is_u64(), "{error}");
            assert!(data["scope"] == "server" || data["scope"] == "upstream", "{error}");
            &["RATE_LIMITED"]
        }
        -32003 => &["AUTHENTICATION_FAILED"],
        code => panic!("the table has no {code}: {error}"),
    };
    assert!(types.contains(&data["type"].as_str().unwrap_or_default()), "{error}");
    assert!(data["details"].is_string(), "{error}");
    let suggestions = data["recovery_suggestions"].as_array().expect("suggestions");
    assert!(suggestions.iter().all(Value::is_string), "{error}");
    assert!(data.get("stack_trace").is_none(), "{error}");
}

fn names(value: &Value) -> Vec<&str> {
    let members = value.as_object().unwrap_or_else(|| panic!("not an object: {value}"));
    members.keys().map(String::as_str).collect()
}

/// Whether there is no white space outside of strings.
fn is_compact(raw: &str) -> bool {
    let (mut in_string, mut escaped) = (false, false);
    raw.bytes().all(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ => return in_string || !byte.is_ascii_whitespace(),
        }
        true
    })
}

impl Fault {
    pub(super) fn of(error: &Value) -> Self {
        Self {
            code: error["code"].as_i64().unwrap(),
            message: error["message"].as_str().unwrap().into(),
            data: error["data"].clone(),
        }
    }
}
