//! `/tree`: agents under agents, and what each and all beneath it used.

use std::collections::HashMap;

use nexus_protocol::agent::AgentEntry;
use nexus_protocol::usage::UsageTotals;

use super::agents::everybody;
use super::flags::nothing;
use crate::cx::{Cx, Done};
use crate::figures::{counted, usage};
use crate::style::{Line, Style};

pub async fn tree(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/tree")?;
    let agents = everybody(cx).await?;
    if agents.is_empty() {
        cx.note("No agents.");
    }
    let rows = rows(&agents, cx.settings.plain);
    cx.say_all(rows.iter().map(|row| line(cx, row)).collect());
    Ok(())
}

fn line(cx: &Cx, row: &Row) -> Line {
    let Row { agent, branch, sum } = row;
    let is_shown = cx.agent.as_deref() == Some(&agent.agent_id);
    let mark = if is_shown { " *" } else { "" };
    let model = agent.model.as_deref().unwrap_or("no model");
    let messages = counted(agent.message_count, "message");
    Line::styled(branch.as_str(), Style::DIM)
        .with(format!("{}{mark}", agent.agent_id), Style::BOLD)
        .with(format!("  {}  {model}  {messages}  {}", agent.status, usage(sum)), Style::PLAIN)
}

struct Row<'a> {
    agent: &'a AgentEntry,
    /// What is drawn before its name.
    branch: String,
    /// What it and all beneath it used.
    sum: UsageTotals,
}

/// Each agent once, beneath its parent; one whose parent is not there is a root.
fn rows(agents: &[AgentEntry], is_plain: bool) -> Vec<Row<'_>> {
    let numbers: HashMap<&str, usize> =
        agents.iter().enumerate().map(|(at, agent)| (agent.agent_id.as_str(), at)).collect();
    let parent = |agent: &AgentEntry| numbers.get(agent.parent_agent_id.as_deref()?).copied();
    let parents: Vec<Option<usize>> = agents.iter().map(parent).collect();
    let mut children = vec![Vec::new(); agents.len()];
    let mut waiting = Vec::new();
    for (at, parent) in parents.iter().enumerate() {
        match parent {
            Some(parent) => children[*parent].push(at),
            None => waiting.push((at, String::new(), String::new())),
        }
    }
    waiting.reverse();
    let mut order = Vec::new();
    while let Some((at, branch, stem)) = waiting.pop() {
        order.push((at, branch));
        for (number, &child) in children[at].iter().enumerate().rev() {
            let (branch, stem) = grown(&stem, number + 1 == children[at].len(), is_plain);
            waiting.push((child, branch, stem));
        }
    }
    let mut sums: Vec<UsageTotals> = agents.iter().map(|agent| agent.usage).collect();
    // Children stand behind their parents, so from the end each sum is whole when it is added.
    for (at, _) in order.iter().rev() {
        if let Some(parent) = parents[*at] {
            sums[parent] = added(sums[parent], sums[*at]);
        }
    }
    let row = |(at, branch): (usize, String)| Row { agent: &agents[at], branch, sum: sums[at] };
    order.into_iter().map(row).collect()
}

/// The branch of a child, and the stem of what grows beneath it.
fn grown(stem: &str, is_last: bool, is_plain: bool) -> (String, String) {
    match (is_plain, is_last) {
        (true, _) => (format!("{stem}  "), format!("{stem}  ")),
        (false, true) => (format!("{stem}└─ "), format!("{stem}   ")),
        (false, false) => (format!("{stem}├─ "), format!("{stem}│  ")),
    }
}

fn added(one: UsageTotals, other: UsageTotals) -> UsageTotals {
    UsageTotals {
        tokens: one.tokens.saturating_add(other.tokens),
        cost_usd: match (one.cost_usd, other.cost_usd) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        },
        cost_unknown_calls: one.cost_unknown_calls.saturating_add(other.cost_unknown_calls),
    }
}
