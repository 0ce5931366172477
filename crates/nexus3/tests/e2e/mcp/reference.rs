//! The reference servers as an agent has them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::{tool, with_entry};
use crate::harness::Wire;
use crate::speakers::installed;
use crate::support::waiting;

/// The entry of an installed server, in a sandbox without a network.
fn reference(program: &str, args: Value, sandbox: Value) -> Option<Value> {
    let installed = installed()?;
    let of_node = installed.join("node_modules/.bin").join(program);
    let of_python = installed.join("python/bin");
    let file = if of_node.exists() { of_node } else { of_python.join(program) };
    let mut sandbox = sandbox;
    sandbox["network"] = json!(false);
    let path = format!("{}:/usr/bin:/bin", of_python.display());
    Some(json!({"command": file, "args": args, "env": {"PATH": path}, "sandbox": sandbox}))
}

/// An agent that may use it. Node and Python take their time on a busy machine, and a turn does not wait so long.
async fn user(wire: &Wire, agent: &str) {
    super::user(wire, agent).await;
    wire.ok("mcp_connect", json!({"agent_id": agent, "server": "s"})).await;
}

#[tokio::test]
async fn an_agent_reads_and_writes_with_the_filesystem_server_what_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir(root.join("notes")).unwrap();
    fs::write(root.join("notes/todo.txt"), "buy milk\n").unwrap();
    fs::write(root.join("secret.txt"), "TOP-SECRET").unwrap();
    // It is told that it may everywhere: the kernel says where.
    let sandbox = json!({"read": [root.join("notes")]});
    let Some(entry) = reference("mcp-server-filesystem", json!([root]), sandbox) else { return };
    let server = with_entry(entry).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let at = |name: &str| json!({"path": root.join(name)});
    assert_eq!(tool(&wire, "a", "read_text_file", at("notes/todo.txt")).await, "buy milk\n");
    let secret = tool(&wire, "a", "read_text_file", at("secret.txt")).await;
    assert!(secret.starts_with("Failed: ") && !secret.contains("TOP-SECRET"), "{secret}");
    let write = json!({"path": root.join("notes/new.txt"), "content": "x"});
    let written = tool(&wire, "a", "write_file", write).await;
    assert!(written.starts_with("Failed: "), "{written}");
    assert!(!root.join("notes/new.txt").exists());
}

#[tokio::test]
async fn an_agent_uses_the_server_that_has_everything() {
    let sandbox = json!({"read": []});
    let Some(entry) = reference("mcp-server-everything", json!([]), sandbox) else { return };
    let config = json!({"permissions": {"approvals": "ask"}});
    let server = with_entry(entry).config(config).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(tool(&wire, "a", "echo", json!({"message": "hi"})).await, "Echo: hi");
    let image = tool(&wire, "a", "get-tiny-image", json!({})).await;
    assert!(image.contains("\n[image, image/png]\n"), "{image}");
    let asked = async {
        let id = waiting(&wire).await["approval_id"].clone();
        let content = json!({"name": "Ada", "email": "ada@example.com"});
        let answer = json!({"approval_id": id, "decision": "accept", "content": content});
        wire.ok("respond_approval", answer).await;
    };
    let (told, ()) =
        tokio::join!(tool(&wire, "a", "trigger-elicitation-request", json!({})), asked);
    assert!(told.contains("- Name: Ada\n") && told.contains("Favorite Integer: 42"), "{told}");
    let long = json!({"duration": 1, "steps": 4});
    let long = tool(&wire, "a", "trigger-long-running-operation", long).await;
    assert!(long.starts_with("Long running operation completed."), "{long}");
    let env = tool(&wire, "a", "get-env", json!({})).await;
    let env: Value = serde_json::from_str(&env).unwrap();
    let home = server.world.home().canonicalize().unwrap().join("mcp/state/s");
    assert_eq!((&env["HOME"], env.get("NEXUS3_HOME")), (&json!(home), None));
}

/// What it is told lies in a directory of its own, and is there when it is started again.
#[tokio::test]
async fn an_agent_remembers_with_the_memory_server() {
    let sandbox = json!({"read": []});
    let Some(mut entry) = reference("mcp-server-memory", json!([]), sandbox) else { return };
    entry["env"]["MEMORY_FILE_PATH"] = json!("${MEMORY}");
    let setup = with_entry(entry);
    let world = setup.world().await;
    let file = world.home().canonicalize().unwrap().join("mcp/state/s/memory.json");
    let server = setup.env("MEMORY", &file).start_in(&world).await;
    user(&server.wire(), "a").await;
    let milk =
        json!({"entities": [{"name": "milk", "entityType": "drink", "observations": ["is out"]}]});
    let made = tool(&server.wire(), "a", "create_entities", milk).await;
    assert!(made.contains("milk"), "{made}");
    let server = server.restart().await;
    let found = tool(&server.wire(), "a", "search_nodes", json!({"query": "milk"})).await;
    assert!(found.contains("is out"), "{found}");
}

#[tokio::test]
async fn an_agent_asks_the_time_server() {
    let sandbox = json!({"read": []});
    let Some(entry) = reference("mcp-server-time", json!([]), sandbox) else { return };
    let server = with_entry(entry).start().await;
    user(&server.wire(), "a").await;
    let at = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let told = tool(&server.wire(), "a", "convert_time", at).await;
    assert!(told.contains("T21:00:00+09:00"), "{told}");
}

/// One that has to be fetched first says nothing for a while, and is asked for both eras when it begins. Which of the two it
/// is then of is its own affair.
#[tokio::test]
async fn a_server_that_starts_slowly_is_understood() {
    let sandbox = json!({"read": []});
    let Some(mut entry) = reference("mcp-server-time", json!([]), sandbox) else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("slow");
    let text = fs::read_to_string(entry["command"].as_str().unwrap()).unwrap();
    let (interpreter, rest) = text.split_once('\n').unwrap();
    fs::write(&program, format!("{interpreter}\nimport time; time.sleep(4)\n{rest}")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    entry["command"] = json!(program);
    let server = with_entry(entry).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let told = tool(&wire, "a", "get_current_time", json!({"timezone": "UTC"})).await;
    assert!(told.contains("UTC"), "{told}");
}

/// It may look into the repository and, told to, does not write there.
#[tokio::test]
async fn an_agent_looks_into_a_repository_with_the_git_server() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let args = json!(["--repository", root]);
    let Some(entry) = reference("mcp-server-git", args, json!({"read": [root]})) else { return };
    let git =
        std::process::Command::new("git").args(["init", "-q", "-b", "main"]).arg(&root).status();
    assert!(git.unwrap().success());
    fs::write(root.join("new.txt"), "x").unwrap();
    let server = with_entry(entry).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let status = tool(&wire, "a", "git_status", json!({"repo_path": root})).await;
    assert!(status.contains("new.txt"), "{status}");
    let added = tool(&wire, "a", "git_add", json!({"repo_path": root, "files": ["new.txt"]})).await;
    assert!(added.starts_with("Failed: "), "{added}");
}
