//! Tools of MCP servers: what a call of one costs beside the server's own work, and what servers cost that are only there.

mod call;
mod resting;
mod server;

use serde_json::{Value, json};

pub use server::serve;

use crate::Bench;
use crate::table::Table;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    table.add(call::run(bench).await?);
    table.add(resting::processes(bench).await?);
    resting::many_tools(bench, table).await?;
    table.add(resting::start(bench).await?);
    Ok(())
}

/// The arguments of this program as an MCP server with so many tools. Its processes are told from others by the mark.
fn arguments(tools: usize, mark: &str) -> [String; 3] {
    ["--bare-mcp".into(), tools.to_string(), mark.into()]
}

/// A configuration with such servers beside what `config` has.
fn with_servers(
    mut config: Value,
    names: &[&str],
    tools: usize,
    mark: &str,
) -> anyhow::Result<Value> {
    let program = std::env::current_exe()?;
    for name in names {
        config["mcp_servers"][name] = json!({"command": program, "args": arguments(tools, mark)});
    }
    Ok(config)
}

/// A mark that no other run has.
fn mark(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}
