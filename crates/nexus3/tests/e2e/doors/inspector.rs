//! The door in the hands of MCP's Inspector, the tool that people look at servers with: its command line, in both eras.
//! `make mcp-servers` installs it; where it is not, this is passed over, unless `NEXUS3_MCP_SERVERS=required`.

use std::process::Stdio;

use nexus_testkit::Reply;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Server, within};
use crate::speakers::installed;

/// As the Inspector calls them.
const ERAS: [&str; 2] = ["legacy", "modern"];

#[tokio::test]
async fn the_inspector_talks_to_agents_on_standard_input() {
    let server = Server::start().await;
    let home = format!("NEXUS3_HOME={}", server.world.home().display());
    talks(&server, &["-e", &home, env!("CARGO_BIN_EXE_nexus3"), "mcp", "serve"]).await;
}

#[tokio::test]
async fn the_inspector_talks_to_agents_over_http() {
    let server = Server::start().await;
    let made = server.wire().ok("create_key", json!({"name": "k", "doors": ["mcp"]})).await;
    let header = format!("Authorization: Bearer {}", made["key"].as_str().unwrap());
    let url = format!("{}/mcp", server.url);
    talks(&server, &["--header", &header, "--transport", "http", "--server-url", &url]).await;
}

/// Lists, calls and reads, each time as a host of its own.
async fn talks(server: &Server, way: &[&str]) {
    if installed().is_none() {
        return;
    }
    for (number, era) in ERAS.into_iter().enumerate() {
        let ask = async |method: &[&str]| inspect(server, era, method, way).await;
        // Schemas that some host could not take are an error of this one.
        let listed = ask(&["tools/list", "--strict"]).await;
        assert_eq!(listed["tools"].as_array().unwrap().len(), 7, "{listed}");

        server.model().push(Reply::text("Hello!"));
        let call = ["tools/call", "--tool-name", "nexus_send", "--tool-args-json"];
        let sent = ask(&[&call[..], &[r#"{"content": "Hello?"}"#]].concat()).await;
        assert_eq!(sent["structuredContent"]["content"], "Hello!", "{era}: {sent}");
        // Only the later era says what kind of result it is.
        assert_eq!(sent.get("resultType").is_some(), era == "modern", "{sent}");
        let agent = sent["structuredContent"]["agent_id"].as_str().unwrap();

        let agents = ask(&["tools/call", "--tool-name", "nexus_list"]).await;
        let agents = agents["structuredContent"]["agents"].as_array().unwrap().clone();
        assert!(agents.iter().any(|it| it["agent_id"] == agent), "{agents:?}");

        let uri = format!("nexus3://agent/{agent}/messages");
        let resources = ask(&["resources/list"]).await["resources"].as_array().unwrap().clone();
        assert!(resources.iter().any(|it| it["uri"] == *uri), "{resources:?}");
        let read = ask(&["resources/read", "--uri", &uri]).await;
        let read: Value =
            serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(read["messages"].as_array().unwrap().len(), 2 * (number + 1), "{read}");
    }
}

/// The result of one method.
async fn inspect(server: &Server, era: &str, method: &[&str], way: &[&str]) -> Value {
    let installed = installed().unwrap();
    let mut command = Command::new(installed.join("python/bin/node"));
    command.arg(installed.join(PROGRAM)).args(["--cli", "--format", "json"]);
    command.args(["--protocol-era", era, "--method"]).args(method).args(way);
    command.stdin(Stdio::null()).kill_on_drop(true).current_dir(server.world.work());
    command.env("HOME", server.world.path("."));
    let output = within("the inspector", command.output()).await.unwrap();
    assert!(output.status.success(), "{era} {method:?}: {output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    said["result"].clone()
}

const PROGRAM: &str =
    "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
