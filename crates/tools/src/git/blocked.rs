//! Git that looks, where part of the repository is blocked for the agent. What the kernel keeps from git is the blocked
//! file; its past lies among the repository's objects beside that of every other file. So what git shows is narrowed to
//! the other paths, and what cannot be narrowed is refused: contents by their hash, by `REV:PATH`, by whole trees.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nexus_core::paths;

use super::plan::Plan;

/// The repositories that a directory lies in, and what is blocked in them.
pub(super) struct Blocked {
    dir: PathBuf,
    /// Where their working trees begin. A working tree within another may be of the same repository.
    tops: Vec<PathBuf>,
    /// From there.
    paths: BTreeSet<PathBuf>,
}

impl Blocked {
    /// `None` if nothing there is blocked.
    pub(super) fn find<'a>(
        dir: &Path,
        blocked: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Option<Self> {
        let is_top = |dir: &&Path| dir.join(".git").symlink_metadata().is_ok();
        let tops: Vec<PathBuf> = dir.ancestors().filter(is_top).map(Into::into).collect();
        let mut found = BTreeSet::new();
        for path in blocked {
            for place in [Some(path.clone()), path.canonicalize().ok()].into_iter().flatten() {
                found.extend(
                    tops.iter().filter_map(|top| Some(place.strip_prefix(top).ok()?.into())),
                );
            }
        }
        let some = !found.is_empty();
        some.then(|| Self { dir: dir.into(), tops, paths: found })
    }

    /// The plan without what is blocked.
    pub(super) fn narrow(&self, mut plan: Plan) -> Result<Plan, String> {
        if self.dir.components().any(|part| part.as_os_str() == ".git") {
            return Err(refused("git within a .git directory", "run it in the working tree"));
        }
        let subcommand = plan.subcommand.clone();
        match subcommand.as_str() {
            "log" | "whatchanged" => self.narrow_log(&mut plan)?,
            "show" => {
                refuse_colons(&plan)?;
                // What `show` is, but for objects that are no commits.
                plan.subcommand = "log".into();
                plan.args.splice(0..0, ["--no-walk".into(), "--cc".into()]);
                self.narrow_log(&mut plan)?;
            }
            "diff" => {
                refuse_colons(&plan)?;
                refuse_options(&plan, &["submodule"], "", "")?;
                let paths = plan.args.iter().position(|arg| arg == "--");
                let revisions = paths.unwrap_or(plan.args.len());
                for word in plan.args[..revisions].iter_mut().filter(|arg| !arg.starts_with('-')) {
                    *word = as_commits(word);
                }
                self.exclude(&mut plan, &["--no-ext-diff"])?;
            }
            "grep" => {
                refuse_revisions_of_grep(&plan)?;
                self.exclude(&mut plan, &[])?;
            }
            "status" => {
                refuse_options(&plan, &["verbose"], "v", "u")?;
                self.exclude(&mut plan, &[])?;
            }
            "ls-files" => self.exclude(&mut plan, &["--no-abbrev"])?,
            "blame" | "annotate" => self.refuse_blocked_words(&plan)?,
            "rev-parse" => refuse_colons(&plan)?,
            "rev-list" => refuse_options(&plan, &["objects", "objects-edge"], "", "")?,
            "config" => refuse_options(&plan, &["blob"], "", "")?,
            "reflog" | "stash" => refuse_log_options(&plan)?,
            "for-each-ref" | "branch" | "tag" => {
                let raw = |arg: &&String| arg.contains("%(") && arg.contains("raw");
                if let Some(format) = plan.args.iter().find(raw) {
                    return Err(refused(&format!("git {subcommand} {format}"), OTHERWISE));
                }
            }
            other if WITHOUT_CONTENTS.contains(&other) => {}
            other => return Err(refused(&format!("git {other}"), OTHERWISE)),
        }
        Ok(plan)
    }

    fn narrow_log(&self, plan: &mut Plan) -> Result<(), String> {
        // What shows more than the paths it is given, or takes none beside its own.
        refuse_options(plan, &["full-diff", "follow", "submodule"], "L", "SGOUnlBMCXDI")?;
        self.exclude(plan, &["--no-ext-diff"])
    }

    /// Adds pathspecs that leave out what is blocked. `last` are options without effect, one of which an option before
    /// them that lacks its value would take for it, instead of the `--`.
    fn exclude(&self, plan: &mut Plan, last: &[&str]) -> Result<(), String> {
        if !plan.args.iter().any(|arg| arg == "--") {
            plan.args.extend(last.iter().map(ToString::to_string));
            plan.args.push("--".into());
        }
        for path in &self.paths {
            let path = path.to_str().ok_or("a blocked path in this repository is no text")?;
            plan.args.push(format!(":(top,exclude,literal){path}"));
        }
        Ok(())
    }

    fn refuse_blocked_words(&self, plan: &Plan) -> Result<(), String> {
        for word in plan.words() {
            let place = paths::lexical(&self.dir.join(word));
            let mut within = self.tops.iter().filter_map(|top| place.strip_prefix(top).ok());
            if within.any(|path| self.paths.iter().any(|blocked| path.starts_with(blocked))) {
                return Err(format!("{word} is a blocked path"));
            }
        }
        Ok(())
    }
}

const OTHERWISE: &str = "use git log -p, git show REV -- PATH or git diff";

fn refused(what: &str, instead: &str) -> String {
    format!(
        "{what} is refused: part of this repository is blocked for this agent, and it could show that part's past; {instead}"
    )
}

/// `REV:PATH` names contents, whatever pathspecs say.
fn refuse_colons(plan: &Plan) -> Result<(), String> {
    match plan.before_paths().find(|arg| !arg.starts_with('-') && arg.contains(':')) {
        Some(word) => Err(refused(&format!("git {} {word}", plan.subcommand), OTHERWISE)),
        None => Ok(()),
    }
}

fn refuse_options(plan: &Plan, long: &[&str], short: &str, with_value: &str) -> Result<(), String> {
    let subcommand = &plan.subcommand;
    if let Some(option) = long.iter().find(|option| plan.has_long(option)) {
        return Err(refused(&format!("git {subcommand} --{option}"), OTHERWISE));
    }
    match short.chars().find(|letter| plan.has_short(*letter, with_value)) {
        Some(letter) => Err(refused(&format!("git {subcommand} -{letter}"), OTHERWISE)),
        None => Ok(()),
    }
}

/// A word before the paths that is not the pattern may be the hash of a file or of a tree.
fn refuse_revisions_of_grep(plan: &Plan) -> Result<(), String> {
    const WITH_VALUE: &str = "efABCm";
    let takes_next = |arg: &str| {
        arg.strip_prefix('-').is_some_and(|letters| {
            let first = letters.find(|letter| WITH_VALUE.contains(letter));
            !letters.starts_with('-') && first.is_some_and(|at| at + 1 == letters.len())
        })
    };
    let mut words = 0;
    let mut is_value = false;
    for arg in plan.before_paths() {
        words += usize::from(!is_value && !arg.starts_with('-'));
        is_value = !is_value && takes_next(arg);
    }
    let patterns =
        usize::from(!plan.has_short('e', WITH_VALUE) && !plan.has_short('f', WITH_VALUE));
    match words <= patterns {
        true => Ok(()),
        false => Err(refused("git grep in a revision", "put paths after --")),
    }
}

/// These hand their options to `git log`.
fn refuse_log_options(plan: &Plan) -> Result<(), String> {
    let counts = |arg: &str| arg[1..].bytes().all(|byte| byte.is_ascii_digit());
    let shows = plan.subcommand == "stash" && plan.args.first().is_some_and(|arg| arg == "show");
    match plan.args.iter().find(|arg| shows || arg.starts_with('-') && !counts(arg)) {
        Some(arg) => Err(refused(&format!("git {} {arg}", plan.subcommand), OTHERWISE)),
        None => Ok(()),
    }
}

/// A revision, or two with dots between them, each of which has to be a commit: a tree may be a blocked directory.
fn as_commits(word: &str) -> String {
    let commit = |revision: &str| match revision {
        "" => String::new(),
        revision => format!("{revision}^{{commit}}"),
    };
    for dots in ["...", ".."] {
        if let Some((one, other)) = word.split_once(dots) {
            return format!("{}{dots}{}", commit(one), commit(other));
        }
    }
    commit(word)
}

/// Subcommands that show commits, refs, names and settings, and no file's contents.
const WITHOUT_CONTENTS: [&str; 18] = [
    "bisect",
    "check-attr",
    "check-ignore",
    "cherry",
    "count-objects",
    "describe",
    "merge-base",
    "name-rev",
    "notes",
    "remote",
    "shortlog",
    "show-branch",
    "show-ref",
    "symbolic-ref",
    "var",
    "verify-pack",
    "version",
    "worktree",
];
