//! What servers cost that are there: their processes, their tools in an agent's prompt and in its steps, and a start.

use std::fs;

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{mark, with_servers};
use crate::Bench;
use crate::model::Model;
use crate::server::{Place, Server, config, config_without_model};
use crate::start::{First, first_answer};
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};
use crate::turns::{send_request, time};

const AGENTS: usize = 300;
const TOOLS: usize = 1_000;
const SERVERS: usize = 20;

/// Turns of one agent: its conversation stays an ordinary one.
const TURNS: usize = 20;

/// Agents that all come for one server at once, and then each make a call.
pub async fn processes(bench: &Bench) -> anyhow::Result<Row> {
    let (mark, agents) = (mark("agents"), bench.count(AGENTS));
    let model = Model::instant(Reply::text("That is all.")).await?;
    let config = with_servers(config(&model.url()), &["s"], 10, &mark)?;
    let server = Server::start(&config).await?;
    create_users(&server, "a", agents).await?;
    try_join_all((0..agents).map(|agent| connect(&server, format!("a{agent}")))).await?;
    let mut connection = server.connect().await?;
    for agent in 0..agents {
        model.push(Reply::tool_call("mcp_s_t0", json!({"name": "Ann"})));
        connection.result(&send_request(&server, &format!("a{agent}"))).await?;
    }
    let status = server.request("/agent/a0", "mcp_status", &json!({"server": "s"}));
    let calls = connection.result(&status).await?["servers"][0]["calls"].take();
    ensure!(calls == agents, "{calls} of {agents} calls were made");
    let running = running(&mark)?;
    Ok(Row::new(format!("processes of an MCP server that {agents} agents use"))
        .measured(running.to_string())
        .reach("1", running == 1))
}

/// An agent beside a server with a great many tools against one beside none.
pub async fn many_tools(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("Certainly: here is a short answer.")).await?;
    let none = Server::start(&config(&model.url())).await?;
    let many =
        Server::start(&with_servers(config(&model.url()), &["s"], TOOLS, &mark("tools"))?).await?;
    let agents = bench.count(25);
    none.create_agents("a", agents).await?;
    create_users(&many, "a", agents).await?;
    connect(&many, "a0".into()).await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (mut to_none, mut to_many) = (none.connect().await?, many.connect().await?);
    for agent in 0..agents {
        let agent = format!("a{agent}");
        let sends = [send_request(&none, &agent), send_request(&many, &agent)];
        for _ in 0..TURNS {
            without.push(time(to_none.result(&sends[0])).await?);
            with.push(time(to_many.result(&sends[1])).await?);
        }
    }
    let tokens = many.request("/agent/a0", "get_tokens", &json!({}));
    let tokens = to_many.result(&tokens).await?["mcp"].take();
    let tokens = tokens.as_u64().context("get_tokens has no mcp")?;
    ensure!(tokens > 0, "the agent has no tools of the server");
    table.add(
        Row::new(format!("{TOOLS} tools of an MCP server in an agent's prompt"))
            .measured(format!("{tokens} tokens"))
            .reach("< 1500", tokens < 1_500),
    );
    let (without, with) = (ms(Latencies::new(without).p50()), ms(Latencies::new(with).p50()));
    let added = with - without;
    table.add(
        Row::new("  in a step of it, p50")
            .measured(format!("{added:.2} ms more ({with:.2} ms)"))
            .baseline(format!("{without:.2} ms with none"))
            .ratio(with / without)
            .reach("< 1 ms more", added < 1.0),
    );
    Ok(())
}

/// The first answer of a server that could start twenty others, and does not.
pub async fn start(bench: &Bench) -> anyhow::Result<Row> {
    const LIST: First = First { path: "/", method: "list_agents" };
    let mark = mark("start");
    let names: Vec<String> = (0..SERVERS).map(|number| format!("s{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let configured = with_servers(config_without_model(), &names, 10, &mark)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let plain = config_without_model();
    // By turns: what one leaves behind is in the way of the next.
    for round in 0..bench.count(100) {
        let mut both = [(&configured, &mut with), (&plain, &mut without)];
        both.rotate_left(round % 2);
        for (config, times) in both {
            times.push(first_answer(&Place::new(config)?, LIST)?);
        }
    }
    let server = Server::start(&configured).await?;
    server.create_agents("a", 1).await?;
    ensure!(running(&mark)? == 0, "a server was started that nobody needs");
    let (with, without) = (ms(Latencies::new(with).p50()), ms(Latencies::new(without).p50()));
    let added = with - without;
    Ok(Row::new(format!("start to first answered request, {SERVERS} MCP servers configured"))
        .measured(format!("{added:.2} ms more ({with:.1} ms)"))
        .baseline(format!("{without:.1} ms with none"))
        .ratio(with / without)
        .reach("≤ 0.5 ms", added <= 0.5))
}

/// Makes agents that use all tools of `s` without being asked.
async fn create_users(server: &Server, prefix: &str, count: usize) -> anyhow::Result<()> {
    let mut connection = server.connect().await?;
    for index in 0..count {
        let params = json!({"agent_id": format!("{prefix}{index}"), "mcp": {"s": ["*"]}});
        connection.result(&server.request("/", "create_agent", &params)).await?;
    }
    Ok(())
}

async fn connect(server: &Server, agent: String) -> anyhow::Result<()> {
    let connect =
        server.request(&format!("/agent/{agent}"), "mcp_connect", &json!({"server": "s"}));
    let connected: Value = server.connect().await?.result(&connect).await?;
    ensure!(connected["connected"] == true, "{connected}");
    Ok(())
}

/// Processes that were started with this mark.
fn running(mark: &str) -> anyhow::Result<usize> {
    let mut running = 0;
    for entry in fs::read_dir("/proc")? {
        // What is no process has no command line, and one that just ended has none any more.
        let Ok(line) = fs::read(entry?.path().join("cmdline")) else { continue };
        running += usize::from(line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()));
    }
    Ok(running)
}
