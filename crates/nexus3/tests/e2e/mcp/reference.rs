//! The reference servers as an agent has them. `make mcp-servers` installs them; where they are not, this is passed over,
//! unless `NEXUS3_MCP_SERVERS=required`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{tool, user, with_entry};

/// The entry of an installed server, in a sandbox without a network.
fn reference(program: &str, args: Value, sandbox: Value) -> Option<Value> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").canonicalize().unwrap();
    let file = target.join("mcp-servers/node_modules/.bin").join(program);
    let path = std::env::var("PATH").unwrap_or_default();
    let places = path.split(':').map(PathBuf::from);
    let places = places.chain([target.join("clients/node/runtime/bin")]);
    let node = places.map(|dir| dir.join("node")).find(|node| node.exists());
    let (true, Some(node)) = (file.exists(), node) else {
        let required = std::env::var_os("NEXUS3_MCP_SERVERS").is_some_and(|it| it == "required");
        assert!(!required, "the reference servers are not installed: make mcp-servers");
        eprintln!("the reference servers are not installed: passed over");
        return None;
    };
    let installed = node.canonicalize().unwrap().parent().and_then(Path::parent).map(PathBuf::from);
    let mut sandbox = sandbox;
    sandbox["network"] = json!(false);
    if let Some(tree) = installed.filter(|tree| !tree.starts_with("/usr")) {
        sandbox["read"].as_array_mut().unwrap().push(json!(tree));
    }
    let path = format!("{}:/usr/bin:/bin", node.parent().unwrap().display());
    Some(json!({"command": file, "args": args, "env": {"PATH": path}, "sandbox": sandbox}))
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
    let server = with_entry(entry).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(tool(&wire, "a", "echo", json!({"message": "hi"})).await, "Echo: hi");
    let image = tool(&wire, "a", "get-tiny-image", json!({})).await;
    assert!(image.contains("[image, image/png, about "), "{image}");
    let long = json!({"duration": 1, "steps": 4});
    let long = tool(&wire, "a", "trigger-long-running-operation", long).await;
    assert!(long.starts_with("Long running operation completed."), "{long}");
    let env = tool(&wire, "a", "get-env", json!({})).await;
    let env: Value = serde_json::from_str(&env).unwrap();
    let home = server.world.home().canonicalize().unwrap().join("mcp/state/s");
    assert_eq!((&env["HOME"], env.get("NEXUS3_HOME")), (&json!(home), None));
}
