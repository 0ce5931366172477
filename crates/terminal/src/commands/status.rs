//! `/status`, and what `/agent` says of the agent that is shown.

use nexus_protocol::conversation::{GetContext, GetContextResult, GetTokens};
use nexus_protocol::params::NoParams;
use nexus_protocol::permission::GetPermissions;
use nexus_protocol::settings::{
    AgentSummary, GetAgentSummaries, GetAgentSummariesParams, GetModel,
};

use super::flags::{refuse_flags, split, take};
use super::permissions;
use crate::cx::{Cx, Done, refuse};
use crate::figures::{count, counted, field, request, usage};
use crate::style::{Line, Style};

pub async fn status(cx: &Cx, rest: &str) -> Done {
    let mut words = split(rest)?;
    let is_of_all = take(&mut words, "--all");
    let both = take(&mut words, "-a");
    let tokens = take(&mut words, "--tokens") || both;
    let tools = take(&mut words, "--tools") || both;
    refuse_flags(&words)?;
    match (words.as_slice(), is_of_all) {
        ([], true) if !tokens && !tools => all(cx).await,
        ([], false) => describe(cx, cx.shown()?, Parts { tokens, tools }).await,
        ([name], false) => describe(cx, name, Parts { tokens, tools }).await,
        _ => refuse("Usage: /status [NAME] [--tools] [--tokens] [-a], or /status --all"),
    }
}

/// What is told of an agent beside the rest.
#[derive(Clone, Copy)]
pub struct Parts {
    pub tokens: bool,
    pub tools: bool,
}

pub async fn describe(cx: &Cx, name: &str, parts: Parts) -> Done {
    let context = cx.of::<GetContext>(name, NoParams {}).await?;
    let permissions = cx.of::<GetPermissions>(name, NoParams {}).await?;
    let kind = if name.starts_with('.') { "temporary" } else { "permanent" };
    let beneath = match &permissions.parent_agent_id {
        Some(parent) => format!(", child of {parent}"),
        None => String::new(),
    };
    let mut lines = vec![
        Line::styled(name, Style::BOLD)
            .with(format!("  {kind}, {}{beneath}", permissions.preset), Style::PLAIN),
    ];
    // Without a provider an agent has no model, and all else can still be said.
    lines.push(match cx.of::<GetModel>(name, NoParams {}).await {
        Ok(model) => field("model", format!("{} ({})", model.model, model.provider)),
        Err(refused) => field("model", format!("none: {refused}")),
    });
    lines.push(field("directory", permissions.policy.cwd));
    lines.push(field("messages", count(context.message_count)));
    lines.push(field("prompt", if context.system_prompt { "set" } else { "none" }));
    lines.extend(turns(&context));
    if parts.tokens {
        lines.extend(tokens(cx, name).await);
    }
    if parts.tools {
        lines.extend(permissions::tools(cx, name).await?);
    }
    cx.say_all(lines);
    Ok(())
}

fn turns(context: &GetContextResult) -> Vec<Line> {
    let turn = |turn: &nexus_protocol::watch::TurnEntry| {
        field("turn", format!("{}  {}", request(&turn.request_id), turn.status))
    };
    let mut lines: Vec<_> = context.turns.iter().map(turn).collect();
    if let Some(cut) = &context.interrupted_turn {
        let doubtful = match cut.unknown_tool_calls.len() as u64 {
            0 => String::new(),
            calls => format!(" ({} in doubt)", counted(calls, "tool call")),
        };
        let id = request(&cut.request_id);
        lines.push(field("turn", format!("{id} was cut off{doubtful}: /continue")));
    } else if context.halted_at_iteration_limit {
        let steps = context.max_tool_iterations;
        lines.push(field("turn", format!("halted after {steps} steps")));
    }
    lines
}

async fn tokens(cx: &Cx, name: &str) -> Vec<Line> {
    let tokens = match cx.of::<GetTokens>(name, NoParams {}).await {
        Ok(tokens) => tokens,
        Err(refused) => return vec![field("tokens", refused.to_string())],
    };
    let percent = tokens.total.saturating_mul(100) / tokens.budget.max(1);
    let (total, system) = (count(tokens.total), count(tokens.system));
    let (tools, messages) = (count(tokens.tools), count(tokens.messages));
    vec![
        field("window", count(tokens.budget)),
        field(
            "tokens",
            format!("{total} ({percent} %): prompt {system}, tools {tools}, messages {messages}"),
        ),
        field("left", format!("{} before it is compacted", count(tokens.remaining))),
    ]
}

async fn all(cx: &Cx) -> Done {
    let params = GetAgentSummariesParams { include_tokens: Some(true), include_context: None };
    let agents = cx.server::<GetAgentSummaries>(params).await?.agents;
    if agents.is_empty() {
        cx.note("No agents.");
    }
    cx.say_all(agents.iter().map(summary).collect());
    Ok(())
}

fn summary(agent: &AgentSummary) -> Line {
    let model = agent.model.as_deref().unwrap_or("no model");
    let messages = counted(agent.message_count, "message");
    let window = match &agent.tokens {
        Some(tokens) => format!("  {}/{}", count(tokens.total), count(tokens.budget)),
        None => String::new(),
    };
    let halted = if agent.halted_at_iteration_limit { "  halted" } else { "" };
    let (level, used) = (&agent.permission_level, usage(&agent.usage));
    Line::styled(agent.agent_id.as_str(), Style::BOLD).with(
        format!("  {model}  {level}  {messages}{window}  {used}{halted}  {}", agent.cwd),
        Style::PLAIN,
    )
}
