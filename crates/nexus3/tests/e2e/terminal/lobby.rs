//! Which conversation one begins with.

use nexus_testkit::Reply;
use serde_json::json;

use super::screen::{Desk, Key};

/// A desk on which somebody said something to `work`, and left; then to `work-2`.
async fn with_sessions() -> Desk {
    let desk = Desk::new().await;
    for (question, answer) in [("the older one", "An old answer."), ("the newer one", "A new one.")]
    {
        desk.model().push(Reply::text(answer));
        let mut screen = desk.open(&["--fresh"]);
        screen.say(question).await;
        screen.wait_for_end().await;
        screen.key(Key::Ctrl('d')).await;
        assert_eq!(screen.exit().await.code(), Some(0));
    }
    desk
}

#[tokio::test]
async fn one_key_chooses() {
    let desk = with_sessions().await;
    let screen = desk.open(&[]);
    screen.wait_for("1) Resume: work-2 (").await;
    screen.wait_for("2) Fresh session").await;
    screen.wait_for("3) Choose from saved...").await;
    screen.read().await;
    screen.type_text("1").await;
    screen.wait_for("work-2> ").await;
    screen.wait_for_line("A new one.").await;
    drop(screen);

    let screen = desk.open(&[]);
    screen.wait_for("1) Resume: work-2 (").await;
    screen.read().await;
    screen.key(Key::Enter).await;
    screen.wait_for("work-2> ").await;
    drop(screen);

    let screen = desk.open(&[]);
    screen.wait_for("2) Fresh session").await;
    screen.read().await;
    screen.type_text("2").await;
    screen.wait_until_gone("2) Fresh session").await;
    screen.say("something else").await;
    screen.wait_for("work-3> ").await;
    drop(screen);

    let screen = desk.open(&[]);
    screen.wait_for("3) Choose from saved...").await;
    screen.read().await;
    screen.type_text("3").await;
    screen.wait_for("work (").await;
    screen.key(Key::Escape).await;
    screen.wait_for("2) Fresh session").await;
    screen.type_text("3").await;
    screen.wait_for("work (").await;
    screen.type_text("work (").await;
    screen.wait_until_gone("work-2 (").await;
    screen.key(Key::Enter).await;
    screen.wait_for("work> ").await;
    screen.wait_for_line("An old answer.").await;
}

#[tokio::test]
async fn the_lobby_can_be_left() {
    let desk = with_sessions().await;
    for key in [None, Some(Key::Escape), Some(Key::Ctrl('c')), Some(Key::Ctrl('d'))] {
        let mut screen = desk.open(&[]);
        screen.wait_for("2) Fresh session").await;
        match key {
            None => {
                screen.read().await;
                screen.type_text("q").await;
            }
            Some(key) => screen.key(key).await,
        }
        assert_eq!(screen.exit().await.code(), Some(0), "{key:?}");
        screen.wait_until_in_order().await;
    }
}

#[tokio::test]
async fn whoever_is_shown_one_that_ends_can_choose_another() {
    for key in ["1", "\x1b"] {
        let desk = with_sessions().await;
        let screen = desk.open(&["--session", "work"]);
        screen.wait_for_line("An old answer.").await;
        desk.ok("destroy_agent", json!({"agent_id": "work"})).await;
        screen.wait_for("work has ended.").await;
        screen.wait_for("1) Resume: work-2 (").await;
        screen.read().await;
        screen.type_text(key).await;
        screen.wait_until_gone("1) Resume").await;
        match key {
            "1" => screen.wait_for("work-2> ").await,
            _ => screen.wait_for("new session").await,
        }
    }
}

/// Temporary agents are no sessions, and can be gone on with all the same.
#[tokio::test]
async fn temporary_agents_alone_are_something_to_choose_from() {
    let desk = Desk::new().await;
    let first = desk.open(&["--temp"]);
    first.say("Hello.").await;
    first.wait_for_end().await;
    let screen = desk.open(&[]);
    screen.wait_for("1) Fresh session").await;
    screen.wait_for("2) .1").await;
    screen.read().await;
    screen.type_text("2").await;
    screen.wait_for(".1> ").await;
    screen.wait_for_line("you> Hello.").await;
}

#[tokio::test]
async fn nothing_to_choose_is_no_lobby() {
    let desk = Desk::new().await;
    let screen = desk.open(&[]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    assert!(!screen.everything().iter().any(|line| line.contains("Fresh session")));
}

#[tokio::test]
async fn resume_is_the_last_one() {
    let desk = with_sessions().await;
    let screen = desk.open(&["--resume"]);
    screen.wait_for("work-2> ").await;
    screen.wait_for_line("A new one.").await;
    let empty = Desk::new().await;
    let mut none = empty.open(&["--resume"]);
    assert_eq!(none.exit().await.code(), Some(1));
    none.wait_for("No last session to resume").await;
    none.wait_until_in_order().await;
}

#[tokio::test]
async fn a_session_is_opened_by_its_name() {
    let desk = with_sessions().await;
    let screen = desk.open(&["--session", "work"]);
    screen.wait_for("work> ").await;
    screen.wait_for_line("An old answer.").await;
    let mut unknown = desk.open(&["--session", "nobody"]);
    assert_eq!(unknown.exit().await.code(), Some(1));
    unknown.wait_for("Session not found: nobody").await;
    unknown.wait_until_in_order().await;
    assert!(!unknown.text().contains("Goodbye!"));
}

#[tokio::test]
async fn a_temporary_one_is_gone_with_its_server() {
    let desk = Desk::new().await;
    let mut screen = desk.open(&["--temp"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    screen.wait_for(".1> ").await;
    let agents = desk.ok("list_agents", json!({})).await;
    assert_eq!(agents["agents"][0]["agent_id"], ".1");
    screen.key(Key::Ctrl('d')).await;
    assert_eq!(screen.exit().await.code(), Some(0));
    let mut none = desk.open(&["--resume"]);
    assert_eq!(none.exit().await.code(), Some(1));
}
