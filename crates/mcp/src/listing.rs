//! What tools a server has, as it said itself and as they are used here.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use globset::{Glob, GlobSet, GlobSetBuilder};
use jsonschema::Validator;
use nexus_core::mcp::{Asks, Pins, ServerEntry, ServerTool, ToolChange, ToolState};
use nexus_core::provider::ToolSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::pins::{self, Pinned};
use crate::{clean, names, schema};

/// A tool as a server lists it: what is kept of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Map<String, Value>,
    pub output_schema: Option<Map<String, Value>>,
    /// A stranger's word, which decides nothing.
    pub annotations: Option<Value>,
}

impl From<rmcp::model::Tool> for Said {
    fn from(tool: rmcp::model::Tool) -> Self {
        Self {
            name: tool.name.into_owned(),
            title: tool.title,
            description: tool.description.unwrap_or_default().into_owned(),
            input_schema: (*tool.input_schema).clone(),
            output_schema: tool.output_schema.map(|schema| (*schema).clone()),
            annotations: tool.annotations.and_then(|it| serde_json::to_value(it).ok()),
        }
    }
}

/// The tools of a server.
#[derive(Default)]
pub struct Listing {
    pub said: Vec<Said>,
    pub pinned: Pinned,
    pub tools: Vec<Arc<Listed>>,
    pub about: About,
}

/// What a server is beside its tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    #[serde(default, rename = "resources")]
    pub has_resources: bool,
    /// What models are to know of it, as it says itself.
    #[serde(default)]
    pub instructions: Option<String>,
    /// The same as somebody agreed to it.
    #[serde(default)]
    pub agreed: Option<String>,
}

/// One of them, as it is used here.
pub struct Listed {
    pub spec: ToolSpec,
    /// As the server calls it.
    pub tool: String,
    pub state: ToolState,
    pub pin: String,
    input: Schema,
    output: Option<Schema>,
}

/// A schema, and what checks values against it, made when it is first needed.
struct Schema {
    value: Value,
    validator: OnceLock<Result<Validator, String>>,
}

impl Listing {
    /// The tools that a server said it has, each once. Without pins, those that it has now are what they are.
    pub fn new(entry: &ServerEntry, said: Vec<Said>, pinned: Option<Pinned>) -> Self {
        let chosen = Chosen::of(entry);
        let mut known = BTreeSet::new();
        let said: Vec<Said> =
            said.into_iter().filter(|tool| known.insert(tool.name.clone())).collect();
        let pinned = match (pinned, entry.pins) {
            (Some(pinned), Pins::Strict) => pinned,
            (None, _) | (_, Pins::Off) => Pinned::new(said.iter().cloned()),
        };
        let listed = |tool: &Said| {
            let state = match (chosen.has(&tool.name), pinned.holds(tool)) {
                (false, _) => ToolState::Disabled,
                (true, false) => ToolState::Quarantined,
                (true, true) => ToolState::Usable,
            };
            Arc::new(Listed::new(&entry.name, tool, state))
        };
        let tools = said.iter().map(listed).collect();
        Self { said, pinned, tools, about: About::default() }
    }

    pub fn with(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// Those that the configuration leaves in.
    pub fn chosen(&self) -> impl Iterator<Item = &Arc<Listed>> {
        self.tools.iter().filter(|tool| tool.state != ToolState::Disabled)
    }

    /// What is another than when it was pinned.
    pub fn changes(&self) -> Vec<ToolChange> {
        let words = pins::words_change(&self.about);
        words.into_iter().chain(self.said.iter().flat_map(|it| self.pinned.changes(it))).collect()
    }

    pub fn standing(&self) -> Vec<ServerTool> {
        let entry = |tool: &Arc<Listed>| ServerTool {
            name: tool.spec.name.clone(),
            tool: tool.tool.clone(),
            state: tool.state,
        };
        self.tools.iter().map(entry).collect()
    }
}

impl Listed {
    fn new(server: &str, said: &Said, state: ToolState) -> Self {
        let mut input = said.input_schema.clone();
        // Services want to be told what it always is.
        input.entry("type").or_insert_with(|| json!("object"));
        let input = Value::Object(input);
        Self {
            spec: ToolSpec {
                name: names::name(server, &said.name),
                description: clean::description(server, &said.description),
                parameters: input.to_string().into(),
            },
            tool: said.name.clone(),
            state,
            pin: pins::pin(said),
            input: Schema::new(input),
            output: said.output_schema.clone().map(|schema| Schema::new(Value::Object(schema))),
        }
    }

    /// Makes what values are checked with. It can take long, and is asked for again at no cost.
    pub fn prepare(&self) {
        // Who needs one that is of no use is told why.
        for schema in [Some(&self.input), self.output.as_ref()].into_iter().flatten() {
            let _ = schema.validator();
        }
    }

    pub fn is_prepared(&self) -> bool {
        let is_ready = |schema: &Schema| schema.validator.get().is_some();
        is_ready(&self.input) && self.output.as_ref().is_none_or(is_ready)
    }

    /// The arguments of a call as they are sent, or what is wrong with them.
    pub fn fitting<'a>(&self, arguments: &'a Value) -> Result<Cow<'a, Value>, String> {
        schema::fitting(self.input.validator()?, arguments)
    }

    /// What is wrong with a structured result.
    pub fn check_output(&self, structured: &Value) -> Result<(), String> {
        self.output.as_ref().map_or(Ok(()), |schema| schema::check(schema.validator()?, structured))
    }
}

impl Schema {
    fn new(value: Value) -> Self {
        Self { value, validator: OnceLock::new() }
    }

    fn validator(&self) -> Result<&Validator, String> {
        self.validator.get_or_init(|| schema::compile(&self.value)).as_ref().map_err(String::clone)
    }
}

/// Which tools the configuration leaves in.
struct Chosen {
    /// `None` for all.
    allow: Option<GlobSet>,
    deny: GlobSet,
}

impl Chosen {
    fn of(entry: &ServerEntry) -> Self {
        let allow = (!entry.allow.is_empty()).then(|| patterns(&entry.allow));
        Self { allow, deny: patterns(&entry.deny) }
    }

    fn has(&self, tool: &str) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.is_match(tool)) && !self.deny.is_match(tool)
    }
}

/// When calls of a tool need leave. Of several patterns that fit it, the strictest counts.
pub fn asks(entry: &ServerEntry, tool: &str) -> Asks {
    let fits = |pattern: &String| patterns(std::slice::from_ref(pattern)).is_match(tool);
    let by = entry.asks_by.iter().filter(|(pattern, _)| fits(pattern));
    by.map(|(_, asks)| *asks).max().unwrap_or(entry.asks)
}

/// The configuration has looked at each; one that makes no sense matches nothing.
fn patterns(written: &[String]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for glob in written.iter().filter_map(|pattern| Glob::new(pattern).ok()) {
        set.add(glob);
    }
    set.build().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use nexus_core::mcp::SERVER_TOOLS_MAX;

    use super::*;
    use crate::server::tests::entry;

    fn said(name: &str) -> Said {
        Said {
            name: name.into(),
            title: None,
            description: "d".into(),
            input_schema: Map::from_iter([("required".into(), json!(["a"]))]),
            output_schema: None,
            annotations: None,
        }
    }

    #[test]
    fn of_several_patterns_the_strictest_counts() {
        let by = [("get_*", Asks::Never), ("*_all", Asks::Always), ("*", Asks::Once)];
        let with = |by: &[(&str, Asks)], tool: &str| {
            let asks_by = by.iter().map(|(pattern, asks)| ((*pattern).to_owned(), *asks)).collect();
            asks(&ServerEntry { asks: Asks::Once, asks_by, ..entry("s") }, tool)
        };
        assert_eq!(with(&by, "get_one"), Asks::Once);
        assert_eq!(with(&by, "get_all"), Asks::Always);
        let told = ["get_one", "put_all", "put"].map(|tool| with(&by[..2], tool));
        assert_eq!(told, [Asks::Never, Asks::Always, Asks::Once]);
    }

    #[test]
    fn patterns_choose_and_deny_wins() {
        let mut entry = entry("s");
        entry.allow = vec!["read_*".into(), "write".into()];
        entry.deny = vec!["*secret*".into()];
        let said = ["read_x", "write", "write_x", "read_secret"].map(said).to_vec();
        let listing = Listing::new(&entry, said, None);
        let usable: Vec<_> = listing.chosen().map(|tool| tool.tool.as_str()).collect();
        assert_eq!(usable, ["read_x", "write"]);
        assert_eq!(listing.standing().len(), 4);
    }

    #[test]
    fn a_tool_that_is_listed_twice_is_there_once() {
        let listing = Listing::new(&entry("s"), vec![said("a"), said("a"), said("b")], None);
        assert_eq!(listing.tools.len(), 2);
        let parameters: Value = serde_json::from_str(&listing.tools[0].spec.parameters).unwrap();
        assert_eq!(parameters, json!({"required": ["a"], "type": "object"}));
        assert!(listing.tools[0].fitting(&json!({})).is_err());
        assert!(listing.tools[0].fitting(&json!({"a": 1})).is_ok());
    }

    #[test]
    fn many_tools_are_made_in_no_time() {
        let said = (0..SERVER_TOOLS_MAX).map(|number| said(&format!("t{number}"))).collect();
        assert_eq!(Listing::new(&entry("s"), said, None).chosen().count(), SERVER_TOOLS_MAX);
    }

    #[test]
    fn what_is_new_or_another_waits_unless_nobody_wants_that() {
        let pinned = || Some(Pinned::new([said("a"), said("gone")]));
        let mut other = said("a");
        other.description = "something else".into();
        let states = |entry: &ServerEntry, said: Vec<Said>| -> Vec<ToolState> {
            Listing::new(entry, said, pinned()).tools.iter().map(|tool| tool.state).collect()
        };
        let mut entry = entry("s");
        let (usable, waits) = (ToolState::Usable, ToolState::Quarantined);
        assert_eq!(states(&entry, vec![said("a"), said("b")]), [usable, waits]);
        assert_eq!(states(&entry, vec![other.clone()]), [waits]);
        entry.pins = Pins::Off;
        assert_eq!(states(&entry, vec![other, said("b")]), [usable, usable]);
    }
}
