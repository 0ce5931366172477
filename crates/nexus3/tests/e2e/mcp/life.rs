//! When servers start and end.

use std::fs;

use rustix::process::{Pid, test_kill_process};
use serde_json::json;

use super::faults::forked;
use super::{entry, status, tool, user, with, with_entry};
use crate::harness::{Server, Setup, eventually, process};

#[tokio::test]
async fn nothing_starts_before_it_is_needed_and_one_process_serves_all_agents() {
    let server = with("").start().await;
    let wire = server.wire();
    let notes = server.world.home().join("mcp/state/s/notes");
    for agent in ["a", "b", "c"] {
        user(&wire, agent).await;
    }
    assert!(!notes.exists(), "agents alone start nothing");
    for agent in ["a", "b", "c"] {
        assert_eq!(
            tool(&wire, agent, "echo", json!({"text": agent})).await,
            format!("echo: {agent}")
        );
    }
    let starts = fs::read_to_string(&notes).unwrap().matches("started").count();
    assert_eq!(starts, 1);
    // It ends with the last who used it.
    let gone = async |agent: &str| {
        wire.ok("mcp_disconnect", json!({"agent_id": agent, "server": "s"})).await;
        status(&wire, "a").await["state"].clone()
    };
    assert_eq!(gone("a").await, "ready");
    assert_eq!(gone("b").await, "ready");
    assert_eq!(gone("c").await, "idle");
}

#[tokio::test]
async fn one_that_is_eager_does_not_wait_until_it_is_needed() {
    let server = with_entry(entry("", json!({"eager": true}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    eventually("it to run", async || status(&wire, "a").await["state"] == "ready").await;
    assert_eq!(offered(&server).await, 18);
}

#[tokio::test]
async fn all_that_a_server_started_ends_with_it() {
    let server = with("").start().await;
    user(&server.wire(), "a").await;
    let pid = forked(&server).await;
    assert!(is_alive(pid));
    server.wire().ok("mcp_disconnect", json!({"agent_id": "a", "server": "s"})).await;
    assert!(!is_alive(pid), "when the answer came it was gone");

    let pid = forked(&server).await;
    let watcher = status(&server.wire(), "a").await["pid"].as_i64().unwrap() as i32;
    // kill -9 of nexus3.
    let server = server.restart().await;
    for pid in [pid, watcher] {
        eventually("the server's processes to end", async || !is_alive(pid)).await;
    }
    assert_eq!(status(&server.wire(), "a").await["state"], "configured");
}

#[tokio::test]
async fn a_server_that_nobody_uses_is_ended_and_its_tools_stay_known() {
    let server = with_entry(entry("", json!({"idle_timeout": 0.2}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    eventually("it to be idle", async || status(&wire, "a").await["state"] == "idle").await;
    assert_eq!(status(&wire, "a").await.get("last_error"), None);
    assert_eq!(offered(&server).await, 18);
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "y"})).await, "echo: y");
    // Kept on disk, so that nothing has to be started to know them.
    let server = server.restart().await;
    assert_eq!(status(&server.wire(), "a").await["state"], "configured");
    assert_eq!(offered(&server).await, 18);
}

async fn offered(server: &Server) -> usize {
    let tools = server.wire().ok("list_tools", json!({"agent_id": "a"})).await;
    let tools = tools["tools"].as_array().unwrap();
    tools.iter().filter(|it| it["kind"] == "mcp" && it["offered"] == true).count()
}

#[tokio::test]
async fn both_eras_are_spoken() {
    for (behaviour, version) in [
        ("modern", "2026-07-28"),
        ("", "2025-11-25"),
        ("mute", "2025-11-25"),
        ("dies-at-discover", "2025-11-25"),
    ] {
        let server = with(behaviour).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        let connected = wire.ok("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
        assert_eq!(connected["protocol_version"], version, "{behaviour}");
        assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x", "{behaviour}");
    }
}

#[tokio::test]
async fn a_list_that_changed_is_read_again() {
    let server = with_entry(entry("", json!({"pin": "off"}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(tool(&wire, "a", "grow", json!({})).await, "grown");
    eventually("the new tool", async || offered(&server).await == 19).await;
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    assert_eq!(status(&wire, "a").await["changed"], json!([]));
}

#[tokio::test]
async fn tools_are_chosen_by_pattern_and_odd_names_told_apart() {
    let tools = json!({"tools": {"allow": ["e*", "odd*"], "deny": ["env"]}});
    let server = with_entry(entry("", tools)).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let connected = wire.ok("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
    assert_eq!(connected["tools"], json!(["mcp_s_echo", "mcp_s_odd_name_55ccf295"]));
    assert!(tool(&wire, "a", "env", json!({})).await.contains("no tool named mcp_s_env"));
}

#[tokio::test]
async fn the_command_line_lists_tests_and_shows_servers() {
    let server =
        with_entry(entry("", json!({"env": {"TEST_MCP_SERVER": "", "KEY": "hush"}}))).start().await;
    let listed = server.cli(["mcp", "list"]).await;
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert!(
        listed.stdout.starts_with("s ") && listed.stdout.contains(" configured "),
        "{}",
        listed.stdout
    );
    let listed = server.cli(["mcp", "list", "--json"]).await.stdout;
    assert!(listed.contains("\"KEY\"") && !listed.contains("hush"), "{listed}");
    let tested = server.cli(["mcp", "test", "s", "echo", "{\"text\": \"hi\"}"]).await;
    assert_eq!(tested.code, Some(0), "{}", tested.stderr);
    assert!(
        tested.stdout.contains("MCP 2025-11-25") && tested.stdout.ends_with("answer:\necho: hi\n"),
        "{}",
        tested.stdout
    );
    let failed = server.cli(["mcp", "test", "s", "fail"]).await;
    assert_eq!(
        (failed.code, failed.stderr.contains("no such thing")),
        (Some(1), true),
        "{}",
        failed.stderr
    );
    let unknown = server.cli(["mcp", "test", "nope"]).await;
    assert_eq!((unknown.code, unknown.stderr.contains("no MCP server nope")), (Some(1), true));
    let port = server.address.port().to_string();
    let shown = server.cli(["mcp", "status", "--port", &port]).await;
    assert!(shown.stdout.starts_with("s: configured\n"), "{} {}", shown.stdout, shown.stderr);
}

#[tokio::test]
async fn a_server_is_added_tried_and_removed_from_the_command_line() {
    let setup = Setup::new();
    let world = setup.world().await;
    let own = super::server::server("");
    let program = own["command"].as_str().unwrap().to_owned();
    let args = own["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned());
    let mut line: Vec<String> =
        ["mcp", "add", "My_S", "--env", "TEST_MCP_SERVER=plain", "--no-network", "--"]
            .map(String::from)
            .to_vec();
    line.push(program);
    line.extend(args);
    let added = process::run(world.command(line.clone())).await;
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    assert!(
        added.stdout.starts_with("my-s: ready") && added.stdout.contains("no network"),
        "{}",
        added.stdout
    );
    assert!(world.home().join("mcp/lists/my-s.json").exists(), "its tools are pinned");
    let again = process::run(world.command(line)).await;
    assert!(
        again.code == Some(1) && again.stderr.contains("there is a server my-s"),
        "{}",
        again.stderr
    );
    let listed = process::run(world.command(["mcp", "list"])).await.stdout;
    assert!(listed.starts_with("my-s "), "{listed}");
    let removed = process::run(world.command(["mcp", "remove", "my-s"])).await;
    assert_eq!((removed.code, removed.stdout.as_str()), (Some(0), "removed: my-s\n"));
    let removed = process::run(world.command(["mcp", "remove", "my-s"])).await;
    assert_eq!(removed.code, Some(1));
    let broken = ["mcp", "add", "x", "--", "/no/such/program"];
    let broken = process::run(world.command(broken)).await;
    assert!(
        broken.code == Some(1) && broken.stderr.contains("there is no program"),
        "{}",
        broken.stderr
    );
}

fn is_alive(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}
