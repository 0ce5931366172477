//! The JSON Schema of every message, made from the method table: for programs that check what they send and receive.

use nexus_protocol::envelope::BATCH_MAX;
use nexus_protocol::error;
use nexus_protocol::stream::{
    STREAM_DATA, STREAM_END, STREAM_EVENT, STREAM_START, StreamData, StreamEnd, StreamEvent,
    StreamStart,
};
use nexus_protocol::watch::{WATCH_EVENT, WatchEvent};
use nexus_protocol::{Scope, schema};
use schemars::Schema;
use serde_json::{Map, Value, json};

use crate::dispatcher::MethodInfo;

/// The parameter that every method passes over which does not know it.
const CONTEXT_TOKEN: &str = "context_token";

/// Makes the schema of a type.
type Made = fn() -> Schema;

/// The document. It is itself the schema of what a client sends; what else there is stands in `$defs`.
pub fn document(methods: &[MethodInfo]) -> Value {
    let mut defs = Map::new();
    for method in methods {
        let name = method.name;
        let params = params(method, &mut defs);
        let result = own(method.result, &mut defs);
        // What is always wanted, or one of two.
        let needed = ["required", "allOf"].iter().any(|keyword| params.get(keyword).is_some());
        let request = request(method, needed);
        let response = json!({
            "description": format!("What {name} answers."),
            "anyOf": [answered(id(), "result", at(&format!("{name}.result"))), at("ErrorResponse")],
        });
        defs.insert(format!("{name}.request"), request);
        defs.insert(format!("{name}.params"), params);
        defs.insert(format!("{name}.result"), result);
        defs.insert(format!("{name}.response"), response);
    }
    let notifications: [(&str, Made); 5] = [
        (STREAM_START, schema::of::<StreamStart>),
        (STREAM_DATA, schema::of::<StreamData>),
        (STREAM_EVENT, schema::of::<StreamEvent>),
        (STREAM_END, schema::of::<StreamEnd>),
        (WATCH_EVENT, schema::of::<WatchEvent>),
    ];
    for (name, params) in notifications {
        let params = own(params, &mut defs);
        defs.insert(name.into(), notification(name, params));
    }
    let requests = methods.iter().map(|method| at(&format!("{}.request", method.name)));
    let results = methods.iter().map(|method| at(&format!("{}.response", method.name)));
    let named = [
        ("Auth", auth()),
        ("Error", error_object()),
        ("ErrorResponse", answered(with_null(id()), "error", at("Error"))),
        ("Request", json!({"anyOf": requests.collect::<Vec<_>>()})),
        ("Batch", list(at("Request"))),
        ("Response", json!({"anyOf": results.collect::<Vec<_>>()})),
        ("BatchResponse", list(at("Response"))),
        ("Notification", json!({"anyOf": notifications.map(|(name, _)| at(name))})),
        (
            "ServerMessage",
            json!({
                "description": "What a server sends.",
                "anyOf": [at("Response"), at("BatchResponse"), at("Notification")],
            }),
        ),
    ];
    defs.extend(named.map(|(name, schema)| (name.to_owned(), schema)));
    defs.sort_keys();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nexus3",
        "description": "The messages of nexus3: what a client sends, and in $defs what each method takes and answers, as \
                        METHOD.request, METHOD.params, METHOD.result and METHOD.response. Lengths of texts are limits in \
                        bytes, which for other letters than those of ASCII are reached earlier.",
        "anyOf": [at("Request"), at("Batch")],
        "$defs": defs,
    })
}

/// The parameters as they are at server scope: with the agent that they are for.
fn params(method: &MethodInfo, defs: &mut Map<String, Value>) -> Value {
    let mut params = own(method.params, defs);
    let closed = params["additionalProperties"] == false;
    let Some(object) = params.as_object_mut() else { return params };
    let Some(members) = object.entry("properties").or_insert_with(|| json!({})).as_object_mut()
    else {
        return params;
    };
    if method.scope == Scope::Agent {
        let mut address = schema::address().to_value();
        address["description"] =
            json!("The agent that is called, at server scope; not at /agent/ID.");
        members.insert("agent_id".into(), address);
    }
    if closed && !members.contains_key(CONTEXT_TOKEN) {
        members.insert(CONTEXT_TOKEN.into(), json!({"description": "Passed over."}));
    }
    params
}

fn request(method: &MethodInfo, needs_params: bool) -> Value {
    let params = at(&format!("{}.params", method.name));
    let mut required = vec!["jsonrpc", "method"];
    let params = match needs_params {
        true => {
            required.push("params");
            params
        }
        false => json!({"anyOf": [params, {"type": "null"}]}),
    };
    let mut id = with_null(id());
    id["description"] = json!("Comes back with the answer. Without one there is no answer.");
    json!({
        "type": "object",
        "description": method.doc.trim(),
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "method": {"const": method.name},
            "params": params,
            "id": id,
            "auth": {"anyOf": [at("Auth"), {"type": "null"}]},
            "door": {
                "enum": ["mcp", "openai", "websocket", null],
                "description": "The other protocol that the call was made of, for the log and the figures. It gives no rights.",
            },
        },
        "required": required,
        "additionalProperties": false,
    })
}

fn auth() -> Value {
    json!({
        "type": "object",
        "description": "The signature of the request. It is looked at unless auth.hmac.mode is off.",
        "properties": {
            "timestamp": {
                "type": "integer",
                "minimum": 0,
                "maximum": u64::MAX,
                "description": "Seconds since 1970.",
            },
            "signature": {
                "type": "string",
                "contentEncoding": "base64",
                "description": "HMAC-SHA256 of the request in canonical form.",
            },
            "key_id": {"type": ["string", "null"], "description": "The name of the key."},
            "nonce": {"type": ["string", "null"], "description": "Anything that was not sent before."},
        },
        "required": ["timestamp", "signature"],
        "additionalProperties": false,
    })
}

/// An error as it travels, with the data that its code demands.
fn error_object() -> Value {
    let plain = json!([
        error::PARSE_ERROR,
        error::INVALID_REQUEST,
        error::METHOD_NOT_FOUND,
        error::INTERNAL_ERROR,
    ]);
    let detailed =
        json!([error::EXECUTION, error::UNAVAILABLE, error::RATE_LIMITED, error::FORBIDDEN]);
    let wait = json!({"type": "integer", "minimum": 0});
    let path = json!({"type": "string", "description": "A JSON pointer to the parameter."});
    json!({
        "type": "object",
        "properties": {
            "code": {"type": "integer"},
            "message": {"type": "string", "description": "A sentence for people."},
            "data": {"type": "object"},
        },
        "required": ["code", "message"],
        "additionalProperties": false,
        "anyOf": [
            {"properties": {"code": {"enum": plain}}},
            {"properties": {
                "code": {"const": error::INVALID_PARAMS},
                "data": {"properties": {"path": path}},
            }},
            {
                "properties": {
                    "code": {"enum": detailed},
                    "data": {
                        "properties": {
                            "type": {"type": "string"},
                            "details": {"type": "string"},
                            "recovery_suggestions": {"type": "array", "items": {"type": "string"}},
                            "retry_after_ms": wait,
                        },
                        "required": ["type", "details", "recovery_suggestions"],
                    },
                },
                "required": ["data"],
            },
        ],
    })
}

/// An answer that has `id` and the member `name`.
fn answered(id: Value, name: &str, schema: Value) -> Value {
    json!({
        "type": "object",
        "properties": {"jsonrpc": {"const": "2.0"}, "id": id, name: schema},
        "required": ["jsonrpc", "id", name],
        "additionalProperties": false,
    })
}

fn notification(method: &str, params: Value) -> Value {
    json!({
        "type": "object",
        "properties": {"jsonrpc": {"const": "2.0"}, "method": {"const": method}, "params": params},
        "required": ["jsonrpc", "method", "params"],
        "additionalProperties": false,
    })
}

fn id() -> Value {
    json!({"type": ["string", "integer"]})
}

fn with_null(mut schema: Value) -> Value {
    if let Some(types) = schema["type"].as_array_mut() {
        types.push(json!("null"));
    }
    schema
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items, "minItems": 1, "maxItems": BATCH_MAX})
}

fn at(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// A schema without its definitions, which go to those of the document.
fn own(schema: Made, defs: &mut Map<String, Value>) -> Value {
    let mut schema = schema().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        object.remove("title");
        if let Some(Value::Object(own)) = object.remove("$defs") {
            defs.extend(own);
        }
    }
    schema
}
