//! Tasks and plans: what running fifty tasks side by side adds to what they wait for, and what a task adds to a turn.

use std::time::{Duration, Instant};

use anyhow::ensure;
use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::Bench;
use crate::model::Model;
use crate::server::{Server, config};
use crate::stats::{Latencies, median, ms};
use crate::table::{Row, Table};
use crate::turns::{send_request, time};

const TASKS: usize = 50;

/// How long the model takes for its answer.
const ANSWER: Duration = Duration::from_millis(100);

/// Events of an answer of one piece, as they are sent: role, text, end, usage and the last one.
const EVENTS: u32 = 5;

const PARALLEL: [usize; 2] = [5, 25];

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    // One that waits before each of its events.
    let slow = Model::instant(Reply::text("done").chunk_delay(ANSWER / EVENTS)).await?;
    let server = Server::start(&config(&slow.url())).await?;
    for parallel in PARALLEL {
        table.add(side_by_side(bench, &server, parallel).await?);
    }
    drop(server);
    let instant = Model::instant(Reply::text("Certainly: here is a short answer.")).await?;
    let server = Server::start(&config(&instant.url())).await?;
    table.add(overhead(bench, &server).await?);
    Ok(())
}

async fn side_by_side(bench: &Bench, server: &Server, parallel: usize) -> anyhow::Result<Row> {
    let task = |n: usize| json!({"id": format!("t{n}"), "type": "analysis", "description": "look"});
    let tasks: Vec<Value> = (0..TASKS).map(task).collect();
    let options = json!({"max_parallel": parallel, "timeout_ms": 120_000});
    let params = json!({"plan": {"tasks": tasks}, "options": options});
    let request = server.request("/", "run_plan", &params);
    let single = json!({"task_type": "analysis", "prompt": "look"});
    let single = server.request("/", "execute_task", &single);
    let mut connection = server.connect().await?;
    let (mut ratios, mut took) = (Vec::new(), Vec::new());
    for round in 0..=bench.rounds() {
        // What the model really takes: a timer is never early.
        let one = time(connection.result(&single)).await?;
        let started = Instant::now();
        let ran = connection.result(&request).await?;
        let all = started.elapsed();
        ensure!(ran["status"] == json!("success"), "{ran}");
        if round > 0 {
            let ideal = ms(one) * TASKS.div_ceil(parallel) as f64;
            ratios.push(ms(all) / ideal);
            took.push(ms(all));
        }
    }
    let ratio = median(ratios);
    Ok(Row::new(format!("run_plan: {TASKS} tasks of 100 ms, {parallel} at once"))
        .measured(format!("{:.0} ms", median(took)))
        .baseline(format!("{} tasks one after another", TASKS.div_ceil(parallel)))
        .ratio(ratio)
        .reach("≤ 1.2", ratio <= 1.2))
}

/// A task against a turn of an agent that is there, in turns.
async fn overhead(bench: &Bench, server: &Server) -> anyhow::Result<Row> {
    server.create_agents("p", 1).await?;
    let send = send_request(server, "p0");
    let params = json!({"task_type": "analysis", "prompt": "look"});
    let task = server.request("/", "execute_task", &params);
    let mut connection = server.connect().await?;
    let (mut turns, mut tasks) = (Vec::new(), Vec::new());
    for round in 0..bench.count(200) {
        let turn = time(connection.result(&send)).await?;
        let task = time(connection.result(&task)).await?;
        // The first ones open connections to the model.
        if round >= 10 {
            turns.push(turn);
            tasks.push(task);
        }
    }
    let (turn, task) = (ms(Latencies::new(turns).p50()), ms(Latencies::new(tasks).p50()));
    let more = task - turn;
    Ok(Row::new("execute_task, beyond what a send takes")
        .measured(format!("{more:.2} ms ({task:.2} ms)"))
        .baseline(format!("{turn:.2} ms send"))
        .reach("< 2 ms", more < 2.0))
}
