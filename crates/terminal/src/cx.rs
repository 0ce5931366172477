//! What a command is given: the server, what is shown, and whoever shows it, whom it can ask.

use std::path::PathBuf;
use std::sync::Arc;

use nexus_client::{CallError, Target};
use nexus_protocol::Method;
use nexus_protocol::once::IdempotencyKey;
use nexus_protocol::params::NonBlank;
use nexus_protocol::turn::{RequestId, Send, SendParams, SendResult};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::link::Link;
use crate::options::Settings;
use crate::style::{Colour, Line, Style};
use crate::tty::Tty;

/// Longest message: a longer one is refused before it is sent.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// One run of one command. It works beside everything else, and says what it has to say through `front`.
#[derive(Clone)]
pub struct Cx {
    pub link: Arc<Link>,
    /// The agent that is shown; none before the first message of a fresh session.
    pub agent: Option<String>,
    /// What is given to agents that this terminal makes.
    pub making: Making,
    pub settings: Settings,
    /// Columns at which prose is broken.
    pub width: usize,
    pub(crate) front: UnboundedSender<Front>,
}

#[derive(Clone, Debug)]
pub struct Making {
    pub cwd: PathBuf,
    pub model: Option<String>,
    pub preset: Option<String>,
}

/// What a command asks of whoever shows it: the screen, or the plain form.
pub(crate) enum Front {
    Say(Vec<Line>),
    /// Show this agent from now on.
    Show(String),
    /// No agent is shown any more; the next message makes one.
    Fresh,
    Confirm(String, oneshot::Sender<bool>),
    /// One of these, by its number.
    Choose(Choice, oneshot::Sender<Option<Chosen>>),
    /// Into the input, for the person to change and send.
    Fill(String),
    /// In the pager; back when it was left.
    Page(String, oneshot::Sender<()>),
    /// In the editor; what it was saved as, if it was.
    Edit(String, oneshot::Sender<Option<String>>),
    /// To the clipboard.
    Copy(String),
    /// All text goes to this agent until nothing is named.
    Whisper(Option<String>),
    Clear,
    Theme(String),
    Leave(Leaving),
    /// The answer to this approval did not arrive: it can be given again.
    AskAgain(String),
    /// Let the person choose a conversation.
    Lobby(crate::app::Lobby),
    /// The same, since the one that was shown is over: nobody asked for it.
    LobbyAgain(crate::app::Lobby),
    /// The server was gone before it said what there is to begin with: ask again.
    Begin,
    /// There is nothing to begin with: leave, and say why.
    Fail(String),
}

pub(crate) struct Choice {
    pub title: String,
    pub items: Vec<String>,
    /// Whether `d` marks one to be deleted.
    pub can_delete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Item(usize),
    Delete(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// As the person would: asks where turns run on an own server.
    Quit,
    /// And the server goes on.
    Detach,
    /// Turns that run are cancelled, and an own server ends.
    Cancel,
    /// The server was stopped.
    Stopped,
}

/// Why a command did not do it, as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{0}")]
    Said(String),
    #[error(transparent)]
    Call(#[from] CallError),
}

pub type Done = Result<(), Refused>;

/// A refusal of our own.
pub fn refuse<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::Said(why.into()))
}

impl Cx {
    /// Calls a method of the server.
    pub async fn server<M: Method>(&self, params: M::Params) -> Result<M::Result, Refused> {
        Ok(self.link.ask::<M>(&Target::Server, params).await?)
    }

    /// Calls a method of an agent.
    pub async fn of<M: Method>(
        &self,
        agent: &str,
        params: M::Params,
    ) -> Result<M::Result, Refused> {
        Ok(self.link.ask::<M>(&Target::Agent(agent.into()), params).await?)
    }

    /// Says something to an agent, and waits for the answer. The turn goes on when the terminal is gone: who hangs up does
    /// not cancel a call that has a key.
    pub async fn send(&self, agent: &str, text: &str) -> Result<SendResult, Refused> {
        if text.len() > MESSAGE_BYTES_MAX {
            return refuse("A message has at most 1 MiB: put it into a file, and name that.");
        }
        let Some(content) = NonBlank::new(text) else { return refuse("There is nothing to send.") };
        let id = request_id()?;
        let params = SendParams {
            request_id: Some(RequestId::Text(id.clone())),
            source: Some(format!("terminal:{}", terminal_name())),
            idempotency_key: Some(IdempotencyKey::new(id).map_err(Refused::Said)?),
            ..SendParams::new(content)
        };
        self.of::<Send>(agent, params).await
    }

    /// The agent that is shown.
    pub fn shown(&self) -> Result<&str, Refused> {
        match &self.agent {
            Some(agent) => Ok(agent),
            None => refuse("No agent yet: it is made with your first message."),
        }
    }

    pub fn say(&self, line: Line) {
        self.tell(Front::Say(vec![line]));
    }

    pub fn say_all(&self, lines: Vec<Line>) {
        self.tell(Front::Say(lines));
    }

    /// A line of plain words; foreign ones among them are made harmless.
    pub fn note(&self, text: impl Into<String>) {
        self.say(Line::plain(text.into()));
    }

    pub fn dim(&self, text: impl Into<String>) {
        self.say(Line::styled(text.into(), Style::DIM));
    }

    pub fn warn(&self, text: impl Into<String>) {
        self.say(Line::styled(text.into(), Style::colour(Colour::Yellow)));
    }

    /// A question that takes y or n; Enter is n.
    pub async fn confirm(&self, question: impl Into<String>) -> bool {
        let (reply, answer) = oneshot::channel();
        self.tell(Front::Confirm(question.into(), reply));
        answer.await.unwrap_or(false)
    }

    /// Lets the person choose one of `items`; `None` when it was left.
    pub(crate) async fn choose(&self, choice: Choice) -> Option<Chosen> {
        let (reply, answer) = oneshot::channel();
        self.tell(Front::Choose(choice, reply));
        answer.await.ok().flatten()
    }

    pub async fn page(&self, text: String) {
        let (reply, answer) = oneshot::channel();
        self.tell(Front::Page(text, reply));
        let _ = answer.await;
    }

    pub async fn edit(&self, text: String) -> Option<String> {
        let (reply, answer) = oneshot::channel();
        self.tell(Front::Edit(text, reply));
        answer.await.ok().flatten()
    }

    pub(crate) fn tell(&self, what: Front) {
        // Nobody listens only when the terminal is about to end.
        let _ = self.front.send(what);
    }
}

/// A name for a turn that no other terminal gives to one.
pub fn request_id() -> Result<String, Refused> {
    match getrandom::u64() {
        Ok(random) => Ok(format!("term_{random:016x}")),
        Err(error) => refuse(format!("The system has no random numbers: {error}")),
    }
}

/// What other clients know this terminal by, as `pts/3`.
pub fn terminal_name() -> String {
    Tty::name().unwrap_or_else(|| format!("pid {}", std::process::id()))
}
