//! `nexus3 trace`: what agents do, while they do it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use nexus_client::{NexusClient, WatchItem};
use nexus_protocol::agent::AgentEntry;
use nexus_protocol::watch::{Event, Happened, Snapshot, TurnEntry, WatchEvent, WatchParams};
use serde_json::value::RawValue;

use crate::output::{print, print_json};
use crate::printed::{self, harmless, harmless_line};
use crate::rpc::{self, ServerArgs, note};

#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Name of the agent; all agents when absent
    name: Option<String>,
    /// Shows all agents as a tree with what they do and have cost, and again when that changes
    #[arg(long, conflicts_with = "name")]
    tree: bool,
    /// Shows how things stand, and ends
    #[arg(long)]
    once: bool,
    /// Prints the events as lines of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub async fn run(args: TraceArgs) -> ExitCode {
    let done = trace(&args).await.map(|()| ExitCode::SUCCESS);
    rpc::concluded(done, &args.server)
}

/// Follows until the server stops or nothing is left to see. What was missed by a reader that is too slow comes after.
async fn trace(args: &TraceArgs) -> anyhow::Result<()> {
    let client = rpc::client(&args.server, None)?;
    let mut after = BTreeMap::new();
    let mut printer = Printer::new(args);
    while follow(&client, args, &mut after, &mut printer).await? {}
    Ok(())
}

/// Prints one watch to its end; true when another is to go on where it ended.
async fn follow(
    client: &NexusClient,
    args: &TraceArgs,
    after: &mut BTreeMap<String, i64>,
    printer: &mut Printer,
) -> anyhow::Result<bool> {
    let params = WatchParams {
        agents: args.name.clone().map(|name| vec![name]),
        deltas: Some(false),
        after: (!after.is_empty()).then(|| after.clone()),
        ..WatchParams::default()
    };
    let mut watch = client.watch(params).await?;
    while let Some(item) = watch.next().await {
        match item? {
            WatchItem::Event(event) => {
                let is_whole = matches!(&event.happened.event, Event::Snapshot(it) if !it.more);
                printer.put(&event, watch.raw()?)?;
                note(after, *event);
                if args.once && is_whole {
                    return Ok(false);
                }
            }
            WatchItem::Unknown(raw) => printer.put_unknown(&raw)?,
            WatchItem::Done(result) => return Ok(result.reason == "gap"),
        }
    }
    Ok(false)
}

/// What becomes of events.
enum Printer {
    Json,
    Lines {
        /// How things stood was said, and is not said again after a gap.
        begun: bool,
    },
    Tree(Tree),
}

impl Printer {
    fn new(args: &TraceArgs) -> Self {
        match (args.json, args.tree) {
            (true, _) => Self::Json,
            (false, true) => Self::Tree(Tree::default()),
            (false, false) => Self::Lines { begun: false },
        }
    }

    fn put(&mut self, event: &WatchEvent, raw: &RawValue) -> anyhow::Result<()> {
        match self {
            Self::Json => print_json(format!("{raw}\n")),
            Self::Lines { begun } => match &event.happened.event {
                Event::Snapshot(_) if *begun => Ok(()),
                Event::Snapshot(snapshot) => {
                    *begun = !snapshot.more;
                    print(standing(snapshot))
                }
                _ => print(line(&event.happened).unwrap_or_default()),
            },
            Self::Tree(tree) => match tree.take(&event.happened) {
                true => print(format!("{}\n", tree.shown())),
                false => Ok(()),
            },
        }
    }

    fn put_unknown(&self, raw: &RawValue) -> anyhow::Result<()> {
        match self {
            Self::Json => print_json(format!("{raw}\n")),
            Self::Lines { .. } | Self::Tree(_) => Ok(()),
        }
    }
}

/// How things stand: agents, and what those that are busy have said.
fn standing(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    for watched in &snapshot.agents {
        let _ = writeln!(out, "{}", card(&watched.agent));
        watched.turns.iter().for_each(|turn| out.push_str(&turn_standing(turn)));
    }
    for approval in &snapshot.approvals {
        let (agent, tool) = (harmless_line(&approval.agent_id), harmless_line(&approval.tool));
        let _ =
            writeln!(out, "? {agent} waits for leave: {tool}: {}", harmless_line(&approval.reason));
    }
    out
}

fn turn_standing(turn: &TurnEntry) -> String {
    let mut out = String::new();
    let asked = printed::shortened(&harmless_line(&turn.asked.content));
    let _ = writeln!(out, "  {}: {asked}", harmless_line(&turn.status));
    if let Some(running) = &turn.running {
        for line in running.text.lines() {
            let _ = writeln!(out, "    {}", harmless(line));
        }
        for call in &running.open_calls {
            let _ = writeln!(out, "    {}", printed::tool_call(call));
        }
    }
    out
}

/// An agent in one line.
fn card(agent: &AgentEntry) -> String {
    let model = agent.model.as_deref().map(harmless_line).unwrap_or_else(|| "no model".into());
    format!(
        "{} {} · {model} · {} · {} messages · {} tokens{}",
        harmless_line(&agent.agent_id),
        harmless_line(&agent.status),
        harmless_line(&agent.permission_level).to_lowercase(),
        agent.message_count,
        agent.usage.tokens,
        printed::dollars(agent.usage.cost_usd),
    )
}

/// What happened, in lines that say when and to whom; `None` where that was said already or is of no interest.
fn line(happened: &Happened) -> Option<String> {
    let at = happened.at.parse::<Timestamp>().map(printed::clock).unwrap_or_default();
    let agent = harmless_line(happened.agent_id.as_deref().unwrap_or("server"));
    let text = match &happened.event {
        Event::TurnQueued { asked, position } => {
            format!("queued {position}: {}\n", harmless(&asked.content))
        }
        Event::TurnStarted { asked, resumed, model } => {
            let source = asked.source_agent_id.as_deref().or(asked.source.as_deref());
            let source =
                source.map(|it| format!(" from {}", harmless_line(it))).unwrap_or_default();
            let model = model.as_deref().map(harmless_line).unwrap_or_default();
            match resumed {
                true => format!("▶ goes on{source} ({model})\n"),
                false => format!("▶{source} ({model}) {}\n", harmless(&asked.content)),
            }
        }
        // Questions are told with their turns, calls with what was said before them, and results by themselves.
        Event::Message { message, .. } if message.role == "assistant" => {
            let said = Some(harmless(&message.content)).filter(|said| !said.is_empty());
            let calls = message.tool_calls.iter().map(printed::tool_call);
            let lines = said.into_iter().chain(calls).map(|it| format!("{at} {agent} {it}\n"));
            return Some(lines.collect()).filter(|lines: &String| !lines.is_empty());
        }
        Event::ToolProgress { id, progress, total, message } => {
            let total = total.as_ref().map(|it| format!("/{it}")).unwrap_or_default();
            let message = message.as_ref().map(|it| format!(" {}", harmless_line(it)));
            let id = printed::short_id(id);
            format!("… [{id}] {progress}{total}{}\n", message.unwrap_or_default())
        }
        Event::ToolResult { id, content, failed, duration_ms, change, refused_by } => {
            let mark = match (refused_by, failed) {
                (Some(rule), _) => format!("⊘ {}", harmless_line(rule)),
                (None, true) => "✗".into(),
                (None, false) => "└".into(),
            };
            let id = printed::short_id(id);
            let change = change
                .as_ref()
                .map(|it| format!("  {} +{} -{}", harmless_line(&it.path), it.added, it.removed));
            let change = change.unwrap_or_default();
            let (lasted, content) = (seconds(*duration_ms), printed::beginning(content));
            format!("{mark} [{id}] {lasted}{change}\n{content}")
        }
        Event::ApprovalRequested { approval } => {
            let (tool, reason) = (harmless_line(&approval.tool), harmless_line(&approval.reason));
            format!(
                "? waits for leave: {tool}: {reason} ({})\n",
                harmless_line(&approval.approval_id)
            )
        }
        Event::ApprovalDecided { approval } => {
            format!("? {}: {}\n", harmless_line(&approval.tool), harmless_line(&approval.status))
        }
        Event::Waiting { reason, .. } => format!("waits: {}\n", harmless_line(reason)),
        Event::Fallback { from, to, reason } => {
            let (from, to) = (harmless_line(from), harmless_line(to));
            format!("{from} is replaced by {to}: {}\n", harmless_line(reason))
        }
        Event::TurnEnded { status, error, duration_ms, usage, cost_usd, .. } => {
            let (used, cost) = (printed::tokens(usage), printed::dollars(*cost_usd));
            let why = error.as_ref().map(|it| format!(": {}", harmless_line(&it.message)));
            let (status, why) = (harmless_line(status), why.unwrap_or_default());
            format!("■ {status}{why}, {}, {used}{cost}\n", seconds(*duration_ms))
        }
        Event::Compacted { tokens_before, tokens_after } => {
            format!("compacted: {tokens_before} -> {tokens_after} tokens\n")
        }
        Event::AgentCreated { agent } => format!("+ {}\n", card(agent)),
        Event::AgentEnded {} => "ended\n".into(),
        Event::AgentRenamed { to } => format!("is {} now\n", harmless_line(to)),
        Event::AgentChanged { status: Some(status), .. } => format!("{}\n", harmless_line(status)),
        Event::ServerStopping { .. } => "is stopping\n".into(),
        _ => return None,
    };
    Some(format!("{at} {agent} {text}"))
}

fn seconds(millis: u64) -> String {
    format!("{:.1} s", millis as f64 / 1_000.0)
}

/// All agents, by name.
#[derive(Default)]
struct Tree {
    agents: BTreeMap<String, Leaf>,
}

struct Leaf {
    parent: Option<String>,
    /// What it does now.
    status: String,
    tokens: u64,
    cost_usd: Option<f64>,
}

impl Leaf {
    fn of(agent: &AgentEntry) -> Self {
        Self {
            parent: agent.parent_agent_id.clone(),
            status: agent.status.clone(),
            tokens: agent.usage.tokens,
            cost_usd: agent.usage.cost_usd,
        }
    }
}

impl Tree {
    /// Notes what happened; true when the tree is to be shown again.
    fn take(&mut self, happened: &Happened) -> bool {
        if let Event::Snapshot(snapshot) = &happened.event {
            let leaves = snapshot.agents.iter().map(|it| &it.agent);
            self.agents.extend(leaves.map(|it| (it.agent_id.clone(), Leaf::of(it))));
            return !snapshot.more;
        }
        let Some(name) = &happened.agent_id else { return false };
        match &happened.event {
            Event::AgentCreated { agent } => {
                self.agents.insert(name.clone(), Leaf::of(agent));
                return true;
            }
            Event::AgentEnded {} => return self.agents.remove(name).is_some(),
            Event::AgentRenamed { to } => {
                let Some(leaf) = self.agents.remove(name) else { return false };
                self.agents.insert(to.clone(), leaf);
                let parents = self.agents.values_mut().filter_map(|leaf| leaf.parent.as_mut());
                parents.filter(|parent| *parent == name).for_each(|parent| parent.clone_from(to));
                return true;
            }
            _ => {}
        }
        let Some(leaf) = self.agents.get_mut(name) else { return false };
        let status = match &happened.event {
            Event::TurnStarted { .. } => "running",
            Event::TurnEnded { usage, cost_usd, .. } => {
                leaf.tokens += usage.input + usage.output + usage.discarded.unwrap_or_default();
                leaf.cost_usd = match (leaf.cost_usd, cost_usd) {
                    (Some(so_far), Some(cost)) => Some(so_far + cost),
                    (so_far, cost) => so_far.or(*cost),
                };
                "idle"
            }
            Event::AgentLeftMemory {} => "stored",
            Event::ApprovalRequested { .. } => "waits for leave",
            Event::ApprovalDecided { .. } => "running",
            _ => return false,
        };
        leaf.status = status.into();
        true
    }

    fn shown(&self) -> String {
        let mut out = String::new();
        // Whose parent is not seen stands at the top.
        let at_top =
            |leaf: &Leaf| leaf.parent.as_ref().is_none_or(|it| !self.agents.contains_key(it));
        let tops = self.agents.iter().filter(|(_, leaf)| at_top(leaf));
        for (name, leaf) in tops {
            self.show(name, leaf, 0, &mut out, &mut BTreeSet::new());
        }
        out
    }

    /// Writes an agent and those beneath it, with what all of them have used. Returns that.
    fn show<'a>(
        &'a self,
        name: &'a str,
        leaf: &Leaf,
        depth: usize,
        out: &mut String,
        above: &mut BTreeSet<&'a str>,
    ) -> (u64, Option<f64>) {
        // What two servers were told at once could be a circle.
        if !above.insert(name) {
            return (0, None);
        }
        let (mut tokens, mut cost_usd) = (leaf.tokens, leaf.cost_usd);
        let mut beneath = String::new();
        for (child, leaf) in self.agents.iter().filter(|(_, it)| it.parent.as_deref() == Some(name))
        {
            let (more, cost) = self.show(child, leaf, depth + 1, &mut beneath, above);
            tokens += more;
            cost_usd = match (cost_usd, cost) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            };
        }
        above.remove(name);
        let (indent, cost) = ("  ".repeat(depth), printed::dollars(cost_usd));
        let (name, status) = (harmless_line(name), harmless_line(&leaf.status));
        let _ = writeln!(out, "{indent}{name} {status} · {tokens} tokens{cost}");
        out.push_str(&beneath);
        (tokens, cost_usd)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn happened(agent: &str, event: Value) -> Happened {
        let told = json!({"agent_id": agent, "at": "2026-01-01T00:00:00Z", "event": event});
        serde_json::from_value(told).unwrap()
    }

    fn check(event: Value, expected: Option<&str>) {
        let said = line(&happened("a", event));
        let expected = expected.map(|expected| format!("a {expected}\n"));
        // The time depends on where the test runs.
        assert_eq!(said.map(|said| said[9..].to_string()), expected);
    }

    fn usage() -> Value {
        json!({"input": 10, "cache_read": 0, "cache_write": 0, "output": 5, "reasoning": 0})
    }

    fn ended(cost: Value) -> Value {
        json!({"type": "turn_ended", "status": "done", "message_count": 2, "duration_ms": 1500,
            "usage": usage(), "cost_usd": cost})
    }

    #[test]
    fn what_happens_in_lines() {
        check(
            json!({"type": "turn_started", "content": "hi", "source": "cron", "model": "m"}),
            Some("▶ from cron (m) hi"),
        );
        check(
            json!({"type": "tool_result", "id": "call_57d0", "content": "x", "failed": true, "duration_ms": 90}),
            Some("✗ [57d0] 0.1 s\n    x"),
        );
        check(
            json!({"type": "tool_result", "id": "1", "content": "no", "failed": true, "duration_ms": 0, "refused_by": "level"}),
            Some("⊘ level [1] 0.0 s\n    no"),
        );
        check(
            json!({"type": "tool_progress", "id": "call_57d0", "progress": 3, "total": 20, "message": "at it"}),
            Some("… [57d0] 3/20 at it"),
        );
        check(
            json!({"type": "tool_progress", "id": "call_57d0", "progress": 0.5}),
            Some("… [57d0] 0.5"),
        );
        check(ended(json!(0.5)), Some("■ done, 1.5 s, 10 in, 5 out, $0.5000"));
        let message = |role: &str, content: &str| {
            let entry = json!({"index": 0, "role": role, "content": content});
            json!({"type": "message", "index": 0, "message": entry})
        };
        check(message("assistant", "said"), Some("said"));
        check(message("assistant", ""), None);
        let mut calling = message("assistant", "");
        let call = json!({"id": "call_57d0", "name": "sleep", "arguments": {"seconds": 1}});
        calling["message"]["tool_calls"] = json!([call]);
        check(calling, Some("● sleep {\"seconds\":1}  [57d0]"));
        check(json!({"type": "tool_call", "id": "1", "name": "sleep", "arguments": {}}), None);
        check(message("user", "asked"), None);
        check(json!({"type": "tool_started", "id": "1"}), None);
    }

    #[test]
    fn nothing_that_others_wrote_steers_the_terminal() {
        let evil = "\u{1b}[2J\u{7}\u{202e}";
        for event in [
            json!({"type": "turn_started", "content": evil, "source": evil, "model": evil}),
            json!({"type": "message", "index": 0, "message": {"index": 0, "role": "assistant", "content": evil,
                "tool_calls": [{"id": evil, "name": evil, "arguments": {"a": evil}}]}}),
            json!({"type": "tool_result", "id": evil, "content": evil, "failed": false, "duration_ms": 0, "refused_by": evil}),
            json!({"type": "tool_progress", "id": evil, "progress": 1, "message": evil}),
            json!({"type": "fallback", "from": evil, "to": evil, "reason": evil}),
            json!({"type": "agent_renamed", "to": evil}),
        ] {
            let said = line(&happened(evil, event)).unwrap();
            let steers = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!said.contains(steers), "{said:?}");
        }
    }

    #[test]
    fn a_tree_sums_upwards_and_changes() {
        let agent = |name: &str, parent: Option<&str>| {
            json!({"agent_id": name, "is_temp": false, "created_at": "", "message_count": 0,
                "should_shutdown": false, "parent_agent_id": parent, "child_count": 0,
                "halted_at_iteration_limit": false, "model": null, "last_action_at": null,
                "permission_level": "TRUSTED", "cwd": "/", "write_paths": null, "status": "idle",
                "queued": 0, "usage": {"tokens": 100, "cost_usd": null, "cost_unknown_calls": 0}})
        };
        let mut tree = Tree::default();
        let created = |name: &str, parent: Option<&str>| json!({"type": "agent_created", "agent": agent(name, parent)});
        assert!(tree.take(&happened("main", created("main", None))));
        assert!(tree.take(&happened("kid", created("kid", Some("main")))));
        assert!(tree.take(&happened("lost", created("lost", Some("unseen")))));
        let started = json!({"type": "turn_started", "content": "x", "model": null});
        assert!(tree.take(&happened("kid", started)));
        assert!(!tree.take(&happened("kid", json!({"type": "tool_started", "id": "1"}))));
        assert_eq!(
            tree.shown(),
            "lost idle · 100 tokens\nmain idle · 200 tokens\n  kid running · 100 tokens\n"
        );
        assert!(tree.take(&happened("kid", ended(json!(0.25)))));
        assert!(tree.take(&happened("main", json!({"type": "agent_renamed", "to": "top"}))));
        assert!(tree.take(&happened("lost", json!({"type": "agent_ended"}))));
        assert_eq!(
            tree.shown(),
            "top idle · 215 tokens, $0.2500\n  kid idle · 115 tokens, $0.2500\n"
        );
    }
}
