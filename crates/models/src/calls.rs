//! Tool calls, gathered from the fragments in which models send them.

use std::hash::{BuildHasher, RandomState};

use nexus_core::message::ToolCall;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::bounds::json_values;

/// Values that arguments may hold: files and commands are one each. What has more is left as the text it is, which no
/// tool takes.
const ARGUMENT_VALUES_MAX: usize = 64 * 1024;

/// The calls of one answer so far.
#[derive(Default)]
pub(super) struct Calls {
    begun: Vec<Partial>,
    /// What they take.
    bytes: usize,
}

struct Partial {
    index: usize,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// A fragment of the call at `index`. Services leave out what they have already said, and some leave out or
    /// repeat the index: a fragment with another id begins another call.
    pub fn add(
        &mut self,
        index: Option<usize>,
        id: Option<String>,
        name: Option<String>,
        arguments: &str,
    ) {
        let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
        let begins = !id.is_empty() || !name.is_empty();
        self.bytes += id.len() + name.len() + arguments.len();
        let known = match index {
            Some(index) => self.begun.iter_mut().rev().find(|call| call.index == index),
            None if begins => None,
            None => self.begun.last_mut(),
        };
        match known {
            Some(call) if id.is_empty() || call.id.is_empty() || call.id == id => {
                if call.id.is_empty() {
                    call.id = id;
                }
                if call.name.is_empty() {
                    call.name = name;
                }
                call.arguments.push_str(arguments);
            }
            _ => self.begun.push(Partial {
                index: index.unwrap_or(self.begun.len()),
                id,
                name,
                arguments: arguments.to_owned(),
            }),
        }
    }

    /// A fragment of the call at `index`, where that is a call at all.
    pub fn append(&mut self, index: usize, arguments: &str) {
        if let Some(call) = self.begun.iter_mut().find(|call| call.index == index) {
            call.arguments.push_str(arguments);
            self.bytes += arguments.len();
        }
    }

    pub fn len(&self) -> usize {
        self.begun.len()
    }

    /// What the calls take, ids and names included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The complete calls, in the order in which they began.
    pub fn take(&mut self) -> impl Iterator<Item = ToolCall> {
        std::mem::take(&mut self.begun).into_iter().map(ToolCall::from)
    }
}

impl From<Partial> for ToolCall {
    fn from(call: Partial) -> Self {
        let id = if call.id.is_empty() { format!("call_{:016x}", random()) } else { call.id };
        // A model that writes broken JSON is told so by the core, which needs to see what it wrote.
        let arguments = match call.arguments.trim() {
            "" => Value::Object(serde_json::Map::new()),
            text if json_values(text.as_bytes()) > ARGUMENT_VALUES_MAX => {
                Value::String(call.arguments)
            }
            text => serde_json::from_str(text).unwrap_or(Value::String(call.arguments)),
        };
        Self { id, name: call.name, arguments }
    }
}

/// Arguments as they are sent back. Services insist on an object, so what a model wrote instead of one is shown to it
/// inside one.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a>(pub &'a Value);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_object() {
            self.0.serialize(serializer)
        } else {
            serializer.collect_map([("invalid_arguments", self.0)])
        }
    }
}

/// Random enough to tell calls and waiting clients apart; std seeds each hasher anew.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Fragment<'a> = (Option<usize>, &'a str, &'a str, &'a str);

    #[track_caller]
    fn check(fragments: &[Fragment], expected: &[(&str, &str, Value)]) {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut calls = Calls::default();
        for (index, id, name, arguments) in fragments {
            calls.add(*index, some(id), some(name), arguments);
        }
        let found: Vec<_> = calls.take().map(|call| (call.id, call.name, call.arguments)).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(id, name, value)| ((*id).to_owned(), (*name).to_owned(), value.clone()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn fragments_are_joined_by_index() {
        check(
            &[
                (Some(0), "a", "read", ""),
                (Some(1), "b", "write", "{\"y"),
                (Some(0), "", "", "{\"x\":"),
                (Some(1), "", "", "\":2}"),
                (Some(0), "", "", "1}"),
            ],
            &[("a", "read", json!({"x": 1})), ("b", "write", json!({"y": 2}))],
        );
    }

    #[test]
    fn an_index_that_is_missing_or_repeated_is_borne() {
        check(
            &[(None, "a", "f", "{}"), (None, "b", "g", "{"), (None, "", "", "}")],
            &[("a", "f", json!({})), ("b", "g", json!({}))],
        );
        check(
            &[(Some(0), "a", "f", "{}"), (Some(0), "b", "f", "{}")],
            &[("a", "f", json!({})), ("b", "f", json!({}))],
        );
        check(&[(Some(0), "a", "f", "{"), (Some(0), "a", "f", "}")], &[("a", "f", json!({}))]);
    }

    #[test]
    fn arguments_are_json_or_the_words_themselves() {
        check(&[(Some(0), "a", "f", "")], &[("a", "f", json!({}))]);
        check(&[(Some(0), "a", "f", "{\"x\":")], &[("a", "f", json!("{\"x\":"))]);
        let sent = |value: &Value| serde_json::to_value(Arguments(value)).unwrap();
        assert_eq!(sent(&json!({"x": 1})), json!({"x": 1}));
        assert_eq!(sent(&json!("{\"x\":")), json!({"invalid_arguments": "{\"x\":"}));
    }

    #[test]
    fn how_many_values_arguments_may_hold() {
        let of = |values: usize| format!("[{}]", vec!["0"; values - 1].join(","));
        let parsed = |text: &str| {
            let mut calls = Calls::default();
            calls.add(Some(0), None, Some("f".to_owned()), text);
            calls.take().next().unwrap().arguments
        };
        assert!(parsed(&of(ARGUMENT_VALUES_MAX)).is_array());
        let over = of(ARGUMENT_VALUES_MAX + 1);
        assert!(parsed(&over) == json!(over));
        // A file is one value, however many commas it has.
        assert!(parsed(&json!({"content": ",".repeat(1 << 20)}).to_string()).is_object());
    }

    #[test]
    fn a_missing_id_is_made_up() {
        let mut calls = Calls::default();
        calls.add(Some(0), None, Some("f".to_owned()), "{}");
        calls.add(Some(1), None, Some("f".to_owned()), "{}");
        let ids: Vec<_> = calls.take().map(|call| call.id).collect();
        assert!(ids[0].starts_with("call_") && ids[0] != ids[1], "{ids:?}");
    }
}
