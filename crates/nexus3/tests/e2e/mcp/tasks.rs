//! Work that servers go on with after they answered a call. It is asked for until it is done, and after a crash asked for
//! again, not begun again.

use std::fs;
use std::path::PathBuf;
use std::pin::pin;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{entry, status, tool, user, with};
use crate::harness::{Server, Setup, Wire, eventually};
use crate::support::{history, waiting};
use crate::watch::Watched;

over_every_wire! {
    what_a_task_comes_to_is_the_result_of_the_call: with("works modern"),
}

async fn work(wire: &Wire, how: &str) -> String {
    tool(wire, "a", "work", json!({"how": how})).await
}

async fn what_a_task_comes_to_is_the_result_of_the_call(wire: &Wire) {
    user(wire, "a").await;
    assert_eq!(work(wire, "longest").await, "done");
    for (how, told) in [
        ("fail", "the server's task failed: no disk"),
        ("leave", "the server cancelled its task"),
        ("shape", "the task's result is none of a tool"),
        ("other", "is not known: the server speaks of another task"),
        ("forget", "is not known: the server refused it: unknown method"),
        ("nameless", "the server's task has no name"),
        ("longer", "has more than 1024 bytes"),
    ] {
        let said = work(wire, how).await;
        assert!(said.starts_with("Failed: ") && said.contains(told), "{how}: {said}");
    }
}

fn own(server: &Server) -> PathBuf {
    server.world.home().join("mcp/state/s")
}

/// The lines that the MCP server left which begin so.
fn notes(server: &Server, begin: &str) -> usize {
    let notes = fs::read_to_string(own(server).join("notes")).unwrap_or_default();
    notes.lines().filter(|line| line.starts_with(begin)).count()
}

/// Lets the agent `a` begin a task that lasts, and waits until it was asked for.
async fn begin(server: &Server) {
    let wire = server.wire();
    wire.model().push(Reply::tool_call("mcp_s_work", json!({})));
    let own = json!({"agent_id": "a", "mcp": {"s": ["*"]}, "initial_message": "go"});
    wire.ok("create_agent", own).await;
    eventually("the task to be asked for", async || notes(server, "tasks/get") > 0).await;
}

async fn resumed(wire: &Wire) -> Vec<String> {
    wire.model().push(Reply::text("I see."));
    let answer = wire.ok("resume_turn", json!({"agent_id": "a"})).await;
    assert_eq!(answer["content"], "I see.", "{answer}");
    history(wire, "a").await
}

#[tokio::test]
async fn a_task_survives_the_death_of_everybody_who_waits_for_it() {
    let server = with("works modern").start().await;
    begin(&server).await;
    // Twice: who resumes may be killed as well.
    let server = server.restart().await;
    let asked = notes(&server, "tasks/get");
    let wire = server.wire();
    let mut resuming = pin!(wire.call("resume_turn", json!({"agent_id": "a"})));
    tokio::select! {
        answer = &mut resuming => panic!("{answer:?}"),
        () = eventually("the task to be asked for", async || notes(&server, "tasks/get") > asked) => {}
    }
    let server = server.restart().await;
    fs::write(own(&server).join("done"), "").unwrap();
    let lines = resumed(&server.wire()).await;
    assert_eq!(lines[lines.len() - 2..], ["tool: worked", "assistant: I see."]);
    assert_eq!(notes(&server, "begun"), 1, "it was begun again");
    // What is over is over.
    let wire = server.wire();
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
}

#[tokio::test]
async fn who_lost_the_tool_meanwhile_is_not_told_what_it_said() {
    let server = with("works modern").start().await;
    begin(&server).await;
    let server = server.restart().await;
    let wire = server.wire();
    fs::write(own(&server).join("done"), "").unwrap();
    let disable = json!({"agent_id": "a", "disable_tools": ["mcp_s_work"]});
    wire.ok("set_permissions", disable).await;
    let begun = notes(&server, "tasks/get");
    let lines = resumed(&wire).await;
    assert!(lines[lines.len() - 2].starts_with("tool: Refused: "), "{lines:?}");
    assert_eq!(notes(&server, "tasks/get"), begun);
}

/// Leave for one call is leave for what comes of it.
#[tokio::test]
async fn leave_that_was_given_once_is_not_asked_for_again() {
    let config = json!({"permissions": {"approvals": "ask"},
        "mcp_servers": {"s": entry("works modern", json!({}))}});
    let server = Setup::new().config(config).start().await;
    let wire = server.wire();
    wire.model().push(Reply::tool_call("mcp_s_work", json!({})));
    let own_ = json!({"agent_id": "a", "preset": "trusted", "initial_message": "go"});
    wire.ok("create_agent", own_).await;
    let id = waiting(&wire).await["approval_id"].clone();
    wire.ok("respond_approval", json!({"approval_id": id, "decision": "allow_once"})).await;
    eventually("the task to be asked for", async || notes(&server, "tasks/get") > 0).await;
    let server = server.restart().await;
    fs::write(own(&server).join("done"), "").unwrap();
    let lines = resumed(&server.wire()).await;
    assert_eq!(lines[lines.len() - 2], "tool: worked");
}

#[tokio::test]
async fn a_copy_does_not_wait_for_what_its_original_began() {
    let server = with("works modern").start().await;
    begin(&server).await;
    let server = server.restart().await;
    let wire = server.wire();
    wire.ok("clone_session", json!({"src_session": "a", "dest_session": "b"})).await;
    wire.ok("load_session", json!({"session_name": "b"})).await;
    let polled = notes(&server, "tasks/get");
    wire.model().push(Reply::text("I see."));
    wire.ok("resume_turn", json!({"agent_id": "b"})).await;
    let lines = history(&wire, "b").await;
    assert!(lines[lines.len() - 2].contains("is not known"), "{lines:?}");
    assert_eq!(notes(&server, "tasks/get"), polled);
}

#[tokio::test]
async fn a_cancelled_turn_cancels_its_task() {
    let server = with("works modern").start().await;
    begin(&server).await;
    let wire = server.wire();
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    assert_eq!(notes(&server, "tasks/cancel"), 1);
    assert_eq!(status_of(&wire).await["in_flight"], 0);
}

async fn status_of(wire: &Wire) -> Value {
    user(wire, "b").await;
    status(wire, "b").await
}

#[tokio::test]
async fn a_server_that_dies_is_asked_again_when_it_is_back() {
    let server = with("works modern").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(work(&wire, "die").await, "back again");
    assert_eq!((notes(&server, "begun"), notes(&server, "started")), (1, 2));
}

#[tokio::test]
async fn a_task_asks_people_and_not_without_end() {
    let config = json!({"permissions": {"approvals": "ask"},
        "mcp_servers": {"s": entry("works modern", json!({}))}});
    let server = Setup::new().config(config).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let respond = async |decision: Value| {
        let mut params = decision;
        params["approval_id"] = waiting(&wire).await["approval_id"].clone();
        wire.ok("respond_approval", params).await
    };
    let accept = respond(json!({"decision": "accept", "content": {"age": 7}}));
    let (said, _) = tokio::join!(work(&wire, "ask"), accept);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said, json!({"age": {"action": "accept", "content": {"age": 7}}}));
    assert_eq!(notes(&server, "tasks/update"), 1);

    let decline = async {
        for _ in 0..10 {
            respond(json!({"decision": "decline"})).await;
        }
    };
    let (said, ()) = tokio::join!(work(&wire, "loop"), decline);
    assert!(said.contains("asked more than 10 times within one call"), "{said}");
}

#[tokio::test]
async fn what_a_server_says_of_its_task_is_progress() {
    let server = with("works modern").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let mut watch = Watched::open(&wire, json!({"agents": ["a"], "deltas": false})).await;
    let done = async {
        eventually("the task to be asked for", async || notes(&server, "tasks/get") > 0).await;
        fs::write(own(&server).join("done"), "").unwrap();
    };
    let (said, ()) = tokio::join!(work(&wire, "wait"), done);
    assert_eq!(said, "worked");
    let told = watch.until("turn_ended").await;
    let told: Vec<_> = told.iter().filter(|it| it["event"]["type"] == "tool_progress").collect();
    assert_eq!(told.len(), 1, "it said the same each time");
    assert_eq!(told[0]["event"]["message"], "at it");
    watch.unwatch(&wire).await;
}

/// Who does not know tasks is not given any.
#[tokio::test]
async fn an_older_server_has_none() {
    let server = with("works").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(work(&wire, "wait").await, "not as a task");
}
