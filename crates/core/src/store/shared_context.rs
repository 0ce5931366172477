//! The context that all planners and executors share: files, dependencies and state, of one version.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;

use super::StoreError;

/// Enough for a large project's notable files; a list of all of them belongs on the disk.
pub const ENTRIES_MAX: u64 = 1_000;

/// Of one entry, its key and its JSON together. A context is facts, and a file's text belongs into the file.
pub const ENTRY_BYTES_MAX: u64 = 64 << 10;

/// Of all entries together: `get_context_state` answers with all of them at once.
pub const CONTEXT_BYTES_MAX: u64 = 1 << 20;

/// Values within values. What is written here is read and sent again many times, by others.
pub const DEPTH_MAX: usize = 32;

#[async_trait]
pub trait ContextStore: Send + Sync {
    /// All of it, as it is at one moment.
    async fn shared_context(&self) -> Result<SharedContext, StoreError>;

    /// Carries out a change as [`ContextChange::effect`] decides it. No other change comes between the look at what is
    /// there and the write, whichever process asks for it.
    async fn change_context(&self, change: ContextChange) -> Result<ContextOutcome, StoreError>;
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedContext {
    /// 0 before the first change; grows by one with each, and never otherwise.
    pub version: u64,
    pub entries: BTreeMap<(ContextKind, String), Value>,
}

/// What an entry is about. Entries of different kinds may have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextKind {
    File,
    Dependency,
    State,
}

impl ContextKind {
    pub const ALL: [Self; 3] = [Self::File, Self::Dependency, Self::State];

    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Dependency => "dependency",
            Self::State => "state",
        }
    }
}

#[derive(Clone, Debug)]
pub struct ContextChange {
    pub kind: ContextKind,
    pub key: String,
    pub action: ContextAction,
    /// Nothing is changed unless this is the version.
    pub if_version: Option<u64>,
}

#[derive(Clone, Debug)]
pub enum ContextAction {
    /// In place of what is there, if anything is.
    Put(Value),
    /// In place of what has to be there.
    Replace(Value),
    /// A merge patch (RFC 7396) of what has to be there.
    Patch(Value),
    Remove,
}

/// What a change is decided by.
#[derive(Clone, Debug)]
pub struct EntryNow {
    pub version: u64,
    /// The entry of this kind and key.
    pub current: Option<Value>,
    /// The other entries, and what they have together, by [`entry_bytes`].
    pub others: u64,
    pub others_bytes: u64,
}

/// What a change does to its entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Nothing,
    Put(Value),
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextOutcome {
    Done { changed: bool, version: u64 },
    Refused(ContextRefusal),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContextRefusal {
    #[error("if_version is {wanted}, but the context has version {current}: nothing was changed")]
    Version { wanted: u64, current: u64 },
    #[error("there is no {} {key:?} to modify", .kind.name())]
    Missing { kind: ContextKind, key: String },
    #[error("the context holds at most {ENTRIES_MAX} entries")]
    Entries,
    #[error("an entry holds at most {ENTRY_BYTES_MAX} bytes, key and JSON together, got: {0}")]
    EntryBytes(u64),
    #[error("the context holds at most {CONTEXT_BYTES_MAX} bytes in all, got: {0}")]
    Bytes(u64),
    #[error("data may be nested at most {DEPTH_MAX} deep")]
    Depth,
}

impl ContextChange {
    /// What becomes of the entry. A change that leaves less than was there is never too large.
    pub fn effect(&self, now: &EntryNow) -> Result<Effect, ContextRefusal> {
        if let Some(wanted) = self.if_version
            && wanted != now.version
        {
            return Err(ContextRefusal::Version { wanted, current: now.version });
        }
        let value = match (&self.action, &now.current) {
            (ContextAction::Remove, None) => return Ok(Effect::Nothing),
            (ContextAction::Remove, Some(_)) => return Ok(Effect::Remove),
            (ContextAction::Put(value), _) | (ContextAction::Replace(value), Some(_)) => {
                value.clone()
            }
            (ContextAction::Patch(patch), Some(current)) => {
                let mut value = current.clone();
                merge(&mut value, patch);
                value
            }
            (ContextAction::Replace(_) | ContextAction::Patch(_), None) => {
                return Err(ContextRefusal::Missing { kind: self.kind, key: self.key.clone() });
            }
        };
        if now.current.as_ref() == Some(&value) {
            return Ok(Effect::Nothing);
        }
        if depth(&value) > DEPTH_MAX {
            return Err(ContextRefusal::Depth);
        }
        if now.current.is_none() && now.others >= ENTRIES_MAX {
            return Err(ContextRefusal::Entries);
        }
        let bytes = entry_bytes(&self.key, &value);
        if bytes > ENTRY_BYTES_MAX {
            return Err(ContextRefusal::EntryBytes(bytes));
        }
        if now.others_bytes + bytes > CONTEXT_BYTES_MAX {
            return Err(ContextRefusal::Bytes(now.others_bytes + bytes));
        }
        Ok(Effect::Put(value))
    }
}

/// What an entry weighs.
pub fn entry_bytes(key: &str, value: &Value) -> u64 {
    (key.len() + value.to_string().len()) as u64
}

/// RFC 7396: members of an object are merged, null removes one, and anything else takes the place of what was there.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(object) = target else { return };
    for (name, member) in members {
        if member.is_null() {
            object.shift_remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), member);
        }
    }
}

/// How many values lie within each other; a string is 1.
fn depth(value: &Value) -> usize {
    let deepest = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => None,
    };
    1 + deepest.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_merges_as_the_rfc_says() {
        // The examples of RFC 7396, appendix A.
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut got = target.clone();
            merge(&mut got, &patch);
            assert_eq!(got, expected, "{target} {patch}");
        }
    }

    fn put(value: Value) -> ContextChange {
        let action = ContextAction::Put(value);
        ContextChange { kind: ContextKind::State, key: "k".into(), action, if_version: None }
    }

    fn standing(others: u64, others_bytes: u64) -> EntryNow {
        EntryNow { version: 7, current: None, others, others_bytes }
    }

    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!(1), |value, _| json!([value]))
    }

    #[test]
    fn bounds_just_under_and_just_over() {
        let text = |bytes: u64| json!("x".repeat(bytes as usize - 3));
        let check = |value: Value, now: &EntryNow, expected: Result<(), ContextRefusal>| {
            assert_eq!(put(value).effect(now).map(drop), expected);
        };
        check(json!(1), &standing(ENTRIES_MAX - 1, 0), Ok(()));
        check(json!(1), &standing(ENTRIES_MAX, 0), Err(ContextRefusal::Entries));
        let there = EntryNow { current: Some(json!(0)), ..standing(ENTRIES_MAX, 0) };
        check(json!(1), &there, Ok(()));
        check(text(ENTRY_BYTES_MAX), &standing(0, 0), Ok(()));
        let over = ENTRY_BYTES_MAX + 1;
        check(text(over), &standing(0, 0), Err(ContextRefusal::EntryBytes(over)));
        check(json!(1), &standing(0, CONTEXT_BYTES_MAX - 2), Ok(()));
        let over = ContextRefusal::Bytes(CONTEXT_BYTES_MAX + 1);
        check(json!(1), &standing(0, CONTEXT_BYTES_MAX - 1), Err(over));
        check(nested(DEPTH_MAX), &standing(0, 0), Ok(()));
        check(nested(DEPTH_MAX + 1), &standing(0, 0), Err(ContextRefusal::Depth));
    }
}
