//! Turns that came through the door. Each lives by itself, so that a request which is made again finds it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nexus_protocol::StreamApi;
use nexus_protocol::answer::StreamItem;
use nexus_protocol::api::TurnItems as _;
use nexus_protocol::stream::Event;
use nexus_protocol::turn::{SendParams, SendResult};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::conversations::ChainEnd;
use super::failure::Failure;
use super::responses::{Frame, Keeping, of_turn};

/// A turn, and what it has said so far.
pub struct Turn {
    /// Its name at the server.
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    wishes: Wishes,
    /// Nobody reads it any more, and it does not go on by itself.
    left: CancellationToken,
    readers: AtomicUsize,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// It goes on when whoever asked hangs up.
    pub goes_on: bool,
    /// Tools and approvals are told, too.
    pub events: bool,
}

#[derive(Default)]
struct State {
    agent: Option<String>,
    items: Vec<Item>,
    bytes: usize,
    outcome: Option<Outcome>,
    ended: Option<Instant>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Item {
    Text(Arc<str>),
    /// A piece of what the model thinks.
    Thought(Arc<str>),
    /// A tool or an approval, as our own protocol tells it.
    Event(Arc<Value>),
}

pub type Outcome = Result<Arc<SendResult>, Failure>;

/// What is to be done, once it is clear by whom.
pub struct Errand {
    pub agent: String,
    pub params: SendParams,
    /// Where the answer stands in its conversation.
    pub place: Option<ChainEnd>,
    /// Where the answer is put, and in which shape.
    pub keeping: Option<(Frame, Keeping)>,
}

impl Turn {
    pub fn new(id: String, wishes: Wishes) -> Arc<Self> {
        Arc::new(Self {
            id,
            created: Timestamp::now().as_second(),
            wishes,
            left: CancellationToken::new(),
            readers: AtomicUsize::new(0),
            state: Mutex::default(),
            changed: watch::channel(()).0,
        })
    }

    /// Carries it out. `prepare` says by whom; nothing of it is lost when the one who asked is gone.
    pub fn begin<A: StreamApi + Send + Sync + 'static>(
        self: &Arc<Self>,
        api: A,
        prepare: impl Future<Output = Result<Errand, Failure>> + Send + 'static,
    ) {
        let this = self.clone();
        tokio::spawn(async move {
            let carried = async { this.carry(&api, prepare.await?).await };
            let outcome = tokio::select! {
                biased;
                () = this.left.cancelled() => Err(Failure::cancelled()),
                outcome = carried => outcome,
            };
            this.end(outcome);
        });
    }

    pub(super) fn end(&self, outcome: Outcome) {
        self.change(|state| {
            state.outcome = Some(outcome);
            state.ended = Some(Instant::now());
        });
    }

    async fn carry<A: StreamApi + Send + Sync>(&self, api: &A, errand: Errand) -> Outcome {
        let Errand { agent, params, place, keeping } = errand;
        self.change(|state| state.agent = Some(agent.clone()));
        let mut told = api.send_stream(&agent, params).await?;
        while let Some(item) = told.next().await {
            let item = match item? {
                StreamItem::Text(text) => Item::Text(text.into()),
                StreamItem::Event(Event::Reasoning { text }) => Item::Thought(text.into()),
                StreamItem::Event(event) if self.wishes.events && is_told(&event) => {
                    match serde_json::to_value(&event) {
                        Ok(event) => Item::Event(Arc::new(event)),
                        Err(_) => continue,
                    }
                }
                StreamItem::Done(answer) if answer.cancelled => return Err(Failure::cancelled()),
                StreamItem::Done(answer) => {
                    if let Some(place) = place {
                        place.note(api, &answer.content).await;
                    }
                    if let Some((frame, keeping)) = keeping {
                        let (response, said) = of_turn(&frame, &self.items(), &answer);
                        keeping.note(&response, said);
                    }
                    return Ok(Arc::new(answer));
                }
                _ => continue,
            };
            self.change(|state| {
                state.bytes += match &item {
                    Item::Text(text) | Item::Thought(text) => text.len(),
                    Item::Event(event) => event.to_string().len(),
                };
                state.items.push(item);
            });
        }
        Err(Failure::broken("the turn ended without an answer").after_begin())
    }

    pub fn read(self: &Arc<Self>) -> Reader {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Reader { turn: self.clone(), at: 0, changed: self.changed.subscribe() }
    }

    /// Who carries it out, where that is known.
    pub fn agent(&self) -> Option<String> {
        self.lock().agent.clone()
    }

    /// All that happened so far.
    pub fn items(&self) -> Vec<Item> {
        self.lock().items.clone()
    }

    /// How long it has been over.
    pub fn over_for(&self) -> Option<Duration> {
        self.lock().ended.map(|ended| ended.elapsed())
    }

    /// How long ago it failed.
    pub fn failed_for(&self) -> Option<Duration> {
        let state = self.lock();
        let failed = matches!(state.outcome, Some(Err(_)));
        state.ended.filter(|_| failed).map(|ended| ended.elapsed())
    }

    /// Whether somebody who asks again is to have this one: it runs, or came to something.
    pub fn answers_repeats(&self) -> bool {
        let is_sound = match &self.lock().outcome {
            None | Some(Ok(_)) => true,
            Some(Err(failure)) => failure.has_begun,
        };
        is_sound && !self.left.is_cancelled()
    }

    /// What it takes to keep it.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a client that wants events is told of it.
fn is_told(event: &Event) -> bool {
    matches!(
        event,
        Event::ToolCall { .. }
            | Event::ToolProgress { .. }
            | Event::ToolResult { .. }
            | Event::ApprovalRequested { .. }
    )
}

/// Somebody who reads a turn. With the last one a turn ends that does not go on by itself.
pub struct Reader {
    turn: Arc<Turn>,
    at: usize,
    changed: watch::Receiver<()>,
}

pub enum Next {
    Item(Item),
    End(Outcome),
}

impl Reader {
    /// What comes next. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Next {
        loop {
            if let Some(next) = self.now() {
                if matches!(next, Next::Item(_)) {
                    self.at += 1;
                }
                return next;
            }
            self.change().await;
        }
    }

    /// Waits until there is something to read.
    pub async fn ready(&mut self) {
        while self.now().is_none() {
            self.change().await;
        }
    }

    /// What it comes to.
    pub async fn outcome(&mut self) -> Outcome {
        loop {
            let outcome = self.turn.lock().outcome.clone();
            match outcome {
                Some(outcome) => return outcome,
                None => self.change().await,
            }
        }
    }

    /// Why there is nothing of it, if it is over already.
    pub fn failed_at_once(&self) -> Option<Failure> {
        match self.now() {
            Some(Next::End(Err(failure))) => Some(failure),
            _ => None,
        }
    }

    fn now(&self) -> Option<Next> {
        let state = self.turn.lock();
        let item = state.items.get(self.at).cloned().map(Next::Item);
        item.or_else(|| state.outcome.clone().map(Next::End))
    }

    async fn change(&mut self) {
        // The turn is held here, and its sender with it.
        let _ = self.changed.changed().await;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let was_last = self.turn.readers.fetch_sub(1, Ordering::Relaxed) == 1;
        if was_last && !self.turn.wishes.goes_on {
            self.turn.left.cancel();
        }
    }
}
