//! Writing, editing, copying and moving.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nexus_core::permission::Level;
use serde_json::json;

use super::super::edit::WriteFile;
use super::super::file_tool::FileTool as _;
use super::super::files::Files;
use super::super::files::write::WRITE_BYTES_MAX;
use super::super::sandbox::Launcher;
use super::{SIDE_MAX, World};

#[tokio::test]
async fn a_file_is_made_and_replaced() {
    let world = World::new().await;
    let write = |path: &str, content: &str| {
        world.run("write_file", json!({"path": path, "content": content}))
    };
    assert_eq!(write("new/dir/a", "one").await, Ok("Created new/dir/a (3 bytes).".into()));
    assert_eq!(write("new/dir/a", "").await, Ok("Replaced new/dir/a (0 bytes).".into()));
    assert_eq!(world.get("new/dir/a"), "");
    assert_eq!(write("new", "x").await, Err("new is a directory".into()));
    let error = write("new/dir/a/b", "x").await.unwrap_err();
    assert_eq!(error, "new/dir/a/b: a part of the path is not a directory");
    // `~` is a name like any other.
    assert!(write("~", "home").await.is_ok());
    assert_eq!(world.get("~"), "home");
    assert_eq!(temporaries(&world), 0);
}

fn temporaries(world: &World) -> usize {
    let names = std::fs::read_dir(world.work("")).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".nexus3-")).count()
}

#[tokio::test]
async fn a_write_is_bounded() {
    let world = World::new().await;
    let write = |length: usize| {
        world.run("write_file", json!({"path": "a", "content": "x".repeat(length)}))
    };
    assert!(write(WRITE_BYTES_MAX).await.is_ok());
    assert_eq!(write(WRITE_BYTES_MAX + 1).await, Err("a would be longer than 10 MiB".into()));
    let append = json!({"path": "a", "content": "x"});
    let error = world.run("append_file", append).await.unwrap_err();
    assert_eq!(error, "a would be longer than 10 MiB");
    // Small arguments must not make large texts either.
    world.put("b", "x".repeat(1000));
    for arguments in [
        json!({"path": "b", "pattern": "x", "replacement": "y".repeat(100_000)}),
        json!({"path": "b", "pattern": "x+", "replacement": "$0".repeat(100_000)}),
    ] {
        let error = world.run("regex_replace", arguments).await.unwrap_err();
        assert_eq!(error, "the replaced text would be too long");
    }
    let arguments = json!({"path": "b", "old_string": "x", "new_string": "y".repeat(100_000), "replace_all": true});
    let error = world.run("edit_file", arguments).await.unwrap_err();
    assert_eq!(error, "the replaced text would be too long");
    assert_eq!(world.get("b"), "x".repeat(1000));
    assert_eq!(temporaries(&world), 0);
}

#[tokio::test]
async fn the_mode_is_kept() {
    let world = World::new().await;
    let mode = |path: &str| world.work(path).metadata().unwrap().permissions().mode() & 0o7777;
    let set = |path: &str, mode| {
        std::fs::set_permissions(world.work(path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    world.put("run.sh", "echo\n");
    for (mode_before, mode_after) in [(0o755, 0o755), (0o600, 0o600), (0o4755, 0o755)] {
        set("run.sh", mode_before);
        let edit = json!({"path": "run.sh", "old_string": "echo", "new_string": "echo"});
        world.run("edit_file", edit).await.unwrap();
        assert_eq!(mode("run.sh"), mode_after);
    }
    world.run("write_file", json!({"path": "new", "content": ""})).await.unwrap();
    assert_eq!(mode("new") & !0o044, 0o600);
    world.run("copy_file", json!({"from": "run.sh", "to": "copy.sh"})).await.unwrap();
    assert_eq!(mode("copy.sh") & 0o700, 0o700);
    // Root may write everything; for anyone else a write-protected file stays.
    set("new", 0o400);
    let write = world.run("write_file", json!({"path": "new", "content": "x"})).await;
    match rustix::process::geteuid().is_root() {
        true => assert!(write.is_ok()),
        false => assert_eq!(write, Err("new is write-protected".into())),
    }
}

#[tokio::test]
async fn text_is_appended_as_it_is() {
    let world = World::new().await;
    let append = |content: &str| world.run("append_file", json!({"path": "a", "content": content}));
    assert_eq!(append("one").await, Ok("Created a (3 bytes).".into()));
    assert_eq!(append("two\n").await, Ok("Added 4 bytes to a.".into()));
    assert_eq!(world.get("a"), "onetwo\n");
}

#[tokio::test]
async fn an_edit_wants_exactly_one_place() {
    let world = World::new().await;
    world.put("a", "x y x\n");
    let edit = |old: &str, all: bool| {
        let arguments =
            json!({"path": "a", "old_string": old, "new_string": "z", "replace_all": all});
        world.run("edit_file", arguments)
    };
    let error = edit("x", false).await.unwrap_err();
    assert_eq!(
        error,
        "old_string occurs 2 times in a: give more of the text around it, or replace_all"
    );
    let error = edit("q", true).await.unwrap_err();
    assert_eq!(error, "old_string does not occur in a: read the file again");
    assert_eq!(world.get("a"), "x y x\n");
    assert_eq!(edit("x y", false).await, Ok("Replaced 1 occurrence in a.".into()));
    assert_eq!(world.get("a"), "z x\n");
    world.put("a", "x x\n");
    assert_eq!(edit("x", true).await, Ok("Replaced 2 occurrences in a.".into()));
    assert_eq!(world.get("a"), "z z\n");
}

#[tokio::test]
async fn lines_are_replaced_inserted_and_deleted() {
    let world = World::new().await;
    let check = async |before: &str, (start, end, text): (usize, usize, &str), after: &str| {
        world.put("a", before);
        let arguments = json!({"path": "a", "start": start, "end": end, "text": text});
        let done = world.run("edit_lines", arguments).await;
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(world.get("a"), after, "{before:?} {start} {end} {text:?}");
    };
    check("1\n2\n3\n", (2, 2, "x\ny"), "1\nx\ny\n3\n").await;
    check("1\n2\n3\n", (2, 2, "x\n"), "1\nx\n3\n").await;
    check("1\n2\n3", (3, 3, "x"), "1\n2\nx").await;
    check("1\n2\n3\n", (2, 1, "x"), "1\nx\n2\n3\n").await;
    check("1\n2\n3\n", (4, 3, "x"), "1\n2\n3\nx\n").await;
    check("1\n2\n3\n", (1, 2, ""), "3\n").await;
    check("1\n", (1, 1, ""), "").await;
    check("", (1, 0, "x"), "x\n").await;
    check("1\r\n2\r\n", (2, 2, "x\ny"), "1\r\nx\r\ny\r\n").await;
    check("1\n2\n", (1, 1, "\n"), "\n2\n").await;

    world.put("a", "1\n2\n");
    let beyond = json!({"path": "a", "start": 3, "end": 3, "text": "x"});
    assert_eq!(world.run("edit_lines", beyond).await, Err("a has 2 lines".into()));
}

#[tokio::test]
async fn a_regular_expression_replaces() {
    let world = World::new().await;
    let check = async |before: &str,
                       (pattern, replacement, count): (&str, &str, usize),
                       after: &str| {
        world.put("a", before);
        let arguments =
            json!({"path": "a", "pattern": pattern, "replacement": replacement, "count": count});
        let done = world.run("regex_replace", arguments).await;
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(world.get("a"), after, "{pattern}");
    };
    check("a1 b2\n", (r"(\w)(\d)", "${2}${1}", 0), "1a 2b\n").await;
    check("x x x\n", ("x", "y", 2), "y y x\n").await;
    check("one\ntwo\n", ("^", "> ", 2), "> one\n> two\n").await;
    check("one\r\ntwo\r\n", ("e$", "e\nx", 0), "one\r\nx\r\ntwo\r\n").await;
    let nothing = json!({"path": "a", "pattern": "zzz", "replacement": ""});
    let error = world.run("regex_replace", nothing).await.unwrap_err();
    assert_eq!(error, "the pattern matches nothing in a");
}

#[tokio::test]
async fn line_endings_marks_and_the_end_of_the_file_are_kept() {
    let world = World::new().await;
    let check = async |before: &str, after: &str| {
        world.put("a", before);
        let arguments = json!({"path": "a", "old_string": "b\nc", "new_string": "x\ny"});
        let done = world.run("edit_file", arguments).await;
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(world.get("a"), after);
    };
    check("a\r\nb\r\nc\r\n", "a\r\nx\r\ny\r\n").await;
    check("a\nb\nc", "a\nx\ny").await;
    check("\u{feff}b\r\nc", "\u{feff}x\r\ny").await;
    // Mixed: what is not edited stays as it is.
    check("a\r\nb\nc\r\n", "a\r\nx\ny\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_at_the_same_time_all_happen() {
    let world = World::new().await;
    let words: Vec<String> = (0..20).map(|number| format!("<{number}>")).collect();
    world.put("a", words.join("\n"));
    let edits = words.iter().map(|word| {
        let new = format!("done {word}");
        world.run("edit_file", json!({"path": "a", "old_string": word, "new_string": new}))
    });
    for done in futures_util::future::join_all(edits).await {
        done.unwrap();
    }
    let expected: Vec<String> = words.iter().map(|word| format!("done {word}")).collect();
    assert_eq!(world.get("a"), expected.join("\n"));
    assert_eq!(temporaries(&world), 0);
}

#[tokio::test]
async fn copying_and_moving_replace_nothing() {
    let world = World::new().await;
    world.put("a", b"\0binary");
    world.put("b", "kept");
    let run =
        |tool: &'static str, from: &str, to: &str| world.run(tool, json!({"from": from, "to": to}));
    assert_eq!(run("copy_file", "a", "new/c").await, Ok("Copied a to new/c.".into()));
    assert_eq!(world.get("new/c"), "\0binary");
    for tool in ["copy_file", "rename"] {
        assert_eq!(run(tool, "a", "b").await, Err("b: it exists already".into()), "{tool}");
        let missing = run(tool, "zzz", "c").await;
        assert_eq!(missing, Err("zzz: no such file or directory".into()), "{tool}");
    }
    assert_eq!(world.get("b"), "kept");
    assert_eq!(run("copy_file", "new", "d").await, Err("new is a directory".into()));
    assert_eq!(run("rename", "new", "old/er").await, Ok("Renamed new to old/er.".into()));
    assert_eq!(world.get("old/er/c"), "\0binary");
    assert_eq!(temporaries(&world), 0);
}

#[tokio::test]
async fn directories_are_made_with_those_above() {
    let world = World::new().await;
    let mkdir = |path: &str| world.run("mkdir", json!({"path": path}));
    assert_eq!(mkdir("a/b/c").await, Ok("Made a/b/c.".into()));
    assert!(world.work("a/b/c").is_dir());
    assert_eq!(mkdir("a/b").await, Ok("a/b is there already.".into()));
    world.put("file", "");
    assert_eq!(mkdir("file").await, Err("file is a file".into()));
}

#[tokio::test]
async fn directories_above_a_writable_place_are_not_made() {
    let world = World::new().await;
    let access = world.access_with(|permissions| {
        let only = world.work("missing/file.txt");
        permissions.write = nexus_core::permission::Reach::beneath([only]);
    });
    let arguments = json!({"path": "missing/file.txt", "content": "x"});
    let error = world.run_within(access, "write_file", arguments).await.unwrap_err();
    assert_eq!(error, "missing/file.txt lies outside what this agent may write");
    assert!(!world.work("missing").exists());
}

#[tokio::test]
async fn reading_is_no_leave_to_write() {
    let world = World::new().await;
    world.put("a", "x\n");
    let access = world.access_with(|permissions| {
        permissions.write = nexus_core::permission::Reach::nowhere();
    });
    for (tool, arguments) in [
        ("write_file", json!({"path": "a", "content": ""})),
        ("append_file", json!({"path": "a", "content": ""})),
        ("edit_file", json!({"path": "a", "old_string": "x", "new_string": "y"})),
        ("edit_lines", json!({"path": "a", "start": 1, "end": 1, "text": "y"})),
        ("regex_replace", json!({"path": "a", "pattern": "x", "replacement": "y"})),
        ("patch", json!({"diff": "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n"})),
        ("copy_file", json!({"from": "a", "to": "b"})),
        ("rename", json!({"from": "a", "to": "b"})),
        ("mkdir", json!({"path": "b"})),
    ] {
        let error = world.run_within(access.clone(), tool, arguments).await.unwrap_err();
        assert!(error.ends_with("lies outside what this agent may write"), "{tool}: {error}");
    }
    assert_eq!(world.get("a"), "x\n");
    assert!(!world.work("b").exists());
    let read = world.run_within(access, "read_file", json!({"path": "a"})).await;
    assert_eq!(read, Ok("x\n".into()));
}

#[tokio::test]
async fn a_name_like_the_kernels_mark_for_deleted_files_works() {
    let world = World::new().await;
    let path = "notes (deleted)";
    world.run("write_file", json!({"path": path, "content": "x"})).await.unwrap();
    world.run("append_file", json!({"path": path, "content": "y"})).await.unwrap();
    assert_eq!(world.run("read_file", json!({"path": path})).await, Ok("xy".into()));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_changes_nothing() {
    let world = World::new().await;
    world.put("a", "kept");
    let files =
        Files::new(world.access(), Arc::new(AtomicBool::new(true)), Launcher::own(), SIDE_MAX);
    let arguments = serde_json::from_value(json!({"path": "a", "content": "new"})).unwrap();
    assert_eq!(WriteFile::run(arguments, &files), Err("the call was cancelled".into()));
    assert_eq!(world.get("a"), "kept");
    assert_eq!(temporaries(&world), 0);
}

#[tokio::test]
async fn a_replacement_that_would_take_hours_is_an_answer() {
    let world = World::new().await;
    let bit = |n: u32| if n.wrapping_mul(2_654_435_761) >> 31 == 0 { '0' } else { '1' };
    world.put("bits", (0..4 << 20).map(bit).collect::<String>());
    let replace = async |pattern: &str| {
        let arguments = json!({"path": "bits", "pattern": pattern, "replacement": "2"});
        world.run("regex_replace", arguments).await
    };
    let error = replace("[01]*1[01]{2000}x").await.unwrap_err();
    assert_eq!(error, "it takes more than 10 s of processor time");
    assert_eq!(replace("^[01]").await.unwrap(), "Replaced 1 match in bits.");
}

/// Git takes a directory for a repository by what lies in it, and runs what its settings name.
#[tokio::test]
async fn no_tool_makes_a_bare_repository() {
    let file = |path: &str| ("write_file", json!({"path": path, "content": "ref: refs/heads/x\n"}));
    let mkdir = |path: &str| ("mkdir", json!({"path": path}));
    let rename = |from: &str, to: &str| ("rename", json!({"from": from, "to": to}));
    let patch = |path: &str| {
        let diff = format!("--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+x\n");
        ("patch", json!({"diff": diff}))
    };
    let copy = |from: &str, to: &str| ("copy_file", json!({"from": from, "to": to}));
    // All but the last are done.
    for steps in [
        vec![file("w/HEAD"), file("w/config"), mkdir("w/objects"), mkdir("w/refs")],
        vec![mkdir("w/objects/pack"), file("w/refs/x"), file("w/HEAD")],
        vec![mkdir("objects"), mkdir("refs"), patch("HEAD")],
        vec![mkdir("w/objects"), mkdir("w/refs"), file("w/a"), rename("w/a", "w/HEAD")],
        vec![mkdir("w/objects"), mkdir("w/refs"), file("w/a"), copy("w/a", "w/HEAD")],
        vec![file("w/HEAD"), mkdir("w/objects"), mkdir("w/r"), rename("w/r", "w/refs")],
        vec![file("w/HEAD"), mkdir("w/objects"), file("w/refs/heads/x")],
        vec![file("w/HEAD"), mkdir("w/refs"), patch("w/objects/x")],
        vec![file("w/HEAD"), file("w/commondir")],
        vec![file("w/commondir"), file("w/HEAD")],
    ] {
        let world = World::new().await;
        let last = steps.len() - 1;
        for (number, (tool, arguments)) in steps.into_iter().enumerate() {
            let said = world.run(tool, arguments.clone()).await;
            match number == last {
                false => assert!(said.is_ok(), "{arguments}: {said:?}"),
                true => {
                    let said = said.unwrap_err();
                    assert!(said.contains("would take the directory for a repository"), "{said}");
                }
            }
        }
        assert!(
            !["HEAD", "refs", "objects"].iter().all(|name| world.work("w").join(name).exists())
        );
    }
}

#[tokio::test]
async fn nothing_is_changed_in_a_bare_repository() {
    let world = World::new().await;
    for path in ["b.git/HEAD", "b.git/objects/x", "b.git/refs/x", "b.git/hooks/x"] {
        world.put(path, "x\n");
    }
    for (tool, arguments) in [
        ("write_file", json!({"path": "b.git/config", "content": "x"})),
        ("write_file", json!({"path": "b.git/hooks/deep/x", "content": "x"})),
        ("append_file", json!({"path": "b.git/hooks/x", "content": "x"})),
        ("edit_file", json!({"path": "b.git/HEAD", "old_string": "x", "new_string": "y"})),
        ("rename", json!({"from": "b.git/hooks/x", "to": "b.git/hooks/y"})),
        ("mkdir", json!({"path": "b.git/info"})),
        ("patch", json!({"diff": "--- b.git/HEAD\n+++ b.git/HEAD\n@@ -1 +1 @@\n-x\n+y\n"})),
    ] {
        let said = world.run(tool, arguments).await.unwrap_err();
        assert!(said.contains("lies in a bare git repository"), "{tool}: {said}");
    }
    let beside = json!({"path": "b.txt", "content": "x"});
    assert!(world.run("write_file", beside).await.is_ok());
    // At the highest level the agent is trusted with it.
    let access = world.access_with(|permissions| permissions.level = Level::Yolo);
    let config = json!({"path": "b.git/config", "content": "x"});
    assert!(world.run_within(access, "write_file", config).await.is_ok());
}

/// Whichever of two calls at once comes last is refused.
#[tokio::test(flavor = "multi_thread")]
async fn two_calls_at_once_make_no_bare_repository() {
    for _ in 0..50 {
        let world = World::new().await;
        world.put("w/HEAD", "x");
        let (objects, refs) = tokio::join!(
            world.run("mkdir", json!({"path": "w/objects"})),
            world.run("mkdir", json!({"path": "w/refs"})),
        );
        assert!(objects.is_ok() != refs.is_ok(), "{objects:?} {refs:?}");
    }
}
