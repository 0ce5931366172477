//! Which conversation to begin with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nexus_client::{Api as _, CallError, Target};
use nexus_protocol::agent::{ListAgents, ListAgentsParams};
use nexus_protocol::session::{
    ListSessions, ListSessionsParams, LoadSession, LoadSessionParams, SessionEntry,
};

use super::App;
use super::panel::{Choosing, Panel, Then};
use crate::cx::{Chosen, Front};
use crate::figures::{ago, counted};
use crate::link::Link;
use crate::options::SessionChoice;
use crate::session::Session;
use crate::style::Line;

/// Before it is asked again what there is to begin with.
const AGAIN: Duration = Duration::from_millis(200);

/// What there is to choose from.
pub struct Lobby {
    pub sessions: Vec<SessionEntry>,
    /// Agents that run.
    pub running: Vec<String>,
}

impl App {
    /// Begins with what the options name, or asks. Whoever writes already wants to talk.
    pub(super) fn choose_session(&self) {
        if let Some(session) = &self.session {
            begin(session, self.editor.is_empty() && self.early.is_empty());
        }
    }

    /// Puts the choice on the screen, unless somebody began to write.
    pub(super) fn enter_lobby(&mut self, lobby: Lobby, uncalled: Option<Instant>) {
        let is_begun = self.session.as_ref().is_none_or(|session| session.view.is_some());
        if lobby.sessions.is_empty() || !self.editor.is_empty() || is_begun {
            return;
        }
        let mut items: Vec<String> = Vec::new();
        if let Some(last) = lobby.sessions.first() {
            items.push(format!("1) Resume: {}", describe(last)));
        }
        items.push("2) Fresh session".into());
        items.push("3) Choose from saved...".into());
        items.extend(
            lobby.running.iter().enumerate().map(|(at, name)| format!("{}) {name}", at + 4)),
        );
        self.lobby = Some(lobby);
        let choosing = Choosing::then(Then::Lobby, "[1/2/3/q]", items);
        self.ask(Panel::Choose(Choosing { uncalled, ..choosing }));
    }

    /// Who is shown it uncalled goes on with a fresh session instead of leaving.
    pub(super) fn chosen_in_lobby(&mut self, chosen: Option<Chosen>, is_uncalled: bool) {
        let Some(lobby) = &self.lobby else { return };
        match chosen {
            Some(Chosen::Item(0)) => {
                if let Some(last) = lobby.sessions.first() {
                    self.open_session(last.name.clone());
                }
            }
            Some(Chosen::Item(1)) => {}
            Some(Chosen::Item(2)) => {
                let items = lobby.sessions.iter().map(describe).collect();
                let choosing = Choosing::then(Then::Sessions, "Sessions (b: back)", items);
                self.ask(Panel::Choose(choosing));
            }
            Some(Chosen::Item(number)) => {
                if let Some(agent) = lobby.running.get(number - 3) {
                    self.open_session(agent.clone());
                }
            }
            Some(Chosen::Delete(_)) | None if is_uncalled => {}
            Some(Chosen::Delete(_)) | None => self.leave_quietly(),
        }
    }

    pub(super) fn chosen_session(&mut self, chosen: Option<Chosen>) {
        let Some(lobby) = self.lobby.take() else { return };
        match chosen {
            Some(Chosen::Item(number)) => {
                if let Some(session) = lobby.sessions.get(number) {
                    self.open_session(session.name.clone());
                }
            }
            Some(Chosen::Delete(_)) | None => self.enter_lobby(lobby, None),
        }
    }

    fn open_session(&self, name: String) {
        if let Some(session) = &self.session {
            open_in(session, &name);
        }
    }
}

/// Begins with what the options name; where they name nothing, tells what there is to choose from if `may_ask`. While there
/// is no server, or when it goes away meanwhile, it says after a moment that this is to be tried again.
pub fn begin(session: &Session, may_ask: bool) {
    let choice = session.options.session.clone();
    let is_asking = matches!(choice, SessionChoice::Lobby);
    // Who is shown something by now began without waiting.
    if session.view.is_some() || (is_asking && !may_ask) {
        return;
    }
    let (link, front) = (Arc::clone(&session.link), session.front.clone());
    let is_connected = session.is_connected;
    let cwd = session.options.cwd.to_string_lossy().into_owned();
    tokio::spawn(async move {
        let found = match is_connected {
            true => first(&link, choice, &cwd).await,
            false => Err(CallError::Connect("not connected".into())),
        };
        let told = match found {
            Ok(found) => found,
            Err(CallError::Connect(_) | CallError::Transport(_)) => {
                tokio::time::sleep(AGAIN).await;
                Some(Front::Begin)
            }
            Err(_) if is_asking => None,
            Err(error) => Some(Front::Fail(error.to_string())),
        };
        told.map(|told| front.send(told));
    });
}

async fn first(link: &Link, choice: SessionChoice, cwd: &str) -> Result<Option<Front>, CallError> {
    let (found, none) = match choice {
        SessionChoice::Fresh { .. } => return Ok(None),
        SessionChoice::Lobby => return Ok(Some(Front::Lobby(look(link, cwd).await?))),
        SessionChoice::Named(name) => {
            (open(link, &name).await?, format!("Session not found: {name}"))
        }
        SessionChoice::Last => (last(link, cwd).await?, "No last session to resume".into()),
    };
    Ok(Some(found.map_or(Front::Fail(none), Front::Show)))
}

/// Shows the agent or session of this name.
pub fn open_in(session: &Session, name: &str) {
    let (link, cx, name) = (Arc::clone(&session.link), session.cx(), name.to_owned());
    tokio::spawn(async move {
        match open(&link, &name).await {
            Ok(Some(agent)) => cx.tell(Front::Show(agent)),
            Ok(None) => cx.warn(format!("Session not found: {name}")),
            Err(error) => cx.warn(error.to_string()),
        }
    });
}

/// Offers another conversation: the one that was shown is over.
pub fn offer(session: &Session) {
    let (link, cx) = (Arc::clone(&session.link), session.cx());
    let cwd = session.making.cwd.to_string_lossy().into_owned();
    tokio::spawn(async move {
        if let Ok(lobby) = look(&link, &cwd).await {
            cx.tell(Front::LobbyAgain(lobby));
        }
    });
}

/// The choice as lines with numbers, for the plain form: sessions from the fourth on.
pub fn describe_lobby(lobby: &Lobby) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(last) = lobby.sessions.first() {
        lines.push(Line::plain(format!("1) Resume: {}", describe(last))));
    }
    lines.push(Line::plain("2) Fresh session"));
    let others = lobby.sessions.iter().enumerate().skip(1).take(20);
    lines.extend(others.map(|(at, it)| Line::plain(format!("{}) {}", at + 3, describe(it)))));
    lines.push(Line::plain("q) Leave"));
    lines
}

/// The agent of this name, or the one that is made of the session of this name.
pub async fn open(link: &Link, name: &str) -> Result<Option<String>, CallError> {
    let agents = link.call::<ListAgents>(&Target::Server, ListAgentsParams::default()).await?;
    if agents.agents.iter().any(|agent| agent.agent_id == name) {
        return Ok(Some(name.to_owned()));
    }
    let params =
        LoadSessionParams { session_name: name.into(), agent_id: None, preset: None, model: None };
    match link.call::<LoadSession>(&Target::Server, params).await {
        Ok(loaded) => Ok(Some(loaded.agent_id)),
        Err(CallError::Rpc(error)) if error.code == nexus_protocol::error::INVALID_PARAMS => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The session that changed last in this directory, else the last of all.
async fn last(link: &Link, cwd: &str) -> Result<Option<String>, CallError> {
    let sessions = look(link, cwd).await?.sessions;
    match sessions.first() {
        Some(session) => open(link, &session.name).await,
        None => Ok(None),
    }
}

/// Sessions with something in them, those of this directory first, each kind by its last change.
async fn look(link: &Link, cwd: &str) -> Result<Lobby, CallError> {
    let params = ListSessionsParams {
        limit: nexus_protocol::params::Bounded::new(1_000),
        ..Default::default()
    };
    let sessions = link.call::<ListSessions>(&Target::Server, params).await?.sessions;
    let (mut here, elsewhere): (Vec<_>, Vec<_>) = sessions
        .into_iter()
        .filter(|session| session.message_count > 0)
        .partition(|session| session.cwd == cwd);
    here.extend(elsewhere);
    let agents = link.call::<ListAgents>(&Target::Server, ListAgentsParams::default()).await?;
    let running =
        agents.agents.iter().filter(|agent| agent.status != "stored" && agent.status != "idle");
    let running = running.map(|agent| agent.agent_id.clone()).collect();
    Ok(Lobby { sessions: here, running })
}

fn describe(session: &SessionEntry) -> String {
    let ago = ago(session.updated_at, Timestamp::now());
    format!("{} ({ago}, {})", session.name, counted(session.message_count, "message"))
}
