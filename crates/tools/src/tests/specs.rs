//! What the tools say of themselves, and what they need.

use nexus_core::permission::ToolClass;
use nexus_core::provider::ToolSpec;
use nexus_core::tool::Need;
use serde_json::{Value, json};

use super::super::file_tools;
use super::super::sandbox::Launcher;
use super::SIDE_MAX;

fn parameters(spec: &ToolSpec) -> Value {
    serde_json::from_str(&spec.parameters).unwrap()
}

#[test]
fn all_specs_together_are_short() {
    /// Every agent pays for them in every call.
    const BYTES_MAX: usize = 3_400;
    let size = |spec: &ToolSpec| {
        let spec = json!({
            "name": spec.name,
            "description": spec.description,
            "parameters": parameters(spec),
        });
        spec.to_string().len()
    };
    let sizes: Vec<(String, usize)> = file_tools(&Launcher::own(), SIDE_MAX)
        .iter()
        .map(|tool| (tool.spec().name.clone(), size(tool.spec())))
        .collect();
    let total: usize = sizes.iter().map(|(_, size)| size).sum();
    assert!(total <= BYTES_MAX, "{total}: {sizes:?}");
}

#[test]
fn schemas_name_their_arguments() {
    let tools = file_tools(&Launcher::own(), SIDE_MAX);
    let spec = |name: &str| tools.iter().map(|tool| tool.spec()).find(|spec| spec.name == name);
    let read = parameters(spec("read_file").unwrap());
    let expected = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "offset": {"type": "integer"},
            "limit": {"type": "integer"},
        },
        "required": ["path"],
    });
    assert_eq!(read, expected);
}

fn needs(tool: &str, arguments: Value) -> Result<Vec<Need>, String> {
    let tools = file_tools(&Launcher::own(), SIDE_MAX);
    tools.iter().find(|known| known.spec().name == tool).unwrap().needs(&arguments)
}

#[test]
fn every_path_of_a_call_is_named() {
    let read = |path: &str| Need::Read(path.into());
    let write = |path: &str| Need::Write(path.into());
    let check = |tool, arguments, expected: Vec<Need>| {
        assert_eq!(needs(tool, arguments), Ok(expected), "{tool}");
    };
    check("read_file", json!({"path": "a"}), vec![read("a")]);
    check("glob", json!({"pattern": "*"}), vec![read(".")]);
    check("search_text", json!({"pattern": "x", "path": "b"}), vec![read("b")]);
    check("list_directory", json!({}), vec![read(".")]);
    check("copy_file", json!({"from": "a", "to": "b"}), vec![read("a"), write("b")]);
    check("rename", json!({"from": "a", "to": "b"}), vec![write("a"), write("b")]);
    let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+n\n--- a/z\n+++ /dev/null\n@@ -1 +0,0 @@\n-o\n";
    check("patch", json!({"diff": diff}), vec![write("x"), write("y"), write("z")]);
    let diff = "diff --git a/o b/n\nrename from o\nrename to n\ndiff --git a/s b/t\ncopy from s\ncopy to t\n";
    let expected = vec![write("o"), write("n"), read("s"), write("t")];
    check("patch", json!({"diff": diff}), expected);
}

#[test]
fn write_tools_are_those_that_write() {
    for tool in file_tools(&Launcher::own(), SIDE_MAX) {
        let name = &tool.spec().name;
        let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
        let everything = json!({
            "path": "p", "content": "c", "old_string": "o", "new_string": "n", "start": 1, "end": 1, "text": "t",
            "pattern": "p", "replacement": "r", "diff": diff, "from": "f", "to": "t",
        });
        let known = parameters(tool.spec())["properties"].take();
        let arguments: serde_json::Map<String, Value> = everything
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| known.get(name).is_some())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let needs = tool.needs(&Value::Object(arguments)).unwrap();
        let writes = needs.iter().any(|need| matches!(need, Need::Write(_)));
        assert_eq!(writes, tool.class() == ToolClass::Write, "{name}");
    }
    let written = nexus_core::toolbox::Toolbox::new(file_tools(&Launcher::own(), SIDE_MAX))
        .names(ToolClass::Write);
    assert!(written.iter().eq(nexus_config::WRITE_TOOLS), "{written:?}");
}

#[test]
fn arguments_that_do_not_fit_are_refused_in_words() {
    let check = |tool, arguments, expected: &str| {
        let error = needs(tool, arguments).unwrap_err();
        assert!(error.contains(expected), "{tool}: {error}");
    };
    check("read_file", json!({}), "missing field `path`");
    check("read_file", json!({"path": 7}), "invalid type: integer `7`, expected a string");
    check("read_file", json!({"path": "a", "lines": 3}), "unknown field `lines`");
    check("read_file", json!({"path": "a", "offset": -1}), "invalid value: integer `-1`");
    check("read_file", json!(["a"]), "must be a JSON object");
    check(
        "edit_lines",
        json!({"path": "a", "start": 0, "end": 0, "text": ""}),
        "start is at least 1",
    );
    check(
        "edit_lines",
        json!({"path": "a", "start": 5, "end": 3, "text": ""}),
        "start is at least 1",
    );
    check(
        "edit_file",
        json!({"path": "a", "old_string": "", "new_string": "x"}),
        "old_string is empty",
    );
    check("patch", json!({"diff": "hello"}), "the diff cannot be read");
}
