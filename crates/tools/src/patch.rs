//! The `patch` tool: a unified diff of one or several files, applied as a whole or not at all.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use diffy::Patch as Hunks;
use diffy::patch_set::{FileMode, FileOperation, ParseOptions, PatchKind, PatchSet};
use nexus_core::permission::ToolClass;
use nexus_core::tool::Need;
use rustix::fs::Stat;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::FileTool;
use super::files::Files;
use super::files::write::{Before, Slot, lock};
use super::text::{Text, counted, lf};

/// Most files in one diff. All of them are held in memory and open at once.
const FILES_MAX: usize = 100;

pub(super) struct Patch;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchArgs {
    diff: String,
}

impl FileTool for Patch {
    const NAME: &'static str = "patch";
    const DESCRIPTION: &'static str = "Apply a unified diff to one or more files.";
    const CLASS: ToolClass = ToolClass::Write;
    type Args = PatchArgs;

    fn needs(args: &PatchArgs) -> Result<Vec<Need>, String> {
        let diff = recount(&args.diff)?;
        let changes = parse(&diff)?;
        Ok(changes.iter().flat_map(Change::needs).collect())
    }

    fn run(args: PatchArgs, files: &Files) -> Result<String, String> {
        let diff = recount(&args.diff)?;
        let changes = parse(&diff)?;
        let sources: Vec<Option<Slot>> =
            changes.iter().map(|change| change.source(files)).collect::<Result<_, _>>()?;
        let _held = lock(sources.iter().flatten());
        let mut results = Vec::new();
        for (change, source) in changes.iter().zip(&sources) {
            results.push(change.apply(files, source.as_ref())?);
        }
        // Every hunk fits. Only now are directories made for new files.
        let mut targets = Vec::new();
        for change in &changes {
            targets.push(change.target(files)?);
        }
        carry_out(&changes, &sources, &results, &targets)
    }
}

/// What a diff does to one file.
struct Change<'a> {
    hunks: Hunks<'a, str>,
    action: Action,
    executable: bool,
}

enum Action {
    Modify(String),
    Create(String),
    Delete(String),
    Rename { from: String, to: String },
    Copy { from: String, to: String },
}

/// A file's new contents and what was there before.
struct Applied {
    bytes: Vec<u8>,
    before: Option<Stat>,
}

impl Change<'_> {
    fn needs(&self) -> Vec<Need> {
        match &self.action {
            Action::Modify(path) | Action::Create(path) | Action::Delete(path) => {
                vec![Need::Write(path.clone())]
            }
            Action::Rename { from, to } => {
                vec![Need::Write(from.clone()), Need::Write(to.clone())]
            }
            Action::Copy { from, to } => vec![Need::Read(from.clone()), Need::Write(to.clone())],
        }
    }

    /// The existing file that will be changed or go away.
    fn source(&self, files: &Files) -> Result<Option<Slot>, String> {
        match &self.action {
            Action::Modify(path) | Action::Delete(path) | Action::Rename { from: path, .. } => {
                files.slot_of_existing(path).map(Some)
            }
            Action::Create(_) | Action::Copy { .. } => Ok(None),
        }
    }

    /// The new name that will be taken.
    fn target(&self, files: &Files) -> Result<Option<Slot>, String> {
        match &self.action {
            Action::Create(path)
            | Action::Rename { to: path, .. }
            | Action::Copy { to: path, .. } => files.slot(path).map(Some),
            Action::Modify(_) | Action::Delete(_) => Ok(None),
        }
    }

    /// What the file will hold. Changes nothing yet.
    fn apply(&self, files: &Files, source: Option<&Slot>) -> Result<Applied, String> {
        let path = match &self.action {
            Action::Modify(path) | Action::Create(path) | Action::Delete(path) => path,
            Action::Rename { from, .. } | Action::Copy { from, .. } => from,
        };
        let opened = match (&self.action, source) {
            (Action::Create(path), _) if files.exists(path)? => {
                return Err(format!("{path} exists already; nothing was applied"));
            }
            (Action::Create(_), _) => None,
            (_, Some(slot)) => {
                Some(slot.current()?.ok_or_else(|| format!("{path}: no such file"))?)
            }
            (_, None) => Some(files.open(path)?),
        };
        let before = opened.as_ref().map(|opened| opened.stat);
        let bytes = opened.map_or(Ok(Vec::new()), |opened| opened.bytes(path))?;
        let text = Text::decode(path, bytes)?;
        let body = self.fit(&text.body, path)?;
        if matches!(self.action, Action::Delete(_)) && !body.is_empty() {
            return Err(format!("{path} holds more than the diff deletes; nothing was applied"));
        }
        Ok(Applied { bytes: text.encode(&body), before })
    }

    fn fit(&self, body: &str, path: &str) -> Result<String, String> {
        let error = match diffy::apply(body, &self.hunks) {
            Ok(changed) => return Ok(changed),
            Err(error) => error,
        };
        // Diffs written by models rarely say that a file ends without a newline. It keeps ending so.
        if !body.is_empty()
            && !body.ends_with('\n')
            && let Ok(changed) = diffy::apply(&format!("{body}\n"), &self.hunks)
        {
            return Ok(changed.strip_suffix('\n').unwrap_or(&changed).into());
        }
        // The number stands only in the error's text: "error applying hunk #2".
        let text = error.to_string();
        let number = text.rsplit('#').next().and_then(|number| number.parse::<usize>().ok());
        let hunk = number.and_then(|number| self.hunks.hunks().get(number.saturating_sub(1)));
        let place = hunk.map_or_else(String::new, |hunk| {
            format!(" (at line {} of the file)", hunk.old_range().start())
        });
        let number = number.map_or_else(|| "a hunk".into(), |number| format!("hunk {number}"));
        Err(format!(
            "{number}{place} does not fit {path}: its lines are not there. Nothing was applied; read the file again"
        ))
    }
}

/// Writes everything beside its name first, so that what can fail fails before the first file changes.
fn carry_out(
    changes: &[Change<'_>],
    sources: &[Option<Slot>],
    results: &[Applied],
    targets: &[Option<Slot>],
) -> Result<String, String> {
    let mut staged = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let slot = match change.action {
            Action::Delete(_) => None,
            Action::Modify(_) => sources[index].as_ref(),
            _ => targets[index].as_ref(),
        };
        let applied = &results[index];
        let contents =
            slot.map(|slot| slot.stage(&applied.bytes, applied.before.as_ref())).transpose()?;
        if let Some(contents) = &contents
            && change.executable
        {
            contents.make_executable()?;
        }
        staged.push(contents);
    }
    let mut report = String::new();
    for (index, (change, contents)) in changes.iter().zip(staged).enumerate() {
        let before = match (&change.action, &results[index].before) {
            (Action::Modify(_), Some(stat)) => Before::Unchanged(stat),
            _ => Before::Nothing,
        };
        let source = sources[index].as_ref();
        let done =
            contents.map_or(Ok(()), |contents| contents.commit(before)).and_then(|()| {
                match (&change.action, source) {
                    (Action::Delete(_) | Action::Rename { .. }, Some(slot)) => slot.remove(),
                    _ => Ok(()),
                }
            });
        if let Err(error) = done {
            let so_far = if report.is_empty() { "nothing" } else { report.trim_end() };
            return Err(format!("{error}. Applied before that: {so_far}"));
        }
        let hunks = counted(change.hunks.hunks().len(), "hunk");
        let _ = match &change.action {
            Action::Modify(path) => writeln!(report, "Patched {path} ({hunks})."),
            Action::Create(path) => writeln!(report, "Created {path}."),
            Action::Delete(path) => writeln!(report, "Deleted {path}."),
            Action::Rename { from, to } => writeln!(report, "Renamed {from} to {to} ({hunks})."),
            Action::Copy { from, to } => writeln!(report, "Copied {from} to {to} ({hunks})."),
        };
    }
    Ok(report)
}

fn parse(diff: &str) -> Result<Vec<Change<'_>>, String> {
    let git = diff.lines().any(|line| line.starts_with("diff --git "));
    let options = if git { ParseOptions::gitdiff() } else { ParseOptions::unidiff() };
    let mut changes = Vec::new();
    for file in PatchSet::parse(diff, options) {
        let file = file.map_err(|error| format!("the diff cannot be read: {error}"))?;
        if changes.len() == FILES_MAX {
            return Err(format!("a diff has at most {FILES_MAX} files"));
        }
        let action = action(file.operation())?;
        if matches!(file.new_mode(), Some(FileMode::Symlink | FileMode::Gitlink)) {
            return Err("a diff may not make links or submodules".into());
        }
        let executable = file.new_mode() == Some(&FileMode::Executable);
        match file.into_patch() {
            PatchKind::Text(hunks) => changes.push(Change { hunks, action, executable }),
            PatchKind::Binary(_) => return Err("a binary diff is not applied".into()),
        }
    }
    let mut named = BTreeSet::new();
    for need in changes.iter().flat_map(Change::needs) {
        if let Need::Write(path) = need
            && !named.insert(path.clone())
        {
            return Err(format!("the diff changes {path} twice: put its hunks together"));
        }
    }
    Ok(changes)
}

/// What git's headers say, without git's `a/` and `b/` before the names.
fn action(operation: &FileOperation<'_, str>) -> Result<Action, String> {
    let stripped = |path: &str, prefix| path.strip_prefix(prefix).unwrap_or(path).to_owned();
    Ok(match operation {
        FileOperation::Create(path) => Action::Create(stripped(path, "b/")),
        FileOperation::Delete(path) => Action::Delete(stripped(path, "a/")),
        FileOperation::Modify { original, modified } => {
            match (original.strip_prefix("a/"), modified.strip_prefix("b/")) {
                (Some(original), Some(modified)) if original == modified => {
                    Action::Modify(modified.into())
                }
                _ if original == modified => Action::Modify(modified.to_string()),
                _ => {
                    return Err(format!(
                        "the diff names two files, {original} and {modified}; rename first"
                    ));
                }
            }
        }
        // These come from git's own headers, which carry no prefixes.
        FileOperation::Rename { from, to } => {
            Action::Rename { from: from.to_string(), to: to.to_string() }
        }
        FileOperation::Copy { from, to } => {
            Action::Copy { from: from.to_string(), to: to.to_string() }
        }
    })
}

/// The diff with hunk headers that count their lines right. Models count badly, and a line that a header leaves out
/// would silently be lost.
fn recount(diff: &str) -> Result<String, String> {
    let diff = lf(diff);
    let lines: Vec<&str> = diff.lines().collect();
    let mut counted = String::with_capacity(diff.len());
    let mut index = 0;
    while let Some(&line) = lines.get(index) {
        index += 1;
        let Some(header) = Header::parse(line) else {
            counted.push_str(line);
            counted.push('\n');
            continue;
        };
        let first = index;
        while lines.get(index).is_some() && !ends_hunk(&lines, index)? {
            index += 1;
        }
        // Blank lines before the next header or the end belong to neither.
        let body = lines[first..index].iter().rposition(|line| !line.is_empty());
        let body = &lines[first..first + body.map_or(0, |last| last + 1)];
        let old = body.iter().filter(|line| line.is_empty() || line.starts_with([' ', '-']));
        let new = body.iter().filter(|line| line.is_empty() || line.starts_with([' ', '+']));
        let (old, new) = (old.count(), new.count());
        let _ =
            writeln!(counted, "@@ -{},{old} +{},{new} @@{}", header.old, header.new, header.rest);
        for line in body {
            // An empty line of context, whose blank an editor trimmed.
            counted.push_str(if line.is_empty() { " " } else { line });
            counted.push('\n');
        }
    }
    Ok(counted)
}

/// Whether the line at `index` is no longer part of the hunk before it.
fn ends_hunk(lines: &[&str], index: usize) -> Result<bool, String> {
    let line = lines[index];
    let next = |offset: usize, start| {
        lines.get(index + offset).is_some_and(|line: &&str| line.starts_with(start))
    };
    if line.starts_with("--- ") && next(1, "+++ ") && (next(2, "@@ ") || lines.len() == index + 2) {
        return Ok(true);
    }
    match line.chars().next() {
        // What `git format-patch` ends with.
        Some('-') if line == "-- " => Ok(true),
        None | Some(' ' | '+' | '-' | '\\') => Ok(false),
        _ if ["@@ ", "diff ", "Index: ", "From "].iter().any(|start| line.starts_with(start)) => {
            Ok(true)
        }
        _ => Err(format!(
            "line {} of the diff begins neither with ' ', '+' or '-' nor with '@@'",
            index + 1
        )),
    }
}

/// `@@ -1,2 +3,4 @@ rest`.
struct Header<'a> {
    old: &'a str,
    new: &'a str,
    rest: &'a str,
}

impl<'a> Header<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (ranges, rest) = line.strip_prefix("@@ -")?.split_once(" @@")?;
        let (old, new) = ranges.split_once(" +")?;
        let first = |range: &'a str| range.split_once(',').map_or(range, |(first, _)| first);
        let (old, new) = (first(old), first(new));
        let is_number = |text: &str| text.parse::<u32>().is_ok();
        (is_number(old) && is_number(new)).then_some(Self { old, new, rest })
    }
}
