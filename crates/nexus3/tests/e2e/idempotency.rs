//! Calls that are made again: carried out once, and answered as the first time.

use futures_util::future::join_all;
use nexus_testkit::{Gate, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Setup, Wire};
use crate::support::{as_agent, create, has_messages, history, names};

over_every_wire! {
    a_call_is_carried_out_once_and_answered_again,
    a_key_is_for_one_call,
    a_key_is_for_one_method_and_address,
    doubles_at_once_have_one_execution,
    what_was_turned_away_may_be_made_again,
    what_failed_has_failed,
}

over_every_wire_of_messages! {
    an_answer_is_the_same_to_the_byte,
    doubles_in_a_batch_have_one_execution,
    a_stream_that_is_asked_for_again_is_one_chunk,
    a_notification_is_carried_out_once,
}

async fn a_call_is_carried_out_once_and_answered_again(wire: &Wire) {
    let make = json!({"idempotency_key": "make", "preset": "worker"});
    let made = wire.ok("create_agent", make.clone()).await;
    assert_eq!(wire.ok("create_agent", make).await, made);
    assert_eq!(names(wire).await, [made["agent_id"].as_str().unwrap()]);

    let agent = made["agent_id"].as_str().unwrap();
    wire.model().push(Reply::text("First."));
    let say = json!({"agent_id": agent, "content": "Hi", "idempotency_key": "say"});
    let said = wire.ok("send", say.clone()).await;
    assert_eq!(said["content"], "First.");
    for _ in 0..3 {
        assert_eq!(wire.ok("send", say.clone()).await, said);
    }
    assert_eq!(history(wire, agent).await, ["user: Hi", "assistant: First."]);
    assert_eq!(wire.model().request_count(), 1);
    // Without a key, and with another, it is a new call.
    wire.ok("send", json!({"agent_id": agent, "content": "Hi"})).await;
    let other = json!({"agent_id": agent, "content": "Hi", "idempotency_key": "other"});
    wire.ok("send", other).await;
    assert_eq!(wire.model().request_count(), 3);
}

async fn a_key_is_for_one_call(wire: &Wire) {
    create(wire, "a").await;
    let say = |content: &str| json!({"agent_id": "a", "content": content, "idempotency_key": "k"});
    wire.ok("send", say("Hi")).await;
    let refused = wire.refused("send", say("Ho")).await;
    let said = "The same idempotency_key came with other parameters: a key is for one call";
    assert_eq!((refused.code, &*refused.message), (-32602, said));
    assert_eq!(refused.data, json!({"path": "/idempotency_key"}));
    wire.ok("send", say("Hi")).await;
    assert_eq!(wire.model().request_count(), 1);
    for (key, complaint) in [
        (json!(" "), "idempotency_key must not be blank"),
        (json!("a\n"), "idempotency_key must not have control characters"),
        (json!("x".repeat(256)), "idempotency_key must be at most 255 bytes long, got: 256"),
        (json!(7), "idempotency_key must be string, got: integer"),
    ] {
        let params = json!({"agent_id": "a", "content": "Hi", "idempotency_key": key});
        assert_eq!(wire.refused("send", params).await.message, complaint);
    }
    let params = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "x".repeat(255)});
    wire.ok("send", params).await;
}

async fn a_key_is_for_one_method_and_address(wire: &Wire) {
    wire.model().set_default(Reply::echo());
    for agent in ["a", "b"] {
        wire.ok("create_agent", json!({"agent_id": agent, "idempotency_key": agent})).await;
        let say = json!({"agent_id": agent, "content": "Hi", "idempotency_key": "a"});
        wire.ok("send", say).await;
        assert_eq!(history(wire, agent).await.len(), 2);
    }
    // Who names no agent speaks to the default one, by whatever name it is called.
    wire.ok("send", json!({"content": "Hi", "idempotency_key": "a"})).await;
    wire.ok("send", json!({"agent_id": "main", "content": "Hi", "idempotency_key": "a"})).await;
    assert_eq!(history(wire, "main").await.len(), 2);
}

async fn doubles_at_once_have_one_execution(wire: &Wire) {
    create(wire, "a").await;
    let gate = Gate::new();
    wire.model().push(Reply::text("Once.").held_by(&gate));
    let say = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "k"});
    let calls = join_all((0..5).map(|_| wire.ok("send", say.clone())));
    let (answers, ()) = tokio::join!(calls, async {
        has_messages(wire, "a", 1).await;
        gate.release();
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(answers[0]["content"], "Once.");
    assert_eq!(wire.model().request_count(), 1);
    assert_eq!(history(wire, "a").await.len(), 2);
}

async fn what_was_turned_away_may_be_made_again(wire: &Wire) {
    let say = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "k"});
    for _ in 0..2 {
        assert_eq!(wire.refused("send", say.clone()).await.message, "Unknown agent: a");
    }
    create(wire, "a").await;
    wire.ok("send", say).await;
    let make = json!({"agent_id": "a", "idempotency_key": "make"});
    assert_eq!(wire.refused("create_agent", make.clone()).await.code, -32602);
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    wire.ok("create_agent", make.clone()).await;
    wire.ok("create_agent", make).await;
}

async fn what_failed_has_failed(wire: &Wire) {
    create(wire, "a").await;
    wire.model().push(Reply::status(401));
    let say = |key: &str| json!({"agent_id": "a", "content": "Hi", "idempotency_key": key});
    let first = wire.refused("send", say("k")).await;
    assert_eq!(first.code, -32603, "{first:?}");
    let again = wire.refused("send", say("k")).await;
    assert_eq!((again.code, again.message), (first.code, first.message));
    assert_eq!(wire.model().request_count(), 1);
    wire.ok("send", say("another")).await;
}

async fn an_answer_is_the_same_to_the_byte(wire: &Wire) {
    create(wire, "a").await;
    wire.model().push(Reply::text("\u{1f600} \u{7} \"so\" \\ 1.10"));
    let say = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "k"});
    let first = wire.exchange_raw(request(1, "send", say.clone())).await;
    let again = wire.exchange_raw(request(2, "send", say)).await;
    assert_eq!(again, first.replacen("\"id\":1,", "\"id\":2,", 1));
}

async fn doubles_in_a_batch_have_one_execution(wire: &Wire) {
    create(wire, "a").await;
    let say = |content: &str| json!({"agent_id": "a", "content": content, "idempotency_key": "k"});
    let batch = [(1, "Hi"), (2, "Hi"), (3, "Ho"), (4, "Hi")]
        .map(|(id, content)| request(id, "send", say(content)));
    let answers = wire.exchange(format!("[{}]", batch.join(","))).await;
    assert_eq!(answers[0]["result"], answers[1]["result"], "{answers}");
    assert_eq!(answers[0]["result"], answers[3]["result"], "{answers}");
    assert_eq!(answers[2]["error"]["data"]["path"], "/idempotency_key", "{answers}");
    assert_eq!(history(wire, "a").await.len(), 2);
}

async fn a_stream_that_is_asked_for_again_is_one_chunk(wire: &Wire) {
    create(wire, "a").await;
    wire.model().push(Reply::chunks(["One ", "two."]));
    let say = json!({"agent_id": "a", "content": "Hi", "stream": true, "idempotency_key": "k"});
    let (first, answer) = wire.open(request(1, "send", say.clone())).await.all().await;
    assert_eq!(chunks(&first).concat(), "One two.");
    let (again, same) = wire.open(request(1, "send", say)).await.all().await;
    assert_eq!(same, answer);
    let methods: Vec<_> = again.iter().map(|it| it["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["stream_start", "stream_data", "stream_end"]);
    assert_eq!(chunks(&again), ["One two."]);
    assert_eq!(again[2]["params"]["total_chunks"], 1);
    assert_eq!(wire.model().request_count(), 1);
}

async fn a_notification_is_carried_out_once(wire: &Wire) {
    create(wire, "a").await;
    let say = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "k"});
    let silent = json!({"jsonrpc": "2.0", "method": "send", "params": say}).to_string();
    for _ in 0..2 {
        wire.silent(&silent).await;
    }
    wire.ok("send", say).await;
    assert_eq!(history(wire, "a").await.len(), 2);
}

#[tokio::test]
async fn who_hangs_up_finds_the_answer_later() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let gate = Gate::new();
    server.model().push(Reply::text("Begun, ").then_gate(&gate).then_text("and done."));
    let say = json!({"agent_id": "a", "content": "Hi", "stream": true, "idempotency_key": "k"});
    let mut stream = wire.open(request(1, "send", say.clone())).await;
    while stream.next().await.unwrap()["params"]["chunk"] != "Begun, " {}
    drop(stream);
    // Who waits for it is told at once that it is under way.
    let mut again = wire.open(request(2, "send", say)).await;
    assert_eq!(again.next().await.unwrap()["method"], "stream_start");
    gate.release();
    let (notifications, answer) = again.all().await;
    assert_eq!(answer["result"]["content"], "Begun, and done.");
    assert_eq!(answer["result"].get("cancelled"), None, "the turn went on");
    assert_eq!(chunks(&notifications).concat(), "Begun, and done.");
    assert_eq!(server.model().request_count(), 1);
}

#[tokio::test]
async fn an_answer_outlives_a_kill() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let make = json!({"idempotency_key": "make"});
    let made = server.wire().ok("create_agent", make.clone()).await;
    let say = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "say"});
    let said = server.wire().ok("send", say.clone()).await;
    let server = server.restart().await;
    assert_eq!(server.wire().ok("create_agent", make).await, made);
    assert_eq!(server.wire().ok("send", say.clone()).await, said);
    let other = json!({"agent_id": "a", "content": "Ho", "idempotency_key": "say"});
    assert_eq!(server.wire().refused("send", other).await.code, -32602);
    assert_eq!(server.model().request_count(), 1);
}

#[tokio::test]
async fn what_was_under_way_when_the_server_was_killed_is_not_carried_out_again() {
    let mut server = Server::start().await;
    let world = server.world.clone();
    create(&server.wire(), "a").await;
    server.model().push(Reply::hang());
    let say = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "k"});
    let mut connection = server.unix().await;
    connection.send(request(1, "send", say.clone()).as_bytes()).await;
    has_messages(&server.wire(), "a", 1).await;
    // The question is written down while the model is already asked: both have to have happened.
    server.model().wait_for_requests(1).await;
    server.signal(Signal::KILL);
    server.exit().await;
    let server = Setup::new().start_in(&world).await;
    let wire = server.wire();
    for _ in 0..2 {
        let refused = wire.refused("send", say.clone()).await;
        assert_eq!((refused.code, &*refused.message), (-32000, "Execution failed"));
        assert_eq!(refused.data["type"], "EXECUTION_ERROR");
        let details = refused.data["details"].as_str().unwrap();
        assert!(details.contains("was under way when the server stopped"), "{details}");
        let advice = refused.data["recovery_suggestions"].to_string();
        assert!(advice.contains("resume_turn") && advice.contains("new idempotency_key"));
    }
    assert_eq!(history(&wire, "a").await, ["user: Hi"]);
    assert_eq!(server.model().request_count(), 1);
    assert_eq!(wire.ok("resume_turn", json!({"agent_id": "a"})).await["stop_reason"], "end_turn");
    let anew = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "k2"});
    wire.ok("send", anew).await;
}

/// Kills come at every moment of a call: whenever it is made again, it was carried out at most once.
#[tokio::test]
async fn a_kill_at_any_moment_has_nothing_done_twice() {
    let mut server = Server::start().await;
    let world = server.world.clone();
    for round in 0..6_u32 {
        let make =
            json!({"idempotency_key": format!("k{round}"), "system_prompt": format!("{round}")});
        let mut connection = server.unix().await;
        connection.send(request(1, "create_agent", make.clone()).as_bytes()).await;
        // Sooner and later: at once, after a little work of this test, after the answer.
        for _ in 0..round % 3 {
            tokio::task::yield_now().await;
        }
        if round % 3 == 2 {
            connection.message().await;
        }
        server.signal(Signal::KILL);
        server.exit().await;
        server = Setup::new().start_in(&world).await;
        let wire = server.wire();
        let before = names(&wire).await.len();
        match wire.call("create_agent", make.clone()).await {
            // It had not begun, or it had been answered.
            Ok(made) => {
                assert_eq!(wire.ok("create_agent", make).await, made);
                assert!(names(&wire).await.len() - before <= 1);
            }
            Err(refused) => {
                assert_eq!(refused.code, -32000, "{refused:?}");
                assert_eq!(names(&wire).await.len(), before);
            }
        }
        assert!(names(&wire).await.len() <= round as usize + 1);
    }
}

#[tokio::test]
async fn what_another_server_of_the_home_is_at_is_asked_for_later() {
    let one = Server::start().await;
    let other = Setup::new().no_socket().start_in(&one.world).await;
    create(&one.wire(), "a").await;
    let gate = Gate::new();
    one.model().push(Reply::text("Done.").held_by(&gate));
    let say = json!({"agent_id": "a", "content": "Hi", "idempotency_key": "k"});
    let wire = one.wire();
    let call = wire.ok("send", say.clone());
    let (said, ()) = tokio::join!(call, async {
        has_messages(&one.wire(), "a", 1).await;
        let refused = other.wire().refused("send", say.clone()).await;
        assert_eq!(refused.code, -32001);
        assert!(refused.data["retry_after_ms"].is_u64(), "{refused:?}");
        assert!(refused.data["owner"]["pid"].is_u64(), "{refused:?}");
        gate.release();
    });
    assert_eq!(other.wire().ok("send", say).await, said, "though the agent lives elsewhere");
    assert_eq!(one.model().request_count(), 1);
}

#[tokio::test]
async fn keys_are_their_callers_own() {
    let server = Server::start().await;
    let wire = server.wire();
    for agent in ["a", "b"] {
        create(&wire, agent).await;
    }
    let say = |agent: &str| json!({"agent_id": agent, "content": "Hi", "idempotency_key": "k"});
    wire.ok("send", say("a")).await;
    let own = as_agent(&server, "a", "send", say("a")).await.unwrap();
    assert_eq!(as_agent(&server, "a", "send", say("a")).await.unwrap(), own);
    assert_eq!(history(&wire, "a").await.len(), 4, "once for each of the two");
    let refused = as_agent(&server, "b", "send", say("a")).await.unwrap_err();
    assert_eq!(refused.0, -32003, "what others were answered is not told");
    // Another agent of the name is another caller.
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    create(&wire, "a").await;
    let anew = as_agent(&server, "a", "send", say("a")).await.unwrap();
    assert_ne!(anew["request_id"], own["request_id"]);
    // And another to talk to.
    wire.ok("send", say("a")).await;
    assert_eq!(history(&wire, "a").await.len(), 4);
    // Names of temporary agents come again with the next process.
    let make = json!({"agent_id": ".", "cwd": server.world.work()});
    let temporary = wire.ok("create_agent", make.clone()).await["agent_id"].clone();
    let say = json!({"agent_id": temporary, "content": "Hi", "idempotency_key": "t"});
    wire.ok("send", say.clone()).await;
    let server = server.restart().await;
    let wire = server.wire();
    assert_eq!(wire.ok("create_agent", make).await["agent_id"], temporary);
    wire.ok("send", say).await;
    assert_eq!(history(&wire, temporary.as_str().unwrap()).await.len(), 2);
}

#[tokio::test]
async fn the_command_line_has_keys_too() {
    let server = Server::start().await;
    let port = server.address.port().to_string();
    let create = ["rpc", "-p", &port, "create", "--idempotency-key", "make"];
    let made = server.cli(create).await;
    assert_eq!(server.cli(create).await.stdout, made.stdout, "{made:?}");
    let agent = names(&server.wire()).await.remove(0);
    let send = ["rpc", "-p", &port, "send", &agent, "Hi", "--idempotency-key", "say"];
    let said = server.cli(send).await;
    assert_eq!((said.code, server.cli(send).await.stdout), (Some(0), said.stdout.clone()));
    assert_eq!(server.model().request_count(), 1);
    assert_eq!(history(&server.wire(), &agent).await.len(), 2);
    let blank = server.cli(["rpc", "-p", &port, "create", "--idempotency-key", " "]).await;
    assert_eq!(blank.code, Some(2), "{blank:?}");
    assert!(blank.stderr.contains("must not be blank"), "{blank:?}");
}

fn chunks(notifications: &[Value]) -> Vec<&str> {
    notifications.iter().filter_map(|it| it["params"]["chunk"].as_str()).collect()
}
