//! The arguments of a call, held against the schema that a server gave. Its schema is a stranger's: no reference leaves it,
//! and nothing in it takes long.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Of one schema. The longest that servers have are some tens of kilobytes.
const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Nesting of one schema. Each level costs the reader one of its own.
const SCHEMA_DEPTH_MAX: usize = 64;

/// Different patterns of one schema.
const PATTERNS_MAX: usize = 128;

/// What the patterns of one schema may take together once they are read: a few characters of a pattern can be megabytes
/// of automaton. A name of 64 letters, of any alphabet, takes one.
const PATTERNS_BYTES_MAX: usize = 16 << 20;

/// Faults of one call that are named.
const FAULTS_MAX: usize = 3;

/// What checks values against a schema; or why the schema is of no use.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    build(schema, false)
}

/// The same of a form that a person fills in, who is told at once what is no date, address or mail.
pub fn compile_form(schema: &Value) -> Result<Validator, String> {
    build(schema, true)
}

fn build(schema: &Value, with_formats: bool) -> Result<Validator, String> {
    if depth(schema, 0) > SCHEMA_DEPTH_MAX {
        return Err(format!("its schema is nested more than {SCHEMA_DEPTH_MAX} deep"));
    }
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(format!("its schema is longer than {SCHEMA_BYTES_MAX} bytes"));
    }
    let mut patterns = BTreeSet::new();
    gather_patterns(schema, &mut patterns);
    if patterns.len() > PATTERNS_MAX {
        return Err(format!("its schema has more than {PATTERNS_MAX} patterns"));
    }
    let share = PATTERNS_BYTES_MAX / patterns.len().max(1);
    // Without backtracking, so that no pattern takes for ever.
    let patterns = PatternOptions::regex().size_limit(share).dfa_size_limit(share);
    let options =
        jsonschema::options().with_pattern_options(patterns).should_validate_formats(with_formats);
    options.build(schema).map_err(|error| format!("its schema cannot be read: {error}"))
}

/// What is wrong with a value, in a sentence.
pub fn check(validator: &Validator, value: &Value) -> Result<(), String> {
    let faults: Vec<String> = validator
        .iter_errors(value)
        .take(FAULTS_MAX)
        .map(|fault| match fault.instance_path().as_str() {
            "" => fault.to_string(),
            at => format!("{at}: {fault}"),
        })
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// Arguments as they are sent. Models say null where they leave something out, which few schemas take for that.
pub fn fitting<'a>(validator: &Validator, arguments: &'a Value) -> Result<Cow<'a, Value>, String> {
    let Err(fault) = check(validator, arguments) else { return Ok(Cow::Borrowed(arguments)) };
    let mut said = arguments.clone();
    if let Some(members) = said.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    match check(validator, &said) {
        Ok(()) => Ok(Cow::Owned(said)),
        Err(_) => Err(fault),
    }
}

/// Whatever may be read as a pattern, wherever in the schema it stands.
fn gather_patterns<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|it| gather_patterns(it, found)),
        Value::Object(members) => {
            found.extend(members.get("pattern").and_then(Value::as_str));
            let by_name = members.get("patternProperties").and_then(Value::as_object);
            found.extend(by_name.into_iter().flat_map(|it| it.keys().map(String::as_str)));
            members.values().for_each(|it| gather_patterns(it, found));
        }
        _ => {}
    }
}

fn depth(value: &Value, above: usize) -> usize {
    if above > SCHEMA_DEPTH_MAX {
        return above;
    }
    let inner: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => return above,
    };
    inner.map(|it| depth(it, above + 1)).max().unwrap_or(above)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_checked_and_faults_named() {
        let schema = json!({"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string"}, "depth": {"type": "integer", "minimum": 1}}});
        let validator = compile(&schema).unwrap();
        assert_eq!(check(&validator, &json!({"path": "x", "other": 1})), Ok(()));
        let missing = check(&validator, &json!({})).unwrap_err();
        assert!(missing.contains("path"), "{missing}");
        let wrong = check(&validator, &json!({"path": "x", "depth": 0})).unwrap_err();
        assert!(wrong.starts_with("/depth: "), "{wrong}");
        let sent = |said: Value| fitting(&validator, &said).map(Cow::into_owned);
        assert_eq!(sent(json!({"path": "x", "depth": null})), Ok(json!({"path": "x"})));
        assert_eq!(
            sent(json!({"path": "x", "other": null})),
            Ok(json!({"path": "x", "other": null}))
        );
        assert!(sent(json!({"path": null})).unwrap_err().starts_with("/path: "));
    }

    #[test]
    fn older_drafts_are_read_as_they_say() {
        let draft = "http://json-schema.org/draft-04/schema#";
        let schema = json!({"$schema": draft, "minimum": 1, "exclusiveMinimum": true});
        let validator = compile(&schema).unwrap();
        assert!(check(&validator, &json!(1)).is_err());
        assert!(check(&validator, &json!(2)).is_ok());
    }

    #[test]
    fn no_reference_leaves_the_document() {
        for to in ["https://example.com/schema.json", "file:///etc/passwd", "other.json"] {
            assert!(compile(&json!({"$ref": to})).is_err(), "{to}");
        }
        let inside = json!({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"});
        assert!(check(&compile(&inside).unwrap(), &json!(1)).is_err());
    }

    #[test]
    fn a_schema_that_costs_too_much_is_refused() {
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"not": inner}));
        assert!(compile(&deep(SCHEMA_DEPTH_MAX)).is_ok());
        assert!(compile(&deep(SCHEMA_DEPTH_MAX + 1)).is_err());
        let long = |bytes: usize| json!({"title": "a".repeat(bytes)});
        assert!(compile(&long(SCHEMA_BYTES_MAX - 12)).is_ok());
        assert!(compile(&long(SCHEMA_BYTES_MAX)).is_err());
        let endless = compile(&json!({"pattern": "^(a+)+$"})).unwrap();
        assert!(check(&endless, &json!(format!("{}b", "a".repeat(5_000)))).is_err());
    }

    #[test]
    fn patterns_are_so_many_and_together_so_large() {
        let of = |count: usize, each: &str| {
            let half: Vec<Value> =
                (1..count).map(|number| json!({"pattern": format!("{each}{number}")})).collect();
            json!({"patternProperties": {each: {}}, "allOf": half})
        };
        assert!(compile(&of(PATTERNS_MAX, "^a$")).is_ok());
        assert!(compile(&of(PATTERNS_MAX + 1, "^a$")).unwrap_err().contains("128 patterns"));
        // The same one again costs nothing.
        let same = vec![json!({"pattern": "^a$"}); PATTERNS_MAX + 1];
        assert!(compile(&json!({"allOf": same})).is_ok());
        let name = r"^\p{L}{1,64}$";
        assert!(compile(&of(2, name)).is_ok());
        assert!(compile(&of(PATTERNS_MAX, name)).is_err());
        assert!(compile(&json!({"pattern": r"^\p{L}{5000}$"})).is_err());
        // What is no pattern is not read as one.
        let plain = json!({"properties": {"pattern": {"type": "string"}}});
        assert!(check(&compile(&plain).unwrap(), &json!({"pattern": "("})).is_ok());
    }
}
