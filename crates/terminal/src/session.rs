//! What a terminal knows: the server, its agents and approvals, and the one conversation that is shown. It makes lines of
//! what happens; how they are put before a person is the business of the screen and of the plain form.

mod connection;
mod making;
mod news;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nexus_client::{Api as _, CallError, Target};
use nexus_protocol::agent::{AgentEntry, CreateAgentParams, ListAgents, ListAgentsParams};
use nexus_protocol::conversation::{
    GetContext, GetContextResult, GetMessages, GetMessagesParams, GetTokens, InterruptedTurn,
    MessageEntry,
};
use nexus_protocol::model::ListModels;
use nexus_protocol::params::{Bounded, NoParams};
use nexus_protocol::permission::{ApprovalEntry, ListPresets};
use nexus_protocol::server::ServerInfoResult;
use nexus_protocol::session::ListSessions;
use nexus_protocol::terminal::{LeftTurns, TerminalLeave, TerminalLeaveParams, TerminalStay};
use nexus_protocol::turn::{Cancel, CancelParams, RequestId};
use nexus_protocol::watch::WatchParams;
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::task::AbortHandle;

use crate::commands::{self, Said};
use crate::cx::{Cx, Front, Leaving, Making, terminal_name};
use crate::follow::{News, Of, Recent, follow, soon};
use crate::link::{Link, Traced};
use crate::markdown::{Look, Wrap};
use crate::options::{Options, SessionChoice};
use crate::start::{Found, Own};
use crate::style::{Colour, Line, Style};
use crate::view::View;
use making::{agent_name, create};
use sending::{Sending, Unsent};

/// What a server may take to hear that the terminal leaves.
const HEARD: Duration = Duration::from_secs(2);

/// An own server that ends twice within this is not started a third time.
const RESTART: Duration = Duration::from_secs(10);

/// How many messages of an agent are looked at when one turns to it: its last turn is shown, if that has no more.
const RECENT: u32 = 30;

/// Fewest messages that are shown then, and most lines of them.
const RECENT_MIN: usize = 2;
const RECENT_LINES_MAX: usize = 100;

pub struct Session {
    pub options: Options,
    pub link: Arc<Link>,
    pub info: ServerInfoResult,
    pub own: Option<Own>,
    pub is_connected: bool,
    /// In the order in which they were made.
    pub agents: Vec<Mark>,
    /// What waits for leave, oldest first.
    pub approvals: Vec<ApprovalEntry>,
    pub watchers: Vec<String>,
    pub view: Option<View>,
    /// Tokens in the context of the agent that is shown, and its window.
    pub tokens: Option<(u64, u64)>,
    /// All text goes to this agent.
    pub whisper: Option<String>,
    pub making: Making,
    /// The next agent that is made is gone with the server.
    pub is_temporary: bool,
    pub look: Look,
    pub news: Sender<News>,
    pub names: Names,
    pub front: UnboundedSender<Front>,
    pub traced: UnboundedSender<Traced>,
    watches: Vec<AbortHandle>,
    shown: Vec<AbortHandle>,
    generation: u64,
    /// Which agent is shown first is named, and being looked for; what is said meanwhile is sent to it.
    is_beginning: bool,
    /// An agent is being made; what is said meanwhile is sent to it.
    is_making: bool,
    /// What happens to the agent that is shown is told. Before that nothing is said to it: a quick turn would be over unseen.
    is_following: bool,
    /// Somebody stops the server.
    is_stopping: bool,
    /// When a server of its own was started again.
    restarted: Option<Instant>,
    /// There is nothing to stay for, and this is the exit code.
    pub over: Option<u8>,
    /// What was said and not sent yet.
    unsent: VecDeque<Unsent>,
    /// The message whose call was sent and of which nothing was heard.
    sending: Option<Sending>,
    /// The agent that this terminal made last, for its first message.
    made: Option<String>,
    /// What the first agent is that was shown has been said.
    is_introduced: bool,
}

/// Names that can be completed.
#[derive(Default)]
pub struct Names {
    pub sessions: Vec<String>,
    pub models: Vec<String>,
    pub presets: Vec<String>,
}

/// An agent, and what there is to see of it.
pub struct Mark {
    pub agent: AgentEntry,
    pub is_running: bool,
    /// Turns that ended while somebody else was shown.
    pub unseen: usize,
    pub has_failed: bool,
    /// Tool calls of the turn that runs.
    pub tools: usize,
}

impl Session {
    pub fn new(
        options: Options,
        found: Found,
        look: Look,
        news: Sender<News>,
        front: UnboundedSender<Front>,
        traced: UnboundedSender<Traced>,
    ) -> Self {
        let making = Making {
            cwd: options.cwd.clone(),
            model: options.model.clone(),
            preset: Some(options.preset.clone().unwrap_or(options.settings.preset.clone())),
        };
        let is_temporary = options.session == SessionChoice::Fresh { is_temporary: true };
        let is_beginning = matches!(options.session, SessionChoice::Last | SessionChoice::Named(_));
        let mut session = Self {
            options,
            link: found.link,
            info: found.info,
            own: found.own,
            is_connected: true,
            agents: Vec::new(),
            approvals: Vec::new(),
            watchers: Vec::new(),
            view: None,
            tokens: None,
            whisper: None,
            making,
            is_temporary,
            look,
            news,
            names: Names::default(),
            front,
            traced,
            watches: Vec::new(),
            shown: Vec::new(),
            generation: 0,
            is_beginning,
            is_making: false,
            is_following: false,
            is_stopping: false,
            restarted: None,
            over: None,
            unsent: VecDeque::new(),
            sending: None,
            made: None,
            is_introduced: false,
        };
        session.watch_all();
        session.ask_names();
        session
    }

    pub fn agent(&self) -> Option<&str> {
        self.view.as_ref().map(|view| view.agent.as_str())
    }

    /// The agent that is shown, as the list has it.
    pub fn mark(&self) -> Option<&Mark> {
        let shown = self.agent()?;
        self.agents.iter().find(|mark| mark.agent.agent_id == shown)
    }

    /// Whether something that this agent would do waits for somebody's leave.
    pub fn waits_for_leave(&self, agent: &str) -> bool {
        self.approvals.iter().any(|approval| approval.agent_id == agent)
    }

    /// Whether there is something of this agent that was not seen, or that waits for somebody.
    pub fn is_to_be_looked_at(&self, mark: &Mark) -> bool {
        mark.unseen > 0 || mark.has_failed || self.waits_for_leave(&mark.agent.agent_id)
    }

    /// The next agent of that kind behind the one that is shown; behind the last comes the first.
    pub fn next_to_look_at(&self) -> Option<String> {
        let is_shown = |mark: &Mark| Some(mark.agent.agent_id.as_str()) == self.agent();
        let behind = self.agents.iter().position(is_shown).map_or(0, |at| at + 1);
        let (before, behind) = self.agents.split_at(behind);
        let mut others = behind.iter().chain(before).filter(|mark| !is_shown(mark));
        let next = others.find(|mark| self.is_to_be_looked_at(mark))?;
        Some(next.agent.agent_id.clone())
    }

    /// Asks for the names that can be completed; those of now are there until they come.
    pub fn ask_names(&self) {
        let (link, news) = (Arc::clone(&self.link), self.news.clone());
        tokio::spawn(async move {
            let sessions = link.call::<ListSessions>(&Target::Server, Default::default()).await;
            let models = link.call::<ListModels>(&Target::Server, Default::default()).await;
            let presets = link.call::<ListPresets>(&Target::Server, NoParams {}).await;
            let names = Names {
                sessions: sessions
                    .map(|it| it.sessions.into_iter().map(|session| session.name).collect())
                    .unwrap_or_default(),
                models: models
                    .map(|it| it.models.into_iter().map(|model| model.alias).collect())
                    .unwrap_or_default(),
                presets: presets
                    .map(|it| it.presets.into_iter().map(|preset| preset.name).collect())
                    .unwrap_or_default(),
            };
            let _ = news.send(News::Names(names)).await;
        });
    }

    /// How many turns run or are on their way. Of the agent that is shown its own watch knows, which may be ahead of the other.
    pub fn turns(&self) -> usize {
        let shown = self.agent();
        let others = self
            .agents
            .iter()
            .filter(|mark| mark.is_running && Some(mark.agent.agent_id.as_str()) != shown);
        let runs_here = self.view.as_ref().is_some_and(|view| view.running().is_some());
        let is_on_its_way = self.sending.is_some() && !runs_here;
        others.count() + usize::from(runs_here || is_on_its_way) + self.unsent.len()
    }

    /// Whether the agent that is shown works, or something is on its way to one.
    pub fn is_busy(&self) -> bool {
        let is_sending = self.is_making || self.sending.is_some() || !self.unsent.is_empty();
        let runs = |view: &View| view.running().is_some() || !view.queued().is_empty();
        self.view.as_ref().is_some_and(runs)
            || self.mark().is_some_and(|mark| mark.is_running)
            || (is_sending && self.is_connected)
    }

    pub fn cx(&self) -> Cx {
        Cx {
            link: Arc::clone(&self.link),
            agent: self.agent().map(Into::into),
            making: self.making.clone(),
            settings: self.options.settings.clone(),
            width: match self.look.wrap {
                Wrap::Word => self.look.width,
                Wrap::Terminal => usize::MAX,
            },
            front: self.front.clone(),
        }
    }

    /// What a person said: a command, or something for the agent.
    pub fn say(&mut self, text: &str) -> Vec<Line> {
        match commands::read(text) {
            Said::Command(name, rest) => {
                let (cx, name, rest) = (self.cx(), name.to_owned(), rest.to_owned());
                tokio::spawn(async move { commands::run(cx, &name, &rest).await });
                Vec::new()
            }
            Said::Text(text) => self.send(text),
        }
    }

    /// Makes the agent for whom something waits to be said.
    fn make(&mut self) {
        self.is_making = true;
        let (link, making, news) = (Arc::clone(&self.link), self.creation(), self.news.clone());
        let taken = self.agents.iter().map(|mark| mark.agent.agent_id.clone()).collect();
        tokio::spawn(async move {
            let _ = news.send(News::Made(create(&link, making, taken).await)).await;
        });
    }

    /// The agent that the first message makes.
    fn creation(&self) -> CreateAgentParams {
        let name = match self.is_temporary {
            true => ".".into(),
            false => agent_name(&self.making.cwd),
        };
        CreateAgentParams {
            agent_id: Some(name),
            preset: self.making.preset.clone(),
            cwd: Some(self.making.cwd.to_string_lossy().into_owned()),
            model: self.making.model.clone(),
            system_prompt: self.options.system_prompt.clone(),
            ..Default::default()
        }
    }

    /// Cancels the turn that runs; whether there is one.
    pub fn cancel(&self) -> bool {
        let Some((agent, id)) = self
            .view
            .as_ref()
            .and_then(|view| Some((view.agent.clone(), view.running().cloned()?)))
        else {
            return false;
        };
        self.cancel_turn(agent, id);
        true
    }

    pub fn cancel_turn(&self, agent: String, request_id: RequestId) {
        let (link, cx) = (Arc::clone(&self.link), self.cx());
        tokio::spawn(async move {
            let params = CancelParams { request_id };
            if let Err(error) = link.call::<Cancel>(&Target::Agent(agent), params).await {
                cx.warn(error.to_string());
            }
        });
    }

    /// How this terminal is left when it is told to end: its turns go on, and so does the server that has them.
    pub fn by_signal(&self) -> Leaving {
        if self.turns() > 0 { Leaving::Detach } else { Leaving::Quit }
    }

    /// Tells a server of its own how this terminal leaves. It hears the end of the channel in any case.
    pub async fn leave(&self, leaving: Leaving) {
        if self.own.is_none() {
            return;
        }
        let told = async {
            match leaving {
                Leaving::Detach => {
                    let _ = self.link.call::<TerminalStay>(&Target::Server, NoParams {}).await;
                }
                Leaving::Quit | Leaving::Cancel => {
                    let turns = match leaving {
                        Leaving::Cancel => LeftTurns::Cancel,
                        _ => LeftTurns::Finish,
                    };
                    let params = TerminalLeaveParams { turns };
                    let _ = self.link.call::<TerminalLeave>(&Target::Server, params).await;
                }
                Leaving::Stopped => {}
            }
        };
        let _ = tokio::time::timeout(HEARD, told).await;
    }

    /// Shows another agent: its last messages first, then all that happens.
    pub fn show(&mut self, agent: String) {
        if std::mem::take(&mut self.is_beginning) {
            self.address(&agent);
        }
        self.stop_showing();
        self.whisper = None;
        self.tokens = None;
        self.view = Some(View::new(agent.clone(), self.options.settings.clone(), self.look));
        if let Some(mark) = self.agents.iter_mut().find(|mark| mark.agent.agent_id == agent) {
            mark.unseen = 0;
            mark.has_failed = false;
        }
        self.tell_who_waits();
        let (link, news, generation) = (Arc::clone(&self.link), self.news.clone(), self.generation);
        let is_first = !self.is_introduced;
        let task = tokio::spawn(async move {
            let total = match soon(|| recent(&link, &agent, is_first)).await {
                Ok(recent) => {
                    let total = recent.total;
                    let _ = news.send(News::Recent(generation, recent)).await;
                    total
                }
                Err(error @ CallError::Rpc(_)) => {
                    let _ = news.send(News::Unshown(generation, error)).await;
                    return;
                }
                Err(error) => {
                    let _ = news.send(News::Lost(error)).await;
                    return;
                }
            };
            let params = watch_one(&agent, total as i64 - 1);
            // Counting takes the server a while the first time, and nothing waits for it.
            let counted = tell_tokens(&link, &agent, &news);
            let following = follow(Arc::clone(&link), params, Of::Shown(generation), news.clone());
            tokio::join!(counted, following);
        });
        self.shown.push(task.abort_handle());
        // What was said to the one before waits for nothing any more.
        self.pump();
    }

    /// The agent that is shown says what it does, or that it waits.
    fn tell_who_waits(&mut self) {
        let waits = self.agent().is_some_and(|agent| self.waits_for_leave(agent));
        if let Some(view) = &mut self.view {
            view.wait_for_approval(waits);
        }
    }

    /// Nothing is shown; the next message makes an agent.
    pub fn fresh(&mut self) {
        self.stop_showing();
        self.view = None;
        self.tokens = None;
        self.pump();
    }

    fn stop_showing(&mut self) {
        self.generation += 1;
        self.is_following = false;
        self.shown.drain(..).for_each(|task| task.abort());
    }

    fn watch_all(&mut self) {
        self.watches.drain(..).for_each(|task| task.abort());
        let params = WatchParams {
            deltas: Some(false),
            approver: Some(true),
            name: Some(terminal_name()),
            ..Default::default()
        };
        let following = follow(Arc::clone(&self.link), params, Of::All, self.news.clone());
        self.watches.push(tokio::spawn(following).abort_handle());
    }

    /// Goes on with the conversation behind what is printed, as after a connection was lost.
    fn watch_shown_again(&mut self) {
        self.stop_showing();
        let Some(view) = &self.view else { return };
        let params = watch_one(&view.agent, view.last_index());
        let (link, agent, generation) =
            (Arc::clone(&self.link), view.agent.clone(), self.generation);
        let news = self.news.clone();
        let task = tokio::spawn(async move {
            let context = link.call::<GetContext>(&Target::Agent(agent), NoParams {}).await;
            if let Some(turn) = context.ok().and_then(interrupted) {
                let _ = news.send(News::Interrupted(generation, turn)).await;
            }
            follow(link, params, Of::Shown(generation), news).await;
        });
        self.shown.push(task.abort_handle());
    }
}

fn watch_one(agent: &str, after: i64) -> WatchParams {
    WatchParams {
        agents: Some(vec![agent.to_owned()]),
        after: Some(BTreeMap::from([(agent.to_owned(), after)])),
        ..Default::default()
    }
}

/// The end of the conversation; of the agent that is shown first also what it is.
async fn recent(link: &Link, agent: &str, is_first: bool) -> Result<Recent, CallError> {
    let target = Target::Agent(agent.to_owned());
    let page = GetMessagesParams {
        from_end: Some(true),
        limit: Bounded::new(RECENT),
        ..Default::default()
    };
    let page = link.call::<GetMessages>(&target, page).await?;
    let context = link.call::<GetContext>(&target, NoParams {}).await?;
    let agents = match is_first {
        true => {
            let params = ListAgentsParams::default();
            Some(link.call::<ListAgents>(&Target::Server, params).await?.agents)
        }
        false => None,
    };
    let (messages, total) = (last_turn(page.messages), page.total);
    Ok(Recent { agents, messages, total, interrupted: interrupted(context) })
}

/// The messages from the last question on, so that an answer stands below what it answers; where the question is further
/// back, what was said last. A result never comes first: nobody would know of what.
fn last_turn(mut messages: Vec<MessageEntry>) -> Vec<MessageEntry> {
    let least = messages.len().saturating_sub(RECENT_MIN);
    let question = messages.iter().rposition(|message| message.role == "user");
    let from = question.unwrap_or(least).min(least);
    let is_result = |message: &MessageEntry| message.role == "tool";
    let results = messages.iter().skip(from).take_while(|message| is_result(message)).count();
    messages.split_off(from + results)
}

/// The turn that can be taken up again, where none runs.
fn interrupted(context: GetContextResult) -> Option<InterruptedTurn> {
    context.interrupted_turn.filter(|_| context.turns.is_empty())
}

async fn tell_tokens(link: &Link, agent: &str, news: &Sender<News>) {
    let tokens = link.call::<GetTokens>(&Target::Agent(agent.to_owned()), NoParams {}).await;
    if let Ok(tokens) = tokens {
        let _ = news.send(News::Tokens(agent.to_owned(), tokens.total, tokens.budget)).await;
    }
}

pub fn warning(text: &str) -> Line {
    Line::styled(text, Style::colour(Colour::Yellow))
}

pub fn failure(text: &str) -> Line {
    Line::styled(text, Style::colour(Colour::Red))
}
