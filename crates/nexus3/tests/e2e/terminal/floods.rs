//! Much of it, and in little room: every line once and in order, whatever the size, and nothing foreign acts.

use nexus_testkit::{Gate, Reply};
use serde_json::json;

use super::screen::{Desk, Key, Screen};

/// Lines that are told apart, in a fence: they are printed as they are.
fn code(lines: std::ops::RangeInclusive<usize>) -> String {
    lines.map(|number| format!("row {number} of many\n")).collect()
}

/// Asserts that the lines of [`code`] stand there once each, in their order.
fn check_rows(screen: &Screen, count: usize) {
    let seen = screen.everything();
    let rows: Vec<&String> = seen.iter().filter(|line| line.starts_with("row ")).collect();
    let first_wrong =
        rows.iter().enumerate().find(|(at, row)| row.as_str() != format!("row {} of many", at + 1));
    assert!(first_wrong.is_none() && rows.len() == count, "{} rows, {first_wrong:?}", rows.len());
}

#[tokio::test]
async fn twenty_thousand_lines_stand_once_each() {
    let desk = Desk::new().await;
    let pieces = (0..200).map(|at| code(at * 100 + 1..=(at + 1) * 100));
    let pieces = ["```\n".to_owned()].into_iter().chain(pieces).chain(["```\n".to_owned()]);
    desk.model().push(Reply::chunks(pieces));
    let screen = desk.open(&["--fresh"]);
    screen.say("All of it.").await;
    screen.wait_for(" out").await;
    check_rows(&screen, 20_000);
}

#[tokio::test]
async fn resizes_in_the_middle_of_an_answer_lose_nothing() {
    let desk = Desk::new().await;
    let gates: Vec<Gate> = (0..6).map(|_| Gate::new()).collect();
    let mut reply = Reply::text("```\n");
    for (at, gate) in gates.iter().enumerate() {
        reply = reply.then_text(code(at * 40 + 1..=(at + 1) * 40)).then_gate(gate);
    }
    desk.model().push(reply.then_text("```\n\nDone."));
    let screen = desk.open(&["--fresh"]);
    screen.say("Slowly.").await;
    let sizes = [(60, 20), (100, 30), (40, 12), (120, 40), (50, 15), (80, 24)];
    for (at, (gate, (columns, rows))) in gates.iter().zip(sizes).enumerate() {
        screen.wait_for_line(&format!("row {} of many", (at + 1) * 40 - 1)).await;
        screen.resize(columns, rows);
        // It has heard of it when the status is drawn at the new place.
        screen.wait_for("Esc cancels").await;
        gate.release();
    }
    screen.wait_for_end().await;
    check_rows(&screen, 240);
    for line in ["you> Slowly.", "Done."] {
        assert_eq!(screen.count(line), 1, "{:#?}", screen.everything());
    }
}

#[tokio::test]
async fn every_size_has_a_conversation() {
    for (columns, rows) in [(1, 1), (10, 3), (40, 10), (200, 60)] {
        let desk = Desk::new().await.size(columns, rows);
        let answer = format!("```\n{}```\n\nThat is all.", code(1..=100));
        desk.model().push(Reply::text(answer));
        let mut screen = desk.open(&["--fresh"]);
        screen.type_text("Hello.").await;
        screen.key(Key::Enter).await;
        // Of one column nothing can be read, but that the turn was told to its end.
        let is_over = |screen: &Screen| match columns {
            1 => String::from_utf8(screen.bytes()).is_ok_and(|all| all.contains(" in ")),
            _ => !screen.ends().is_empty(),
        };
        screen.wait_until("the end", is_over).await;
        if columns > 1 {
            check_rows(&screen, 100);
            // Prose is broken at words.
            let seen = screen.everything().join(" ");
            assert_eq!(seen.matches("That is all.").count(), 1, "{columns}x{rows}");
        }
        screen.key(Key::Ctrl('d')).await;
        assert_eq!(screen.exit().await.code(), Some(0), "{columns}x{rows}");
        screen.wait_until_in_order().await;
    }
}

#[tokio::test]
async fn a_tool_result_of_ten_megabytes_is_shown_by_its_first_lines() {
    let desk = Desk::new().await;
    let line = "x".repeat(99) + "\n";
    std::fs::write(desk.world.work().join("big.txt"), line.repeat(100_000)).unwrap();
    desk.model().push(Reply::tool_call("read_file", json!({"path": "big.txt"})));
    desk.model().push(Reply::text("Much."));
    let screen = desk.open(&["--fresh"]);
    screen.say("Read it.").await;
    screen.wait_for("Much.").await;
    screen.wait_for_end().await;
    let seen = screen.everything();
    assert!(seen.len() < 60, "{} lines", seen.len());
    assert!(seen.iter().any(|line| line.contains("more lines (/tool ")), "{seen:#?}");
}

#[tokio::test]
async fn a_line_of_a_megabyte_is_one_line() {
    let desk = Desk::new().await;
    let long = "0123456789".repeat(100_000);
    desk.model().push(Reply::text(format!("```\n{long}\n```\n\nDone.")));
    let screen = desk.open(&["--fresh"]);
    screen.say("A long one.").await;
    screen.wait_for("Done.").await;
    screen.wait_for_end().await;
    assert_eq!(screen.count(&long), 1);
}

/// What would do something to an emulator, were it written.
const HOSTILE: [&str; 16] = [
    "\x1b]0;title\x07",
    "\x1b]2;title\x1b\\",
    "\x1b]52;c;aGVsbG8=\x07",
    "\x1b]52;c;?\x07",
    "\x1b]8;;http://example.org\x07here\x1b]8;;\x07",
    "\x1b[2J\x1b[3J\x1b[H",
    "\x1b[?1049h",
    "\x1b[1;5r",
    "\x1b[?25l",
    "\x1b[6n\x1b[c",
    "\x1bc",
    "\x1bP+q544e\x1b\\",
    "\u{9b}2J\u{9d}0;title\u{9c}",
    "\x07\x08\x0b\x0c\x0e\x7f",
    "\u{202e}txt.exe\u{202c}\u{2066}\u{200b}\u{e0041}",
    "\r\x1b[A\x1b[Koverwritten",
];

/// [`HOSTILE`], and every kind of sequence and character that does something, in each of the forms it has.
fn payloads() -> Vec<String> {
    let mut all: Vec<String> = HOSTILE.iter().map(|text| (*text).to_owned()).collect();
    for number in [
        "0",
        "1",
        "2",
        "4;1;red",
        "7",
        "8;;http://example.org",
        "9",
        "10",
        "11",
        "12",
        "50",
        "52;c",
        "104",
        "133;A",
        "633;P",
        "777;notify",
        "1337;File=",
        "l",
        "L",
    ] {
        for (begin, end) in [("\x1b]", "\x07"), ("\x1b]", "\x1b\\"), ("\u{9d}", "\u{9c}")] {
            all.push(format!("{begin}{number};x{end}"));
        }
    }
    for end in ('@'..='~').filter(|end| *end != '[') {
        all.push(format!("\x1b[2;3{end}"));
        all.push(format!("\u{9b}1{end}"));
    }
    for mode in
        [1, 3, 5, 6, 7, 25, 47, 1000, 1002, 1003, 1004, 1006, 1047, 1048, 1049, 2004, 2026, 2048]
    {
        all.extend(["h", "l"].map(|end| format!("\x1b[?{mode}{end}")));
    }
    for (begin, end) in [("P", "\x1b\\"), ("X", "\x1b\\"), ("^", "\x1b\\"), ("_", "\x1b\\")] {
        all.push(format!("\x1b{begin}q#0{end}"));
    }
    all.extend(
        ('0'..='~').filter(|c| !"[]PX^_".contains(*c)).map(|letter| format!("\x1b{letter}")),
    );
    let controls = (1..32).chain(127..160).filter(|c| ![9, 10].contains(c));
    all.extend(controls.filter_map(char::from_u32).map(String::from));
    let unseen = (0x200b..=0x200f).chain(0x202a..=0x202e).chain(0x2060..=0x2069);
    let unseen = unseen.chain([0x61c, 0x180e, 0xfeff, 0xfff9, 0xe0001, 0xe0041, 0xe007f]);
    all.extend(unseen.filter_map(char::from_u32).map(String::from));
    all
}

/// Asserts that nothing of it reached the emulation, and that one sees that it was there.
fn check_harmless(screen: &Screen) {
    assert_eq!(screen.asked(), [""; 0]);
    let written = String::from_utf8(screen.bytes()).unwrap();
    for foreign in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{e0041}', '\u{9b}', '\u{9d}'] {
        assert!(!written.contains(foreign), "{foreign:?}");
    }
    for foreign in
        ["\x1b]0;title", "\x1b]2", "\x1b]52", "\x1b[2J", "\x1b[3J", "\x1b[?1049", "\x1bP"]
    {
        assert!(!written.contains(foreign), "{foreign:?}");
    }
    let seen = screen.everything().join("\n");
    for shown in ["␛]52;c;aGVsbG8=", "<U+202E>", "␛[2J"] {
        assert!(seen.contains(shown), "{shown}:\n{seen}");
    }
}

#[tokio::test]
async fn a_hostile_answer_is_only_read() {
    let desk = Desk::new().await;
    assert!(payloads().len() > 200);
    let answer: String = payloads().iter().map(|text| format!("- before {text} after\n")).collect();
    // Cut anywhere, also within a sequence.
    let letters: Vec<char> = answer.chars().collect();
    let pieces = letters.chunks(3).map(|piece| piece.iter().collect::<String>());
    desk.model().push(Reply::chunks(pieces.collect::<Vec<_>>()));
    let screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    check_harmless(&screen);
    assert_eq!(screen.count("you> Hello."), 1);
}

#[tokio::test]
async fn a_hostile_tool_result_is_only_read() {
    let desk =
        Desk::with(crate::harness::Setup::new().config(json!({"terminal": {"tool_lines": 1000}})));
    let desk = desk.await;
    let result: String = payloads().iter().map(|text| format!("b {text} a\n")).collect();
    std::fs::write(desk.world.work().join("hostile.txt"), result).unwrap();
    desk.model().push(Reply::tool_call("read_file", json!({"path": "hostile.txt"})));
    let screen = desk.open(&["--fresh"]);
    screen.say("Read it.").await;
    screen.wait_for_end().await;
    check_harmless(&screen);
    assert_eq!(screen.count("you> Read it."), 1);
}
