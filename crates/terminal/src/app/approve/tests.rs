//! Whoever is asked sees what it is about, on any screen.

use serde_json::json;

use super::*;

/// A file of so many lines is to be written.
fn writing(lines: usize) -> ApprovalEntry {
    let added: String = (1..=lines).map(|number| format!("+{number}\n")).collect();
    let diff = format!("@@ -0,0 +1,{lines} @@\n{added}");
    serde_json::from_value(json!({
        "approval_id": "appr_1", "agent_id": "worker", "tool": "write_file", "arguments": {},
        "reason": "It writes.", "created_at": "2026-11-17T03:00:00Z", "status": "pending",
        "preview": {
            "kind": "diff", "path": "/a", "diff": diff, "added": lines, "removed": 0,
            "truncated": false,
        },
        "grant": {"kind": "write", "path": "/a"},
    }))
    .unwrap()
}

#[track_caller]
fn check(lines: usize, rows_max: usize, expected: &[&str]) {
    let rows = Question::of(&writing(lines), 1).rows(Line::plain("y n"), rows_max, "p");
    let rows: Vec<String> = rows.iter().map(Line::text).collect();
    assert_eq!(rows, expected, "{lines} lines in {rows_max} rows");
}

const WHO: &str = "? worker: write_file";
const GRANT: &str = "for the session: may write /a";

#[test]
fn all_of_a_change_is_shown_where_there_is_room() {
    let all = [WHO, "It writes.", "/a  +2 -0", "@@ -0,0 +1,2 @@", "+1", "+2", GRANT, "y n"];
    check(2, 20, &all);
    check(2, 8, &all);
    check(
        2,
        7,
        &[WHO, "It writes.", "/a  +2 -0", "@@ -0,0 +1,2 @@", "… 2 more lines: p", GRANT, "y n"],
    );
}

#[test]
fn what_is_too_long_says_how_much_is_missing() {
    let shown = |lines: usize| Question::of(&writing(lines), 1).rows(Line::plain("y n"), 99, "p");
    // With the line that says where.
    let whole = shown(PREVIEW_LINES - 1);
    assert_eq!(whole[whole.len() - 3].text(), format!("+{}", PREVIEW_LINES - 1));
    let cut = shown(PREVIEW_LINES);
    assert_eq!(cut[cut.len() - 3].text(), "… 2 more lines: p");
    assert_eq!(cut.len(), whole.len());
}

#[test]
fn who_asks_and_how_to_answer_stand_on_any_screen() {
    check(2, 6, &[WHO, "It writes.", "/a  +2 -0", "… 3 more lines: p", GRANT, "y n"]);
    check(2, 5, &[WHO, "It writes.", "/a  +2 -0", GRANT, "y n"]);
    check(2, 4, &[WHO, "It writes.", "/a  +2 -0", "y n"]);
    check(2, 3, &[WHO, "It writes.", "y n"]);
    check(2, 1, &[WHO, "y n"]);
}
