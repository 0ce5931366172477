//! Agents in editors: how soon one is answered, what a prompt costs beside `send`, and a long session told again.

mod editor;
mod replay;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::Bench;
use crate::model::Model;
use crate::server::{Place, Server, config, config_without_model, cpu};
use crate::stats::{Latencies, ms};
use crate::table::{Row, Table};
use crate::turns::ASKED;
use editor::{Editor, initialize, result};

/// Agents in the home that is not fresh.
const AGENTS: usize = 200;

/// Of one session: its conversation stays an ordinary one.
const TURNS: usize = 20;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    start(bench, table).await?;
    prompts(bench, table).await?;
    replay::run(bench, table).await
}

/// From the exec of `nexus3 acp` to the answer that says what it can do.
async fn start(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let runs = bench.count(25);
    let server = Server::start(&config_without_model()).await?;
    server.create_agents("a", AGENTS).await?;
    let used = server.into_place();
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let place = Place::new(&config_without_model())?;
        fresh.push(first_answer(place.command(&["acp", "--embedded"])?)?);
        again.push(first_answer(used.command(&["acp", "--embedded"])?)?);
    }
    let server = Server::start_at(used).await?;
    let socket = server.place.socket();
    let socket = socket.to_str().context("a path that is no text")?;
    let mut bridged = Vec::new();
    for _ in 0..runs {
        bridged.push(first_answer(server.place.command(&["acp", "--connect", socket])?)?);
    }
    for (what, times, is_judged) in [
        ("nexus3 acp, exec to the answer to initialize, fresh home".into(), fresh, true),
        (format!("  home with {AGENTS} agents"), again, true),
        ("  through a server that runs".into(), bridged, false),
    ] {
        let times = Latencies::new(times);
        let p50 = ms(times.p50());
        let worst = ms(times.max());
        let row =
            Row::new(what).measured(format!("{p50:.1} ms, worst of {} {worst:.1} ms", times.len()));
        table.add(if is_judged { row.reach("< 20 ms", p50 < 20.0) } else { row });
    }
    Ok(())
}

fn first_answer(command: Command) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let mut editor = Editor::start(command)?;
    let answered = editor.result("initialize", &initialize())?;
    let took = started.elapsed();
    ensure!(answered["protocolVersion"] == 1, "{answered}");
    editor.leave()?;
    Ok(took)
}

/// Turns of agents that do the same, in an editor and with `send` on standard input.
async fn prompts(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("Certainly: here is a short answer.")).await?;
    let place = Place::new(&config(&model.url()))?;
    let mut editor = Editor::open(&place, true)?;
    let cwd = place.cwd();
    let plain_place = Place::new(&config(&model.url()))?;
    let mut plain = Editor::start(plain_place.command(&["--stdio"])?)?;
    let streaming_place = Place::new(&config(&model.url()))?;
    let mut streaming = Editor::start(streaming_place.command(&["--stdio"])?)?;
    let (mut prompts, mut sends, mut streams) = <(Times, Times, Times)>::default();
    let agents = bench.count(25);
    for agent in 0..agents {
        let opened = editor.result("session/new", &json!({"cwd": cwd, "mcpServers": []}))?;
        let prompt = [json!({"type": "text", "text": ASKED})];
        let prompt = json!({"sessionId": opened["sessionId"], "prompt": prompt});
        let agent = format!("a{agent}");
        // What an editor's agents may do.
        let made = json!({"agent_id": agent, "preset": "trusted"});
        plain.result("create_agent", &made)?;
        streaming.result("create_agent", &made)?;
        let send = json!({"agent_id": agent, "content": ASKED});
        let stream = json!({"agent_id": agent, "content": ASKED, "stream": true});
        for _ in 0..TURNS {
            let answered = prompts.time(&mut editor, "session/prompt", &prompt)?;
            ensure!(answered["stopReason"] == "end_turn", "{answered}");
            streams.time(&mut streaming, "send", &stream)?;
            sends.time(&mut plain, "send", &send)?;
        }
    }
    let (prompt, prompt_used) = prompts.p50();
    for (what, times) in [
        (format!("session/prompt against send on stdio, p50 of {} turns", agents * TURNS), sends),
        ("  against send with stream".into(), streams),
    ] {
        let (send, send_used) = times.p50();
        let added = prompt - send;
        table.add(
            Row::new(what)
                .measured(format!("{added:.2} ms more ({prompt:.2} ms), {prompt_used:.2} ms CPU"))
                .baseline(format!("{send:.2} ms, {send_used:.2} ms CPU"))
                .ratio(prompt / send)
                .reach("≤ 0.2 ms", added <= 0.2),
        );
    }
    Ok(())
}

#[derive(Default)]
struct Times {
    took: Vec<Duration>,
    /// Of the processor.
    used: Vec<Duration>,
}

impl Times {
    fn time(&mut self, at: &mut Editor, method: &str, params: &Value) -> anyhow::Result<Value> {
        let used_before = cpu(at.pid())?;
        let started = Instant::now();
        let (line, _) = at.ask(method, params)?;
        self.took.push(started.elapsed());
        self.used.push(cpu(at.pid())?.saturating_sub(used_before));
        result(&line)
    }

    /// In milliseconds.
    fn p50(self) -> (f64, f64) {
        let [took, used] = [self.took, self.used].map(|times| ms(Latencies::new(times).p50()));
        (took, used)
    }
}
