//! What there is to choose from, what runs where, and the last of what was said.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use crate::harness::{Setup, Wire};
use crate::support::{as_agent, create, say};

over_every_wire! {
    the_tools_of_an_agent_are_listed_with_what_stands_in_their_way,
    the_presets_are_listed_with_what_they_narrow: with_presets(),
    the_last_messages_come_oldest_first,
    what_does_not_fit_is_left_out_before_the_last: wide(),
}

/// A model with room for all of it.
fn wide() -> Setup {
    Setup::new().provider_keys(json!({"models": {"scripted": {"context_window": 10_000_000}}}))
}

fn with_presets() -> Setup {
    let presets = json!({
        "reader": {"extends": "worker"},
        "narrow": {"extends": "reader", "tool_permissions": {"glob": {"enabled": false}}},
    });
    Setup::new().config(json!({"permissions": {"presets": presets, "default_preset": "reader"}}))
}

async fn tool(wire: &Wire, agent: &str, name: &str) -> Value {
    let tools = wire.ok("list_tools", json!({"agent_id": agent})).await;
    let tools = tools["tools"].as_array().unwrap();
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
}

async fn the_tools_of_an_agent_are_listed_with_what_stands_in_their_way(wire: &Wire) {
    create(wire, "a").await;
    let trusted = json!({"agent_id": "t", "preset": "trusted", "disable_tools": ["glob"]});
    wire.ok("create_agent", trusted).await;
    let standing = async |agent: &str, name: &str| {
        let tool = tool(wire, agent, name).await;
        (tool["enabled"] == true, tool["offered"] == true, tool["rule"].clone())
    };
    assert_eq!(standing("a", "read_file").await, (true, true, Value::Null));
    assert_eq!(standing("a", "exec").await, (true, false, json!("level")));
    assert_eq!(standing("t", "exec").await, (true, true, Value::Null));
    assert_eq!(standing("t", "glob").await, (false, false, json!("enabled")));
    let kinds: Vec<_> = ["read_file", "write_file", "exec", "nexus_create"].into();
    for (name, kind) in kinds.into_iter().zip(["look", "write", "command", "agents"]) {
        let tool = tool(wire, "t", name).await;
        assert_eq!(tool["kind"], kind, "{tool}");
        assert_eq!(tool["input_schema"]["type"], "object", "{tool}");
        assert!(!tool["description"].as_str().unwrap().is_empty());
    }
    // What the model is told of is what is offered.
    wire.ok("send", json!({"agent_id": "t", "content": "x"})).await;
    let told = wire.model().requests().pop().unwrap().body["tools"].as_array().unwrap().len();
    let tools = wire.ok("list_tools", json!({"agent_id": "t"})).await;
    let offered = tools["tools"].as_array().unwrap().iter().filter(|tool| tool["offered"] == true);
    assert_eq!(offered.count(), told);
}

async fn the_presets_are_listed_with_what_they_narrow(wire: &Wire) {
    let preset = |name: &str, extends: Value, level: &str, built_in: bool| json!({"name": name, "extends": extends, "level": level, "built_in": built_in});
    let expected = json!({"default": "reader", "presets": [
        preset("sandboxed", Value::Null, "sandboxed", true),
        preset("worker", Value::Null, "sandboxed", true),
        preset("trusted", Value::Null, "trusted", true),
        preset("narrow", json!("reader"), "sandboxed", false),
        preset("reader", json!("worker"), "sandboxed", false),
    ]});
    assert_eq!(wire.ok("list_presets", json!({})).await, expected);
}

/// The indexes of the messages on a page.
async fn indexes(wire: &Wire, params: Value) -> (u64, Vec<u64>) {
    let page = wire.ok("get_messages", params).await;
    let messages = page["messages"].as_array().unwrap().iter();
    let indexes: Vec<_> = messages.map(|it| it["index"].as_u64().unwrap()).collect();
    (page["offset"].as_u64().unwrap(), indexes)
}

async fn the_last_messages_come_oldest_first(wire: &Wire) {
    for _ in 0..4 {
        say(wire, "main", "x").await;
    }
    let cases = [
        (json!({"from_end": true}), 0..8),
        (json!({"from_end": true, "limit": 3}), 5..8),
        (json!({"from_end": true, "limit": 3, "offset": 2}), 3..6),
        (json!({"from_end": true, "limit": 3, "offset": 7}), 0..1),
        (json!({"from_end": true, "limit": 3, "offset": 8}), 0..0),
        (json!({"from_end": true, "limit": 3, "offset": 99}), 0..0),
        (json!({"from_end": false, "limit": 3}), 0..3),
    ];
    for (params, expected) in cases {
        let found = indexes(wire, params.clone()).await;
        assert_eq!(found, (expected.start, expected.collect()), "{params}");
    }
}

async fn what_does_not_fit_is_left_out_before_the_last(wire: &Wire) {
    // Each answer is more than a third of a page in JSON, where its characters have six bytes.
    for _ in 0..5 {
        wire.model().push(Reply::text("\u{1}".repeat(260_000)));
        say(wire, "main", "x").await;
    }
    let (offset, found) = indexes(wire, json!({"from_end": true})).await;
    assert_eq!(found.last(), Some(&9), "the last is there");
    assert_eq!((found.first(), found.len() < 10), (Some(&offset), true), "{found:?}");
    // Page by page backwards, nothing is missing.
    let mut seen = found;
    while seen[0] > 0 {
        let left_out = 10 - seen[0];
        let (_, mut page) = indexes(wire, json!({"from_end": true, "offset": left_out})).await;
        page.append(&mut seen);
        seen = page;
    }
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_server_says_what_it_is_and_does() {
    let server = Setup::new().config(json!({"permissions": {"approvals": "auto"}})).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let gate = Gate::new();
    server.model().push(Reply::text("done").held_by(&gate));
    let look = async {
        server.model().wait_for_requests(1).await;
        let mut info = wire.ok("server_info", json!({})).await;
        let started = info["started_at"].take();
        started.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(info["pid"].as_u64().unwrap() > 1);
        info["pid"].take();
        let world = &server.world;
        let expected = json!({
            "name": "nexus3", "version": env!("CARGO_PKG_VERSION"), "pid": null, "started_at": null,
            "home": world.home(), "cwd": world.work().canonicalize().unwrap(),
            "url": format!("http://{}", server.address), "socket": server.socket,
            "approvals": "auto", "agents": 1, "turns": 1, "turns_running": 1,
            "watches": 0, "watchers": [],
        });
        assert_eq!(info, expected);
        gate.release();
    };
    tokio::join!(say(&wire, "a", "x"), look);
    let refused = as_agent(&server, "a", "server_info", json!({})).await.unwrap_err();
    assert_eq!(refused.0, -32003);
}
