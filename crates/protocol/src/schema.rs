//! The JSON Schema of what travels: what is said beyond the Rust types, so that a reader of the schema refuses what the
//! server refuses.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

/// The schema of a type. Integers have the bounds of their Rust type: no reader is bound by a `format`.
pub fn of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::default().with_transform(RecursiveTransform(bound));
    settings.into_generator().into_root_schema_for::<T>()
}

fn bound(schema: &mut Schema) {
    let (min, max) = match schema.get("format").and_then(Value::as_str) {
        Some("uint32") => (json!(0), json!(u32::MAX)),
        Some("uint64") => (json!(0), json!(u64::MAX)),
        Some("int64") => (json!(i64::MIN), json!(i64::MAX)),
        _ => return,
    };
    for (name, value) in [("minimum", min), ("maximum", max)] {
        if schema.get(name).is_none() {
            schema.insert(name.into(), value);
        }
    }
}

/// The schema of the `agent_id` that a method of an agent is addressed by at server scope.
pub fn address() -> Schema {
    schemars::json_schema!({
        "type": ["string", "null"], "pattern": NAME_PATTERN, "not": double_dot()
    })
}

/// An agent's or a session's name. A field has it as `#[schemars(with = …)]`: it is a `String` there, and whoever makes a
/// name of it refuses what is none.
pub(crate) enum Name {}

/// The same, where `.` alone asks for a name that is made up.
pub(crate) enum NewName {}

/// The index of a message, or -1, for each of at most 1,000 agents.
pub(crate) enum Cursors {}

/// The name of what is saved: no temporary one.
pub(crate) enum SavedName {}

const NAME_PATTERN: &str = r"^\.?[A-Za-z0-9][A-Za-z0-9._-]{0,61}$";
const SAVED_NAME_PATTERN: &str = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,61}$";
const NEW_NAME_PATTERN: &str = r"^(\.|\.?[A-Za-z0-9][A-Za-z0-9._-]{0,61})$";

fn double_dot() -> Value {
    json!({"type": "string", "pattern": r"\.\."})
}

/// What no text for a model or a linter holds.
pub(crate) fn nul() -> Value {
    json!({"type": "string", "pattern": r"\u0000"})
}

/// Without control characters, and not empty.
pub(crate) const PATH_PATTERN: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

/// White space alone.
pub(crate) fn blank() -> Value {
    json!({"type": "string", "pattern": r"^\s+$"})
}

/// A condition: where `when` holds, so must `then`.
pub(crate) fn rule(when: Value, then: Value) -> Value {
    json!({"if": when, "then": then})
}

/// An object in which the member `name` is one of these words.
pub(crate) fn says(name: &str, words: &[&str]) -> Value {
    json!({"properties": {name: {"enum": words}}, "required": [name]})
}

/// An object with a text in each of these members.
pub(crate) fn has(names: &[&str]) -> Value {
    members(names, "string", true)
}

/// An object without these members; null is none.
pub(crate) fn lacks(names: &[&str]) -> Value {
    members(names, "null", false)
}

fn members(names: &[&str], kind: &str, required: bool) -> Value {
    let properties = names.iter().map(|name| ((*name).to_owned(), json!({"type": kind})));
    let properties: serde_json::Map<_, _> = properties.collect();
    match required {
        true => json!({"properties": properties, "required": names}),
        false => json!({"properties": properties}),
    }
}

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "string", "pattern": NAME_PATTERN, "not": double_dot()})
    }
}

impl JsonSchema for Cursors {
    fn schema_name() -> Cow<'static, str> {
        "Cursors".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "object",
            "propertyNames": {"pattern": NAME_PATTERN, "not": double_dot()},
            "maxProperties": 1000,
            "additionalProperties": {"type": "integer", "minimum": -1, "maximum": i64::MAX - 1},
        })
    }
}

impl JsonSchema for SavedName {
    fn schema_name() -> Cow<'static, str> {
        "SavedName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "string", "pattern": SAVED_NAME_PATTERN, "not": double_dot()})
    }
}

impl JsonSchema for NewName {
    fn schema_name() -> Cow<'static, str> {
        "NewName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "string", "pattern": NEW_NAME_PATTERN, "not": double_dot()})
    }
}
