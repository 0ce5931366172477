//! The `git` tool, on friendly and on hostile repositories.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nexus_core::permission::{Permissions, Preset, Reach};
use serde_json::json;

use crate::support::{SECRET, World};

async fn git(world: &World, permissions: Permissions, line: &str) -> Result<String, String> {
    let args: Vec<&str> = line.split(' ').collect();
    world.call(permissions, "git", json!({"args": args})).await
}

fn sandboxed(world: &World) -> Permissions {
    Preset::built_in("sandboxed").unwrap().apply(&world.cwd, &[])
}

/// A repository in the agent's directory with two commits and a changed file, made without the tool.
async fn repository() -> World {
    let world = World::new().await;
    plain_git(&world.cwd, &["init", "-q", "-b", "main"]);
    plain_git(&world.cwd, &["config", "user.name", "A"]);
    plain_git(&world.cwd, &["config", "user.email", "a@example.org"]);
    for (at, text) in ["one\n", "two\n"].into_iter().enumerate() {
        std::fs::write(world.cwd.join("file.txt"), text).unwrap();
        plain_git(&world.cwd, &["add", "."]);
        plain_git(&world.cwd, &["commit", "-q", "-m", &format!("commit {at}")]);
    }
    std::fs::write(world.cwd.join("file.txt"), "three\n").unwrap();
    world
}

fn plain_git(dir: &Path, args: &[&str]) {
    let status = Command::new("git").args(args).current_dir(dir).status().unwrap();
    assert!(status.success(), "{args:?}");
}

const LOOKS: [&str; 22] = [
    "status",
    "status --short",
    "log --oneline",
    "log -p",
    "diff",
    "diff HEAD~1 --stat",
    "show HEAD",
    "blame file.txt",
    "branch -a",
    "tag",
    "grep -n three",
    "rev-parse HEAD",
    "ls-files -s",
    "ls-tree HEAD",
    "cat-file -p HEAD",
    "describe --always --dirty",
    "shortlog HEAD",
    "stash list",
    "reflog",
    "config --list",
    "for-each-ref",
    "diff-index HEAD",
];

#[tokio::test]
async fn looking_works_at_every_level_and_changes_nothing() {
    let world = repository().await;
    let before = contents(&world.cwd);
    for permissions in [sandboxed(&world), world.trusted(), world.yolo()] {
        for line in LOOKS {
            let said = git(&world, permissions.clone(), line).await.unwrap();
            assert!(said.starts_with("exit 0,"), "{line}: {said}");
        }
    }
    let said = git(&world, sandboxed(&world), "status --short").await.unwrap();
    assert!(said.ends_with("\n M file.txt\n"), "{said}");
    assert_eq!(contents(&world.cwd), before);
}

/// Every file with its bytes and when they were written.
fn contents(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let written = path.metadata().unwrap().modified().unwrap();
                found.insert(path.clone(), (std::fs::read(&path).unwrap(), written));
            }
        }
    }
    found
}

#[tokio::test]
async fn a_trusted_agent_commits() {
    let world = repository().await;
    for line in ["add .", "commit -m third", "switch -c side", "tag v1", "merge main"] {
        let said = git(&world, world.trusted(), line).await.unwrap();
        assert!(said.starts_with("exit 0,"), "{line}: {said}");
    }
    let said = git(&world, world.trusted(), "log --format=%s -1").await.unwrap();
    assert!(said.ends_with("\nthird\n"), "{said}");
    let said = git(&world, world.trusted(), "git -C . status --short").await.unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[tokio::test]
async fn dangerous_forms_are_refused_below_yolo_only() {
    let world = repository().await;
    for line in ["reset --hard", "push --force", "clean -fdx", "-c a.b=c status", "config a.b c"] {
        let said = git(&world, world.trusted(), line).await.unwrap_err();
        assert!(said.contains("is refused below the level yolo"), "{line}: {said}");
    }
    assert_eq!(std::fs::read_to_string(world.cwd.join("file.txt")).unwrap(), "three\n");
    let said = git(&world, world.yolo(), "reset --hard").await.unwrap();
    assert!(said.starts_with("exit 0,"), "{said}");
    assert_eq!(std::fs::read_to_string(world.cwd.join("file.txt")).unwrap(), "two\n");
}

/// Every setting by which a repository can have git run something, on commands that would obey it.
#[tokio::test]
async fn a_hostile_repository_runs_nothing() {
    let world = repository().await;
    let (marker, script) = (world.cwd.join("ran"), world.cwd.join("evil"));
    std::fs::write(
        &script,
        format!("#!/bin/sh\necho PWNED >&2; touch {}\ncat\n", marker.display()),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let evil = script.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.pager",
        "pager.log",
        "pager.diff",
        "pager.status",
        "core.editor",
        "core.sshCommand",
        "core.askPass",
        "core.alternateRefsCommand",
        "diff.external",
        "diff.evil.textconv",
        "diff.evil.command",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "gpg.program",
        "credential.helper",
        "alias.st",
        "interactive.diffFilter",
        "sequence.editor",
    ] {
        plain_git(&world.cwd, &["config", key, evil]);
    }
    plain_git(&world.cwd, &["config", "log.showSignature", "true"]);
    plain_git(&world.cwd, &["config", "filter.evil.required", "true"]);
    let hooks = world.cwd.join(".git/hooks");
    for hook in
        ["post-index-change", "fsmonitor-watchman", "post-checkout", "reference-transaction"]
    {
        std::fs::copy(&script, hooks.join(hook)).unwrap();
    }
    std::fs::write(world.cwd.join(".git/info/attributes"), "* diff=evil filter=evil\n").unwrap();
    std::fs::write(world.cwd.join(".gitattributes"), "* diff=evil filter=evil\n").unwrap();
    for permissions in [sandboxed(&world), world.trusted(), world.yolo()] {
        for line in LOOKS {
            let said = git(&world, permissions.clone(), line).await.unwrap();
            assert!(!said.contains("PWNED"), "{line}: {said}");
            assert!(!marker.exists(), "{line}: {said}");
        }
        // What the attributes cannot make a program run for still works.
        let said = git(&world, permissions.clone(), "log -p --format=%s").await.unwrap();
        assert!(said.starts_with("exit 0,") && said.contains("+two"), "{said}");
    }
    let said = git(&world, world.trusted(), "st").await.unwrap_err();
    assert!(said.contains("git st in this form is refused"), "{said}");
}

#[tokio::test]
async fn looking_reads_no_more_than_the_agent_may() {
    let world = repository().await;
    let outside = world.outside.join("secret").display().to_string();
    for line in ["grep -f OUT", "diff -OOUT", "ls-files --exclude-from=OUT", "-C OUT/.. status"] {
        let said = git(&world, sandboxed(&world), &line.replace("OUT", &outside)).await;
        let said = said.unwrap_or_else(|refusal| refusal);
        assert!(!said.starts_with("exit 0,") && !said.contains(SECRET), "{line}: {said}");
    }
    // Nor the repository around its directory.
    std::fs::create_dir(world.cwd.join("sub")).unwrap();
    let sub = Reach::beneath([world.cwd.join("sub")]);
    let permissions = Permissions { read: sub, ..sandboxed(&world) };
    let said =
        world.call(permissions, "git", json!({"args": ["log"], "cwd": "sub"})).await.unwrap();
    assert!(!said.starts_with("exit 0,") && !said.contains("commit 1"), "{said}");
}

/// `git diff` compares two files as they are when one of them lies outside the repository.
#[tokio::test]
async fn nothing_outside_the_repository_is_compared() {
    let world = repository().await;
    for line in
        ["diff /dev/null /etc/hosts", "diff -- /dev/null /etc/passwd", "diff file.txt /etc/hosts"]
    {
        let said = git(&world, sandboxed(&world), line).await.unwrap();
        assert!(said.contains("Permission denied") || !said.contains("+"), "{line}: {said}");
        assert!(!said.contains("localhost") && !said.contains("root:"), "{line}: {said}");
    }
}

/// A repository with a file `blocked/k.txt` that holds the secret, a neighbour, and a commit that changed both.
async fn with_blocked() -> (World, Permissions, Hashes) {
    let world = repository().await;
    std::fs::create_dir_all(world.cwd.join("blocked")).unwrap();
    for (at, neighbour) in ["open one\n", "open two\n"].into_iter().enumerate() {
        std::fs::write(world.cwd.join("blocked/k.txt"), format!("{SECRET} {at}\n")).unwrap();
        std::fs::write(world.cwd.join("open.txt"), neighbour).unwrap();
        plain_git(&world.cwd, &["add", "."]);
        plain_git(&world.cwd, &["commit", "-q", "-m", &format!("both {at}")]);
    }
    let blocked = [world.cwd.join("blocked")].into_iter().collect();
    let permissions = Permissions { blocked, ..sandboxed(&world) };
    let hash = |revision: &str| {
        let mut git = Command::new("git");
        let said = git.args(["rev-parse", revision]).current_dir(&world.cwd).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    };
    let hashes = Hashes {
        file: hash("HEAD:blocked/k.txt"),
        old_file: hash("HEAD~1:blocked/k.txt"),
        dir: hash("HEAD:blocked"),
        old_dir: hash("HEAD~1:blocked"),
        commit: hash("HEAD"),
    };
    (world, permissions, hashes)
}

struct Hashes {
    file: String,
    old_file: String,
    dir: String,
    old_dir: String,
    commit: String,
}

#[tokio::test]
async fn the_past_of_a_blocked_path_is_not_shown() {
    let (world, permissions, hashes) = with_blocked().await;
    let Hashes { file, old_file, dir, old_dir, commit } = &hashes;
    for line in [
        "show HEAD:blocked/k.txt".to_owned(),
        "show HEAD:./blocked/k.txt".into(),
        "show :blocked/k.txt".into(),
        "show :0:blocked/k.txt".into(),
        format!("show {file}"),
        format!("show {}", &file[..8]),
        format!("show x-1-g{file}"),
        format!("show {dir}:k.txt"),
        format!("log -p {file}"),
        format!("diff {old_file} {file}"),
        format!("diff {old_file}..{file}"),
        format!("diff {old_dir} {dir}"),
        format!("diff x-1-g{old_dir} x-1-g{dir}"),
        "diff HEAD~1:blocked HEAD:blocked".into(),
        "diff HEAD~1".into(),
        "diff HEAD~1 -- blocked".into(),
        "diff HEAD~1 -- blocked/k.txt".into(),
        "diff HEAD~1 HEAD --stat-width".into(),
        "show HEAD".into(),
        format!("show {commit}"),
        "show HEAD -- blocked/k.txt".into(),
        "log -p".into(),
        "log -p -- blocked/k.txt".into(),
        "log -p -- blocked".into(),
        "log -p --skip".into(),
        "log -p --full-diff -- open.txt".into(),
        "log --follow -p blocked/k.txt".into(),
        "log -L1,1:blocked/k.txt".into(),
        "log -L 1,1:blocked/k.txt".into(),
        "log -p --all".into(),
        "whatchanged -p".into(),
        "reflog -p".into(),
        "reflog show -p".into(),
        "stash list -p".into(),
        "blame blocked/k.txt".into(),
        "blame HEAD -- blocked/k.txt".into(),
        "blame HEAD -- ./x/../blocked/k.txt".into(),
        "annotate blocked/k.txt".into(),
        format!("cat-file -p {file}"),
        "cat-file blob HEAD:blocked/k.txt".into(),
        format!("grep -h . {file}"),
        format!("grep -h -e . {dir}"),
        "grep -h . HEAD".into(),
        "grep --cached -h .".into(),
        "grep -h .".into(),
        "diff-tree -p HEAD".into(),
        "diff-tree -p HEAD~1 HEAD".into(),
        "diff-index -p HEAD~1".into(),
        "range-diff HEAD~2 HEAD~1 HEAD".into(),
        "status -v".into(),
        "ls-tree -r HEAD".into(),
        "ls-files".into(),
        "rev-list --objects HEAD".into(),
        "config --list --blob HEAD:blocked/k.txt".into(),
        "-C .git log -p".into(),
    ] {
        let said = git(&world, permissions.clone(), &line).await.unwrap_or_else(|error| error);
        assert!(!said.contains(SECRET) && !said.contains("\nblocked/"), "{line}: {said}");
    }
    let refused = git(&world, permissions, "show HEAD:blocked/k.txt").await.unwrap_err();
    assert_eq!(
        refused,
        "git show HEAD:blocked/k.txt is refused: part of this repository is blocked for this agent, and it could show that part's past; use git log -p, git show REV -- PATH or git diff"
    );
}

#[tokio::test]
async fn what_lies_beside_a_blocked_path_is_shown() {
    let (world, permissions, hashes) = with_blocked().await;
    std::fs::write(world.cwd.join("open.txt"), "open three\n").unwrap();
    let commit = hashes.commit.as_str();
    for (line, expected) in [
        ("show HEAD", "+open two"),
        ("show COMMIT", "+open two"),
        ("show --stat COMMIT -- open.txt", "open.txt | 2 +-"),
        ("log -p -1", "+open two"),
        ("log -p -- open.txt", "+open one"),
        ("log --oneline", "both 1"),
        ("diff", "+open three"),
        ("diff HEAD~1", "-open one"),
        ("diff HEAD~1..HEAD", "+open two"),
        ("diff HEAD~1 COMMIT -- open.txt", "+open two"),
        ("blame open.txt", "open three"),
        ("grep -n three", "open.txt:1:open three"),
        ("grep -n -e three -- open.txt", "open.txt:1:open three"),
        ("status --short", " M open.txt"),
        ("ls-files", "open.txt"),
        ("branch -a", "main"),
        ("reflog -2", "both 1"),
        ("stash list", "exit 0"),
        ("rev-parse HEAD", commit),
    ] {
        let line = line.replace("COMMIT", commit);
        let said = git(&world, permissions.clone(), &line).await.unwrap();
        assert!(said.starts_with("exit 0,") && said.contains(expected), "{line}: {said}");
    }
    // Who is kept from nothing sees all.
    let said = git(&world, sandboxed(&world), "show HEAD:blocked/k.txt").await.unwrap();
    assert!(said.contains(SECRET), "{said}");
}
