//! What leaves the screen: a text for the editor, and one for the clipboard.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nexus_testkit::Reply;

use super::screen::{Desk, Key};

#[tokio::test]
async fn an_answer_is_copied_to_the_clipboard() {
    let desk = Desk::new().await;
    desk.model().push(Reply::text("Do this:\n\n```sh\nmake grün\n```\n"));
    let screen = desk.open(&["--fresh"]);
    screen.say("What now?").await;
    screen.wait_for_end().await;
    screen.say("/copy code").await;
    let copied = format!("copy {}", STANDARD.encode("make grün\n"));
    screen.wait_until("a copy", |screen| !screen.asked().is_empty()).await;
    assert_eq!(screen.asked(), [copied]);
}

#[tokio::test]
async fn the_input_is_changed_in_the_editor() {
    let desk = Desk::new().await;
    let editor = desk.world.work().join("editor.sh");
    let script = "stat -c %a \"$1\" >seen.txt; sed -i s/draft/letter/ \"$1\"; printf '\\nYours.\\n' >>\"$1\"";
    std::fs::write(&editor, script).unwrap();
    let desk = desk.env("EDITOR", &format!("sh {}", editor.display()));
    let screen = desk.open(&["--fresh"]);
    screen.type_text("a draft").await;
    screen.wait_for("> a draft").await;
    screen.key(Key::Ctrl('g')).await;
    screen.wait_for("> a letter").await;
    screen.wait_for("Yours.").await;
    screen.key(Key::Enter).await;
    screen.wait_for_end().await;
    assert_eq!(desk.model().last_request().last_user_text(), Some("a letter\nYours."));
    // Nobody else could read it, and it is gone.
    let mode = std::fs::read_to_string(desk.world.work().join("seen.txt")).unwrap();
    assert_eq!(mode.trim_end(), "600");
    let left = std::fs::read_dir(desk.world.home()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with("terminal-")).collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn an_editor_that_fails_changes_nothing() {
    let desk = Desk::new().await.env("VISUAL", "false");
    let screen = desk.open(&["--fresh"]);
    screen.type_text("a draft").await;
    screen.wait_for("> a draft").await;
    screen.type_text("\x18\x05").await;
    screen.wait_for("false: exit status: 1").await;
    screen.wait_for("> a draft").await;
}
