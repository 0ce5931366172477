//! Servers that one agent is connected to, beside those of the configuration (`mcp_connect` with `config`).

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::apart::{is_gone, watcher};
use super::{entry, server::server, status, tool, with};
use crate::harness::wire::request;
use crate::harness::{Setup, Wire, eventually};
use crate::support::{as_agent, say};

over_every_wire! {
    an_agent_is_connected_to_a_server_of_its_own: Setup::new(),
    entries_that_cannot_be_are_refused_with_the_reason: with(""),
    a_child_has_what_it_was_handed_by_name: Setup::new(),
    two_connects_of_one_name_are_one_or_refused: Setup::new(),
}

/// The entry of a server named `s` that behaves so.
fn config(behaviour: &str, keys: Value) -> Value {
    let mut entry = entry(behaviour, keys);
    entry["name"] = json!("s");
    entry
}

fn connect(agent: &str, config: Value) -> Value {
    json!({"agent_id": agent, "config": config})
}

async fn make(wire: &Wire, agent: &str) {
    wire.ok("create_agent", json!({"agent_id": agent, "mcp": {"s": ["*"]}})).await;
}

async fn an_agent_is_connected_to_a_server_of_its_own(wire: &Wire) {
    for agent in ["a", "b"] {
        make(wire, agent).await;
    }
    let connected = wire.ok("mcp_connect", connect("a", config("modern", json!({})))).await;
    assert_eq!((&connected["connected"], &connected["server"]), (&json!(true), &json!("s")));
    assert_eq!(connected["protocol_version"], "2026-07-28");
    assert_eq!(connected["tools"].as_array().unwrap().len(), 18);
    assert_eq!(tool(wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    let listed = wire.ok("mcp_list_servers", json!({"agent_id": "a"})).await;
    let own = json!({"name": "s", "source": "agent", "transport": "stdio", "state": "ready",
        "shared": false, "visible": true, "tool_count": 18});
    assert_eq!(listed, json!({"servers": [own]}));
    let tools = wire.ok("list_tools", json!({"agent_id": "a"})).await.to_string();
    assert!(tools.contains("mcp_s_echo"), "{tools}");
    let explained = json!({"agent_id": "a", "tool": "mcp_s_echo", "arguments": {"text": "x"}});
    assert_eq!(wire.ok("explain_permission", explained).await["allowed"], true);

    // Another agent has nothing of it, though it may use servers of that name; and one of its own beside it.
    assert_eq!(wire.ok("mcp_list_servers", json!({"agent_id": "b"})).await["servers"], json!([]));
    let none = tool(wire, "b", "echo", json!({"text": "x"})).await;
    assert!(none.contains("no tool named mcp_s_echo"), "{none}");
    wire.ok("mcp_connect", connect("b", config("", json!({"tools": {"allow": ["echo"]}})))).await;
    assert_eq!(tool(wire, "b", "echo", json!({"text": "y"})).await, "echo: y");
    assert!(tool(wire, "b", "env", json!({})).await.contains("no tool named mcp_s_env"));
    assert_ne!(watcher(wire, "a").await, watcher(wire, "b").await);

    let pid = watcher(wire, "a").await;
    let gone = wire.ok("mcp_disconnect", json!({"agent_id": "a", "server": "s"})).await;
    assert_eq!(gone, json!({"disconnected": true, "server": "s"}));
    is_gone(pid).await;
    assert_eq!(wire.ok("mcp_list_servers", json!({"agent_id": "a"})).await["servers"], json!([]));
    let again = wire.ok("mcp_disconnect", json!({"agent_id": "a", "server": "s"})).await;
    assert_eq!(again["disconnected"], false);
    let pid = watcher(wire, "b").await;
    wire.ok("destroy_agent", json!({"agent_id": "b"})).await;
    is_gone(pid).await;
}

async fn entries_that_cannot_be_are_refused_with_the_reason(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "named", "mcp": {"other": ["*"]}})).await;
    let named = |name: &str, keys: Value| {
        let mut config = config("", keys);
        config["name"] = json!(name);
        config
    };
    let long = "x".repeat(70_000);
    for (config, path, why) in [
        (json!({"command": "x"}), "/config", "name is missing"),
        (json!({"name": 5, "command": "x"}), "/config", "name is missing"),
        (json!({"name": "___", "command": "x"}), "/config", "cannot be the name of a server"),
        (json!({"name": "x"}), "/config", "command: is missing"),
        (json!({"name": "x", "command": 5}), "/config", "command: expected a text"),
        (json!({"name": "x", "command": "x", "args": [long]}), "/config", "more than 65536 bytes"),
        (json!({"name": "x", "url": "ftp://x"}), "/config", "url: must begin with https://"),
        (json!({"name": "x", "type": "sse", "url": "http://x"}), "/config", "2024 (sse)"),
        (
            named("x", json!({"env": {"K": {"hush": "hush"}}})),
            "/config",
            "env.K: must be an object of texts",
        ),
        (named("x", json!({"env": "hush"})), "/config", "env: must be an object of texts"),
        (
            json!({"name": "x", "url": "https://x", "headers": {"K": 5123}}),
            "/config",
            "headers.K: must be",
        ),
        (named("x", json!({"share": true})), "/config", "share: "),
        (named("x", json!({"approve": "never"})), "/config", "approve: never counts only"),
        (named("x", json!({"approve": {"e*": "never"}})), "/config", "approve: never counts only"),
        (named("x", json!({"wrong": 1})), "/config", "unknown field"),
        (named("S", json!({})), "/config/name", "name of a server of the configuration"),
    ] {
        let refused = wire.refused("mcp_connect", connect("t", config.clone())).await;
        let said = format!("{} {}", refused.message, refused.data);
        assert_eq!((refused.code, refused.data["path"].as_str()), (-32602, Some(path)), "{config}");
        assert!(said.contains(why), "{config}: {said}");
        assert!(!said.contains("hush") && !said.contains("5123"), "{config}: {said}");
    }
    for (params, path) in [
        (json!({"agent_id": "t"}), "/server"),
        (json!({"agent_id": "t", "server": "s", "config": config("", json!({}))}), "/server"),
        (json!({"agent_id": "t", "server": "s", "source": "client"}), "/source"),
        (json!({"agent_id": "t", "config": named("x", json!({})), "shared": true}), "/shared"),
    ] {
        let refused = wire.refused("mcp_connect", params.clone()).await;
        assert_eq!((refused.code, refused.data["path"].as_str()), (-32602, Some(path)), "{params}");
    }
    // What cannot be started was never there.
    let missing = json!({"name": "x", "command": "/no/such/program"});
    let refused = wire.refused("mcp_connect", connect("t", missing)).await;
    assert_eq!(refused.code, -32000);
    assert!(refused.data.to_string().contains("there is no program"), "{}", refused.data);
    let broken = named("x", json!({"env": {"TEST_MCP_SERVER": "broken"}}));
    let refused = wire.refused("mcp_connect", connect("t", broken)).await;
    let said = refused.data.to_string();
    assert!(said.contains("exit 7") && said.contains("cannot find module"), "{said}");
    let listed = wire.ok("mcp_list_servers", json!({"agent_id": "t"})).await;
    assert_eq!(listed["servers"].as_array().unwrap().len(), 1, "{listed}");
    // Its permissions name which servers it may use.
    let refused = wire.refused("mcp_connect", connect("named", named("x", json!({})))).await;
    assert_eq!(refused.code, -32003);
    assert!(format!("{} {}", refused.message, refused.data).contains("(mcp)"), "{}", refused.data);
    let other = wire.ok("mcp_connect", connect("named", named("Other", json!({})))).await;
    assert_eq!((&other["server"], &other["connected"]), (&json!("other"), &json!(true)));
}

/// Only the administrator says which programs run; not the agent, its ancestors or a key.
#[tokio::test]
async fn nobody_but_the_administrator_gives_an_entry() {
    let server = Setup::new().start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "p", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "c", "parent_agent_id": "p", "mcp": {"s": ["*"]}}))
        .await;
    let marker = server.world.path("started");
    let entry = json!({"name": "s", "command": "/bin/touch", "args": [marker]});
    for (caller, agent) in [("p", "p"), ("p", "c"), ("c", "c"), ("c", "p")] {
        let (code, why) = as_agent(&server, caller, "mcp_connect", connect(agent, entry.clone()))
            .await
            .unwrap_err();
        assert_eq!(code, -32003, "{caller} {agent}: {why}");
    }
    assert!(!marker.exists());
    assert_eq!(wire.ok("mcp_list_servers", json!({"agent_id": "c"})).await["servers"], json!([]));
}

async fn a_child_has_what_it_was_handed_by_name(wire: &Wire) {
    wire.ok(
        "create_agent",
        json!({"agent_id": "p", "preset": "trusted", "mcp": {"s": ["echo", "env"]}}),
    )
    .await;
    let child = |name: &str| json!({"agent_id": name, "parent_agent_id": "p"});
    let mut named = child("c");
    named["mcp"] = json!({"s": ["echo"]});
    wire.ok("create_agent", named).await;
    wire.ok("create_agent", child("bare")).await;
    wire.ok("mcp_connect", connect("p", config("", json!({})))).await;
    assert_eq!(tool(wire, "c", "echo", json!({"text": "x"})).await, "echo: x");
    assert!(tool(wire, "c", "env", json!({})).await.starts_with("Refused: "));
    assert_ne!(watcher(wire, "c").await, watcher(wire, "p").await, "each has its own process");
    let none = tool(wire, "bare", "echo", json!({"text": "x"})).await;
    assert!(none.contains("no tool named"), "{none}");
    // It lets go of its process, and of nothing that is its parent's.
    wire.ok("mcp_disconnect", json!({"agent_id": "c", "server": "s"})).await;
    assert_eq!(tool(wire, "c", "echo", json!({"text": "y"})).await, "echo: y");
    let pid = watcher(wire, "c").await;
    wire.ok("mcp_disconnect", json!({"agent_id": "p", "server": "s"})).await;
    is_gone(pid).await;
    let none = tool(wire, "c", "echo", json!({"text": "x"})).await;
    assert!(none.contains("no tool named"), "{none}");
    // A copy is another agent.
    wire.ok("mcp_connect", connect("p", config("", json!({})))).await;
    wire.ok("clone_session", json!({"src_session": "p", "dest_session": "copy"})).await;
    wire.ok("load_session", json!({"session_name": "copy"})).await;
    let listed = wire.ok("mcp_list_servers", json!({"agent_id": "copy"})).await;
    assert_eq!(listed["servers"], json!([]));
}

async fn two_connects_of_one_name_are_one_or_refused(wire: &Wire) {
    make(wire, "a").await;
    let same = || wire.ok("mcp_connect", connect("a", config("", json!({}))));
    let (one, two) = tokio::join!(same(), same());
    assert_eq!((&one["connected"], &two["connected"]), (&json!(true), &json!(true)));
    let stands = status(wire, "a").await;
    assert_eq!((&stands["restarts"], &stands["state"]), (&json!(0), &json!("ready")));
    let other = config("", json!({"timeout": 5}));
    let refused = wire.refused("mcp_connect", connect("a", other.clone())).await;
    assert_eq!((refused.code, refused.data["path"].as_str()), (-32602, Some("/config/name")));
    assert_eq!(tool(wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    wire.ok("mcp_disconnect", json!({"agent_id": "a", "server": "s"})).await;
    // At once, and not the same: one of them is.
    let one = wire.call("mcp_connect", connect("a", config("", json!({}))));
    let two = wire.call("mcp_connect", connect("a", other));
    let (one, two) = tokio::join!(one, two);
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    assert_eq!(tool(wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
}

#[tokio::test]
async fn what_is_under_way_is_waited_for_and_ended_whoever_hangs_up() {
    let server = Setup::new().start().await;
    let wire = server.wire();
    make(&wire, "a").await;
    let mut late = connect("a", config("late", json!({})));
    // Whoever asked has gone before it is ready.
    let mut socket = server.unix().await;
    let asked = request(1, "mcp_connect", late.clone());
    socket.send(asked.as_bytes()).await;
    let starting = async || {
        let listed = wire.ok("mcp_list_servers", json!({"agent_id": "a"})).await;
        listed["servers"][0]["state"] == "starting"
    };
    eventually("it to start", starting).await;
    drop(socket);
    late["wait_ms"] = json!(0);
    let waits = wire.ok("mcp_connect", late).await;
    assert_eq!((&waits["connected"], &waits["state"]), (&json!(false), &json!("starting")));
    let gone = wire.ok("mcp_disconnect", json!({"agent_id": "a", "server": "s"})).await;
    assert_eq!(gone["disconnected"], true);
    eventually("its directory to go", async || super::apart::directories(&server).is_empty()).await;
    wire.ok("mcp_connect", connect("a", config("", json!({})))).await;
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
}

/// Everything beneath a directory that has these bytes in it.
fn holding(dir: &Path, needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holding(&path, needle));
        } else if fs::read(&path)
            .is_ok_and(|it| it.windows(needle.len()).any(|at| at == needle.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

const HUSH: &str = "hush-6ae1f04c";

#[tokio::test]
async fn it_comes_back_after_a_kill_without_the_values_it_was_given() {
    let server = Setup::new().env("BEHAVIOUR", "modern").start().await;
    let wire = server.wire();
    for agent in ["kept", "lost"] {
        make(&wire, agent).await;
    }
    let by_name = json!({"env": {"TEST_MCP_SERVER": "${BEHAVIOUR}"}});
    wire.ok("mcp_connect", connect("kept", config("", by_name))).await;
    let given = json!({"env": {"TEST_MCP_SERVER": "", "KEY": HUSH}});
    let connected = wire.ok("mcp_connect", connect("lost", config("", given.clone()))).await;
    let env = tool(&wire, "lost", "env", json!({})).await;
    assert!(env.contains("KEY"), "{env}");
    let shown = wire.ok("mcp_status", json!({"agent_id": "lost"})).await;
    for said in [&connected, &shown] {
        assert!(!said.to_string().contains(HUSH), "{said}");
    }
    let pids = [watcher(&wire, "kept").await, watcher(&wire, "lost").await];
    assert_eq!(holding(&server.world.home(), HUSH), Vec::<String>::new());
    assert!(!server.log().text().contains(HUSH));

    let server = server.restart().await;
    let wire = server.wire();
    for pid in pids {
        is_gone(pid).await;
    }
    let listed = wire.ok("mcp_list_servers", json!({"agent_id": "kept"})).await;
    let listed = &listed["servers"][0];
    assert_eq!((&listed["state"], &listed["tool_count"]), (&json!("configured"), &json!(18)));
    assert_eq!(tool(&wire, "kept", "echo", json!({"text": "x"})).await, "echo: x");
    assert_eq!(status(&wire, "kept").await["protocol_version"], "2026-07-28");

    let stands = status(&wire, "lost").await;
    let why = stands["last_error"].as_str().unwrap();
    assert_eq!(stands["state"], "failed");
    assert!(why.contains("env.KEY") && why.contains("not kept"), "{why}");
    let refused = wire.refused("mcp_connect", json!({"agent_id": "lost", "server": "s"})).await;
    assert!(
        refused.code == -32000 && refused.data.to_string().contains("env.KEY"),
        "{}",
        refused.data
    );
    // The turn goes on without it.
    wire.model().push(nexus_testkit::Reply::text("fine"));
    assert_eq!(say(&wire, "lost", "hi").await, "fine");
    wire.ok("mcp_disconnect", json!({"agent_id": "lost", "server": "s"})).await;
    wire.ok("mcp_connect", connect("lost", config("", given))).await;
    assert_eq!(tool(&wire, "lost", "echo", json!({"text": "y"})).await, "echo: y");
}

/// An agent that has what is nowhere else does not leave memory.
#[tokio::test]
async fn values_that_are_not_kept_outlive_idleness() {
    let server = Setup::new().server(json!({"agent_idle_timeout": 0.1})).start().await;
    let wire = server.wire();
    for agent in ["a", "other"] {
        make(&wire, agent).await;
    }
    let given = json!({"env": {"TEST_MCP_SERVER": "modern", "KEY": HUSH}});
    wire.ok("mcp_connect", connect("a", config("", given))).await;
    let is_stored =
        async |agent: &str| crate::support::entry(&wire, agent).await["status"] == "stored";
    eventually("the other to leave", async || is_stored("other").await).await;
    // It would have left with it.
    make(&wire, "third").await;
    eventually("the third to leave", async || is_stored("third").await).await;
    assert!(!is_stored("a").await);
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
}

#[tokio::test]
async fn an_agent_has_as_many_servers_as_a_configuration() {
    let servers: serde_json::Map<String, Value> =
        (0..63).map(|number| (format!("c{number}"), json!({"command": "x"}))).collect();
    let server_ = Setup::new().config(json!({"mcp_servers": servers})).start().await;
    let wire = server_.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    wire.ok("mcp_connect", connect("t", config("", json!({})))).await;
    let mut one_more = server("");
    one_more["name"] = json!("x");
    let refused = wire.refused("mcp_connect", connect("t", one_more)).await;
    assert!(
        refused.code == -32602
            && format!("{}{}", refused.message, refused.data).contains("at most 64 servers")
    );
}

/// Approvals and pins hold as for any server.
#[tokio::test]
async fn its_tools_are_asked_about_and_pinned() {
    let server = Setup::new().config(json!({"permissions": {"approvals": "ask"}})).start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    wire.ok("mcp_connect", connect("t", config("", json!({})))).await;
    let (asked, told) =
        super::permissions::answered(&server, "echo", json!({"text": "x"}), "allow_session").await;
    assert_eq!((asked, told.as_str()), (true, "echo: x"));
    let (asked, _) =
        super::permissions::answered(&server, "echo", json!({"text": "x"}), "deny").await;
    assert!(!asked);
    super::permissions::answered(&server, "grow", json!({}), "allow_once").await;
    let quarantined = async || {
        let stands = status(&wire, "t").await;
        stands["tools"].as_array().unwrap().iter().any(|it| it["state"] == "quarantined")
    };
    eventually("the change to be seen", quarantined).await;
    let refused = tool(&wire, "t", "echo", json!({"text": "x"})).await;
    assert!(refused.starts_with("Refused: "), "{refused}");
    // It holds over a connection that is made anew.
    wire.ok("mcp_disconnect", json!({"agent_id": "t", "server": "s"})).await;
    let review = json!({"agent_id": "t", "server": "s", "accept": "all"});
    assert_eq!(wire.refused("mcp_review", review).await.code, -32602, "it is gone");
}
