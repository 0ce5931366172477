//! Tools of MCP servers in the hands of agents: whose they are, who is asked, and what becomes of servers that misbehave.

mod apart;
mod beside;
mod conformance;
mod elicit;
mod faults;
mod life;
mod logins;
mod own;
mod permissions;
mod pins;
mod progress;
mod project;
mod reference;
mod remote;
mod sampling;
mod search;
pub mod server;
mod tasks;
mod words;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::{Setup, Wire};
use crate::support::{history, say};

/// A server of nexus3 whose configuration has the MCP server `s`, which behaves so.
fn with(behaviour: &str) -> Setup {
    with_entry(server::server(behaviour))
}

fn with_entry(entry: Value) -> Setup {
    Setup::new().config(json!({"mcp_servers": {"s": entry}}))
}

/// The entry with further keys.
fn entry(behaviour: &str, keys: Value) -> Value {
    let mut entry = server::server(behaviour);
    for (key, value) in keys.as_object().unwrap() {
        entry[key] = value.clone();
    }
    entry
}

/// Makes a sandboxed agent that may use all tools of `s`, and so is not asked about.
async fn user(wire: &Wire, agent: &str) {
    wire.ok("create_agent", json!({"agent_id": agent, "mcp": {"s": ["*"]}})).await;
}

/// Lets the model call a tool of `s` and returns what it was told.
async fn tool(wire: &Wire, agent: &str, tool: &str, arguments: Value) -> String {
    wire.model().push(Reply::tool_call(format!("mcp_s_{tool}"), arguments));
    wire.model().push(Reply::text("done"));
    assert_eq!(say(wire, agent, "go").await, "done");
    let lines = history(wire, agent).await;
    lines[lines.len() - 2].strip_prefix("tool: ").unwrap().to_owned()
}

/// How `s` stands.
async fn status(wire: &Wire, agent: &str) -> Value {
    let status = wire.ok("mcp_status", json!({"agent_id": agent, "server": "s"})).await;
    status["servers"][0].clone()
}
