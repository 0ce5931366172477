//! A call through the gate, the launcher's pipes and our watch over the server, against the same with the library alone.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, RunningService};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};

use crate::Bench;
use crate::server::config_without_model;
use crate::stats::{Latencies, us};
use crate::table::Row;
use crate::tools::Workshop;
use crate::turns::time;

/// Of the server.
const TOOLS: usize = 10;

pub async fn run(bench: &Bench) -> anyhow::Result<Row> {
    let config = super::with_servers(config_without_model(), &["s"], TOOLS, "call")?;
    let workshop = Arc::new(Workshop::open(&config).await?);
    workshop.connect("s").await?;
    let (bare, calls) = (Bare::start().await?, bench.count(5_000));
    // As production does, on a worker thread.
    let working = tokio::spawn({
        let workshop = workshop.clone();
        async move {
            let arguments = json!({"name": "Ann"});
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            for _ in 0..calls {
                ours.push(time(workshop.call("mcp_s_t0", &arguments)).await?);
                plain.push(time(bare.call("t0", &arguments)).await?);
            }
            anyhow::Ok((Latencies::new(ours).p50(), Latencies::new(plain).p50()))
        }
    });
    let (ours, plain) = working.await??;
    workshop.close().await?;
    let (ours, plain) = (us(ours), us(plain));
    let added = ours - plain;
    Ok(Row::new("a call of an MCP server's tool on standard input, p50")
        .measured(format!("{added:.0} µs more ({ours:.0} µs)"))
        .baseline(format!("{plain:.0} µs with rmcp alone"))
        .ratio(ours / plain)
        .reach("≤ 150 µs", added <= 150.0))
}

/// The same server, started plainly and spoken to by the library.
struct Bare {
    client: RunningService<RoleClient, ()>,
    _process: Child,
}

impl Bare {
    async fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(super::arguments(TOOLS, "bare")).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().context("no output")?;
        let input = process.stdin.take().context("no input")?;
        let mode = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        };
        let client = ().serve_with_lifecycle((output, input), mode).await?;
        Ok(Self { client, _process: process })
    }

    async fn call(&self, tool: &'static str, arguments: &Value) -> anyhow::Result<()> {
        let arguments: Map<String, Value> = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let answer = self.client.call_tool(params).await?;
        ensure!(answer.is_error != Some(true), "{tool}: {answer:?}");
        Ok(())
    }
}
