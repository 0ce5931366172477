//! Whatever ends, and however: the terminal is one to work with, the turn goes on, and what happened is told.

use std::os::unix::process::ExitStatusExt as _;

use nexus_testkit::{Gate, Reply};
use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::screen::{Desk, Key, Screen};
use crate::harness::{eventually, within};

/// A conversation in whose answer the model has stopped, until the gate is opened.
async fn in_mid_answer(desk: &Desk, gate: &Gate) -> Screen {
    desk.model().push(Reply::text("It begins.\n\n").then_gate(gate).then_text("It ends."));
    let screen = desk.open(&["--fresh"]);
    screen.say("Tell me.").await;
    screen.wait_for("It begins.").await;
    screen
}

/// A second terminal sees the end of a turn that was begun in the first.
async fn sees_the_end(desk: &Desk, gate: &Gate) {
    let screen = desk.open(&["--session", "work"]);
    screen.wait_for("It begins.").await;
    gate.release();
    screen.wait_for("It ends.").await;
    screen.wait_for_end().await;
    for line in ["you> Tell me.", "It begins.", "It ends."] {
        assert_eq!(screen.count(line), 1, "{:#?}", screen.everything());
    }
}

#[tokio::test]
async fn a_killed_terminal_is_put_in_order_and_its_turn_goes_on() {
    let (desk, gate) = (Desk::new().await, Gate::new());
    let mut screen = in_mid_answer(&desk, &gate).await;
    screen.signal(Signal::KILL);
    assert_eq!(screen.exit().await.signal(), Some(9));
    screen.wait_until_in_order().await;
    // Nothing of it is below the place where the shell goes on.
    screen.wait_until_gone(" · trusted · ").await;
    sees_the_end(&desk, &gate).await;
}

#[tokio::test]
async fn a_terminal_that_is_told_to_end_leaves_its_turn_running() {
    for signal in [Signal::TERM, Signal::HUP] {
        let (desk, gate) = (Desk::new().await, Gate::new());
        let mut screen = in_mid_answer(&desk, &gate).await;
        screen.signal(signal);
        assert_eq!(screen.exit().await.code(), Some(0), "{signal:?}");
        screen.wait_until_in_order().await;
        let server = desk.server().await;
        sees_the_end(&desk, &gate).await;
        // As after `/detach`: the server is there for whoever comes back.
        eventually("nobody to watch", async || {
            desk.ok("server_info", json!({})).await["watches"] == 0
        })
        .await;
        assert_eq!(desk.server().await, server);
    }
}

#[tokio::test]
async fn an_unplugged_terminal_ends_and_leaves_its_turn_running() {
    let (desk, gate) = (Desk::new().await, Gate::new());
    let screen = in_mid_answer(&desk, &gate).await;
    let mut program = screen.unplug();
    within("the program to end", program.wait()).await.unwrap();
    sees_the_end(&desk, &gate).await;
}

#[tokio::test]
async fn a_killed_server_is_started_again_and_the_turn_goes_on() {
    let (desk, gate) = (Desk::new().await, Gate::new());
    let screen = in_mid_answer(&desk, &gate).await;
    let server = desk.server().await;
    screen.type_text("half a sentence").await;
    screen.wait_for("work> half a sentence").await;
    kill_process(server, Signal::KILL).unwrap();
    screen.wait_for("server ended (signal 9); starting it again").await;
    screen.wait_for("was cut off: /continue").await;
    screen.wait_for("work> half a sentence").await;
    assert_ne!(desk.server().await, server);
    screen.key(Key::Ctrl('c')).await;
    screen.wait_until_gone("half a sentence").await;
    desk.model().push(Reply::text("It went on."));
    screen.say("/continue").await;
    screen.wait_for("It went on.").await;
    screen.wait_for_end().await;
    for line in ["you> Tell me.", "It begins.", "It went on."] {
        assert_eq!(screen.count(line), 1, "{:#?}", screen.everything());
    }
}

#[tokio::test]
async fn a_server_that_ends_again_and_again_is_not_started_for_ever() {
    let desk = Desk::new().await;
    let mut screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    kill_process(desk.server().await, Signal::KILL).unwrap();
    screen.wait_for("connected again").await;
    kill_process(desk.server().await, Signal::KILL).unwrap();
    assert_eq!(screen.exit().await.code(), Some(1));
    screen.wait_for("the server ended again").await;
    screen.wait_until_in_order().await;
}

#[tokio::test]
async fn a_suspended_terminal_comes_back_and_tells_what_happened() {
    let desk = Desk::new().await;
    let script = "set -m; \"$0\" \"$@\"; echo '<suspended>'; read go; fg; echo \"<ended $?>\"";
    let mut screen = desk.open_shell(script, &["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    screen.type_text("a draft").await;
    screen.wait_for("work> a draft").await;
    screen.key(Key::Ctrl('z')).await;
    screen.wait_for("<suspended>").await;
    screen.wait_until_in_order().await;
    assert!(!screen.text().contains("a draft"), "{}", screen.text());
    // The server is not suspended with it.
    desk.model().push(Reply::text("Meanwhile."));
    desk.ok("send", json!({"agent_id": "work", "content": "from elsewhere", "source": "cron"}))
        .await;
    assert!(!screen.text().contains("Meanwhile."));
    screen.type_text("\n").await;
    screen.wait_for("Meanwhile.").await;
    screen.wait_for("work> a draft").await;
    assert_eq!(screen.count("▶ from cron: from elsewhere"), 1, "{:#?}", screen.everything());
    assert_eq!(screen.count("you> Hello."), 1);
    screen.key(Key::Ctrl('c')).await;
    screen.wait_until_gone("a draft").await;
    screen.key(Key::Ctrl('d')).await;
    screen.wait_for("<ended 0>").await;
    assert!(screen.exit().await.success());
}

#[tokio::test]
async fn an_agent_that_is_renamed_stays_on_the_screen() {
    let desk = Desk::new().await;
    let screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    desk.ok("rename_session", json!({"old_name": "work", "new_name": "play"})).await;
    screen.wait_for("work is play now").await;
    screen.wait_for("play> ").await;
    desk.model().push(Reply::text("Still here."));
    screen.say("Who are you?").await;
    screen.wait_for_line("Still here.").await;
    screen.wait_for("play · ").await;
    assert_eq!(screen.count("you> Hello."), 1);
}

#[tokio::test]
async fn an_agent_that_is_destroyed_is_said_to_be() {
    let desk = Desk::new().await;
    let screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    screen.type_text("a draft").await;
    desk.ok("destroy_agent", json!({"agent_id": "work"})).await;
    screen.wait_for("work has ended").await;
    screen.wait_for("> a draft").await;
    screen.key(Key::Enter).await;
    screen.wait_for_line("you> a draft").await;
    screen.wait_until("an answer", |screen| screen.ends().len() == 2).await;
}

#[tokio::test]
async fn a_server_that_somebody_stops_is_left() {
    let desk = Desk::new().await;
    let mut screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    let mut attached = desk.open(&["--session", "work"]);
    attached.wait_for("work> ").await;
    // Whoever was answered hears what happens.
    attached.say("Hello again.").await;
    attached.wait_for_end().await;
    desk.ok("shutdown_server", json!({})).await;
    for screen in [&mut screen, &mut attached] {
        assert_eq!(screen.exit().await.code(), Some(0));
        screen.wait_for("the server has stopped").await;
        screen.wait_for("Goodbye!").await;
        screen.wait_until_in_order().await;
    }
    eventually("all to end", async || desk.processes().is_empty()).await;
}
