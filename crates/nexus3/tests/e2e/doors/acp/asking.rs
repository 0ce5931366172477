//! Approvals, and questions of MCP servers, as the person at the editor meets them.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::editor::{Desk, Editor};
use crate::doors::host::is_busy;
use crate::harness::{Setup, World, eventually};
use crate::mcp;
use crate::support::{as_agent, history};

/// The model wants to write where that needs leave.
fn write(world: &World) {
    let file = world.path("elsewhere.txt");
    world.model.push(Reply::tool_call("write_file", json!({"path": file, "content": "x\n"})));
    world.model.push(Reply::text("done"));
}

fn is_written(world: &World) -> bool {
    world.path("elsewhere.txt").exists()
}

fn chosen(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

async fn asked(editor: &mut Editor, session: &str) -> (u64, Value) {
    let id = editor.begin(session, "write it").await;
    let asked = editor.asked("session/request_permission").await;
    assert_eq!(asked["params"]["sessionId"], session);
    (id, asked)
}

#[tokio::test]
async fn an_approval_is_put_to_the_person() {
    for desk in Desk::both().await {
        for (answer, written) in [
            (chosen("allow_once"), true),
            (chosen("allow_always"), true),
            (chosen("reject_once"), false),
            (chosen("whatever"), false),
            (json!({"outcome": {"outcome": "cancelled"}}), false),
        ] {
            let _ = std::fs::remove_file(desk.world.path("elsewhere.txt"));
            let mut editor = desk.editor().await;
            let session = editor.session().await;
            write(&desk.world);
            let (id, asked) = asked(&mut editor, &session).await;
            let call = &asked["params"]["toolCall"];
            assert_eq!(call["kind"], "edit", "{asked}");
            let diff = call["content"].as_array().unwrap().iter().find(|it| it["type"] == "diff");
            assert_eq!(diff.unwrap()["newText"], "x\n", "{asked}");
            // It is the call that was told of.
            let shown = editor.update("tool_call").await;
            assert_eq!(shown["toolCallId"], call["toolCallId"]);
            editor.reply(&asked, answer.clone()).await;
            assert_eq!(editor.stopped(id).await, "end_turn");
            assert_eq!(is_written(&desk.world), written, "{answer}");
            assert_eq!(editor.finish().await, Some(0));
        }
    }
}

#[tokio::test]
async fn an_editor_that_cannot_ask_costs_a_denial() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    write(&desk.world);
    let (id, asked) = asked(&mut editor, &session).await;
    let error = json!({"code": -32601, "message": "Method not found"});
    editor.say(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
    assert!(!is_written(&desk.world));
}

#[tokio::test]
async fn what_was_allowed_for_good_is_not_asked_again() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    write(&desk.world);
    let (id, asked) = asked(&mut editor, &session).await;
    editor.reply(&asked, chosen("allow_always")).await;
    editor.stopped(id).await;
    write(&desk.world);
    assert_eq!(editor.prompt(&session, "again").await, "end_turn");
}

/// Nobody answers, and a cancel ends it all the same.
#[tokio::test]
async fn a_cancel_resolves_what_was_asked() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        write(&desk.world);
        let (id, asked) = asked(&mut editor, &session).await;
        editor.notify("session/cancel", json!({"sessionId": session})).await;
        assert_eq!(editor.stopped(id).await, "cancelled");
        let withdrawn = editor.find(|it| it["method"] == "$/cancel_request").await;
        assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
        // An answer that comes too late is passed over.
        editor.reply(&asked, chosen("allow_once")).await;
        desk.world.model.push(Reply::text("on"));
        assert_eq!(editor.prompt(&session, "go on").await, "end_turn");
        assert!(!is_written(&desk.world));
        assert_eq!(editor.finish().await, Some(0));
    }
}

#[tokio::test]
async fn what_is_answered_elsewhere_is_withdrawn() {
    let desk = Desk::bridged().await;
    let server = desk.server.as_ref().unwrap();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    write(&desk.world);
    let (id, asked) = asked(&mut editor, &session).await;
    let open = server.wire().ok("list_approvals", json!({})).await;
    let approval = open["approvals"][0]["approval_id"].clone();
    let answer = json!({"approval_id": approval, "decision": "allow_once"});
    server.wire().ok("respond_approval", answer).await;
    let withdrawn = editor.find(|it| it["method"] == "$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    editor.reply(&asked, chosen("reject_once")).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
    assert!(is_written(&desk.world));
}

/// A child has a question, which is asked in the session of its root. Below `yolo` that is what MCP servers want to know.
async fn a_child_asks(mut config: Value) {
    config["mcp_servers"] = json!({"s": mcp::server::server("asks")});
    let server = Setup::new().config(config).start().await;
    let desk = Desk { world: server.world.clone(), server: Some(server) };
    let wire = desk.server.as_ref().unwrap().wire();
    let mut editor = desk.editor_with(json!({"elicitation": {"form": {}}})).await;
    let session = editor.session().await;
    let child = json!({"agent_id": "kid", "parent_agent_id": session, "mcp": {"s": ["*"]}});
    wire.ok("create_agent", child).await;
    let form = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let form = json!({"params": {"message": "Who?", "requestedSchema": form}});
    let model = &desk.world.model;
    model.push(Reply::tool_call("nexus_send", json!({"agent_id": "kid", "content": "go"})));
    model.push(Reply::tool_call("mcp_s_elicit", form));
    model.push(Reply::text("the child is done"));
    model.push(Reply::text("done"));
    let id = editor.begin(&session, "begin").await;
    let asked = editor.asked("elicitation/create").await;
    assert_eq!(asked["params"]["sessionId"], json!(session));
    let why = asked["params"]["message"].as_str().unwrap();
    assert!(why.starts_with("Agent kid wants somebody to answer"), "{asked}");
    editor.reply(&asked, json!({"action": "accept", "content": {"name": "Ada"}})).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
    let lines = history(&wire, "kid").await;
    assert!(lines[2].contains("Ada"), "{lines:?}");
}

#[tokio::test]
async fn children_ask_through_the_session_of_their_root() {
    a_child_asks(json!({"permissions": {"approvals": "ask"}})).await;
}

#[tokio::test]
async fn characters_that_hide_are_not_in_a_question() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    let file = desk.world.path("a\u{202e}b\u{200b}c.txt");
    desk.world.model.push(Reply::tool_call("write_file", json!({"path": file, "content": "x"})));
    desk.world.model.push(Reply::text("done"));
    let (id, asked) = asked(&mut editor, &session).await;
    let call = &asked["params"]["toolCall"];
    let why = call["content"][0]["content"]["text"].as_str().unwrap();
    assert!(why.contains(r"a\u{202e}b\u{200b}c.txt"), "{why}");
    let title = call["title"].as_str().unwrap();
    assert!(title.ends_with("abc.txt"), "{title}");
    editor.reply(&asked, chosen("reject_once")).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
}

/// What a server asks whose tool the agent uses is handed on, to editors that can show a form.
#[tokio::test]
async fn questions_of_servers_are_handed_on() {
    for (answer, told) in [
        (json!({"action": "accept", "content": {"name": "Ada"}}), "Ada"),
        (json!({"action": "decline"}), r#"{"action":"decline"}"#),
        (json!({"action": "cancel"}), r#"{"action":"cancel"}"#),
        // It does not fit, and is not asked for again.
        (json!({"action": "accept", "content": {"name": 5}}), r#"{"action":"cancel"}"#),
    ] {
        let servers = json!({"s": mcp::server::server("asks")});
        let config = json!({"permissions": {"approvals": "ask"}, "mcp_servers": servers});
        let server = Setup::new().config(config).start().await;
        let params = json!({"agent_id": "t", "mcp": {"s": ["*"]}});
        server.wire().ok("create_agent", params).await;
        let form = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let params = json!({"message": "Who?", "requestedSchema": form});
        server.model().push(Reply::tool_call("mcp_s_elicit", json!({"params": params})));
        server.model().push(Reply::text("done"));
        let desk = Desk { world: server.world.clone(), server: Some(server) };
        let mut editor = desk.editor_with(json!({"elicitation": {"form": {}}})).await;
        let params = json!({"sessionId": "t", "cwd": editor.cwd, "mcpServers": []});
        editor.ok("session/resume", params).await;
        let id = editor.begin("t", "ask").await;
        let asked = editor.asked("elicitation/create").await;
        let params = &asked["params"];
        let message = "Agent t wants somebody to answer a question of the MCP server s:\nWho?";
        assert_eq!((&params["message"], &params["mode"]), (&json!(message), &json!("form")));
        assert_eq!(params["requestedSchema"]["properties"]["name"]["type"], "string", "{asked}");
        editor.reply(&asked, answer.clone()).await;
        assert_eq!(editor.stopped(id).await, "end_turn");
        let lines = history(&desk.server.as_ref().unwrap().wire(), "t").await;
        assert!(lines[2].contains(told), "{answer}: {lines:?}");
    }
}

/// Somebody sits there, whatever the configuration says, of the program's own process and of a server that runs.
#[tokio::test]
async fn what_the_configuration_denies_is_asked_all_the_same() {
    for approvals in ["deny", "auto", "ask"] {
        let setup = Setup::new().config(json!({"permissions": {"approvals": approvals}}));
        let world = setup.world().await;
        let server = setup.start().await;
        let bridged = Desk { world: server.world.clone(), server: Some(server) };
        for desk in [Desk { world, server: None }, bridged] {
            let mut editor = desk.editor().await;
            let session = editor.session().await;
            write(&desk.world);
            let (id, asked) = asked(&mut editor, &session).await;
            editor.reply(&asked, chosen("allow_once")).await;
            assert_eq!(editor.stopped(id).await, "end_turn");
            assert!(is_written(&desk.world), "{approvals}");
            assert_eq!(editor.finish().await, Some(0));
        }
    }
}

/// A server that denies, as it does where nothing is said.
async fn denying(permissions: Value) -> Desk {
    let server = Setup::new().config(json!({"permissions": permissions})).start().await;
    Desk { world: server.world.clone(), server: Some(server) }
}

/// Only what is done for the editor is asked there: what others have done beside it is denied as ever.
#[tokio::test]
async fn what_is_done_for_others_is_denied_beside_an_editor_that_is_asked() {
    let desk = denying(json!({"approvals": "deny"})).await;
    let wire = desk.server.as_ref().unwrap().wire();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    let writes = |name: &str| {
        let call = json!({"path": desk.world.path(name), "content": "x\n"});
        desk.world.model.push(Reply::tool_call("write_file", call));
    };
    writes("elsewhere.txt");
    let (id, asked) = asked(&mut editor, &session).await;
    wire.ok("create_agent", json!({"agent_id": "other", "preset": "trusted"})).await;
    writes("others.txt");
    desk.world.model.push(Reply::text("so"));
    wire.ok("send", json!({"agent_id": "other", "content": "write"})).await;
    assert!(history(&wire, "other").await[2].contains("approvals: deny"));
    desk.world.model.push(Reply::text("done"));
    editor.reply(&asked, chosen("allow_once")).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
    assert!(is_written(&desk.world));
    // The next turn of the same agent, for somebody else.
    writes("others.txt");
    desk.world.model.push(Reply::text("so"));
    wire.ok("send", json!({"agent_id": session, "content": "write"})).await;
    assert!(!desk.world.path("others.txt").exists());
}

/// The turns of others that the editor's turn waits for are for the same person.
#[tokio::test]
async fn what_children_ask_is_asked_at_a_server_that_denies() {
    a_child_asks(json!({})).await;
}

#[tokio::test]
async fn an_editor_that_dies_while_it_is_asked_leaves_no_question() {
    let desk = denying(json!({"approvals": "deny"})).await;
    let server = desk.server.as_ref().unwrap();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    write(&desk.world);
    asked(&mut editor, &session).await;
    editor.kill().await;
    eventually("the turn to be over", async || !is_busy(server, &session).await).await;
    let open = server.wire().ok("list_approvals", json!({})).await;
    assert_eq!(open["approvals"], json!([]));
    assert!(!is_written(&desk.world));
}

/// Nobody answers, for as long as the configuration says.
#[tokio::test]
async fn an_editor_that_never_answers_costs_a_denial() {
    for approvals in ["deny", "ask"] {
        let desk = denying(json!({"approvals": approvals, "approval_timeout": 1})).await;
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        write(&desk.world);
        let (id, asked) = asked(&mut editor, &session).await;
        assert_eq!(editor.stopped(id).await, "end_turn");
        let withdrawn = editor.find(|it| it["method"] == "$/cancel_request").await;
        assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
        assert!(!is_written(&desk.world), "{approvals}");
    }
}

/// To be asked is the administrator's to want, and theirs who stay for the answer.
#[tokio::test]
async fn nobody_else_has_a_turn_asked_about() {
    let desk = denying(json!({"approvals": "deny"})).await;
    let server = desk.server.as_ref().unwrap();
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted"})).await;
    let params = json!({"agent_id": "a", "content": "x", "approvals": "ask", "stream": true});
    let (code, why) = as_agent(server, "a", "send", params.clone()).await.unwrap_err();
    assert!(code == -32003 && why.contains("administrator"), "{code} {why}");
    let with = |name: &str, value: Value| {
        let mut params = params.clone();
        params[name] = value;
        params
    };
    for params in [
        with("stream", json!(false)),
        with("idempotency_key", json!("k")),
        with("approvals", json!("deny")),
    ] {
        let fault = wire.refused("send", params).await;
        assert_eq!(fault.code, -32602, "{fault:?}");
    }
    assert!(history(&wire, "a").await.is_empty());
}
