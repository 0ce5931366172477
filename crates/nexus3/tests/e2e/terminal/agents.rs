//! Agents beside the one that is shown: turned to, and spoken to.

use nexus_testkit::Reply;
use serde_json::json;

use super::screen::{Desk, Screen};

/// A conversation with `work`, and agents of these names beside it.
async fn beside(desk: &Desk, names: &[&str]) -> Screen {
    let screen = desk.open(&["--fresh"]);
    screen.say("Hello.").await;
    screen.wait_for_end().await;
    for name in names {
        desk.ok("create_agent", json!({"agent_id": name, "preset": "trusted"})).await;
    }
    screen
}

/// What was said to an agent.
async fn said_to(desk: &Desk, agent: &str) -> Vec<String> {
    let page = desk.ok("get_messages", json!({"agent_id": agent})).await;
    let messages = page["messages"].as_array().unwrap().iter();
    let said = messages.filter(|message| message["role"] == "user");
    said.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn alt_a_goes_to_whoever_waits_or_has_something_unread() {
    let desk = Desk::new().await;
    let screen = beside(&desk, &["asker", "quiet", "teller"]).await;
    desk.model().push(Reply::tool_call("exec", json!({"argv": ["touch", "made.txt"]})));
    screen.say("/send asker Make it.").await;
    screen.wait_for("? asker: exec").await;
    desk.model().push(Reply::text("Read me."));
    desk.ok("send", json!({"agent_id": "teller", "content": "Tell."})).await;
    screen.wait_for("teller: done").await;
    for name in ["asker", "teller", "asker"] {
        screen.type_text("\x1ba").await;
        screen.wait_for(&format!("{name}> ")).await;
        if name == "teller" {
            // Whoever leaves before that has not read it.
            screen.wait_for_line("Read me.").await;
        }
    }
}

#[tokio::test]
async fn who_turns_to_an_agent_in_mid_turn_reads_each_line_once() {
    let desk = Desk::new().await;
    let screen = beside(&desk, &["asker"]).await;
    let call = Reply::text("I make it.").then_tool_call("exec", json!({"argv": ["true"]}));
    desk.model().push(call);
    desk.model().push(Reply::text("It is made."));
    screen.say("/send asker Make it.").await;
    screen.wait_for("? asker: exec").await;
    screen.type_text("\x1ba").await;
    screen.wait_for_line("you> Make it.").await;
    screen.wait_for("y once").await;
    screen.read().await;
    screen.type_text("y").await;
    screen.wait_until("the end", |screen| screen.ends().len() == 2).await;
    screen.wait_until("what /send prints", |screen| screen.count("It is made.") == 2).await;
    assert_eq!(screen.count("I make it."), 1 + 1, "as it was said, and with what /send prints");
    assert!(screen.ends()[1].contains(" · 1 tool"), "{:?}", screen.ends());
}

#[tokio::test]
async fn what_is_whispered_reaches_that_agent_alone() {
    let desk = Desk::new().await;
    let screen = beside(&desk, &["other"]).await;
    screen.say("/whisper other").await;
    screen.wait_for_line("What you write goes to other until /over.").await;
    screen.wait_for("other> ").await;
    desk.model().push(Reply::text("Psst."));
    screen.say("Quietly.").await;
    screen.wait_for_line("other> Quietly.").await;
    screen.wait_for_line("◀ other:").await;
    screen.wait_for_line("Psst.").await;
    screen.say("/over").await;
    screen.wait_for("work> ").await;
    screen.say("Aloud.").await;
    screen.wait_until("an answer", |screen| screen.ends().len() == 2).await;
    assert_eq!(said_to(&desk, "other").await, ["Quietly."]);
    assert_eq!(said_to(&desk, "work").await, ["Hello.", "Aloud."]);
}
