//! Agents that nobody calls leave memory and come back when somebody does; temporary ones end.

use nexus_testkit::Reply;
use serde_json::json;

use crate::harness::{Setup, Wire, eventually};
use crate::support::{create, entry, history, names, say};

over_every_wire! {
    an_idle_agent_comes_back_when_it_is_called: impatient(),
    an_idle_temporary_agent_ends: impatient(),
}

/// The shortest patience there is.
fn impatient() -> Setup {
    Setup::new().server(json!({"agent_idle_timeout": 0.1, "temp_agent_idle_timeout": 0.1}))
}

async fn is_stored(wire: &Wire, agent: &str) {
    eventually("the agent to leave memory", async || {
        entry(wire, agent).await["status"] == "stored"
    })
    .await;
}

async fn an_idle_agent_comes_back_when_it_is_called(wire: &Wire) {
    wire.model().set_default(Reply::echo());
    create(wire, "a").await;
    say(wire, "a", "one").await;
    is_stored(wire, "a").await;
    let before = entry(wire, "a").await;
    assert_eq!(before["message_count"], 2);
    say(wire, "a", "two").await;
    let said = ["user: one", "assistant: one", "user: two", "assistant: two"];
    assert_eq!(history(wire, "a").await, said);
    is_stored(wire, "a").await;
    // One that is not in memory is renamed, moved and loaded as any other.
    wire.ok("rename_session", json!({"old_name": "a", "new_name": "b"})).await;
    is_stored(wire, "b").await;
    wire.ok("set_system_prompt", json!({"agent_id": "b", "system_prompt": "x"})).await;
    is_stored(wire, "b").await;
    wire.ok("load_session", json!({"session_name": "b"})).await;
    assert_eq!(history(wire, "b").await, said);
    // Nor does it leave while it works.
    wire.model().push(Reply::text("So far").then_hang());
    let cancel = async {
        wire.model().wait_for_requests(3).await;
        create(wire, "other").await;
        is_stored(wire, "other").await;
        assert_eq!(entry(wire, "b").await["status"], "running");
        wire.ok("cancel", json!({"agent_id": "b", "request_id": 1})).await;
    };
    let send = wire.ok("send", json!({"agent_id": "b", "content": "x", "request_id": 1}));
    let (answer, ()) = tokio::join!(send, cancel);
    assert_eq!(answer["cancelled"], true);
}

async fn an_idle_temporary_agent_ends(wire: &Wire) {
    create(wire, ".t").await;
    create(wire, "a").await;
    eventually("the agent to end", async || names(wire).await == ["a"]).await;
    assert_eq!(wire.refused("get_context", json!({"agent_id": ".t"})).await.code, -32602);
}

#[tokio::test]
async fn an_agent_that_left_memory_may_be_had_by_another_process() {
    let one = impatient().start().await;
    let two = Setup::new().no_socket().start_in(&one.world).await;
    create(&one.wire(), "a").await;
    is_stored(&one.wire(), "a").await;
    eventually("the lease to be given back", async || {
        let sent = two.wire().call("send", json!({"agent_id": "a", "content": "Hi"})).await;
        sent.is_ok()
    })
    .await;
    // The first one asks again, and is told who has it unless the second let it go as well.
    assert_eq!(history(&two.wire(), "a").await[0], "user: Hi");
}
