//! The documents made from the method table: OpenRPC for programs, `docs/rpc.md` for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nexus_protocol::agent::Shutdown;
use nexus_protocol::{Method as _, Scope};
use serde_json::{Map, Value, json};

use crate::dispatcher::MethodInfo;

/// The OpenRPC document.
pub fn document(methods: &[MethodInfo]) -> Value {
    let mut schemas = BTreeMap::new();
    let methods: Vec<_> = methods.iter().map(|method| describe(method, &mut schemas)).collect();
    json!({
        "openrpc": "1.3.2",
        "info": {"title": "nexus3", "version": env!("CARGO_PKG_VERSION")},
        "methods": methods,
        "components": {"schemas": schemas},
    })
}

fn describe(method: &MethodInfo, schemas: &mut BTreeMap<String, Value>) -> Value {
    let mut params = shared((method.params)().to_value(), schemas);
    let required: Vec<_> = params["required"].as_array().cloned().unwrap_or_default();
    let properties = params["properties"].as_object_mut().map(std::mem::take).unwrap_or_default();
    let mut params: Vec<_> = properties
        .into_iter()
        .map(|(name, schema)| {
            json!({"name": name, "required": required.contains(&json!(name)), "schema": schema})
        })
        .collect();
    if method.scope == Scope::Agent {
        let description = match method.name {
            Shutdown::NAME => {
                "At server scope: the agent that is marked; the server stops when absent."
            }
            _ => "At server scope: the agent that is called; `main` when absent.",
        };
        params.push(json!({
            "name": "agent_id", "required": false, "schema": {"type": "string", "description": description},
        }));
    }
    json!({
        "name": method.name,
        "description": method.doc.trim(),
        "paramStructure": "by-name",
        "params": params,
        "result": {"name": "result", "schema": shared((method.result)().to_value(), schemas)},
        "x-scope": method.scope.name(),
        "x-kind": method.kind.name(),
    })
}

/// Moves a schema's definitions to the document's components and points its references there.
fn shared(mut schema: Value, schemas: &mut BTreeMap<String, Value>) -> Value {
    repoint(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        if let Some(Value::Object(definitions)) = object.remove("$defs") {
            schemas.extend(definitions);
        }
    }
    schema
}

fn repoint(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(target)) = object.get_mut("$ref") {
                *target = target.replacen("#/$defs/", "#/components/schemas/", 1);
            }
            object.values_mut().for_each(repoint);
        }
        Value::Array(items) => items.iter_mut().for_each(repoint),
        _ => {}
    }
}

/// `docs/rpc.md`.
pub fn reference(methods: &[MethodInfo]) -> String {
    let document = document(methods);
    let mut out = String::from(
        "# RPC reference\n\nGenerated from the method table by `make docs`; a test fails when it is stale. Conventions \
         (envelope, errors, scopes, streaming) are in [protocol.md](protocol.md).\n",
    );
    for scope in ["server", "agent"] {
        let _ = write!(out, "\n## Methods of {scope} scope\n");
        for method in document["methods"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|method| method["x-scope"] == scope)
        {
            write_method(&mut out, method, &document);
        }
    }
    out
}

fn write_method(out: &mut String, method: &Value, document: &Value) {
    let text = |value: &Value| {
        value.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let _ = write!(out, "\n### `{}`\n\n{}\n", text(&method["name"]), text(&method["description"]));
    let _ = writeln!(out, "\nKind: {}.", text(&method["x-kind"]));
    let params = method["params"].as_array().cloned().unwrap_or_default();
    if !params.is_empty() {
        out.push_str("\n| parameter | type | required | |\n| --- | --- | --- | --- |\n");
    }
    for param in &params {
        let schema = &param["schema"];
        let required = if param["required"] == json!(true) { "yes" } else { "no" };
        let (name, kind) = (text(&param["name"]), type_text(schema, document));
        let _ =
            writeln!(out, "| `{name}` | {kind} | {required} | {} |", text(&schema["description"]));
    }
    let result = &method["result"]["schema"];
    let members = result["properties"].as_object().cloned().unwrap_or_else(Map::new);
    if members.is_empty() {
        let _ = writeln!(out, "\nResult: {}.", type_text(result, document));
        return;
    }
    out.push_str("\n| result member | type | |\n| --- | --- | --- |\n");
    for (name, schema) in &members {
        let _ = writeln!(
            out,
            "| `{name}` | {} | {} |",
            type_text(schema, document),
            text(&schema["description"])
        );
    }
}

/// A schema in a word or two.
fn type_text(schema: &Value, document: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap_or_default();
        let target = &document["components"]["schemas"][name];
        return match target["properties"].as_object() {
            Some(members) => {
                format!(
                    "{{{}}}",
                    members.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
                )
            }
            None => type_text(target, document),
        };
    }
    if let Some(branches) = schema["anyOf"].as_array() {
        return branches
            .iter()
            .map(|branch| type_text(branch, document))
            .collect::<Vec<_>>()
            .join(" or ");
    }
    let names: Vec<_> = match &schema["type"] {
        Value::String(name) => vec![name.clone()],
        Value::Array(names) => {
            names.iter().filter_map(|name| name.as_str().map(Into::into)).collect()
        }
        _ => vec!["any".into()],
    };
    let range = match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
        // What any integer of its type keeps to says nothing.
        (Some(min), Some(max)) if max < u32::MAX.into() => format!(" ({min} to {max})"),
        (Some(min), _) if min > 0 => format!(" (at least {min})"),
        _ => String::new(),
    };
    let items = if schema["items"].is_object() {
        format!(" of {}", type_text(&schema["items"], document))
    } else {
        String::new()
    };
    format!("{}{range}{items}", names.join(" or "))
}
