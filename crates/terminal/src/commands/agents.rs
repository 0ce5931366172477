//! Commands about agents: which there are, which is shown, and making and ending them.

use std::path::{Path, PathBuf};

use nexus_protocol::agent::{
    AgentEntry, CreateAgent, CreateAgentParams, DestroyAgent, DestroyAgentParams, ListAgents,
    ListAgentsParams,
};
use nexus_protocol::conversation::GetContext;
use nexus_protocol::params::NoParams;
use nexus_protocol::shared::Shared;

use super::ending::{consequences, descendants};
use super::flags::{Flags, exactly, nothing};
use super::{permissions, sessions, status};
use crate::cx::{Cx, Done, Front, Refused, refuse};
use crate::figures::counted;
use crate::style::{Line, Style};

pub async fn list(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/list")?;
    let agents = everybody(cx).await?;
    if agents.is_empty() {
        cx.note("No agents.");
    }
    cx.say_all(agents.iter().map(|agent| entry(cx, agent)).collect());
    Ok(())
}

fn entry(cx: &Cx, agent: &AgentEntry) -> Line {
    let is_shown = cx.agent.as_deref() == Some(&agent.agent_id);
    let mark = if is_shown { "* " } else { "  " };
    let model = agent.model.as_deref().unwrap_or("no model");
    let level = agent.permission_level.to_lowercase();
    let messages = counted(agent.message_count, "message");
    let queued = match agent.queued {
        0 => String::new(),
        queued => format!(", {queued} queued"),
    };
    Line::plain(mark).with(agent.agent_id.as_str(), Style::BOLD).with(
        format!("  {}{queued}  {model}  {level}  {messages}  {}", agent.status, agent.cwd),
        Style::PLAIN,
    )
}

/// Shows another agent, or says what the shown one is.
pub async fn agent(cx: &Cx, rest: &str) -> Done {
    let flags = Flags::read(rest)?;
    match flags.words.as_slice() {
        [] if !flags.are_given() => {
            let parts = status::Parts { tokens: true, tools: false };
            status::describe(cx, cx.shown()?, parts).await
        }
        [name] => switch(cx, name, &flags).await,
        _ => refuse("Usage: /agent NAME [flags]"),
    }
}

async fn switch(cx: &Cx, name: &str, flags: &Flags) -> Done {
    if everybody(cx).await?.iter().any(|agent| agent.agent_id == name) {
        if flags.are_given() {
            cx.warn(format!("{name} exists: its preset, model and directory stay as they are."));
        }
        return show(cx, name).await;
    }
    if let Some(session) = sessions::find(cx, name).await? {
        let messages = counted(session.message_count, "message");
        if !cx.confirm(format!("Restore saved session '{name}' ({messages})?")).await {
            return Ok(());
        }
        if flags.cwd.is_some() {
            cx.warn(format!("{name} works where it did: --cwd is for new agents."));
        }
        return sessions::load(cx, name, flags).await;
    }
    if !cx.confirm(format!("Agent '{name}' doesn't exist. Create it?")).await {
        return Ok(());
    }
    match make(cx, name, flags).await? {
        Some(name) => show(cx, &name).await,
        None => Ok(()),
    }
}

/// Shows an agent; whoever shows it prints what was said last. One that cannot be read, because another process has it,
/// is not shown.
pub async fn show(cx: &Cx, name: &str) -> Done {
    cx.of::<GetContext>(name, NoParams {}).await?;
    cx.tell(Front::Show(name.into()));
    Ok(())
}

/// Makes an agent without showing it.
pub async fn create(cx: &Cx, rest: &str) -> Done {
    let flags = Flags::read(rest)?;
    let [name] = flags.words.as_slice() else { return refuse("Usage: /create NAME [flags]") };
    if let Some(name) = make(cx, name, &flags).await? {
        cx.note(format!("Created {name}. /agent {name} shows it."));
    }
    Ok(())
}

/// The name it got; `None` when it was to be allowed everything, and the person did not want that after all.
async fn make(cx: &Cx, name: &str, flags: &Flags) -> Result<Option<String>, Refused> {
    let preset = flags.preset.as_ref().or(cx.making.preset.as_ref());
    let preset = preset.unwrap_or(&cx.settings.preset).clone();
    if !permissions::is_wanted(cx, name, &preset).await {
        return Ok(None);
    }
    let cwd = match &flags.cwd {
        Some(cwd) => place(&cx.making.cwd, cwd),
        None => cx.making.cwd.clone(),
    };
    let params = CreateAgentParams {
        agent_id: Some(name.into()),
        preset: Some(preset),
        cwd: Some(cwd.display().to_string()),
        model: flags.model.clone().or_else(|| cx.making.model.clone()),
        ..CreateAgentParams::default()
    };
    Ok(Some(cx.server::<CreateAgent>(params).await?.agent_id))
}

/// What a person means by a path: `~` is home, and the rest begins where the terminal is.
pub fn place(base: &Path, path: &str) -> PathBuf {
    let home = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match (home, std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
        _ => base.join(path),
    }
}

pub async fn destroy(cx: &Cx, rest: &str) -> Done {
    let [name] = exactly(rest, "/destroy NAME")?;
    let agents = everybody(cx).await?;
    let Some(agent) = agents.iter().find(|agent| agent.agent_id == name) else {
        return refuse(format!("Agent '{name}' doesn't exist."));
    };
    if cx.agent.as_ref() == Some(&name) {
        return refuse("That is the agent you see. Show another one first: /agent NAME");
    }
    let mut beneath = descendants(&agents, &name).into_iter();
    if beneath.any(|agent| cx.agent.as_ref() == Some(&agent.agent_id)) {
        let why = format!("The agent you see would end with '{name}'. Show another one first.");
        return refuse(why);
    }
    if let Some(consequences) = consequences(&agents, agent)
        && !cx.confirm(format!("Destroy '{name}' {consequences}?")).await
    {
        return Ok(());
    }
    let ended = cx.server::<DestroyAgent>(DestroyAgentParams { agent_id: name.clone() }).await?;
    if !ended.success {
        return refuse(format!("Agent '{name}' doesn't exist."));
    }
    cx.note(format!("Destroyed {}.", ended.destroyed.join(", ")));
    Ok(())
}

/// All agents that there are.
pub async fn everybody(cx: &Cx) -> Result<Shared<Vec<AgentEntry>>, Refused> {
    Ok(cx.server::<ListAgents>(ListAgentsParams::default()).await?.agents)
}
