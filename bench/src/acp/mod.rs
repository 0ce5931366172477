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
    let (mut prompts, mut sends, mut prompt_used, mut send_used) = (vec![], vec![], vec![], vec![]);
    let agents = bench.count(25);
    for agent in 0..agents {
        let opened = editor.result("session/new", &json!({"cwd": cwd, "mcpServers": []}))?;
        let prompt = [json!({"type": "text", "text": ASKED})];
        let prompt = json!({"sessionId": opened["sessionId"], "prompt": prompt});
        let agent = format!("a{agent}");
        // What an editor's agents may do.
        plain.result("create_agent", &json!({"agent_id": agent, "preset": "trusted"}))?;
        let send = json!({"agent_id": agent, "content": ASKED});
        for _ in 0..TURNS {
            let Timed { took, used, answered } = timed(&mut editor, "session/prompt", &prompt)?;
            ensure!(answered["stopReason"] == "end_turn", "{answered}");
            prompts.push(took);
            prompt_used.push(used);
            let Timed { took, used, .. } = timed(&mut plain, "send", &send)?;
            sends.push(took);
            send_used.push(used);
        }
    }
    let p50 = |times| ms(Latencies::new(times).p50());
    let (prompt, send, prompt_used, send_used) =
        (p50(prompts), p50(sends), p50(prompt_used), p50(send_used));
    let added = prompt - send;
    table.add(
        Row::new(format!("session/prompt against send on stdio, p50 of {} turns", agents * TURNS))
            .measured(format!("{added:.2} ms more ({prompt:.2} ms), {prompt_used:.2} ms CPU"))
            .baseline(format!("{send:.2} ms, {send_used:.2} ms CPU"))
            .ratio(prompt / send)
            .reach("≤ 0.2 ms", added <= 0.2),
    );
    Ok(())
}

struct Timed {
    took: Duration,
    /// Of the processor.
    used: Duration,
    answered: Value,
}

fn timed(editor: &mut Editor, method: &str, params: &Value) -> anyhow::Result<Timed> {
    let used_before = cpu(editor.pid())?;
    let started = Instant::now();
    let (line, _) = editor.ask(method, params)?;
    let took = started.elapsed();
    let used = cpu(editor.pid())?.saturating_sub(used_before);
    Ok(Timed { took, used, answered: result(&line)? })
}
