//! Tool calls and what came of them, as a few lines each.

mod diff;
#[cfg(test)]
mod tests;

pub use diff::{diff, raw_line};

use nexus_protocol::conversation::ToolCallEntry;
use serde_json::Value;

use crate::figures::count;
use crate::shown::Shown;
use crate::style::{Colour, Line, Style};

/// What is shown of a result, whatever its lines.
pub const RESULT_CHARS_MAX: usize = 600;
/// What is looked at of a result. It may have a hundred megabytes.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// What is shown of an argument.
const ARGUMENT_CHARS_MAX: usize = 160;
const NAME_CHARS_MAX: usize = 64;
const FAILED: Style = Style::colour(Colour::Red);

/// What came of a call.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    pub content: &'a str,
    pub failed: bool,
    /// The rule that refused it.
    pub refused_by: Option<&'a str>,
}

/// What a call is known by in a line: the end of its id, for beginnings are alike.
pub fn short(id: &str) -> &str {
    let start = id.char_indices().rev().nth(3).map_or(0, |(at, _)| at);
    &id[start..]
}

/// `● exec  cargo test -p core   [57d0]`
pub fn call(call: &ToolCallEntry, short_id: &str) -> Line {
    let mut line = Line::styled(Shown::ours("● "), Style::colour(Colour::Green));
    line.push(one_line(&call.name, NAME_CHARS_MAX), Style::BOLD);
    let argument = telling(&call.name, &call.arguments);
    if !argument.is_empty() {
        line.push(Shown::ours("  "), Style::PLAIN);
        line.push(one_line(&argument, ARGUMENT_CHARS_MAX), Style::PLAIN);
    }
    if call.cut {
        line.push(Shown::ours("  (cut off)"), FAILED);
    }
    line.with(Shown::from(format!("   [{}]", one_line(short_id, NAME_CHARS_MAX))), Style::DIM)
}

/// `tool exec: cargo test -p core [57d0]`
pub fn call_in_words(call: &ToolCallEntry, short_id: &str) -> Line {
    let name = one_line(&call.name, NAME_CHARS_MAX);
    let argument = match one_line(&telling(&call.name, &call.arguments), ARGUMENT_CHARS_MAX) {
        nothing if nothing.is_empty() => nothing,
        argument => format!(": {argument}"),
    };
    let cut = if call.cut { " (cut off)" } else { "" };
    let id = one_line(short_id, NAME_CHARS_MAX);
    Line::plain(Shown::from(format!("tool {name}{argument}{cut} [{id}]")))
}

/// The first lines, and how to see the rest. They stand as the tool wrote them: no frame, no indent, no break.
pub fn result(outcome: Outcome<'_>, short_id: &str, lines_max: usize) -> Vec<Line> {
    signed(outcome, short_id, lines_max, ["⊘", "✗ "])
}

/// The same with words in the place of signs.
pub fn result_in_words(outcome: Outcome<'_>, short_id: &str, lines_max: usize) -> Vec<Line> {
    signed(outcome, short_id, lines_max, ["refused by", "error: "])
}

fn signed(
    outcome: Outcome<'_>,
    short_id: &str,
    lines_max: usize,
    [refused, failed]: [&str; 2],
) -> Vec<Line> {
    let head = Head::of(outcome.content);
    let (sign, style) = match outcome.refused_by {
        Some(rule) => {
            let rule = one_line(rule, NAME_CHARS_MAX);
            (format!("{refused} {rule}: "), Style::colour(Colour::Yellow))
        }
        None if outcome.failed => (failed.into(), FAILED),
        None => (String::new(), Style::DIM),
    };
    let (texts, left) = head.first(lines_max.max(1));
    let mut lines: Vec<Line> =
        texts.into_iter().map(|text| Line::styled(text, Style::DIM)).collect();
    if let Some(first) = lines.first_mut().filter(|_| !sign.is_empty()) {
        let text = first.text();
        *first = Line::styled(Shown::from(sign), style).with(Shown::from(text), style);
    } else if lines.is_empty() {
        let nothing = if sign.is_empty() { "(no output)" } else { "no reason given" };
        lines.push(Line::styled(Shown::from(sign + nothing), style));
    }
    if let Some(left) = left {
        lines.push(more(&left, short_id));
    }
    lines
}

/// `… 212 more lines (/tool 57d0)`
fn more(left: &str, short_id: &str) -> Line {
    let id = one_line(short_id, NAME_CHARS_MAX);
    Line::styled(Shown::from(format!("… {left} (/tool {id})")), Style::DIM)
}

/// The part of a text that is looked at, and how much lies beyond it.
struct Head<'a> {
    text: &'a str,
    beyond_bytes: usize,
}

impl<'a> Head<'a> {
    fn of(content: &'a str) -> Self {
        let text = &content[..content.floor_char_boundary(HEAD_BYTES_MAX)];
        Self { text, beyond_bytes: content.len() - text.len() }
    }

    /// The first lines, and in words what is left.
    fn first(&self, lines_max: usize) -> (Vec<String>, Option<String>) {
        let text = if self.beyond_bytes == 0 {
            self.text.trim_end_matches(['\n', '\r'])
        } else {
            self.text
        };
        let mut shown = Vec::new();
        let mut room = RESULT_CHARS_MAX;
        let (mut rest, mut cut) = (Some(text).filter(|text| !text.is_empty()), false);
        while let Some(text) = rest.filter(|_| shown.len() < lines_max && room > 0 && !cut) {
            let (line, after) = match text.split_once('\n') {
                Some((line, after)) => (line.strip_suffix('\r').unwrap_or(line), Some(after)),
                None => (text, None),
            };
            let line_shown = start_of(line, room);
            room -= line_shown.chars;
            cut = line_shown.cut;
            shown.push(line_shown.text);
            rest = after;
        }
        let lines = rest.map_or(0, |rest| rest.split('\n').count());
        let left = match (self.beyond_bytes, lines, cut) {
            (0, 0, false) => None,
            (0, 0, true) => Some("the rest of the line".to_owned()),
            (0, 1, _) => Some("1 more line".to_owned()),
            (0, lines, _) => Some(format!("{} more lines", count(lines as u64))),
            (beyond, _, _) => {
                let bytes = beyond + rest.map_or(0, str::len);
                Some(format!("{:.1} MB more", bytes as f64 / 1e6))
            }
        };
        (shown, left)
    }
}

struct Started {
    text: String,
    chars: usize,
    cut: bool,
}

/// As much of a line as there is room for, made harmless: what is written out must fit as well.
fn start_of(line: &str, chars_max: usize) -> Started {
    let raw_max = line.char_indices().nth(4 * chars_max).map_or(line.len(), |(at, _)| at);
    let shown = Shown::from(&line[..raw_max]);
    let mut text: String = shown.as_str().chars().take(chars_max).collect();
    let chars = text.chars().count();
    let cut = raw_max < line.len() || shown.as_str().len() > text.len();
    if cut {
        text.push('…');
    }
    Started { text, chars, cut }
}

/// A text where only one line has room: the first of it that says something.
fn one_line(text: &str, chars_max: usize) -> String {
    let text = text.trim_start();
    let (line, more) =
        text.split_once('\n').map_or((text, false), |(line, rest)| (line, !rest.trim().is_empty()));
    let started = start_of(line.trim_end(), chars_max);
    let ending = if more && !started.cut { " …" } else { "" };
    started.text.replace('\t', " ") + ending
}

/// The argument that says most.
pub fn telling(tool: &str, arguments: &Value) -> String {
    let text = |name: &str| {
        arguments.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
    };
    for name in ["argv", "args"] {
        if let Some(words) =
            arguments.get(name).and_then(Value::as_array).filter(|words| !words.is_empty())
        {
            return command_line(words);
        }
    }
    if let (Some(agent), Some(content)) = (text("agent_id"), text("content")) {
        return format!("{agent}: {}", one_line(content, ARGUMENT_CHARS_MAX));
    }
    if let (Some(from), Some(to)) = (text("from"), text("to")) {
        return format!("{from} → {to}");
    }
    if let Some(diff) = text("diff") {
        return patched(diff).unwrap_or_default().to_owned();
    }
    if let Some(step) = current_step(arguments) {
        return step.to_owned();
    }
    let looks = ["search", "glob", "grep", "find"].iter().any(|word| tool.contains(word));
    if let (true, Some(pattern)) = (looks, text("pattern")) {
        return match text("path") {
            Some(path) => format!("{pattern}  in {path}"),
            None => pattern.to_owned(),
        };
    }
    let names = [
        "command", "code", "path", "agent_id", "agent", "url", "uri", "query", "pattern", "name",
        "content",
    ];
    if let Some(text) = names.iter().find_map(|name| text(name)) {
        return text.to_owned();
    }
    let values = arguments.as_object().into_iter().flat_map(|members| members.values());
    let said = |value: &Value| match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    values.into_iter().find_map(said).unwrap_or_default()
}

/// Of a plan, what is done now, or comes next.
fn current_step(arguments: &Value) -> Option<&str> {
    let steps = arguments.get("steps")?.as_array()?;
    let with = |status: &str| steps.iter().find(|step| step["status"] == status);
    with("in_progress").or_else(|| with("pending")).or(steps.last())?.get("step")?.as_str()
}

/// The words of a command. Only what has room is read.
fn command_line(words: &[Value]) -> String {
    let word = |word: &Value| match word.as_str() {
        Some(word) => word.chars().take(ARGUMENT_CHARS_MAX + 1).collect(),
        None => word.to_string(),
    };
    for_shell(words.iter().take(ARGUMENT_CHARS_MAX).map(word))
}

/// Words as a shell would be given them: where one ends and the next begins is seen.
pub fn for_shell<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let mut line = String::new();
    for word in words {
        let word = word.as_ref();
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
        if !line.is_empty() {
            line.push(' ');
        }
        if !word.is_empty() && word.chars().all(plain) {
            line.push_str(word);
        } else {
            line.push_str(&format!("'{}'", word.replace('\'', "'\\''")));
        }
    }
    line
}

/// The first file that a diff changes.
fn patched(diff: &str) -> Option<&str> {
    let named = |sign| {
        let name = diff.lines().find_map(|line| line.strip_prefix(sign))?;
        let name = name.split('\t').next()?.trim();
        let name = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/")).unwrap_or(name);
        Some(name).filter(|name| *name != "/dev/null")
    };
    named("+++ ").or_else(|| named("--- "))
}
