//! What agents say and do, as lines for a person.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use nexus_protocol::conversation::{MessageEntry, ToolCallEntry};
use nexus_protocol::usage::Usage;
use nexus_terminal::shown::Shown;

/// Lines of a tool's result that are shown.
const RESULT_LINES_MAX: usize = 6;

/// Characters of a line that is cut: of a result, and of a call's arguments.
const LINE_CHARS_MAX: usize = 400;

/// Characters at the end of a call's id by which its result is found.
const ID_CHARS: usize = 4;

/// Text of others, so that it steers no terminal. Its lines stay.
pub fn harmless(text: &str) -> String {
    Shown::from(text).as_str().to_owned()
}

/// The same in one line.
pub fn harmless_line(text: &str) -> String {
    harmless(text).replace('\n', " ")
}

/// A message as it stands in a conversation of `agent`; every line of it ends. Empty where nothing is to be shown.
pub fn message(agent: &str, message: &MessageEntry) -> String {
    let mut out = String::new();
    let meta = message.meta.as_ref();
    let cut = if meta.is_some_and(|meta| meta.interrupted) { " (cut off)" } else { "" };
    match message.role.as_str() {
        "tool" => {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            let _ = writeln!(out, "  └ [{}]", short_id(id));
            out.push_str(&beginning(&message.content));
        }
        "system" => {
            let covers = meta.and_then(|meta| meta.covers).unwrap_or_default();
            let _ = writeln!(out, "summary of {covers} messages> {}", harmless(&message.content));
        }
        role => {
            let source = meta
                .and_then(|meta| meta.source_agent_id.as_deref().or(meta.source.as_deref()))
                .unwrap_or("you");
            let who = if role == "assistant" { agent } else { source };
            if !message.content.is_empty() {
                let said = harmless(&message.content);
                let _ = writeln!(out, "{}> {said}{cut}", harmless_line(who));
            }
            for attached in &message.attachments {
                let name = attached.name.as_deref().or(attached.url.as_deref()).unwrap_or_default();
                let kind = harmless_line(&attached.mime_type);
                let _ = writeln!(out, "  + {kind} {}", harmless_line(name));
            }
            for call in &message.tool_calls {
                let _ = writeln!(out, "{}", tool_call(call));
            }
        }
    }
    out
}

/// A call in one line: the tool, its arguments, the end of its id.
pub fn tool_call(call: &ToolCallEntry) -> String {
    let arguments = shortened(&harmless_line(&call.arguments.to_string()));
    let cut = if call.cut { " (cut off, not run)" } else { "" };
    format!("● {} {arguments}{cut}  [{}]", harmless_line(&call.name), short_id(&call.id))
}

/// The first lines of a result, indented, and how many more there are.
pub fn beginning(content: &str) -> String {
    let mut out = String::new();
    let mut lines = content.lines();
    for line in lines.by_ref().take(RESULT_LINES_MAX) {
        let _ = writeln!(out, "    {}", shortened(&harmless(line)));
    }
    let more = lines.count();
    if more > 0 {
        let _ = writeln!(out, "    … {more} more lines");
    }
    out
}

/// As much of a line as fits a few rows.
pub fn shortened(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.into(),
    }
}

/// The end of a call's id, by which a person tells it from others.
pub fn short_id(id: &str) -> String {
    let skipped = id.chars().count().saturating_sub(ID_CHARS);
    harmless_line(&id.chars().skip(skipped).collect::<String>())
}

/// The time of day where this program runs.
pub fn clock(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

pub fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d").to_string()
}

pub fn tokens(usage: &Usage) -> String {
    format!("{} in, {} out", usage.input, usage.output)
}

/// Nothing where there was no cost, or none is known.
pub fn dollars(cost: Option<f64>) -> String {
    cost.filter(|cost| *cost > 0.0).map(|cost| format!(", ${cost:.4}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(entry: Value, expected: &str) {
        let mut whole = json!({"index": 0, "role": "user", "content": ""});
        whole.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
        let entry: MessageEntry = serde_json::from_value(whole).unwrap();
        assert_eq!(message("api", &entry), expected);
    }

    #[test]
    fn messages() {
        check(json!({"content": "hi"}), "you> hi\n");
        check(json!({"role": "assistant", "content": "a\nb"}), "api> a\nb\n");
        let meta = |more: Value| {
            let mut meta = json!({"at": "2026-01-01T00:00:00Z"});
            meta.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            meta
        };
        let from = meta(json!({"source": "cron", "source_agent_id": "worker"}));
        check(json!({"content": "go", "meta": from}), "worker> go\n");
        let cut = meta(json!({"interrupted": true}));
        check(json!({"role": "assistant", "content": "and", "meta": cut}), "api> and (cut off)\n");
        let covers = meta(json!({"covers": 12}));
        check(
            json!({"role": "system", "content": "all", "meta": covers}),
            "summary of 12 messages> all\n",
        );
        let calls =
            json!([{"id": "call_123457d0", "name": "exec", "arguments": {"command": "ls"}}]);
        check(
            json!({"role": "assistant", "tool_calls": calls}),
            "● exec {\"command\":\"ls\"}  [57d0]\n",
        );
        check(
            json!({"role": "tool", "tool_call_id": "57d0", "content": "1\n2"}),
            "  └ [57d0]\n    1\n    2\n",
        );
    }

    #[test]
    fn results_are_cut_to_their_first_lines() {
        let lines = |count: usize| "x\n".repeat(count);
        assert_eq!(beginning(&lines(6)), "    x\n".repeat(6));
        assert_eq!(beginning(&lines(8)), format!("{}    … 2 more lines\n", "    x\n".repeat(6)));
        assert_eq!(shortened(&"ä".repeat(400)), "ä".repeat(400));
        assert_eq!(shortened(&"ä".repeat(401)), format!("{}…", "ä".repeat(400)));
    }

    #[test]
    fn nothing_that_others_wrote_steers_the_terminal() {
        let evil = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\r";
        let meta = json!({"at": "x", "source": evil});
        let calls = json!([{"id": evil, "name": evil, "arguments": {"a": evil}}]);
        let files = json!([{"type": "file", "mime_type": evil, "name": evil}]);
        for role in ["user", "assistant", "tool", "system"] {
            let entry = json!({"index": 0, "role": role, "content": evil, "meta": meta,
                "tool_calls": calls, "tool_call_id": evil, "attachments": files});
            let shown = message(evil, &serde_json::from_value(entry).unwrap());
            let steers = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!shown.contains(steers), "{role}: {shown:?}");
            assert!(shown.contains("]0;x"), "it is still to be seen: {shown:?}");
        }
    }
}
