//! What was said, on its way to the server. None of it is lost: it arrives once, or comes back to whoever said it.

use std::sync::Arc;
use std::time::Duration;

use nexus_client::{CallError, Target};
use nexus_protocol::once::IdempotencyKey;
use nexus_protocol::params::NonBlank;
use nexus_protocol::turn::{RequestId, Send as SendMessage, SendParams, SendResult};
use tokio::task::AbortHandle;

use super::{Session, failure, warning};
use crate::cx::{Front, MESSAGE_BYTES_MAX, request_id, terminal_name};
use crate::figures::{brief, count};
use crate::follow::News;
use crate::link::Link;
use crate::style::{Colour, Line, Style};
use crate::view::{View, whole};

/// How often a message is sent of which it is not known whether it arrived, while the server is there, and after how long.
/// Its key keeps it from being taken twice.
const TRIES_MAX: u32 = 3;
const AGAIN: Duration = Duration::from_millis(300);

/// How much of a message is repeated that could not be sent; the history has all of it.
const REPEATED_CHARS_MAX: usize = 200;

/// Something that was said.
pub(super) struct Unsent {
    pub content: NonBlank,
    /// To whom, as it stood before the input; `None` for the agent that is to be made. Whoever is shown when it leaves may
    /// be another one, with other rights in another directory.
    pub to: Option<String>,
    /// It is not for the agent that is shown, and its answer is printed when it comes.
    is_whispered: bool,
    /// The name of its turn, once it was sent.
    pub name: Option<String>,
}

/// The message whose call was sent and of which nothing was heard.
pub(super) struct Sending {
    pub id: RequestId,
    pub unsent: Unsent,
    task: AbortHandle,
}

impl Session {
    pub(super) fn send(&mut self, text: String) -> Vec<Line> {
        if !self.is_connected {
            return vec![warning("not connected: nothing was sent")];
        }
        if text.len() > MESSAGE_BYTES_MAX {
            let size = count(text.len() as u64);
            return vec![warning(&format!(
                "not sent: {size} bytes, and a message has at most 1 MiB"
            ))];
        }
        let Some(content) = NonBlank::new(text) else { return Vec::new() };
        let is_whispered = self.whisper.is_some();
        let said = self.whispered(content.as_str());
        let to = self.whisper.clone().or_else(|| self.agent().map(Into::into));
        self.unsent.push_back(Unsent { content, to, is_whispered, name: None });
        self.pump();
        said
    }

    /// What goes to an agent that is not shown: nobody else tells that it was said.
    fn whispered(&self, text: &str) -> Vec<Line> {
        let to = self.whisper.as_deref().filter(|to| Some(*to) != self.agent());
        let Some(to) = to.filter(|_| !self.options.settings.plain) else { return Vec::new() };
        let mark = Line::styled(format!("{to}> "), Style::colour(Colour::Magenta));
        let mut lines = text.lines();
        let first = mark.with(lines.next().unwrap_or_default(), Style::PLAIN);
        [Line::default(), first].into_iter().chain(lines.map(Line::plain)).collect()
    }

    /// Sends what waits, one after another: two calls at once could come in either order. What is said before there is an
    /// agent waits until one is made, and watched: of a turn that ended before, nobody would tell the end.
    pub(super) fn pump(&mut self) {
        if self.sending.is_some() || self.is_making || !self.is_connected {
            return;
        }
        let Some(next) = self.unsent.front() else { return };
        let Some(agent) = next.to.clone() else {
            if !self.is_beginning {
                self.make();
            }
            return;
        };
        let is_shown = self.agent() == Some(&agent);
        if is_shown && !self.is_following {
            return;
        }
        let Some(unsent) = self.unsent.pop_front() else { return };
        let name = match unsent.name.clone().map_or_else(request_id, Ok) {
            Ok(name) => name,
            Err(refused) => {
                self.give_back_from(unsent);
                return self.cx().warn(format!("not sent: {refused}"));
            }
        };
        let id = RequestId::Text(name.clone());
        if is_shown && self.was_asked(&id) {
            // It had arrived before the connection was lost.
            return self.pump();
        }
        if let Some(view) = &mut self.view {
            view.own(&id);
        }
        let unsent = Unsent { name: Some(name.clone()), ..unsent };
        let (link, news) = (Arc::clone(&self.link), self.news.clone());
        let content = unsent.content.clone();
        let whispered_to = unsent.is_whispered.then(|| agent.clone());
        let of = id.clone();
        let task = tokio::spawn(async move {
            let sent = deliver(&link, &Target::Agent(agent), &content, &name).await;
            let _ = news.send(News::Answered { id: of, whispered_to, sent: Box::new(sent) }).await;
        });
        self.sending = Some(Sending { id, unsent, task: task.abort_handle() });
    }

    /// The server has the turn: what was said next can follow it.
    pub(super) fn heard_of(&mut self, id: &RequestId) {
        if self.sending.take_if(|sending| sending.id == *id).is_some() {
            self.pump();
        }
    }

    pub(super) fn answered(
        &mut self,
        id: &RequestId,
        whispered_to: Option<String>,
        sent: Result<SendResult, CallError>,
    ) -> Vec<Line> {
        let unheard = self.sending.take_if(|sending| sending.id == *id);
        let is_told = self.was_asked(id);
        let lines = match (sent, whispered_to) {
            (Ok(answer), Some(agent)) if self.agent() != Some(&agent) => {
                let mark = Style::colour(Colour::Magenta);
                let words = match self.options.settings.plain {
                    true => format!("{agent}:"),
                    false => format!("◀ {agent}:"),
                };
                let mut lines = vec![Line::styled(words, mark)];
                lines.extend(whole(&answer.content, self.look));
                lines
            }
            (Ok(_), _) => Vec::new(),
            (Err(_), None) if is_told => Vec::new(),
            (Err(error), _) => {
                let is_unheard = unheard.is_some();
                let to = unheard.and_then(|sending| self.give_back_from(sending.unsent));
                // Whoever said it may be looking at another agent by now.
                let to = to.filter(|to| self.agent() != Some(to));
                let to = to.map_or_else(String::new, |to| format!("{to}: "));
                match error {
                    CallError::Rpc(error) => vec![failure(&format!("{to}{error}"))],
                    error if is_unheard => vec![warning(&format!("{to}not sent: {error}"))],
                    // What was heard of goes on, and its end is told by those who watch.
                    _ => Vec::new(),
                }
            }
        };
        self.pump();
        lines
    }

    /// The connection is lost: what was on its way is sent again, under the same name, when there is one again.
    pub(super) fn take_back_sending(&mut self) {
        if let Some(sending) = self.sending.take() {
            sending.task.abort();
            self.unsent.push_front(sending.unsent);
        }
    }

    /// The agent is there for whom this was said.
    pub(super) fn address(&mut self, agent: &str) {
        for unsent in self.unsent.iter_mut().filter(|unsent| unsent.to.is_none()) {
            unsent.to = Some(agent.to_owned());
        }
    }

    pub(super) fn rename(&mut self, agent: &str, to: &str) {
        let sending = self.sending.as_mut().map(|sending| &mut sending.unsent.to);
        let unsent = self.unsent.iter_mut().map(|unsent| &mut unsent.to);
        for name in unsent.chain(sending).chain([&mut self.whisper]) {
            if name.as_deref() == Some(agent) {
                *name = Some(to.to_owned());
            }
        }
    }

    /// What was said to an agent that has ended comes back; whether it does. Where a message to it is on its way, it does
    /// when that is refused, in its order.
    pub(super) fn give_back_of(&mut self, ended: &str) -> bool {
        let on_its_way = self.sending.as_ref().and_then(|sending| sending.unsent.to.as_deref());
        on_its_way != Some(ended) && self.give_back(Some(ended))
    }

    /// What was not sent comes back, with what was said behind it to the same agent: that would come without what it
    /// follows. Returns to whom it was said.
    fn give_back_from(&mut self, unsent: Unsent) -> Option<String> {
        let to = unsent.to.clone();
        self.unsent.push_front(unsent);
        self.give_back(to.as_deref());
        to
    }

    /// What was said to this agent (to the one that is to be made) and not sent goes back to the input, or where that is
    /// taken, into the history. Whether there was something.
    pub(super) fn give_back(&mut self, to: Option<&str>) -> bool {
        let unsent = std::mem::take(&mut self.unsent).into_iter();
        let (back, left): (Vec<_>, _) = unsent.partition(|unsent| unsent.to.as_deref() == to);
        self.unsent = left.into();
        let said: Vec<String> = back.into_iter().map(|it| it.content.into_string()).collect();
        if !said.is_empty() {
            let _ = self.front.send(Front::Fill(said.join("\n")));
        }
        !said.is_empty()
    }

    /// There is nobody left to send it to, and no input any more.
    pub(super) fn never_sent(&mut self) -> Vec<Line> {
        let said = self.unsent.drain(..).map(|unsent| unsent.content.into_string());
        said.map(|text| warning(&format!("not sent: {}", brief(&text, REPEATED_CHARS_MAX))))
            .collect()
    }

    /// Whether the turn is on the screen.
    fn was_asked(&self, id: &RequestId) -> bool {
        self.view.as_ref().is_some_and(|view: &View| view.was_asked(id))
    }
}

/// Sends it until the server answers or is gone. With its name as key the turn outlives this terminal, and is carried out
/// once.
async fn deliver(
    link: &Link,
    target: &Target,
    content: &NonBlank,
    name: &str,
) -> Result<SendResult, CallError> {
    let mut tries = 1;
    loop {
        let mut params = SendParams::new(content.clone());
        params.request_id = Some(RequestId::Text(name.to_owned()));
        params.idempotency_key = IdempotencyKey::new(name.to_owned()).ok();
        params.source = Some(format!("terminal:{}", terminal_name()));
        match link.ask::<SendMessage>(target, params).await {
            Err(CallError::Connect(_) | CallError::Transport(_)) if tries < TRIES_MAX => {
                tries += 1;
                tokio::time::sleep(AGAIN).await;
            }
            sent => return sent,
        }
    }
}
