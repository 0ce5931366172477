//! A first conversation: it is there at once, says each thing once, and is left as it was found.

use nexus_testkit::{Gate, Reply};
use serde_json::json;

use super::screen::{Desk, Key, Screen};
use crate::harness::{Setup, within};

#[tokio::test]
async fn a_message_is_answered_and_each_line_stands_once() {
    let desk = Desk::new().await;
    let lines: Vec<String> = (1..=60).map(|number| format!("- line {number}")).collect();
    let pieces = [lines[..30].join("\n"), "\n".into(), lines[30..].join("\n")];
    desk.model().push(Reply::chunks(pieces).usage(1_200, 34));
    let mut screen = desk.open(&[]);
    screen.say("Count for me.").await;
    screen.wait_for("1,200 in 34 out").await;
    let seen = screen.everything();
    let numbered: Vec<&String> = seen.iter().filter(|line| line.contains(" line ")).collect();
    let is_in_order = |(at, line): (usize, &&String)| line.ends_with(&format!(" line {}", at + 1));
    assert!(numbered.len() == 60 && numbered.iter().enumerate().all(is_in_order), "{numbered:#?}");
    assert_eq!(screen.count("you> Count for me."), 1);
    assert_eq!(screen.ends().len(), 1, "{seen:#?}");
    // The agent has the name of the directory.
    screen.wait_for("work> ").await;
    screen.key(Key::Ctrl('d')).await;
    assert_eq!(screen.exit().await.code(), Some(0));
    screen.wait_for("Goodbye!").await;
    screen.wait_until_in_order().await;
    let last = screen.everything().into_iter().rfind(|line| !line.is_empty());
    assert_eq!(last.as_deref(), Some("Goodbye!"));
    let (_, column) = screen.cursor().unwrap();
    assert_eq!(column, 0);
    // Its server ends with it.
    crate::harness::eventually("the server to end", async || desk.processes().is_empty()).await;
}

#[tokio::test]
async fn the_agent_is_introduced_and_its_calls_can_be_had_for_curl() {
    let desk = Desk::new().await;
    let screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    let line = "agent work · scripted · ~/work · trusted";
    screen.wait_for_line(line).await;
    let seen = screen.everything();
    let place = |text: &str| seen.iter().position(|it| it.starts_with(text));
    assert!(place("nexus3 ") < place(line) && place(line) < place("you> Hello."), "{seen:#?}");
    screen.say("/curl").await;
    screen.wait_for("token=$(cat ").await;
    screen.wait_for(r#""method":"send""#).await;
}

#[tokio::test]
async fn names_of_agents_open_a_list_while_they_are_typed() {
    let desk = Desk::new().await;
    let screen = desk.open(&["--fresh"]);
    screen.wait_for(", own, ").await;
    desk.ok("create_agent", json!({"agent_id": "other"})).await;
    desk.ok("send", json!({"agent_id": "other", "content": "Hello."})).await;
    // It is known here.
    screen.wait_for("other: done").await;
    screen.type_text("/status ot").await;
    screen.wait_for("> /status ot").await;
    screen.wait_for("other           ").await;
    screen.type_text("\t").await;
    screen.wait_for("> /status other").await;
}

#[tokio::test]
async fn the_emulator_is_asked_nothing() {
    let desk = Desk::new().await;
    let mut screen = desk.open(&[]);
    screen.say("Hello.").await;
    screen.wait_for("work> ").await;
    screen.wait_until("the end of the turn", |screen| screen.ends().len() == 1).await;
    screen.key(Key::Ctrl('d')).await;
    screen.exit().await;
    screen.wait_until_in_order().await;
    assert_eq!(screen.asked(), [""; 0]);
}

#[tokio::test]
async fn what_is_typed_before_the_server_answers_is_sent_then() {
    let desk = Desk::new().await;
    let screen = desk.open(&[]);
    screen.wait_for("looking for the server").await;
    screen.type_text("first\rsecond\rthird").await;
    screen.wait_until("two turns", |screen| screen.ends().len() == 2).await;
    screen.wait_for("work> third").await;
    let seen = screen.everything();
    let asked: Vec<&String> = seen.iter().filter(|line| line.starts_with("you> ")).collect();
    assert_eq!(asked, ["you> first", "you> second"]);
    assert_eq!(desk.ok("server_info", json!({})).await["agents"], 1);
}

#[tokio::test]
async fn what_is_typed_before_the_program_runs_is_not_lost() {
    let desk = Desk::new().await;
    let screen = desk.open(&[]);
    screen.type_text("first\rsec").await;
    screen.wait_until("a turn", |screen| screen.ends().len() == 1).await;
    screen.wait_for("work> sec").await;
    assert_eq!(screen.count("you> first"), 1);
}

#[tokio::test]
async fn two_terminals_show_the_same_lines() {
    let desk = Desk::new().await;
    desk.model().set_default(Reply::chunks(["One.\n\n- a", "\n- b\n\nThe ", "end."]));
    let first = desk.open(&["--fresh"]);
    first.say("Hello.").await;
    first.wait_until("an answer", |screen| screen.ends().len() == 1).await;
    let second = desk.open(&["--session", "work"]);
    second.wait_for("work> ").await;
    second.wait_for("The end.").await;
    second.wait_for("2 watching").await;
    first.say("from the first").await;
    first.wait_until("an answer", |screen| screen.ends().len() == 2).await;
    second.wait_for_line("you> from the first").await;
    second.wait_until("its end", |screen| !screen.ends().is_empty()).await;
    second.say("from the second").await;
    first.wait_until("an answer", |screen| screen.ends().len() == 3).await;
    second.wait_until("an answer", |screen| screen.ends().len() == 2).await;
    let since = |screen: &Screen| {
        let seen = screen.everything();
        let from = seen.iter().position(|line| line == "you> from the first").unwrap();
        let to = seen.iter().rposition(|line| line.starts_with("─ ")).unwrap();
        seen[from..=to].to_vec()
    };
    assert_eq!(since(&first), since(&second));
}

#[tokio::test]
async fn escape_cancels_the_turn() {
    let desk = Desk::new().await;
    desk.model().push(Reply::text("It begins").then_hang());
    let screen = desk.open(&["--fresh"]);
    screen.say("Go on for ever.").await;
    screen.wait_for("It begins").await;
    screen.wait_for("Esc cancels").await;
    screen.key(Key::Escape).await;
    screen.wait_until("the end", |screen| screen.ends().len() == 1).await;
    assert!(screen.ends()[0].ends_with(" · cancelled"), "{:?}", screen.ends());
    assert_eq!(screen.count("It begins"), 1);
    screen.say("And now?").await;
    screen.wait_until("the next turn", |screen| screen.ends().len() == 2).await;
}

#[tokio::test]
async fn a_message_waits_for_the_turn_before_it_and_can_be_taken_back() {
    let desk = Desk::new().await;
    let gate = Gate::new();
    desk.model().push(Reply::text("first answer").held_by(&gate));
    desk.model().push(Reply::text("second answer"));
    let screen = desk.open(&["--fresh"]);
    screen.say("one").await;
    within("the model to be asked", desk.model().wait_for_requests(1)).await;
    screen.say("two").await;
    screen.wait_for("queued 1").await;
    screen.say("three").await;
    screen.wait_for("queued 2").await;
    screen.key(Key::Up).await;
    screen.wait_for("queued 1").await;
    screen.wait_for("work> three").await;
    gate.release();
    screen.wait_until("two turns", |screen| screen.ends().len() == 2).await;
    let seen = screen.everything();
    let talk = seen.iter().filter(|line| line.starts_with("you> ") || line.contains("answer"));
    let talk: Vec<&String> = talk.collect();
    assert_eq!(talk, ["you> one", "first answer", "you> two", "second answer"], "{seen:#?}");
    assert_eq!(desk.model().request_count(), 2);
}

#[tokio::test]
async fn commands_are_explained_and_an_unknown_one_is_not_sent() {
    let desk = Desk::new().await;
    let screen = desk.open(&["--fresh"]);
    screen.say("/help").await;
    let has = |screen: &Screen, word: &str| screen.everything().iter().any(|it| it.contains(word));
    screen.wait_until("the commands", |screen| has(screen, "/detach")).await;
    for command in ["/tree", "/compact", "/approvals", "/quit"] {
        assert!(has(&screen, command), "{command}");
    }
    screen.say("/hepl").await;
    screen.wait_for("Unknown command: /hepl. Use /help for available commands.").await;
    assert_eq!(desk.model().request_count(), 0);
}

#[tokio::test]
async fn control_c_clears_and_then_quits() {
    let desk = Desk::new().await;
    let mut screen = desk.open(&["--fresh"]);
    screen.wait_for("own, ").await;
    screen.type_text("never mind").await;
    screen.wait_for("> never mind").await;
    screen.key(Key::Ctrl('c')).await;
    screen.wait_until_gone("never mind").await;
    screen.key(Key::Up).await;
    screen.wait_for("> never mind").await;
    screen.key(Key::Ctrl('c')).await;
    screen.wait_until_gone("never mind").await;
    screen.key(Key::Ctrl('c')).await;
    screen.wait_for("Ctrl-C again to quit").await;
    screen.key(Key::Ctrl('c')).await;
    assert_eq!(screen.exit().await.code(), Some(0));
    screen.wait_for("Goodbye!").await;
    screen.wait_until_in_order().await;
}

#[tokio::test]
async fn keys_are_as_configured() {
    let keys = json!({"terminal": {"keys": {"tree": "ctrl-g", "search": []}}});
    let desk = Desk::with(Setup::new().config(keys)).await;
    let screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for(" out").await;
    screen.key(Key::Ctrl('r')).await;
    screen.key(Key::Ctrl('g')).await;
    screen.wait_for("2 messages").await;
    assert!(!screen.text().contains("search `"));

    let keys = json!({"terminal": {"keys": {"fly": "ctrl-g"}}});
    let desk = Desk::with(Setup::new().config(keys)).await;
    let mut screen = desk.open(&["--fresh"]);
    assert_eq!(screen.exit().await.code(), Some(1));
    screen.wait_for("terminal.keys.fly: there is no such action").await;
    screen.wait_until_in_order().await;
}
