//! The conversation in xterm.js, which is VS Code's terminal: it breaks lines anew when its width changes, and its scrollback
//! loses what other ways to draw a live part push into it. A session is recorded with the sizes that its window had, and
//! shown to the emulator; since the program asks an emulator nothing, that is what it would have shown.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::screen::{Desk, Key, Screen};

/// Where `make xterm` put the emulator; nothing where nobody did, unless it has to be there.
fn modules() -> Option<PathBuf> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/xterm");
    if modules.join("installed").exists() {
        return Some(modules);
    }
    let is_required = std::env::var_os("NEXUS3_XTERM").is_some_and(|value| value == "required");
    assert!(!is_required, "xterm.js is not installed: make xterm");
    eprintln!("passed over: xterm.js is not installed (make xterm)");
    None
}

/// The scrollback and the screen of the emulator, line by line, after all that was written so far.
fn shown(screen: &Screen, modules: &Path) -> Vec<String> {
    let recording = screen.recording();
    let (columns, rows) = recording[0].0;
    let step = |(size, bytes): &((u16, u16), Vec<u8>)| {
        [json!({"resize": [size.0, size.1]}), json!({"write": STANDARD.encode(bytes)})]
    };
    let steps: Vec<Value> = recording.iter().flat_map(step).collect();
    let recording = json!({"columns": columns, "rows": rows, "steps": steps}).to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/terminal/xterm/replay.mjs");
    let mut node = Command::new("node")
        .arg(script)
        .arg(modules)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node can be started");
    node.stdin.take().unwrap().write_all(recording.as_bytes()).unwrap();
    let said = node.wait_with_output().unwrap();
    assert!(said.status.success());
    serde_json::from_slice(&said.stdout).unwrap()
}

async fn desk() -> Desk {
    Desk::new().await.env("TERM", "xterm-256color").env("TERM_PROGRAM", "vscode")
}

fn row(number: usize) -> String {
    format!(
        "row {number} of many, with enough words that it is broken in a narrow window and joined in a wide one"
    )
}

fn rows(numbers: std::ops::RangeInclusive<usize>) -> String {
    numbers.map(|number| row(number) + "\n").collect()
}

/// Asserts that the rows stand there once each, in their order, and that one live part at most is left.
fn check(seen: &[String], count: usize) {
    let all = seen.join("\n");
    let found: Vec<&String> = seen.iter().filter(|line| line.starts_with("row ")).collect();
    let is_right = |(at, line): (usize, &&String)| **line == row(at + 1);
    assert!(found.len() == count && found.iter().enumerate().all(is_right), "{all}");
    for part in ["work>", "work · "] {
        assert!(seen.iter().filter(|line| line.starts_with(part)).count() <= 1, "{part}:\n{all}");
    }
    for part in ["Esc cancels", "looking for the server", "new session"] {
        assert!(!seen.iter().any(|line| line.contains(part)), "{part}:\n{all}");
    }
}

/// Changes the size, and waits until the program has drawn for it.
async fn resize(screen: &Screen, columns: u16, rows: u16) {
    let before = screen.bytes().len();
    screen.resize(columns, rows);
    screen.wait_until("a frame for the size", |screen| screen.bytes().len() > before).await;
}

const SIZES: [(u16, u16); 8] =
    [(60, 20), (100, 30), (40, 12), (120, 40), (30, 8), (200, 60), (50, 15), (80, 24)];

#[tokio::test]
async fn lines_stand_once_after_eight_resizes() {
    let Some(modules) = modules() else { return };
    let desk = desk().await;
    let gates: Vec<Gate> = SIZES.iter().map(|_| Gate::new()).collect();
    let mut reply = Reply::text("```\n");
    for (at, gate) in gates.iter().enumerate() {
        reply = reply.then_text(rows(at * 10 + 1..=(at + 1) * 10)).then_gate(gate);
    }
    desk.model().push(reply.then_text("```\n\nDone."));
    let mut screen = desk.open(&["--fresh"]);
    screen.say("Count for me.").await;
    for (at, (gate, (columns, rows))) in gates.iter().zip(SIZES).enumerate() {
        let last = format!("row {} of many", (at + 1) * 10 - 1);
        screen.wait_until(&last, |screen| has(screen, &last)).await;
        resize(&screen, columns, rows).await;
        gate.release();
    }
    screen.wait_until("the end", |screen| has(screen, " out")).await;
    let seen = shown(&screen, &modules);
    check(&seen, 80);
    for line in ["you> Count for me.", "Done."] {
        assert_eq!(seen.iter().filter(|it| *it == line).count(), 1, "{}", seen.join("\n"));
    }
    screen.key(Key::Ctrl('d')).await;
    assert!(screen.exit().await.success());
    screen.wait_until("the farewell", |screen| has(screen, "Goodbye!")).await;
    let seen = shown(&screen, &modules);
    check(&seen, 80);
    let last = seen.iter().rev().find(|line| !line.is_empty());
    assert_eq!(last.map(String::as_str), Some("Goodbye!"), "{}", seen.join("\n"));
}

#[tokio::test]
async fn twenty_thousand_lines_are_in_the_scrollback() {
    let Some(modules) = modules() else { return };
    let desk = desk().await;
    let pieces = (0..200).map(|at| rows(at * 100 + 1..=(at + 1) * 100));
    let pieces = ["```\n".to_owned()].into_iter().chain(pieces).chain(["```\n".to_owned()]);
    desk.model().push(Reply::chunks(pieces));
    let screen = desk.open(&["--fresh"]);
    screen.say("All of it.").await;
    screen.wait_until("the end", |screen| has(screen, "─ ")).await;
    check(&shown(&screen, &modules), 20_000);
}

#[tokio::test]
async fn prose_and_a_question_survive_a_window_that_is_dragged() {
    let Some(modules) = modules() else { return };
    let desk = desk().await;
    let words: Vec<String> = (0..300).map(|number| format!("word{number:03}")).collect();
    let gates: Vec<Gate> = SIZES.iter().map(|_| Gate::new()).collect();
    let mut reply = Reply::nothing();
    for (part, gate) in words.chunks(words.len().div_ceil(SIZES.len())).zip(&gates) {
        reply = reply.then_text(part.join(" ") + " ").then_gate(gate);
    }
    let outside = desk.world.path("outside.txt");
    let call = json!({"path": outside, "content": "x"});
    desk.model().push(reply.then_tool_call("write_file", call));
    desk.model().push(Reply::text("Done."));
    let screen = desk.open(&["--fresh"]);
    screen.say("Talk to me.").await;
    for (gate, (columns, rows)) in gates.iter().zip(SIZES) {
        desk.model().wait_for_requests(1).await;
        resize(&screen, columns, rows).await;
        gate.release();
    }
    screen.wait_until("a question", |screen| has(screen, "write_file")).await;
    screen.wait_until("its keys", |screen| has(screen, "n deny")).await;
    assert_eq!(shown(&screen, &modules).iter().filter(|line| line.contains("n deny")).count(), 1);
    for (columns, rows) in [(60, 20), (90, 30), (80, 24)] {
        resize(&screen, columns, rows).await;
    }
    let id = desk.ok("list_approvals", json!({})).await["approvals"][0]["approval_id"].clone();
    desk.ok("respond_approval", json!({"approval_id": id, "decision": "deny"})).await;
    screen.wait_until("the end", |screen| has(screen, " out")).await;
    let seen = shown(&screen, &modules);
    check(&seen, 0);
    let all = seen.join(" ");
    for word in &words {
        assert_eq!(all.matches(word.as_str()).count(), 1, "{word}:\n{}", seen.join("\n"));
    }
    assert!(!all.contains("n deny"), "{}", seen.join("\n"));
}

/// Whether it was ever written.
fn has(screen: &Screen, text: &str) -> bool {
    String::from_utf8_lossy(&screen.bytes()).contains(text)
}
