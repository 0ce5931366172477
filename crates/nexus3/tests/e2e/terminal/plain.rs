//! Without a screen: lines and words alone, exit codes that a script can use, and a sentence for whatever is broken.

use std::process::Stdio;

use nexus_testkit::Reply;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::screen::{Desk, Key};
use crate::harness::within;

/// A conversation in plain words on a terminal.
async fn check_plain(desk: &Desk, args: &[&str]) {
    desk.model().push(Reply::text("# Title\n\n- **one**\n- `two`\n"));
    let mut screen = desk.open(args);
    screen.wait_for("> ").await;
    screen.type_text("Hello.\r").await;
    screen.wait_for("done, ").await;
    screen.wait_for("work> ").await;
    assert_eq!(screen.count("one").max(screen.count("• one")).max(screen.count("- one")), 1);
    screen.type_text("/quit\r").await;
    assert_eq!(screen.exit().await.code(), Some(0));
    screen.wait_for("Goodbye!").await;
    let bytes = screen.bytes();
    assert!(!bytes.contains(&0x1b), "{}", bytes.escape_ascii());
    assert!(screen.is_in_order());
}

#[tokio::test]
async fn plain_is_without_escape_sequences() {
    check_plain(&Desk::new().await, &["--plain", "--fresh"]).await;
    check_plain(&Desk::new().await.env("TERM", "dumb"), &["--fresh"]).await;
    check_plain(&Desk::new().await.env("ACCESSIBLE", "1"), &["--fresh"]).await;
}

#[tokio::test]
async fn each_thing_is_said_once_and_in_words() {
    let desk = Desk::new().await;
    desk.model().push(Reply::tool_call("read_file", json!({"path": "nothere"})));
    desk.model().push(Reply::text("It is not there."));
    let screen = desk.open(&["--plain", "--fresh"]);
    screen.wait_for("> ").await;
    screen.type_text("Read it.\r").await;
    screen.wait_for("done, ").await;
    screen.wait_for("work>").await;
    screen.type_text("/list\r").await;
    screen.wait_for("* work").await;
    screen.wait_until("the prompt", |screen| screen.text().trim_end().ends_with("work>")).await;
    let lines = screen.everything();
    assert!(lines.iter().any(|line| line.starts_with("tool read_file: nothere [")), "{lines:#?}");
    for line in ["> Read it.", "error: Failed: nothere: no such file or directory", "work> /list"] {
        assert_eq!(screen.count(line), 1, "{line}: {lines:#?}");
    }
    // What was typed is not repeated, and a prompt stands where somebody can write.
    assert_eq!(screen.count("you> Read it."), 0, "{lines:#?}");
    assert_eq!(screen.count("work>"), 1, "{lines:#?}");
}

#[tokio::test]
async fn control_c_and_control_d_work_in_plain_words() {
    let desk = Desk::new().await;
    desk.model().push(Reply::text("It begins.\n\n").then_hang());
    let mut screen = desk.open(&["--plain", "--fresh"]);
    screen.wait_for("> ").await;
    screen.type_text("For ever.\r").await;
    screen.wait_for("It begins.").await;
    screen.key(Key::Ctrl('c')).await;
    screen.wait_for("cancelling").await;
    screen.wait_for("work> ").await;
    screen.key(Key::Ctrl('d')).await;
    assert_eq!(screen.exit().await.code(), Some(0));
    screen.wait_for("Goodbye!").await;
}

#[tokio::test]
async fn no_colour_is_none() {
    let check = async |desk: &Desk, args: &[&str]| {
        desk.model().push(Reply::text("**bold**\n\n```rust\nfn main() {}\n```\n"));
        let screen = desk.open(args);
        screen.say("Hello.").await;
        screen.wait_for(" out").await;
        let written = String::from_utf8(screen.bytes()).unwrap();
        let coloured = written.split("\x1b[").skip(1).filter_map(|rest| {
            let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
            rest[end..].starts_with('m').then(|| rest[..end].to_owned())
        });
        let coloured = coloured.filter(|codes| codes.split(';').any(|code| code.len() == 2));
        assert_eq!(coloured.collect::<Vec<_>>(), [""; 0]);
    };
    check(&Desk::new().await.env("NO_COLOR", "1"), &["--fresh"]).await;
    check(&Desk::new().await, &["--no-color", "--fresh"]).await;
}

#[tokio::test]
async fn what_is_piped_in_is_one_turn() {
    let desk = Desk::new().await;
    desk.model().push(Reply::text("The answer."));
    let mut command = desk.piped();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().unwrap();
    program.stdin.take().unwrap().write_all(b"The question.\n").await.unwrap();
    let output = within("the turn", program.wait_with_output()).await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "The answer.\n");
    assert_eq!(desk.model().last_request().last_user_text(), Some("The question.\n"));
}

#[tokio::test]
async fn nothing_piped_in_is_a_wrong_command_line() {
    let desk = Desk::new().await;
    let output = within("its end", desk.piped().stdin(Stdio::null()).output()).await.unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!output.stderr.is_empty() && output.stdout.is_empty());
    // Standard input closed, which is another thing than empty.
    let screen = desk.open_shell("\"$0\" <&-; echo \"<ended $?>\"", &[]);
    screen.wait_for("<ended 2>").await;
}

#[tokio::test]
async fn a_piped_turn_that_fails_says_so_by_its_exit_code() {
    let desk = Desk::new().await;
    desk.model().set_default(Reply::status(400).message("no such luck"));
    let mut command = desk.piped();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().unwrap();
    program.stdin.take().unwrap().write_all(b"Hello.").await.unwrap();
    let output = within("the turn", program.wait_with_output()).await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no such luck"), "{said}");
}

#[tokio::test]
async fn output_to_a_pipe_is_plain() {
    let desk = Desk::new().await;
    let screen = desk.open_shell("\"$0\" \"$@\" | cat >out.txt; echo '<ended>'", &["--fresh"]);
    let out = desk.world.work().join("out.txt");
    let said = || std::fs::read_to_string(&out).unwrap_or_default();
    screen.wait_until("the prompt", |_| said().contains("> ")).await;
    screen.type_text("Hello.\r").await;
    screen.wait_until("an answer", |_| said().contains("Hello from the scripted model.")).await;
    screen.wait_until("its end", |_| said().contains("done, ")).await;
    screen.key(Key::Ctrl('d')).await;
    screen.wait_for("<ended>").await;
    assert!(!said().contains('\x1b') && said().contains("Goodbye!"), "{}", said());
}

#[tokio::test]
async fn output_that_nobody_takes_ends_it_with_a_sentence() {
    let desk = Desk::new().await;
    for (script, why) in [
        ("\"$0\" \"$@\" >/dev/full; echo \"<ended $?>\"", "No space left on device"),
        ("{ \"$0\" \"$@\"; echo \"<ended $?>\" >&2; } | true", "<ended"),
    ] {
        let screen = desk.open_shell(script, &["--fresh"]);
        screen.wait_for("<ended ").await;
        assert!(screen.text().contains(why), "{}", screen.text());
        assert!(!screen.text().contains("panicked"), "{}", screen.text());
        assert!(screen.is_in_order());
    }
}

#[tokio::test]
async fn a_damaged_history_is_read_as_far_as_it_can_be() {
    let desk = Desk::new().await;
    let file = desk.world.home().join("history");
    let good = r#"{"text":"remembered","cwd":"/","at":"2026-01-01T00:00:00Z"}"#;
    let damaged =
        [b"\xff\xfe\n{\"text\":\n\0\0\n".as_slice(), good.as_bytes(), b"\n{\"te"].concat();
    std::fs::write(&file, damaged).unwrap();
    let mut screen = desk.open(&["--fresh"]);
    screen.wait_for("own, ").await;
    screen.key(Key::Up).await;
    screen.wait_for("> remembered").await;
    screen.key(Key::Enter).await;
    screen.wait_for_line("you> remembered").await;
    screen.wait_for(" out").await;
    screen.say("something new").await;
    screen.wait_for_line("you> something new").await;
    screen.key(Key::Up).await;
    screen.wait_for("work> something new").await;
    screen.key(Key::Ctrl('c')).await;
    screen.wait_until_gone("work> something new").await;
    screen.key(Key::Ctrl('d')).await;
    assert_eq!(screen.exit().await.code(), Some(0));
    // The next one has what this one said.
    let screen = desk.open(&["--fresh"]);
    screen.wait_for("own, ").await;
    screen.key(Key::Up).await;
    screen.wait_for("> something new").await;
}

#[tokio::test]
async fn a_history_that_cannot_be_opened_is_done_without() {
    let desk = Desk::new().await;
    std::fs::create_dir(desk.world.home().join("history")).unwrap();
    let mut screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for(" out").await;
    screen.key(Key::Ctrl('d')).await;
    assert_eq!(screen.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_locale_without_utf8_is_said_and_gets_ascii() {
    let desk = Desk::new().await.env("LANG", "de_DE.ISO-8859-1");
    desk.model().push(Reply::text("Grüße."));
    let screen = desk.open(&["--fresh"]);
    screen.wait_for("The locale says ISO-8859-1, not UTF-8").await;
    screen.type_bytes(b"Gr\xfc\xdfe zur\xfcck\n").await;
    screen.wait_for("Gr??e.").await;
    let written = screen.bytes();
    assert!(!written.windows(2).any(|two| two == "ü".as_bytes()));
}
