//! The `patch` tool: a unified diff of one or several files, applied as a whole or not at all.

mod fit;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use diffy::Patch as Hunks;
use diffy::patch_set::{FileMode, FileOperation, ParseOptions, PatchKind, PatchSet};
use nexus_core::permission::ToolClass;
use nexus_core::preview::Preview;
use nexus_core::tool::Need;
use rustix::fs::Stat;
use schemars::JsonSchema;
use serde::Deserialize;

use super::change::change;
use super::file_tool::FileTool;
use super::files::Files;
use super::files::write::{Before, Slot, Staged, WRITE_BYTES_MAX, lock};
use super::text::{Text, counted, lf};
use fit::{COMPARED_BYTES_MAX, Effort, Misfit, fit};

/// Most files in one diff. All of them are held in memory and open at once.
const FILES_MAX: usize = 100;

/// Longest line outside of hunks: two paths and what stands around them. To take two names from one that has no end
/// costs the square of its length.
const HEADER_BYTES_MAX: usize = 10_000;

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
    type Output = String;

    fn needs(args: &PatchArgs) -> Result<Vec<Need>, String> {
        let diff = recount(&args.diff)?;
        let changes = parse(&diff)?;
        Ok(changes.iter().flat_map(Change::needs).collect())
    }

    fn preview(args: PatchArgs, files: &Files) -> Option<Preview> {
        let diff = recount(&args.diff).ok()?;
        let changes = parse(&diff).ok()?;
        // Several files are shown best by the diff that the call is.
        let [change] = changes.as_slice() else { return None };
        change.preview(files)
    }

    fn run(args: PatchArgs, files: &Files) -> Result<String, String> {
        let diff = recount(&args.diff)?;
        let changes = parse(&diff)?;
        let sources: Vec<Option<Slot>> =
            changes.iter().map(|change| change.source(files)).collect::<Result<_, _>>()?;
        loop {
            let mut effort = Effort { files, bytes_left: COMPARED_BYTES_MAX };
            let mut results = Vec::new();
            for (change, source) in changes.iter().zip(&sources) {
                results.push(change.apply(source.as_ref(), &mut effort)?);
            }
            // Every hunk fits. Only now are directories made for new files.
            let mut targets = Vec::new();
            for change in &changes {
                targets.push(change.target(files)?);
            }
            let staged = stage(&changes, &sources, &results, &targets)?;
            // Others are kept from these files only while they change. If they did until now, all is done anew.
            let _held = lock(sources.iter().flatten());
            if are_unchanged(&sources, &results)? {
                return carry_out(&changes, &sources, &results, staged);
            }
            files.go_on()?;
        }
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
    fn apply(&self, source: Option<&Slot>, effort: &mut Effort<'_>) -> Result<Applied, String> {
        let files = effort.files;
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
        let body = self.fit(&text.body, path, effort)?;
        if matches!(self.action, Action::Delete(_)) && !body.is_empty() {
            return Err(format!("{path} holds more than the diff deletes; nothing was applied"));
        }
        Ok(Applied { bytes: text.encode(&body), before })
    }

    /// What becomes of the file, unless it gets another name.
    fn preview(&self, files: &Files) -> Option<Preview> {
        let (Action::Modify(path) | Action::Create(path) | Action::Delete(path)) = &self.action
        else {
            return None;
        };
        let (real, old) = files.look(path).ok()?;
        let old = old.unwrap_or_default();
        let text = Text::decode(path, old.clone()).ok()?;
        let mut effort = Effort { files, bytes_left: COMPARED_BYTES_MAX };
        let body = self.fit(&text.body, path, &mut effort).ok()?;
        change(&real, &old, &text.encode(&body)).map(Preview::Diff)
    }

    fn fit(&self, body: &str, path: &str, effort: &mut Effort<'_>) -> Result<String, String> {
        let hunks = self.hunks.hunks();
        let mut fitted = fit(body, hunks, effort);
        // Diffs written by models rarely say that a file ends without a newline. It keeps ending so.
        if matches!(fitted, Err(Misfit::Hunk(_))) && !body.is_empty() && !body.ends_with('\n') {
            let ended = fit(&format!("{body}\n"), hunks, effort);
            let cut = |text: String| text.strip_suffix('\n').map(Into::into).unwrap_or(text);
            fitted = ended.map(cut).or(fitted);
        }
        fitted.map_err(|misfit| match misfit {
            Misfit::Hunk(number) => {
                let line = hunks[number].old_range().start();
                format!(
                    "hunk {} (at line {line} of the file) does not fit {path}: its lines are not there. Nothing was applied; read the file again",
                    number + 1
                )
            }
            Misfit::TooMuch => format!(
                "to find where the hunks go in {path}, more than {} MiB would have to be compared: give them the right line numbers, or split the diff. Nothing was applied",
                COMPARED_BYTES_MAX >> 20
            ),
            Misfit::Stopped => "the call was cancelled".into(),
        })
    }
}

/// Writes everything beside its name first, so that what can fail fails before the first file changes.
fn stage<'a>(
    changes: &[Change<'_>],
    sources: &'a [Option<Slot>],
    results: &[Applied],
    targets: &'a [Option<Slot>],
) -> Result<Vec<Option<Staged<'a>>>, String> {
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
    Ok(staged)
}

/// Whether the files that will change or go away are still those that were read.
fn are_unchanged(sources: &[Option<Slot>], results: &[Applied]) -> Result<bool, String> {
    for (source, result) in sources.iter().zip(results) {
        if let (Some(slot), Some(read)) = (source, &result.before)
            && !slot.is_unchanged(read)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives the new contents their names, one file after the other.
fn carry_out(
    changes: &[Change<'_>],
    sources: &[Option<Slot>],
    results: &[Applied],
    staged: Vec<Option<Staged<'_>>>,
) -> Result<String, String> {
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
    if diff.len() > WRITE_BYTES_MAX {
        return Err(format!("a diff has at most {} MiB", WRITE_BYTES_MAX >> 20));
    }
    let diff = lf(diff);
    let lines: Vec<&str> = diff.lines().collect();
    let mut counted = String::with_capacity(diff.len());
    let mut index = 0;
    while let Some(&line) = lines.get(index) {
        index += 1;
        let Some(header) = Header::parse(line) else {
            if line.len() > HEADER_BYTES_MAX {
                return Err(format!(
                    "line {index} of the diff belongs to no hunk and is longer than {HEADER_BYTES_MAX} bytes"
                ));
            }
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
