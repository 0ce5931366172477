//! Homes with a great many stored agents: what a start, a list, a family's end and their mere presence cost.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rusqlite::{Connection, Transaction};
use serde_json::{Value, json};

use crate::Bench;
use crate::memory::settled;
use crate::server::{Place, Server, config_without_model};
use crate::start::{First, first_answer};
use crate::stats::{Latencies, median, ms};
use crate::table::{Row, Table};
use crate::turns::time;

const FAMILY: usize = 16_000;

/// A smaller one beside it: what costs four times as much for four times as many is linear.
const SMALL_FAMILY: usize = FAMILY / 4;

const CROWD: usize = 100_000;

/// Agents on a page of the list.
const PAGE: usize = 100;

/// Children of each agent of a family: a bushy one, well within the depth to which agents may be nested.
const CHILDREN: usize = 26;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    ending(bench, table).await?;
    crowd(bench, table).await
}

async fn ending(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds().min(3) {
        small.push(ms(end_family(SMALL_FAMILY).await?));
        large.push(ms(end_family(FAMILY).await?));
    }
    let (small, large) = (median(small), median(large));
    table.add(
        Row::new(format!("ending a family of {FAMILY} stored agents"))
            .measured(format!("{large:.0} ms"))
            .baseline(format!("{small:.0} ms one of {SMALL_FAMILY}"))
            .ratio(large / small)
            .reach("< 300 ms", large < 300.0),
    );
    Ok(())
}

async fn end_family(members: usize) -> anyhow::Result<Duration> {
    let place = home_with(|home| home.add_family(members)).await?;
    let server = Server::start_at(place).await?;
    let mut connection = server.connect().await?;
    let destroy = server.request("/", "destroy_agent", &json!({"agent_id": TOP}));
    let took = time(async { connection.call(&destroy).await.map(|_| ()) }).await?;
    let answer: Value = serde_json::from_slice(connection.body()?)?;
    let gone = answer["result"]["destroyed"].as_array().map_or(0, Vec::len);
    ensure!(gone > members, "{gone} of {members} agents ended");
    Ok(took)
}

async fn crowd(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let agents = bench.count(CROWD);
    let mut place = home_with(|home| home.add_roots(agents)).await?;
    let (mut times, mut alone) = (Vec::new(), Vec::new());
    let first = First { path: "/agent/a5000", method: "get_context" };
    let fresh = First { path: "/", method: "list_agents" };
    for _ in 0..bench.count(15) {
        times.push(first_answer(&place, first)?);
        alone.push(first_answer(&Place::new(&config_without_model())?, fresh)?);
    }
    let (times, alone) = (Latencies::new(times), ms(Latencies::new(alone).p50()));
    let p50 = ms(times.p50());
    table.add(
        Row::new(format!("start to first answered request, {agents} stored agents"))
            .measured(format!("{p50:.1} ms, worst of {} {:.1} ms", times.len(), ms(times.max())))
            .baseline(format!("{alone:.1} ms a fresh home"))
            .ratio(p50 / alone)
            .reach("< 15 ms", p50 < 15.0),
    );

    let server = Server::start_at(place).await?;
    server
        .connect()
        .await?
        .call(&server.request("/agent/a5000", "get_context", &json!({})))
        .await?;
    let full = settled(&server).await?;
    listing(bench, &server, table).await?;
    place = Place::new(&config_without_model())?;
    let server = Server::start_at(place).await?;
    server.create_agents("a", 1).await?;
    let empty = settled(&server).await?;
    let more = full.rss_mib - empty.rss_mib;
    table.add(
        Row::new(format!("  idle memory with {agents} stored agents, one of them called"))
            .measured(full.to_string())
            .baseline(empty.to_string())
            .ratio(full.rss_mib / empty.rss_mib)
            .reach("+ < 2 MiB", more < 2.0),
    );
    Ok(())
}

async fn listing(bench: &Bench, server: &Server, table: &mut Table) -> anyhow::Result<()> {
    let mut connection = server.connect().await?;
    for (what, params) in [
        (format!("  a page of {PAGE} of them"), json!({"limit": PAGE})),
        ("  a page from the middle of them".into(), json!({"limit": PAGE, "after": "a10000"})),
    ] {
        let list = server.request("/", "list_agents", &params);
        let refused = connection.result(&list).await.is_err();
        if refused {
            table.add(Row::new(what).measured("the server has no pages"));
            continue;
        }
        let mut times = Vec::new();
        for _ in 0..bench.count(200) {
            times.push(time(async { connection.call(&list).await.map(|_| ()) }).await?);
        }
        let times = Latencies::new(times);
        let p50 = ms(times.p50());
        table.add(
            Row::new(what)
                .measured(format!("{p50:.2} ms, p99 {:.2} ms", ms(times.p99())))
                .reach("< 5 ms", p50 < 5.0),
        );
    }
    Ok(())
}

/// The head of the family, and one of its children.
const TOP: &str = "top";
const CHILD: &str = "child";

/// A home in which a server made a few agents and then stopped, with many more like them. Making them all over the wire
/// would take minutes, so their rows are copies of those that the server wrote, whatever their columns are.
async fn home_with(add: impl FnOnce(&mut Home) -> anyhow::Result<()>) -> anyhow::Result<Place> {
    let server = Server::start(&config_without_model()).await?;
    let mut connection = server.connect().await?;
    for params in [
        json!({"agent_id": "a0"}),
        json!({"agent_id": TOP, "preset": "trusted"}),
        json!({"agent_id": CHILD, "parent_agent_id": TOP}),
    ] {
        connection.result(&server.request("/", "create_agent", &params)).await?;
    }
    drop(connection);
    let place = server.stop().await?;
    add(&mut Home::open(&place.home())?)?;
    Ok(place)
}

struct Home {
    db: Connection,
}

impl Home {
    fn open(home: &Path) -> anyhow::Result<Self> {
        Ok(Self { db: Connection::open(home.join("nexus3.db"))? })
    }

    /// Agents without a parent, named `a1`, `a2`, …
    fn add_roots(&mut self, count: usize) -> anyhow::Result<()> {
        let names = (1..=count).map(|index| (format!("a{index}"), None));
        self.copy("a0", names)
    }

    fn add_family(&mut self, members: usize) -> anyhow::Result<()> {
        let names = (1..members).map(|index| {
            let parent = match index / CHILDREN {
                0 => TOP.into(),
                above => format!("m{above}"),
            };
            (format!("m{index}"), Some(parent))
        });
        self.copy(CHILD, names)
    }

    /// Copies an agent once for each name, beneath the parent that stands with it.
    fn copy(
        &mut self,
        from: &str,
        names: impl Iterator<Item = (String, Option<String>)>,
    ) -> anyhow::Result<()> {
        let transaction = self.db.transaction()?;
        let template: i64 =
            transaction
                .query_row("SELECT id FROM agents WHERE name = ?", [from], |row| row.get(0))?;
        let agents = columns(&transaction, "agents", &["id", "name", "parent", "depth"])?;
        let heads = columns(&transaction, "heads", &["agent_id", "log_id"])?;
        let mut depths: BTreeMap<String, i64> = BTreeMap::new();
        {
            let mut agent = transaction.prepare(&format!(
                "INSERT INTO agents (name, parent, depth, {agents})
                 SELECT ?, ?, ?, {agents} FROM agents WHERE id = ?"
            ))?;
            let mut head = transaction.prepare(&format!(
                "INSERT INTO heads (agent_id, log_id, {heads})
                 SELECT ?1, ?1, {heads} FROM heads WHERE agent_id = ?2"
            ))?;
            for (name, parent) in names {
                let above = parent.as_ref().map(|name| depths.get(name).copied().unwrap_or(0));
                let depth = above.map_or(0, |depth| depth + 1);
                agent.execute((&name, &parent, depth, template))?;
                head.execute((transaction.last_insert_rowid(), template))?;
                depths.insert(name, depth);
            }
        }
        transaction.commit().context("the copies of an agent")
    }
}

/// The columns of a table but for some, as a list in SQL.
fn columns(db: &Transaction<'_>, table: &str, without: &[&str]) -> anyhow::Result<String> {
    let mut query = db.prepare("SELECT name FROM pragma_table_info(?)")?;
    let names: Vec<String> =
        query.query_map([table], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let names = names.into_iter().filter(|name| !without.contains(&name.as_str()));
    Ok(names.collect::<Vec<_>>().join(", "))
}
