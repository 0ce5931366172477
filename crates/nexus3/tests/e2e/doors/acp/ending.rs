//! The end: an editor that hangs up, dies or does not read any more.

use nexus_testkit::Reply;
use rustix::process::Signal;
use serde_json::json;

use super::editor::Desk;
use crate::doors::host::is_busy;
use crate::harness::{Setup, eventually};
use crate::support::{history, names};

/// What runs is cancelled; a session in which nothing was said is gone, and others stay.
#[tokio::test]
async fn an_editor_that_hangs_up_leaves_only_what_it_used() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let (used, unused) = (editor.session().await, editor.session().await);
        let refused = editor.session().await;
        let blank = json!({"sessionId": refused, "prompt": []});
        editor.refused("session/prompt", blank).await;
        desk.world.model.push(Reply::text("begun").then_hang());
        editor.begin(&used, "1").await;
        editor.begin(&used, "2").await;
        editor.update("agent_message_chunk").await;
        assert_eq!(editor.finish().await, Some(0));
        let server = match &desk.server {
            Some(server) => server,
            None => &Setup::new().start_in(&desk.world).await,
        };
        let left = names(&server.wire()).await;
        assert!(left.contains(&used), "{left:?}");
        assert!(!left.contains(&unused) && !left.contains(&refused), "{left:?}");
        eventually("the turn to be over", async || !is_busy(server, &used).await).await;
        let said = history(&server.wire(), &used).await;
        assert_eq!(said, ["user: 1", "assistant: begun (interrupted)"]);
    }
}

#[tokio::test]
async fn an_editor_that_is_killed_cancels_its_turn() {
    let desk = Desk::bridged().await;
    let server = desk.server.as_ref().unwrap();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    desk.world.model.push(Reply::text("begun").then_hang());
    editor.begin(&session, "1").await;
    editor.update("agent_message_chunk").await;
    assert!(is_busy(server, &session).await);
    editor.kill().await;
    eventually("the turn to be over", async || !is_busy(server, &session).await).await;
}

/// What it never said anything to does not stay, and what it did, does.
#[tokio::test]
async fn an_editor_that_is_killed_leaves_no_empty_agent() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let (used, unused, parent) =
            (editor.session().await, editor.session().await, editor.session().await);
        desk.world.model.push(Reply::text("yes"));
        editor.prompt(&used, "1").await;
        if let Some(server) = &desk.server {
            let child = json!({"agent_id": "kid", "parent_agent_id": parent});
            server.wire().ok("create_agent", child).await;
        }
        // Another editor that lives keeps its own.
        let mut other = desk.editor().await;
        let kept = other.session().await;
        editor.kill().await;
        let server = match &desk.server {
            Some(server) => server,
            None => &Setup::new().start_in(&desk.world).await,
        };
        let wire = server.wire();
        // One that has a child is used.
        let expected = [Some(&used), Some(&kept), desk.server.as_ref().map(|_| &parent)];
        eventually("the empty agents to end", async || {
            let left = names(&wire).await;
            [&used, &unused, &parent, &kept]
                .iter()
                .all(|agent| left.contains(agent) == expected.contains(&Some(agent)))
        })
        .await;
        assert_eq!(other.finish().await, Some(0));
        eventually("its own to end", async || !names(&wire).await.contains(&kept)).await;
        assert_eq!(std::fs::read_dir(desk.world.home().join("acp")).unwrap().count(), 0);
    }
}

/// It has another token then, where it has no socket.
#[tokio::test]
async fn an_editor_outlives_its_server() {
    for setup in [Setup::new(), Setup::new().no_socket()] {
        let server = setup.clone().start().await;
        let (world, port) = (server.world.clone(), server.address.port());
        let mut desk = Desk { world: world.clone(), server: Some(server) };
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        world.model.push(Reply::text("one"));
        assert_eq!(editor.prompt(&session, "1").await, "end_turn");
        let mut killed = desk.server.take().unwrap();
        killed.signal(Signal::KILL);
        killed.exit().await;
        let again = setup.port(port).start_in(&world).await;
        world.model.push(Reply::text("two"));
        assert_eq!(editor.prompt(&session, "2").await, "end_turn");
        let said = history(&again.wire(), &session).await;
        assert_eq!(said, ["user: 1", "assistant: one", "user: 2", "assistant: two"]);
        assert_eq!(editor.finish().await, Some(0));
    }
}

/// A question that nobody answers holds nothing up.
#[tokio::test]
async fn an_open_question_ends_with_its_editor() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let session = editor.session().await;
        let file = desk.world.path("elsewhere.txt");
        let write = json!({"path": file, "content": "x"});
        desk.world.model.push(Reply::tool_call("write_file", write));
        editor.begin(&session, "write").await;
        editor.asked("session/request_permission").await;
        assert_eq!(editor.finish().await, Some(0));
        assert!(!file.exists());
        if let Some(server) = &desk.server {
            let open = server.wire().ok("list_approvals", json!({})).await;
            assert_eq!(open["approvals"], json!([]));
        }
    }
}

#[tokio::test]
async fn an_editor_that_says_nothing_has_wanted_nothing() {
    for desk in Desk::both().await {
        assert_eq!(desk.silent(&[]).finish().await, Some(0));
    }
}

/// A signal is as good as the end of input.
#[tokio::test]
async fn a_signal_ends_it_in_order() {
    let desk = Desk::bridged().await;
    let server = desk.server.as_ref().unwrap();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    let id = editor.child.id().unwrap();
    let mut kill = tokio::process::Command::new("kill");
    kill.args(["-TERM", &id.to_string()]).status().await.unwrap();
    let status = crate::harness::within("the end", editor.child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(!names(&server.wire()).await.contains(&session));
}
