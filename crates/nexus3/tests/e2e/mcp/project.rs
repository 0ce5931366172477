//! Servers that a project brings along: nothing of them runs before a person trusted them.

use std::fs;

use serde_json::{Value, json};

use super::{server, tool};
use crate::harness::{Server, Setup, World};

/// What `.mcp.json` of the working directory holds.
fn write(world: &World, entry: &Value) {
    let text = json!({"mcpServers": {"s": entry}}).to_string();
    fs::write(world.work().join(".mcp.json"), text).unwrap();
}

async fn state(server: &Server) -> Value {
    let list = server.wire().ok("mcp_list_servers", json!({"agent_id": "t"})).await;
    let entry = list["servers"][0].clone();
    assert_eq!(entry["source"], "project");
    entry["state"].clone()
}

#[tokio::test]
async fn nothing_of_a_project_starts_before_it_is_trusted() {
    let setup = Setup::new();
    let world = setup.world().await;
    let mut entry = server::server("");
    entry["env"]["TOKEN"] = json!("${NO_SUCH_VARIABLE:-hush}");
    write(&world, &entry);
    let server = setup.start_in(&world).await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    assert_eq!(state(&server).await, "untrusted");
    let refused = wire.refused("mcp_connect", json!({"agent_id": "t", "server": "s"})).await;
    assert!(
        refused.data["details"].as_str().unwrap().contains("nexus3 trust"),
        "{:?}",
        refused.data
    );
    let listed = server.cli(["mcp", "list"]).await.stdout;
    assert!(listed.contains("untrusted"), "{listed}");
    let tried = server.cli(["mcp", "test", "s"]).await;
    assert_eq!(tried.code, Some(1));
    assert!(!world.home().join("mcp/state/s/notes").exists(), "nothing was started");

    let trusted = server.cli(["trust", "."]).await;
    assert_eq!(trusted.code, Some(0), "{}", trusted.stderr);
    let shown = trusted.stdout;
    for part in ["MCP server s: ", "as_server", "variables: ", "TOKEN", "no network", "trusted: "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("hush"), "{shown}");
    let server = server.restart().await;
    assert_eq!(state(&server).await, "configured");
    server.wire().ok("create_agent", json!({"agent_id": "a", "mcp": {"s": ["*"]}})).await;
    assert_eq!(tool(&server.wire(), "a", "echo", json!({"text": "x"})).await, "echo: x");

    // What changes is a stranger's again.
    entry["args"].as_array_mut().unwrap().push(json!("--color=never"));
    write(&world, &entry);
    let server = server.restart().await;
    assert_eq!(state(&server).await, "untrusted");
}

#[tokio::test]
async fn a_stranger_neither_replaces_nor_breaks_what_the_user_has() {
    let setup = Setup::new().config(json!({"mcp_servers": {"s": server::server("")}}));
    let world = setup.world().await;
    let text = json!({"mcpServers": {
        "s": {"command": "/bin/false"},
        "web": {"type": "ws", "url": "https://example.com/mcp"},
    }});
    fs::write(world.work().join(".mcp.json"), text.to_string()).unwrap();
    let server = setup.start_in(&world).await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "a", "mcp": {"s": ["*"]}})).await;
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    let list = wire.ok("mcp_list_servers", json!({"agent_id": "a"})).await;
    let states: Vec<_> =
        list["servers"].as_array().unwrap().iter().map(|it| (&it["name"], &it["state"])).collect();
    assert_eq!(states, [(&json!("s"), &json!("ready")), (&json!("web"), &json!("untrusted"))]);
    server.cli(["trust", "."]).await;
    let server = server.restart().await;
    let list = server.wire().ok("mcp_list_servers", json!({"agent_id": "a"})).await;
    let web = &list["servers"][1];
    assert_eq!(web["state"], "failed");
    assert!(web["last_error"].as_str().unwrap().contains("is not spoken here"), "{web}");
}

#[tokio::test]
async fn servers_of_another_program_are_shown_and_taken_over() {
    let world = Setup::new().world().await;
    let mut entry = server::server("");
    entry["env"]["SECRET"] = json!("s3cr3t");
    let theirs =
        json!({"mcpServers": {"Their One": entry, "old": {"type": "sse", "url": "https://x"}}});
    fs::create_dir(world.path(".cursor")).unwrap();
    fs::write(world.path(".cursor/mcp.json"), theirs.to_string()).unwrap();
    let import = async |more: &[&str]| {
        let args = ["mcp", "import", "cursor"].iter().chain(more);
        let output = world.command(args).output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = import(&[]).await;
    assert!(
        code == Some(0)
            && said.contains("their-one: can be taken over")
            && !said.contains("s3cr3t"),
        "{said}"
    );
    assert!(!world.home().join("mcp.json").exists());
    let (code, said) = import(&["--write"]).await;
    assert!(
        code == Some(1) && said.contains("their-one: added") && said.contains("old: left out"),
        "{said}"
    );
    let test = ["mcp", "test", "their-one", "echo", r#"{"text": "hi"}"#];
    let tested = world.command(test).output().await.unwrap();
    assert!(String::from_utf8_lossy(&tested.stdout).contains("echo: hi"), "{tested:?}");
}
