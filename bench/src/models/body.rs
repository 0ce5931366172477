//! Long conversations: what it takes to write the request, and to take a turn.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use nexus_core::message::{
    Made, Message, Meta, Origin, Part, Role, SharedMessage, Stop, Thought, ToolCall,
};
use nexus_core::model::ModelInfo;
use nexus_core::provider::ModelCall;
use nexus_core::usage;
use nexus_models::measure::messages_body;
use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{config, words};
use crate::Bench;
use crate::client::{Http, post};
use crate::model::Model;
use crate::server::Server;
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};
use crate::turns::{ASKED, model_address, send_request, time};

const MESSAGES: usize = 2_000;

const ANSWER: &str = "Certainly: here is a short answer.";

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    table.add(writing(bench)?);
    aging(bench, table).await
}

/// The body of a call against the same JSON written by `serde_json` from a tree that is there already.
fn writing(bench: &Bench) -> anyhow::Result<Row> {
    let call = ModelCall { system: words(0, 6_000).into(), ..ModelCall::of(model(), history()) };
    let body = messages_body(&call)?;
    let tree: Value = serde_json::from_slice(&body)?;
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..bench.count(200) {
        let started = Instant::now();
        black_box(messages_body(black_box(&call))?);
        ours.push(started.elapsed());
        let started = Instant::now();
        black_box(serde_json::to_vec(black_box(&tree))?);
        plain.push(started.elapsed());
    }
    let (ours, plain) = (ms(Latencies::new(ours).p50()), ms(Latencies::new(plain).p50()));
    let kib = body.len() / 1024;
    Ok(Row::new(format!("body of {MESSAGES} messages with parts, {kib} KiB"))
        .measured(format!("{ours:.2} ms"))
        .baseline(format!("{plain:.2} ms serde_json, a tree"))
        .ratio(ours / plain)
        .reach("≤ 1.15", ours / plain <= 1.15))
}

fn model() -> Arc<ModelInfo> {
    Arc::new(ModelInfo::undescribed("bench", "messages", "claude"))
}

/// Questions that are answered with a thought, a word and a call, whose result leads to an answer.
fn history() -> Vec<SharedMessage> {
    let mut messages = Vec::new();
    for turn in 0..MESSAGES / 4 {
        let id = format!("toolu_{turn:022}");
        let said = |bytes| words(turn, bytes);
        let seal = json!({"signature": said(80)}).to_string();
        let asks = vec![
            Part::Thought(Thought { text: said(200), payload: Some(seal.into()) }),
            Part::Text(said(60)),
            Part::Call(ToolCall::new(
                &id,
                "read_file",
                json!({"path": "src/main.rs", "limit": 200}),
            )),
        ];
        let told = vec![Part::Context(said(40)), Part::Text(said(160))];
        messages.push(Message::of_parts(Role::User, told, Meta::default()));
        messages.push(Message::of_parts(Role::Assistant, asks, made()));
        messages.push(Message::tool_result(&id, said(600), Meta::default()));
        messages.push(Message::of_parts(Role::Assistant, vec![Part::Text(said(300))], made()));
    }
    messages.into_iter().map(Arc::new).collect()
}

fn made() -> Meta {
    let origin =
        Origin { provider: "bench".into(), wire: "messages".into(), model: "claude".into() };
    let (stop, bill) = (Stop::default(), usage::Bill::default());
    Meta { made: Some(Arc::new(Made { origin, briefing: 0, stop, bill })), ..Meta::default() }
}

/// Turns of a long conversation against turns of a short one, and what of the difference is the longer request alone.
async fn aging(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text(ANSWER)).await?;
    let server = Server::start(&config(&model.url())).await?;
    let conversations = bench.count(3);
    server.create_agents("c", conversations).await?;
    let (mut young, mut old) = (Vec::new(), Vec::new());
    for agent in 0..conversations {
        let mut connection = server.connect().await?;
        let send = send_request(&server, &format!("c{agent}"));
        for turn in 1..=1010 {
            let took = time(connection.result(&send)).await?;
            match turn {
                5..=25 => young.push(took),
                990..=1010 => old.push(took),
                _ => {}
            }
        }
    }
    let (young, old) = (ms(Latencies::new(young).p50()), ms(Latencies::new(old).p50()));
    let (short, long) = (alone(&model, 10).await?, alone(&model, 1000).await?);
    table.add(
        Row::new("turn 1000 against turn 10")
            .measured(format!("{old:.2} ms"))
            .baseline(format!("{young:.2} ms"))
            .ratio(old / young)
            .reach("≤ 1.2", old / young <= 1.2),
    );
    let (ours_young, ours_old) = (young - short, old - long);
    table.add(
        Row::new("  without the model call itself")
            .measured(format!("{ours_old:.2} ms ({long:.2} ms the call)"))
            .baseline(format!("{ours_young:.2} ms ({short:.2} ms)"))
            .ratio(ours_old / ours_young),
    );
    Ok(())
}

/// Milliseconds of a request as that turn has it, sent by somebody who has its bytes already.
async fn alone(model: &Model, turn: usize) -> anyhow::Result<f64> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let asked = [text("Current time: 2026-01-01 00:00 UTC"), text(ASKED)];
    let exchange = [
        json!({"role": "user", "content": asked}),
        json!({"role": "assistant", "content": [text(ANSWER)]}),
    ];
    let messages: Vec<_> = exchange.iter().cycle().take(2 * turn - 1).collect();
    let system = words(0, 6_000);
    let body = json!({"model": "m", "max_tokens": 9, "stream": true, "system": system, "messages": messages});
    let request = post("/v1/messages", "", &body.to_string());
    let mut direct = Http::connect(model_address(model)?).await?;
    let mut times = Vec::new();
    for _ in 0..40 {
        times.push(time(async { direct.call(&request).await.map(drop) }).await?);
    }
    Ok(ms(Latencies::new(times).p50()))
}
