//! Commands about sessions: agents as they are kept.

use jiff::Timestamp;
use nexus_protocol::agent::AgentEntry;
use nexus_protocol::params::Bounded;
use nexus_protocol::session::{
    CloneSession, CloneSessionParams, DeleteSession, DeleteSessionParams, ListSessions,
    ListSessionsParams, LoadSession, LoadSessionParams, RenameSession, RenameSessionParams,
    SaveSession, SaveSessionParams, SessionEntry,
};

use super::agents::{everybody, show};
use super::ending::consequences;
use super::flags::{Flags, exactly, nothing, optional};
use super::permissions;
use crate::cx::{Choice, Chosen, Cx, Done, Refused, refuse};
use crate::figures::{ago, counted};

/// Lets the person choose one to go on with, or delete some.
pub async fn sessions(cx: &Cx, rest: &str) -> Done {
    nothing(rest, "/sessions")?;
    loop {
        let sessions = all(cx).await?;
        if sessions.is_empty() {
            cx.note("No sessions.");
            return Ok(());
        }
        let now = Timestamp::now();
        let items = sessions.iter().map(|session| describe(session, now)).collect();
        let choice = Choice { title: "Sessions".into(), items, can_delete: true };
        let (number, is_to_go) = match cx.choose(choice).await {
            Some(Chosen::Item(number)) => (number, false),
            Some(Chosen::Delete(number)) => (number, true),
            None => return Ok(()),
        };
        let Some(session) = sessions.get(number) else { return Ok(()) };
        if !is_to_go {
            return go_on(cx, &session.name).await;
        }
        let agents = everybody(cx).await?;
        let messages = counted(session.message_count, "message");
        let working = working(&agents, &session.name).unwrap_or_default();
        let question = format!("{working}Delete session '{}' ({messages})?", session.name);
        if cx.confirm(question).await {
            remove(cx, &session.name).await?;
        }
    }
}

fn describe(session: &SessionEntry, now: Timestamp) -> String {
    let (name, cwd) = (&session.name, &session.cwd);
    let messages = counted(session.message_count, "message");
    format!("{name} ({}, {messages})  {cwd}", ago(session.updated_at, now))
}

/// Goes on with a session: the one that is named, else the last of this directory, else the last of all.
pub async fn resume(cx: &Cx, rest: &str) -> Done {
    if let Some(name) = optional(rest, "/resume [NAME]")? {
        return go_on(cx, &name).await;
    }
    let sessions = all(cx).await?;
    let is_other = |session: &&SessionEntry| cx.agent.as_ref() != Some(&session.name);
    let others: Vec<_> = sessions.iter().filter(is_other).collect();
    let here = cx.making.cwd.display().to_string();
    match others.iter().find(|session| session.cwd == here).or(others.first()) {
        Some(session) => go_on(cx, &session.name).await,
        None => refuse("No last session to resume"),
    }
}

async fn go_on(cx: &Cx, name: &str) -> Done {
    if everybody(cx).await?.iter().any(|agent| agent.agent_id == name) {
        return show(cx, name).await;
    }
    match find(cx, name).await? {
        Some(_) => load(cx, name, &Flags::default()).await,
        None => refuse(format!("Session not found: {name}")),
    }
}

/// Makes an agent of a session, and shows it.
pub async fn load(cx: &Cx, name: &str, flags: &Flags) -> Done {
    if let Some(preset) = &flags.preset
        && !permissions::is_wanted(cx, name, preset).await
    {
        return Ok(());
    }
    let params = LoadSessionParams {
        session_name: name.into(),
        agent_id: None,
        preset: flags.preset.clone(),
        model: flags.model.clone(),
    };
    let loaded = cx.server::<LoadSession>(params).await?;
    show(cx, &loaded.agent_id).await
}

/// Keeps the shown agent under a name.
pub async fn save(cx: &Cx, rest: &str) -> Done {
    let given = optional(rest, "/save [NAME]")?;
    let agent = cx.shown()?;
    let name = given.as_deref().unwrap_or(agent);
    if name.starts_with('.') {
        return refuse(format!(
            "Cannot save with temp name '{name}'. Provide a name: /save myname"
        ));
    }
    let params = SaveSessionParams { agent_id: agent.into(), session_name: name.into() };
    let saved = cx.server::<SaveSession>(params).await?;
    // One that had no name so far is renamed, and the view with it.
    cx.note(format!("Saved as {}.", saved.session_name));
    Ok(())
}

pub async fn clone(cx: &Cx, rest: &str) -> Done {
    let [src_session, dest_session] = exactly(rest, "/clone SRC DEST")?;
    let params = CloneSessionParams { src_session, dest_session, upto: None };
    let cloned = cx.server::<CloneSession>(params).await?;
    cx.note(format!("Copied {} to {}.", cloned.src_session, cloned.dest_session));
    Ok(())
}

pub async fn rename(cx: &Cx, rest: &str) -> Done {
    let [old_name, new_name] = exactly(rest, "/rename OLD NEW")?;
    let params = RenameSessionParams { old_name, new_name };
    let renamed = cx.server::<RenameSession>(params).await?;
    // Of the one that is shown the watch says it.
    if cx.agent.as_ref() != Some(&renamed.old_name) {
        cx.note(format!("{} is now {}.", renamed.old_name, renamed.new_name));
    }
    Ok(())
}

pub async fn delete(cx: &Cx, rest: &str) -> Done {
    let [name] = exactly(rest, "/delete NAME")?;
    let agents = everybody(cx).await?;
    if let Some(working) = working(&agents, &name)
        && !cx.confirm(format!("{working}Delete session '{name}'?")).await
    {
        return Ok(());
    }
    remove(cx, &name).await
}

/// What ends with a session that an agent works on, as a sentence.
fn working(agents: &[AgentEntry], name: &str) -> Option<String> {
    let agent = agents.iter().find(|agent| agent.agent_id == name)?;
    match consequences(agents, agent) {
        Some(consequences) => Some(format!("Its agent ends then {consequences}. ")),
        None if agent.status == "stored" => None,
        None => Some("Its agent ends then. ".into()),
    }
}

async fn remove(cx: &Cx, name: &str) -> Done {
    let params = DeleteSessionParams { session_name: name.into() };
    if !cx.server::<DeleteSession>(params).await?.deleted {
        return refuse(format!("Session not found: {name}"));
    }
    cx.note(format!("Deleted {name}."));
    Ok(())
}

pub async fn find(cx: &Cx, name: &str) -> Result<Option<SessionEntry>, Refused> {
    Ok(all(cx).await?.into_iter().find(|session| session.name == name))
}

/// All sessions, the one that changed last first.
pub async fn all(cx: &Cx) -> Result<Vec<SessionEntry>, Refused> {
    let mut sessions = Vec::new();
    loop {
        let params = ListSessionsParams {
            offset: Some(sessions.len() as u64),
            limit: Bounded::new(1_000),
            include_temp: None,
        };
        let page = cx.server::<ListSessions>(params).await?;
        let is_last = page.sessions.is_empty();
        sessions.extend(page.sessions);
        if is_last || sessions.len() as u64 >= page.total {
            return Ok(sessions);
        }
    }
}
