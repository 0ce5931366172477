//! The context that all planners and executors share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::method;
use crate::params::NoParams;
use crate::schema::{PATH_PATTERN, rule, says};

method! {
    /// Changes the context that planners and executors are given. It is on disk when this answers. The administrator's
    /// alone.
    UpdateContext = "update_context", Server Control, UpdateContextParams => UpdateContextResult
}

method! {
    /// Returns the context that planners and executors are given, all of one version. The administrator's alone.
    GetContextState = "get_context_state", Server Read, NoParams => GetContextStateResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("allOf" = data_by_type()))]
pub struct UpdateContextParams {
    /// `add` puts an entry, in place of one with the same key; `modify` needs that one to be there, and is a merge patch
    /// (RFC 7396) of state; `remove` changes nothing where there is none.
    pub action: ContextAction,
    pub context_type: ContextType,
    /// Named by `path` (a file, relative to the directory in which tasks work), `name` (a dependency) or `key` (state,
    /// with its `value`). What else a file or a dependency has is kept with it. At most 65,536 bytes an entry, 1,000
    /// entries and 1,048,576 bytes in all, 32 levels deep.
    pub data: Map<String, Value>,
    /// Changes nothing and is refused unless the context has this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<u64>,
}

/// What names an entry of each type, and what an entry of state has beside it.
fn data_by_type() -> Value {
    let named = |name: &str, text: Value| json!({"properties": {"data": {"properties": {name: text}, "required": [name]}}});
    let key = json!({
        "type": "string", "maxLength": 4_096, "pattern": PATH_PATTERN,
        "not": {"type": "string", "pattern": r"^\s*$"},
    });
    // A place outside of the directory, or the directory itself.
    let outside = json!({"type": "string", "pattern": r"^\s*$|^/|(^|/)\.\.(/|$)|^(\./+)*\.?$"});
    let path =
        json!({"type": "string", "maxLength": 4_096, "pattern": PATH_PATTERN, "not": outside});
    let kept =
        json!({"allOf": [says("context_type", &["state"]), says("action", &["add", "modify"])]});
    let value = json!({"properties": {"data": {
        "properties": {"key": true, "value": true}, "required": ["value"], "additionalProperties": false,
    }}});
    json!([
        rule(says("context_type", &["file"]), named("path", path)),
        rule(says("context_type", &["dependency"]), named("name", key.clone())),
        rule(says("context_type", &["state"]), named("key", key)),
        rule(kept, value),
    ])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContextAction {
    Add,
    Remove,
    Modify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContextType {
    File,
    Dependency,
    State,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpdateContextResult {
    /// `success`.
    pub status: String,
    /// False when the context was so already.
    pub changed: bool,
    /// Grows by one with each change, and never otherwise.
    pub context_version: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetContextStateResult {
    pub context_version: u64,
    /// As they were given, by `path`.
    pub files: Vec<Map<String, Value>>,
    /// As they were given, by `name`.
    pub dependencies: Vec<Map<String, Value>>,
    /// Values by their keys.
    pub state: Map<String, Value>,
}
