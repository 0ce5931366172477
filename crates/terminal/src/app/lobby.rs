//! Which conversation to begin with.

use std::sync::Arc;
use std::time::Duration;

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
use crate::options::{ServerChoice, SessionChoice};
use crate::session::Session;
use crate::style::Line;

/// The agent that every server has: who names none means it.
const MAIN: &str = "main";

/// Before it is asked again what there is to begin with.
const AGAIN: Duration = Duration::from_millis(200);

/// What there is to choose from.
pub struct Lobby {
    pub sessions: Vec<SessionEntry>,
    /// Agents that run, and temporary ones, which are no sessions.
    pub running: Vec<String>,
}

/// What a line of the lobby leads to.
enum Way<'a> {
    Resume(&'a SessionEntry),
    Fresh,
    Saved,
    Agent(&'a str),
}

impl Lobby {
    fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.running.is_empty()
    }

    /// In the order of their numbers.
    fn ways(&self) -> Vec<Way<'_>> {
        let last = self.sessions.first();
        let mut ways: Vec<_> = last.map(Way::Resume).into_iter().collect();
        ways.push(Way::Fresh);
        ways.extend(last.map(|_| Way::Saved));
        ways.extend(self.running.iter().map(|name| Way::Agent(name)));
        ways
    }
}

impl App {
    /// Begins with what the options name, or asks. Whoever writes already wants to talk.
    pub(super) fn choose_session(&self) {
        if let Some(session) = &self.session {
            begin(session, self.editor.is_empty() && self.early.is_empty());
        }
    }

    /// Puts the choice on the screen, unless somebody began to write.
    pub(super) fn enter_lobby(&mut self, lobby: Lobby, is_uncalled: bool) {
        self.show_lobby(lobby, |choosing| Choosing { is_uncalled, ..choosing });
    }

    fn show_lobby(&mut self, lobby: Lobby, how: impl FnOnce(Choosing) -> Choosing) {
        let is_begun = self.session.as_ref().is_none_or(|session| session.view.is_some());
        if lobby.is_empty() || !self.editor.is_empty() || is_begun {
            return;
        }
        let ways = lobby.ways().into_iter().enumerate();
        let items = ways.map(|(at, way)| {
            let words = match way {
                Way::Resume(last) => format!("Resume: {}", describe(last)),
                Way::Fresh => "Fresh session".into(),
                Way::Saved => "Choose from saved...".into(),
                Way::Agent(name) => name.to_owned(),
            };
            format!("{}) {words}", at + 1)
        });
        let title = if lobby.sessions.is_empty() { "[1/2/q]" } else { "[1/2/3/q]" };
        let choosing = Choosing::then(Then::Lobby, title, items.collect());
        self.lobby = Some(lobby);
        self.ask(Panel::Choose(how(choosing)));
    }

    /// Who is shown it uncalled goes on with a fresh session instead of leaving.
    pub(super) fn chosen_in_lobby(&mut self, chosen: Option<Chosen>, is_uncalled: bool) {
        let Some(lobby) = &self.lobby else { return };
        let Some(Chosen::Item(number)) = chosen else {
            if !is_uncalled {
                self.leave_quietly();
            }
            return;
        };
        match lobby.ways().get(number) {
            Some(Way::Resume(last)) => self.open_session(last.name.clone()),
            Some(Way::Agent(name)) => self.open_session((*name).to_owned()),
            Some(Way::Saved) => {
                let items = lobby.sessions.iter().map(describe).collect();
                let choosing = Choosing::then(Then::Sessions, "Sessions (b: back)", items);
                self.ask(Panel::Choose(choosing.opened()));
            }
            Some(Way::Fresh) | None => {}
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
            Some(Chosen::Delete(_)) | None => self.show_lobby(lobby, Choosing::opened),
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
    // A server that was named has this one, though it is made, and listed, when it is first asked something.
    let has_main = matches!(session.options.server, ServerChoice::At { .. });
    tokio::spawn(async move {
        let found = match is_connected {
            true => first(&link, choice, &cwd, has_main).await,
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

async fn first(
    link: &Link,
    choice: SessionChoice,
    cwd: &str,
    has_main: bool,
) -> Result<Option<Front>, CallError> {
    let (found, none) = match choice {
        SessionChoice::Fresh { .. } => return Ok(None),
        SessionChoice::Lobby => return Ok(Some(Front::Lobby(look(link, cwd).await?))),
        SessionChoice::Named(name) => {
            let found = open(link, &name).await?;
            let none = format!("Session not found: {name}");
            (found.or_else(|| (has_main && name == MAIN).then_some(name)), none)
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
    let running = agents.agents.iter().filter(|agent| {
        let is_somebodys = agent.is_temp && agent.parent_agent_id.is_none();
        match agent.status.as_str() {
            "stored" => false,
            "idle" => is_somebodys && agent.message_count > 0,
            _ => true,
        }
    });
    let running = running.map(|agent| agent.agent_id.clone()).collect();
    Ok(Lobby { sessions: here, running })
}

fn describe(session: &SessionEntry) -> String {
    let ago = ago(session.updated_at, Timestamp::now());
    format!("{} ({ago}, {})", session.name, counted(session.message_count, "message"))
}
