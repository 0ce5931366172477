//! What is there: as a caller sees it, in the traces of tool calls, and in the database itself.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::rpc::{Answer, Caller, Gone};
use crate::turn;
use crate::world::{Seen, Settings, TOOL, View, World, memories_of};

/// Sessions in one page of `list_sessions`.
const PAGE: usize = 1000;

/// The sessions whose names start with `prefix`.
pub async fn view(caller: &mut Caller, prefix: &str) -> anyhow::Result<View> {
    let mut view = View::new();
    let live = agents(caller, prefix).await?;
    let names = names(caller, prefix).await?;
    // Memory must not know what the store does not.
    let astray = live.iter().find(|name| !names.contains(name));
    ensure!(astray.is_none(), "{astray:?} is in the list of agents and not in the store");
    for name in names {
        let read = caller.read("get_messages", &json!({"agent_id": name, "limit": 2000})).await;
        let seen = match read {
            Answer::Done(page) => {
                ensure!(live.contains(&name), "{name} is an agent and not in the list of agents");
                seen(caller, &name, &name, &page).await?
            }
            // No agent, so a saved session. A temporary copy shows what is in it.
            Answer::Refused(refusal) if refusal.code == -32602 => {
                let copy = format!(".peek-{name}");
                let load = json!({"session_name": name, "agent_id": copy});
                caller.ok("load_session", &load).await?;
                let page =
                    caller.ok("get_messages", &json!({"agent_id": copy, "limit": 2000})).await?;
                let seen = seen(caller, &name, &copy, &page).await?;
                caller.ok("destroy_agent", &json!({"agent_id": copy})).await?;
                seen
            }
            Answer::Gone => return Err(Gone("get_messages".into()).into()),
            answer => bail!("{name} cannot be read: {answer:?}"),
        };
        view.insert(name, seen);
    }
    Ok(view)
}

async fn names(caller: &mut Caller, prefix: &str) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for offset in (0..).step_by(PAGE) {
        let page = caller.ok("list_sessions", &json!({"offset": offset, "limit": PAGE})).await?;
        let entries = page["sessions"].as_array().context("no sessions in the answer")?;
        names.extend(entries.iter().filter_map(|entry| entry["name"].as_str().map(String::from)));
        if entries.len() < PAGE {
            break;
        }
    }
    names.retain(|name| name.starts_with(prefix));
    Ok(names)
}

async fn agents(caller: &mut Caller, prefix: &str) -> anyhow::Result<Vec<String>> {
    let answer = caller.ok("list_agents", &json!({})).await?;
    let entries = answer["agents"].as_array().context("no agents in the answer")?;
    let names = entries.iter().filter_map(|entry| entry["agent_id"].as_str());
    Ok(names.filter(|name| name.starts_with(prefix)).map(String::from).collect())
}

/// What the reads of an agent answer beside the `page` with its messages, which they must agree with. The agent is the
/// session or, of one that is saved, a copy.
async fn seen(caller: &mut Caller, name: &str, agent: &str, page: &Value) -> anyhow::Result<Seen> {
    let saved = name != agent;
    let user = json!({"user_id": memories_of(name), "limit": 1000});
    let agent = json!({"agent_id": agent});
    let lines = lines(page)?;
    let context = caller.ok("get_context", &agent).await?;
    let counted = &context["message_count"];
    ensure!(*counted == lines.len(), "{name} has {} messages and counts {counted}", lines.len());
    let prompt = caller.ok("get_system_prompt", &agent).await?;
    let model = caller.ok("get_model", &agent).await?;
    let rights = caller.ok("get_permissions", &agent).await?;
    let text = |value: &Value| value.as_str().map(String::from).context("a text is missing");
    let list = |value: &Value| value.as_array().cloned().context("a list is missing");
    let settings = Settings {
        prompt: text(&prompt["system_prompt"])?,
        model: text(&model["model"])?,
        aside: text(&rights["policy"]["cwd"])?.ends_with("/aside"),
        trusted: rights["permission_level"] == "trusted",
        lacks_tool: list(&rights["disabled_tools"])?.contains(&TOOL.into()),
    };
    let memories = list(&caller.ok("memory.list", &user).await?)?;
    let memories = memories.iter().map(|memory| text(&memory["content"]));
    let memories = memories.collect::<anyhow::Result<_>>()?;
    let granted = !list(&rights["session_allowances"]["write_paths"])?.is_empty();
    Ok(Seen { saved, lines, settings, memories, granted })
}

fn lines(page: &Value) -> anyhow::Result<Vec<String>> {
    let messages = page["messages"].as_array().context("no messages in the answer")?;
    ensure!(page["total"] == messages.len(), "a page is not the whole: {}", page["total"]);
    messages.iter().map(turn::line).collect()
}

/// Every call that is written down as ended took effect, once; one that is in doubt at most once.
pub fn check_effects(world: &World, work: &Path) -> anyhow::Result<()> {
    for (name, session) in world {
        for line in &session.lines {
            let Some((call, end)) = line.strip_prefix("tool ").and_then(|it| it.split_once(' '))
            else {
                continue;
            };
            match (turn::effects(work, call)?, end) {
                (1, "ok") | (0 | 1, "interrupted") | (0, "denied") => {}
                (count, end) => bail!("{call} of {name} is {end} and took effect {count} times"),
            }
        }
    }
    Ok(())
}

/// No call took effect that is not written down: `lines` are what became of the turn with these tokens.
pub fn check_intents(tokens: &[String], lines: &[String], work: &Path) -> anyhow::Result<()> {
    let asked = |token: &String| {
        let calls = lines.iter().filter_map(|line| line.strip_prefix("calls "));
        calls.flat_map(|calls| calls.split(' ')).any(|call| call == token)
    };
    for token in tokens {
        let count = turn::effects(work, token)?;
        ensure!(count == 0 || asked(token), "{token} took effect and is not in the history");
    }
    Ok(())
}

/// No call took effect twice, in the whole run. Returns how many took effect.
pub fn count_effects(work: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(work)? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        // What lies beside them was being written when the server was killed.
        let Some(token) = name.strip_suffix(".txt") else { continue };
        let times = turn::effects(work, token)?;
        ensure!(times == 1, "{token} took effect {times} times");
        count += times;
    }
    Ok(count)
}

/// The database is whole, and so is every conversation in it.
pub fn check_database(home: &Path) -> anyhow::Result<()> {
    let path = home.join("nexus3.db");
    let db = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    db.busy_timeout(std::time::Duration::from_secs(10))?;
    let verdict: String = db.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    ensure!(verdict == "ok", "the database is damaged: {verdict}");
    for (rule, query) in [
        ("every agent has a head", "SELECT count(*) FROM agents WHERE id NOT IN (SELECT agent_id FROM heads)"),
        ("every head has an agent", "SELECT count(*) FROM heads WHERE agent_id NOT IN (SELECT id FROM agents)"),
        (
            "a log begins at nothing or where it was forked",
            "SELECT count(*) FROM (SELECT log_id, min(idx) AS first FROM messages GROUP BY log_id) m
             LEFT JOIN forks f ON f.log_id = m.log_id WHERE m.first <> coalesce(f.length, 0)",
        ),
        (
            "what a fork goes on from is there",
            "SELECT count(*) FROM forks f WHERE NOT EXISTS
                 (SELECT 1 FROM runs r JOIN messages m ON m.seq = r.seq + f.length - 1 - r.first
                  WHERE r.log_id = f.parent AND m.log_id = f.parent AND m.idx = f.length - 1)",
        ),
        (
            "every message is where its run says",
            "SELECT count(*) FROM messages m WHERE NOT EXISTS
                 (SELECT 1 FROM runs r WHERE r.log_id = m.log_id
                  AND r.first BETWEEN m.idx - 31 AND m.idx AND r.seq + m.idx - r.first = m.seq)",
        ),
        (
            "every run begins with its message",
            "SELECT count(*) FROM runs r LEFT JOIN messages m ON m.seq = r.seq
             WHERE m.log_id IS NOT r.log_id OR m.idx IS NOT r.first",
        ),
        (
            "no log has a gap",
            "SELECT count(*) FROM (SELECT log_id, max(idx) - min(idx) + 1 - count(*) AS gap
                 FROM messages GROUP BY log_id) WHERE gap <> 0",
        ),
        (
            "no log is left that nobody can read",
            "SELECT count(*) FROM (SELECT DISTINCT log_id FROM messages)
             WHERE log_id NOT IN (SELECT log_id FROM heads) AND log_id NOT IN (SELECT parent FROM forks)",
        ),
    ] {
        let broken: i64 = db.query_row(query, [], |row| row.get(0))?;
        ensure!(broken == 0, "broken {broken} times: {rule}");
    }
    Ok(())
}
