//! A conversation ten times as long as the window of the model that is to go on with it.

use std::fs;

use anyhow::ensure;
use nexus_testkit::Reply;
use serde_json::json;

use super::caching::since;
use super::{billing, config, send, words};
use crate::server::Server;
use crate::table::{Row, Table};

const WINDOW: u64 = 20_000;
const WINDOWS: u64 = 10;

/// Bytes of what is asked and of what is answered in a turn.
const ASKED_BYTES: usize = 4_000;
const ANSWER_BYTES: usize = 4_000;
const BYTES_PER_TOKEN: u64 = 4;

/// Bytes of each summary: longer than was asked for, so that they have to be summarised again.
const SUMMARY_BYTES: usize = 2_400;

pub async fn run(table: &mut Table) -> anyhow::Result<()> {
    let model = billing().await?;
    let mut config = config(&model.url());
    let server = Server::start(&config).await?;
    server.create_agents("a", 1).await?;
    let turns = (WINDOWS * WINDOW * BYTES_PER_TOKEN) as usize / (ASKED_BYTES + ANSWER_BYTES);
    let mut history = 0;
    for turn in 0..turns {
        model.push(Reply::text(words(turn, ANSWER_BYTES)));
        let before = model.bill();
        send(&server, "a0", &words(turn, ASKED_BYTES)).await?;
        history = since(before, model.bill()).uncached_equivalent();
    }
    ensure!(history >= WINDOWS * WINDOW, "only {history} tokens were said");

    let place = server.stop().await?;
    config["providers"]["bench"]["models"]["claude"]["context_window"] = json!(WINDOW);
    fs::write(place.home().join("config.json"), config.to_string())?;
    let server = Server::start_at(place).await?;
    model.set_default(Reply::text(words(0, SUMMARY_BYTES)));
    let before = model.bill();
    let compact = server.request("/agent/a0", "compact", &json!({}));
    let done = server.connect().await?.result(&compact).await?;
    let spent = since(before, model.bill());
    let goes_on = send(&server, "a0", "And now?").await.is_ok();
    let price = spent.billed / history as f64;
    table.add(
        Row::new(format!("compacting {WINDOWS} windows of history: price against one pass"))
            .measured(format!("{price:.2} ({} calls)", spent.requests))
            .baseline(format!("{} k tokens", history / 1_000))
            .ratio(price)
            .reach("≤ 1.3", price <= 1.3),
    );
    let after = &done["tokens_after"];
    table.add(
        Row::new("  tokens of the context then, and the next turn")
            .measured(format!("{after} tokens, {}", if goes_on { "answered" } else { "FAILED" }))
            .reach("answered", goes_on),
    );
    Ok(())
}
