//! Approvals on the screen: asked for once, answered by whoever looked at them, and by nobody who only typed.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::screen::{Desk, Key, Screen};
use crate::harness::{Setup, eventually, within};
use crate::mcp;

/// The keys of the question, which are shown when it has the keys.
const KEYS: &str = "y once · a session · n deny · d deny, saying why";

fn touch(name: &str) -> Reply {
    Reply::tool_call("exec", json!({"argv": ["touch", name]}))
}

/// A conversation whose agent wants to make `made.txt`.
async fn asking(desk: &Desk) -> Screen {
    desk.model().push(touch("made.txt"));
    desk.model().push(Reply::text("So be it."));
    let screen = desk.open(&["--fresh"]);
    screen.say("Make it.").await;
    screen.wait_for("? work: exec").await;
    screen
}

/// Types a key as somebody does who has read the question.
async fn answer(screen: &Screen, key: &str) {
    look(screen).await;
    screen.type_text(key).await;
}

/// Reads the question.
async fn look(screen: &Screen) {
    screen.wait_for(KEYS).await;
    screen.read().await;
}

async fn waiting(desk: &Desk) -> usize {
    desk.ok("list_approvals", json!({})).await["approvals"].as_array().unwrap().len()
}

/// What the model was told of its call.
fn told(desk: &Desk) -> String {
    let body = desk.model().last_request().body;
    let messages = body["messages"].as_array().unwrap();
    let told = messages.iter().rfind(|message| message["role"] == "tool").unwrap();
    match &told["content"] {
        Value::String(text) => text.clone(),
        parts => parts.to_string(),
    }
}

#[tokio::test]
async fn y_allows_it_once() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    let panel = screen.text();
    assert!(panel.contains("touch made.txt") && panel.contains("held by"), "{panel}");
    assert!(!desk.world.work().join("made.txt").exists());
    answer(&screen, "y").await;
    screen.wait_for("So be it.").await;
    assert!(desk.world.work().join("made.txt").exists());
    screen.wait_until_gone("? work: exec").await;
    // The next one is asked for again.
    desk.model().push(touch("more.txt"));
    screen.say("Another.").await;
    screen.wait_for("touch more.txt").await;
    screen.wait_for("? work: exec").await;
    assert!(!desk.world.work().join("more.txt").exists());
}

#[tokio::test]
async fn a_allows_it_for_the_session() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    answer(&screen, "a").await;
    screen.wait_for("So be it.").await;
    desk.model().push(touch("more.txt"));
    desk.model().push(Reply::text("Again."));
    screen.say("Another.").await;
    screen.wait_for("Again.").await;
    assert!(desk.world.work().join("more.txt").exists());
}

#[tokio::test]
async fn n_denies_it() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    answer(&screen, "n").await;
    screen.wait_for("So be it.").await;
    assert!(told(&desk).contains("denied"), "{}", told(&desk));
    assert!(!desk.world.work().join("made.txt").exists());
    screen.wait_for("⊘").await;
}

#[tokio::test]
async fn d_tells_the_model_why() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    answer(&screen, "d").await;
    screen.wait_for("deny> ").await;
    screen.say("Rather write it down.").await;
    screen.wait_for("So be it.").await;
    assert!(told(&desk).contains("denied: Rather write it down."), "{}", told(&desk));
    assert!(!desk.world.work().join("made.txt").exists());
}

#[tokio::test]
async fn enter_never_answers() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    look(&screen).await;
    screen.key(Key::Enter).await;
    // A key that is seen to have come after it.
    screen.type_text("x").await;
    screen.wait_for("work> x").await;
    assert_eq!(waiting(&desk).await, 1);
    assert!(!desk.world.work().join("made.txt").exists());
}

#[tokio::test]
async fn what_is_typed_while_a_question_appears_answers_nothing() {
    let desk = Desk::new().await;
    let gate = Gate::new();
    desk.model().push(touch("made.txt").held_by(&gate));
    let screen = desk.open(&["--fresh"]);
    screen.say("Make it.").await;
    within("the model to be asked", desk.model().wait_for_requests(1)).await;
    let text = "yes and any day now: 1 2 3 ay nd ";
    for (at, letter) in text.chars().enumerate() {
        if at == 5 {
            gate.release();
        }
        if at == 12 {
            screen.wait_for("? work: exec").await;
        }
        screen.type_text(&letter.to_string()).await;
    }
    screen.wait_for(&format!("work> {}", text.trim_end())).await;
    // The question stays without the keys for as long as there is something in the input.
    screen.read().await;
    screen.read().await;
    screen.type_text("yand").await;
    screen.wait_for(&format!("work> {text}yand")).await;
    assert_eq!(waiting(&desk).await, 1);
    // Turned to on purpose, it takes an answer, and what was typed stays.
    desk.model().push(Reply::text("So be it."));
    screen.key(Key::ShiftTab).await;
    answer(&screen, "y").await;
    screen.wait_for("So be it.").await;
    screen.wait_for(&format!("work> {text}yand")).await;
}

#[tokio::test]
async fn what_begins_with_a_key_that_answers_nothing_answers_nothing() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    look(&screen).await;
    let text = "try 1 2 3 and say";
    screen.type_text(text).await;
    screen.wait_for(&format!("work> {text}")).await;
    assert_eq!(waiting(&desk).await, 1);
    // With the input empty again the question has the keys again.
    desk.model().push(Reply::text("So be it."));
    screen.type_text("\u{15}").await;
    answer(&screen, "y").await;
    screen.wait_for("So be it.").await;
}

#[tokio::test]
async fn a_key_that_comes_too_soon_is_the_inputs() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    screen.type_text("y").await;
    screen.wait_for("work> y").await;
    assert_eq!(waiting(&desk).await, 1);
    screen.key(Key::ShiftTab).await;
    screen.wait_for(KEYS).await;
    screen.type_text("n").await;
    screen.wait_for("work> yn").await;
    assert_eq!(waiting(&desk).await, 1);
}

/// What has no room on the screen is not answered, however long one waits; when there is room, it is.
#[tokio::test]
async fn a_question_that_is_not_seen_is_not_answered() {
    for (columns, rows) in [(80, 5), (23, 24)] {
        let desk = Desk::new().await.size(columns, rows);
        desk.model().push(touch("made.txt"));
        desk.model().push(Reply::text("So be it."));
        let screen = desk.open(&["--fresh"]);
        screen.say("Make it.").await;
        // Before that there may be no server yet.
        desk.model().wait_for_requests(1).await;
        eventually("a question", async || waiting(&desk).await == 1).await;
        screen.read().await;
        screen.read().await;
        screen.key(Key::ShiftTab).await;
        screen.read().await;
        screen.type_text("y").await;
        screen.wait_for("work> y").await;
        assert_eq!(waiting(&desk).await, 1);
        screen.resize(80, 24);
        screen.wait_for("? work: exec").await;
        screen.key(Key::Ctrl('c')).await;
        answer(&screen, "y").await;
        screen.wait_for("So be it.").await;
        assert!(desk.world.work().join("made.txt").exists());
    }
}

#[tokio::test]
async fn a_small_screen_shows_what_is_asked_and_how_to_answer() {
    let desk = Desk::new().await.size(40, 10);
    desk.model().push(Reply::tool_call("exec", json!({"argv": ["touch", "a b", "c"]})));
    let screen = desk.open(&["--fresh"]);
    screen.say("Make it.").await;
    screen.wait_for("y once · a session · n deny · p all").await;
    let panel = screen.text();
    for piece in ["? work: exec", "touch 'a b' c", " more lines: p", "work> "] {
        assert!(panel.contains(piece), "{panel}");
    }
}

/// What is typed before a command asks is no answer to it.
#[tokio::test]
async fn what_is_typed_before_a_command_asks_does_not_answer_it() {
    let desk = Desk::new().await;
    let screen = desk.open(&["--fresh"]);
    screen.wait_for(", own, ").await;
    desk.ok("create_agent", json!({"agent_id": "x", "preset": "trusted"})).await;
    desk.ok("create_agent", json!({"agent_id": "y", "parent_agent_id": "x"})).await;
    let agents = async || {
        let listed = desk.ok("list_agents", json!({})).await;
        listed["agents"].as_array().unwrap().len()
    };
    screen.type_text("/destroy x\ryes").await;
    screen.wait_for("[y/N]").await;
    screen.wait_for("> yes").await;
    screen.read().await;
    screen.type_text("y").await;
    screen.wait_for("> yesy").await;
    assert_eq!(agents().await, 2);
    screen.key(Key::ShiftTab).await;
    screen.wait_until_gone("Shift-Tab to answer").await;
    screen.read().await;
    screen.type_text("y").await;
    eventually("both to be gone", async || agents().await == 0).await;
    screen.wait_for("> yesy").await;
}

#[tokio::test]
async fn escape_goes_back_to_the_input_and_leaves_it_open() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    look(&screen).await;
    screen.key(Key::Escape).await;
    screen.wait_for("Shift-Tab to answer").await;
    screen.type_text("y").await;
    screen.wait_for("work> y").await;
    assert_eq!(waiting(&desk).await, 1);
}

#[tokio::test]
async fn what_somebody_else_decided_is_no_question_any_more() {
    let desk = Desk::new().await;
    let screen = asking(&desk).await;
    let id = desk.ok("list_approvals", json!({})).await["approvals"][0]["approval_id"].clone();
    desk.ok("respond_approval", json!({"approval_id": id, "decision": "deny"})).await;
    screen.wait_until_gone("? work: exec").await;
    screen.wait_for_line("work exec: denied").await;
    screen.wait_for("So be it.").await;
}

/// A desk at which a server of tools asks, and what it asks.
async fn questioned() -> Desk {
    let mut entry = mcp::server::server("asks");
    entry["approve"] = json!("never");
    let desk = Desk::with(Setup::new().config(json!({"mcp_servers": {"s": entry}}))).await;
    let schema = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "sure": {"type": "boolean"}}});
    let params = json!({"message": "Who are you?", "requestedSchema": schema});
    desk.model().push(Reply::tool_call("mcp_s_elicit", json!({"params": params})));
    desk.model().push(Reply::text("So be it."));
    desk
}

#[tokio::test]
async fn a_question_of_a_server_is_answered_field_by_field() {
    let desk = questioned().await;
    let screen = desk.open(&["--fresh"]);
    screen.say("Ask.").await;
    screen.wait_for("Who are you?").await;
    let keys = "y answer · n decline · c cancel";
    screen.wait_for(keys).await;
    screen.read().await;
    screen.type_text("y").await;
    screen.wait_for("Your name: a text").await;
    screen.say("").await;
    screen.wait_for("Your name is needed").await;
    // Too short for the server's schema: the form is asked for again.
    screen.say("A").await;
    screen.wait_for("2) green").await;
    screen.say("2").await;
    screen.wait_for("sure: y or n; may stay empty").await;
    screen.say("y").await;
    screen.wait_for("shorter than 2").await;
    screen.wait_for(keys).await;
    screen.read().await;
    screen.type_text("y").await;
    screen.wait_for("Your name: a text").await;
    for written in ["Ada", "", "n"] {
        screen.say(written).await;
    }
    screen.wait_for("So be it.").await;
    let answer =
        json!({"action": "accept", "content": {"name": "Ada", "sure": false, "colour": "red"}});
    assert_eq!(told(&desk), answer.to_string());
    screen.wait_until_gone("Who are you?").await;
}

#[tokio::test]
async fn a_question_of_a_server_is_answered_in_plain_words() {
    let desk = questioned().await;
    let screen = desk.open(&["--plain", "--fresh"]);
    screen.wait_for("> ").await;
    screen.type_text("Ask.\r").await;
    screen.wait_for("1) answer  3) decline  4) cancel").await;
    screen.read().await;
    for (typed, shown) in
        [("1", "Your name: a text"), ("Ada", "2) green"), ("2", "sure: y or n"), ("", "So be it.")]
    {
        screen.type_text(&format!("{typed}\r")).await;
        screen.wait_for(shown).await;
    }
    let answer = json!({"action": "accept", "content": {"name": "Ada", "colour": "green"}});
    assert_eq!(told(&desk), answer.to_string());
}

/// All tools of a server are allowed with one key, or one number: the second call is not asked about.
#[tokio::test]
async fn all_tools_of_a_server_are_allowed_at_once() {
    for (options, keys, key) in [
        (&["--fresh"][..], "y once · a session · s server · n deny", "s"),
        (&["--plain", "--fresh"], "5) allow the server's tools", "5\r"),
    ] {
        let servers = json!({"mcp_servers": {"s": mcp::server::server("")}});
        let desk = Desk::with(Setup::new().config(servers)).await;
        desk.model().push(Reply::tool_call("mcp_s_echo", json!({"text": "one"})));
        desk.model().push(Reply::tool_call("mcp_s_odd_name_55ccf295", json!({})));
        desk.model().push(Reply::text("So be it."));
        let screen = desk.open(options);
        screen.wait_for("> ").await;
        screen.type_text("Go.\r").await;
        screen.wait_for(keys).await;
        screen.read().await;
        screen.type_text(key).await;
        screen.wait_for("So be it.").await;
        let decided = desk.ok("list_approvals", json!({"include_decided": true})).await;
        let decided = decided["approvals"].as_array().unwrap();
        assert_eq!(decided.len(), 1, "{decided:?}");
        assert_eq!(decided[0]["status"], "allowed_session");
    }
}
