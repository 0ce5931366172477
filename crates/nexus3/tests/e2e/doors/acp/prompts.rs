//! Prompts: what is told of a turn, how it stops, and in which order turns are made.

use base64::Engine as _;
use nexus_testkit::{Gate, Reply, StopSaid};
use serde_json::{Value, json};

use super::editor::{Desk, text};
use crate::harness::{Setup, eventually};
use crate::support::{history, shown};

/// Sessions of an editor whose watch stays open while nothing is asked in them.
const KEPT_WATCHES_MAX: u64 = 16;

#[tokio::test]
async fn a_prompt_is_answered_in_pieces() {
    for desk in Desk::both().await {
        let mut editor = desk.silent(&[]);
        // Whatever is offered, the answer is 1.
        let hello = editor.ok("initialize", json!({"protocolVersion": 2})).await;
        assert_eq!(hello["protocolVersion"], 1);
        assert_eq!(hello["authMethods"], json!([]));
        assert_eq!(hello["agentInfo"]["name"], "nexus3");
        let can = &hello["agentCapabilities"];
        assert_eq!(can["loadSession"], true);
        assert_eq!(can["promptCapabilities"]["embeddedContext"], true);
        assert_eq!(can["mcpCapabilities"]["http"], true);
        let mut sessions: Vec<_> = can["sessionCapabilities"].as_object().unwrap().keys().collect();
        sessions.sort();
        assert_eq!(sessions, ["additionalDirectories", "close", "delete", "list", "resume"]);
        let session = editor.session().await;
        assert!(session.starts_with("acp-work-"), "{session}");
        desk.world.model.push(Reply::thought("hm").then_chunks(["It ", "works."]));
        assert_eq!(editor.prompt(&session, "Hi").await, "end_turn");
        let updates = editor.updates();
        assert_eq!(text(&updates, "agent_message_chunk"), "It works.");
        assert_eq!(text(&updates, "agent_thought_chunk"), "hm");
        let chunks: Vec<_> =
            updates.iter().filter(|it| it["sessionUpdate"] == "agent_message_chunk").collect();
        assert!(chunks.iter().all(|it| it["messageId"] == chunks[0]["messageId"]), "{chunks:?}");
        let of = |kind: &str| updates.iter().find(|it| it["sessionUpdate"] == kind).unwrap();
        assert_eq!(of("session_info_update")["title"], "Hi");
        let usage = of("usage_update");
        assert!(usage["used"].as_u64().unwrap() > 0 && usage["size"] == 200_000, "{usage}");
        let commands = of("available_commands_update")["availableCommands"].as_array().unwrap();
        let names: Vec<_> = commands.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["compact", "status", "mcp"]);
        // The model goes on from what was said, and the history says where it came from.
        desk.world.model.push(Reply::text("Again.").usage(3_000, 7));
        assert_eq!(editor.prompt(&session, "And now?").await, "end_turn");
        assert_eq!(full(&editor.updates()), (3_007, 200_000));
        let asked = desk.world.model.requests().pop().unwrap();
        assert_eq!(shown(&asked), ["user: Hi", "assistant: It works.", "user: And now?"]);
        if let Some(server) = &desk.server {
            let page = server.wire().ok("get_messages", json!({"agent_id": session})).await;
            assert_eq!(page["messages"][0]["meta"]["source"], "acp");
        }
        assert_eq!(editor.finish().await, Some(0));
    }
}

#[tokio::test]
async fn a_tool_call_is_told_from_its_beginning_to_its_end() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        let write = json!({"path": "a.txt", "content": "one\n"});
        let edit = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
        desk.world.model.push(Reply::text("So: ").then_tool_call("write_file", write.clone()));
        desk.world.model.push(Reply::tool_call("edit_file", edit));
        desk.world.model.push(Reply::tool_call("read_file", json!({"path": "a.txt"})));
        desk.world.model.push(Reply::tool_call("read_file", json!({"path": "none"})));
        desk.world.model.push(Reply::text("Done."));
        assert_eq!(editor.prompt(&session, "write").await, "end_turn");
        let updates = editor.updates();
        assert_eq!(text(&updates, "agent_message_chunk"), "So: Done.");
        let calls: Vec<_> =
            updates.iter().filter(|it| it["sessionUpdate"] == "tool_call").collect();
        let kinds: Vec<_> = calls.iter().map(|it| it["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["edit", "edit", "read", "read"]);
        assert_eq!((&calls[0]["name"], &calls[0]["rawInput"]), (&json!("write_file"), &write));
        assert_eq!(calls[0]["title"], "write_file a.txt");
        let file = std::path::Path::new(&editor.cwd).canonicalize().unwrap().join("a.txt");
        assert_eq!(calls[0]["locations"], json!([{"path": file}]));
        let ends = |id: &Value| {
            let mut of_it = updates.iter().filter(|it| it["toolCallId"] == *id);
            of_it.rfind(|it| it["sessionUpdate"] == "tool_call_update").unwrap().clone()
        };
        let end = calls.iter().map(|it| ends(&it["toolCallId"])).collect::<Vec<_>>();
        assert_eq!(end[0]["status"], "completed");
        let diff = |old: Option<&str>, new: &str| {
            let mut diff = json!({"type": "diff", "path": file, "newText": new});
            old.into_iter().for_each(|old| diff["oldText"] = old.into());
            json!([diff])
        };
        assert_eq!(end[0]["content"], diff(None, "one\n"));
        assert_eq!(end[1]["content"], diff(Some("one\n"), "two\n"));
        let read = end[2]["content"][0]["content"]["text"].as_str().unwrap();
        assert!(read.contains("two"), "{read}");
        assert_eq!(end[3]["status"], "failed", "{}", end[3]);
    }
}

/// One is kept in so many sessions, and none of them misses anything.
#[tokio::test]
async fn a_session_keeps_its_watch_from_prompt_to_prompt() {
    let desk = Desk::bridged().await;
    let server = desk.server.as_ref().unwrap();
    let wire = server.wire();
    let watches = async || wire.ok("server_info", json!({})).await["watches"].as_u64().unwrap();
    let mut editor = desk.editor().await;
    let mut sessions = Vec::new();
    for number in 1..=KEPT_WATCHES_MAX + 1 {
        let session = editor.session().await;
        for answer in ["One.", "Two."] {
            desk.world.model.push(Reply::text(answer));
            assert_eq!(editor.prompt(&session, "Go on").await, "end_turn");
            assert_eq!(editor.said(), answer);
        }
        sessions.push(session);
        let kept = number.min(KEPT_WATCHES_MAX);
        eventually("the watches that are kept", async || watches().await == kept).await;
    }
    // What others have the agent do meanwhile is not told, and a watch that somebody ended is opened again.
    let session = &sessions[0];
    desk.world.model.push(Reply::text("Of somebody else."));
    wire.ok("send", json!({"agent_id": session, "content": "Psst"})).await;
    for number in 1..100 {
        wire.ok("unwatch", json!({"watch_id": format!("watch_{number}")})).await;
    }
    eventually("the watches to end", async || watches().await == 0).await;
    desk.world.model.push(Reply::text("Three."));
    assert_eq!(editor.prompt(session, "Go on").await, "end_turn");
    assert_eq!(editor.said(), "Three.");
    assert_eq!(watches().await, 1);
    // The place of a session that is closed is another's.
    editor.ok("session/close", json!({"sessionId": session})).await;
    eventually("it to be closed", async || watches().await == 0).await;
    assert_eq!(editor.finish().await, Some(0));
}

#[tokio::test]
async fn a_plan_is_shown_as_it_goes_on() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        let plan = |look: &str, mend: &str| {
            let steps = [("Look", look), ("Mend it\u{202e}", mend)];
            let step = |(step, status)| json!({"step": step, "status": status});
            Reply::tool_call("update_plan", json!({"steps": steps.map(step)}))
        };
        desk.world.model.push(plan("in_progress", "pending"));
        desk.world.model.push(plan("completed", "begun"));
        desk.world.model.push(plan("completed", "in_progress"));
        desk.world.model.push(Reply::text("Later."));
        assert_eq!(editor.prompt(&session, "Mend it").await, "end_turn");
        let entry = |content: &str, status: &str| json!({"content": content, "priority": "medium", "status": status});
        let shown = [
            json!([entry("Look", "in_progress"), entry("Mend it", "pending")]),
            json!([entry("Look", "completed"), entry("Mend it", "in_progress")]),
        ];
        let plans = |updates: &[Value]| -> Vec<Value> {
            let plans = updates.iter().filter(|it| it["sessionUpdate"] == "plan");
            plans.map(|it| it["entries"].clone()).collect()
        };
        let calls = |updates: &[Value]| -> Vec<Value> {
            let calls = updates.iter().filter(|it| it["toolCallId"].is_string());
            calls.map(|it| it["status"].clone()).collect()
        };
        let updates = editor.updates();
        assert_eq!(plans(&updates), shown);
        // One that is none is a call that failed, as any other.
        assert_eq!(calls(&updates).last().unwrap(), "failed");
        assert!(updates.iter().filter(|it| it["sessionUpdate"] == "tool_call").count() == 1);
        // So it is when the conversation is loaded.
        editor.finish().await;
        let mut editor = desk.editor().await;
        let load = json!({"sessionId": session, "cwd": editor.cwd, "mcpServers": []});
        editor.ok("session/load", load).await;
        let updates = editor.updates();
        assert_eq!((plans(&updates), calls(&updates).len()), (shown.to_vec(), 2));
    }
}

#[tokio::test]
async fn turns_stop_for_reasons_that_editors_know() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    let cut = || Reply::text("cut").stop(StopSaid::MaxTokens);
    for (replies, expected) in [
        // It is let go on three times.
        (vec![cut(), cut(), cut(), cut()], "max_tokens"),
        (vec![Reply::refusal("No.")], "refusal"),
    ] {
        replies.into_iter().for_each(|reply| desk.world.model.push(reply));
        assert_eq!(editor.prompt(&session, "x").await, expected);
    }
    // A provider that fails is an error with its sentence, and no login is asked for.
    desk.world.model.push(Reply::status(400).message("The provider says no"));
    let id = editor.begin(&session, "x").await;
    let error = editor.answer(id).await["error"].clone();
    assert_eq!(error["code"], -32603, "{error}");
    assert!(error["message"].as_str().unwrap().contains("The provider says no"), "{error}");
}

#[tokio::test]
async fn a_second_prompt_waits_for_the_first() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let (session, other) = (editor.session().await, editor.session().await);
        let gate = Gate::new();
        desk.world.model.push(Reply::text("first").then_gate(&gate));
        let first = editor.begin(&session, "1").await;
        eventually("the first", async || desk.world.model.requests().len() == 1).await;
        desk.world.model.push(Reply::text("other"));
        desk.world.model.push(Reply::text("second"));
        let second = editor.begin(&session, "2").await;
        // Another session does not.
        assert_eq!(editor.prompt(&other, "3").await, "end_turn");
        gate.release();
        assert_eq!(editor.stopped(first).await, "end_turn");
        assert_eq!(editor.stopped(second).await, "end_turn");
        let asked = desk.world.model.requests().pop().unwrap();
        assert_eq!(shown(&asked), ["user: 1", "assistant: first", "user: 2"]);
    }
}

#[tokio::test]
async fn a_cancel_ends_what_runs_and_what_waits() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        desk.world.model.push(Reply::text("begun").then_hang());
        let running = editor.begin(&session, "1").await;
        let waiting = editor.begin(&session, "2").await;
        editor.update("agent_message_chunk").await;
        editor.notify("session/cancel", json!({"sessionId": session})).await;
        assert_eq!(editor.stopped(running).await, "cancelled");
        assert_eq!(editor.stopped(waiting).await, "cancelled");
        // What comes later runs.
        desk.world.model.push(Reply::text("on"));
        assert_eq!(editor.prompt(&session, "3").await, "end_turn");
        // One request alone can be cancelled too, even before anything of it was done.
        desk.world.model.push(Reply::hang());
        let running = editor.begin(&session, "4").await;
        let waiting = editor.begin(&session, "5").await;
        editor.notify("$/cancel_request", json!({"requestId": waiting})).await;
        editor.notify("$/cancel_request", json!({"requestId": running})).await;
        assert_eq!(editor.stopped(running).await, "cancelled");
        assert_eq!(editor.stopped(waiting).await, "cancelled");
        assert_eq!(editor.finish().await, Some(0));
    }
}

#[tokio::test]
async fn what_an_editor_adds_reaches_the_model() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    desk.world.model.push(Reply::text("seen"));
    let prompt = json!([
        {"type": "text", "text": "Compare "},
        {"type": "resource_link", "name": "a b", "uri": "file:///x/a%20b"},
        {"type": "resource", "resource": {"uri": "file:///x/c", "text": "held"}},
    ]);
    editor.ok("session/prompt", json!({"sessionId": session, "prompt": prompt})).await;
    let asked = desk.world.model.requests().pop().unwrap();
    assert_eq!(shown(&asked), ["user: Compare /x/a b\n\nFile /x/c:\n\nheld\n\n"]);
    // What the model cannot see is refused with a sentence, and nothing is left of it.
    let png = base64::engine::general_purpose::STANDARD.encode(b"\x89PNG\r\n\x1a\n");
    let prompt = json!([{"type": "image", "data": png, "mimeType": "image/png"}]);
    let params = json!({"sessionId": session, "prompt": prompt});
    let (code, why) = editor.refused("session/prompt", params).await;
    assert_eq!(code, -32602, "{why}");
    let (code, why) =
        editor.refused("session/prompt", json!({"sessionId": session, "prompt": []})).await;
    assert_eq!((code, why.as_str()), (-32602, "The prompt is blank"));
}

#[tokio::test]
async fn what_is_said_in_an_editor_stands_in_the_history_of_the_agent() {
    let desk = Desk::bridged().await;
    let server = desk.server.as_ref().unwrap();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    desk.world.model.push(Reply::text("hello"));
    editor.prompt(&session, "hi").await;
    assert_eq!(history(&server.wire(), &session).await, ["user: hi", "assistant: hello"]);
    // It goes on elsewhere.
    desk.world.model.push(Reply::text("too"));
    server.wire().ok("send", json!({"agent_id": session, "content": "me"})).await;
    desk.world.model.push(Reply::text("all"));
    editor.prompt(&session, "we").await;
    let asked = desk.world.model.requests().pop().unwrap();
    assert_eq!(shown(&asked).len(), 5);
}

/// How full the context is, and how large, as an editor was told last.
fn full(updates: &[Value]) -> (u64, u64) {
    let told = updates.iter().rfind(|it| it["sessionUpdate"] == "usage_update").unwrap();
    (told["used"].as_u64().unwrap(), told["size"].as_u64().unwrap())
}

/// What the provider counted is told, and the window is that of the model which the agent has by then.
#[tokio::test]
async fn how_full_the_context_is_goes_by_the_model() {
    let models = json!({"models": {"small": {"id": "tiny", "context_window": 30_000}}});
    let desk = Desk { world: Setup::new().provider_keys(models).world().await, server: None };
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    for (model, size) in [("scripted", 200_000), ("small", 30_000), ("scripted", 200_000)] {
        let params = json!({"sessionId": session, "configId": "model", "value": model});
        editor.ok("session/set_config_option", params).await;
        // None at all: then it is counted here.
        desk.world.model.push(Reply::text("a").usage(0, 0));
        editor.prompt(&session, "x").await;
        let (used, told) = full(&editor.updates());
        assert!(used > 100 && told == size, "{used} of {told}");
        desk.world.model.push(Reply::text("b").usage(2_000, 5));
        editor.prompt(&session, "y").await;
        assert_eq!(full(&editor.updates()), (2_005, size));
    }
}

/// An editor that reads late has missed nothing of the text, though more was said than waits for it.
#[tokio::test]
async fn an_editor_that_reads_late_is_told_everything() {
    let desk = Desk::bridged().await;
    let server = desk.server.as_ref().unwrap();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    let chunks: Vec<_> = (0..500).map(|number| format!("{number:04}").repeat(1_024)).collect();
    desk.world.model.push(Reply::chunks(chunks.clone()));
    let id = editor.begin(&session, "much").await;
    let is_answered = async || {
        let context = server.wire().ok("get_context", json!({"agent_id": session})).await;
        context["message_count"] == 2 && context["turns"] == json!([])
    };
    eventually("the answer", is_answered).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
    assert!(editor.said() == chunks.concat());
}
