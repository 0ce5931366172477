//! Reading, listing, finding and outlining.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::json;

use super::super::file_tool::FileTool as _;
use super::super::files::{Files, READ_BYTES_MAX};
use super::super::outline::Outline;
use super::super::sandbox::Launcher;
use super::super::search::SearchText;
use super::super::text::OUTPUT_BYTES_MAX;
use super::{SIDE_MAX, World};

#[tokio::test]
async fn a_file_is_read_whole_or_in_part() {
    let world = World::new().await;
    world.put("a", "one\ntwo\nthree");
    let read = |arguments| world.run("read_file", arguments);
    assert_eq!(read(json!({"path": "a"})).await, Ok("one\ntwo\nthree".into()));
    let part = read(json!({"path": "a", "offset": 2, "limit": 1})).await.unwrap();
    assert_eq!(part, "[lines 2-2 of 3; read on with offset 3]\ntwo\n");
    assert_eq!(read(json!({"path": "a", "offset": 3})).await, Ok("three".into()));
    let beyond = read(json!({"path": "a", "offset": 4})).await;
    assert_eq!(beyond, Err("a has only 3 lines".into()));
    world.put("empty", "");
    assert_eq!(read(json!({"path": "empty"})).await, Ok(String::new()));
    let missing = read(json!({"path": "b"})).await;
    assert_eq!(missing, Err("b: no such file or directory".into()));
    assert_eq!(read(json!({"path": "."})).await, Err(". is a directory".into()));
}

#[tokio::test]
async fn what_is_handed_over_is_bounded_and_says_so() {
    let world = World::new().await;
    let read = |path: &str| world.run("read_file", json!({"path": path}));
    let line = "x".repeat(99) + "\n";
    let lines = OUTPUT_BYTES_MAX / 100;
    world.put("fits", line.repeat(lines));
    assert_eq!(read("fits").await.unwrap().len(), OUTPUT_BYTES_MAX);
    world.put("over", line.repeat(lines + 1));
    let cut = read("over").await.unwrap();
    let header = format!("[lines 1-{lines} of {}; read on with offset {}]\n", lines + 1, lines + 1);
    assert!(cut.starts_with(&header), "{}", &cut[..60]);
    world.put("one line", "ä".repeat(OUTPUT_BYTES_MAX));
    let cut = read("one line").await.unwrap();
    assert!(cut.starts_with("[the first 50000 of 100000 bytes of line 1]\nä"), "{}", &cut[..60]);

    world.put("large", vec![b'x'; READ_BYTES_MAX as usize]);
    assert!(read("large").await.is_ok());
    world.put("too large", vec![b'x'; READ_BYTES_MAX as usize + 1]);
    let error = read("too large").await.unwrap_err();
    assert_eq!(error, "too large is longer than 10 MiB: use tail or search_text on it");
}

#[tokio::test]
async fn binary_files_are_recognised() {
    let world = World::new().await;
    world.put("binary", b"\x7fELF\0\0");
    world.put("latin", b"caf\xe9\n");
    for tool in ["read_file", "tail"] {
        let refused = world.run(tool, json!({"path": "binary"})).await;
        assert_eq!(refused, Err("binary is a binary file (6 bytes)".into()), "{tool}");
        let lossy = world.run(tool, json!({"path": "latin"})).await;
        assert_eq!(lossy, Ok("caf\u{fffd}\n".into()), "{tool}");
    }
    let append = json!({"path": "binary", "content": "x"});
    assert!(world.run("append_file", append).await.unwrap_err().contains("binary"));
    let edit = json!({"path": "latin", "old_string": "caf", "new_string": "x"});
    let refused = world.run("edit_file", edit).await;
    assert_eq!(refused, Err("latin is not UTF-8 text".into()));
}

#[tokio::test]
async fn the_end_of_a_file_of_any_size_is_read() {
    let world = World::new().await;
    let tail = |arguments| world.run("tail", arguments);
    world.put("log", (1..=100).map(|n| format!("line {n}\n")).collect::<String>());
    assert_eq!(tail(json!({"path": "log", "lines": 2})).await.unwrap(), "line 99\nline 100\n");
    assert_eq!(tail(json!({"path": "log"})).await.unwrap().lines().count(), 50);
    world.put("huge", vec![b'x'; READ_BYTES_MAX as usize + 1]);
    let shown = tail(json!({"path": "huge", "lines": 1})).await.unwrap();
    assert!(shown.starts_with("[the last 50000 bytes]\nxxx"), "{}", &shown[..40]);
}

#[tokio::test]
async fn a_directory_is_listed_with_kinds_and_sizes() {
    let world = World::new().await;
    let list = |path: &str| world.run("list_directory", json!({"path": path}));
    assert_eq!(list(".").await.unwrap(), "The directory is empty.");
    world.put("sub/b.txt", "12345");
    world.put("a.txt", "");
    symlink("a.txt", world.work("link")).unwrap();
    assert_eq!(list(".").await.unwrap(), "a.txt  0\nlink@\nsub/\n");
    assert_eq!(list("sub").await.unwrap(), "b.txt  5\n");
    let error = list("a.txt").await.unwrap_err();
    assert_eq!(error, "a.txt: a part of the path is not a directory");
    for number in 0..600 {
        world.put(&format!("many/{number:0100}"), "");
    }
    let cut = list("many").await.unwrap();
    assert!(cut.starts_with("[480 of 600 entries; glob finds others]\n"), "{}", &cut[..60]);
}

#[tokio::test]
async fn what_a_file_is() {
    let world = World::new().await;
    world.put("a.txt", "one\ntwo");
    std::fs::set_permissions(world.work("a.txt"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let info = world.run("file_info", json!({"path": "a.txt"})).await.unwrap();
    let place = world.work("a.txt").display().to_string();
    for part in [place.as_str(), "kind: a file", "mode: 640", "size: 7 bytes", "lines: 2"] {
        assert!(info.contains(part), "{info}");
    }
    let info = world.run("file_info", json!({"path": "."})).await.unwrap();
    assert!(info.contains("kind: a directory"), "{info}");
}

#[tokio::test]
async fn files_are_found_by_name_and_ignored_ones_are_not() {
    let world = World::new().await;
    for path in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.txt", "target/e.rs", ".github/f.rs"] {
        world.put(path, "");
    }
    world.put(".gitignore", "/target\n*.txt\n");
    world.put(".git/config.rs", "");
    let glob = async |pattern: &str, path: &str| {
        world.run("glob", json!({"pattern": pattern, "path": path})).await
    };
    let all = ".github/f.rs\na.rs\nsrc/b.rs\nsrc/deep/c.rs\n";
    assert_eq!(glob("*.rs", ".").await.unwrap(), all);
    assert_eq!(glob("**/*.rs", ".").await.unwrap(), all);
    assert_eq!(glob("src/*.rs", ".").await.unwrap(), "src/b.rs\n");
    // Rules of the repository hold in a directory of it too.
    assert_eq!(glob("*", "src").await.unwrap(), "src/b.rs\nsrc/deep/c.rs\n");
    world.put("src/deep/.gitignore", "!*.txt\n");
    world.put("src/deep/kept.txt", "");
    assert_eq!(glob("*.txt", ".").await.unwrap(), "src/deep/kept.txt\n");
    // Who names an ignored directory means it.
    assert_eq!(glob("*", "target").await.unwrap(), "target/e.rs\n");
    assert_eq!(glob("*.zig", ".").await.unwrap(), "No file matches.\n");
    assert!(glob("../*", ".").await.unwrap_err().contains("relative to path"));
    assert!(glob("[", ".").await.unwrap_err().contains("pattern does not work"));
}

#[tokio::test]
async fn text_is_found_with_its_lines() {
    let world = World::new().await;
    world.put("b.txt", "alpha\nbeta\r\nGAMMA beta\n");
    world.put("a/c.rs", "let beta = 1;\n");
    world.put("binary", b"beta\0");
    world.put("hidden/x", "beta");
    world.put(".ignore", "hidden\n");
    let search = |arguments| world.run("search_text", arguments);
    let found = search(json!({"pattern": "beta"})).await.unwrap();
    assert_eq!(found, "a/c.rs\n1: let beta = 1;\nb.txt\n2: beta\n3: GAMMA beta\n");
    let found = search(json!({"pattern": "gamma", "ignore_case": true, "context": 1})).await;
    assert_eq!(found.unwrap(), "b.txt\n2- beta\n3: GAMMA beta\n");
    let found = search(json!({"pattern": "BETA", "ignore_case": true, "glob": "*.rs"})).await;
    assert_eq!(found.unwrap(), "a/c.rs\n1: let beta = 1;\n");
    let found = search(json!({"pattern": "^beta", "path": "b.txt"})).await;
    assert_eq!(found.unwrap(), "b.txt\n2: beta\n");
    assert_eq!(search(json!({"pattern": "delta"})).await.unwrap(), "Nothing matches.\n");
    let error = search(json!({"pattern": "("})).await.unwrap_err();
    assert!(error.contains("the pattern does not work"), "{error}");
}

#[tokio::test]
async fn a_search_that_finds_too_much_is_cut() {
    let world = World::new().await;
    for number in 0..50 {
        world.put(&format!("{number}.txt"), "match this line\n".repeat(1000));
    }
    world.put("long.js", "match ".repeat(100_000));
    let found = world.run("search_text", json!({"pattern": "match"})).await.unwrap();
    assert!(found.starts_with("[cut: there are more matches"), "{}", &found[..80]);
    assert!(found.len() <= OUTPUT_BYTES_MAX + 1000, "{}", found.len());
    let found = world.run("search_text", json!({"pattern": "match", "path": "long.js"})).await;
    assert!(found.unwrap().len() < 400);
}

#[tokio::test]
async fn a_search_that_nobody_waits_for_ends() {
    let world = World::new().await;
    world.put("a", "match\n");
    let files =
        Files::new(world.access(), Arc::new(AtomicBool::new(true)), Launcher::own(), SIDE_MAX);
    let arguments = serde_json::from_value(json!({"pattern": "match"})).unwrap();
    assert_eq!(SearchText::run(arguments, &files), Ok("Nothing matches.\n".into()));
}

#[tokio::test]
async fn a_source_file_is_outlined() {
    let world = World::new().await;
    let check = async |name: &str, source: &str, expected: &str| {
        world.put(name, source);
        let outline = world.run("outline", json!({"path": name})).await;
        assert_eq!(outline, Ok(expected.into()), "{name}");
    };
    check(
        "a.rs",
        "struct A { x: u8 }\n\nimpl A {\n    pub fn f(&self) -> u8 {\n        fn inner() {}\n        1\n    }\n}\nmod m {\n    trait T { fn g(); }\n}\n",
        "1-1 struct A { x: u8 }\n3-8 impl A\n  4-7 pub fn f(&self) -> u8\n9-11 mod m\n  10-10 trait T { fn g(); }\n    10-10 fn g();\n",
    )
    .await;
    check(
        "a.py",
        "class A:\n    def f(self):\n        def inner(): pass\n\ndef g():\n    pass\n",
        "1-3 class A:\n  2-3 def f(self):\n5-6 def g():\n",
    )
    .await;
    check(
        "a.js",
        "export class A { f() {} }\nfunction g() { function h() {} }\nconst k = () => 1, n = 2;\n",
        "1-1 class A { f() {} }\n  1-1 f() {}\n2-2 function g() { function h() {} }\n3-3 k = () => 1\n",
    )
    .await;
    check(
        "a.ts",
        "export interface I { f(): void }\ntype T = string;\nenum E { A }\nnamespace N { export function g() {} }\n",
        "1-1 interface I { f(): void }\n  1-1 f(): void\n2-2 type T = string;\n3-3 enum E { A }\n4-4 namespace N { export function g() {} }\n  4-4 function g() {}\n",
    )
    .await;
    check("a.tsx", "const A = () => <b/>;\n", "1-1 A = () => <b/>\n").await;
    check(
        "a.go",
        "package p\n\ntype T struct {\n\tx int\n}\n\nfunc (t T) F() {}\n\nfunc G() {\n}\n",
        "3-5 T struct\n7-7 func (t T) F() {}\n9-10 func G()\n",
    )
    .await;
    check(
        "A.java",
        "class A {\n  A() {}\n  int f() { return 1; }\n  enum E { X }\n}\n",
        "1-5 class A\n  2-2 A() {}\n  3-3 int f() { return 1; }\n  4-4 enum E { X }\n",
    )
    .await;
    check(
        "a.c",
        "struct s { int x; };\ntypedef int t;\nint f(void);\nint f(void)\n{\n  return 1;\n}\nint x;\n",
        "1-1 struct s { int x; }\n2-2 typedef int t;\n3-3 int f(void);\n4-7 int f(void)\n",
    )
    .await;
    check("a.sh", "f() {\n  echo\n}\n", "1-3 f()\n").await;
    check("run", "#!/usr/bin/env python3\ndef f(): pass\n", "2-2 def f(): pass\n").await;
    check("b.rs", "// nothing\n", "b.rs defines nothing.").await;
    world.put("a.txt", "text");
    let error = world.run("outline", json!({"path": "a.txt"})).await.unwrap_err();
    assert_eq!(error, "a.txt is in no language that outline knows");
    world.put("deep.js", "(".repeat(100_000));
    assert!(world.run("outline", json!({"path": "deep.js"})).await.is_ok());
}

#[tokio::test]
async fn a_pattern_that_nests_without_end_is_an_answer() {
    let world = World::new().await;
    world.put("a.txt", "x\n");
    for depth in [300, 20_000, 200_000] {
        for (open, close) in [("{", "}"), ("{a,", "}"), ("[", "]"), ("(", ")"), ("(?:", "){2}")] {
            let nested = format!("{}a{}", open.repeat(depth), close.repeat(depth));
            for (tool, arguments) in [
                ("glob", json!({"pattern": nested})),
                ("search_text", json!({"pattern": "x", "glob": nested})),
                ("search_text", json!({"pattern": nested})),
                ("regex_replace", json!({"path": "a.txt", "pattern": nested, "replacement": "y"})),
            ] {
                let _ = world.run(tool, arguments).await;
            }
            world.put(".gitignore", &nested);
            let found = world.run("glob", json!({"pattern": "*.txt"})).await.unwrap();
            assert_eq!(found, "a.txt\n");
        }
    }
}

/// What a grammar or a pattern makes of them costs gigabytes or hours.
#[tokio::test]
async fn what_nobody_can_parse_is_an_answer() {
    let world = World::new().await;
    world.put("A.java", "A<".repeat(200_000));
    let memory = world.run("outline", json!({"path": "A.java"})).await.unwrap_err();
    assert_eq!(memory, "A.java could not be outlined: it takes more than 512 MiB of memory");
    world.put("a.sh", "case a in (".repeat(100_000));
    let time = world.run("outline", json!({"path": "a.sh"})).await.unwrap_err();
    assert_eq!(time, "a.sh could not be outlined: it takes more than 10 s of processor time");
    // A shorter one of its kind it makes something of.
    world.put("b.sh", "case a in (".repeat(100));
    assert_eq!(
        world.run("outline", json!({"path": "b.sh"})).await.unwrap(),
        "b.sh defines nothing."
    );
}

#[tokio::test]
async fn an_outline_that_nobody_waits_for_ends() {
    let world = World::new().await;
    world.put("a.sh", "case a in (".repeat(100_000));
    let files =
        Files::new(world.access(), Arc::new(AtomicBool::new(true)), Launcher::own(), SIDE_MAX);
    let arguments = serde_json::from_value(json!({"path": "a.sh"})).unwrap();
    let ended = Outline::run(arguments, &files);
    assert_eq!(ended, Err("a.sh could not be outlined: the call was cancelled".into()));
}

#[tokio::test]
async fn the_effort_of_a_search_is_bounded() {
    let world = World::new().await;
    let search = async |pattern: &str, path: &str| {
        world.run("search_text", json!({"pattern": pattern, "path": path})).await
    };
    world.put("a", "needle\n");
    // A pattern just within its bound, and one beyond.
    assert_eq!(search("needle|x[01]{4000}", "a").await.unwrap(), "a\n1: needle\n");
    let error = search("needle|x[01]{40000}", "a").await.unwrap_err();
    assert!(
        error.starts_with("the pattern does not work: ") && error.contains("size limit"),
        "{error}"
    );
    // The largest patterns are searched for in lines of 64 KiB and more, the smallest in those of 16 MiB.
    let largest = "needle|x[01]{8000}";
    for (pattern, longest) in [(largest, 64 << 10), ("needle", 16 << 20)] {
        for (length, expected) in [(longest - 10, "1: needle"), (longest, "Nothing matches.")] {
            world.put("line", format!("needle{}\n", "y".repeat(length - 6)));
            let found = search(pattern, "line").await.unwrap();
            assert!(found.contains(expected), "{pattern} {length}: {}", &found[..20]);
        }
    }
}

#[tokio::test]
async fn patterns_for_names_are_bounded() {
    let world = World::new().await;
    world.put("a.txt", "");
    world.put("b.txt", "");
    let glob = async |pattern: &str| world.run("glob", json!({"pattern": pattern})).await;
    let long = |bytes: usize| format!("{{a,{}}}.txt", "x".repeat(bytes - 8));
    assert_eq!(glob(&long(1000)).await.unwrap(), "a.txt\n");
    let refused = "the pattern is too long, or its braces nest too deeply";
    assert_eq!(glob(&long(1001)).await.unwrap_err(), refused);
    let deep = |depth: usize| format!("{}a{}.txt", "{".repeat(depth), "}".repeat(depth));
    assert_eq!(glob(&deep(10)).await.unwrap(), "a.txt\n");
    assert_eq!(glob(&deep(11)).await.unwrap_err(), refused);
    // Of a `.gitignore` the first 64 KiB count.
    for (before, hidden) in [((64 << 10) - 6, true), (64 << 10, false)] {
        world.put(".gitignore", format!("{}\na.txt\n", "#".repeat(before - 1)));
        let found = glob("a.txt").await.unwrap();
        assert_eq!(found == "No file matches.\n", hidden, "{before}: {found}");
    }
}
