//! What is beside the conversation: prompts of MCP servers as commands, and agents beneath the session as sessions.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::editor::{Desk, Editor, text};
use crate::harness::Setup;
use crate::mcp;
use crate::support::shown;

/// A desk with an MCP server that has a prompt, and an editor with a session of an agent that sees it.
async fn with_prompts() -> (Desk, Editor, String) {
    let servers = json!({"s": mcp::server::server("has")});
    let server = Setup::new().config(json!({"mcp_servers": servers})).start().await;
    let desk = Desk { world: server.world.clone(), server: Some(server) };
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    (desk, editor, session)
}

fn names(commands: &Value) -> Vec<&str> {
    let all = commands["availableCommands"].as_array().unwrap();
    all.iter().map(|it| it["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn prompts_of_servers_that_run_are_commands() {
    let (desk, mut editor, session) = with_prompts().await;
    let wire = desk.server.as_ref().unwrap().wire();
    let own = ["compact", "status", "mcp"];
    // Nothing is started for the sake of a list.
    assert_eq!(names(&editor.update("available_commands_update").await), own);
    let state = |status: Value| status["servers"][0]["state"].clone();
    let params = json!({"agent_id": session});
    assert_eq!(state(wire.ok("mcp_status", params.clone()).await), "configured");
    // Whoever asks for one by its name has it, and the model hears what it says.
    desk.world.model.push(Reply::text("Hello!"));
    assert_eq!(editor.prompt(&session, "/s:greet Ada Lovelace").await, "end_turn");
    let asked = shown(&desk.world.model.requests().pop().unwrap());
    assert_eq!(asked, ["user: Hello, Ada Lovelace!"]);
    assert_eq!(state(wire.ok("mcp_status", params).await), "ready");
    // From then on it is known.
    let params = json!({"sessionId": session, "cwd": editor.cwd, "mcpServers": []});
    editor.ok("session/close", json!({"sessionId": session})).await;
    editor.ok("session/resume", params).await;
    let commands = editor.update("available_commands_update").await;
    assert_eq!(names(&commands), ["compact", "status", "mcp", "s:greet"]);
    let greet = &commands["availableCommands"][3];
    assert_eq!(
        (&greet["description"], &greet["input"]["hint"]),
        (&json!("Says hello"), &json!("whom=…"))
    );
}

#[tokio::test]
async fn commands_that_are_none_are_said_to_the_model() {
    let (desk, mut editor, session) = with_prompts().await;
    for said in ["/other:greet Ada", "/greet", "s:greet"] {
        desk.world.model.push(Reply::text("What?"));
        assert_eq!(editor.prompt(&session, said).await, "end_turn");
        let asked = shown(&desk.world.model.requests().pop().unwrap());
        assert_eq!(asked.last().unwrap(), &format!("user: {said}"));
    }
    for (said, why) in [
        ("/s:none", "The MCP server s has no prompt none"),
        ("/s:greet", "The prompt needs whom=…"),
    ] {
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": said}]});
        let refused = editor.refused("session/prompt", prompt).await;
        assert_eq!(refused, (-32602, why.to_owned()));
    }
}

/// A turn in which the agent has a child of its own do something.
async fn with_child(capabilities: Value) -> (Editor, String, String) {
    let desk = Desk::bridged().await;
    let mut editor = desk.editor_with(capabilities).await;
    let session = editor.session().await;
    let wire = desk.server.as_ref().unwrap().wire();
    wire.ok("create_agent", json!({"agent_id": "kid", "parent_agent_id": session})).await;
    let model = &desk.world.model;
    model.push(Reply::tool_call("nexus_send", json!({"agent_id": "kid", "content": "Look."})));
    model.push(Reply::tool_call("glob", json!({"pattern": "*"})));
    model.push(Reply::text("Nothing here."));
    model.push(Reply::text("Done."));
    assert_eq!(editor.prompt(&session, "Have it looked at.").await, "end_turn");
    (editor, session, desk.world.work().canonicalize().unwrap().display().to_string())
}

#[tokio::test]
async fn children_are_sessions_to_editors_that_understand_it() {
    let (mut editor, session, cwd) = with_child(json!({"subagents": {}})).await;
    let told = editor.notifications();
    let of = |id: &str| {
        let of_it = told.iter().filter(|it| it["params"]["sessionId"] == id);
        of_it.map(|it| it["params"]["update"].clone()).collect::<Vec<_>>()
    };
    let (parent, child) = (of(&session), of("kid"));
    let news: Vec<_> =
        parent.iter().filter(|it| it["sessionUpdate"] == "subagent_update").collect();
    let began = json!({
        "sessionUpdate": "subagent_update", "sessionId": "kid", "title": "kid", "cwd": cwd,
        "state": {"state": "running"},
    });
    let ended = json!({
        "sessionUpdate": "subagent_update", "sessionId": "kid",
        "state": {"state": "idle", "stopReason": "end_turn"},
    });
    assert_eq!(news, [&began, &ended]);
    let kinds: Vec<_> = child.iter().map(|it| it["sessionUpdate"].as_str().unwrap()).collect();
    let expected = [
        "session_message",
        "tool_call",
        "tool_call_update",
        "tool_call_update",
        "agent_message_chunk",
    ];
    assert_eq!(kinds, expected);
    let message = &child[0];
    assert_eq!(
        (&message["senderSessionId"], &message["recipientSessionId"]),
        (&json!(session), &json!("kid"))
    );
    assert_eq!(message["content"][0]["text"], "Look.");
    assert_eq!(text(&child, "agent_message_chunk"), "Nothing here.");
    assert_eq!(text(&parent, "agent_message_chunk"), "Done.");
    // It is announced before it says anything.
    let first = |wanted: &dyn Fn(&Value) -> bool| told.iter().position(wanted).unwrap();
    let announced = first(&|it| it["params"]["update"]["sessionUpdate"] == "subagent_update");
    assert!(announced < first(&|it| it["params"]["sessionId"] == "kid"));
}

#[tokio::test]
async fn children_are_tool_calls_to_all_others() {
    let (mut editor, session, _) = with_child(json!({})).await;
    let told = editor.notifications();
    assert!(told.iter().all(|it| it["params"]["sessionId"] == json!(session)), "{told:?}");
    let calls: Vec<_> = told
        .iter()
        .map(|it| &it["params"]["update"])
        .filter(|it| it["sessionUpdate"] == "tool_call")
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(calls, ["nexus_send"]);
}

/// Whatever an editor leads to has its door in the log and in the figures.
#[tokio::test]
async fn calls_of_editors_have_their_label() {
    let desk = Desk::bridged().await;
    let server = desk.server.as_ref().unwrap();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    desk.world.model.push(Reply::text("yes"));
    editor.prompt(&session, "1").await;
    let metrics = server.wire().ok("get_metrics", json!({})).await;
    let metrics = metrics["metrics"].as_array().unwrap();
    let calls = metrics.iter().find(|it| it["name"] == "nexus_rpc_duration_seconds").unwrap();
    let calls = calls["samples"].as_array().unwrap();
    for method in ["create_agent", "send", "get_permissions"] {
        let labels = json!({"method": method, "door": "acp"});
        assert!(calls.iter().any(|it| it["labels"] == labels), "{calls:?}");
        assert!(!calls.iter().any(|it| it["labels"] == json!({"method": method})), "{calls:?}");
    }
    let is_send = |line: &Value| line["data"]["method"] == "send";
    let logged = server.log().wait_for("the call", is_send).await;
    assert_eq!(logged["data"]["door"], "acp", "{logged}");
    // There are no keys for it, and nobody else says that he is one.
    let refused = server.wire().refused("create_key", json!({"name": "k", "doors": ["acp"]})).await;
    assert_eq!(refused.code, -32602, "{}", refused.message);
}
