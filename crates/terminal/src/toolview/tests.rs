//! Calls, results and changes in; what is read of them out.

use nexus_protocol::permission::FileChange;
use serde_json::json;

use super::*;

fn texts(lines: &[Line]) -> Vec<String> {
    lines.iter().map(Line::text).collect()
}

fn called(name: &str, arguments: Value) -> String {
    let entry = ToolCallEntry { id: "call_57d0".into(), name: name.into(), arguments, cut: false };
    call(&entry, "57d0").text()
}

fn plan([a, b, c]: [&str; 3]) -> Value {
    let step = |step: &str, status: &str| json!({"step": step, "status": status});
    json!({"steps": [step("a", a), step("b", b), step("c", c)]})
}

#[test]
fn a_call_shows_the_argument_that_says_most() {
    for (name, arguments, expected) in [
        (
            "exec",
            json!({"argv": ["cargo", "test", "-p", "core"], "cwd": "/x"}),
            "cargo test -p core",
        ),
        ("exec", json!({"argv": ["echo", "it's", ""]}), "echo 'it'\\''s' ''"),
        ("git", json!({"args": ["log", "-1"]}), "log -1"),
        ("bash_safe", json!({"timeout_s": 5, "command": "ls -l"}), "ls -l"),
        ("shell_UNSAFE", json!({"command": "\n  cd /\nrm -rf *\n"}), "cd / …"),
        ("run_python", json!({"code": "print(1)\n"}), "print(1)"),
        ("read_file", json!({"offset": 3, "path": "src/a.rs"}), "src/a.rs"),
        ("regex_replace", json!({"path": "a.rs", "pattern": "x"}), "a.rs"),
        ("search_text", json!({"pattern": "fn main", "path": "src"}), "fn main  in src"),
        ("glob", json!({"pattern": "*.rs"}), "*.rs"),
        ("rename", json!({"from": "a", "to": "b"}), "a → b"),
        ("patch", json!({"diff": "--- a/x.rs\n+++ b/y.rs\n"}), "y.rs"),
        ("patch", json!({"diff": "--- a/x.rs\n+++ /dev/null\n"}), "x.rs"),
        ("nexus_send", json!({"agent_id": "worker-1", "content": "do\nit"}), "worker-1: do …"),
        ("nexus_destroy", json!({"agent_id": "worker-1"}), "worker-1"),
        ("fetch", json!({"method": "GET", "url": "http://x"}), "http://x"),
        ("sleep", json!({"seconds": 2.5}), "2.5"),
        ("update_plan", plan(["completed", "in_progress", "pending"]), "b"),
        ("update_plan", plan(["completed", "completed", "pending"]), "c"),
        ("update_plan", plan(["completed"; 3]), "c"),
        ("odd", json!({"deep": {"a": 1}, "said": "this"}), "this"),
    ] {
        assert_eq!(called(name, arguments), format!("● {name}  {expected}   [57d0]"));
    }
    for nothing in [json!({}), json!(null), json!([1]), json!({"path": " "})] {
        assert_eq!(called("mcp", nothing), "● mcp   [57d0]");
    }
}

#[test]
fn a_call_is_told_in_words() {
    let check = |arguments: Value, cut, expected: &str| {
        let call = ToolCallEntry { id: "call_57d0".into(), name: "exec".into(), arguments, cut };
        assert_eq!(call_in_words(&call, "57d0").text(), expected);
    };
    check(json!({"argv": ["cargo", "test"]}), false, "tool exec: cargo test [57d0]");
    check(json!({}), true, "tool exec (cut off) [57d0]");
}

#[test]
fn a_call_is_one_harmless_line() {
    let at_most = "a".repeat(ARGUMENT_CHARS_MAX);
    assert_eq!(called("t", json!({"path": at_most})), format!("● t  {at_most}   [57d0]"));
    assert_eq!(
        called("t", json!({"path": format!("{at_most}a")})),
        format!("● t  {at_most}…   [57d0]")
    );
    let huge = json!({"argv": ["a".repeat(1_000_000)]});
    assert_eq!(called("t", huge), format!("● t  {at_most}…   [57d0]"));
    assert_eq!(called("a\nb", json!({"path": "x\u{1b}[2J\ty\r"})), "● a …  x␛[2J y   [57d0]");
    let entry = ToolCallEntry { id: "c".into(), name: "t".into(), arguments: json!({}), cut: true };
    assert_eq!(call(&entry, "c").text(), "● t  (cut off)   [c]");
}

fn result_of(content: &str, lines_max: usize) -> Vec<String> {
    texts(&result(Outcome { content, failed: false, refused_by: None }, "57d0", lines_max))
}

#[test]
fn a_result_is_its_first_lines() {
    assert_eq!(result_of("", 6), ["(no output)"]);
    assert_eq!(result_of("\n", 6), ["(no output)"]);
    assert_eq!(result_of("a\r\n\n  b\n", 6), ["a", "", "  b"]);
    assert_eq!(result_of("1\n2\n3\n", 3), ["1", "2", "3"]);
    assert_eq!(result_of("1\n2\n3\n4\n", 3), ["1", "2", "3", "… 1 more line (/tool 57d0)"]);
    let many = "x\n".repeat(1_218);
    assert_eq!(result_of(&many, 6).last().unwrap(), "… 1,212 more lines (/tool 57d0)");
    assert_eq!(result_of("\u{1b}[31mred\u{1b}[0m \u{1b}[2J", 6), ["red ␛[2J"]);
}

#[test]
fn a_result_is_six_hundred_characters_at_most() {
    let at_most = "ä".repeat(RESULT_CHARS_MAX);
    assert_eq!(result_of(&at_most, 6), [at_most.as_str()]);
    let over = format!("{at_most}ä");
    let cut = format!("{at_most}…");
    assert_eq!(result_of(&over, 6), [cut.as_str(), "… the rest of the line (/tool 57d0)"]);
    let half = "a".repeat(RESULT_CHARS_MAX / 2);
    assert_eq!(
        result_of(&format!("{half}\n{half}\nb"), 6),
        [&half, &half, "… 1 more line (/tool 57d0)"]
    );
    assert_eq!(result_of(&format!("{half}\n{half}b"), 6)[1], format!("{half}…"));
}

#[test]
fn of_a_huge_result_only_the_head_is_looked_at() {
    let huge = "line\n".repeat(20_000_000);
    let head = Head::of(&huge);
    assert_eq!((head.text.len(), head.beyond_bytes), (HEAD_BYTES_MAX, huge.len() - HEAD_BYTES_MAX));
    assert_eq!(result_of(&huge, 2), ["line", "line", "… 100.0 MB more (/tool 57d0)"]);
    let line = "ä".repeat(5_000_000);
    let shown = result_of(&line, 6);
    assert_eq!(shown.len(), 2);
    assert_eq!(shown[0].chars().count(), RESULT_CHARS_MAX + 1);
    let counted = "x".repeat(HEAD_BYTES_MAX - 2) + "\ny";
    assert_eq!(result_of(&counted, 1)[1], "… 1 more line (/tool 57d0)");
    assert!(result_of(&(counted + "z"), 1)[1].contains("MB more"));
}

#[test]
fn failures_and_refusals_have_signs() {
    let failed = Outcome { content: "exit 1\nerror: x", failed: true, refused_by: None };
    assert_eq!(texts(&result(failed, "c", 6)), ["✗ exit 1", "error: x"]);
    assert_eq!(texts(&result(Outcome { content: "", ..failed }, "c", 6)), ["✗ no reason given"]);
    let refused = Outcome { content: "not here", failed: true, refused_by: Some("write_paths") };
    assert_eq!(texts(&result(refused, "c", 6)), ["⊘ write_paths: not here"]);
    assert_eq!(result(failed, "c", 0).len(), 2, "what went wrong is always said");
    assert_eq!(texts(&result_in_words(failed, "c", 1))[0], "error: exit 1");
    assert_eq!(texts(&result_in_words(refused, "c", 6)), ["refused by write_paths: not here"]);
}

const DIFF: &str = "\
--- a/src/a.rs
+++ b/src/a.rs
@@ -9,3 +9,4 @@ fn main() {
 same
--- old comment
+new
+\u{1b}[2Jnewer
 same
@@ -100 +101 @@
-last
\\ No newline at end of file
+LAST
";

fn change(diff: &str) -> FileChange {
    let (path, diff) = ("src/a.rs".into(), diff.into());
    FileChange { path, diff, added: 3, removed: 2, truncated: false }
}

#[test]
fn a_change_is_a_diff_with_numbers_and_signs() {
    let lines = diff(&change(DIFF), "57d0", 40);
    assert_eq!(
        texts(&lines),
        [
            "src/a.rs  +3 -2",
            "   9   same",
            "  10 - -- old comment",
            "  10 + new",
            "  11 + ␛[2Jnewer",
            "  12   same",
            "   ⋯",
            " 100 - last",
            "\\ No newline at end of file",
            " 101 + LAST",
        ]
    );
    assert_eq!(lines[2].spans[1].style.colour, Some(Colour::Red));
    assert_eq!(lines[3].spans[1].style.colour, Some(Colour::Green));
}

#[test]
fn a_change_has_so_many_lines_at_most() {
    assert_eq!(diff(&change(DIFF), "57d0", 9).len(), 10);
    let cut = texts(&diff(&change(DIFF), "57d0", 8));
    assert_eq!((cut.len(), cut[9].as_str()), (10, "… 1 more line (/tool 57d0)"));
    let cut = texts(&diff(&change(DIFF), "57d0", 3));
    assert_eq!((cut.len(), cut[4].as_str()), (5, "… 6 more lines (/tool 57d0)"));
    let truncated = FileChange { truncated: true, ..change(DIFF) };
    assert_eq!(
        texts(&diff(&truncated, "c", 40)).last().unwrap(),
        "… the rest of the change (/tool c)"
    );
    assert_eq!(texts(&diff(&truncated, "c", 3)).last().unwrap(), "… more than 6 lines (/tool c)");
}

#[test]
fn a_change_that_is_no_diff_is_its_path() {
    for odd in
        ["", "no diff", "@@ -x +y @@\n+a", "@@ -1,99999999999999999999 +1 @@\n+a", "@@ -1 +1", "@@"]
    {
        assert_eq!(texts(&diff(&change(odd), "c", 40)), ["src/a.rs  +3 -2"], "{odd}");
    }
}
