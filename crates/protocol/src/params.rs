//! Reading parameters: typed on the good path; on the bad one, a walk along the JSON Schema that names the parameter.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value, json};

use crate::error::RpcError;
use crate::once::{IdempotencyKey, KEY_PATTERN};
use crate::schema;
use address::{AGENT_ID, BesideAddress};

mod address;
pub(crate) mod object;

/// The parameters of a method that has none. Refuses every member.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// An integer within bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    pub fn new(value: u32) -> Option<Self> {
        (MIN..=MAX).contains(&value).then_some(Self(value))
    }

    pub fn get(self) -> u32 {
        self.0
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u32::deserialize(deserializer)?)
            .ok_or_else(|| D::Error::custom(format_args!("not in {MIN}..={MAX}")))
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Bounded<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Bounded_{MIN}_to_{MAX}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
}

/// Text that says something: neither empty nor white space alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct NonBlank(String);

/// What is wrong with a text that says nothing; the parameter's name goes before it.
pub const BLANK: &str = "must not be blank";

impl NonBlank {
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (!is_blank(&text)).then_some(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

/// Whether a text says nothing.
pub fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

impl<'de> Deserialize<'de> for NonBlank {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom(BLANK))
    }
}

impl JsonSchema for NonBlank {
    fn schema_name() -> Cow<'static, str> {
        "NonBlank".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "string", "minLength": 1, "pattern": NON_BLANK_PATTERN})
    }
}

/// A character that is no white space, anywhere.
const NON_BLANK_PATTERN: &str = r"\S";

/// Reads JSON as `P`. Only objects are parameters: serde would fill a struct from an array too.
pub fn decode<P: DeserializeOwned + JsonSchema>(text: Option<&str>) -> Result<P, RpcError> {
    let text = object(text)?;
    serde_json::from_str(text).or_else(|error| {
        if let Some(rest) = without_token::<P>(text) {
            return decode(Some(&rest));
        }
        Err(match serde_json::from_str::<Value>(text) {
            Ok(value) => explain::<P>(&value).unwrap_or_else(|| invalid(&error)),
            Err(error) => invalid(&error),
        })
    })
}

/// The one parameter that is passed over wherever it is not known: a client in the field sends it with every call.
const CONTEXT_TOKEN: &str = "context_token";

/// Parameters that could not be read, without that one; `None` where it is not the cause. A method that knows it is
/// never read without it: a token that cannot be read must not be taken for none.
fn without_token<P: JsonSchema>(text: &str) -> Option<String> {
    let known = || !schema::of::<P>().to_value()["properties"][CONTEXT_TOKEN].is_null();
    if !text.contains(CONTEXT_TOKEN) || known() {
        return None;
    }
    let mut members: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    members.remove(CONTEXT_TOKEN)?;
    serde_json::to_string(&members).ok()
}

/// Reads JSON as `P` and, beside it, the `agent_id` that says which agent it is for: that is part of the address of a
/// call and not of its method.
pub fn decode_addressed<P: DeserializeOwned + JsonSchema>(
    text: Option<&str>,
) -> Result<(P, Option<Cow<'_, str>>), RpcError> {
    let text = object(text)?;
    let mut agent_id = None;
    let mut json = serde_json::Deserializer::from_str(text);
    let read = P::deserialize(BesideAddress { json: &mut json, agent_id: &mut agent_id })
        .and_then(|params| json.end().map(|()| params));
    match read {
        Ok(params) => Ok((params, agent_id.map(name).transpose()?.flatten())),
        Err(_) if let Some(rest) = without_token::<P>(text) => {
            let (params, name) = decode_addressed::<P>(Some(&rest))?;
            Ok((params, name.map(|name| Cow::Owned(name.into_owned()))))
        }
        Err(error) => Err(match serde_json::from_str::<Value>(text) {
            Ok(mut value) => explain_address(&mut value)
                .or_else(|| explain::<P>(&value))
                .unwrap_or_else(|| invalid(&error)),
            Err(error) => invalid(&error),
        }),
    }
}

/// The text of parameters, which must not be an array.
fn object(text: Option<&str>) -> Result<&str, RpcError> {
    let text = text.unwrap_or("{}");
    if text.starts_with('[') {
        return Err(RpcError::invalid_params(
            "Positional params (array) not supported, use named params (object)",
        ));
    }
    Ok(text)
}

fn invalid(error: &serde_json::Error) -> RpcError {
    RpcError::invalid_params(format!("Invalid params: {error}"))
}

/// The name that an `agent_id` holds.
fn name(raw: &RawValue) -> Result<Option<Cow<'_, str>>, RpcError> {
    #[derive(Deserialize)]
    struct Name<'a>(#[serde(borrow)] Option<Cow<'a, str>>);
    match serde_json::from_str::<Name>(raw.get()) {
        Ok(Name(name)) => Ok(name),
        Err(_) => {
            let value = serde_json::from_str(raw.get()).unwrap_or_default();
            Err(not_a_name(&value))
        }
    }
}

fn not_a_name(value: &Value) -> RpcError {
    bad("/agent_id", format!("must be string, got: {}", type_name(value)))
}

/// Takes the address out of parameters that are wrong, and says so if that is what is wrong with them.
fn explain_address(value: &mut Value) -> Option<RpcError> {
    let agent_id = value.as_object_mut()?.remove(AGENT_ID)?;
    (!agent_id.is_string() && !agent_id.is_null()).then(|| not_a_name(&agent_id))
}

/// What is wrong with `value` as `P`: the first thing a person would have to mend.
fn explain<P: JsonSchema>(value: &Value) -> Option<RpcError> {
    let schema = schema::of::<P>().to_value();
    Walk { root: &schema }.check(&schema, value, "")
}

struct Walk<'a> {
    root: &'a Value,
}

impl Walk<'_> {
    fn check(&self, schema: &Value, value: &Value, path: &str) -> Option<RpcError> {
        let schema = self.resolve(schema);
        let branches = self.branches(schema);
        let types = if branches.is_empty() {
            types_of(schema)
        } else {
            branches.iter().flat_map(|s| types_of(s)).collect()
        };
        if !types.is_empty() && !types.iter().any(|name| is_type(name, value)) {
            let mut wanted: Vec<_> =
                types.iter().filter(|name| **name != "null").copied().collect();
            wanted.dedup();
            return Some(bad(
                path,
                format!("must be {}, got: {}", wanted.join(" or "), type_name(value)),
            ));
        }
        if branches.is_empty() {
            return self.check_inside(schema, value, path);
        }
        // A word with a description of its own is a branch of its own.
        let words: Vec<_> = branches.iter().flat_map(|branch| words_of(branch)).collect();
        if let (Value::String(text), false) = (value, words.is_empty()) {
            return check_word(&words, text, path);
        }
        let failures: Vec<_> =
            branches.iter().map(|branch| self.check(branch, value, path)).collect();
        // A value that fits one branch is right; else the branch of its own type says best what is wrong.
        if failures.iter().any(Option::is_none) {
            return None;
        }
        let own_type = branches
            .iter()
            .position(|branch| types_of(branch).iter().any(|name| is_type(name, value)));
        failures.into_iter().nth(own_type.unwrap_or(0)).flatten()
    }

    fn check_inside(&self, schema: &Value, value: &Value, path: &str) -> Option<RpcError> {
        match value {
            Value::Object(members) => {
                let properties = schema["properties"].as_object();
                let known =
                    |name: &str| properties.is_some_and(|properties| properties.contains_key(name));
                if schema["additionalProperties"] == json!(false)
                    && let Some(name) = members.keys().find(|name| !known(name))
                {
                    let path = format!("{path}/{}", escape(name));
                    return Some(RpcError::invalid_param(
                        path,
                        format!("Unknown parameter: {name}"),
                    ));
                }
                let required =
                    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                if let Some(name) = required.into_iter().find(|name| !members.contains_key(*name)) {
                    let path = format!("{path}/{}", escape(name));
                    return Some(RpcError::invalid_param(
                        path,
                        format!("Missing required parameter: {name}"),
                    ));
                }
                let mut checks = members
                    .iter()
                    .filter_map(|(name, value)| Some((name, value, properties?.get(name)?)));
                checks.find_map(|(name, value, schema)| {
                    self.check(schema, value, &format!("{path}/{}", escape(name)))
                })
            }
            Value::Array(items) => {
                let (most, got) = (schema["maxItems"].as_u64(), items.len());
                if let Some(most) = most.filter(|most| got as u64 > *most) {
                    return Some(bad(path, format!("must have at most {most} items, got: {got}")));
                }
                let schema = schema.get("items")?;
                items
                    .iter()
                    .enumerate()
                    .find_map(|(n, item)| self.check(schema, item, &format!("{path}/{n}")))
            }
            Value::Number(number) => check_range(schema, number, path),
            Value::String(text) if schema["pattern"] == NON_BLANK_PATTERN && is_blank(text) => {
                Some(bad(path, BLANK.into()))
            }
            Value::String(text) if schema["pattern"] == KEY_PATTERN => {
                IdempotencyKey::new(&**text).err().map(|complaint| bad(path, complaint))
            }
            Value::String(text) => match words_of(schema) {
                words if words.is_empty() => None,
                words => check_word(&words, text, path),
            },
            _ => None,
        }
    }

    /// The alternatives of a schema, nested ones included; none when it has no alternatives.
    fn branches<'s>(&'s self, schema: &'s Value) -> Vec<&'s Value> {
        let own = ["anyOf", "oneOf"].into_iter().filter_map(|kind| schema[kind].as_array());
        own.flatten()
            .map(|branch| self.resolve(branch))
            .flat_map(|branch| match self.branches(branch) {
                nested if nested.is_empty() => vec![branch],
                nested => nested,
            })
            .collect()
    }

    fn resolve<'s>(&'s self, schema: &'s Value) -> &'s Value {
        let target = schema["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
        target.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema)
    }
}

/// The words that a text has to be one of; none when it may be any.
fn words_of(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"].as_array().into_iter().flatten();
    listed.chain(schema.get("const")).filter_map(Value::as_str).collect()
}

fn check_word(words: &[&str], text: &str, path: &str) -> Option<RpcError> {
    let known = words.contains(&text);
    (!known).then(|| bad(path, format!("must be one of {}", words.join(", "))))
}

fn check_range(schema: &Value, number: &Number, path: &str) -> Option<RpcError> {
    let bound = |name: &str| schema[name].as_number();
    let (min, max) = (bound("minimum"), bound("maximum"));
    if !min.is_some_and(|min| less(number, min)) && !max.is_some_and(|max| less(max, number)) {
        return None;
    }
    let range = match (min, max) {
        (Some(min), Some(max)) if max.as_u64() < Some(u32::MAX.into()) => {
            format!("between {min} and {max}")
        }
        (Some(min), _) if less(number, min) => format!("at least {min}"),
        (_, Some(max)) => format!("at most {max}"),
        _ => return None,
    };
    Some(bad(path, format!("must be {range}, got: {number}")))
}

/// Whether `a` is less than `b`; to the last digit where both are integers.
fn less(a: &Number, b: &Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a < b,
        _ => a.as_f64() < b.as_f64(),
    }
}

fn bad(path: &str, complaint: String) -> RpcError {
    let name = if path.is_empty() { "params".into() } else { path[1..].replace('/', ".") };
    RpcError::invalid_param(path, format!("{name} {complaint}"))
}

fn types_of(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_type(name: &str, value: &Value) -> bool {
    name == type_name(value) || (name == "number" && value.is_number())
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A member's name as a part of a JSON pointer.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::CreateAgentParams;
    use crate::content::PARTS_MAX;
    use crate::conversation::GetMessagesParams;
    use crate::memory::MemoryListParams;
    use crate::plan::RunPlanParams;
    use crate::turn::{CancelParams, SendParams};

    fn check<P: DeserializeOwned + JsonSchema>(params: &str, expected: &str) {
        let got = match decode::<P>(Some(params)) {
            Ok(_) => "ok".to_string(),
            Err(error) => {
                let path =
                    error.data.as_ref().map_or("", |data| data["path"].as_str().unwrap_or(""));
                format!("{} @{path}", error.message)
            }
        };
        assert_eq!(got, expected, "{params}");
    }

    #[test]
    fn the_message_names_the_parameter() {
        check::<SendParams>("{}", "Missing required parameter: content @/content");
        check::<SendParams>(
            r#"{"content":5}"#,
            "content must be string or array, got: integer @/content",
        );
        check::<SendParams>(
            r#"{"content":null}"#,
            "content must be string or array, got: null @/content",
        );
        check::<SendParams>(r#"{"contnt":"x"}"#, "Unknown parameter: contnt @/contnt");
        check::<SendParams>(r#"{"content":"x","a/b":1}"#, "Unknown parameter: a/b @/a~1b");
        check::<SendParams>(
            r#"{"content":"x","stream":"yes"}"#,
            "stream must be boolean, got: string @/stream",
        );
        check::<SendParams>(
            r#"{"content":"x","timeout_ms":0}"#,
            "timeout_ms must be at least 1, got: 0 @/timeout_ms",
        );
        check::<SendParams>(
            r#"{"content":"x","request_id":[]}"#,
            "request_id must be integer or string, got: array @/request_id",
        );
        check::<SendParams>(
            r#"{"content":"x","request_id":1.5}"#,
            "request_id must be integer or string, got: number @/request_id",
        );
        check::<SendParams>(r#"{"content":"x","request_id":null,"stream":null}"#, "ok");
        check::<SendParams>(r#"{"content":""}"#, "content must not be blank @/content");
        check::<SendParams>(r#"{"content":" \n\u00a0"}"#, "content must not be blank @/content");
        check::<SendParams>(r#"{"content":" ."}"#, "ok");
        check::<SendParams>(
            r#"{"content":["x"]}"#,
            "content.0 must be object, got: string @/content/0",
        );
        check::<SendParams>(
            r#"{"content":[{"text":"x"}]}"#,
            "Missing required parameter: type @/content/0/type",
        );
        check::<SendParams>(
            r#"{"content":[{"type":"text","text":"x"},{"type":"audio"}]}"#,
            "content.1.type must be one of text, image, file, resource, resource_link @/content/1/type",
        );
        check::<SendParams>(
            r#"{"content":[{"type":"image","pth":"x"}]}"#,
            "Unknown parameter: pth @/content/0/pth",
        );
        check::<SendParams>(
            r#"{"content":[{"type":"image","data":"eA==","mimeType":"image/png"}]}"#,
            "ok",
        );
        check::<CreateAgentParams>(
            r#"{"initial_message":"\t"}"#,
            "initial_message must not be blank @/initial_message",
        );
        check::<CreateAgentParams>(r#"{"initial_message":null}"#, "ok");
        check::<CancelParams>(r#"{"request_id":7}"#, "ok");
        check::<CreateAgentParams>(
            r#"{"allowed_write_paths":["/a",1]}"#,
            "allowed_write_paths.1 must be string, got: integer @/allowed_write_paths/1",
        );
        check::<RunPlanParams>(
            r#"{"options":{"on_failure":"panic"}}"#,
            "options.on_failure must be one of stop, continue @/options/on_failure",
        );
        check::<RunPlanParams>(
            r#"{"options":{"on_failure":1}}"#,
            "options.on_failure must be string, got: integer @/options/on_failure",
        );
        check::<RunPlanParams>(r#"{"options":{"on_failure":"continue"}}"#, "ok");
        check::<RunPlanParams>(r#"{"options":[]}"#, "options must be object, got: array @/options");
        check::<RunPlanParams>(
            r#"{"plan":{"tasks":[["a","testing","x"]]}}"#,
            "plan.tasks.0 must be object, got: array @/plan/tasks/0",
        );
        check::<SendParams>(
            r#"{"content":[["text","x"]]}"#,
            "content.0 must be object, got: array @/content/0",
        );
        check::<CreateAgentParams>(
            r#"{"reasoning":[]}"#,
            "reasoning must be boolean or object, got: array @/reasoning",
        );
        check::<CreateAgentParams>(r#"{"reasoning":{"effort":"low"}}"#, "ok");
        check::<NoParams>("{}", "ok");
        check::<NoParams>(r#"{"x":1}"#, "Unknown parameter: x @/x");
        check::<NoParams>(r#"{"context_token":"t"}"#, "ok");
        check::<NoParams>(r#"{"context_token":7,"x":1}"#, "Unknown parameter: x @/x");
        check::<MemoryListParams>(
            r#"{"context_token":7}"#,
            "context_token must be string, got: integer @/context_token",
        );
        check::<SendParams>(r#"{"context_token":"t","content":"x"}"#, "ok");
        check::<SendParams>(
            r#"{"context_token":"t"}"#,
            "Missing required parameter: content @/content",
        );
        check::<NoParams>(
            "[]",
            "Positional params (array) not supported, use named params (object) @",
        );
    }

    #[test]
    fn the_address_is_read_beside_the_parameters() {
        #[track_caller]
        fn check<P: DeserializeOwned + JsonSchema + Serialize>(params: &str, expected: &str) {
            let got = match decode_addressed::<P>(Some(params)) {
                Ok((params, agent_id)) => {
                    let params = serde_json::to_value(params).unwrap();
                    let given = params.as_object().unwrap().iter();
                    let given: serde_json::Map<_, _> = given
                        .filter(|(_, value)| !value.is_null())
                        .map(|(name, value)| (name.clone(), value.clone()))
                        .collect();
                    format!("{agent_id:?} {}", Value::Object(given))
                }
                Err(error) => error.message,
            };
            assert_eq!(got, expected, "{params}");
        }
        check::<NoParams>("{}", "None {}");
        check::<NoParams>(r#"{"agent_id":"a"}"#, r#"Some("a") {}"#);
        check::<NoParams>(r#"{"agent_id":null}"#, "None {}");
        check::<NoParams>(r#"{"agent\u005fid":"\u0061"}"#, r#"Some("a") {}"#);
        check::<NoParams>(r#"{"agent_id":7}"#, "agent_id must be string, got: integer");
        check::<NoParams>(r#"{"agent_id":7,"x":1}"#, "agent_id must be string, got: integer");
        check::<NoParams>(r#"{"agent_id":"a","x":1}"#, "Unknown parameter: x");
        check::<SendParams>(r#"{"agent_id":"a"}"#, "Missing required parameter: content");
        check::<SendParams>(r#"{"content":"x","agent_id":"a"}"#, r#"Some("a") {"content":"x"}"#);
        check::<SendParams>(r#"{"content":"x"}"#, r#"None {"content":"x"}"#);
        let with_token = r#"{"agent_id":"\u0061","context_token":"t","content":"x"}"#;
        check::<SendParams>(with_token, r#"Some("a") {"content":"x"}"#);
        let twice = r#"{"agent_id":"a","content":"x","agent_id":"b"}"#;
        assert!(decode_addressed::<SendParams>(Some(twice)).is_err());
        assert!(decode_addressed::<NoParams>(Some("[]")).is_err());
        // Elsewhere it is a parameter like any other.
        assert!(decode::<SendParams>(Some(r#"{"content":"x","agent_id":"a"}"#)).is_err());
    }

    #[test]
    fn a_key_is_short_and_says_something() {
        let key = |text: &str| json!({"content": "x", "idempotency_key": text}).to_string();
        check::<SendParams>(&key(&"é".repeat(127)), "ok");
        check::<SendParams>(&key(&"x".repeat(255)), "ok");
        let over = "idempotency_key must be at most 255 bytes long, got: 256 @/idempotency_key";
        check::<SendParams>(&key(&"x".repeat(256)), over);
        check::<SendParams>(&key(&"é".repeat(128)), over);
        check::<SendParams>(&key(" "), "idempotency_key must not be blank @/idempotency_key");
        for control in ["a\n", "\0a", "a\u{7f}", "a\u{85}b"] {
            check::<SendParams>(
                &key(control),
                "idempotency_key must not have control characters @/idempotency_key",
            );
        }
        check::<SendParams>(r#"{"content":"x","idempotency_key":null}"#, "ok");
        check::<CreateAgentParams>(
            r#"{"idempotency_key":7}"#,
            "idempotency_key must be string, got: integer @/idempotency_key",
        );
    }

    #[test]
    fn ranges_just_under_and_just_over() {
        check::<GetMessagesParams>(r#"{"limit":1}"#, "ok");
        check::<GetMessagesParams>(r#"{"limit":2000}"#, "ok");
        check::<GetMessagesParams>(
            r#"{"limit":0}"#,
            "limit must be between 1 and 2000, got: 0 @/limit",
        );
        check::<GetMessagesParams>(
            r#"{"limit":2001}"#,
            "limit must be between 1 and 2000, got: 2001 @/limit",
        );
        check::<GetMessagesParams>(
            r#"{"offset":-1}"#,
            "offset must be at least 0, got: -1 @/offset",
        );
        check::<GetMessagesParams>(r#"{"offset":18446744073709551615}"#, "ok");
        check::<GetMessagesParams>(
            r#"{"offset":18446744073709551616}"#,
            "offset must be integer, got: number @/offset",
        );
        check::<CancelParams>(r#"{"request_id":-9223372036854775808}"#, "ok");
        check::<CancelParams>(r#"{"request_id":9223372036854775807}"#, "ok");
        check::<CancelParams>(
            r#"{"request_id":9223372036854775808}"#,
            "request_id must be at most 9223372036854775807, got: 9223372036854775808 @/request_id",
        );
        check::<SendParams>(r#"{"content":"x","max_output_tokens":4294967295}"#, "ok");
        check::<SendParams>(
            r#"{"content":"x","max_output_tokens":4294967296}"#,
            "max_output_tokens must be at most 4294967295, got: 4294967296 @/max_output_tokens",
        );
        let parts = |count: usize| {
            json!({"content": vec![json!({"type": "text", "text": "x"}); count]}).to_string()
        };
        check::<SendParams>(&parts(PARTS_MAX), "ok");
        check::<SendParams>(
            &parts(PARTS_MAX + 1),
            "content must have at most 256 items, got: 257 @/content",
        );
    }
}
