//! One long session: at rest, while answers come, and after a great many of them.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nexus_testkit::Reply;

use super::answers::{markdown, tokens};
use super::typing::{keys, row};
use super::{Conversation, place};
use crate::Bench;
use crate::memory::Memory;
use crate::model::Model;
use crate::stats::Latencies;
use crate::streaming::steady;
use crate::table::{Row, Table};

const MB: usize = 1_000_000;

/// Pieces in which a model speaks that says all at once.
const PIECE_BYTES: usize = 4_000;

/// Turns of 1 MB in one conversation, whose whole history goes to the model with each.
const TURNS_EACH: usize = 5;

/// A key that comes sooner after a question is the input's.
const QUESTION_LEARNED: Duration = Duration::from_millis(600);

/// Until what was begun is done.
const SETTLE: Duration = Duration::from_millis(1_500);

pub fn run(bench: &Bench, model: &Model, table: &mut Table) -> anyhow::Result<()> {
    let place = place(model)?;
    let mut session = Conversation::begin(&place)?;
    session.pty.pass(SETTLE)?;
    let fresh = Memory::of(session.pty.pid())?;
    // The pages of the binary's file are the kernel's to take back, and the server has the same ones.
    table.add(
        Row::new("memory of the terminal at its first prompt")
            .measured(fresh.to_string())
            .reach("private < 12 MB", fresh.private_dirty_mib < 12.0),
    );
    session.ask()?;
    session.answered()?;
    session.pty.pass(SETTLE)?;
    table.add(idle(bench, &session)?);
    let samples = bench.count(500);
    table.add(row("key to its echo, nothing else happens", &keys(&mut session.pty, samples)?));
    table.add(typed_while_streaming(bench, &mut session, model, "10,000 tokens/s come")?);
    for row in paced(bench, &mut session, model)? {
        table.add(row);
    }
    let megabytes = bench.count(100);
    table.add(many(&mut session, model, megabytes)?);
    let after = Memory::of(session.pty.pid())?;
    table.add(
        Row::new(format!("memory of the terminal after {megabytes} MB of answers"))
            .measured(after.to_string())
            .baseline(format!("{fresh} before"))
            .ratio(after.private_dirty_mib / fresh.private_dirty_mib)
            .reach("private < 25 MB", after.private_dirty_mib < 25.0),
    );
    table.add(row("  key to its echo then", &keys(&mut session.pty, samples)?));
    table.add(typed_while_streaming(bench, &mut session, model, "10,000 tokens/s come then")?);
    table.add(one_line(bench, &mut session, model)?);
    session.close()
}

/// How often the terminal is woken though nothing happens.
fn idle(bench: &Bench, session: &Conversation) -> anyhow::Result<Row> {
    let time = bench.round() * 10;
    let before = switches(session.pty.pid())?;
    std::thread::sleep(time);
    let woken = switches(session.pty.pid())? - before;
    let seconds = time.as_secs_f64();
    Ok(Row::new("  times it is woken at rest")
        .measured(format!("{woken} in {seconds:.0} s"))
        .reach("0", woken == 0))
}

/// Keys while an answer comes at a pace that no model has yet.
fn typed_while_streaming(
    bench: &Bench,
    session: &mut Conversation,
    model: &Model,
    what: &str,
) -> anyhow::Result<Row> {
    let samples = bench.count(500);
    // Longer than the keys take.
    let text = markdown(samples * 2_000);
    model.set_default(steady(tokens(&text)));
    Ok(row(format!("  while {what}"), &typed_meanwhile(session, samples)?))
}

/// Keys while the model says what never ends by itself.
fn typed_meanwhile(session: &mut Conversation, samples: usize) -> anyhow::Result<Latencies> {
    session.ask()?;
    session.pty.until("writing")?;
    let times = keys(&mut session.pty, samples)?;
    session.pty.press("\x1b")?;
    session.answered()?;
    Ok(times)
}

/// What goes to the terminal for an answer at that pace.
fn paced(bench: &Bench, session: &mut Conversation, model: &Model) -> anyhow::Result<[Row; 2]> {
    let text = markdown(bench.count(MB));
    model.set_default(steady(tokens(&text)));
    let (before, began) = (session.pty.counts, Instant::now());
    session.ask()?;
    session.answered()?;
    let seconds = began.elapsed().as_secs_f64();
    let (counts, megabytes) = (session.pty.counts, text.len() as f64 / MB as f64);
    let bytes = (counts.bytes - before.bytes) as f64 / MB as f64;
    let frames = (counts.frames - before.frames) as f64 / seconds;
    let rate = tokens(&text).count() as f64 / seconds;
    Ok([
        Row::new(format!("bytes to the terminal for {megabytes:.1} MB of answer"))
            .measured(format!("{bytes:.2} MB"))
            .baseline(format!("{megabytes:.2} MB at {rate:.0} tokens/s"))
            .ratio(bytes / megabytes)
            .reach("< 1.3", bytes < 1.3 * megabytes),
        Row::new("  frames").measured(format!("{frames:.1}/s")).reach("≤ 60/s", frames <= 60.0),
    ])
}

/// Answers as fast as they go.
fn many(session: &mut Conversation, model: &Model, megabytes: usize) -> anyhow::Result<Row> {
    let text = markdown(MB);
    let (before, mut spent) = (session.pty.counts, Duration::ZERO);
    for number in 0..megabytes {
        if number % TURNS_EACH == 0 {
            session.pty.press(&format!("/agent long-{number}\r"))?;
            session.pty.until("Create it?")?;
            session.pty.pass(QUESTION_LEARNED)?;
            session.pty.press("y")?;
            session.pty.until(&format!("long-{number}> "))?;
        }
        // Who was left behind by the server is told what was said, and not how the turn ended.
        let last = format!("That was answer {number}.");
        model.set_default(at_once(&format!("{text}{last}")));
        let began = Instant::now();
        session.ask()?;
        session.pty.until(&last)?;
        spent += began.elapsed();
    }
    let seconds = spent.as_secs_f64();
    let bytes = (session.pty.counts.bytes - before.bytes) as f64 / MB as f64;
    let said = (megabytes * text.len()) as f64 / MB as f64;
    session.pty.pass(SETTLE)?;
    Ok(Row::new("  when the model says all at once")
        .measured(format!("{bytes:.1} MB, {:.1} MB of answer/s", said / seconds))
        .baseline(format!("{said:.1} MB"))
        .ratio(bytes / said)
        .reach("< 1.3", bytes < 1.3 * said))
}

/// Keys while an answer comes that is one line.
fn one_line(bench: &Bench, session: &mut Conversation, model: &Model) -> anyhow::Result<Row> {
    // An answer has at most 4 MiB: a longer one ends its turn.
    let megabytes = bench.count(4);
    model.set_default(at_once(&"word ".repeat(megabytes * MB / 5)).then_hang());
    let times = typed_meanwhile(session, bench.count(200))?;
    Ok(row(format!("  while a line of {megabytes} MB comes"), &times))
}

fn at_once(text: &str) -> Reply {
    let pieces = text.as_bytes().chunks(PIECE_BYTES);
    Reply::chunks(pieces.map(|piece| String::from_utf8_lossy(piece)))
}

/// How often threads of the process have begun to wait.
fn switches(pid: u32) -> anyhow::Result<u64> {
    let mut all = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += line.context("no voluntary_ctxt_switches")?.trim().parse::<u64>()?;
    }
    Ok(all)
}
