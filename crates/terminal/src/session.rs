//! What a terminal knows: the server, its agents and approvals, and the one conversation that is shown. It makes lines of
//! what happens; how they are put before a person is the business of the screen and of the plain form.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nexus_client::{Api as _, CallError, Target};
use nexus_protocol::agent::{AgentEntry, CreateAgent, CreateAgentParams};
use nexus_protocol::conversation::{
    GetContext, GetContextResult, GetMessages, GetMessagesParams, GetTokens, InterruptedTurn,
};
use nexus_protocol::model::ListModels;
use nexus_protocol::once::IdempotencyKey;
use nexus_protocol::params::{Bounded, NoParams, NonBlank};
use nexus_protocol::permission::{ApprovalEntry, ListPresets};
use nexus_protocol::server::ServerInfoResult;
use nexus_protocol::session::ListSessions;
use nexus_protocol::terminal::{LeftTurns, TerminalLeave, TerminalLeaveParams, TerminalStay};
use nexus_protocol::turn::{
    Cancel, CancelParams, RequestId, Send as SendMessage, SendParams, SendResult,
};
use nexus_protocol::watch::{Event, Happened, WatchParams};
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::task::AbortHandle;

use crate::commands::{self, Said};
use crate::cx::{Cx, Front, Leaving, MESSAGE_BYTES_MAX, Making, request_id, terminal_name};
use crate::follow::{News, Of, Recent, follow};
use crate::link::{Link, Traced};
use crate::markdown::Look;
use crate::options::{Options, SessionChoice};
use crate::start::{self, Found, Own};
use crate::style::{Colour, Line, Style};
use crate::view::{View, grouped, whole};

/// What a server may take to hear that the terminal leaves.
const HEARD: Duration = Duration::from_secs(2);

/// An own server that ends twice within this is not started a third time.
const RESTART: Duration = Duration::from_secs(10);

/// How many messages of an agent are shown when one turns to it.
const RECENT: u32 = 2;

/// And how many lines of them.
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
    /// The turn whose call was sent and of which nothing was heard.
    sending: Option<RequestId>,
}

/// Names that can be completed.
#[derive(Default)]
pub struct Names {
    pub sessions: Vec<String>,
    pub models: Vec<String>,
    pub presets: Vec<String>,
}

/// Something that was said.
struct Unsent {
    content: NonBlank,
    whisper: Option<String>,
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
            is_making: false,
            is_following: false,
            is_stopping: false,
            restarted: None,
            over: None,
            unsent: VecDeque::new(),
            sending: None,
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

    pub fn cx(&self) -> Cx {
        Cx {
            link: Arc::clone(&self.link),
            agent: self.agent().map(Into::into),
            making: self.making.clone(),
            settings: self.options.settings.clone(),
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

    fn send(&mut self, text: String) -> Vec<Line> {
        if !self.is_connected {
            return vec![warning("not connected: nothing was sent")];
        }
        if text.len() > MESSAGE_BYTES_MAX {
            let size = grouped(text.len() as u64);
            return vec![warning(&format!(
                "not sent: {size} bytes, and a message has at most 1 MiB"
            ))];
        }
        let Some(content) = NonBlank::new(text) else { return Vec::new() };
        self.unsent.push_back(Unsent { content, whisper: self.whisper.clone() });
        self.pump();
        Vec::new()
    }

    /// Sends what waits, one after another: two calls at once could come in either order. What is said before there is an
    /// agent waits until one is made, and watched: of a turn that ended before, nobody would tell the end.
    fn pump(&mut self) {
        if self.sending.is_some() || self.is_making {
            return;
        }
        let Some(next) = self.unsent.front() else { return };
        let Some(agent) = next.whisper.clone().or_else(|| self.agent().map(Into::into)) else {
            return self.make();
        };
        if self.agent() == Some(&agent) && !self.is_following {
            return;
        }
        let Some(Unsent { content, whisper }) = self.unsent.pop_front() else { return };
        let name = match request_id() {
            Ok(name) => name,
            Err(refused) => return self.cx().warn(refused.to_string()),
        };
        let id = RequestId::Text(name.clone());
        let mut params = SendParams::new(content);
        params.request_id = Some(id.clone());
        // With a key, the turn outlives this terminal.
        params.idempotency_key = IdempotencyKey::new(name).ok();
        params.source = Some(format!("terminal:{}", terminal_name()));
        if let Some(view) = &mut self.view {
            view.own(&id);
        }
        self.sending = Some(id.clone());
        let (link, news) = (Arc::clone(&self.link), self.news.clone());
        tokio::spawn(async move {
            let sent = link.call::<SendMessage>(&Target::Agent(agent), params).await;
            let _ =
                news.send(News::Answered { id, whispered_to: whisper, sent: Box::new(sent) }).await;
        });
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
        self.stop_showing();
        self.whisper = None;
        self.tokens = None;
        self.view = Some(View::new(agent.clone(), self.options.settings.clone(), self.look));
        if let Some(mark) = self.agents.iter_mut().find(|mark| mark.agent.agent_id == agent) {
            mark.unseen = 0;
            mark.has_failed = false;
        }
        let (link, news, generation) = (Arc::clone(&self.link), self.news.clone(), self.generation);
        let task = tokio::spawn(async move {
            let total = match recent(&link, &agent).await {
                Ok(recent) => {
                    let total = recent.total;
                    let _ = news.send(News::Recent(generation, recent)).await;
                    total
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
    }

    /// Nothing is shown; the next message makes an agent.
    pub fn fresh(&mut self) {
        self.stop_showing();
        self.view = None;
        self.tokens = None;
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

    /// Takes what the server told, and returns what there is to print.
    pub fn take(&mut self, news: News) -> Vec<Line> {
        match news {
            News::All(happened) => self.happened(*happened),
            News::Shown(generation, happened) if generation == self.generation => {
                if !std::mem::replace(&mut self.is_following, true) {
                    self.pump();
                }
                self.happened_here(*happened)
            }
            News::Recent(generation, recent) if generation == self.generation => {
                self.recent(recent)
            }
            News::CaughtUp(generation) if generation == self.generation => {
                vec![Line::styled("… caught up", Style::DIM)]
            }
            News::Interrupted(generation, turn) if generation == self.generation => {
                let said = self.view.as_mut().map(View::forget_turn);
                said.unwrap_or_default().into_iter().chain([cut_off(&turn)]).collect()
            }
            News::Shown(..) | News::Recent(..) | News::CaughtUp(_) | News::Interrupted(..) => {
                Vec::new()
            }
            News::Tokens(agent, total, budget) => {
                if self.agent() == Some(&agent) {
                    self.tokens = Some((total, budget));
                }
                Vec::new()
            }
            News::Names(names) => {
                self.names = names;
                Vec::new()
            }
            News::Made(made) => {
                self.is_making = false;
                match made {
                    Ok(agent) => {
                        self.show(agent);
                        self.pump();
                        Vec::new()
                    }
                    Err(error) => {
                        let said = self.unsent.drain(..).map(|unsent| unsent.content.into_string());
                        let said: Vec<String> = said.collect();
                        let _ = self.front.send(Front::Fill(said.join("\n")));
                        vec![failure(&error.to_string())]
                    }
                }
            }
            News::Answered { id, whispered_to, sent } => {
                self.heard_of(&id);
                self.answered(&id, whispered_to, *sent)
            }
            News::Stopping => {
                self.is_stopping = true;
                self.lost(&CallError::Transport("the server stops".into()))
            }
            News::Lost(error) => self.lost(&error),
            News::Back(found) => self.back(*found),
            News::NoServer(why) => vec![failure(&why)],
            // The choice was made before there was a session.
            News::Servers(_) => Vec::new(),
        }
    }

    /// The server has the turn: what was said next can follow it.
    fn heard_of(&mut self, id: &RequestId) {
        if self.sending.as_ref() == Some(id) {
            self.sending = None;
            self.pump();
        }
    }

    fn answered(
        &mut self,
        id: &RequestId,
        whispered_to: Option<String>,
        sent: Result<SendResult, CallError>,
    ) -> Vec<Line> {
        let is_told = self.view.as_ref().is_some_and(|view| view.was_asked(id));
        match (sent, whispered_to) {
            (Ok(answer), Some(agent)) if self.agent() != Some(&agent) => {
                let mark = Style::colour(Colour::Magenta);
                let mut lines = vec![Line::styled(format!("◀ {agent}:"), mark)];
                lines.extend(whole(&answer.content, self.look));
                lines
            }
            (Ok(_), _) | (Err(CallError::Transport(_)), _) => Vec::new(),
            (Err(_), None) if is_told => Vec::new(),
            (Err(error), _) => vec![failure(&error.to_string())],
        }
    }

    fn happened_here(&mut self, happened: Happened) -> Vec<Line> {
        let is_end = matches!(happened.event, Event::TurnEnded { .. } | Event::Compacted { .. });
        let Some(view) = &mut self.view else { return Vec::new() };
        let lines = view.happened(happened);
        if is_end {
            let (link, agent, news) =
                (Arc::clone(&self.link), view.agent.clone(), self.news.clone());
            tokio::spawn(async move { tell_tokens(&link, &agent, &news).await });
        }
        lines
    }

    fn recent(&mut self, recent: Recent) -> Vec<Line> {
        let Some(view) = &mut self.view else { return Vec::new() };
        let mut lines = Vec::new();
        let first = recent.total - recent.messages.len() as u64;
        let is_told_more = self.options.model.is_some() || self.options.preset.is_some();
        if recent.total > 0 && is_told_more {
            let words = "model and preset of the command line are for agents that are made";
            lines.push(Line::styled(words, Style::DIM));
        }
        view.begin_at(first);
        if first > 0 {
            let words = format!("… {} earlier messages", grouped(first));
            lines.push(Line::styled(words, Style::DIM));
        }
        let mut said = Vec::new();
        for message in recent.messages {
            view.message(message.index, message, &mut said);
        }
        // A long answer is shown by its end; all of it is one command away.
        let surplus = said.len().saturating_sub(RECENT_LINES_MAX);
        if surplus > 0 {
            let words = format!("… {} earlier lines", grouped(surplus as u64));
            lines.push(Line::styled(words, Style::DIM));
        }
        lines.extend(said.into_iter().skip(surplus));
        lines.extend(recent.interrupted.map(|turn| cut_off(&turn)));
        lines
    }

    /// What happens to all agents: their marks, and what waits for leave.
    fn happened(&mut self, happened: Happened) -> Vec<Line> {
        let shown = self.agent().map(ToOwned::to_owned);
        let agent = happened.agent_id.clone().unwrap_or_default();
        let is_shown = shown.as_deref() == Some(&agent);
        let mut lines = Vec::new();
        if let (Some(id), Event::TurnQueued { .. } | Event::TurnStarted { .. }) =
            (&happened.request_id, &happened.event)
        {
            self.heard_of(&id.clone());
        }
        match happened.event {
            Event::Snapshot(snapshot) => {
                if !snapshot.more {
                    self.approvals = snapshot.approvals;
                    self.watchers = snapshot.watchers;
                }
                for watched in snapshot.agents {
                    let is_running = watched.turns.iter().any(|turn| turn.status == "running");
                    self.add(watched.agent, is_running);
                }
            }
            Event::AgentCreated { agent } => self.add(*agent, false),
            Event::AgentEnded {} => {
                self.agents.retain(|mark| mark.agent.agent_id != agent);
                if is_shown {
                    lines.push(warning(&format!(
                        "{agent} has ended. What you say next makes a new agent."
                    )));
                    self.fresh();
                }
            }
            Event::AgentRenamed { to } => {
                for mark in self.agents.iter_mut().filter(|mark| mark.agent.agent_id == agent) {
                    mark.agent.agent_id.clone_from(&to);
                }
                if is_shown {
                    lines.push(Line::styled(format!("{agent} is {to} now"), Style::DIM));
                    if let Some(view) = &mut self.view {
                        view.agent = to;
                    }
                    self.watch_shown_again();
                }
            }
            Event::AgentChanged { status, model, permission_level, cwd } => {
                if status.as_deref() == Some("elsewhere") && is_shown {
                    lines.push(warning(&format!("another process has {agent} now")));
                }
                if let Some(mark) = self.find(&agent) {
                    let entry = &mut mark.agent;
                    entry.model = model.or_else(|| entry.model.take());
                    entry.cwd = cwd.unwrap_or_else(|| std::mem::take(&mut entry.cwd));
                    if let Some(level) = permission_level {
                        entry.permission_level = level;
                    }
                }
            }
            Event::TurnStarted { .. } => {
                if let Some(mark) = self.find(&agent) {
                    mark.is_running = true;
                    mark.tools = 0;
                }
            }
            Event::ToolCall(_) => {
                if let Some(mark) = self.find(&agent) {
                    mark.tools += 1;
                }
            }
            Event::TurnEnded { status, duration_ms, .. } => {
                if let Some(mark) = self.find(&agent) {
                    mark.is_running = false;
                    let tools = mark.tools;
                    if !is_shown {
                        mark.unseen += 1;
                        mark.has_failed = status == "failed";
                        let words =
                            format!("{agent}: {status}, {tools} tools, {} s", duration_ms / 1_000);
                        lines.push(Line::styled(words, Style::DIM));
                    }
                }
            }
            Event::ApprovalRequested { approval } => {
                self.approvals.retain(|known| known.approval_id != approval.approval_id);
                if is_shown && let Some(view) = &mut self.view {
                    view.wait_for_approval(true);
                }
                self.approvals.push(approval);
            }
            Event::ApprovalDecided { approval } => {
                let before = self.approvals.len();
                self.approvals.retain(|known| known.approval_id != approval.approval_id);
                if is_shown && let Some(view) = &mut self.view {
                    view.wait_for_approval(false);
                }
                if self.approvals.len() < before {
                    let words = format!(
                        "{} {}: {}",
                        approval.agent_id,
                        approval.tool,
                        approval.status.replace('_', " ")
                    );
                    lines.push(Line::styled(words, Style::DIM));
                }
            }
            Event::Watchers { watchers } => self.watchers = watchers,
            Event::ServerStopping { grace_ms } => {
                self.is_stopping = true;
                lines.push(warning(&format!("the server stops (within {} s)", grace_ms / 1_000)));
            }
            _ => {}
        }
        lines
    }

    fn find(&mut self, agent: &str) -> Option<&mut Mark> {
        self.agents.iter_mut().find(|mark| mark.agent.agent_id == agent)
    }

    fn add(&mut self, agent: AgentEntry, is_running: bool) {
        match self.find(&agent.agent_id) {
            Some(mark) => {
                mark.agent = agent;
                mark.is_running = is_running;
            }
            None => {
                let mark = Mark { agent, is_running, unseen: 0, has_failed: false, tools: 0 };
                self.agents.push(mark);
            }
        }
    }

    fn lost(&mut self, error: &CallError) -> Vec<Line> {
        if !std::mem::replace(&mut self.is_connected, false) {
            return Vec::new();
        }
        self.watches.drain(..).for_each(|task| task.abort());
        self.stop_showing();
        self.approvals.clear();
        self.sending = None;
        if self.is_stopping {
            self.over = Some(0);
            return vec![warning("the server has stopped")];
        }
        let (options, news, traced) =
            (self.options.clone(), self.news.clone(), self.traced.clone());
        let Some(own) = self.own.take() else {
            tokio::spawn(connect_again(options, news, traced));
            return vec![warning(&format!("{error}; connecting again"))];
        };
        let is_again = self.restarted.is_some_and(|at| at.elapsed() < RESTART);
        self.restarted = Some(Instant::now());
        if is_again {
            self.over = Some(1);
            return vec![failure("the server ended again; its log is logs/server.log in the home")];
        }
        let cx = self.cx();
        tokio::spawn(async move {
            cx.warn(format!("server ended ({}); starting it again", own.end().await));
            connect_again(options, news, traced).await;
        });
        Vec::new()
    }

    fn back(&mut self, found: Found) -> Vec<Line> {
        self.link = found.link;
        self.info = found.info;
        self.own = found.own;
        self.is_connected = true;
        self.agents.clear();
        self.watch_all();
        self.watch_shown_again();
        vec![Line::styled(format!("connected again (pid {})", self.info.pid), Style::DIM)]
    }
}

/// Looks for a server until there is one.
async fn connect_again(options: Options, news: Sender<News>, traced: UnboundedSender<Traced>) {
    let mut wait = Duration::from_millis(100);
    loop {
        match start::find(&options, &traced).await {
            Ok(found) => {
                let _ = news.send(News::Back(Box::new(found))).await;
                return;
            }
            Err(_) => tokio::time::sleep(wait).await,
        }
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}

fn watch_one(agent: &str, after: i64) -> WatchParams {
    WatchParams {
        agents: Some(vec![agent.to_owned()]),
        after: Some(BTreeMap::from([(agent.to_owned(), after)])),
        ..Default::default()
    }
}

async fn recent(link: &Link, agent: &str) -> Result<Recent, CallError> {
    let target = Target::Agent(agent.to_owned());
    let page = GetMessagesParams {
        from_end: Some(true),
        limit: Bounded::new(RECENT),
        ..Default::default()
    };
    let page = link.call::<GetMessages>(&target, page).await?;
    let context = link.call::<GetContext>(&target, NoParams {}).await?;
    Ok(Recent { messages: page.messages, total: page.total, interrupted: interrupted(context) })
}

/// The turn that can be taken up again, where none runs.
fn interrupted(context: GetContextResult) -> Option<InterruptedTurn> {
    context.interrupted_turn.filter(|_| context.turns.is_empty())
}

fn cut_off(turn: &InterruptedTurn) -> Line {
    let doubt = match turn.unknown_tool_calls.len() {
        0 => String::new(),
        1 => " (1 tool call in doubt)".into(),
        calls => format!(" ({calls} tool calls in doubt)"),
    };
    let id = match &turn.request_id {
        RequestId::Text(id) => id.clone(),
        RequestId::Number(id) => id.to_string(),
    };
    warning(&format!("turn {id} was cut off{doubt}: /continue"))
}

async fn tell_tokens(link: &Link, agent: &str, news: &Sender<News>) {
    let tokens = link.call::<GetTokens>(&Target::Agent(agent.to_owned()), NoParams {}).await;
    if let Ok(tokens) = tokens {
        let _ = news.send(News::Tokens(agent.to_owned(), tokens.total, tokens.budget)).await;
    }
}

/// Makes the agent under the name it was to have, or the first of `name-2`, `name-3`, … that is free.
async fn create(
    link: &Link,
    params: CreateAgentParams,
    taken: Vec<String>,
) -> Result<String, CallError> {
    let wanted = params.agent_id.clone().unwrap_or_default();
    if wanted.starts_with('.') {
        return Ok(link.call::<CreateAgent>(&Target::Server, params).await?.agent_id);
    }
    let mut number = 1_u32;
    loop {
        let name = if number == 1 { wanted.clone() } else { format!("{wanted}-{number}") };
        number += 1;
        if taken.contains(&name) {
            continue;
        }
        let params = CreateAgentParams { agent_id: Some(name), ..again(&params) };
        match link.call::<CreateAgent>(&Target::Server, params).await {
            Ok(made) => return Ok(made.agent_id),
            // Somebody else's, or a saved session's.
            Err(CallError::Rpc(error)) if error.message.contains("exists") && number < 1_000 => {}
            Err(error) => return Err(error),
        }
    }
}

fn again(params: &CreateAgentParams) -> CreateAgentParams {
    CreateAgentParams {
        preset: params.preset.clone(),
        cwd: params.cwd.clone(),
        model: params.model.clone(),
        system_prompt: params.system_prompt.clone(),
        ..Default::default()
    }
}

/// The directory's name, as far as it can be an agent's.
fn agent_name(cwd: &std::path::Path) -> String {
    let name = cwd.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let kept: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
        .take(40)
        .collect();
    match kept.trim_matches('-') {
        "" => "main".into(),
        name => name.into(),
    }
}

pub fn warning(text: &str) -> Line {
    Line::styled(text, Style::colour(Colour::Yellow))
}

pub fn failure(text: &str) -> Line {
    Line::styled(text, Style::colour(Colour::Red))
}
