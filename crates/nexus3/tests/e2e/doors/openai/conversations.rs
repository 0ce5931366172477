//! Conversations of clients that say all of it each time: found again, forked, taken over.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::{CHAT, chat, json_of, post, refused, said, talking};
use crate::harness::{Response, Server, Setup, eventually};
use crate::support::{create, history, names, shown};

const NEW: &str = "new:sandboxed";

/// The answer, and the agent that gave it.
async fn talk(server: &Server, said_so_far: &[&str]) -> (String, String) {
    talk_with(server, &talking(NEW, said_so_far)).await
}

async fn talk_with(server: &Server, body: &Value) -> (String, String) {
    let response = server.ask(post(server, CHAT, body)).await;
    assert_eq!(response.status, 200, "{:?}", json_of(&response));
    (said(&json_of(&response)).to_owned(), agent(&response))
}

fn agent(response: &Response) -> String {
    response.header("x-nexus-agent").unwrap().to_owned()
}

#[tokio::test]
async fn a_conversation_goes_on_with_its_agent_and_all_it_did() {
    let server = Server::start().await;
    server
        .model()
        .push(Reply::text("Let me see.").then_tool_call("list_directory", json!({"path": "."})));
    server.model().push(Reply::text("Empty."));
    let (first, agent) = talk(&server, &["What is here?"]).await;
    assert_eq!(first, "Let me see.\n\nEmpty.");
    server.model().push(Reply::text("Sure."));
    // What a client keeps is trimmed.
    let (second, same) = talk(&server, &["What is here? ", &format!("{first} \n"), "Sure?"]).await;
    assert_eq!((second.as_str(), &same), ("Sure.", &agent));
    let asked = server.model().last_request().body.to_string();
    assert!(asked.contains("list_directory") && asked.contains("tool_call_id"), "{asked}");
    // It is temporary, and another beginning is another agent.
    assert!(agent.starts_with('.'));
    let (_, other) = talk(&server, &["What is here?"]).await;
    assert_ne!(other, agent);
}

#[tokio::test]
async fn what_says_something_else_forks() {
    let server = Server::start().await;
    for text in ["a1", "a2", "a3"] {
        server.model().push(Reply::text(text));
    }
    let (_, agent) = talk(&server, &["u1"]).await;
    talk(&server, &["u1", "a1", "u2"]).await;
    talk(&server, &["u1", "a1", "u2", "a2", "u3"]).await;
    let whole = ["u1", "a1", "u2", "a2", "u3", "a3"];
    // An edited message, one that is answered again, and the first one.
    server.model().push(Reply::text("b2"));
    let (_, edited) = talk(&server, &["u1", "a1", "u2 but better"]).await;
    server.model().push(Reply::text("c3"));
    let (_, again) = talk(&server, &["u1", "a1", "u2", "a2", "u3"]).await;
    server.model().push(Reply::text("d1"));
    let (_, anew) = talk(&server, &["u1!"]).await;
    let wire = server.wire();
    let texts = async |agent: &str| -> Vec<String> {
        let found = wire.ok("get_messages", json!({"agent_id": agent})).await;
        let found = found["messages"].as_array().unwrap().clone();
        found.iter().map(|it| it["content"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts(&agent).await, whole);
    assert_eq!(texts(&edited).await, ["u1", "a1", "u2 but better", "b2"]);
    assert_eq!(texts(&again).await, ["u1", "a1", "u2", "a2", "u3", "c3"]);
    assert_eq!(texts(&anew).await, ["u1!", "d1"]);
    // Each goes on by itself.
    server.model().push(Reply::text("b3"));
    let went_on = talk(&server, &["u1", "a1", "u2 but better", "b2", "u3"]).await;
    assert_eq!(went_on, ("b3".to_owned(), edited));
    server.model().push(Reply::text("a4"));
    let said: Vec<_> = whole.into_iter().chain(["u4"]).collect();
    assert_eq!(talk(&server, &said).await, ("a4".to_owned(), agent));
}

#[tokio::test]
async fn a_past_that_nobody_knows_is_taken_over() {
    let server = Server::start().await;
    let (_, agent) = talk(&server, &["Who am I?", "You are Ada.", "Sure?"]).await;
    let asked = server.model().last_request().body["messages"].to_string();
    assert!(asked.contains("You are Ada.") && asked.contains("Who am I?"), "{asked}");
    let messages = server.wire().ok("get_messages", json!({"agent_id": agent})).await;
    let roles: Vec<_> =
        messages["messages"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let body = json!({"model": NEW, "messages": [
        {"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "assistant", "content": "y"},
        {"role": "user", "content": "z"},
    ]});
    let (status, error) = refused(&server, post(&server, CHAT, &body)).await;
    assert_eq!((status, &error["param"]), (400, &json!("messages")), "{error}");
}

/// Temporary agents end with their process. What was said is in the request, so nothing of it is lost.
#[tokio::test]
async fn a_conversation_goes_on_after_kill_9() {
    let server = Server::start().await;
    server.model().push(Reply::text("a1"));
    let (_, agent) = talk(&server, &["u1"]).await;
    let server = server.restart().await;
    server.model().push(Reply::text("a2"));
    let (answer, other) = talk(&server, &["u1", "a1", "u2"]).await;
    assert_eq!(answer, "a2");
    assert_ne!(agent, other);
    server.model().push(Reply::text("a3"));
    let went_on = talk(&server, &["u1", "a1", "u2", "a2", "u3"]).await;
    assert_eq!(went_on, ("a3".to_owned(), other));
}

#[tokio::test]
async fn an_agent_that_was_ended_is_made_anew() {
    let server = Server::start().await;
    server.model().push(Reply::text("a1"));
    let (_, agent) = talk(&server, &["u1"]).await;
    server.wire().ok("destroy_agent", json!({"agent_id": agent})).await;
    server.model().push(Reply::text("a2"));
    let (answer, other) = talk(&server, &["u1", "a1", "u2"]).await;
    assert_eq!(answer, "a2");
    assert_ne!(agent, other);
}

#[tokio::test]
async fn a_conversation_that_has_a_name_is_found_by_it() {
    let server = Server::start().await;
    let named = |said: &[&str], name: &str| {
        post(&server, CHAT, &talking(NEW, said)).header("X-Nexus-Session", name)
    };
    let first = agent(&server.ask(named(&["u1"], "mine")).await);
    let again = agent(&server.ask(named(&["u2"], "mine")).await);
    assert_eq!(first, again);
    let other = agent(&server.ask(named(&["u1"], "other")).await);
    assert_ne!(first, other);
    let mut body = talking(NEW, &["u3"]);
    body["metadata"] = json!({"nexus_session": "mine"});
    assert_eq!(talk_with(&server, &body).await.1, first);
    let wire = server.wire();
    assert_eq!(wire.ok("get_messages", json!({"agent_id": first})).await["total"], 6);
}

/// Instructions belong to a conversation: with others it is another.
#[tokio::test]
async fn system_messages_are_instructions() {
    let server = Server::start().await;
    let with = |instructions: &str, said: &[&str]| {
        let mut body = talking(NEW, said);
        let system = json!({"role": "developer", "content": instructions});
        body["messages"].as_array_mut().unwrap().insert(0, system);
        body
    };
    server.model().push(Reply::text("a1"));
    let (_, agent) = talk_with(&server, &with("Be a pirate.", &["u1"])).await;
    assert!(server.model().last_request().body.to_string().contains("Be a pirate."));
    server.model().push(Reply::text("a2"));
    let said = ["u1", "a1", "u2"];
    assert_eq!(talk_with(&server, &with("Be a pirate.", &said)).await.1, agent);
    assert_ne!(talk_with(&server, &with("Be a monk.", &said)).await.1, agent);
}

/// Another caller does not find it, whatever it says.
#[tokio::test]
async fn conversations_are_their_callers() {
    let server = Server::start().await;
    let wire = server.wire();
    let key = async |name: &str| {
        let params = json!({"name": name, "doors": ["openai"], "preset": "trusted"});
        wire.ok("create_key", params).await["key"].as_str().unwrap().to_owned()
    };
    let (one, two) = (key("one").await, key("two").await);
    server.model().push(Reply::text("a1"));
    server.model().push(Reply::text("a2"));
    let ask = |key: &str, said: &[&str]| post(&server, CHAT, &talking(NEW, said)).bearer(Some(key));
    let first = agent(&server.ask(ask(&one, &["u1"])).await);
    let other = agent(&server.ask(ask(&two, &["u1", "a1", "u2"])).await);
    assert_ne!(first, other);
    server.model().push(Reply::text("a2"));
    assert_eq!(agent(&server.ask(ask(&one, &["u1", "a1", "u2"])).await), first);
    // With the key's agent all of it ends.
    wire.ok("destroy_agent", json!({"agent_id": "door-one"})).await;
    assert!(!names(&wire).await.contains(&first));
}

/// A server, and a key that may have two conversations there.
async fn with_room_for_two() -> (Server, String) {
    let server = Setup::new().config(json!({"server": {"max_children": 2}})).start().await;
    let params = json!({"name": "k", "doors": ["openai"], "preset": "trusted"});
    let made = server.wire().ok("create_key", params).await;
    let key = made["key"].as_str().unwrap().to_owned();
    (server, key)
}

/// Where a key has as many conversations as it may, the one makes room that was quiet for longest; one that is asked
/// something never does.
#[tokio::test]
async fn a_conversation_that_was_quiet_for_longest_makes_room() {
    let (server, key) = with_room_for_two().await;
    let wire = server.wire();
    let request = |said: &[&str]| post(&server, CHAT, &talking(NEW, said)).bearer(Some(&key));
    let talk = async |said: &[&str], answer: &str| {
        server.model().push(Reply::text(answer));
        let response = server.ask(request(said)).await;
        assert_eq!(response.status, 200, "{:?}", json_of(&response));
        agent(&response)
    };
    let [first, second] = [talk(&["u1"], "a1").await, talk(&["v1"], "b1").await];
    assert_eq!(talk(&["u1", "a1", "u2"], "a2").await, first);
    // The second was used longer ago than the first.
    let third = talk(&["w1"], "c1").await;
    let left = names(&wire).await;
    assert!(left.contains(&first) && left.contains(&third) && !left.contains(&second), "{left:?}");
    // A fork needs room, too, and what it comes from stays.
    let fork = talk(&["u1", "a1", "u2 otherwise"], "a2").await;
    let left = names(&wire).await;
    assert!(left.contains(&first) && left.contains(&fork) && !left.contains(&third), "{left:?}");
    // What made room goes on from what its client says.
    let again = talk(&["v1", "b1", "v2"], "b2").await;
    assert_eq!(
        shown(&server.model().last_request()),
        ["user: v1", "assistant: b1", "user: v2"],
        "{again} after {second}"
    );
    // With both at work there is no room, and the rule is named.
    let gate = Gate::new();
    let gated = || Reply::text("").then_gate(&gate).then_text("late");
    server.model().push(gated());
    server.model().push(gated());
    let asked = server.model().requests().len();
    let [said, fresh] = [["v1", "b1", "v2", "b2", "v3"].as_slice(), &["x1"]].map(request);
    let late = async {
        eventually("both", async || server.model().requests().len() == asked + 2).await;
        let (status, error) = refused(&server, request(&["y1"])).await;
        assert_eq!(status, 503, "{error}");
        assert!(error["message"].as_str().unwrap().contains("server.max_children"), "{error}");
        gate.release();
    };
    let (one, two, ()) = tokio::join!(server.ask(said), server.ask(fresh), late);
    assert_eq!([one, two].map(|it| said_late(&it)), [true, true]);
    talk(&["y1"], "d1").await;
}

fn said_late(response: &Response) -> bool {
    said(&json_of(response)) == "late"
}

/// Nor does one that somebody else has at work.
#[tokio::test]
async fn a_conversation_at_work_elsewhere_stays() {
    let (server, key) = with_room_for_two().await;
    let wire = server.wire();
    let talk = async |said: &[&str], answer: &str| {
        server.model().push(Reply::text(answer));
        agent(&server.ask(post(&server, CHAT, &talking(NEW, said)).bearer(Some(&key))).await)
    };
    let [first, second] = [talk(&["u1"], "a1").await, talk(&["v1"], "b1").await];
    let gate = Gate::new();
    server.model().push(Reply::text("late").then_gate(&gate));
    let asked = server.model().requests().len();
    let working = wire.ok("send", json!({"agent_id": first, "content": "Psst"}));
    let beside = async {
        eventually("its turn", async || server.model().requests().len() == asked + 1).await;
        let third = talk(&["w1"], "c1").await;
        let left = names(&wire).await;
        assert!(left.contains(&first) && left.contains(&third), "{left:?}");
        assert!(!left.contains(&second), "{left:?}");
        gate.release();
    };
    let (answer, ()) = tokio::join!(working, beside);
    assert_eq!(answer["content"], "late");
}

/// A key whose agent makes no agents cannot begin conversations.
#[tokio::test]
async fn a_preset_that_the_caller_cannot_give_is_refused() {
    let server = Server::start().await;
    let made = server.wire().ok("create_key", json!({"name": "k", "doors": ["openai"]})).await;
    let request = post(&server, CHAT, &talking(NEW, &["u1"])).bearer(made["key"].as_str());
    let (status, error) = refused(&server, request).await;
    assert_eq!(status, 403, "{error}");
}

#[tokio::test]
async fn histories_are_by_turns_and_of_temporary_agents() {
    let server = Server::start().await;
    let wire = server.wire();
    let user = json!({"role": "user", "content": "u"});
    let assistant = json!({"role": "assistant", "content": "a"});
    for (name, history) in [
        ("a", json!([user, assistant])),
        (".a", json!([user])),
        (".a", json!([assistant])),
        (".a", json!([assistant, user])),
        (".a", json!([user, user, assistant, assistant])),
        (".a", json!([{"role": "user", "content": " "}, assistant])),
        (".a", json!([{"role": "tool", "content": "x"}, assistant])),
    ] {
        let params = json!({"agent_id": name, "history": history});
        let fault = wire.refused("create_agent", params.clone()).await;
        assert_eq!(fault.code, -32602, "{params}: {fault:?}");
    }
    let many = |turns: usize| {
        let said: Vec<_> =
            std::iter::repeat_n([user.clone(), assistant.clone()], turns).flatten().collect();
        json!({"agent_id": ".many", "history": said})
    };
    wire.refused("create_agent", many(5_001)).await;
    wire.ok("create_agent", many(5_000)).await;
    let context = wire.ok("get_context", json!({"agent_id": ".many"})).await;
    assert_eq!(context["message_count"], 10_000);
    assert_eq!(names(&wire).await, [".many"]);
}

#[tokio::test]
async fn temporary_agents_are_copied_up_to_a_message() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, ".a").await;
    for text in ["x", "y"] {
        wire.ok("send", json!({"agent_id": ".a", "content": text})).await;
    }
    let copy =
        |to: &str, upto: Value| json!({"src_session": ".a", "dest_session": to, "upto": upto});
    for (params, at) in [
        (copy("b", json!(1)), "/dest_session"),
        (copy(".a", json!(1)), "/dest_session"),
        (copy(".b", json!(4)), "/upto"),
        (json!({"src_session": ".nobody", "dest_session": ".b"}), "/src_session"),
    ] {
        let fault = wire.refused("clone_session", params.clone()).await;
        assert!(format!("{fault:?}").contains(at), "{params}: {fault:?}");
    }
    wire.ok("clone_session", copy(".b", json!(1))).await;
    wire.ok("clone_session", copy(".c", json!(null))).await;
    assert_eq!(history(&wire, ".b").await.len(), 2);
    assert_eq!(history(&wire, ".c").await.len(), 4);
    wire.ok("send", json!({"agent_id": ".b", "content": "z"})).await;
    assert_eq!(history(&wire, ".a").await.len(), 4);
    assert_eq!(chat(&server, &talking("agent:.b", &["more"])).await["object"], "chat.completion");
    // An agent does not copy itself: the copy would stand beside it, and not beneath it.
    wire.ok("create_agent", json!({"agent_id": ".t", "preset": "trusted"})).await;
    let token = wire.ok("create_agent_token", json!({"agent_id": ".t"})).await["token"].clone();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "clone_session",
        "params": {"src_session": ".t", "dest_session": ".u"}});
    let request = server.post(body.to_string()).bearer(token.as_str());
    assert_eq!(server.ask(request).await.answer()["error"]["code"], -32003);
}
