//! Looks over a JSON Schema before a model is asked to keep to it.
//!
//! Which parts of JSON Schema a model can be held to is the provider's affair. What no reader of schemas could make
//! sense of is refused here, by the place it stands at, before anything is paid for.

use std::sync::Arc;

use nexus_protocol::RpcError;
use serde_json::{Map, Value};

/// A schema goes to the model with every step of the turn.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// The parameter.
const PARAMETER: &str = "/response_schema";

const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "integer", "string"];

/// Keywords whose value is one schema, a list of them, or schemas by name.
const ONE: [&str; 5] = ["items", "additionalProperties", "not", "contains", "propertyNames"];
const MANY: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

pub fn checked(schema: Map<String, Value>) -> Result<Arc<Value>, RpcError> {
    let schema = Value::Object(schema);
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        let reason = format!("response_schema is larger than {SCHEMA_BYTES_MAX} bytes");
        return Err(RpcError::invalid_param(PARAMETER, reason));
    }
    // The depth of a message is bounded where it is parsed, and so is this.
    look(&schema, PARAMETER)?;
    Ok(Arc::new(schema))
}

fn look(schema: &Value, path: &str) -> Result<(), RpcError> {
    let keywords = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(keywords) => keywords,
        _ => return refuse(path, "a schema is an object, true or false"),
    };
    for (keyword, value) in keywords {
        let path = format!("{path}/{}", keyword.replace('~', "~0").replace('/', "~1"));
        let name = keyword.as_str();
        if name == "type" {
            let known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
            let sound = match value {
                Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(known),
                kind => known(kind),
            };
            if !sound {
                return refuse(&path, &format!("a type is one of {}", TYPES.join(", ")));
            }
        } else if ONE.contains(&name) {
            look(value, &path)?;
        } else if MANY.contains(&name) {
            let Some(list) = value.as_array().filter(|list| !list.is_empty()) else {
                return refuse(&path, "is a list of schemas");
            };
            for (at, schema) in list.iter().enumerate() {
                look(schema, &format!("{path}/{at}"))?;
            }
        } else if NAMED.contains(&name) {
            let Some(named) = value.as_object() else {
                return refuse(&path, "is an object of schemas");
            };
            for (name, schema) in named {
                let name = name.replace('~', "~0").replace('/', "~1");
                look(schema, &format!("{path}/{name}"))?;
            }
        } else if name == "enum" && value.as_array().is_none_or(Vec::is_empty) {
            return refuse(&path, "is a list of values");
        } else if name == "required" {
            let names = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
            if !names {
                return refuse(&path, "is a list of names");
            }
        }
    }
    Ok(())
}

fn refuse(path: &str, reason: &str) -> Result<(), RpcError> {
    Err(RpcError::invalid_param(path, format!("response_schema: {path}: {reason}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, refused_at: Option<&str>) {
        let Value::Object(keywords) = schema else { panic!("not an object") };
        let path = match checked(keywords) {
            Ok(_) => None,
            Err(error) => error.data.map(|data| data["path"].as_str().unwrap().to_string()),
        };
        assert_eq!(path.as_deref(), refused_at);
    }

    #[test]
    fn what_can_be_read_passes() {
        check(json!({}), None);
        check(json!({"type": ["string", "null"]}), None);
        check(json!({"$ref": "#/$defs/a", "$defs": {"a": {"enum": [1, null]}}}), None);
        check(json!({"type": "object", "properties": {"a/b": true}, "required": ["a/b"]}), None);
        check(json!({"anyOf": [{"const": 1}, false], "x-own": 7}), None);
    }

    #[test]
    fn what_cannot_is_named_by_its_place() {
        check(json!({"type": "text"}), Some("/response_schema/type"));
        check(json!({"type": []}), Some("/response_schema/type"));
        check(json!({"items": 1}), Some("/response_schema/items"));
        check(json!({"anyOf": []}), Some("/response_schema/anyOf"));
        check(json!({"allOf": [{}, 1]}), Some("/response_schema/allOf/1"));
        check(json!({"properties": []}), Some("/response_schema/properties"));
        let deep = json!({"properties": {"a/b": {"type": "x"}}});
        check(deep, Some("/response_schema/properties/a~1b/type"));
        check(json!({"enum": []}), Some("/response_schema/enum"));
        check(json!({"required": [1]}), Some("/response_schema/required"));
    }

    #[test]
    fn a_schema_may_be_64_kib() {
        let frame = r#"{"title":""}"#.len();
        let sized = |bytes: usize| json!({"title": "x".repeat(bytes - frame)});
        check(sized(SCHEMA_BYTES_MAX), None);
        check(sized(SCHEMA_BYTES_MAX + 1), Some("/response_schema"));
    }
}
