//! Many sessions, long ones, and what a turn costs on disk.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use nexus_testkit::Reply;
use serde_json::json;

use crate::Bench;
use crate::model::Model;
use crate::server::{Place, Server, config, config_without_model};
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};
use crate::turns::time;
use crate::wal::Wal;

const SESSIONS: usize = 10_000;
const CALLERS: usize = 16;
const MESSAGES: usize = 10_000;

/// Agents whose conversations lie behind the one that goes on.
const BEHIND: usize = 20;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    listing(bench, table).await?;
    long(bench, table).await?;
    for (name, bytes, counted) in
        [("short", 100, 500), ("medium", 4 << 10, 200), ("long", 64 << 10, 15)]
    {
        let turns = Turns { bytes, counted, behind: 0 };
        let (row, met) = written(bench, &format!("disk written for a {name} turn"), &turns).await?;
        table.add(row.reach("≤ 1", met));
    }
    let turns = Turns { bytes: 100, counted: 300, behind: BEHIND };
    let what = format!("  with {BEHIND} later conversations behind it, a turn");
    table.add(written(bench, &what, &turns).await?.0);
    Ok(())
}

async fn listing(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(&config_without_model()).await?;
    server.create_agents("a", 1).await?;
    let each = bench.count(SESSIONS) / CALLERS;
    let clones = (0..CALLERS).map(|caller| {
        let server = &server;
        async move {
            let mut connection = server.connect().await?;
            for index in 0..each {
                let to = format!("s{caller}-{index}");
                let params = json!({"src_session": "a0", "dest_session": to});
                connection.result(&server.request("/", "clone_session", &params)).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(clones).await?;
    let saved = each * CALLERS;
    let server = Server::start_at(server.into_place()).await?;
    let mut connection = server.connect().await?;
    for (what, offset, judged) in [
        (format!("a page of 50 of {saved} saved sessions: p50"), 0, true),
        ("  from the middle of the list".into(), saved / 2, false),
    ] {
        let list = server.request("/", "list_sessions", &json!({"offset": offset}));
        let mut times = Vec::new();
        for _ in 0..bench.count(200) {
            times.push(time(connection.result(&list)).await?);
        }
        let times = Latencies::new(times);
        let p50 = ms(times.p50());
        let row = Row::new(what).measured(format!("{p50:.2} ms, p99 {:.2} ms", ms(times.p99())));
        table.add(if judged { row.reach("< 5 ms", p50 < 5.0) } else { row });
    }
    Ok(())
}

async fn long(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("Certainly. ".repeat(10))).await?;
    let server = Server::start(&config(&model.url())).await?;
    server.create_agents("a", 1).await?;
    let turns = bench.count(MESSAGES) / 2;
    let mut connection = server.connect().await?;
    let send = crate::turns::send_request(&server, "a0");
    for _ in 0..turns {
        connection.result(&send).await?;
    }
    let messages = turns * 2;

    let page = |offset: usize| {
        let params = json!({"offset": offset, "limit": 100});
        server.request("/agent/a0", "get_messages", &params)
    };
    let (first, last) = (page(0), page(messages - 100));
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for _ in 0..bench.count(200) {
        early.push(time(connection.result(&first)).await?);
        late.push(time(connection.result(&last)).await?);
    }
    let (early, late) = (ms(Latencies::new(early).p50()), ms(Latencies::new(late).p50()));
    table.add(
        Row::new(format!("get_messages, the last 100 of {messages} against the first"))
            .measured(format!("{late:.2} ms"))
            .baseline(format!("{early:.2} ms"))
            .ratio(late / early)
            .reach("≤ 2", late / early <= 2.0),
    );

    drop(connection);
    let place = server.stop().await?;
    let before = stored_bytes(&place)?;
    let server = Server::start_at(place).await?;
    let mut connection = server.connect().await?;
    let clones = bench.count(200);
    let mut times = Vec::new();
    for index in 0..clones {
        let params = json!({"src_session": "a0", "dest_session": format!("copy{index}")});
        let clone = server.request("/", "clone_session", &params);
        times.push(time(connection.result(&clone)).await?);
    }
    let times = Latencies::new(times);
    drop(connection);
    let mut place = server.stop().await?;
    let grown = stored_bytes(&place)?.saturating_sub(before) as f64 / clones as f64;
    table.add(
        Row::new(format!("clone_session of {messages} messages: p50"))
            .measured(format!(
                "{:.2} ms, p99 {:.2} ms, {grown:.0} bytes",
                ms(times.p50()),
                ms(times.p99()),
            ))
            .reach("< 10 ms", ms(times.p50()) < 10.0),
    );

    let mut times = Vec::new();
    for _ in 0..bench.count(10) {
        let server = Server::start_at(place).await?;
        let mut connection = server.connect().await?;
        connection.result(&server.request("/", "rpc.version", &json!({}))).await?;
        let touch = server.request("/agent/a0", "get_context", &json!({}));
        times.push(time(connection.result(&touch)).await?);
        place = server.into_place();
    }
    let times = Latencies::new(times);
    let p50 = ms(times.p50());
    table.add(
        Row::new(format!("restore an agent with {messages} messages: p50"))
            .measured(format!("{p50:.1} ms, worst {:.1} ms", ms(times.max())))
            .reach("< 50 ms", p50 < 50.0),
    );
    Ok(())
}

/// The bytes of the database of a server that has stopped.
fn stored_bytes(place: &Place) -> anyhow::Result<u64> {
    Ok(fs::metadata(place.home().join("nexus3.db"))?.len())
}

struct Turns {
    /// What each side says.
    bytes: usize,
    /// Of how many turns the write-ahead log is counted: so few that it does not begin anew meanwhile.
    counted: usize,
    /// Agents that were made after this one and have spoken. A conversation that is not the last in the table has no
    /// room to grow, and SQLite moves rows about for it.
    behind: usize,
}

/// What the server writes to the disk for a turn, to the byte, out of the store's write-ahead log; and whether it is
/// within what is allowed.
///
/// The kernel's own count stands beside it and is not judged: it is of whole blocks of 4 KiB, however few bytes of one
/// were written, and of a block once more with each flush. A turn is flushed twice, what was asked before the model is
/// called and what was answered before it is told, so no turn can count less than two or three blocks.
async fn written(bench: &Bench, what: &str, turns: &Turns) -> anyhow::Result<(Row, bool)> {
    let &Turns { bytes, counted, behind } = turns;
    let text = "word ".repeat(bytes / 5);
    let model = Model::instant(Reply::text(text.clone())).await?;
    let server = Server::start(&config(&model.url())).await?;
    server.create_agents("a", 1 + behind).await?;
    let mut connection = server.connect().await?;
    for index in 1..=behind {
        connection.result(&crate::turns::send_request(&server, &format!("a{index}"))).await?;
    }
    let send = server.request("/agent/a0", "send", &json!({"content": text}));
    for _ in 0..10 {
        connection.result(&send).await?;
    }
    let turns = bench.count(500);
    let counted = counted.min(turns);
    let log_file = server.place.home().join("nexus3.db-wal");
    let wal = Wal::read(&log_file)?;
    let (before, logged_before) = (disk_bytes(server.pid())?, logged(&server.place));
    for _ in 0..counted {
        connection.result(&send).await?;
    }
    let written = Wal::read(&log_file)?.since(&wal)?;
    for _ in counted..turns {
        connection.result(&send).await?;
    }
    // Until the log of the agent is written.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let blocks = (disk_bytes(server.pid())? - before) as f64 / turns as f64;
    // What people read is a copy that the store does not need.
    let log = (logged(&server.place) - logged_before) as f64 / turns as f64;
    let own = (2 * text.len()) as f64;
    let most = 3.0 * own + 4096.0;
    let each = written.bytes as f64 / counted as f64;
    let pages = written.frames as f64 / counted as f64;
    let row = Row::new(format!("{what} of {own:.0} bytes"))
        .measured(format!(
            "{each:.0} bytes, {pages:.2} pages logged; {:.0} in whole blocks, and {log:.0} of logs",
            blocks - log
        ))
        .baseline(format!("{most:.0}: three times and a page"))
        .ratio(each / most);
    Ok((row, each <= most))
}

/// Bytes of the logs of the server and of its one agent.
fn logged(place: &Place) -> u64 {
    let agent = place.cwd().join(".nexus3/logs/a0/context.md");
    [place.log(), agent].iter().map(|file| fs::metadata(file).map_or(0, |file| file.len())).sum()
}

/// What a process has had written to the disk so far.
fn disk_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("io"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("no write_bytes")?.trim().parse()?)
}
