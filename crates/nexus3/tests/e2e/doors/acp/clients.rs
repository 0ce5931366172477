//! The door as others see it: the SDKs of Node and Python, and `acpx`. `make acp-clients` installs them; where they are not,
//! this is passed over, unless `NEXUS3_ACP_CLIENTS=required`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use nexus_testkit::Reply;
use serde_json::{Value, json};
use tokio::process::Command;

use super::editor::Desk;
use crate::harness::within;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nexus3");

/// Where they are installed.
fn installed() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/acp-clients");
    match target.join("installed").exists() {
        true => Some(target.canonicalize().unwrap()),
        false => {
            let required =
                std::env::var_os("NEXUS3_ACP_CLIENTS").is_some_and(|it| it == "required");
            assert!(!required, "the clients of ACP are not installed: make acp-clients");
            eprintln!("the clients of ACP are not installed: passed over");
            None
        }
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/acp-clients").join(name)
}

/// Runs a client at a desk and returns what it printed.
async fn printed(desk: &Desk, mut command: Command, code: i32) -> String {
    command.stdin(Stdio::null()).kill_on_drop(true).current_dir(desk.world.work());
    command.env("NEXUS3_HOME", desk.world.home()).env("HOME", desk.world.path("."));
    let output = within("a client", command.output()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn place(desk: &Desk) -> &'static [&'static str] {
    if desk.server.is_some() { &["acp"] } else { &["acp", "--embedded"] }
}

/// The model writes where that needs leave.
fn write(desk: &Desk) {
    let call = json!({"path": desk.world.path("elsewhere.txt"), "content": "x"});
    desk.world.model.push(Reply::text("So. ").then_tool_call("write_file", call));
    desk.world.model.push(Reply::text("Done."));
}

#[tokio::test]
async fn the_sdks_of_python_and_node_talk_to_agents() {
    let Some(installed) = installed() else { return };
    for desk in Desk::both().await {
        let mut python = Command::new(installed.join("python/bin/python"));
        python.arg("-B").arg(script("client.py"));
        let mut node = Command::new(installed.join("python/bin/node"));
        node.arg(script("client.mjs")).arg(&installed);
        for mut command in [python, node] {
            let _ = std::fs::remove_file(desk.world.path("elsewhere.txt"));
            write(&desk);
            command.arg(PROGRAM).args(place(&desk));
            let learnt: Value = serde_json::from_str(&printed(&desk, command, 0).await).unwrap();
            let expected = json!({
                "version": 1, "mode": "trusted", "stop": "end_turn", "said": "So. Done.",
                "again": "So. Done.", "asked": 1, "listed": true, "exit": 0,
                "kinds": [
                    "agent_message_chunk", "available_commands_update", "session_info_update",
                    "tool_call", "tool_call_update", "usage_update", "user_message_chunk",
                ],
            });
            assert_eq!(learnt, expected);
            assert!(desk.world.path("elsewhere.txt").exists());
        }
    }
}

#[tokio::test]
async fn a_client_of_the_command_line_talks_to_agents() {
    let Some(installed) = installed() else { return };
    for desk in Desk::both().await {
        // It ends with 5 when all that was asked was denied.
        for (approve, is_written, code) in [("--deny-all", false, 5), ("--approve-all", true, 0)] {
            write(&desk);
            let mut command = Command::new(installed.join("python/bin/node"));
            command.arg(installed.join("node_modules/acpx/dist/cli.js"));
            let agent = [&[PROGRAM], place(&desk)].concat().join(" ");
            command.args(["--agent", &agent, "--format", "json", "--json-strict", approve]);
            command.args(["exec", "Hello?"]);
            let printed = printed(&desk, command, code).await;
            let lines = printed.lines().map(|line| serde_json::from_str(line).unwrap());
            let lines: Vec<Value> = lines.collect();
            let is_end = |line: &Value| line["result"]["stopReason"] == "end_turn";
            assert!(lines.iter().any(is_end), "{printed}");
            assert_eq!(desk.world.path("elsewhere.txt").exists(), is_written);
        }
    }
}
