//! What MCP's conformance suite asks of clients, answered by an agent: the suite starts a server, and the test program again
//! as the client, which starts nexus3 and lets a model call what the scenario wants to be called.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use super::remote::using;
use super::tool;
use crate::harness::within;
use crate::speakers::installed;

const SCENARIOS: [(&str, &str); 11] = [
    ("2025-11-25", "initialize"),
    ("2025-11-25", "tools_call"),
    ("2025-11-25", "sse-retry"),
    ("2025-11-25", "json-schema-2020-12-preservation"),
    ("2026-07-28", "tools_call"),
    ("2026-07-28", "request-metadata"),
    ("2026-07-28", "http-standard-headers"),
    ("2026-07-28", "http-custom-headers"),
    ("2026-07-28", "http-invalid-tool-headers"),
    ("2026-07-28", "json-schema-ref-no-deref"),
    ("2026-07-28", "json-schema-2020-12-preservation"),
];

/// Which scenario this is the client of, as the suite says.
const SCENARIO: &str = "MCP_CONFORMANCE_SCENARIO";

#[tokio::test]
async fn the_conformance_suite_is_satisfied_with_the_client() {
    let Some(installed) = installed() else { return };
    let suite = installed.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let work = tempfile::tempdir().unwrap();
    let client = std::env::current_exe().unwrap();
    let client = format!("{} --exact mcp::conformance::as_client --nocapture", client.display());
    for (version, scenario) in SCENARIOS {
        let mut command = Command::new(installed.join("python/bin/node"));
        command.arg(&suite).args(["client", "--command", &client, "--scenario", scenario]);
        command.args(["--spec-version", version, "--timeout", "60000"]);
        command.stdin(Stdio::null()).kill_on_drop(true).current_dir(work.path());
        let output = within(scenario, command.output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{version} {scenario}: {said}{errors}");
    }
}

/// The client, when the suite started it.
#[tokio::test]
async fn as_client() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    let url = std::env::args().next_back().unwrap();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or("{}".into());
    let context: Value = serde_json::from_str(&context).unwrap();
    let server = using(json!({"url": url})).await;
    let wire = server.wire();
    wire.ok("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
    let call = async |name: &str, arguments: Value| tool(&wire, "a", name, arguments).await;
    match scenario.as_str() {
        "tools_call" => drop(call("add_numbers", json!({"a": 2, "b": 3})).await),
        "sse-retry" => drop(call("test_reconnection", json!({})).await),
        "http-standard-headers" => {
            call("test_headers", json!({})).await;
            call("my-hyphenated-tool", json!({})).await;
        }
        "http-custom-headers" => {
            for wanted in context["toolCalls"].as_array().unwrap() {
                call(wanted["name"].as_str().unwrap(), wanted["arguments"].clone()).await;
            }
        }
        "http-invalid-tool-headers" => drop(call("valid_tool", json!({"region": "x"})).await),
        // As the model is shown it.
        "json-schema-2020-12-preservation" => {
            call("json_schema_2020_12_tool", json!({})).await;
            let request = server.model().last_request();
            let tools = request.body["tools"].as_array().unwrap();
            let named =
                |tool: &&Value| tool["function"]["name"] == "mcp_s_json_schema_2020_12_tool";
            let schema = &tools.iter().find(named).unwrap()["function"]["parameters"];
            call("json_schema_echo", json!({"schema": schema})).await;
        }
        _ => {}
    }
}
