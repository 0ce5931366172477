//! Small and large reads over HTTP against a bare hyper server that answers the same bytes.

use std::net::SocketAddr;

use bytes::Bytes;
use serde_json::json;

use crate::Bench;
use crate::bare;
use crate::client::{Load, Until, hammer};
use crate::server::{Server, config_without_model, cpu_during};
use crate::stats::{median, ms, us};
use crate::table::{Row, Table};

const CONNECTIONS: usize = 32;
const AGENTS: usize = 200;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(&config_without_model()).await?;
    let list = server.request("/", "list_agents", &json!({}));
    let empty = against_bare(bench, &server, &list).await?;

    let get = server.request("/agent/a0", "get_context", &json!({}));
    server.create_agents("a", AGENTS).await?;
    let small = against_bare(bench, &server, &get).await?;
    let ratio = small.ratio();
    table.add(
        small
            .row(format!("get_context, HTTP keep-alive, {CONNECTIONS} connections"))
            .reach("≥ 0.7", ratio >= 0.7),
    );
    let (ours, bare) = (p99(&small.ours), p99(&small.bare));
    table.add(
        Row::new("  p99 of these")
            .measured(format!("{ours:.2} ms"))
            .baseline(format!("{bare:.2} ms bare hyper"))
            .ratio(ours / bare)
            .reach("< 3 ms", ours < 3.0),
    );

    let many = against_bare(bench, &server, &list).await?;
    let ratio = many.ratio();
    table.add(
        many.row(format!("list_agents, {AGENTS} agents ({} kB)", many.answer_bytes / 1000))
            .reach("≥ 0.5", ratio >= 0.5),
    );
    table.add(empty.row(format!("list_agents, 0 agents ({} bytes)", empty.answer_bytes)));
    table.add(each_agent(&server).await?);
    Ok(())
}

/// What one agent adds to the time of `list_agents`, one call at a time.
async fn each_agent(server: &Server) -> anyhow::Result<Row> {
    let list = server.request("/", "list_agents", &json!({}));
    let fresh = Server::start(&config_without_model()).await?;
    let none = fresh.request("/", "list_agents", &json!({}));
    let until = Until::Calls(1_000);
    let many = hammer(server.address, &[list], until).await?.latencies.p50();
    let none = hammer(fresh.address, &[none], until).await?.latencies.p50();
    let each = us(many.saturating_sub(none)) / AGENTS as f64;
    Ok(Row::new(format!("  time of one call, {AGENTS} agents against 0"))
        .measured(format!("{:.0} µs ({each:.2} µs an agent)", us(many)))
        .baseline(format!("{:.0} µs with 0 agents", us(none)))
        .ratio(us(many) / us(none)))
}

/// The same request to the server and to a bare one, in turns.
struct Compared {
    ours: Vec<Round>,
    bare: Vec<Round>,
    answer_bytes: usize,
}

struct Round {
    load: Load,
    /// What the process that answered used for one call.
    cpu_us: f64,
}

impl Compared {
    fn ratio(&self) -> f64 {
        let rounds = self.ours.iter().zip(&self.bare);
        median(rounds.map(|(ours, bare)| ours.load.per_second / bare.load.per_second))
    }

    fn row(&self, what: String) -> Row {
        let rate = |rounds: &[Round]| {
            let per_second = median(rounds.iter().map(|round| round.load.per_second));
            format!(
                "{per_second:.0}/s, {:.1} µs CPU",
                median(rounds.iter().map(|round| round.cpu_us))
            )
        };
        Row::new(what)
            .measured(rate(&self.ours))
            .baseline(format!("{} hyper", rate(&self.bare)))
            .ratio(self.ratio())
    }
}

fn p99(rounds: &[Round]) -> f64 {
    median(rounds.iter().map(|round| ms(round.load.latencies.p99())))
}

async fn against_bare(bench: &Bench, server: &Server, request: &Bytes) -> anyhow::Result<Compared> {
    let mut connection = server.connect().await?;
    let answer_bytes = connection.call(request).await?.len();
    let (process, bare) = bare::start_http(&server.place, connection.answer())?;
    let round = |pid, address: SocketAddr| {
        let requests = vec![request.clone(); CONNECTIONS];
        async move {
            let load = hammer(address, &requests, Until::Time(bench.round()));
            let (load, used) = cpu_during(pid, load).await?;
            let cpu_us = us(used) / load.latencies.len() as f64;
            anyhow::Ok(Round { load, cpu_us })
        }
    };
    let mut compared = Compared { ours: Vec::new(), bare: Vec::new(), answer_bytes };
    // What is built up on first use belongs to neither.
    hammer(server.address, std::slice::from_ref(request), Until::Calls(200)).await?;
    for _ in 0..bench.rounds() {
        compared.ours.push(round(server.pid(), server.address).await?);
        compared.bare.push(round(process.pid(), bare).await?);
    }
    Ok(compared)
}
