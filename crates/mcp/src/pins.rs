//! What a server's tools were when they were first listed, or last looked at. A tool that says something else of itself, or
//! that was not there, is not what somebody agreed to: it is shown, and waits.

use std::collections::BTreeMap;

use nexus_core::mcp::{Accept, ToolChange};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::clean;
use crate::listing::{About, Said};

/// What a server says of itself as a whole, among the names of what it says of its tools.
pub const INSTRUCTIONS: &str = "instructions";

/// Of one side of a change that is shown.
const SHOWN_BYTES_MAX: usize = 4_096;

/// By the names that the server has for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pinned(BTreeMap<String, Said>);

impl Pinned {
    pub fn new(tools: impl IntoIterator<Item = Said>) -> Self {
        Self(tools.into_iter().map(|tool| (tool.name.clone(), tool)).collect())
    }

    pub fn tools(&self) -> Vec<&Said> {
        self.0.values().collect()
    }

    /// Whether the tool is what it was.
    pub fn holds(&self, tool: &Said) -> bool {
        self.0.get(&tool.name) == Some(tool)
    }

    /// What a tool says otherwise now.
    pub fn changes(&self, tool: &Said) -> Vec<ToolChange> {
        let change = |field: &str, before: String, after: String| ToolChange {
            tool: tool.name.clone(),
            field: field.into(),
            before: shown(&before),
            after: shown(&after),
        };
        let Some(before) = self.0.get(&tool.name) else {
            return vec![change("tool", String::new(), tool.description.clone())];
        };
        let sides = fields(before).into_iter().zip(fields(tool));
        let other = sides.filter(|((_, before), (_, after))| before != after);
        other.map(|((field, before), (_, after))| change(field, before, after)).collect()
    }

    /// Takes tools of `listed` as they are. Which of them it did not hold.
    pub fn accept(&mut self, listed: &[Said], accept: &Accept) -> Vec<String> {
        let meant = |tool: &&Said| match accept {
            Accept::All => true,
            Accept::Tools(names) => names.contains(&tool.name),
        };
        let new: Vec<Said> =
            listed.iter().filter(meant).filter(|tool| !self.holds(tool)).cloned().collect();
        let names = new.iter().map(|tool| tool.name.clone()).collect();
        self.0.extend(new.into_iter().map(|tool| (tool.name.clone(), tool)));
        names
    }
}

/// What a server says otherwise of itself than somebody agreed to.
pub fn words_change(about: &About) -> Option<ToolChange> {
    let text = |words: &Option<String>| shown(words.as_deref().unwrap_or_default());
    let change = || ToolChange {
        tool: String::new(),
        field: INSTRUCTIONS.into(),
        before: text(&about.agreed),
        after: text(&about.instructions),
    };
    (about.instructions != about.agreed).then(change)
}

/// What tells a tool from what it may become: a digest of all that its server says of it, in the form of RFC 8785.
pub fn pin(tool: &Said) -> String {
    let text = serde_json_canonicalizer::to_vec(tool).unwrap_or_default();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fields(tool: &Said) -> [(&'static str, String); 5] {
    let json = |value: &Option<Value>| value.as_ref().map(Value::to_string).unwrap_or_default();
    let object =
        |members: &serde_json::Map<String, Value>| Value::Object(members.clone()).to_string();
    [
        ("title", tool.title.clone().unwrap_or_default()),
        ("description", tool.description.clone()),
        ("input_schema", object(&tool.input_schema)),
        ("output_schema", tool.output_schema.as_ref().map(object).unwrap_or_default()),
        ("annotations", json(&tool.annotations)),
    ]
}

/// What nobody sees is spelt out here: it may be all that changed.
fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .map(|c| if clean::is_seen(c) { c.to_string() } else { c.escape_unicode().to_string() })
        .collect();
    if shown.len() > SHOWN_BYTES_MAX {
        shown.truncate(shown.floor_char_boundary(SHOWN_BYTES_MAX));
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, description: &str) -> Said {
        Said {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema: Default::default(),
            output_schema: None,
            annotations: None,
        }
    }

    #[test]
    fn what_changed_is_named_and_hidden_characters_are_spelt_out() {
        let pinned = Pinned::new([said("a", "reads"), said("b", "writes")]);
        assert!(
            pinned.holds(&said("a", "reads")) && pinned.changes(&said("a", "reads")).is_empty()
        );
        let now = said("a", "reads\u{200b}");
        assert!(!pinned.holds(&now));
        let change = |tool: &str, field: &str, before: &str, after: &str| ToolChange {
            tool: tool.into(),
            field: field.into(),
            before: before.into(),
            after: after.into(),
        };
        assert_eq!(pinned.changes(&now), [change("a", "description", "reads", "reads\\u{200b}")]);
        assert_eq!(pinned.changes(&said("c", "new")), [change("c", "tool", "", "new")]);
        let mut titled = said("b", "writes");
        titled.title = Some("B".into());
        titled.annotations = Some(serde_json::json!({"readOnlyHint": true}));
        let fields: Vec<_> = pinned.changes(&titled).into_iter().map(|it| it.field).collect();
        assert_eq!(fields, ["title", "annotations"]);
        assert_ne!(pin(&titled), pin(&said("b", "writes")));
    }

    #[test]
    fn what_is_accepted_holds_from_then_on() {
        let listed = [said("a", "1"), said("b", "2"), said("c", "3")];
        let mut pinned = Pinned::new([said("a", "1"), said("b", "old")]);
        let accept = Accept::Tools(vec!["b".into(), "nope".into()]);
        assert_eq!(pinned.accept(&listed, &accept), ["b"]);
        assert!(pinned.holds(&listed[1]) && !pinned.holds(&listed[2]));
        assert_eq!(pinned.accept(&listed, &Accept::All), ["c"]);
        assert!(listed.iter().all(|tool| pinned.holds(tool)));
    }
}
