//! What a git command line would do, as far as its words say. The kernel holds it to that.

use std::path::Path;

use nexus_core::tool::CommandKind;

/// A git command line, taken apart.
#[derive(Debug)]
pub(super) struct Plan {
    /// What `-C` says.
    dir: Option<String>,
    /// Options before the subcommand.
    globals: Vec<String>,
    pub(super) subcommand: String,
    /// What follows the subcommand.
    pub(super) args: Vec<String>,
}

impl Plan {
    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        // Models like to write the program too.
        let args = args.strip_prefix(&["git".to_string()]).unwrap_or(args);
        let mut plan =
            Self { dir: None, globals: Vec::new(), subcommand: String::new(), args: Vec::new() };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_str() {
                "--no-pager" | "-P" => {}
                "--version" => plan.subcommand = "version".into(),
                "-C" => {
                    let dir = rest.next().ok_or("-C needs a directory")?;
                    let joined = Path::new(plan.dir.as_deref().unwrap_or("")).join(dir);
                    plan.dir = joined.to_str().map(Into::into);
                }
                option if option.starts_with('-') => {
                    plan.globals.push(option.into());
                    if TAKE_A_VALUE.contains(&option) {
                        plan.globals.extend(rest.next().cloned());
                    }
                }
                subcommand => {
                    plan.subcommand = subcommand.into();
                    plan.args = rest.cloned().collect();
                    break;
                }
            }
        }
        if plan.subcommand.is_empty() {
            Err("args: a git subcommand is missing".into())
        } else {
            Ok(plan)
        }
    }

    /// Where git starts, relative to the agent's directory.
    pub(super) fn dir(&self, cwd: Option<&str>) -> String {
        let cwd = cwd.unwrap_or(".");
        match &self.dir {
            Some(dir) => Path::new(cwd).join(dir).to_string_lossy().into_owned(),
            None => cwd.into(),
        }
    }

    /// What `git diff` may open as files. Given two of which one lies outside the repository, it compares them as they
    /// are.
    pub(super) fn compared(&self) -> impl Iterator<Item = &str> {
        let words = (self.subcommand == "diff").then(|| self.words());
        words.into_iter().flatten().filter(|word| *word != "/dev/null")
    }

    /// The arguments again, with `diff_options` where git would otherwise run the repository's own diff programs.
    pub(super) fn into_args(self, diff_options: &[&str]) -> Vec<String> {
        let Self { globals, subcommand, mut args, .. } = self;
        let stash_show = subcommand == "stash" && args.first().is_some_and(|arg| arg == "show");
        if DIFFING.contains(&subcommand.as_str()) || stash_show {
            let at = usize::from(stash_show);
            args.splice(at..at, diff_options.iter().map(ToString::to_string));
        }
        globals.into_iter().chain([subcommand]).chain(args).collect()
    }

    /// Whether it is known to change nothing. What is not known to, may.
    pub(super) fn kind(&self) -> CommandKind {
        let first = self.args.first().map(String::as_str);
        let looks = match self.subcommand.as_str() {
            "grep" => !self.has("", "O", "efABCm"),
            "branch" => self.lists(BRANCH_CHANGES, "dDmMcCfut", "u"),
            "tag" => self.lists(TAG_CHANGES, "asufdmFev", "umF"),
            "remote" => {
                let verbose = |arg: &String| arg == "-v" || arg == "--verbose";
                first == Some("get-url") || self.args.iter().all(verbose)
            }
            "stash" | "notes" => matches!(first, Some("list" | "show")),
            "worktree" => first == Some("list"),
            "bisect" => first == Some("log"),
            "reflog" => !matches!(first, Some("expire" | "delete" | "drop" | "write")),
            "symbolic-ref" => self.words().count() == 1 && !self.has("delete", "dm", "m"),
            "config" => self.reads_config(),
            other => LOOKING.contains(&other),
        };
        let acts = ACTS.iter().any(|option| self.has_long(option));
        match self.globals.is_empty() && looks && !acts {
            true => CommandKind::ReadOnly,
            false => CommandKind::Any,
        }
    }

    /// What of it only the highest level may do: throw work away, rewrite what others have, run programs that git was
    /// handed, or change how git behaves from then on.
    pub(super) fn refused_below_yolo(&self) -> Option<String> {
        if let Some(global) = self.globals.first() {
            return Some(format!("the option {global} before the subcommand"));
        }
        let subcommand = self.subcommand.as_str();
        if !CHANGING.contains(&subcommand) && self.kind() != CommandKind::ReadOnly {
            let known = LOOKING.contains(&subcommand) || FORMS.contains(&subcommand);
            if !known || subcommand == "config" {
                return Some(format!("git {subcommand} in this form"));
            }
        }
        let refused = REFUSED.iter().filter(|refused| refused.subcommands.contains(&subcommand));
        for Refused { long, short, with_value, words, .. } in refused {
            if let Some(option) = long.iter().find(|option| self.has_long(option)) {
                return Some(format!("git {subcommand} --{option}"));
            }
            if let Some(letter) = short.chars().find(|letter| self.has_short(*letter, with_value)) {
                return Some(format!("git {subcommand} -{letter}"));
            }
            if let Some(word) = words.iter().find(|word| self.words().next() == Some(**word)) {
                return Some(format!("git {subcommand} {word}"));
            }
        }
        match subcommand {
            "clean" if !self.has("dry-run", "n", "e") => Some("git clean without --dry-run".into()),
            // `+ref` forces, `:ref` deletes.
            "push" => self
                .words()
                .find(|word| word.starts_with(['+', ':']))
                .map(|word| format!("git push {word}")),
            _ => None,
        }
    }

    /// For subcommands that list when they are given nothing to do.
    fn lists(&self, long: &[&str], short: &str, with_value: &str) -> bool {
        let changes = long.iter().any(|option| self.has_long(option))
            || short.chars().any(|letter| self.has_short(letter, with_value));
        let asks = self.words().next().is_none()
            || LISTING.iter().any(|option| self.options().any(|given| name_of(given) == *option))
            || self.has_short('l', with_value);
        !changes && asks
    }

    fn reads_config(&self) -> bool {
        // The action has to come first: behind an option it might be that option's value.
        let mut args = self.args.iter().map(String::as_str);
        let first = args.find(|arg| !CONFIG_PLACES.contains(arg)).unwrap_or_default();
        let one_key = self.args.len() == 1 && !first.starts_with('-') && first.contains('.');
        let reads = matches!(first, "get" | "list" | "-l")
            || CONFIG_READS.contains(&name_of(first.strip_prefix("--").unwrap_or_default()));
        one_key
            || (reads
                && !CONFIG_CHANGES.iter().any(|option| self.has_long(option))
                && !self.has_short('e', ""))
    }

    /// Whether one of the options is given: a long one, or one of the letters.
    fn has(&self, long: &str, short: &str, with_value: &str) -> bool {
        (!long.is_empty() && self.has_long(long))
            || short.chars().any(|letter| self.has_short(letter, with_value))
    }

    /// Whether the long option is given, in full or as an abbreviation, which git accepts.
    pub(super) fn has_long(&self, option: &str) -> bool {
        self.options().map(name_of).any(|given| {
            option == given
                || (!given.is_empty() && option.starts_with(given) && !WHOLE.contains(&given))
        })
    }

    /// The long options without their dashes.
    fn options(&self) -> impl Iterator<Item = &str> {
        self.before_paths().filter_map(|arg| arg.strip_prefix("--"))
    }

    /// Whether the letter is given, alone or among others. What follows a letter of `with_value` is its value.
    pub(super) fn has_short(&self, letter: char, with_value: &str) -> bool {
        let clusters = self.before_paths().filter(|arg| !arg.starts_with("--"));
        clusters.filter_map(|arg| arg.strip_prefix('-')).any(|letters| {
            let end = letters.find(|letter| with_value.contains(letter));
            let letters = end.map_or(letters, |end| &letters[..=end]);
            letters.contains(letter)
        })
    }

    /// The arguments that are no options.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.args.iter().map(String::as_str).filter(|arg| !arg.starts_with('-'))
    }

    pub(super) fn before_paths(&self) -> impl Iterator<Item = &str> {
        self.args.iter().map(String::as_str).take_while(|arg| *arg != "--")
    }
}

fn name_of(option: &str) -> &str {
    option.split_once('=').map_or(option, |(name, _)| name)
}

/// Options before the subcommand whose value is the next word.
const TAKE_A_VALUE: [&str; 8] = [
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--super-prefix",
    "--config-env",
    "--exec-path",
    "--attr-source",
];

/// Subcommands that look, whatever they are given beside [`ACTS`].
const LOOKING: [&str; 31] = [
    "annotate",
    "blame",
    "cat-file",
    "check-attr",
    "check-ignore",
    "cherry",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "for-each-ref",
    "grep",
    "log",
    "ls-files",
    "ls-tree",
    "merge-base",
    "name-rev",
    "range-diff",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "show-branch",
    "show-ref",
    "status",
    "var",
    "verify-pack",
    "version",
    "whatchanged",
];

/// Subcommands that look or change, as they are told.
const FORMS: [&str; 10] = [
    "branch",
    "tag",
    "remote",
    "stash",
    "notes",
    "worktree",
    "bisect",
    "reflog",
    "symbolic-ref",
    "config",
];

/// Subcommands that change something and are allowed below `yolo`, beside those in [`FORMS`]. An unknown one may be an
/// alias, which the repository can define as it likes.
const CHANGING: [&str; 30] = [
    "add",
    "am",
    "apply",
    "archive",
    "bundle",
    "checkout",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "fetch",
    "format-patch",
    "fsck",
    "gc",
    "init",
    "ls-remote",
    "merge",
    "mv",
    "pull",
    "push",
    "rebase",
    "reset",
    "restore",
    "revert",
    "rm",
    "sparse-checkout",
    "submodule",
    "switch",
    "update-index",
    "write-tree",
];

/// Subcommands that take diff options.
const DIFFING: [&str; 9] = [
    "annotate",
    "blame",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "log",
    "show",
    "whatchanged",
];

/// Options with which a subcommand that looks writes a file, runs a program or leaves the repository.
const ACTS: [&str; 8] = [
    "output",
    "ext-diff",
    "textconv",
    "filters",
    "no-index",
    "open-files-in-pager",
    "contents",
    "show-signature",
];

/// Options in full that would pass for an abbreviation of another.
const WHOLE: [&str; 2] = ["text", "filter"];

const LISTING: [&str; 7] =
    ["list", "contains", "no-contains", "merged", "no-merged", "points-at", "show-current"];

const BRANCH_CHANGES: &[&str] = &[
    "delete",
    "move",
    "copy",
    "force",
    "set-upstream-to",
    "unset-upstream",
    "track",
    "edit-description",
    "create-reflog",
    "no-list",
];

const TAG_CHANGES: &[&str] = &[
    "annotate",
    "sign",
    "local-user",
    "force",
    "delete",
    "verify",
    "message",
    "file",
    "edit",
    "create-reflog",
    "no-list",
];

/// Options that say only where `git config` looks and how it prints.
const CONFIG_PLACES: [&str; 7] = [
    "--global",
    "--local",
    "--system",
    "--worktree",
    "--show-origin",
    "--show-scope",
    "--name-only",
];

const CONFIG_READS: [&str; 6] =
    ["get", "get-all", "get-regexp", "get-urlmatch", "list", "get-color"];

const CONFIG_CHANGES: [&str; 8] = [
    "add",
    "append",
    "unset",
    "unset-all",
    "replace-all",
    "rename-section",
    "remove-section",
    "edit",
];

struct Refused {
    subcommands: &'static [&'static str],
    long: &'static [&'static str],
    short: &'static str,
    /// Letters after which the rest of a word is a value.
    with_value: &'static str,
    /// First words.
    words: &'static [&'static str],
}

const REFUSED: [Refused; 12] = [
    Refused {
        subcommands: &["push"],
        long: &[
            "force",
            "force-with-lease",
            "force-if-includes",
            "mirror",
            "delete",
            "prune",
            "receive-pack",
            "exec",
        ],
        short: "fd",
        with_value: "o",
        words: &[],
    },
    Refused { subcommands: &["reset"], long: &["hard"], short: "", with_value: "", words: &[] },
    Refused {
        subcommands: &["checkout", "switch"],
        long: &["force", "discard-changes"],
        short: "f",
        with_value: "bBcC",
        words: &[],
    },
    Refused {
        subcommands: &["branch"],
        long: &["force"],
        short: "DMCf",
        with_value: "u",
        words: &[],
    },
    Refused { subcommands: &["tag"], long: &["force"], short: "f", with_value: "umF", words: &[] },
    Refused {
        subcommands: &["rebase"],
        long: &["exec"],
        short: "x",
        with_value: "sXC",
        words: &[],
    },
    Refused {
        subcommands: &["fetch", "pull", "clone", "ls-remote", "archive"],
        long: &["upload-pack", "exec", "config", "template"],
        short: "",
        with_value: "",
        words: &[],
    },
    Refused { subcommands: &["clone"], long: &[], short: "cu", with_value: "obj", words: &[] },
    Refused {
        subcommands: &["fetch", "pull"],
        long: &["force"],
        short: "f",
        with_value: "osXj",
        words: &[],
    },
    Refused { subcommands: &["init"], long: &["template"], short: "", with_value: "b", words: &[] },
    Refused {
        subcommands: &["apply", "grep", "gc"],
        long: &["unsafe-paths", "open-files-in-pager", "prune"],
        short: "O",
        with_value: "CpefABm",
        words: &[],
    },
    Refused {
        subcommands: &["bisect", "submodule", "stash", "reflog", "worktree"],
        long: &["force"],
        short: "f",
        with_value: "mb",
        words: &["run", "visualize", "view", "foreach", "clear", "expire", "delete", "drop"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Plan {
        let args: Vec<String> = line.split(' ').map(Into::into).collect();
        Plan::parse(&args).unwrap()
    }

    #[test]
    fn looking_is_told_from_changing() {
        for line in [
            "status --short",
            "log --oneline -5",
            "log -p --text",
            "git diff HEAD~1 -- --output=x",
            "--no-pager show HEAD",
            "-C sub status",
            "blame -L1,3 f",
            "grep -n -e x",
            "grep -eO",
            "branch",
            "branch -a",
            "branch -vv",
            "branch --contains HEAD",
            "branch --show-current",
            "branch --list f*",
            "tag",
            "tag -l v*",
            "tag -n5",
            "remote -v",
            "remote get-url origin",
            "stash list",
            "stash show -p",
            "reflog",
            "reflog show HEAD",
            "reflog HEAD",
            "config --list",
            "config --get user.name",
            "config get user.name",
            "config user.name",
            "config --global --list",
            "config --show-origin --get user.name",
            "worktree list",
            "symbolic-ref --short HEAD",
            "rev-parse --show-toplevel",
            "ls-files -o --exclude-standard",
            "--version",
        ] {
            assert_eq!(plan(line).kind(), CommandKind::ReadOnly, "{line}");
            assert_eq!(plan(line).refused_below_yolo(), None, "{line}");
        }
        for line in [
            "add .",
            "commit -m x",
            "diff --output=x",
            "diff --output x",
            "log --outp=x",
            "log --ext-diff",
            "show --textconv x",
            "diff --no-index a b",
            "cat-file --filters x",
            "blame --contents x f",
            "log --show-signature",
            "grep -O x",
            "grep -nOless x",
            "grep --open-files-in-pager=sh x",
            "branch x",
            "branch -d x",
            "branch -m x",
            "branch --del x",
            "branch --merged x -d y",
            "branch -u origin/x",
            "tag v1",
            "tag -d v1",
            "tag -m x v1",
            "tag -v v1",
            "remote add o u",
            "remote show origin",
            "stash",
            "stash pop",
            "reflog expire --all",
            "config user.name x",
            "config --global user.name",
            "config --get-all --edit",
            "config --file --get user.name x",
            "config --file get user.name x",
            "branch --sort=-x new",
            "branch --list --no-list new",
            "remote -v set-url o u",
            "config set user.name x",
            "worktree add x",
            "symbolic-ref HEAD refs/heads/x",
            "symbolic-ref -d HEAD",
            "notes add",
            "bisect start",
            "unknown",
            "-c core.pager=x log",
            "--git-dir=x log",
            "--exec-path=x status",
            "ls-remote origin",
        ] {
            assert_eq!(plan(line).kind(), CommandKind::Any, "{line}");
        }
    }

    #[test]
    fn dangerous_forms_are_refused() {
        for line in [
            "push --force",
            "push -f",
            "push -uf origin x",
            "push --forc origin",
            "push --force-with-lease",
            "push --force-with-lease=x",
            "push origin +x",
            "push origin :x",
            "push -d origin x",
            "push --delete origin x",
            "push --mirror",
            "push --receive-pack=x",
            "push --exec=x",
            "reset --hard",
            "reset --har HEAD",
            "clean -fdx",
            "clean -f",
            "clean --force",
            "checkout -f",
            "checkout --force x",
            "switch --discard-changes x",
            "branch -D x",
            "branch -M x",
            "branch --force x",
            "branch -f x y",
            "tag -f v1",
            "rebase -x id main",
            "rebase --exec id main",
            "rebase --exec=id main",
            "bisect run id",
            "submodule foreach id",
            "stash clear",
            "reflog expire --all",
            "fetch --upload-pack=id",
            "fetch --upload-pack id o",
            "ls-remote --upload-pack=id x",
            "clone --config core.x=y u",
            "clone -c core.x=y u",
            "clone -u id u",
            "clone --template=x u",
            "init --template=x",
            "apply --unsafe-paths x",
            "grep -O x",
            "gc --prune=now",
            "config user.name x",
            "config --unset user.name",
            "config --global core.pager x",
            "config -e",
            "config set a.b c",
            "-c core.fsmonitor=id status",
            "-cx=y status",
            "--git-dir=/x log",
            "--git-dir /x log",
            "--work-tree=/x status",
            "--exec-path=/x status",
            "--config-env=a=b log",
            "-p log",
            "st",
            "filter-branch --tree-filter id",
            "difftool -x id",
            "mergetool",
            "daemon",
            "credential fill",
            "update-ref -d HEAD",
            "for-each-repo --config=x id",
            "maintenance start",
            "worktree remove --force x",
        ] {
            assert!(plan(line).refused_below_yolo().is_some(), "{line}");
        }
        for line in [
            "push",
            "push -u origin main",
            "push -ofoo origin",
            "reset --soft HEAD~1",
            "reset HEAD f",
            "clean -n",
            "clean --dry-run -fdx",
            "checkout -bfix",
            "checkout -b fix",
            "checkout -- f",
            "switch -c fix",
            "branch fix",
            "branch -d x",
            "tag v1",
            "tag -mf v1",
            "commit -m --force",
            "commit -am fix",
            "rebase main",
            "merge x",
            "stash pop",
            "fetch origin",
            "pull --rebase",
            "add -A",
            "worktree add x",
            "diff --output=x",
            "remote add o u",
        ] {
            assert_eq!(plan(line).refused_below_yolo(), None, "{line}");
        }
    }

    #[test]
    fn where_git_starts() {
        for (line, cwd, expected) in [
            ("status", None, "."),
            ("status", Some("a"), "a"),
            ("-C b status", Some("a"), "a/b"),
            ("-C b -C c status", None, "./b/c"),
            ("-C /x status", Some("a"), "/x"),
        ] {
            assert_eq!(plan(line).dir(cwd), expected, "{line}");
        }
    }

    #[test]
    fn what_is_no_subcommand_is_refused() {
        for line in [&[][..], &["git"], &["-C"], &["-C", "x"], &["--no-pager"]] {
            let args: Vec<String> = line.iter().map(ToString::to_string).collect();
            assert!(Plan::parse(&args).is_err(), "{line:?}");
        }
    }

    #[test]
    fn diff_programs_are_switched_off() {
        let args = |line: &str| plan(line).into_args(&["--no-x"]).join(" ");
        assert_eq!(args("log -p"), "log --no-x -p");
        assert_eq!(args("stash show -p"), "stash show --no-x -p");
        assert_eq!(args("stash list"), "stash list");
        assert_eq!(args("status"), "status");
    }
}
