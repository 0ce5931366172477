//! What an idle server and its idle agents take.

use std::time::Duration;

use nexus_testkit::Reply;
use serde_json::json;

use crate::Bench;
use crate::client::{Until, hammer};
use crate::model::Model;
use crate::server::{Server, config, rss_kib};
use crate::table::{Row, Table};
use crate::turns::send_request;

const AGENTS: usize = 10_000;
const CALLERS: usize = 16;

/// Until queues are empty and the log is written.
const SETTLE: Duration = Duration::from_millis(500);

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("Certainly.")).await?;
    let server = Server::start(&config(&model.url())).await?;
    let rss = || async {
        tokio::time::sleep(SETTLE).await;
        rss_kib(server.pid())
    };
    server.create_agents("a", 1).await?;
    let idle = rss().await?;
    table.add(
        Row::new("memory of an idle server, one agent")
            .measured(format!("{:.1} MiB", idle / 1024.0))
            .reach("< 30 MiB", idle < 30.0 * 1024.0),
    );

    let agents = bench.count(AGENTS);
    let create = server.request("/", "create_agent", &json!({}));
    let until = Until::Calls(agents / CALLERS);
    hammer(server.address, &vec![create; CALLERS], until).await?;
    let full = rss().await?;
    let each = (full - idle) / agents as f64;
    table.add(
        Row::new(format!("  each further idle agent, of {agents}"))
            .measured(format!("{each:.1} KiB"))
            .reach("< 20 KiB", each < 20.0),
    );

    let fresh = Server::start(&config(&model.url())).await?;
    fresh.create_agents("a", 1).await?;
    let mut connection = fresh.connect().await?;
    connection.result(&send_request(&fresh, "a0")).await?;
    tokio::time::sleep(SETTLE).await;
    let after_turn = rss_kib(fresh.pid())?;
    connection.result(&fresh.request("/agent/a0", "get_tokens", &json!({}))).await?;
    tokio::time::sleep(SETTLE).await;
    table.add(Row::new("  after a turn; after a get_tokens, which loads the tokenizer").measured(
        format!("{:.1} MiB; {:.1} MiB", after_turn / 1024.0, rss_kib(fresh.pid())? / 1024.0),
    ));
    Ok(())
}
