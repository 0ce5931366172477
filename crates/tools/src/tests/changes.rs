//! What those who look on are shown of a file that a call changed.

use std::sync::Arc;

use nexus_core::preview::FileChange;
use nexus_core::tool::Onlookers;
use serde_json::{Value, json};

use super::{World, edits};

struct Person;

impl Onlookers for Person {
    fn want_changes(&self) -> bool {
        true
    }

    fn want_output(&self) -> bool {
        false
    }

    fn show_output(&self, _: String) {}
}

impl World {
    async fn change(&self, tool: &str, arguments: Value) -> Option<FileChange> {
        let done = self.output_before(Arc::new(Person), self.access(), tool, arguments).await;
        done.unwrap().change
    }
}

/// The diff that a call makes of the file `a`, which holds three lines.
async fn check(tool: &str, arguments: Value, expected: &str) {
    let world = World::new().await;
    world.put("a", "one\ntwo\nthree\n");
    let unseen = world.shown(tool, arguments.clone()).await.unwrap();
    assert_eq!(unseen.change, None, "{tool}: nobody looks on");
    world.put("a", "one\ntwo\nthree\n");
    let change = world.change(tool, arguments).await.unwrap();
    assert_eq!(change.diff, expected, "{tool}");
    assert_eq!(change.path, world.work("a").to_str().unwrap());
}

#[tokio::test]
async fn every_tool_that_changes_a_file_shows_what_became_of_it() {
    for (tool, arguments, expected) in edits() {
        check(tool, arguments, expected).await;
    }
    let gone = "--- a/a\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n";
    check("patch", json!({"diff": gone}), "@@ -1,3 +0,0 @@\n-one\n-two\n-three\n").await;
}

#[tokio::test]
async fn a_file_that_was_made_is_all_added() {
    let world = World::new().await;
    let made =
        world.change("write_file", json!({"path": "new", "content": "a\nb\n"})).await.unwrap();
    assert_eq!((made.added, made.removed, made.truncated), (2, 0, false));
    let made =
        world.change("append_file", json!({"path": "newer", "content": "a\n"})).await.unwrap();
    assert_eq!(made.diff, "@@ -0,0 +1,1 @@\n+a\n");
}

#[tokio::test]
async fn what_is_no_text_moves_or_is_several_files_shows_nothing() {
    let world = World::new().await;
    world.put("binary", b"a\0b");
    assert_eq!(world.change("write_file", json!({"path": "binary", "content": "x"})).await, None);
    assert_eq!(world.change("copy_file", json!({"from": "binary", "to": "copy"})).await, None);
    assert_eq!(world.change("rename", json!({"from": "copy", "to": "moved"})).await, None);
    assert_eq!(world.change("mkdir", json!({"path": "d"})).await, None);
    world.put("a", "a\n");
    world.put("b", "b\n");
    let diff = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+x\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+x\n";
    assert_eq!(world.change("patch", json!({"diff": diff})).await, None);
    assert_eq!(world.get("b"), "x\n");
}
