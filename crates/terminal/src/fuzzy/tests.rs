//! Trees of files, walked; and lists of them, ranked.

use std::fs;
use std::time::{Duration, Instant};

use super::*;

fn tree(paths: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for path in paths {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "target/\n").unwrap();
    }
    root
}

fn known(paths: &[&str]) -> Files {
    let files = Files::default();
    let walk = files.begin();
    lock(&files.found).add(walk, paths.iter().map(ToString::to_string).collect(), PATHS_MAX);
    files
}

fn visited(root: &Path, heed: bool) -> Vec<String> {
    let mut paths = Vec::new();
    visit(root, heed, |batch| {
        paths.extend(batch);
        true
    });
    paths.sort();
    paths
}

#[test]
fn what_is_ignored_is_left_out_unless_asked_for() {
    let root =
        tree(&["src/main.rs", "target/debug/out", ".gitignore", ".github/ci.yml", ".git/config"]);
    assert_eq!(visited(root.path(), true), [".github/ci.yml", ".gitignore", "src/main.rs"]);
    assert_eq!(
        visited(root.path(), false),
        [".github/ci.yml", ".gitignore", "src/main.rs", "target/debug/out"]
    );
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let (outside, root) = (tree(&["secret"]), tree(&["a"]));
    std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
    std::os::unix::fs::symlink(root.path(), root.path().join("circle")).unwrap();
    assert_eq!(visited(root.path(), true), ["a", "circle", "link"]);
}

#[test]
fn a_walk_fills_the_list() {
    let root = tree(&["src/main.rs", "src/lib.rs"]);
    let files = Files::default();
    files.walk(root.path(), true);
    let deadline = Instant::now() + Duration::from_secs(60);
    while files.best("main", 8) != ["src/main.rs"] {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

#[test]
fn an_old_walk_adds_nothing_and_ends() {
    let files = Files::default();
    let old = files.begin();
    assert!(lock(&files.found).add(old, vec!["old".into()], 9));
    let new = files.begin();
    assert!(!lock(&files.found).add(old, vec!["older".into()], 9));
    assert!(lock(&files.found).add(new, vec!["new".into()], 9));
    assert_eq!(files.best("", 8), ["new"]);
    files.forget();
    assert!(!lock(&files.found).add(new, vec!["late".into()], 9));
    assert_eq!(files.best("", 8), Vec::<String>::new());
}

#[test]
fn a_walk_that_nobody_wants_ends_at_once() {
    let root = tree(&["a/b/c/d", "e/f/g"]);
    let mut asked = 0;
    visit(root.path(), true, |_| {
        asked += 1;
        false
    });
    assert_eq!(asked, 1);
}

#[test]
fn so_many_paths_are_kept_and_no_more() {
    let files = Files::default();
    let walk = files.begin();
    let batch = |count: usize| vec![String::from("a"); count];
    assert!(lock(&files.found).add(walk, batch(9), 10), "there is room");
    assert!(!lock(&files.found).add(walk, batch(1), 10));
    assert_eq!(files.best("", 99).len(), 10);
    assert!(!lock(&files.found).add(walk, batch(1), 10));
    assert_eq!(files.best("", 99).len(), 10);
}

#[test]
fn the_best_come_first() {
    let files =
        known(&["src/turn/mod.rs", "docs/turning.md", "src/turn.rs", "README.md", "a/b/c.rs"]);
    assert_eq!(files.best("turn.rs", 2)[0], "src/turn.rs");
    assert_eq!(files.best("stm", 8)[0], "src/turn/mod.rs");
    assert_eq!(files.best("READ", 8), ["README.md"]);
    assert_eq!(files.best("readme", 8), ["README.md"]);
    assert_eq!(files.best("zzz", 8), Vec::<String>::new());
    assert_eq!(files.best("", 2), ["README.md", "src/turn.rs"]);
    assert_eq!(files.best("turn", 0), Vec::<String>::new());
    assert_eq!(files.best("turn", 3).len(), 3);
    assert_eq!(files.best("src mod", 8), ["src/turn/mod.rs"], "words in any order");
    assert_eq!(files.best("mod src", 8), ["src/turn/mod.rs"]);
    assert_eq!(files.best("Turn", 8), Vec::<String>::new(), "an upper-case letter is meant");
    let files = known(&["crates/core/src/agent/task.rs", "tests/attack/skip.rs", "docs/ÄRGER.md"]);
    assert_eq!(files.best("task", 8)[0], "crates/core/src/agent/task.rs", "names count more");
    assert_eq!(files.best("ärger", 8), ["docs/ÄRGER.md"]);
}
