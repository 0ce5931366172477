//! What MCP's conformance suite asks of clients, answered by an agent: the suite starts a server, and the test program again
//! as the client, which starts nexus3 and lets a model call what the scenario wants to be called.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{tool, user, with_entry};
use crate::harness::{Server, Wire, within};
use crate::speakers::{installed, suite};
use crate::support::waiting;

const OF_2025: [&str; 5] = [
    "initialize",
    "tools_call",
    "sse-retry",
    "json-schema-2020-12-preservation",
    "elicitation-sep1034-client-defaults",
];

const OF_2026: [&str; 8] = [
    "tools_call",
    "sep-2322-client-request-state",
    "request-metadata",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
];

/// Of both.
const LOGINS: [&str; 14] = [
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
];

const LOGINS_OF_2026: [&str; 11] = [
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
];

/// Which scenario this is the client of, as the suite says.
const SCENARIO: &str = "MCP_CONFORMANCE_SCENARIO";

#[tokio::test]
async fn the_suite_is_satisfied_with_the_client_in_2025() {
    satisfies("2025-11-25", &OF_2025).await;
}

#[tokio::test]
async fn the_suite_is_satisfied_with_the_client_in_2026() {
    satisfies("2026-07-28", &OF_2026).await;
}

#[tokio::test]
async fn the_suite_is_satisfied_with_logins_in_2025() {
    satisfies("2025-11-25", &LOGINS).await;
}

#[tokio::test]
async fn the_suite_is_satisfied_with_logins_in_2026() {
    satisfies("2026-07-28", &[&LOGINS[..], &LOGINS_OF_2026].concat()).await;
}

async fn satisfies(version: &str, scenarios: &[&str]) {
    let work = tempfile::tempdir().unwrap();
    let client = std::env::current_exe().unwrap();
    let client = format!("{} --exact mcp::conformance::as_client --nocapture", client.display());
    let mut unsatisfied = String::new();
    for scenario in scenarios {
        let Some(mut command) = suite() else { return };
        command.args(["client", "--command", &client, "--scenario", scenario]);
        command.args(["--spec-version", version, "--timeout", "60000"]);
        command.current_dir(work.path());
        let output = within(scenario, command.output()).await.unwrap();
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            unsatisfied.push_str(&format!("{scenario}: {}\n", String::from_utf8_lossy(&said)));
        }
    }
    assert!(unsatisfied.is_empty(), "{version}: {unsatisfied}");
}

/// The client, when the suite started it.
#[tokio::test]
async fn as_client() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    let url = std::env::args().next_back().unwrap();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or("{}".into());
    let context: Value = serde_json::from_str(&context).unwrap();
    let mut entry = json!({"url": url});
    if let Some(id) = context["client_id"].as_str() {
        entry["auth"] = json!({"client_id": id, "client_secret_env": "CLIENT_SECRET"});
    }
    if scenario == "auth/basic-cimd" {
        entry["auth"] = json!({"client_id": "https://conformance-test.local/client-metadata.json"});
    }
    let secret = context["client_secret"].as_str().unwrap_or_default();
    let setup = with_entry(entry).config(json!({"permissions": {"approvals": "ask"}}));
    let server = setup.env("CLIENT_SECRET", secret).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let call = async |name: &str, arguments: Value| tool(&wire, "a", name, arguments).await;
    let connect = async || wire.call("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
    if scenario.starts_with("auth/") {
        for _ in 0..3 {
            let wants_login = match connect().await {
                Err(fault) => fault.code == -32001,
                Ok(_) => call("test-tool", json!({})).await.contains("nexus3 mcp login s"),
            };
            if !wants_login || !log_in(&server, secret).await {
                return;
            }
        }
        return;
    }
    connect().await.unwrap();
    match scenario.as_str() {
        "tools_call" => drop(call("add_numbers", json!({"a": 2, "b": 3})).await),
        "elicitation-sep1034-client-defaults" => {
            tokio::join!(call("test_client_elicitation_defaults", json!({})), accept(&wire));
        }
        "sep-2322-client-request-state" => {
            tokio::join!(call("test_mrtr_echo_state", json!({})), accept(&wire));
            call("test_mrtr_unrelated", json!({})).await;
            tokio::join!(call("test_mrtr_no_state", json!({})), accept(&wire));
            call("test_mrtr_no_result_type", json!({})).await;
        }
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

/// Says yes to what is asked next, and leaves all fields as they are.
async fn accept(wire: &Wire) {
    let id = waiting(wire).await["approval_id"].clone();
    wire.ok("respond_approval", json!({"approval_id": id, "decision": "accept"})).await;
}

/// Logs in as a person does, with a browser that says yes to everything. Whether that came to something.
async fn log_in(server: &Server, secret: &str) -> bool {
    let mut login = server.world.command(["mcp", "login", "s"]);
    login.env("CLIENT_SECRET", secret).stdout(Stdio::piped()).kill_on_drop(true);
    let mut login = login.spawn().unwrap();
    let mut lines = BufReader::new(login.stdout.take().unwrap()).lines();
    let mut address = None;
    while let Some(line) = within("the address", lines.next_line()).await.unwrap() {
        if line.starts_with("http") {
            address = Some(line);
            break;
        }
    }
    if let Some(address) = address {
        let mut browser = Command::new(installed().unwrap().join("python/bin/python"));
        browser.args(["-c", "import sys, urllib.request as u; u.urlopen(sys.argv[1]).read()"]);
        let _ = within("the browser", browser.arg(address).output()).await;
    }
    within("the login", login.wait()).await.unwrap().success()
}
