//! Making durable agents: alone, by many at once, and what others notice of it.

use serde_json::json;

use crate::Bench;
use crate::client::{Until, hammer};
use crate::server::{Server, config_without_model};
use crate::stats::{median, ms};
use crate::table::{Row, Table};

const CALLERS: usize = 16;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(&config_without_model()).await?;
    server.create_agents("a", 1).await?;
    let create = server.request("/", "create_agent", &json!({}));
    let get = [server.request("/agent/a0", "get_context", &json!({}))];

    let until = Until::Calls(bench.count(500));
    let alone = hammer(server.address, std::slice::from_ref(&create), until).await?;
    let p50 = ms(alone.latencies.p50());
    table.add(
        Row::new("create_agent, durable, one caller: p50")
            .measured(format!("{p50:.2} ms, p99 {:.2} ms", ms(alone.latencies.p99())))
            .reach("< 2 ms", p50 < 2.0),
    );

    let creates = vec![create; CALLERS];
    let until = Until::Time(bench.round());
    let (mut rates, mut quiet, mut busy, mut worst) = (Vec::new(), Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..bench.rounds().min(3) {
        quiet.push(ms(hammer(server.address, &get, until).await?.latencies.p99()));
        rates.push(hammer(server.address, &creates, until).await?.per_second);
        let (creating, reading) = tokio::join!(
            hammer(server.address, &creates, until),
            hammer(server.address, &get, until)
        );
        creating?;
        let reading = reading?.latencies;
        busy.push(ms(reading.p99()));
        worst = worst.max(ms(reading.max()));
    }
    let rate = median(rates);
    table.add(
        Row::new(format!("create_agent, durable, {CALLERS} callers"))
            .measured(format!("{rate:.0}/s"))
            .reach("≥ 2000/s", rate >= 2000.0),
    );
    let (busy, quiet) = (median(busy), median(quiet));
    table.add(
        Row::new("  p99 of get_context meanwhile")
            .measured(format!("{busy:.2} ms, worst {worst:.1} ms"))
            .baseline(format!("{quiet:.2} ms when nothing is made"))
            .ratio(busy / quiet)
            .reach("< 3 ms", busy < 3.0),
    );
    Ok(())
}
