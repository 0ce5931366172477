//! One conversation, begun in an editor, that goes on in the shell, by RPC and through `/v1`, and in an editor again: the
//! same history, permissions and approvals, whatever was killed in between.

use std::process::Stdio;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::editor::{Desk, text};
use crate::doors::openai::{json_of, post, saying};
use crate::harness::{Server, Wire, World, eventually, process};
use crate::support::{entry, history, shown};

/// The model writes to a file where that needs leave, and says a word.
fn writes(world: &World, file: &str, word: &str) {
    let call = json!({"path": world.path(file), "content": word});
    world.model.push(Reply::tool_call("write_file", call));
    world.model.push(Reply::text(word));
}

fn written(world: &World, file: &str) -> Option<String> {
    std::fs::read_to_string(world.path(file)).ok()
}

/// What the model was shown last, of what people said and it answered.
fn conversation(world: &World) -> Vec<String> {
    let shown = shown(&world.model.requests().pop().unwrap());
    let said = |line: &String| line.starts_with("user: ") || line.len() > "assistant: ".len();
    shown.into_iter().filter(|line| said(line) && !line.starts_with("tool")).collect()
}

async fn count(wire: &Wire, agent: &str) -> u64 {
    entry(wire, agent).await["message_count"].as_u64().unwrap()
}

fn chosen(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

#[tokio::test]
async fn a_conversation_goes_on_wherever_it_is_taken_up() {
    let server = Server::start().await;
    let world = server.world.clone();
    let desk = Desk { world: world.clone(), server: Some(server) };

    // In an editor: what needs leave is asked for, and given for good for one file.
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    writes(&world, "notes.txt", "one");
    let id = editor.begin(&session, "Begin.").await;
    let asked = editor.asked("session/request_permission").await;
    editor.reply(&asked, chosen("allow_always")).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
    world.model.push(Reply::text("half").then_hang());
    editor.begin(&session, "Hang.").await;
    editor.find(|it| it["params"]["update"]["content"]["text"] == "half").await;
    let wire = desk.server.as_ref().unwrap().wire();
    eventually("it to be written down", async || count(&wire, &session).await == 5).await;
    // The editor and the server are killed in the middle of a turn.
    editor.kill().await;
    let server = desk.server.unwrap().restart().await;

    // In the shell, in a process of its own, which is killed in the middle of a turn as well.
    world.model.push(Reply::text("more").then_hang());
    let mut command = world.command(["exec", "--agent", &session, "Hang again."]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (wire, before) = (server.wire(), count(&server.wire(), &session).await);
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    eventually("it to be written down", async || count(&wire, &session).await > before).await;
    child.kill().await.unwrap();
    writes(&world, "notes.txt", "two");
    let output = process::run(world.command(["exec", "--agent", &session, "Go on."])).await;
    assert_eq!((output.code, output.stdout.trim()), (Some(0), "two"), "{output:?}");
    assert_eq!(written(&world, "notes.txt").unwrap(), "two");
    // Nobody is there to be asked about another file.
    writes(&world, "other.txt", "refused");
    let output = process::run(world.command(["exec", "--agent", &session, "Another."])).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert_eq!(written(&world, "other.txt"), None);

    // By RPC, and by OpenAI's protocol with a key that acts as the agent.
    world.model.push(Reply::text("three"));
    let answer = wire.ok("send", json!({"agent_id": session, "content": "By RPC."})).await;
    assert_eq!(answer["content"], "three");
    let key = json!({"name": "k", "doors": ["openai"], "agent_id": session});
    let key = wire.ok("create_key", key).await["key"].as_str().unwrap().to_owned();
    let server = server.restart().await;
    writes(&world, "notes.txt", "four");
    let ask = |text: &str| {
        let body = saying(&format!("agent:{session}"), text);
        post(&server, "/v1/chat/completions", &body).bearer(Some(&key))
    };
    let answer = json_of(&server.ask(ask("Through /v1.")).await);
    assert_eq!(answer["choices"][0]["message"]["content"], "four", "{answer}");
    assert_eq!(written(&world, "notes.txt").unwrap(), "four");
    writes(&world, "other.txt", "refused");
    server.ask(ask("Another.")).await;
    assert_eq!(written(&world, "other.txt"), None);
    let server = server.restart().await;

    // In an editor again, which is shown all of it, and asked as at the beginning.
    let desk = Desk { world: world.clone(), server: Some(server) };
    let mut editor = desk.editor().await;
    let listed = editor.ok("session/list", json!({"cwd": editor.cwd})).await;
    assert_eq!(listed["sessions"][0]["sessionId"], session, "{listed}");
    let params = json!({"sessionId": session, "cwd": editor.cwd, "mcpServers": []});
    let opened = editor.ok("session/load", params).await;
    assert_eq!(opened["modes"]["currentModeId"], "trusted");
    let told = editor.updates();
    let asked = "Begin.Hang.Hang again.Go on.Another.By RPC.Through /v1.Another.";
    assert_eq!(text(&told, "user_message_chunk"), asked);
    let answers = text(&told, "agent_message_chunk");
    for answer in ["one", "two", "three", "four"] {
        assert!(answers.contains(answer), "{answers}");
    }
    writes(&world, "notes.txt", "five");
    assert_eq!(editor.prompt(&session, "Once more.").await, "end_turn");
    assert_eq!(written(&world, "notes.txt").unwrap(), "five");
    writes(&world, "other.txt", "six");
    let id = editor.begin(&session, "And another.").await;
    let asked = editor.asked("session/request_permission").await;
    editor.reply(&asked, chosen("allow_once")).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
    assert_eq!(written(&world, "other.txt").unwrap(), "six");
    let heard = conversation(&world).join("\n");
    for said in ["Begin.", "Go on.", "By RPC.", "Through /v1.", "Once more.", "And another."] {
        assert!(heard.contains(said), "{said}: {heard}");
    }
    let stored = history(&desk.server.as_ref().unwrap().wire(), &session).await;
    let said = stored.iter().filter(|line| line.starts_with("user: ")).count();
    assert_eq!(said, 10, "{stored:?}");
}
