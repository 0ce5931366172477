//! What an idle server and its idle agents take.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use nexus_testkit::Reply;
use serde_json::json;

use crate::Bench;
use crate::client::{Until, hammer};
use crate::model::Model;
use crate::server::{Server, config, rss_kib};
use crate::table::{Row, Table};
use crate::turns::send_request;

const AGENTS: usize = 10_000;
const CALLERS: usize = 16;

/// Until queues are empty and the log is written.
const SETTLE: Duration = Duration::from_millis(500);

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("Certainly.")).await?;
    let server = Server::start(&config(&model.url())).await?;
    let fresh = settled(&server).await?;
    table.add(
        Row::new("memory of a fresh server")
            .measured(fresh.to_string())
            .reach("< 15 MiB", fresh.rss_mib < 15.0),
    );
    if bench.breakdown {
        print_breakdown(server.pid())?;
    }
    let rss = || async {
        tokio::time::sleep(SETTLE).await;
        rss_kib(server.pid())
    };
    server.create_agents("a", 1).await?;
    let idle = rss().await?;
    table.add(
        Row::new("  with one agent")
            .measured(format!("{:.1} MiB", idle / 1024.0))
            .reach("< 15 MiB", idle < 15.0 * 1024.0),
    );

    let agents = bench.count(AGENTS);
    let create = server.request("/", "create_agent", &json!({}));
    let until = Until::Calls(agents / CALLERS);
    hammer(server.address, &vec![create; CALLERS], until).await?;
    let full = rss().await?;
    let each = (full - idle) / agents as f64;
    table.add(
        Row::new(format!("  each further idle agent, of {agents}"))
            .measured(format!("{each:.1} KiB"))
            .reach("< 20 KiB", each < 20.0),
    );

    let fresh = Server::start(&config(&model.url())).await?;
    fresh.create_agents("a", 1).await?;
    let mut connection = fresh.connect().await?;
    connection.result(&send_request(&fresh, "a0")).await?;
    tokio::time::sleep(SETTLE).await;
    let after_turn = rss_kib(fresh.pid())?;
    if bench.breakdown {
        print_breakdown(fresh.pid())?;
    }
    connection.result(&fresh.request("/agent/a0", "get_tokens", &json!({}))).await?;
    tokio::time::sleep(SETTLE).await;
    table.add(Row::new("  after a turn; after a get_tokens, which loads the tokenizer").measured(
        format!("{:.1} MiB; {:.1} MiB", after_turn / 1024.0, rss_kib(fresh.pid())? / 1024.0),
    ));
    Ok(())
}

/// What a process has in memory, and how much of it nobody shares and the disk does not have.
pub struct Memory {
    pub rss_mib: f64,
    pub private_dirty_mib: f64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MiB, {:.1} private dirty", self.rss_mib, self.private_dirty_mib)
    }
}

impl Memory {
    /// What a process takes now.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let mib = |name: &str| {
            let kib = rollup.lines().find_map(|line| field(line, name));
            kib.map(|kib| kib / 1024.0).with_context(|| format!("no {name}"))
        };
        Ok(Self { rss_mib: mib("Rss")?, private_dirty_mib: mib("Private_Dirty")? })
    }
}

/// What a server takes once it has come to rest.
pub async fn settled(server: &Server) -> anyhow::Result<Memory> {
    tokio::time::sleep(SETTLE).await;
    Memory::of(server.pid())
}

/// The KiB in a line such as `Rss:      12 kB`.
fn field(line: &str, name: &str) -> Option<f64> {
    let value = line.strip_prefix(name)?.strip_prefix(':')?;
    value.trim().trim_end_matches(" kB").parse().ok()
}

/// Prints what a process's memory is made of, largest first, from the kernel's list of its mappings.
fn print_breakdown(pid: u32) -> anyhow::Result<()> {
    #[derive(Default)]
    struct Part {
        mappings: usize,
        rss: f64,
        dirty: f64,
    }
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    let mut name = String::new();
    for line in fs::read_to_string(format!("/proc/{pid}/smaps"))?.lines() {
        if let Some(kib) = field(line, "Rss") {
            parts.entry(name.clone()).or_default().rss += kib;
        } else if let Some(kib) = field(line, "Private_Dirty") {
            parts.entry(name.clone()).or_default().dirty += kib;
        } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            name = part_name(line);
            parts.entry(name.clone()).or_default().mappings += 1;
        }
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?.count();
    println!("  {threads} threads; {:>9} {:>9} {:>9}  what", "RSS KiB", "dirty KiB", "mappings");
    let mut parts: Vec<_> = parts.into_iter().filter(|(_, part)| part.rss > 0.0).collect();
    parts.sort_by(|(_, a), (_, b)| b.rss.total_cmp(&a.rss));
    for (name, Part { mappings, rss, dirty }) in parts {
        println!("  {:>20.0} {dirty:>9.0} {mappings:>9}  {name}", rss);
    }
    Ok(())
}

/// What a mapping is, by the line that heads it: addresses, rights, offset, device, inode and a path or a name.
fn part_name(line: &str) -> String {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = words.nth(3).unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let bytes = range.split_once('-').and_then(|(from, to)| {
        Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
    });
    match (path, &rights[..rights.len().min(3)], bytes.unwrap_or(0)) {
        ("[heap]", ..) => "heap of the C library".into(),
        ("[stack]", ..) => "stack of the first thread".into(),
        ("", "rw-", 2_097_152 | 8_388_608) => "stacks of threads".into(),
        ("", "rw-", _) => "heap and other anonymous memory".into(),
        ("", ..) => "anonymous, reserved".into(),
        (_, "r-x", _) => format!("{file}: code"),
        (_, "rw-", _) if !file.contains(".db") => format!("{file}: written data"),
        (_, "r--", _) => format!("{file}: constants"),
        _ => format!("{file}: shared"),
    }
}
