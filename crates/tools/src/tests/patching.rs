//! Unified diffs, well made and not.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::json;

use super::super::file_tool::FileTool as _;
use super::super::files::Files;
use super::super::files::write::WRITE_BYTES_MAX;
use super::super::patch::Patch;
use super::super::sandbox::Launcher;
use super::{SIDE_MAX, World};

async fn patch(world: &World, diff: &str) -> Result<String, String> {
    world.run("patch", json!({"diff": diff})).await
}

/// Applies `diff` to a file `f` that holds `before`.
async fn check(before: &str, diff: &str, after: &str) {
    let world = World::new().await;
    world.put("f", before);
    let done = patch(&world, diff).await;
    assert_eq!(done, Ok("Patched f (1 hunk).\n".into()), "{diff}");
    assert_eq!(world.get("f"), after, "{diff}");
}

#[tokio::test]
async fn a_diff_changes_a_file() {
    let change = "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n";
    check("a\nb\nc\n", &format!("--- a/f\n+++ b/f\n{change}"), "a\nx\nc\n").await;
    check("a\nb\nc\n", &format!("--- f\n+++ f\n{change}"), "a\nx\nc\n").await;
    check(
        "a\nb\nc\n",
        &format!("diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n{change}"),
        "a\nx\nc\n",
    )
    .await;
    // Some lines further down than the diff says.
    check("0\n0\n0\na\nb\nc\n", &format!("--- f\n+++ f\n{change}"), "0\n0\n0\na\nx\nc\n").await;
}

#[tokio::test]
async fn what_models_get_wrong_in_diffs_is_put_right() {
    // Wrong counts, which would silently drop the second change.
    let diff = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+x\n c\n-d\n+y\n";
    check("a\nb\nc\nd\n", diff, "a\nx\nc\ny\n").await;
    // A blank line of context without its blank, and blank lines at the end.
    let diff = "--- f\n+++ f\n@@ -1,3 +1,3 @@\n a\n\n-b\n+x\n\n\n";
    check("a\n\nb\n", diff, "a\n\nx\n").await;
    // The file has no newline at its end, and the diff does not say so.
    let diff = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+x\n";
    check("a\nb", diff, "a\nx").await;
    check("a\r\nb\r\n", diff, "a\r\nx\r\n").await;
    check("a\nb\n", &diff.replace('\n', "\r\n"), "a\nx\n").await;
    // A removed line that looks like a header.
    let diff = "--- f\n+++ f\n@@ -1,2 +1,1 @@\n a\n--- b\n";
    check("a\n-- b\n", diff, "a\n").await;
}

#[tokio::test]
async fn several_files_are_changed_made_moved_and_deleted() {
    let world = World::new().await;
    world.put("old", "moved\n");
    world.put("gone", "x\n");
    world.put("kept", "1\n");
    let diff = "\
diff --git a/kept b/kept
--- a/kept
+++ b/kept
@@ -1 +1,2 @@
 1
+2
diff --git a/dir/run.sh b/dir/run.sh
new file mode 100755
--- /dev/null
+++ b/dir/run.sh
@@ -0,0 +1 @@
+echo
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/old b/new
similarity index 50%
rename from old
rename to new
--- a/old
+++ b/new
@@ -1 +1 @@
-moved
+there
diff --git a/kept b/copy
similarity index 100%
copy from kept
copy to copy
";
    let done = patch(&world, diff).await.unwrap();
    assert_eq!(
        done,
        "Patched kept (1 hunk).\nCreated dir/run.sh.\nDeleted gone.\nRenamed old to new (1 hunk).\nCopied kept to copy (0 hunks).\n"
    );
    assert_eq!(world.get("kept"), "1\n2\n");
    assert_eq!(world.get("dir/run.sh"), "echo\n");
    assert_eq!(world.get("new"), "there\n");
    assert_eq!(world.get("copy"), "1\n");
    assert!(!world.work("gone").exists() && !world.work("old").exists());
    let mode = world.work("dir/run.sh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o700, 0o700);
}

#[tokio::test]
async fn a_hunk_that_does_not_fit_is_named_and_nothing_is_applied() {
    let world = World::new().await;
    world.put("a", "1\n");
    world.put("b", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let diff = "\
--- a/a
+++ b/a
@@ -1 +1 @@
-1
+changed
--- /dev/null
+++ b/dir/new
@@ -0,0 +1 @@
+new
--- a/b
+++ b/b
@@ -1,2 +1,2 @@
-1
+changed
 2
@@ -8,2 +8,2 @@
 8
-not there
+changed
";
    let error = patch(&world, diff).await.unwrap_err();
    assert_eq!(
        error,
        "hunk 2 (at line 8 of the file) does not fit b: its lines are not there. Nothing was applied; read the file again"
    );
    assert_eq!(world.get("a"), "1\n");
    assert!(world.get("b").starts_with("1\n"));
    assert!(!world.work("dir").exists());
}

#[tokio::test]
async fn a_diff_that_cannot_be_meant_is_refused() {
    let world = World::new().await;
    world.put("f", "a\nb\n");
    world.put("g", "a\n");
    let check = async |diff: &str, expected: &str| {
        let error = patch(&world, diff).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check(
        "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+x\nforgot the blank\n",
        "line 6 of the diff begins neither",
    )
    .await;
    let twice = "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+x\n";
    check(&twice.repeat(2), "the diff changes f twice").await;
    check("--- f\n+++ g\n@@ -1 +1 @@\n-a\n+x\n", "names two files, f and g").await;
    check("--- /dev/null\n+++ g\n@@ -0,0 +1 @@\n+x\n", "g exists already").await;
    check("--- f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "f holds more than the diff deletes").await;
    check("--- h\n+++ h\n@@ -1 +1 @@\n-a\n+x\n", "h: no such file").await;
    let link =
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n";
    check(link, "may not make links").await;
    check("diff --git a/i b/i\nBinary files a/i and b/i differ\n", "binary").await;
    check("", "the diff cannot be read").await;
    assert_eq!(world.get("f"), "a\nb\n");
    assert_eq!(world.get("g"), "a\n");
    let many: String =
        (0..101).map(|n| format!("--- /dev/null\n+++ n{n}\n@@ -0,0 +1 @@\n+x\n")).collect();
    check(&many, "at most 100 files").await;
    let fits: String =
        (0..100).map(|n| format!("--- /dev/null\n+++ n{n}\n@@ -0,0 +1 @@\n+x\n")).collect();
    assert!(patch(&world, &fits).await.is_ok());
}

/// Each line of the file resembles the start of the hunk, whose last line is nowhere.
#[tokio::test]
async fn a_hunk_that_would_be_looked_for_for_minutes_is_an_answer() {
    let world = World::new().await;
    world.put("f", "a\n".repeat(2_000_000));
    let diff = |context: usize| {
        format!("--- f\n+++ f\n@@ -1,2 +1,2 @@\n{}-b\n+c\n", " a\n".repeat(context))
    };
    let error = patch(&world, &diff(60_000)).await.unwrap_err();
    assert_eq!(
        error,
        "to find where the hunks go in f, more than 1024 MiB would have to be compared: give them the right line numbers, or split the diff. Nothing was applied"
    );
    let error = patch(&world, &diff(1)).await.unwrap_err();
    assert!(error.starts_with("hunk 1 (at line 1 of the file) does not fit f"), "{error}");
}

#[tokio::test]
async fn a_diff_that_is_too_long_is_refused() {
    let world = World::new().await;
    let long = |bytes: usize| {
        let header = "--- /dev/null\n+++ f\n@@ -0,0 +1 @@\n+";
        format!("{header}{}\n", "x".repeat(bytes - header.len() - 1))
    };
    assert!(patch(&world, &long(WRITE_BYTES_MAX)).await.is_ok());
    let error = patch(&world, &long(WRITE_BYTES_MAX + 1)).await.unwrap_err();
    assert_eq!(error, "a diff has at most 10 MiB");
    let name = |bytes: usize| {
        format!("--- /dev/null\n+++ g{}\n@@ -0,0 +1 @@\n+x\n", " ".repeat(bytes - 5))
    };
    let error = patch(&world, &name(10_001)).await.unwrap_err();
    assert!(
        error.starts_with("line 2 of the diff belongs to no hunk and is longer than 10000"),
        "{error}"
    );
    let error = patch(&world, &name(10_000)).await.unwrap_err();
    assert!(error.contains("at most 4096 bytes"), "{error}");
}

/// While one call looks for the place of its hunk, others change the same file and other files.
#[tokio::test]
async fn a_patch_keeps_nobody_waiting_and_loses_no_change() {
    let world = World::new().await;
    world.put("f", (0..20).map(|n| format!("line {n}\n")).collect::<String>());
    let changes = (0..20).map(|n| {
        let world = &world;
        async move {
            let diff = format!("--- f\n+++ f\n@@ -1 +1 @@\n-line {n}\n+changed {n}\n");
            patch(world, &diff).await
        }
    });
    for done in futures_util::future::join_all(changes).await {
        assert_eq!(done, Ok("Patched f (1 hunk).\n".into()));
    }
    assert_eq!(world.get("f"), (0..20).map(|n| format!("changed {n}\n")).collect::<String>());
}

#[tokio::test]
async fn a_patch_that_nobody_waits_for_ends() {
    let world = World::new().await;
    world.put("f", "a\n".repeat(1000));
    let files =
        Files::new(world.access(), Arc::new(AtomicBool::new(true)), Launcher::own(), SIDE_MAX);
    let diff = json!({"diff": "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n"});
    let arguments = serde_json::from_value(diff).unwrap();
    assert_eq!(Patch::run(arguments, &files), Err("the call was cancelled".into()));
}
