//! Turns as tasks: hosts leave, come back and ask, also after the server was killed.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::host::{Era, Host};
use crate::harness::{Server, eventually};
use crate::support::create;

fn tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

/// Begins a turn that is a task before it ends.
async fn begin(host: &Host<'_>, agent: &str) -> String {
    let task = host.tool("nexus_send", json!({"agent_id": agent, "content": "x"})).await;
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{task}"
    );
    task["taskId"].as_str().unwrap().to_owned()
}

async fn get(host: &Host<'_>, task: &str) -> Value {
    host.ok("tasks/get", json!({"taskId": task})).await
}

#[tokio::test]
async fn a_long_turn_is_a_task_and_a_short_one_is_not() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let host = Host::connect(&server, Era::Modern, tasks()).await;
    server.model().push(Reply::text("quick"));
    let answer = host.tool("nexus_send", json!({"agent_id": "a", "content": "x"})).await;
    assert_eq!(answer["structuredContent"]["content"], "quick", "{answer}");
    let gate = Gate::new();
    server.model().push(Reply::text("slow").held_by(&gate));
    let task = begin(&host, "a").await;
    assert_eq!(get(&host, &task).await["status"], "working");
    gate.release();
    // Another connection of the same caller asks; hosts of this era have no other tie.
    let again = Host::connect(&server, Era::Modern, tasks()).await;
    eventually("the task to end", async || get(&again, &task).await["status"] == "completed").await;
    let ended = get(&again, &task).await;
    assert_eq!(ended["result"]["structuredContent"]["content"], "slow", "{ended}");
    let unknown = host.call("tasks/get", json!({"taskId": "a:mcp-00"})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[tokio::test]
async fn a_task_can_be_cancelled() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let host = Host::connect(&server, Era::Modern, tasks()).await;
    server.model().push(Reply::hang());
    let task = begin(&host, "a").await;
    host.ok("tasks/cancel", json!({"taskId": task})).await;
    eventually("the task to end", async || get(&host, &task).await["status"] == "cancelled").await;
}

/// What the store has is found by the name of the task, whoever asks later.
#[tokio::test]
async fn a_task_that_ended_is_found_after_the_server_was_killed() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let gate = Gate::new();
    server.model().push(Reply::text("kept").held_by(&gate));
    let task = {
        let host = Host::connect(&server, Era::Modern, tasks()).await;
        let task = begin(&host, "a").await;
        gate.release();
        eventually("the task to end", async || get(&host, &task).await["status"] == "completed")
            .await;
        task
    };
    let server = server.restart().await;
    let host = Host::connect(&server, Era::Modern, tasks()).await;
    let ended = get(&host, &task).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["result"]["structuredContent"]["content"], "kept", "{ended}");
}

#[tokio::test]
async fn a_task_that_was_cut_off_says_so_and_its_turn_can_be_resumed() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::hang());
    let task = begin(&Host::connect(&server, Era::Modern, tasks()).await, "a").await;
    let server = server.restart().await;
    let host = Host::connect(&server, Era::Modern, tasks()).await;
    let cut = get(&host, &task).await;
    assert_eq!(cut["status"], "failed", "{cut}");
    assert!(cut["error"]["message"].as_str().unwrap().contains("was cut off"), "{cut}");
    server.model().push(Reply::text("after all"));
    server.wire().ok("resume_turn", json!({"agent_id": "a"})).await;
    let ended = get(&host, &task).await;
    assert_eq!(ended["result"]["structuredContent"]["content"], "after all", "{ended}");
}

#[tokio::test]
async fn nobody_else_finds_a_task() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    create(&wire, "b").await;
    server.model().push(Reply::hang());
    let task = begin(&Host::connect(&server, Era::Modern, tasks()).await, "a").await;
    let other = Host::of_agent(&server, "b", Era::Modern, tasks()).await;
    for method in ["tasks/get", "tasks/cancel"] {
        let answer = other.call(method, json!({"taskId": task})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let answers = json!({"taskId": task, "inputResponses": {}});
    assert_eq!(other.call("tasks/update", answers).await["error"]["code"], -32602);
}

/// Half an answer is none, also when the agent has gone on to something else since.
#[tokio::test]
async fn a_task_that_was_cut_off_is_not_completed_by_what_comes_later() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::text("half of it").then_hang());
    let task = begin(&Host::connect(&server, Era::Modern, tasks()).await, "a").await;
    let server = server.restart().await;
    server.model().push(Reply::text("something else"));
    server.wire().ok("send", json!({"agent_id": "a", "content": "never mind"})).await;
    let host = Host::connect(&server, Era::Modern, tasks()).await;
    let cut = get(&host, &task).await;
    assert_eq!(cut["status"], "failed", "{cut}");
}
