//! Sessions that were left: listed, taken up again with all that was said, closed and deleted.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::editor::{Desk, Editor, text};
use crate::harness::eventually;
use crate::support::{create, names, say, shown};

async fn listed(editor: &mut Editor, params: Value) -> Vec<String> {
    let list = editor.ok("session/list", params).await;
    let sessions = list["sessions"].as_array().unwrap().iter();
    sessions.map(|it| it["sessionId"].as_str().unwrap().to_owned()).collect()
}

fn of(session: &str, cwd: &str) -> Value {
    json!({"sessionId": session, "cwd": cwd, "mcpServers": []})
}

/// After `kill -9` in the middle of a prompt, all that was said and done is told again, in its order.
#[tokio::test]
async fn a_session_is_told_again_after_its_process_was_killed() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        let write = json!({"path": "a.txt", "content": "x"});
        desk.world.model.push(Reply::text("So. ").then_tool_call("write_file", write.clone()));
        desk.world.model.push(Reply::tool_call("read_file", json!({"path": "none"})));
        desk.world.model.push(Reply::text("Done."));
        assert_eq!(editor.prompt(&session, "first").await, "end_turn");
        editor.updates();
        // A step that is done is on disk.
        desk.world.model.push(Reply::tool_call("read_file", json!({"path": "a.txt"})));
        desk.world.model.push(Reply::text("half").then_hang());
        editor.begin(&session, "second").await;
        editor.update("agent_message_chunk").await;
        editor.kill().await;
        if let Some(server) = &desk.server {
            let is_over = async || !super::super::host::is_busy(server, &session).await;
            eventually("the turn to be over", is_over).await;
        }
        let mut editor = desk.editor().await;
        let cwd = editor.cwd.clone();
        assert_eq!(listed(&mut editor, json!({})).await, [session.as_str()]);
        let loaded = editor.ok("session/load", of(&session, &cwd)).await;
        assert_eq!(loaded["modes"]["currentModeId"], "trusted");
        let updates = editor.updates();
        let kinds: Vec<_> =
            updates.iter().map(|it| it["sessionUpdate"].as_str().unwrap()).collect();
        let begins = [
            "user_message_chunk",
            "agent_message_chunk",
            "tool_call",
            "tool_call_update",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk",
            "user_message_chunk",
            "tool_call",
            "tool_call_update",
        ];
        assert_eq!(kinds[..begins.len()], begins);
        assert_eq!(text(&updates, "user_message_chunk"), "firstsecond");
        assert!(text(&updates, "agent_message_chunk").starts_with("So. Done."));
        assert_eq!(updates[2]["rawInput"], write);
        let ids = [2, 3, 4, 5].map(|at| updates[at]["toolCallId"].clone());
        assert!(ids[0] == ids[1] && ids[2] == ids[3] && ids[0] != ids[2], "{ids:?}");
        assert_eq!(
            (&updates[3]["status"], &updates[5]["status"]),
            (&json!("completed"), &json!("failed"))
        );
        // What was changed is shown as it was then.
        let file = desk.world.work().join("a.txt");
        let diff = json!([{"type": "diff", "path": file, "newText": "x"}]);
        assert_eq!(updates[3]["content"], diff);
        // And it goes on.
        desk.world.model.push(Reply::text("on"));
        assert_eq!(editor.prompt(&session, "third").await, "end_turn");
        let asked = desk.world.model.requests().pop().unwrap();
        assert!(shown(&asked).contains(&"user: second".into()), "{:?}", shown(&asked));
        assert_eq!(editor.finish().await, Some(0));
    }
}

#[tokio::test]
async fn a_session_is_resumed_without_being_told() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    desk.world.model.push(Reply::text("one"));
    editor.prompt(&session, "1").await;
    assert_eq!(editor.finish().await, Some(0));
    let mut editor = desk.editor().await;
    let cwd = editor.cwd.clone();
    let resumed = editor.ok("session/resume", of(&session, &cwd)).await;
    assert_eq!(resumed["configOptions"][0]["id"], "mode");
    assert_eq!(editor.updates(), [] as [Value; 0]);
    desk.world.model.push(Reply::text("two"));
    editor.prompt(&session, "2").await;
    let asked = desk.world.model.requests().pop().unwrap();
    assert_eq!(shown(&asked), ["user: 1", "assistant: one", "user: 2"]);
}

/// What was begun elsewhere is a session, too; a saved one is loaded.
#[tokio::test]
async fn agents_and_saved_sessions_are_taken_up() {
    let desk = Desk::bridged().await;
    let wire = desk.server.as_ref().unwrap().wire();
    create(&wire, "mine").await;
    desk.world.model.push(Reply::text("hello"));
    say(&wire, "mine", "hi").await;
    wire.ok("save_session", json!({"agent_id": "mine", "session_name": "kept"})).await;
    create(&wire, "empty").await;
    let mut editor = desk.editor().await;
    let cwd = editor.cwd.clone();
    let mut all = listed(&mut editor, json!({})).await;
    all.sort();
    assert_eq!(all, ["kept", "mine"]);
    for session in ["mine", "kept"] {
        let loaded = editor.ok("session/load", of(session, &cwd)).await;
        assert_eq!(loaded["modes"]["currentModeId"], "sandboxed");
        assert_eq!(editor.said(), "hello");
    }
    // The same once more.
    editor.ok("session/load", of("mine", &cwd)).await;
    assert_eq!(editor.said(), "hello");
}

#[tokio::test]
async fn sessions_are_listed_by_directory_and_in_pages() {
    let desk = Desk::bridged().await;
    let wire = desk.server.as_ref().unwrap().wire();
    let elsewhere = desk.world.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    desk.world.model.set_default(Reply::text("hello"));
    for number in 0..51 {
        let agent = format!("a{number}");
        create(&wire, &agent).await;
        say(&wire, &agent, "hi").await;
    }
    let params = json!({"agent_id": "b", "cwd": elsewhere});
    wire.ok("create_agent", params).await;
    say(&wire, "b", "hi").await;
    let mut editor = desk.editor().await;
    assert_eq!(listed(&mut editor, json!({"cwd": elsewhere})).await, ["b"]);
    let none = desk.world.path("none");
    assert_eq!(listed(&mut editor, json!({"cwd": none})).await, [""; 0]);
    let first = editor.ok("session/list", json!({})).await;
    let newest = &first["sessions"][0];
    assert_eq!((&newest["sessionId"], &newest["cwd"]), (&json!("b"), &json!(elsewhere)));
    assert!(newest["updatedAt"].as_str().unwrap().starts_with("20"), "{newest}");
    assert_eq!(first["sessions"].as_array().unwrap().len(), 50);
    let rest = editor.ok("session/list", json!({"cursor": first["nextCursor"]})).await;
    assert_eq!(rest["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(rest.get("nextCursor"), None);
    let (code, why) = editor.refused("session/list", json!({"cursor": "x"})).await;
    assert_eq!((code, why.as_str()), (-32602, "The cursor is none that was given"));
    assert_eq!(editor.refused("session/list", json!({"cwd": 7})).await.0, -32602);
}

#[tokio::test]
async fn a_session_is_closed_and_deleted() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        desk.world.model.push(Reply::text("begun").then_hang());
        let id = editor.begin(&session, "1").await;
        editor.update("agent_message_chunk").await;
        editor.ok("session/close", json!({"sessionId": session})).await;
        assert_eq!(editor.stopped(id).await, "cancelled");
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}]});
        assert_eq!(editor.refused("session/prompt", prompt).await.0, -32002);
        // It is there to be taken up, until it is deleted.
        let cwd = editor.cwd.clone();
        editor.ok("session/load", of(&session, &cwd)).await;
        for _ in 0..2 {
            editor.ok("session/delete", json!({"sessionId": session})).await;
        }
        assert_eq!(editor.refused("session/load", of(&session, &cwd)).await.0, -32002);
        assert_eq!(listed(&mut editor, json!({})).await, [""; 0]);
        // One in which nothing was said is gone when it is closed.
        let unused = editor.session().await;
        editor.ok("session/close", json!({"sessionId": unused})).await;
        assert_eq!(editor.refused("session/load", of(&unused, &cwd)).await.0, -32002);
    }
}

/// An agent is live in one process. Who wants it in another is told where it is.
#[tokio::test]
async fn what_another_process_has_is_not_taken_from_it() {
    let desk = Desk::embedded().await;
    let mut first = desk.editor().await;
    let session = first.session().await;
    desk.world.model.push(Reply::text("mine"));
    first.prompt(&session, "1").await;
    let mut second = desk.editor().await;
    let cwd = second.cwd.clone();
    let (code, why) = second.refused("session/load", of(&session, &cwd)).await;
    assert_eq!(code, -32603, "{why}");
    assert!(why.starts_with("The agent is live elsewhere"), "{why}");
    desk.world.model.push(Reply::text("still"));
    assert_eq!(first.prompt(&session, "2").await, "end_turn");
    assert_eq!(first.finish().await, Some(0));
    second.ok("session/load", of(&session, &cwd)).await;
    assert_eq!(second.said(), "minestill");
}

/// One that was closed is everybody's.
#[tokio::test]
async fn what_was_closed_can_be_had_in_another_process() {
    let desk = Desk::embedded().await;
    let mut first = desk.editor().await;
    let session = first.session().await;
    // Also one that worked until then.
    desk.world.model.push(Reply::text("begun").then_hang());
    let id = first.begin(&session, "1").await;
    first.update("agent_message_chunk").await;
    first.ok("session/close", json!({"sessionId": session})).await;
    assert_eq!(first.stopped(id).await, "cancelled");
    let mut second = desk.editor().await;
    let cwd = second.cwd.clone();
    second.ok("session/load", of(&session, &cwd)).await;
    assert_eq!(second.said(), "begun");
    desk.world.model.push(Reply::text("mine"));
    assert_eq!(second.prompt(&session, "2").await, "end_turn");
    assert_eq!(first.refused("session/load", of(&session, &cwd)).await.0, -32603);
}

/// A session that is taken up in another directory works there.
#[tokio::test]
async fn a_session_follows_its_editor_to_another_directory() {
    let desk = Desk::bridged().await;
    let wire = desk.server.as_ref().unwrap().wire();
    let elsewhere = desk.world.path("elsewhere").to_str().unwrap().to_owned();
    std::fs::create_dir(&elsewhere).unwrap();
    create(&wire, "a").await;
    desk.world.model.push(Reply::text("hello"));
    say(&wire, "a", "hi").await;
    let mut editor = desk.editor().await;
    editor.ok("session/load", of("a", &elsewhere)).await;
    let permissions = wire.ok("get_permissions", json!({"agent_id": "a"})).await;
    let canonical = std::fs::canonicalize(&elsewhere).unwrap();
    assert_eq!(permissions["policy"]["cwd"], json!(canonical));
    assert!(names(&wire).await.contains(&"a".to_owned()));
}
