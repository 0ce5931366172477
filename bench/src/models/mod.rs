//! What it costs to talk to models: tokens that are billed, calls that are refused, and the time between.
//!
//! The scripted model speaks the wire `messages` here and refuses what the service refuses; where prices are measured it
//! bills by the service's published rules, so these rows are the same on every machine.

mod body;
mod caching;
mod compaction;
mod cut;
mod fallback;
mod lane;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::Bench;
use crate::model::Model;
use crate::server::Server;
use crate::table::Table;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    caching::run(table).await?;
    compaction::run(table).await?;
    cut::run(table).await?;
    lane::run(bench, table).await?;
    fallback::run(bench, table).await?;
    body::run(bench, table).await
}

/// A model that is as strict as the service, and bills.
async fn billing() -> anyhow::Result<Model> {
    let model = Model::instant(Reply::text("Certainly.")).await?;
    model.strict();
    model.billing();
    Ok(model)
}

/// A configuration whose one model is behind `model_url`.
fn config(model_url: &str) -> Value {
    json!({
        "default_model": "claude",
        "providers": {"bench": {
            "type": "anthropic",
            "base_url": model_url,
            "auth_method": "none",
            "models": {"claude": {"id": "claude-sonnet-5-5"}},
        }},
    })
}

/// Says something to an agent and returns what `send` answers.
async fn send(server: &Server, agent: &str, content: &str) -> anyhow::Result<Value> {
    let send = server.request(&format!("/agent/{agent}"), "send", &json!({"content": content}));
    server.connect().await?.result(&send).await
}

/// So many bytes of words, in lines, that are about a quarter as many tokens. Other words for another `seed`.
fn words(seed: usize, bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "river", "stone", "under", "seven", "paper", "light", "never", "green", "table", "house",
        "north", "again", "water", "round", "cloud", "early",
    ];
    let mut text = String::with_capacity(bytes + 16);
    // A small generator of our own: the same words in every run.
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    while text.len() < bytes {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(state >> 60) as usize]);
        text.push(if (state >> 50) & 15 == 0 { '\n' } else { ' ' });
    }
    text.truncate(bytes);
    text
}
