//! The door as others see it: MCP's conformance suite, and hosts made with its SDKs. `make mcp-servers` installs them;
//! where they are not, this is passed over, unless `NEXUS3_MCP_SERVERS=required`.

use std::process::Stdio;

use nexus_testkit::Reply;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Server, Setup, within};
use crate::speakers::{installed, script, suite};

/// Scenarios that use no tool which only the suite's own servers have. With such tools, all are asked of the route
/// (`conformance`).
const OF_2025: [&str; 10] = [
    "server-initialize",
    "ping",
    "completion-complete",
    "tools-list",
    "server-sse-multiple-streams",
    "server-sse-polling",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
    "server-session-lifecycle",
];

const OF_2026: [&str; 12] = [
    "tools-list",
    "completion-complete",
    "server-sse-multiple-streams",
    "resources-list",
    "sep-2164-resource-not-found",
    "prompts-list",
    "dns-rebinding-protection",
    "caching",
    "input-required-result-unsupported-methods",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
    "http-header-validation",
];

#[tokio::test]
async fn the_conformance_suite_is_satisfied() {
    // The suite cannot send a token.
    let server = Setup::new().arg("--no-auth").start().await;
    let of_2025 = OF_2025.map(|it| ("2025-11-25", it)).into_iter();
    let all = of_2025.chain(OF_2026.map(|it| ("2026-07-28", it)));
    for (version, scenario) in all {
        let Some(mut command) = suite() else { return };
        command.args(["server", "--url", &format!("{}/mcp", server.url)]);
        command.args(["--scenario", scenario, "--spec-version", version, "--force"]);
        command.current_dir(server.world.work());
        let output = within(scenario, command.output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{version} {scenario}: {said}{errors}");
    }
}

/// Runs a host in the server's world and returns what it learnt.
async fn learnt(server: &Server, mut command: Command) -> Value {
    server.model().push(Reply::text("Hello!"));
    command.stdin(Stdio::null()).kill_on_drop(true).current_dir(server.world.work());
    command.env("NEXUS3_HOME", server.world.home()).env("HOME", server.world.path("."));
    let output = within("a host", command.output()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[tokio::test]
async fn the_sdks_of_python_and_node_talk_to_agents() {
    let Some(installed) = installed() else { return };
    let server = Server::start().await;
    let key =
        server.wire().ok("create_key", json!({"name": "k", "doors": ["mcp"]})).await["key"].clone();
    let program = env!("CARGO_BIN_EXE_nexus3");
    let url = format!("{}/mcp", server.url);
    let ways = [vec!["stdio", program, "mcp", "serve"], vec!["http", &url]];
    let mut messages = [0, 0];
    for (number, way) in ways.iter().enumerate() {
        let mut expected = |version: Option<&str>| {
            messages[number] += 2;
            let mut learnt = json!({"tools": 7, "content": "Hello!", "messages": messages[number]});
            if let Some(version) = version {
                learnt["version"] = version.into();
            }
            learnt
        };
        for (mode, version) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
            let mut command = Command::new(installed.join("python/bin/python"));
            command.arg("-B").arg(script("host.py")).arg(mode).args(way);
            command.env("NEXUS3_KEY", key.as_str().unwrap());
            assert_eq!(learnt(&server, command).await, expected(Some(version)), "{way:?}");
        }
        let mut command = Command::new(installed.join("python/bin/node"));
        command.arg(script("host.mjs")).arg(&installed).args(way);
        command.env("NEXUS3_KEY", key.as_str().unwrap());
        assert_eq!(learnt(&server, command).await, expected(None), "{way:?}");
    }
}

/// Hosts that people have, each of which says without a key whether it reaches its servers. They are made for one kind of
/// machine.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[tokio::test]
async fn hosts_that_people_use_are_connected() {
    let Some(installed) = installed() else { return };
    let server = Server::start().await;
    let key = server.wire().ok("create_key", json!({"name": "k", "doors": ["mcp"]})).await;
    let program = env!("CARGO_BIN_EXE_nexus3");
    let url = format!("{}/mcp", server.url);
    let headers = json!({"Authorization": format!("Bearer {}", key["key"].as_str().unwrap())});
    let home = server.world.path("host");
    std::fs::create_dir(&home).unwrap();
    let piped = json!({"type": "stdio", "command": program, "args": ["mcp", "serve"]});
    let posted = json!({"type": "http", "url": url, "headers": headers});
    let servers = json!({"mcpServers": {"piped": piped, "posted": posted}});
    std::fs::write(home.join(".claude.json"), servers.to_string()).unwrap();
    let piped = json!({"type": "local", "command": [program, "mcp", "serve"]});
    let posted = json!({"type": "remote", "url": url, "headers": headers, "oauth": false});
    let servers = json!({"autoupdate": false, "mcp": {"piped": piped, "posted": posted}});
    std::fs::write(home.join("opencode.json"), servers.to_string()).unwrap();
    for (host, connected) in [
        ("@anthropic-ai/claude-agent-sdk-linux-x64/claude", "Connected"),
        ("opencode-linux-x64/bin/opencode", "connected"),
    ] {
        let mut command = Command::new(installed.join("node_modules").join(host));
        command.args(["mcp", "list"]).stdin(Stdio::null()).kill_on_drop(true).current_dir(&home);
        command.env("NEXUS3_HOME", server.world.home()).env("HOME", &home).env("NO_COLOR", "1");
        // Nothing else is reached.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("NO_PROXY", "127.0.0.1");
        command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        command.env("OPENCODE_DISABLE_MODELS_FETCH", "1");
        let output = within(host, command.output()).await.unwrap();
        let [said, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        let of = |name: &str| said.lines().any(|it| it.contains(name) && it.contains(connected));
        assert!(of("piped") && of("posted"), "{host}: {said}{errors}");
    }
}
