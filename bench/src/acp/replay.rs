//! A long session, opened in an editor.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::editor::{Editor, result};
use crate::Bench;
use crate::server::{Place, Server, config_without_model};
use crate::stats::median;
use crate::table::{Row, Table};

const MESSAGES: usize = 10_000;
const NAME: &str = "long";

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let place = Place::new(&config_without_model())?;
    import(&place)?;
    let what = format!("session/load of {MESSAGES} messages");
    let row = replayed(bench, &place, true)?;
    let met = row.per_second >= 50_000.0;
    table.add(row.into_row(&what).reach("≥ 50000/s", met));
    let server = Server::start_at(place).await?;
    let row = replayed(bench, &server.place, false)?;
    table.add(row.into_row("  through a server that runs"));
    Ok(())
}

struct Replayed {
    per_second: f64,
    updates: usize,
    first_ms: f64,
}

impl Replayed {
    fn into_row(self, what: &str) -> Row {
        let Self { per_second, updates, first_ms } = self;
        Row::new(what)
            .measured(format!("{per_second:.0} updates/s of {updates}"))
            .baseline(format!("{first_ms:.0} ms the first time"))
    }
}

/// Opens the session again and again; the first time its agent is restored, too.
fn replayed(bench: &Bench, place: &Place, is_embedded: bool) -> anyhow::Result<Replayed> {
    let mut editor = Editor::open(place, is_embedded)?;
    let load = json!({"sessionId": NAME, "cwd": place.cwd(), "mcpServers": []});
    let (mut rates, mut first_ms, mut updates) = (Vec::new(), 0.0, 0);
    for round in 0..=bench.count(15) {
        let started = Instant::now();
        let (line, told) = editor.ask("session/load", &load)?;
        let took = started.elapsed().as_secs_f64();
        result(&line)?;
        ensure!(told >= MESSAGES, "{told} updates of {MESSAGES} messages");
        match round {
            0 => first_ms = took * 1e3,
            _ => rates.push(told as f64 / took),
        }
        updates = told;
    }
    editor.leave()?;
    Ok(Replayed { per_second: median(rates), updates, first_ms })
}

/// Makes the session: questions, a tool called for each, and answers.
fn import(place: &Place) -> anyhow::Result<()> {
    let at = "2026-01-01T00:00:00Z";
    let turn = |number: usize| {
        let id = format!("call-{number}");
        let arguments = json!({"path": format!("src/part{number}.rs"), "offset": 1, "limit": 40});
        let call = json!({"id": id, "name": "read_file", "arguments": arguments});
        let said = |role: &str, content: String, more: Value| {
            let mut message = json!({
                "role": role, "at": at, "content": content, "request_id": format!("turn-{number}"),
            });
            for (name, value) in more.as_object().into_iter().flatten() {
                message[name] = value.clone();
            }
            message
        };
        [
            said("user", format!("What does part {number} do?"), json!({})),
            said("assistant", "I will have a look.".into(), json!({"tool_calls": [call]})),
            said("tool", "let it = 1;\n".repeat(20), json!({"tool_call_id": id})),
            said("assistant", "It sets a number. ".repeat(10), json!({})),
        ]
    };
    let messages: Vec<Value> = (0..MESSAGES / 4).flat_map(turn).collect();
    let permissions = json!({
        "level": "sandboxed", "preset": "sandboxed", "read": [place.cwd()], "write": [],
        "blocked": [], "disabled_tools": [], "network": false, "commands": false, "agents": false,
    });
    let session = json!({
        "name": NAME, "created_at": at, "updated_at": at, "provenance": "user", "depth": 0,
        "model": null, "cwd": place.cwd(), "system_prompt": null, "permissions": permissions,
        "ceiling": null, "grants": {"write_paths": [], "exec_dirs": {}},
    });
    let file = place.file("long.json");
    let whole = json!({
        "format": "nexus3.session", "version": 1, "session": session, "messages": messages,
    });
    fs::write(&file, whole.to_string())?;
    let file = file.to_str().context("a path that is no text")?;
    let status = place.command(&["session", "import", file])?.status()?;
    let log = fs::read_to_string(place.log())?;
    ensure!(status.success(), "the session was not taken: {log}");
    Ok(())
}
