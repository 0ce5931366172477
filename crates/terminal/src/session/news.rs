//! What the server tells, as lines that are printed, and as marks of the agents.

use std::path::Path;
use std::sync::Arc;

use nexus_client::CallError;
use nexus_protocol::agent::AgentEntry;
use nexus_protocol::conversation::InterruptedTurn;
use nexus_protocol::watch::{Event, Happened};

use super::{Mark, RECENT_LINES_MAX, Session, failure, tell_tokens, warning};
use crate::app::{introduction, offer_lobby};
use crate::figures::{counted, request};
use crate::follow::{News, Recent};
use crate::options::Options;
use crate::style::{Line, Style};
use crate::view::View;

impl Session {
    /// Takes what the server told, and returns what there is to print.
    pub fn take(&mut self, news: News) -> Vec<Line> {
        match news {
            News::All(happened) => self.happened(*happened),
            News::Shown(generation, happened) if generation == self.generation => {
                let lines = self.happened_here(*happened);
                // Before that it is not known of everything whether it has arrived.
                let has_caught_up = self.view.as_ref().is_some_and(View::has_caught_up);
                if has_caught_up && !std::mem::replace(&mut self.is_following, true) {
                    self.pump();
                }
                lines
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
            News::Unshown(generation, error) if generation == self.generation => {
                self.unshown(&error)
            }
            News::Shown(..)
            | News::Recent(..)
            | News::CaughtUp(_)
            | News::Interrupted(..)
            | News::Unshown(..) => Vec::new(),
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
                        self.made = Some(agent.clone());
                        self.address(&agent);
                        self.show(agent);
                        Vec::new()
                    }
                    Err(error) => {
                        self.give_back(None);
                        self.pump();
                        vec![failure(&error.to_string())]
                    }
                }
            }
            News::Answered { id, whispered_to, sent } => self.answered(&id, whispered_to, *sent),
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

    fn happened_here(&mut self, happened: Happened) -> Vec<Line> {
        let is_end = matches!(happened.event, Event::TurnEnded { .. } | Event::Compacted { .. });
        let Some(view) = &mut self.view else { return Vec::new() };
        if let Some(mark) = self.agents.iter().find(|mark| mark.agent.agent_id == view.agent) {
            view.work_in(&mark.agent.cwd);
        }
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
        let agents = recent.agents.filter(|_| !self.is_introduced);
        let entry = agents
            .as_ref()
            .and_then(|agents| agents.iter().find(|entry| entry.agent_id == view.agent));
        if let Some(entry) = entry {
            self.is_introduced = true;
            lines.extend(introduction(entry, self.options.settings.plain));
            let is_made_here = self.made.as_ref() == Some(&entry.agent_id);
            if !is_made_here && is_told_otherwise(&self.options, entry) {
                let words =
                    "model, directory and preset of the command line are for agents that are made";
                lines.push(Line::styled(words, Style::DIM));
            }
        }
        view.begin_at(first);
        if first > 0 {
            let words = format!("… {}", counted(first, "earlier message"));
            lines.push(Line::styled(words, Style::DIM));
        }
        let mut said = Vec::new();
        for message in recent.messages {
            view.message(message.index, message, &mut said);
        }
        // A long answer is shown by its end; all of it is one command away.
        let surplus = said.len().saturating_sub(RECENT_LINES_MAX);
        if surplus > 0 {
            let words = format!("… {}", counted(surplus as u64, "earlier line"));
            lines.push(Line::styled(words, Style::DIM));
        }
        lines.extend(said.into_iter().skip(surplus));
        lines.extend(recent.interrupted.map(|turn| cut_off(&turn)));
        lines
    }

    /// The agent stays where it is: another conversation is offered, and the next message makes an agent.
    fn unshown(&mut self, error: &CallError) -> Vec<Line> {
        let agent = self.agent().unwrap_or_default().to_owned();
        self.give_back_of(&agent);
        self.fresh();
        offer_lobby(self);
        let details = match error {
            CallError::Rpc(error) => error.details(),
            _ => None,
        };
        let why =
            details.map_or_else(|| error.to_string(), |details| format!("{error}: {details}"));
        vec![failure(&format!("{agent} cannot be shown: {why}"))]
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
                let comes_back = self.give_back_of(&agent);
                if comes_back && !is_shown {
                    lines.push(warning(&format!("not sent: {agent} has ended")));
                }
                if is_shown {
                    lines.push(warning(&format!(
                        "{agent} has ended. What you say next makes a new agent."
                    )));
                    self.fresh();
                    offer_lobby(self);
                }
            }
            Event::AgentRenamed { to } => {
                for mark in self.agents.iter_mut().filter(|mark| mark.agent.agent_id == agent) {
                    mark.agent.agent_id.clone_from(&to);
                }
                self.rename(&agent, &to);
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
                        let tools = match tools {
                            0 => String::new(),
                            tools => format!(", {}", counted(tools as u64, "tool")),
                        };
                        let words = format!("{agent}: {status}{tools}, {} s", duration_ms / 1_000);
                        lines.push(Line::styled(words, Style::DIM));
                    }
                }
            }
            Event::ApprovalRequested { approval } => {
                self.approvals.retain(|known| known.approval_id != approval.approval_id);
                self.approvals.push(approval);
            }
            Event::ApprovalDecided { approval } => {
                let before = self.approvals.len();
                self.approvals.retain(|known| known.approval_id != approval.approval_id);
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
        self.tell_who_waits();
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
}

/// Whether the command line says something else of an agent than what it is.
fn is_told_otherwise(options: &Options, agent: &AgentEntry) -> bool {
    let is_other = |told: &Option<String>, is: &str| told.as_ref().is_some_and(|told| told != is);
    is_other(&options.model, agent.model.as_deref().unwrap_or_default())
        || is_other(&options.preset, &agent.permission_level.to_lowercase())
        || (options.has_cwd && options.cwd != Path::new(&agent.cwd))
}

fn cut_off(turn: &InterruptedTurn) -> Line {
    let doubt = match turn.unknown_tool_calls.len() {
        0 => String::new(),
        1 => " (1 tool call in doubt)".into(),
        calls => format!(" ({calls} tool calls in doubt)"),
    };
    warning(&format!("turn {} was cut off{doubt}: /continue", request(&turn.request_id)))
}
