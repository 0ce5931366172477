//! The JSON-RPC 2.0 envelope: bytes to requests, answers to bytes.

use std::borrow::Cow;
use std::fmt;

use compact_str::CompactString;
use nexus_json::{Count, MESSAGE_VALUES_MAX};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::RpcError;
use crate::key::Door;

/// Deepest nesting of a message. Deeper ones serve only to exhaust a parser's stack.
pub const DEPTH_MAX: usize = 128;

/// Most elements of a batch. Enough for a client that gathers its calls, too few to hide a flood in one body.
pub const BATCH_MAX: usize = 100;

/// A message as it came in, checked as far as its envelope goes.
pub enum Incoming<'a> {
    Single(Request<'a>),
    /// 1 to `BATCH_MAX` elements, each good or bad for itself.
    Batch(Vec<Result<Request<'a>, RpcError>>),
}

/// One call. `params` is still text, an object or an array in JSON: what it must be depends on the method.
pub struct Request<'a> {
    /// `None` for a notification.
    pub id: Option<Id>,
    pub method: Cow<'a, str>,
    pub params: Option<&'a str>,
    /// Its signature, an object in JSON.
    pub auth: Option<&'a str>,
    /// The other protocol that it was made of, for the log and the figures. It gives no rights.
    pub door: Option<Door>,
    /// All of it, as it came: what a signature is made of.
    pub text: &'a str,
}

/// The id of a request: the JSON text of a string or an integer, kept to the letter so that it is echoed exactly.
/// It goes with its call everywhere: the short ones are copied without memory of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(CompactString);

/// Reads a message. An error here is answered with `id: null`.
pub fn parse(message: &[u8]) -> Result<Incoming<'_>, RpcError> {
    check_size(message)?;
    let message = str::from_utf8(message).map_err(|error| RpcError::parse(error.to_string()))?;
    match message.bytes().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => parse_batch(message),
        Some(b'{') => {
            let members: Members = serde_json::from_str(message).map_err(malformed)?;
            members.into_request(message).map(Incoming::Single)
        }
        _ => {
            let _: &RawValue = serde_json::from_str(message).map_err(malformed)?;
            Err(RpcError::invalid_request("a request must be an object"))
        }
    }
}

fn parse_batch(message: &str) -> Result<Incoming<'_>, RpcError> {
    let elements: Vec<&RawValue> = serde_json::from_str(message).map_err(malformed)?;
    match elements.len() {
        0 => Err(RpcError::invalid_request("a batch must hold at least one request")),
        1..=BATCH_MAX => Ok(Incoming::Batch(elements.into_iter().map(parse_element).collect())),
        n => Err(RpcError::invalid_request(format!(
            "a batch may hold at most {BATCH_MAX} requests, got: {n}"
        ))),
    }
}

fn parse_element(element: &RawValue) -> Result<Request<'_>, RpcError> {
    if !element.get().starts_with('{') {
        return Err(RpcError::invalid_request("a request must be an object"));
    }
    let members: Members = serde_json::from_str(element.get()).map_err(malformed)?;
    members.into_request(element.get())
}

/// Text that is no JSON is a parse error; JSON with members that cannot be (a duplicate) is no request.
fn malformed(error: serde_json::Error) -> RpcError {
    match error.classify() {
        serde_json::error::Category::Data => RpcError::invalid_request(error.to_string()),
        _ => RpcError::parse(error.to_string()),
    }
}

/// Whether a message nests no deeper, and holds no more, than may be read of it. Brackets and commas are counted outside
/// of strings only; a text that is no JSON may be judged either way, since the parser refuses it all the same.
fn check_size(message: &[u8]) -> Result<(), RpcError> {
    if message.len() <= DEPTH_MAX {
        return Ok(());
    }
    let mut count = Count::default();
    count.add(message);
    if count.deepest() > DEPTH_MAX {
        return Err(RpcError::parse(format!("nesting is deeper than {DEPTH_MAX}")));
    }
    match count.values() > MESSAGE_VALUES_MAX {
        true => Err(too_many_values()),
        false => Ok(()),
    }
}

/// A message that would take far more memory than it has bytes.
pub fn too_many_values() -> RpcError {
    RpcError::invalid_request(format!("message holds more than {MESSAGE_VALUES_MAX} JSON values"))
}

/// The top-level members, each still text.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    id: Option<&'a str>,
    auth: Option<&'a str>,
    door: Option<&'a str>,
    unknown: Option<String>,
}

impl<'a> Members<'a> {
    /// Adds a member. Refused when it is there already.
    fn put(&mut self, name: &str, value: &'a str) -> Result<(), String> {
        let member = match name {
            "jsonrpc" => &mut self.jsonrpc,
            "method" => &mut self.method,
            "params" => &mut self.params,
            "id" => &mut self.id,
            "auth" => &mut self.auth,
            "door" => &mut self.door,
            _ => {
                self.unknown.get_or_insert_with(|| name.into());
                return Ok(());
            }
        };
        match member.replace(value) {
            None => Ok(()),
            Some(_) => Err(format!("duplicate member: {name}")),
        }
    }

    fn into_request(self, text: &'a str) -> Result<Request<'a>, RpcError> {
        if let Some(name) = self.unknown {
            return Err(RpcError::invalid_request(format!("unknown member: {name}")));
        }
        if self.jsonrpc.and_then(string).as_deref() != Some("2.0") {
            return Err(RpcError::invalid_request("jsonrpc must be '2.0'"));
        }
        let method = self
            .method
            .and_then(string)
            .ok_or_else(|| RpcError::invalid_request("method must be a string"))?;
        if method.is_empty() {
            return Err(RpcError::invalid_request("method must not be empty"));
        }
        let id =
            match self.id {
                None | Some("null") => None,
                Some(raw) => Some(Id::from_json(raw).ok_or_else(|| {
                    RpcError::invalid_request("id must be a string or an integer")
                })?),
            };
        let params = self.params.filter(|raw| *raw != "null");
        if !params.is_none_or(|raw| raw.starts_with(['{', '['])) {
            return Err(RpcError::invalid_request("params must be an object"));
        }
        let auth = self.auth.filter(|raw| *raw != "null");
        if !auth.is_none_or(|raw| raw.starts_with('{')) {
            return Err(RpcError::invalid_request("auth must be an object"));
        }
        let door = match self.door {
            None => Ok(None),
            // No key is made for it, so the type does not read it.
            Some("\"acp\"") => Ok(Some(Door::Acp)),
            Some(door) => serde_json::from_str(door),
        };
        let door = door.map_err(|_| RpcError::invalid_request("door must be 'mcp' or 'acp'"))?;
        Ok(Request { id, method, params, auth, door, text })
    }
}

/// The string that JSON text is, if it is one.
fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a request object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Members::default();
                while let Some(Key(name)) = map.next_key()? {
                    let value: &RawValue = map.next_value()?;
                    members.put(&name, value.get()).map_err(serde::de::Error::custom)?;
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A member's name, borrowed from the message where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Id {
    /// The id whose JSON text is `raw`, if that is a string or an integer.
    fn from_json(raw: &str) -> Option<Self> {
        let digits = raw.strip_prefix('-').unwrap_or(raw);
        let integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        (raw.starts_with('"') || integer).then(|| Self(raw.into()))
    }

    pub fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// Appends a successful answer to `out`.
pub fn write_result(
    out: &mut Vec<u8>,
    id: &Id,
    result: &impl Serialize,
) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"result\":");
    match serde_json::to_writer(&mut *out, result) {
        Ok(()) => out.push(b'}'),
        Err(error) => {
            out.truncate(start);
            return Err(error);
        }
    }
    Ok(())
}

/// Appends an error answer to `out`. Without an id it is `null`, as JSON-RPC has it for what could not be read.
pub fn write_error(out: &mut Vec<u8>, id: Option<&Id>, error: &RpcError) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.map_or("null", Id::as_json).as_bytes());
    out.extend_from_slice(b",\"error\":");
    out.extend_from_slice(error.to_json().as_bytes());
    out.push(b'}');
}

/// Appends a notification to `out`.
pub fn write_notification(
    out: &mut Vec<u8>,
    method: &str,
    params: &impl Serialize,
) -> Result<(), serde_json::Error> {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'a str,
        method: &'a str,
        params: &'a P,
    }
    serde_json::to_writer(out, &Notification { jsonrpc: "2.0", method, params })
}

/// A call as a client sends it.
#[derive(Serialize)]
pub struct Call<'a, P> {
    jsonrpc: &'static str,
    pub method: &'a str,
    pub params: &'a P,
    pub id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    door: Option<Door>,
}

impl<'a, P: Serialize> Call<'a, P> {
    pub fn new(id: u64, method: &'a str, params: &'a P) -> Self {
        Self { jsonrpc: "2.0", method, params, id, door: None }
    }

    /// The same, made of a call of another protocol.
    pub fn through(self, door: Option<Door>) -> Self {
        Self { door, ..self }
    }
}

/// What a server sends, as a client reads it: an answer (with an id) or a notification (with a method).
#[derive(Deserialize)]
pub struct Outgoing<'a> {
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    pub method: Option<String>,
    #[serde(borrow)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub result: Option<&'a RawValue>,
    pub error: Option<RpcError>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(message: &str, expected: &str) {
        check_bytes(message.as_bytes(), expected);
    }

    /// Describes what `message` was read as, in one line.
    fn check_bytes(message: &[u8], expected: &str) {
        let one = |request: &Result<Request, RpcError>| match request {
            Ok(request) => {
                let id = request.id.as_ref().map_or("none", Id::as_json);
                let (params, auth) = (request.params.unwrap_or("none"), request.auth);
                let auth = auth.map(|auth| format!(" {auth}")).unwrap_or_default();
                format!("{} {id} {params}{auth}", request.method)
            }
            Err(error) => format!("{} {}", error.code, error.message),
        };
        let got = match parse(message) {
            Ok(Incoming::Single(request)) => one(&Ok(request)),
            Ok(Incoming::Batch(batch)) => batch.iter().map(one).collect::<Vec<_>>().join("; "),
            Err(error) => one(&Err(error)),
        };
        assert!(got.starts_with(expected), "{}: {got}", String::from_utf8_lossy(message));
    }

    #[test]
    fn requests() {
        check(r#"{"jsonrpc":"2.0","method":"m","id":1}"#, "m 1 none");
        check(
            r#" {"id":"a\"b","params":{"x":1},"method":"m","jsonrpc":"2.0"} "#,
            r#"m "a\"b" {"x":1}"#,
        );
        check(
            r#"{"jsonrpc":"2.0","method":"m","id":-123456789012345678901234567890}"#,
            "m -123456789012345678901234567890",
        );
        check(r#"{"jsonrpc":"2.0","method":"m","id":null,"params":null}"#, "m none none");
        check(r#"{"jsonrpc":"2.0","method":"m\u0041"}"#, "mA none none");
        check(r#"{"jsonrpc":"2.0","method":"m","params":[1],"id":1}"#, "m 1 [1]");
        check(r#"{"jsonrpc":"2.0","method":"m","id":1,"auth":null}"#, "m 1 none");
        check(r#"{"jsonrpc":"2.0","method":"m","id":1,"door":null}"#, "m 1 none");
        check(r#"{"jsonrpc":"2.0","method":"m","id":1,"door":"mcp"}"#, "m 1 none");
        check(r#"{"jsonrpc":"2.0","method":"m","id":1,"door":"acp"}"#, "m 1 none");
        check(r#"{"jsonrpc":"2.0","method":"m","id":1,"auth":{"x":1}}"#, "m 1 none {\"x\":1}");
    }

    #[test]
    fn refusals() {
        check("", "-32700 Invalid JSON: ");
        check("{", "-32700 Invalid JSON: ");
        check("nope", "-32700 Invalid JSON: ");
        check(r#"{"jsonrpc":"2.0","method":"m"} x"#, "-32700 Invalid JSON: ");
        check_bytes(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}", "-32700 Invalid JSON: ");
        check("7", "-32600 a request must be an object");
        check("{}", "-32600 jsonrpc must be '2.0'");
        check(r#"{"jsonrpc":2.0,"method":"m"}"#, "-32600 jsonrpc must be '2.0'");
        check(r#"{"jsonrpc":"2.0"}"#, "-32600 method must be a string");
        check(r#"{"jsonrpc":"2.0","method":1}"#, "-32600 method must be a string");
        check(r#"{"jsonrpc":"2.0","method":""}"#, "-32600 method must not be empty");
        check(r#"{"jsonrpc":"2.0","method":"m","method":"n"}"#, "-32600 duplicate member: method");
        check(r#"{"jsonrpc":"2.0","method":"m","extra":1}"#, "-32600 unknown member: extra");
        check(r#"{"jsonrpc":"2.0","method":"m","params":"x"}"#, "-32600 params must be an object");
        check(r#"{"jsonrpc":"2.0","method":"m","auth":"x"}"#, "-32600 auth must be an object");
        for door in [r#""MCP""#, r#""""#, "1", "{}"] {
            let message = format!(r#"{{"jsonrpc":"2.0","method":"m","door":{door}}}"#);
            check(&message, "-32600 door must be 'mcp' or 'acp'");
        }
        for id in ["1.5", "1e3", "true", "[]", "{}", "1.0"] {
            check(
                &format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#),
                "-32600 id must be a string or an integer",
            );
        }
    }

    #[test]
    fn batches() {
        check("[]", "-32600 a batch must hold at least one request");
        check(
            r#"[1,{"jsonrpc":"2.0","method":"m","id":1}]"#,
            "-32600 a request must be an object; m 1 none",
        );
        let of = |n: usize| {
            format!("[{}]", vec![r#"{"jsonrpc":"2.0","method":"m","id":1}"#; n].join(","))
        };
        check(&of(BATCH_MAX), "m 1 none; m 1 none");
        check(&of(BATCH_MAX + 1), "-32600 a batch may hold at most 100 requests, got: 101");
    }

    #[test]
    fn nesting_just_under_and_just_over() {
        let of = |depth: usize| {
            // The request object and its params are two levels.
            let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
            format!(r#"{{"jsonrpc":"2.0","method":"m","id":1,"params":{{"x":{open}{close}}}}}"#)
        };
        check(&of(DEPTH_MAX), "m 1 ");
        check(&of(DEPTH_MAX + 1), "-32700 Invalid JSON: nesting is deeper than 128");
        check(&"[".repeat(100_000), "-32700 Invalid JSON: nesting is deeper than 128");
    }

    #[test]
    fn a_message_holds_so_many_values_and_no_more() {
        let of = |values: usize| {
            // Of what is around the list six are counted: three brackets, three commas.
            let list = vec!["0"; values - 6].join(",");
            format!(r#"{{"jsonrpc":"2.0","method":"m","id":1,"params":{{"x":[{list}]}}}}"#)
        };
        check(&of(MESSAGE_VALUES_MAX), "m 1 ");
        let over = of(MESSAGE_VALUES_MAX + 1);
        check(&over, "-32600 message holds more than 524288 JSON values");
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn an_id_is_echoed_to_the_letter(id in r#"(-?[1-9][0-9]{0,40}|"([a-z]|\\n|\\u00e4){0,10}")"#) {
            let message = format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#);
            let Ok(Incoming::Single(request)) = parse(message.as_bytes()) else { panic!("{message}") };
            let mut out = Vec::new();
            write_result(&mut out, &request.id.unwrap(), &true).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":true}}"#));
        }
    }
}
