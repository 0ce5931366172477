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

/// A command of these words, asked for by the shown agent.
fn running(argv: &[&str]) -> ApprovalEntry {
    let approval = serde_json::to_value(writing(0)).unwrap();
    let preview = json!({
        "kind": "command", "argv": argv, "cwd": "/src/\u{430}pi", "sandbox": "landlock 6",
    });
    let grant = json!({"kind": "command", "tool": "exec", "dir": "/src/\u{430}pi"});
    let members = json!({"tool": "exec", "preview": preview, "grant": grant});
    serde_json::from_value(crate::testing::merged(approval, members)).unwrap()
}

fn rows(approval: &ApprovalEntry, width: usize, rows_max: usize) -> Vec<Line> {
    Question::of(approval, 1).rows(&Line::plain("y n"), width, rows_max, "p").lines
}

/// What a server asks in these words, for an agent that is far down.
fn asking(message: &str) -> ApprovalEntry {
    let approval = serde_json::to_value(writing(0)).unwrap();
    let lineage = ["a".repeat(30), "b".repeat(30)];
    let members = json!({
        "kind": "elicitation", "lineage": lineage, "message": message, "preview": null,
        "grant": null,
    });
    serde_json::from_value(crate::testing::merged(approval, members)).unwrap()
}

/// The rows of such a question when it has the keys, on a screen on which as much else is said as there can be; and whether
/// it takes them.
pub(crate) fn asked_on(rows: usize, columns: usize) -> (Vec<String>, bool) {
    let asked = asking("Tell me more.");
    let rows_max = crate::app::draw::asked_rows_max(rows, 1, 2);
    let keys = answers(&asked, columns);
    let asked = Question::of(&asked, 2).rows(&keys, columns, rows_max, "p");
    (texts(&asked.lines), asked.is_seen && crate::focus::has_room(rows, columns))
}

fn texts(rows: &[Line]) -> Vec<String> {
    rows.iter().map(Line::text).collect()
}

#[track_caller]
fn check(lines: usize, rows_max: usize, expected: &[&str]) {
    let rows = texts(&rows(&writing(lines), 80, rows_max));
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
    let shown = |lines: usize| rows(&writing(lines), 80, 99);
    // With the line that says where.
    let whole = shown(PREVIEW_LINES - 1);
    assert_eq!(whole[whole.len() - 3].text(), format!("+{}", PREVIEW_LINES - 1));
    let cut = shown(PREVIEW_LINES);
    assert_eq!(cut[cut.len() - 3].text(), "… 2 more lines: p");
    assert_eq!(cut.len(), whole.len());
}

#[test]
fn who_asks_what_and_how_to_answer_stand_on_any_screen() {
    check(2, 6, &[WHO, "/a  +2 -0", "@@ -0,0 +1,2 @@", "… 3 more lines: p", GRANT, "y n"]);
    check(2, 5, &[WHO, "/a  +2 -0", "@@ -0,0 +1,2 @@", "… 4 more lines: p", "y n"]);
    check(2, 4, &[WHO, "/a  +2 -0", "… 5 more lines: p", "y n"]);
    check(2, 3, &[WHO, "… 6 more lines: p", "y n"]);
    check(2, 1, &[WHO, "… 6 more lines: p", "y n"]);
}

#[test]
fn nothing_of_a_command_is_beyond_the_edge_of_the_screen() {
    let long = format!("echo {}; rm -rf /", "a".repeat(70));
    let asked = running(&["sh", "-c", &long]);
    let whole = texts(&rows(&asked, 40, 20));
    assert!(whole.iter().all(|row| Line::plain(row.as_str()).width() <= 40), "{whole:#?}");
    assert!(whole.concat().contains("sh -c 'echo aaa") && whole.concat().contains("; rm -rf /'"));
    // The rows that are not there are counted, whatever the room.
    for rows_max in 3..whole.len() {
        let cut = texts(&rows(&asked, 40, rows_max));
        assert_eq!(cut.len(), rows_max, "{cut:#?}");
        let more = cut.iter().find_map(|row| row.strip_prefix("… ")).unwrap();
        let missing: usize = more.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(missing, whole.len() - (cut.len() - 1), "{cut:#?}");
        assert_eq!(cut.last().unwrap(), "y n");
    }
    // A JSON argument and a reason are no different.
    let mut asked = writing(0);
    asked.preview = None;
    asked.arguments = json!({"text": "b".repeat(100)});
    asked.reason = "c".repeat(100);
    let whole = texts(&rows(&asked, 24, 40)).concat();
    assert!(whole.contains(&"b".repeat(100)) && whole.contains(&"c".repeat(100)), "{whole}");
}

#[test]
fn words_of_a_command_are_told_apart() {
    let shown = |argv: &[&str]| texts(&Question::of(&running(argv), 1).shown);
    assert_eq!(shown(&["rm", "a b"]), ["rm 'a b'"]);
    assert_eq!(shown(&["rm", "a", "b"]), ["rm a b"]);
    assert_eq!(shown(&["echo", ""]), ["echo ''"]);
    // None of them is cut, and none left out.
    let many: Vec<String> = (0..500).map(|number| format!("{number:0>300}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(shown(&many), [many.join(" ")]);
}

#[test]
fn what_is_not_ascii_is_underlined_wherever_a_path_or_command_stands() {
    for row in rows(&running(&["./\u{430}"]), 80, 20) {
        for span in &row.spans {
            let is_foreign = span.text.as_str().contains('\u{430}');
            assert_eq!(span.style.underline, is_foreign, "{}", row.text());
        }
    }
    let mut asked = writing(0);
    asked.grant = Some(ApprovalGrant::Write { path: "/\u{430}".into() });
    let grant = Question::of(&asked, 1).below.remove(0);
    assert!(grant.spans.iter().any(|span| span.style.underline), "{grant:?}");
}

#[test]
fn answers_stand_whole_at_any_width() {
    let asked = writing(0);
    let all = "y once · a session · n deny · d deny, saying why · p all · ? rule · Esc later";
    assert_eq!(answers(&asked, 80).text(), all);
    assert_eq!(answers(&asked, 40).text(), "y once · a session · n deny · p all");
    assert_eq!(answers(&asked, 24).text(), "y once · n deny · p all");
    let asked = asking("?");
    assert_eq!(answers(&asked, 28).text(), "y answer · n decline · p all");
    assert_eq!(answers(&asked, 24).text(), "y answer · n decline");
}

#[test]
fn a_question_with_none_of_its_content_is_not_one_to_answer() {
    let asked = |keys: &str, rows_max: usize| {
        let rows = Question::of(&asking("Tell me."), 1).rows(&Line::plain(keys), 24, rows_max, "p");
        (texts(&rows.lines), rows.is_seen)
    };
    let (rows, is_seen) = asked("y n", 4);
    assert_eq!(rows[1..], ["│ Tell me.", "… 4 more lines: p", "y n"]);
    assert!(is_seen);
    let (rows, is_seen) = asked("y n", 3);
    assert_eq!(rows[1..], ["… 5 more lines: p", "y n"]);
    assert!(!is_seen);
    // Keys of two rows leave as little.
    assert!(!asked(&"y".repeat(25), 4).1);
    assert!(asked("y n", 99).1);
    // Wherever there is room for a panel there is room for a row of it.
    for (rows, columns) in (6..24).flat_map(|rows| (24..90).map(move |columns| (rows, columns))) {
        assert!(asked_on(rows, columns).1, "{rows} {columns}");
    }
}

/// A form of so many choices, whose words are longer than a row.
fn form(choices: usize) -> FormEntry {
    let choices: Vec<String> = (1..=choices).map(|it| format!("{it} {}", "c".repeat(40))).collect();
    let colour = json!({
        "type": "string", "title": "t".repeat(200), "description": "d".repeat(900), "enum": choices,
    });
    let schema = json!({"type": "object", "required": ["it"], "properties": {"it": colour}});
    let mut entry = FormEntry::new("appr_1".into(), &schema);
    entry.fault = entry.filling.take("").err();
    entry
}

#[test]
fn a_form_has_room_on_any_screen_with_the_choice_that_is_written() {
    for (rows_max, width) in (1..30).flat_map(|rows| [24, 40, 80].map(|width| (rows, width))) {
        for (choices, written) in [(0, ""), (3, "3"), (50, ""), (50, "37"), (50, "1,37 c")] {
            let rows = form(choices).rows(width, rows_max, written);
            assert!(rows.len() <= rows_max && rows.iter().all(|row| row.width() <= width));
            let rows = texts(&rows);
            let meant = if written.contains("37") { "37) " } else { "1) " };
            let is_seen = rows.iter().any(|row| row.starts_with(meant));
            assert!(choices != 50 || rows_max < 4 || is_seen, "{rows:#?}");
            assert!(choices != 50 || rows.iter().any(|row| row.starts_with("… ")), "{rows:#?}");
        }
    }
    // What fits stands whole.
    let schema = json!({"type": "object", "properties": {"it": {"enum": ["red", "green"]}}});
    let rows = FormEntry::new("appr_1".into(), &schema).rows(80, 3, "2");
    assert_eq!(
        texts(&rows),
        ["it: one of them, by its number; may stay empty", "1) red", "2) green"]
    );
}

#[test]
fn the_pager_has_all_of_it() {
    let text = everything(&running(&["rm", "a b"]));
    for piece in
        ["? worker: exec", "It writes.", "rm 'a b'", "held by landlock 6", "for the session"]
    {
        assert!(text.contains(piece), "{text}");
    }
}
