//! Connections: kept, shared by several requests, slow, broken, too many.

use nexus_testkit::Reply;
use serde_json::json;

use super::VERSION;
use crate::harness::wire::request;
use crate::harness::{Http, Server, Setup, eventually};

#[tokio::test]
async fn a_connection_is_kept_whatever_was_answered_on_it() {
    let server = Server::start().await;
    let mut connection = server.http().await;
    let post = || server.post(VERSION);
    for (request, status) in [
        (post(), 200),
        (post().body("nope"), 400),
        (post().path("/nothing"), 404),
        (post().bearer(None), 401),
        (post().bearer(Some("wrong")), 403),
        (post().verb("GET"), 405),
        (post().body(r#"{"jsonrpc":"2.0","method":"nope"}"#), 202),
        (post(), 200),
    ] {
        connection.write(&request.bytes()).await;
        assert_eq!(connection.response().await.status, status);
    }
    connection.write(&post().header("Connection", "close").bytes()).await;
    assert_eq!(connection.response().await.status, 200);
    assert_eq!(connection.rest().await, b"");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start().await;
    server.model().set_default(Reply::echo());
    let mut all = Vec::new();
    for id in 0..30 {
        // Turns, writes and reads take different times.
        let (method, params) = match id % 3 {
            0 => ("send", json!({"content": "x"})),
            1 => ("create_agent", json!({"agent_id": format!("a{id}")})),
            _ => ("rpc.version", json!({})),
        };
        all.extend(server.post(request(id, method, params)).bytes());
    }
    let mut connection = server.http().await;
    connection.write(&all).await;
    for id in 0..30 {
        let response = connection.response().await;
        assert_eq!((response.status, &response.answer()["id"]), (200, &json!(id)));
    }
}

#[tokio::test]
async fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    let server = Server::start().await;
    let (first, second) = (server.post(VERSION).bytes(), server.post(VERSION).bytes());
    let mut connection = server.http().await;
    connection.write(&[&first, &second[..20]].concat()).await;
    assert_eq!(connection.response().await.status, 200);
    connection.write(&second[20..]).await;
    assert_eq!(connection.response().await.status, 200);
}

#[tokio::test]
async fn a_body_that_waits_for_leave_gets_it() {
    let server = Server::start().await;
    let request = server.post(VERSION).header("Expect", "100-continue");
    let mut connection = server.http().await;
    connection.write(&request.head_bytes()).await;
    assert_eq!(connection.head().await.unwrap().status, 100);
    connection.write(request.body_bytes()).await;
    assert_eq!(connection.response().await.status, 200);

    // Who is refused is told so instead.
    let mut connection = server.http().await;
    connection.write(&request.bearer(None).head_bytes()).await;
    assert_eq!(connection.response().await.refusal(), (401, -32003));
}

#[tokio::test]
async fn a_slow_sender_is_timed_out() {
    let server = Setup::new().server(json!({"request_read_timeout": 0.5})).start().await;
    let whole = server.post(VERSION).bytes();
    let head = server.post(VERSION).head_bytes().len();

    let mut in_its_head = server.http().await;
    in_its_head.write(&whole[..head - 10]).await;
    let mut in_its_body = server.http().await;
    in_its_body.write(&whole[..head + 10]).await;
    let mut before_its_body = server.http().await;
    before_its_body.write(&whole[..head]).await;

    // The slow ones hold up nobody else.
    assert_eq!(server.ask(server.post(VERSION)).await.status, 200);

    assert_eq!(in_its_head.rest().await, b"");
    for mut slow in [in_its_body, before_its_body] {
        assert_eq!(slow.response().await.refusal(), (408, -32600));
        assert_eq!(slow.rest().await, b"");
    }
}

#[tokio::test]
async fn half_open_and_broken_connections_disturb_nobody() {
    let server = Server::start().await;
    let whole = server.post(VERSION).bytes();
    let mut open = Vec::new();
    for cut in 0..60 {
        let mut connection = server.http().await;
        connection.write(&whole[..cut * whole.len() / 60]).await;
        open.push(connection);
    }
    for garbage in [
        &b"\0\0\0\0\0\0\0\0\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST\r\n\r\n",
    ] {
        let mut connection = server.http().await;
        connection.write(garbage).await;
        open.push(connection);
    }
    assert_eq!(server.ask(server.post(VERSION)).await.status, 200);
    // One that was cut may go on.
    let first_half = &whole[..30 * whole.len() / 60];
    open[30].write(&whole[first_half.len()..]).await;
    assert_eq!(open[30].response().await.status, 200);
    drop(open);
    assert_eq!(server.ask(server.post(VERSION)).await.status, 200);
}

#[tokio::test]
async fn what_is_no_http_is_answered_all_the_same() {
    let server = Server::start().await;
    for garbage in [
        &b"\0\0\0\0\0\0\0\0\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST\r\n\r\n",
        b"{\"jsonrpc\":\"2.0\"}\r\n\r\n",
    ] {
        let mut connection = server.http().await;
        connection.write(garbage).await;
        assert_eq!(connection.response().await.refusal(), (400, -32600), "{garbage:?}");
        assert_eq!(connection.rest().await, b"");
        // Behind a good request, too.
        let mut connection = server.http().await;
        connection.write(&[&server.post(VERSION).bytes(), garbage].concat()).await;
        assert_eq!(connection.response().await.status, 200);
        assert_eq!(connection.response().await.refusal(), (400, -32600), "{garbage:?}");
    }
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let server = Setup::new().server(json!({"max_connections": 2})).start().await;
    let mut kept: Vec<Http> = Vec::new();
    for _ in 0..2 {
        let mut connection = server.http().await;
        connection.write(&server.post(VERSION).bytes()).await;
        assert_eq!(connection.response().await.status, 200);
        kept.push(connection);
    }
    let mut refused = server.http().await;
    let response = refused.response().await;
    assert_eq!(response.refusal(), (503, -32001));
    assert!(response.answer()["error"]["data"]["retry_after_ms"].is_u64());
    assert_eq!(refused.rest().await, b"");

    // The others go on, and a place that is given back is taken again.
    kept[0].write(&server.post(VERSION).bytes()).await;
    assert_eq!(kept[0].response().await.status, 200);
    kept.pop();
    eventually("the place to be free", async || {
        server.ask(server.post(VERSION)).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn strangers_make_room_for_those_who_show_a_token() {
    let server = Setup::new().server(json!({"max_connections": 4})).start().await;
    let mut known = server.http().await;
    known.write(&server.post(VERSION).bytes()).await;
    assert_eq!(known.response().await.status, 200);
    let mut strangers = Vec::new();
    for count in 0..20 {
        let mut stranger = server.http().await;
        // Some say nothing, some half of something, some what gets them nowhere.
        match count % 3 {
            0 => {}
            1 => stranger.write(b"POST / HTTP/1.1\r\nhost: loc").await,
            _ => {
                stranger.write(&server.post(VERSION).bearer(None).bytes()).await;
                assert_eq!(stranger.response().await.status, 401);
            }
        }
        strangers.push(stranger);
        assert_eq!(server.ask(server.post(VERSION)).await.status, 200);
    }
    // Whoever came first had to go, and nobody who is known.
    for stranger in &mut strangers[..16] {
        assert_eq!(stranger.rest().await, b"");
    }
    known.write(&server.post(VERSION).bytes()).await;
    assert_eq!(known.response().await.status, 200);
}

#[tokio::test]
async fn idle_agents_make_room_too() {
    let server = Setup::new().server(json!({"max_connections": 8})).start().await;
    // Over the other door: a connection that was closed here may still have its place.
    let mut socket = server.unix().await;
    for method in ["create_agent", "create_agent_token"] {
        socket.send(request(1, method, json!({"agent_id": "a"})).as_bytes()).await;
    }
    socket.message().await;
    let answer = socket.message().await;
    let token = answer["result"]["token"].as_str().unwrap();
    let as_agent = |body: String| server.post(body).path("/agent/a").bearer(Some(token));
    let gate = nexus_testkit::Gate::new();
    server.model().push(Reply::text("done").held_by(&gate));
    let mut works = server.http().await;
    works.write(&as_agent(request(1, "send", json!({"content": "x"}))).bytes()).await;
    server.model().wait_for_requests(1).await;
    let mut idles = server.http().await;
    idles.write(&as_agent(request(1, "get_context", json!({}))).bytes()).await;
    assert_eq!(idles.response().await.status, 200);
    let mut people = Vec::new();
    for _ in 0..6 {
        let mut person = server.http().await;
        person.write(&server.post(VERSION).bytes()).await;
        assert_eq!(person.response().await.status, 200);
        people.push(person);
    }
    // It is idle a moment after its answer has come.
    eventually("room", async || server.ask(server.post(VERSION)).await.status == 200).await;
    assert_eq!(idles.rest().await, b"");
    gate.release();
    assert_eq!(works.response().await.answer()["result"]["content"], "done");
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised() {
    let server = Setup::new().ulimit("-S -n 200").start().await;
    let (limit, most) = server.open_files_max();
    assert_eq!(limit, most);
    assert_ne!(limit, "200");
}

/// Idle strangers on both doors, where there are fewer descriptors than they would take.
#[tokio::test]
async fn strangers_leave_enough_descriptors_for_the_rest() {
    let server = Setup::new().ulimit("-n 300").start().await;
    server
        .log()
        .wait_for("a warning", |line| {
            line["message"].as_str().is_some_and(|it| it.contains("only 22 of 1024 connections"))
        })
        .await;
    server.model().set_default(Reply::echo());
    let mut strangers = Vec::new();
    let mut neighbours = Vec::new();
    for _ in 0..200 {
        strangers.push(server.http().await);
        neighbours.push(server.unix().await);
    }
    let mut socket = server.unix().await;
    for round in 0..3 {
        let said = server.wire().ok("send", json!({"content": format!("{round}")})).await;
        assert_eq!(said["content"], format!("{round}"));
        socket.send(VERSION.as_bytes()).await;
        assert_eq!(socket.message().await["result"]["name"], "nexus3");
    }
}

#[tokio::test]
async fn a_plain_send_outlives_its_client() {
    let server = Server::start().await;
    let gate = nexus_testkit::Gate::new();
    server.model().push(Reply::text("nobody reads this").held_by(&gate));
    let mut connection = server.http().await;
    connection.write(&server.post(request(1, "send", json!({"content": "x"}))).bytes()).await;
    server.model().wait_for_requests(1).await;
    drop(connection);
    gate.release();
    eventually("the answer in the history", async || {
        let history = server.wire().ok("get_messages", json!({})).await;
        history["messages"][1]["content"] == "nobody reads this"
    })
    .await;
    assert_eq!(server.model().disconnects(), 0);
}
