//! A model that runs into its output limit within a tool call, again and again.

use anyhow::ensure;
use nexus_testkit::{Reply, StopSaid};

use super::{config, send};
use crate::model::Model;
use crate::server::Server;
use crate::table::{Row, Table};

const CALLS_MAX: usize = 4;

pub async fn run(table: &mut Table) -> anyhow::Result<()> {
    let cut = || {
        Reply::nothing().then_cut_call("write_file", "{\"path\": \"a.txt\", \"content\": \"It was")
    };
    table.add(row("calls until a model that keeps cutting its call is stopped", cut()).await?);
    let hidden = cut().stop(StopSaid::End);
    table.add(row("  one whose service hides that it was cut", hidden).await?);
    Ok(())
}

async fn row(what: &str, reply: Reply) -> anyhow::Result<Row> {
    let model = Model::instant(reply).await?;
    let server = Server::start(&config(&model.url())).await?;
    server.create_agents("a", 1).await?;
    let answer = send(&server, "a0", "Write a long file.").await?;
    ensure!(answer["stop_reason"] == "max_tokens", "it stopped otherwise: {answer}");
    let calls = model.request_count();
    Ok(Row::new(what)
        .measured(format!("{calls} calls"))
        .reach(format!("≤ {CALLS_MAX}"), calls <= CALLS_MAX))
}
