//! What is billed of the input where the provider has a cache, against the same requests without one.

use std::fs;

use anyhow::ensure;
use nexus_testkit::{Bill, Reply};
use serde_json::json;

use super::{billing, config, send, words};
use crate::model::Model;
use crate::server::{Place, Server};
use crate::table::{Row, Table};

const AGENT: &str = "a0";

/// Bytes of the project's instructions. With our own words and the tools a brief of 4,000 tokens.
const INSTRUCTIONS_BYTES: usize = 11_000;
const ASKED_BYTES: usize = 800;
const THOUGHT_BYTES: usize = 200;
const ANSWER_BYTES: usize = 1_200;

/// A conversation: so many turns, each of so many model calls, all but the last with tool calls.
struct Shape {
    turns: usize,
    steps: usize,
    calls: usize,
    result_bytes: usize,
}

pub async fn run(table: &mut Table) -> anyhow::Result<()> {
    let long = Shape { turns: 1, steps: 40, calls: 1, result_bytes: 6_000 };
    let broad = Shape { turns: 1, steps: 40, calls: 12, result_bytes: 1_200 };
    let often = Shape { turns: 10, steps: 6, calls: 1, result_bytes: 6_000 };
    let billed = "input billed, against no cache:";
    table.add(row(format!("{billed} a loop of 40 steps"), &talk(&long).await?, 0.17)?);
    table.add(row("  12 calls in each step", &talk(&broad).await?, 0.18)?);
    let talk = talk(&often).await?;
    table.add(row("  10 turns of 6 steps", &talk, 0.15)?);
    table.add(restart(talk).await?);
    Ok(())
}

fn row(what: impl Into<String>, talk: &Talk, most: f64) -> anyhow::Result<Row> {
    let bill = talk.model.bill();
    let ratio = bill.price_ratio();
    Ok(Row::new(what)
        .measured(format!("{ratio:.3} ({} requests)", bill.requests))
        .baseline(format!("{} k tokens", bill.uncached_equivalent() / 1_000))
        .ratio(ratio)
        .reach(format!("≤ {most}"), ratio <= most))
}

/// A conversation that has been had.
struct Talk {
    model: Model,
    server: Server,
}

async fn talk(shape: &Shape) -> anyhow::Result<Talk> {
    let model = billing().await?;
    let place = Place::new(&config(&model.url()))?;
    fs::write(place.cwd().join("NEXUS.md"), words(0, INSTRUCTIONS_BYTES))?;
    let server = Server::start_at(place).await?;
    server.create_agents("a", 1).await?;
    for turn in 0..shape.turns {
        for step in 1..shape.steps {
            let seed = turn * shape.steps + step;
            let mut reply = Reply::thought(words(seed, THOUGHT_BYTES));
            for call in 0..shape.calls {
                let path = format!("{turn}-{step}-{call}.txt");
                fs::write(server.place.cwd().join(&path), words(seed + call, shape.result_bytes))?;
                reply = reply.then_tool_call("read_file", json!({"path": path}));
            }
            model.push(reply);
        }
        model.push(Reply::text(words(turn, ANSWER_BYTES)));
        let answer = send(&server, AGENT, &words(turn, ASKED_BYTES)).await?;
        ensure!(
            answer["steps"] == shape.steps,
            "this is no turn of {} steps: {answer}",
            shape.steps
        );
    }
    let rejections = model.rejections();
    ensure!(rejections.is_empty(), "the model was sent what its service refuses: {rejections:?}");
    Ok(Talk { model, server })
}

/// How much of the request before a restart the first one after it finds in the cache.
async fn restart(talk: Talk) -> anyhow::Result<Row> {
    let Talk { model, server } = talk;
    let ask = async |server: &Server| {
        let before = model.bill();
        send(server, AGENT, &words(99, ASKED_BYTES)).await?;
        anyhow::Ok(since(before, model.bill()))
    };
    let last = ask(&server).await?;
    let server = Server::start_at(server.into_place()).await?;
    let first = ask(&server).await?;
    ensure!((last.requests, first.requests) == (1, 1), "a turn of one step takes one request");
    let share = first.cache_read as f64 / last.uncached_equivalent() as f64;
    Ok(Row::new("share of the last request read from the cache after a kill")
        .measured(format!("{share:.3} ({} tokens)", first.cache_read))
        .baseline(format!("{} tokens before", last.uncached_equivalent()))
        .ratio(share)
        .reach("≥ 0.98", share >= 0.98))
}

/// What was billed between two bills.
pub fn since(before: Bill, after: Bill) -> Bill {
    Bill {
        requests: after.requests - before.requests,
        input: after.input - before.input,
        cache_read: after.cache_read - before.cache_read,
        cache_write: after.cache_write - before.cache_write,
        billed: after.billed - before.billed,
        output: after.output - before.output,
        reasoning: after.reasoning - before.reasoning,
    }
}
