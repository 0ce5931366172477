//! How an editor is shown a tool call: what kind of thing it is, where it is at work, what became of a file.

use std::path::{Path, PathBuf};

use agent_client_protocol_schema::v1::{
    Content, Diff, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, ToolCall, ToolCallContent,
    ToolCallLocation, ToolKind,
};
use nexus_protocol::conversation::ToolCallEntry;
use nexus_protocol::hidden::is_hidden;
use nexus_protocol::permission::{FileChange, Preview};
use serde::Deserialize;
use serde_json::Value;

use crate::sentence::spelled;

/// Longest title.
const TITLE_CHARS_MAX: usize = 120;

/// Longest text of a call.
const SHOWN_BYTES_MAX: usize = 32 << 10;

/// The call as it is first told.
pub fn call(entry: &ToolCallEntry, cwd: &Path) -> ToolCall {
    ToolCall::new(entry.id.clone(), title(&entry.name, &entry.arguments))
        .name(entry.name.clone())
        .kind(kind(&entry.name))
        .locations(locations(&entry.arguments, cwd))
        .raw_input(entry.arguments.clone())
}

/// The tool by which an agent shows its plan.
const PLAN_TOOL: &str = "update_plan";

/// What the agent is asked to say of its plan, as the tool takes it.
#[derive(Deserialize)]
struct Planned {
    steps: Vec<PlannedStep>,
}

#[derive(Deserialize)]
struct PlannedStep {
    step: String,
    status: PlanEntryStatus,
}

/// The plan that a call shows, if it is one that does.
pub fn plan(entry: &ToolCallEntry) -> Option<Plan> {
    if entry.name != PLAN_TOOL {
        return None;
    }
    let Planned { steps } = Planned::deserialize(&entry.arguments).ok()?;
    let entry = |PlannedStep { step, status }| {
        PlanEntry::new(plain(&step).collect::<String>(), PlanEntryPriority::Medium, status)
    };
    Some(Plan::new(steps.into_iter().map(entry).collect()))
}

pub fn kind(tool: &str) -> ToolKind {
    match tool {
        "read_file" | "tail" | "file_info" | "list_directory" | "outline" | "mcp_read" => {
            ToolKind::Read
        }
        "glob" | "search_text" | "memory_search" | "tool_search" => ToolKind::Search,
        "write_file" | "append_file" | "edit_file" | "edit_lines" | "regex_replace" | "patch"
        | "mkdir" | "copy_file" => ToolKind::Edit,
        "rename" => ToolKind::Move,
        "exec" | "bash_safe" | "shell_UNSAFE" | "run_python" | "git" => ToolKind::Execute,
        _ => ToolKind::Other,
    }
}

/// The tool and what it is about, on one line.
pub fn title(tool: &str, arguments: &Value) -> String {
    let said = |name: &str| match arguments.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(words)) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            Some(words.join(" "))
        }
        _ => None,
    };
    let about = ["command", "argv", "path", "pattern", "query", "source", "agent_id", "name"];
    match about.iter().find_map(|name| said(name)) {
        Some(about) => short(&format!("{tool} {about}")),
        None => short(tool),
    }
}

/// What would make a person read something else than it says is left out.
fn plain(text: &str) -> impl Iterator<Item = char> {
    let spaced = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().filter(|c| !is_hidden(*c)).map(spaced)
}

/// So is the end of what is long.
fn short(text: &str) -> String {
    let mut chars = plain(text);
    let mut title: String = chars.by_ref().take(TITLE_CHARS_MAX).collect();
    if chars.next().is_some() {
        title.push('…');
    }
    title
}

/// The files that a call names.
fn locations(arguments: &Value, cwd: &Path) -> Vec<ToolCallLocation> {
    let line = arguments.get("start_line").and_then(Value::as_u64);
    let line = line.and_then(|line| u32::try_from(line).ok());
    let named = |name: &str| arguments.get(name).and_then(Value::as_str);
    let files = ["path", "from", "to"].into_iter().filter_map(named);
    files.map(|file| ToolCallLocation::new(cwd.join(file)).line(line)).collect()
}

pub fn text(text: impl Into<String>) -> ToolCallContent {
    ToolCallContent::Content(Content::new(text.into()))
}

/// What a tool printed or answered: all of it, or its beginning and its end. The model has what it was told.
pub fn shown(text: &str) -> String {
    if text.len() <= SHOWN_BYTES_MAX {
        return text.to_owned();
    }
    let half = SHOWN_BYTES_MAX / 2;
    let (begin, end) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    format!("{}\n… {} bytes are left out …\n{}", &text[..begin], end - begin, &text[end..])
}

/// What would be done, as far as it is known.
pub fn preview(preview: &Preview) -> Vec<ToolCallContent> {
    match preview {
        Preview::Diff(change) => diffs(change),
        Preview::Command { argv, command, code, cwd, sandbox } => {
            let argv = argv.as_ref().map(|argv| argv.join(" "));
            let line = command.clone().or(code.clone()).or(argv).unwrap_or_default();
            vec![text(spelled(&format!("{line}\n\nin {cwd}, {sandbox}")))]
        }
        Preview::Agent { target, content } => {
            vec![text(spelled(&format!("to {target}:\n\n{content}")))]
        }
        Preview::Write { path, bytes } => vec![text(spelled(&format!("{path}: {bytes} bytes")))],
    }
}

/// What a call that went well changed, as far as its arguments say it: what the file held then is not kept.
pub fn written(tool: &str, arguments: &Value, cwd: &Path) -> Option<ToolCallContent> {
    let said = |name: &str| arguments.get(name).and_then(Value::as_str);
    let (old, new) = match tool {
        "write_file" => (None, said("content")?),
        "edit_file" => (Some(said("old_string")?), said("new_string")?),
        _ => return None,
    };
    let is_short = old.map_or(0, str::len) + new.len() <= SHOWN_BYTES_MAX;
    let diff = Diff::new(cwd.join(said("path")?), new).old_text(old.map(str::to_owned));
    is_short.then_some(ToolCallContent::Diff(diff))
}

/// What becomes of a file, each changed place by itself.
pub fn diffs(change: &FileChange) -> Vec<ToolCallContent> {
    let path = PathBuf::from(&change.path);
    let mut shown = Vec::new();
    let mut place: Option<Hunk> = None;
    for line in change.diff.lines() {
        if line.starts_with("@@") {
            shown.extend(place.take().map(|it| it.diff(&path)));
            let is_new = line.starts_with("@@ -0,0 ");
            place = Some(Hunk { is_new, ..Hunk::default() });
            continue;
        }
        let Some(place) = &mut place else { continue };
        match line.split_at_checked(1) {
            Some(("-", old)) => add(&mut place.old, old),
            Some(("+", new)) => add(&mut place.new, new),
            Some((" ", both)) => {
                add(&mut place.old, both);
                add(&mut place.new, both);
            }
            // What says that a file does not end in a line's end.
            _ => {}
        }
    }
    shown.extend(place.map(|it| it.diff(&path)));
    if change.truncated {
        let FileChange { path, added, removed, .. } = change;
        let why = format!("{path}: {added} lines come and {removed} go; not all is shown");
        shown.push(text(why));
    }
    shown
}

#[derive(Default)]
struct Hunk {
    old: String,
    new: String,
    /// There was nothing before.
    is_new: bool,
}

impl Hunk {
    fn diff(self, path: &Path) -> ToolCallContent {
        let old = (!self.is_new).then_some(self.old);
        ToolCallContent::Diff(Diff::new(path, self.new).old_text(old))
    }
}

fn add(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_title_is_one_line_that_says_what_it_is_about() {
        let check =
            |tool: &str, arguments, expected: &str| assert_eq!(title(tool, &arguments), expected);
        check("read_file", json!({"path": "src/a.rs"}), "read_file src/a.rs");
        check("exec", json!({"argv": ["ls", "-l"]}), "exec ls -l");
        check("bash_safe", json!({"command": "a\nb\u{202e}c"}), "bash_safe a bc");
        check("sleep", json!({"seconds": 1}), "sleep");
        let most = "x".repeat(TITLE_CHARS_MAX - 5);
        check("glob", json!({"pattern": most}), &format!("glob {most}"));
        check("glob", json!({"pattern": format!("{most}x")}), &format!("glob {most}…"));
    }

    #[test]
    fn what_is_long_is_shown_with_its_beginning_and_its_end() {
        let most = "x".repeat(SHOWN_BYTES_MAX);
        assert_eq!(shown(&most), most);
        let half = "x".repeat(SHOWN_BYTES_MAX / 2);
        let cut = shown(&format!("a{most}z"));
        assert!(cut.starts_with("ax") && cut.ends_with("xz"));
        assert_eq!(
            shown(&format!("{half}y{half}")),
            format!("{half}\n… 1 bytes are left out …\n{half}")
        );
        assert!(shown(&"€".repeat(SHOWN_BYTES_MAX)).contains(" bytes are left out "));
    }

    #[test]
    fn files_are_named_by_whole_paths() {
        let paths = |arguments| {
            let found = locations(&arguments, Path::new("/w"));
            found.into_iter().map(|it| (it.path, it.line)).collect::<Vec<_>>()
        };
        assert_eq!(paths(json!({"path": "a", "start_line": 3})), [("/w/a".into(), Some(3))]);
        let both = [("/a".into(), None), ("/w/b".into(), None)];
        assert_eq!(paths(json!({"from": "/a", "to": "b"})), both);
        assert_eq!(paths(json!({"argv": ["ls"]})), []);
    }

    fn check(diff: &str, truncated: bool, expected: Value) {
        let diff = diff.to_owned();
        let change = FileChange { path: "/f".into(), diff, added: 9, removed: 8, truncated };
        assert_eq!(json!(diffs(&change)), expected);
    }

    #[test]
    fn each_place_of_a_change_is_a_diff() {
        let diff = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9 +9 @@\n-x\n+y\n\\ No newline at end of file\n";
        let both = json!([
            {"type": "diff", "path": "/f", "oldText": "a\nb\n", "newText": "a\nc\n"},
            {"type": "diff", "path": "/f", "oldText": "x\n", "newText": "y\n"},
        ]);
        check(diff, false, both);
        let new = json!([{"type": "diff", "path": "/f", "newText": "a\n"}]);
        check("@@ -0,0 +1 @@\n+a\n", false, new);
        let cut = json!([{"type": "content", "content": {
            "type": "text", "text": "/f: 9 lines come and 8 go; not all is shown",
        }}]);
        check("", true, cut);
    }
}
