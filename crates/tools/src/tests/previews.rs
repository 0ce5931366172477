//! What a person is shown who is asked for leave: what the call would do, and nothing that the agent may not read itself.

use nexus_core::permission::Reach;
use nexus_core::preview::Preview;
use nexus_core::tool::Access;
use serde_json::{Value, json};

use super::{SIDE_MAX, World, edits};
use crate::file_tools;
use crate::sandbox::Launcher;

impl World {
    async fn preview_within(
        &self,
        access: Access,
        tool: &str,
        arguments: Value,
    ) -> Option<Preview> {
        let tools = file_tools(&Launcher::own(), SIDE_MAX);
        let tool = tools.iter().find(|known| known.spec().name == tool).unwrap();
        tool.preview(&arguments, access).await
    }

    /// Reads everywhere and writes nothing, as one that has to ask.
    async fn preview(&self, tool: &str, arguments: Value) -> Option<Preview> {
        let access = self.access_with(|permissions| {
            permissions.read = Reach::Anywhere;
            permissions.write = Reach::beneath([]);
        });
        self.preview_within(access, tool, arguments).await
    }
}

/// The diff that is shown of a call on the file `a`, which holds three lines. The call changes nothing.
async fn check(tool: &str, arguments: Value, expected: &str) {
    let world = World::new().await;
    world.put("a", "one\ntwo\nthree\n");
    let Some(Preview::Diff(change)) = world.preview(tool, arguments).await else {
        panic!("{tool}: no diff");
    };
    assert_eq!(change.diff, expected, "{tool}");
    assert_eq!(change.path, world.work("a").to_str().unwrap());
    assert_eq!(world.get("a"), "one\ntwo\nthree\n");
}

#[tokio::test]
async fn a_change_is_shown_as_a_diff() {
    for (tool, arguments, expected) in edits() {
        check(tool, arguments, expected).await;
    }
}

#[tokio::test]
async fn a_new_file_is_all_added_and_not_made() {
    let world = World::new().await;
    let arguments = json!({"path": "deep/new", "content": "a\nb\n"});
    let Some(Preview::Diff(change)) = world.preview("write_file", arguments).await else {
        panic!("no diff");
    };
    assert_eq!((change.added, change.removed), (2, 0));
    assert!(!world.work("deep").exists());
}

#[tokio::test]
async fn of_what_is_no_text_or_may_not_be_read_only_the_length_is_shown() {
    let world = World::new().await;
    world.put("binary", b"a\0b");
    let write = |path: &str| json!({"path": path, "content": "12345"});
    let shown = world.preview("write_file", write("binary")).await;
    assert_eq!(shown, Some(Preview::Write { path: "binary".into(), bytes: 5 }));

    std::fs::write(world.outside("secret"), "TOP-SECRET").unwrap();
    let path = world.outside("secret").to_str().unwrap().to_owned();
    let hidden = Some(Preview::Write { path: path.clone(), bytes: 5 });
    // It may read its directory alone; or anything but what is blocked.
    for access in [world.access(), world.access_blocked()] {
        let shown = world.preview_within(access, "write_file", write(&path)).await;
        assert_eq!(shown, hidden);
    }
    let edit = json!({"path": path, "old_string": "TOP", "new_string": "x"});
    assert_eq!(world.preview_within(world.access(), "edit_file", edit).await, None);
}

#[tokio::test]
async fn what_would_fail_or_touches_several_files_has_no_preview() {
    let world = World::new().await;
    world.put("a", "a\n");
    world.put("b", "b\n");
    let edit = json!({"path": "a", "old_string": "zzz", "new_string": "x"});
    assert_eq!(world.preview("edit_file", edit).await, None);
    let diff = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+x\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+x\n";
    assert_eq!(world.preview("patch", json!({"diff": diff})).await, None);
    assert_eq!(world.preview("mkdir", json!({"path": "d"})).await, None);
}
