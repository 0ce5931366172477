//! What was answered is kept, whatever happens to the server and its disk.

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::json;

use super::{add, contents, seen};
use crate::harness::wire::request;
use crate::harness::{Framed, Server, Setup};

#[tokio::test]
async fn many_writers_lose_nothing() {
    let server = Server::start().await;
    let socket = server.socket.clone().unwrap();
    let writers = (0..64).map(|writer| {
        let socket = socket.clone();
        tokio::spawn(async move {
            let mut connection = Framed::connect(&socket).await;
            for n in 0..8 {
                let params = json!({"content": format!("fact {writer} {n}"), "user_id": "u"});
                connection.send(request(n, "memory.add", params).as_bytes()).await;
                assert!(connection.message().await["result"]["id"].is_string());
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(seen(&server.wire(), &json!({"user_id": "u"})).await.len(), 64 * 8);
}

/// The kill comes while adds are under way: what was answered is there, and what was not can be sent again.
#[tokio::test]
async fn a_kill_loses_nothing_that_was_answered() {
    let mut server = Server::start().await;
    let world = server.world.clone();
    let mut connection = server.unix().await;
    let mut answered = Vec::new();
    for n in 0..20 {
        let content = format!("fact {n:02}");
        connection.send(request(n, "memory.add", json!({"content": content})).as_bytes()).await;
        if n < 19 {
            assert_eq!(connection.message().await["result"]["content"], *content);
            answered.push(content);
        }
    }
    server.signal(Signal::KILL);
    server.exit().await;
    let server = Setup::new().start_in(&world).await;
    let wire = server.wire();
    let there = seen(&wire, &json!({})).await;
    assert!(answered.iter().all(|content| there.contains(content)), "{there:?}");
    add(&wire, json!({"content": "fact 19"})).await;
    assert_eq!(seen(&wire, &json!({})).await.len(), 20);
    let found = wire.ok("memory.search", json!({"query": "fact", "limit": 200})).await;
    assert_eq!(contents(&found).len(), 20);
}

#[tokio::test]
async fn a_full_disk_is_said_and_passes() {
    let server = Server::start().await;
    let wire = server.wire();
    let id = add(&wire, json!({"content": "before"})).await["id"].clone();
    let pid = Pid::from_raw(server.status("Pid:").parse().unwrap());
    let limit = |bytes: Option<u64>| {
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    limit(Some(1));
    for (method, params) in
        [("memory.add", json!({"content": "lost"})), ("memory.delete", json!({"memory_id": id}))]
    {
        let refused = wire.refused(method, params).await;
        assert_eq!((refused.code, &*refused.message), (-32603, "The store cannot be written"));
    }
    assert_eq!(seen(&wire, &json!({})).await, ["before"]);
    assert_eq!(contents(&wire.ok("memory.search", json!({"query": "before"})).await), ["before"]);
    limit(None);
    add(&wire, json!({"content": "after"})).await;
    assert_eq!(seen(&wire, &json!({})).await, ["after", "before"]);
}

#[tokio::test]
async fn two_servers_on_one_home_remember_the_same() {
    let one = Server::start().await;
    let other = Setup::new().no_socket().start_in(&one.world).await;
    let (one, other) = (one.wire(), other.wire());
    let first = add(&one, json!({"content": "tea", "user_id": "u"})).await;
    let again = add(&other, json!({"content": "tea", "user_id": "u"})).await;
    assert_eq!(first["id"], again["id"]);
    add(&other, json!({"content": "green tea", "user_id": "u"})).await;
    for wire in [&one, &other] {
        assert_eq!(seen(wire, &json!({"user_id": "u"})).await, ["green tea", "tea"]);
    }
    let params = json!({"memory_id": first["id"], "user_id": "u"});
    assert_eq!(other.ok("memory.delete", params.clone()).await["deleted"], true);
    assert_eq!(one.ok("memory.delete", params).await["deleted"], false);
}
