//! Tools that write or change the text of one file.

use nexus_core::permission::ToolClass;
use nexus_core::preview::Preview;
use nexus_core::tool::Need;
use regex::RegexBuilder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::apart::{Done, Work};
use super::change::change;
use super::file_tool::FileTool;
use super::files::Files;
use super::files::write::{Before, WRITE_BYTES_MAX, lock};
use super::text::{Text, counted};

pub(super) struct WriteFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFileArgs {
    path: String,
    content: String,
}

impl FileTool for WriteFile {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Create or replace a file.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = WriteFileArgs;
    type Output = String;

    fn needs(args: &WriteFileArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Write(args.path.clone())])
    }

    fn preview(args: WriteFileArgs, files: &Files) -> Option<Preview> {
        Some(written(files, &args.path, |_| Ok(args.content.clone().into()), args.content.len()))
    }

    fn run(args: WriteFileArgs, files: &Files) -> Result<String, String> {
        let slot = files.slot(&args.path)?;
        let _held = lock([&slot]);
        let current = slot.current()?;
        let staged =
            slot.stage(args.content.as_bytes(), current.as_ref().map(|file| &file.stat))?;
        staged.commit(Before::Anything)?;
        let done = if current.is_some() { "Replaced" } else { "Created" };
        Ok(format!("{done} {} ({}).", args.path, counted(args.content.len(), "byte")))
    }
}

pub(super) struct AppendFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AppendFileArgs {
    path: String,
    content: String,
}

impl FileTool for AppendFile {
    const NAME: &'static str = "append_file";
    const DESCRIPTION: &'static str = "Append to a file.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = AppendFileArgs;
    type Output = String;

    fn needs(args: &AppendFileArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Write(args.path.clone())])
    }

    fn preview(args: AppendFileArgs, files: &Files) -> Option<Preview> {
        let longer = |old: Option<&[u8]>| match old {
            Some(old) => {
                let text = Text::decode(&args.path, old.into())?;
                Ok(text.encode(&format!("{}{}", text.body, text.adapt(&args.content))))
            }
            None => Ok(args.content.clone().into()),
        };
        Some(written(files, &args.path, longer, args.content.len()))
    }

    fn run(args: AppendFileArgs, files: &Files) -> Result<String, String> {
        let added = counted(args.content.len(), "byte");
        let slot = files.slot(&args.path)?;
        let _held = lock([&slot]);
        let Some(current) = slot.current()? else {
            slot.stage(args.content.as_bytes(), None)?.commit(Before::Nothing)?;
            return Ok(format!("Created {} ({added}).", args.path));
        };
        let stat = current.stat;
        let text = Text::decode(&args.path, current.bytes(&args.path)?)?;
        let bytes = text.encode(&format!("{}{}", text.body, text.adapt(&args.content)));
        slot.stage(&bytes, Some(&stat))?.commit(Before::Unchanged(&stat))?;
        Ok(format!("Added {added} to {}.", args.path))
    }
}

pub(super) struct EditFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFileArgs {
    path: String,
    old_string: String,
    new_string: String,
    replace_all: Option<bool>,
}

impl FileTool for EditFile {
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str = "Replace text that occurs exactly once, unless replace_all.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = EditFileArgs;
    type Output = String;

    fn needs(args: &EditFileArgs) -> Result<Vec<Need>, String> {
        match args.old_string.as_str() {
            "" => Err("old_string is empty".into()),
            _ => Ok(vec![Need::Write(args.path.clone())]),
        }
    }

    fn preview(args: EditFileArgs, files: &Files) -> Option<Preview> {
        edited(files, &args.path, |text| args.change(text))
    }

    fn run(args: EditFileArgs, files: &Files) -> Result<String, String> {
        edit(files, &args.path, |text| args.change(text))
    }
}

impl EditFileArgs {
    fn change(&self, text: &Text) -> Result<(String, String), String> {
        let (args, path) = (self, &self.path);
        if args.old_string.is_empty() {
            return Err("old_string is empty".into());
        }
        let old = text.adapt(&args.old_string);
        let new = text.adapt(&args.new_string);
        let count = text.body.matches(&old).count();
        if count.saturating_mul(new.len()) > REPLACED_BYTES_MAX {
            return Err("the replaced text would be too long".into());
        }
        match count {
            0 => Err(format!("old_string does not occur in {path}: read the file again")),
            1 => Ok((text.body.replace(&old, &new), "Replaced 1 occurrence".into())),
            count if args.replace_all == Some(true) => {
                Ok((text.body.replace(&old, &new), format!("Replaced {count} occurrences")))
            }
            count => Err(format!(
                "old_string occurs {count} times in {path}: give more of the text around it, or replace_all"
            )),
        }
    }
}

pub(super) struct EditLines;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditLinesArgs {
    path: String,
    start: usize,
    end: usize,
    text: String,
}

impl FileTool for EditLines {
    const NAME: &'static str = "edit_lines";
    const DESCRIPTION: &'static str =
        "Replace lines start to end (from 1). end = start-1 inserts before start.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = EditLinesArgs;
    type Output = String;

    fn needs(args: &EditLinesArgs) -> Result<Vec<Need>, String> {
        match args.start >= 1 && args.end.saturating_add(1) >= args.start {
            true => Ok(vec![Need::Write(args.path.clone())]),
            false => Err("start is at least 1 and end at least start-1".into()),
        }
    }

    fn preview(args: EditLinesArgs, files: &Files) -> Option<Preview> {
        edited(files, &args.path, |text| args.change(text))
    }

    fn run(args: EditLinesArgs, files: &Files) -> Result<String, String> {
        edit(files, &args.path, |text| args.change(text))
    }
}

impl EditLinesArgs {
    fn change(&self, text: &Text) -> Result<(String, String), String> {
        let (path, first, end) = (&self.path, self.start.saturating_sub(1), self.end);
        let body = text.body.as_str();
        let mut lines = lines(body);
        let total = lines.len();
        if first > total || end > total || end < first {
            return Err(format!("{path} has {}", counted(total, "line")));
        }
        let new = text.adapt(&self.text);
        let new = new.strip_suffix('\n').unwrap_or(&new);
        let replacement: Vec<&str> =
            if self.text.is_empty() { Vec::new() } else { new.split('\n').collect() };
        let count = replacement.len();
        lines.splice(first..end, replacement);
        let mut changed = lines.join("\n");
        // An empty file gets its newline with its first line.
        if !lines.is_empty() && (body.is_empty() || body.ends_with('\n')) {
            changed.push('\n');
        }
        let removed = counted(end - first, "line");
        Ok((changed, format!("Put {} in place of {removed}", counted(count, "line"))))
    }
}

/// Lines without their `\n`; a `\r` stays.
fn lines(body: &str) -> Vec<&str> {
    match body {
        "" => Vec::new(),
        body => body.strip_suffix('\n').unwrap_or(body).split('\n').collect(),
    }
}

pub(super) struct RegexReplace;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RegexReplaceArgs {
    path: String,
    pattern: String,
    replacement: String,
    count: Option<usize>,
}

impl FileTool for RegexReplace {
    const NAME: &'static str = "regex_replace";
    const DESCRIPTION: &'static str = "Replace matches of a regex; ${1} is a group.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = RegexReplaceArgs;
    type Output = String;

    fn needs(args: &RegexReplaceArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Write(args.path.clone())])
    }

    fn preview(args: RegexReplaceArgs, files: &Files) -> Option<Preview> {
        edited(files, &args.path, |text| args.change(text, files))
    }

    fn run(args: RegexReplaceArgs, files: &Files) -> Result<String, String> {
        edit(files, &args.path, |text| args.change(text, files))
    }
}

impl RegexReplaceArgs {
    fn change(&self, text: &Text, files: &Files) -> Result<(String, String), String> {
        let args = self;
        let done: Done = files.apart(&Work::Replace(Replace {
            pattern: args.pattern.clone(),
            replacement: text.adapt(&args.replacement),
            limit: args.count.filter(|count| *count > 0).unwrap_or(usize::MAX),
            body: text.body.clone(),
        }))?;
        match done.count {
            0 => Err(format!("the pattern matches nothing in {}", args.path)),
            1 => Ok((done.text, "Replaced 1 match".into())),
            count => Ok((done.text, format!("Replaced {count} matches"))),
        }
    }
}

/// What is to be replaced in a text. A pattern that an automaton cannot be built for takes time with its own length
/// for each byte of the text, so this is done [apart](super::apart).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Replace {
    pattern: String,
    replacement: String,
    limit: usize,
    body: String,
}

/// As `Regex::replacen`, but it ends before a replacement that repeats long groups many times fills the memory.
pub(super) fn replace(order: &Replace) -> Result<Done, String> {
    let Replace { pattern, replacement, limit, body } = order;
    let pattern = RegexBuilder::new(pattern)
        .multi_line(true)
        .build()
        .map_err(|error| format!("the pattern does not work: {error}"))?;
    let groups_max = replacement.matches('$').count();
    let mut changed = String::new();
    let (mut copied, mut count) = (0, 0);
    for captures in pattern.captures_iter(body).take(*limit) {
        let Some(found) = captures.get(0) else { continue };
        changed.push_str(&body[copied..found.start()]);
        let added_max = replacement.len().saturating_add(groups_max.saturating_mul(found.len()));
        if changed.len().saturating_add(added_max) > REPLACED_BYTES_MAX {
            return Err("the replaced text would be too long".into());
        }
        captures.expand(replacement, &mut changed);
        copied = found.end();
        count += 1;
    }
    changed.push_str(&body[copied..]);
    Ok(Done { text: changed, count })
}

/// Bound on an estimate that is too high, and so above what may be written.
const REPLACED_BYTES_MAX: usize = 4 * WRITE_BYTES_MAX;

/// What would become of a file that is written. Of one that cannot be compared with what is there, or may not be read
/// without leave, it shows no more than how much would be written.
fn written(
    files: &Files,
    path: &str,
    contents: impl Fn(Option<&[u8]>) -> Result<Vec<u8>, String>,
    bytes: usize,
) -> Preview {
    let changed = files.look(path).and_then(|(real, old)| {
        let new = contents(old.as_deref())?;
        Ok(change(&real, &old.unwrap_or_default(), &new))
    });
    match changed {
        Ok(Some(change)) => Preview::Diff(change),
        _ => Preview::Write { path: path.into(), bytes: bytes as u64 },
    }
}

/// What would become of a file that is edited.
fn edited(
    files: &Files,
    path: &str,
    edit: impl Fn(&Text) -> Result<(String, String), String>,
) -> Option<Preview> {
    let (real, old) = files.look(path).ok()?;
    let old = old?;
    let text = Text::decode(path, old.clone()).ok()?;
    let (body, _) = edit(&text).ok()?;
    change(&real, &old, &text.encode(&body)).map(Preview::Diff)
}

/// Changes an existing text file. `change` gives the new body and says what it did. It may take its time: others are kept
/// from the file only while the new contents take its name, and if it was changed until then, all is done anew.
fn edit(
    files: &Files,
    path: &str,
    change: impl Fn(&Text) -> Result<(String, String), String>,
) -> Result<String, String> {
    let slot = files.slot_of_existing(path)?;
    loop {
        let current =
            slot.current()?.ok_or_else(|| format!("{path}: no such file or directory"))?;
        let stat = current.stat;
        let text = Text::decode(path, current.bytes(path)?)?;
        let (body, done) = change(&text)?;
        let staged = slot.stage(&text.encode(&body), Some(&stat))?;
        let _held = lock([&slot]);
        if slot.is_unchanged(&stat)? {
            staged.commit(Before::Unchanged(&stat))?;
            return Ok(format!("{done} in {path}."));
        }
        files.go_on()?;
    }
}
