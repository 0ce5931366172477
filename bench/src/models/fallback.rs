//! A model whose provider fails, and another that takes its place.

use anyhow::ensure;
use nexus_testkit::Reply;
use serde_json::json;

use super::{config, send};
use crate::Bench;
use crate::client::find;
use crate::model::Model;
use crate::server::Server;
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};
use crate::turns::time;

/// Failures after which a provider is left alone.
const FAILURES: usize = 5;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let (broken, sound) = (
        Model::instant(Reply::status(500)).await?,
        Model::instant(Reply::text("Certainly.")).await?,
    );
    let mut config = config(&broken.url());
    config["providers"]["bench"]["max_retries"] = json!(0);
    config["providers"]["bench"]["models"]["claude"]["fallback"] = json!(["spare"]);
    config["providers"]["other"] = json!({
        "type": "anthropic",
        "base_url": sound.url(),
        "auth_method": "none",
        "models": {"spare": {"id": "claude-haiku-5-5"}},
    });
    let server = Server::start(&config).await?;
    let turns = bench.count(100);
    server.create_agents("a", turns).await?;
    for _ in 0..FAILURES {
        send(&server, "a0", "Hello").await?;
    }
    let (mut times, mut connection) = (Vec::new(), server.connect().await?);
    for agent in 1..turns {
        let params = json!({"content": "Hello", "stream": true});
        let path = format!("/agent/a{agent}");
        let request = server.request_with(&path, "accept: text/event-stream\r\n", "send", &params);
        let streamed = async {
            let answer = connection.stream(&request).await?;
            ensure!(find(answer, b"\"fallback\"").is_some(), "nobody said who answers");
            ensure!(find(answer, b"stream_data").is_some(), "nobody answered");
            Ok(())
        };
        times.push(time(streamed).await?);
    }
    let asked = broken.request_count();
    ensure!(asked == FAILURES, "a provider that is left alone was asked {asked} times");
    let times = Latencies::new(times);
    let p99 = ms(times.p99());
    table.add(
        Row::new("answer of the fallback while the provider is left alone, p99")
            .measured(format!("{p99:.1} ms, p50 {:.1} ms", ms(times.p50())))
            .reach("≤ 20 ms", p99 <= 20.0),
    );
    Ok(())
}
