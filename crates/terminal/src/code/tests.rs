//! Code in, colours out; and a thread that is too slow.

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn line(text: &str) -> Job {
    Job::Line(text.into())
}

fn paint(theme: Theme, language: &str, lines: &[&str]) -> Vec<Option<Line>> {
    let mut jobs = vec![Job::Begin(language.into())];
    jobs.extend(lines.iter().map(|text| line(text)));
    Highlighter::new(theme).paint_within(jobs, LONG)
}

fn colour_of(line: &Line, text: &str) -> Option<Colour> {
    line.spans.iter().find(|span| span.text.as_str().contains(text)).unwrap().style.colour
}

#[test]
fn code_has_the_colours_of_the_palette() {
    let code = ["fn main() { // entry", "    let a = \"two\\n\"; /* open", "    still */ 42"];
    let painted = paint(Theme::Ansi, "rust", &code);
    let lines: Vec<&Line> = painted.iter().flatten().collect();
    for (line, text) in lines.iter().zip(code) {
        assert_eq!(line.text(), text, "what is said stays");
    }
    assert_eq!(colour_of(lines[0], "fn"), Some(Colour::Magenta));
    assert_eq!(colour_of(lines[0], "main"), Some(Colour::Blue));
    assert_eq!(colour_of(lines[0], "entry"), Some(Colour::BrightBlack));
    assert_eq!(colour_of(lines[1], "two"), Some(Colour::Green));
    assert_eq!(colour_of(lines[1], "\\n"), Some(Colour::Yellow));
    assert_eq!(colour_of(lines[2], "still"), Some(Colour::BrightBlack), "lines know those before");
    assert_eq!(colour_of(lines[2], "42"), Some(Colour::Yellow));
    let dark = paint(Theme::Dark, "rust", &code);
    assert_eq!(colour_of(dark[0].as_ref().unwrap(), "fn"), Some(Colour::BrightMagenta));
    let light = paint(Theme::Light, "rust", &code);
    assert_eq!(colour_of(light[2].as_ref().unwrap(), "42"), Some(Colour::Red));
}

#[test]
fn the_usual_languages_are_known() {
    for language in [
        "bash",
        "sh",
        "shell",
        "console",
        "python",
        "py",
        "javascript",
        "js",
        "typescript",
        "ts",
        "tsx",
        "json",
        "yaml",
        "yml",
        "toml",
        "go",
        "java",
        "c",
        "cpp",
        "c++",
        "csharp",
        "cs",
        "ruby",
        "php",
        "html",
        "css",
        "sql",
        "diff",
        "dockerfile",
        "make",
        "xml",
        "markdown",
        "md",
        "kotlin",
        "swift",
        "Rust",
        "lua",
    ] {
        assert!(paint(Theme::Ansi, language, &["x"])[0].is_some(), "{language}");
    }
}

#[test]
fn code_that_cannot_be_understood_is_plain() {
    assert_eq!(paint(Theme::Ansi, "no such language", &["let a = 1;"]), [None]);
    assert_eq!(paint(Theme::Ansi, "", &["let a = 1;"]), [None]);
    let (longest, longer) = ("ä".repeat(LINE_CHARS_MAX), "ä".repeat(LINE_CHARS_MAX + 1));
    let painted = paint(Theme::Ansi, "rust", &[&longest, &longer, "1"]);
    assert_eq!(painted.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn without_colours_no_thread_is_started() {
    let mut highlighter = Highlighter::new(Theme::Mono);
    assert_eq!(highlighter.paint(vec![Job::Begin("rust".into()), line("fn a() {}")]), [None]);
    assert!(highlighter.worker.is_none());
}

/// It would wait for ever here, which no clock can count.
#[test]
fn a_thread_that_is_behind_is_not_waited_for_again() {
    let (batches, _inbox) = mpsc::sync_channel(9);
    let (outbox, painted) = mpsc::channel();
    let worker = Some(Worker { batches, painted });
    let mut highlighter = Highlighter { worker, ..Highlighter::new(Theme::Ansi) };
    assert_eq!(highlighter.paint_within(vec![line("slow")], Duration::ZERO), [None]);
    assert_eq!(highlighter.paint_within(vec![line("next")], Duration::MAX), [None]);
    // What comes late is passed over, and with its end the thread is waited for again.
    let late = Line::plain("late");
    outbox.send(Painted::Line { batch: 2, index: 0, line: late }).unwrap();
    outbox.send(Painted::End { batch: 2 }).unwrap();
    assert_eq!(highlighter.paint_within(vec![line("last")], Duration::ZERO), [None]);
    assert_eq!(highlighter.done, 2);
}

#[test]
fn lines_that_are_painted_in_time_have_colours_though_others_are_not() {
    let (batches, inbox) = mpsc::sync_channel(9);
    let (outbox, painted) = mpsc::channel();
    let worker = Some(Worker { batches, painted });
    let mut highlighter = Highlighter { worker, sent: 6, done: 6, ..Highlighter::new(Theme::Ansi) };
    let sender = thread::spawn(move || {
        let batch: Batch = inbox.recv().unwrap();
        outbox
            .send(Painted::Line { batch: batch.number, index: 0, line: Line::plain("one") })
            .unwrap();
    });
    // The sender is gone when it has sent, which ends the wait.
    let painted = highlighter.paint_within(vec![line("one"), line("two")], LONG);
    assert_eq!(painted, [Some(Line::plain("one")), None]);
    sender.join().unwrap();
}

/// What is left out once would be misread after: an open comment, a string.
#[test]
fn a_thread_that_is_far_behind_is_left_alone_until_other_code_begins() {
    let (batches, inbox) = mpsc::sync_channel(1);
    let (_outbox, painted) = mpsc::channel();
    let worker = Some(Worker { batches, painted });
    let mut highlighter = Highlighter { worker, ..Highlighter::new(Theme::Ansi) };
    let mut send = |jobs| highlighter.paint_within(jobs, Duration::ZERO);
    assert_eq!(send(vec![line("taken")]), [None]);
    assert_eq!(send(vec![line("too many")]), [None]);
    assert_eq!(inbox.recv().unwrap().jobs, [line("taken")]);
    assert_eq!(send(vec![line("of the code that was left out")]), [None]);
    assert!(inbox.try_recv().is_err());
    send(vec![Job::Begin("rust".into()), line("again")]);
    assert_eq!(inbox.recv().unwrap().jobs.len(), 2);
}

#[test]
fn text_is_made_harmless_here_too() {
    let painted = paint(Theme::Ansi, "rust", &["// \x1b]0;title\x07"]);
    assert_eq!(painted[0].as_ref().unwrap().text(), "// ␛]0;title␇");
}
