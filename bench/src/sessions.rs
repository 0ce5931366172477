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

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    listing(bench, table).await?;
    long(bench, table).await?;
    for (what, turns) in [
        (
            "disk written for a short turn",
            Turns { bytes: 100, counted: 500, speakers: 1, silent: 0 },
        ),
        (
            "disk written for a medium turn",
            Turns { bytes: 4 << 10, counted: 200, speakers: 1, silent: 0 },
        ),
        (
            "disk written for a long turn",
            Turns { bytes: 64 << 10, counted: 15, speakers: 1, silent: 0 },
        ),
        (
            "disk written for a turn beside 20 agents",
            Turns { bytes: 100, counted: 500, speakers: 1, silent: 20 },
        ),
    ] {
        let (row, met) = written(bench, what, &turns).await?;
        table.add(row.reach("≤ 1", met));
    }
    let turns = Turns { bytes: 100, counted: 400, speakers: 2, silent: 20 };
    table.add(written(bench, "  where two agents take turns, a turn", &turns).await?.0);
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
    /// Agents that speak, one after the other.
    speakers: usize,
    /// Agents that were made after them, have spoken, and do not any more.
    silent: usize,
}

/// What the server writes to the disk for a turn, to the byte, out of the store's write-ahead log; and whether it is
/// within what is allowed.
///
/// The kernel's own count stands beside it and is not judged: it is of whole blocks of 4 KiB, however few bytes of one
/// were written, and of a block once more with each flush. A turn is flushed twice, what was asked before the model is
/// called and what was answered before it is told, so no turn can count less than two or three blocks.
async fn written(bench: &Bench, what: &str, turns: &Turns) -> anyhow::Result<(Row, bool)> {
    let &Turns { bytes, counted, speakers, silent } = turns;
    let text = "word ".repeat(bytes / 5);
    let model = Model::instant(Reply::text(text.clone())).await?;
    let server = Server::start(&config(&model.url())).await?;
    server.create_agents("a", speakers + silent).await?;
    let mut connection = server.connect().await?;
    for index in speakers..speakers + silent {
        connection.result(&crate::turns::send_request(&server, &format!("a{index}"))).await?;
    }
    let send = |speaker: usize| {
        server.request(&format!("/agent/a{speaker}"), "send", &json!({"content": text}))
    };
    let sends: Vec<_> = (0..speakers).map(send).collect();
    let mut sends = sends.iter().cycle();
    for send in sends.by_ref().take(10) {
        connection.result(send).await?;
    }
    let turns = bench.count(500);
    let counted = counted.min(turns);
    let log_file = server.place.home().join("nexus3.db-wal");
    let wal = Wal::read(&log_file)?;
    let (before, logged_before) = (disk_bytes(server.pid())?, logged(&server.place, speakers));
    for send in sends.by_ref().take(counted) {
        connection.result(send).await?;
    }
    let written = Wal::read(&log_file)?.since(&wal)?;
    for send in sends.take(turns - counted) {
        connection.result(send).await?;
    }
    // Until the logs of the agents are written.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let blocks = (disk_bytes(server.pid())? - before) as f64 / turns as f64;
    // What people read is a copy that the store does not need.
    let log = (logged(&server.place, speakers) - logged_before) as f64 / turns as f64;
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

/// Bytes of the logs of the server and of those who speak.
fn logged(place: &Place, speakers: usize) -> u64 {
    let of_agent = |at: usize| place.home().join(format!("logs/a{at}/context.md"));
    let files = (0..speakers).map(of_agent).chain([place.log()]);
    files.map(|file| fs::metadata(file).map_or(0, |file| file.len())).sum()
}

/// What a process has had written to the disk so far.
fn disk_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("io"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("no write_bytes")?.trim().parse()?)
}
