//! The one task that changes an agent.
//!
//! It takes commands as they come and never waits while it does: what has to be written waits in a line of its own, and
//! so do the turns. A write is begun on the agent as the last one left it; when the store has it, it is applied, shown,
//! and answered, in that order. What the store refused changed nothing.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use super::handle::{
    EnqueueError, Finish, Gone, Hooks, Order, Renamed, Seen, Shown, Skipped, Work,
};
use super::{AgentSettings, Snapshot, TurnCard};
use crate::account::MemoryShare;
use crate::brief::Brief;
use crate::logs::turn_span;
use crate::message::{Role, SharedMessage};
use crate::name::{AgentId, TurnId};
use crate::observe::TurnEnd;
use crate::store::{AgentRecord, Progress, Store, StoreError};
use crate::usage::Bill;
use crate::watch::{Ended, Event};

pub(super) enum Command {
    Enqueue(Box<Enqueue>),
    Write(Write),
    FollowParent(AgentId, oneshot::Sender<()>),
    Cancel(TurnId, oneshot::Sender<bool>),
    See(oneshot::Sender<Seen>),
}

pub(super) struct Enqueue {
    pub order: Order,
    pub queued_max: usize,
    pub reply: oneshot::Sender<Result<(), EnqueueError>>,
}

/// A change that is to be written.
pub(super) struct Write {
    pub begin: Begin,
    pub reply: Reply,
}

/// Looks at the agent and begins to write. `None` when it refuses what it finds; it has then told why.
type Begin = Box<dyn FnOnce(&Snapshot, &Arc<dyn Store>) -> Option<Writing> + Send>;

type Reply = oneshot::Sender<Result<Arc<Snapshot>, StoreError>>;

/// A write under way, and what it comes to when the store has it.
pub(super) type Writing = BoxFuture<'static, Result<Effect, StoreError>>;

pub(super) enum Effect {
    None,
    Said(Said),
    Set(Box<AgentSettings>),
    Named(Renamed, Box<dyn FnOnce() + Send>),
    Left,
}

/// What was said, or noted without a word.
pub(super) struct Said {
    pub messages: Vec<SharedMessage>,
    pub progress: Option<Progress>,
    pub bill: Option<Bill>,
    pub brief: Option<Arc<Brief>>,
}

pub(super) struct Task {
    shown: Arc<Shown>,
    hooks: Hooks,
    commands: mpsc::Receiver<Command>,
    /// The agent as of the last commit: what is shown of it, but for a moment.
    now: Snapshot,
    /// What the agent has on the account of its tree.
    memory: MemoryShare,
    settings_bytes: usize,
    /// Writes that wait for the one that is under way.
    pending: VecDeque<Write>,
    writing: Option<(Writing, Reply)>,
    queue: VecDeque<Queued>,
    running: Option<Running>,
    /// One for each turn in the queue, and perhaps some that were there: resolves when it is cancelled.
    cancelled: FuturesUnordered<BoxFuture<'static, ()>>,
}

struct Queued {
    card: TurnCard,
    work: Box<dyn Work>,
}

struct Running {
    card: TurnCard,
    /// `None` when it panicked: whoever waits for it learns that by its silence.
    work: BoxFuture<'static, Option<Finish>>,
}

impl Task {
    pub(super) fn new(
        shown: Arc<Shown>,
        now: Snapshot,
        hooks: Hooks,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let settings_bytes = now.settings_bytes();
        let memory = MemoryShare::new(shown.account().clone());
        let mut task = Self {
            shown,
            hooks,
            commands,
            now,
            memory,
            settings_bytes,
            pending: VecDeque::new(),
            writing: None,
            queue: VecDeque::new(),
            running: None,
            cancelled: FuturesUnordered::new(),
        };
        task.weigh();
        task
    }

    pub(super) async fn run(mut self) {
        let shown = self.shown.clone();
        let mut going = std::pin::pin!(shown.going.cancelled());
        let (mut here, mut wanted) = (true, true);
        while here || self.is_busy() {
            if !wanted && !self.is_busy() {
                // Nobody has a handle any more, and so nobody can want anything.
                return;
            }
            tokio::select! {
                biased;
                () = &mut going, if here => here = false,
                Some(written) = OptionFuture::from(self.writing.as_mut().map(|(it, _)| it)) => {
                    self.written(written);
                }
                command = self.commands.recv(), if wanted => match command {
                    Some(command) => self.take(command),
                    None => wanted = false,
                },
                Some(()) = self.cancelled.next() => self.skip_cancelled(),
                Some(finish) = OptionFuture::from(self.running.as_mut().map(|it| &mut it.work)) => {
                    self.turn_ended(finish);
                }
            }
            self.begin_write();
            self.begin_turn();
        }
    }

    fn is_busy(&self) -> bool {
        self.writing.is_some()
            || self.running.is_some()
            || !self.pending.is_empty()
            || !self.queue.is_empty()
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Write(write) => self.pending.push_back(write),
            Command::Enqueue(enqueue) => self.enqueue(*enqueue),
            Command::Cancel(turn, reply) => drop(reply.send(self.now.cancel(&turn))),
            Command::See(reply) => drop(reply.send(self.seen())),
            Command::FollowParent(parent, reply) => {
                self.now.parent = Some(parent);
                self.publish();
                let _ = reply.send(());
            }
        }
    }

    fn enqueue(&mut self, enqueue: Enqueue) {
        let Enqueue { order, queued_max, reply } = enqueue;
        let Order { id, asked, live, cancel, work } = order;
        let refused = match self.shown.gone() {
            Some(gone) => Some(EnqueueError::Gone(gone.error())),
            None if self.now.turns.iter().any(|card| card.id == id) => {
                Some(EnqueueError::Duplicate)
            }
            None if self.queue.len() >= queued_max => Some(EnqueueError::Full),
            None => None,
        };
        if let Some(refused) = refused {
            let _ = reply.send(Err(refused));
            return;
        }
        if self.running.is_some() {
            self.cancelled.push(cancel.clone().cancelled_owned().boxed());
        }
        let span = turn_span(&self.now.id);
        let card = TurnCard { id, running: false, asked, live, cancel, span };
        let position = self.now.turns.len();
        self.tell(Some(&card.id), || Event::TurnQueued { asked: card.asked.clone(), position });
        self.queue.push_back(Queued { card, work });
        self.show_turns();
        // A caller that is gone has queued it all the same.
        let _ = reply.send(Ok(()));
    }

    fn begin_turn(&mut self) {
        if let Some(gone) = self.shown.gone() {
            for queued in std::mem::take(&mut self.queue) {
                self.tell_end(&queued.card, TurnEnd::Cancelled);
                queued.work.skip(Skipped::Gone(gone.error()));
            }
            return;
        }
        if self.running.is_some() {
            return;
        }
        let Some(Queued { mut card, work }) = self.queue.pop_front() else { return };
        if self.queue.is_empty() {
            self.cancelled.clear();
        }
        card.running = true;
        card.live.begin();
        self.tell(Some(&card.id), || Event::TurnStarted {
            asked: card.asked.clone(),
            model: self.now.settings.model.clone(),
        });
        let turn = card.id.clone();
        let work = AssertUnwindSafe(async move { work.run().await }).catch_unwind();
        // Inside its span, which names the agent.
        let work = work.map(move |ended| match ended {
            Ok(finish) => Some(finish),
            Err(_) => {
                tracing::error!(%turn, "a turn panicked");
                None
            }
        });
        let work = work.instrument(card.span.clone()).boxed();
        self.running = Some(Running { card, work });
        self.show_turns();
    }

    fn turn_ended(&mut self, finish: Option<Finish>) {
        let ended = self.running.take();
        self.shown.touch();
        self.show_turns();
        if let Some(Running { card, .. }) = ended {
            let end = match &finish {
                None => TurnEnd::Failed,
                Some(_) if card.cancel.is_cancelled() => TurnEnd::Cancelled,
                Some(_) => TurnEnd::Done,
            };
            self.tell_end(&card, end);
        }
        if let Some(finish) = finish {
            finish();
        }
    }

    /// A turn that waits is over as soon as it is cancelled.
    fn skip_cancelled(&mut self) {
        let (skipped, kept): (VecDeque<_>, _) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|queued| queued.card.cancel.is_cancelled());
        self.queue = kept;
        self.show_turns();
        for queued in skipped {
            self.tell_end(&queued.card, TurnEnd::Cancelled);
            queued.work.skip(match self.shown.gone() {
                Some(gone) => Skipped::Gone(gone.error()),
                None => Skipped::Cancelled,
            });
        }
    }

    fn show_turns(&mut self) {
        let running = self.running.iter().map(|running| &running.card);
        let queued = self.queue.iter().map(|queued| &queued.card);
        self.now.turns = running.chain(queued).cloned().collect();
        self.publish();
    }

    fn begin_write(&mut self) {
        while self.writing.is_none()
            && let Some(Write { begin, reply }) = self.pending.pop_front()
        {
            match self.shown.gone() {
                Some(gone) => drop(reply.send(Err(gone.error()))),
                None => self.writing = begin(&self.now, &self.hooks.store).map(|it| (it, reply)),
            }
        }
    }

    fn written(&mut self, written: Result<Effect, StoreError>) {
        let Some((_, reply)) = self.writing.take() else { return };
        let answer = match written {
            Ok(effect) => {
                let events = self.events_of(&effect);
                let id = self.now.id.clone();
                self.apply(effect);
                let now = self.publish();
                for event in events {
                    let turn = match &event {
                        Event::Message { message, .. } => message.meta.turn.clone(),
                        _ => None,
                    };
                    self.hooks.watches.tell(&id, turn.as_ref(), || event);
                }
                Ok(now)
            }
            Err(error) => {
                self.heed(&error);
                Err(error)
            }
        };
        // Whoever asked may be gone: what was written is written.
        let _ = reply.send(answer);
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Said(said) => self.said(said),
            Effect::Set(settings) => {
                if settings.cwd != self.now.settings.cwd {
                    self.now.prompt = Arc::default();
                }
                self.now.settings = Arc::from(settings);
                self.settings_bytes = self.now.settings_bytes();
                self.weigh();
            }
            Effect::Named(Renamed { id, born, lease }, follow) => {
                follow();
                for card in self.now.turns.iter() {
                    card.span.record("agent_id", id.as_str());
                }
                self.now.id = id;
                self.now.born = born;
                self.now.lease = lease.or(self.now.lease);
            }
            Effect::Left => self.shown.go(Gone::Left),
        }
    }

    fn said(&mut self, said: Said) {
        let Said { messages, progress, bill, brief } = said;
        self.hooks.logs.messages(&self.now.id, &messages);
        self.now.progress = progress.unwrap_or(self.now.progress);
        self.now.bill = bill.unwrap_or(self.now.bill);
        self.now.brief = brief.or(self.now.brief.take());
        let summarised = messages.iter().any(|message| message.role == Role::Summary);
        for message in messages {
            self.now.conversation.push(message);
        }
        if summarised {
            // The files the prompt came from may have changed since the conversation began.
            self.now.prompt = Arc::default();
            if self.now.lease.is_some() {
                self.now.conversation.trim();
            }
        }
        self.weigh();
    }

    fn weigh(&mut self) {
        self.memory.set(self.now.conversation.memory_bytes() + self.settings_bytes);
    }

    /// What the store says of the agent itself ends it here.
    fn heed(&mut self, error: &StoreError) {
        let gone = match error {
            StoreError::Ended => Gone::Ended,
            StoreError::LeaseLost => Gone::Lost,
            _ => return,
        };
        self.shown.go(gone);
        self.tell(None, || match gone {
            Gone::Ended => Event::AgentEnded,
            _ => Event::AgentElsewhere,
        });
        (self.hooks.gone)(&self.now.id, self.shown.number());
    }

    /// What those who watch are told of a write.
    fn events_of(&self, effect: &Effect) -> Vec<Event> {
        if !self.hooks.watches.is_watched() {
            return Vec::new();
        }
        match effect {
            Effect::None => Vec::new(),
            Effect::Said(said) => {
                let numbered = said.messages.iter().zip(self.now.conversation.len()..);
                let message = |(message, index): (&SharedMessage, u64)| Event::Message {
                    index,
                    message: message.clone(),
                };
                numbered.map(message).collect()
            }
            Effect::Set(settings) => {
                let record = AgentRecord { settings: (**settings).clone(), ..self.now.record() };
                vec![Event::AgentChanged { record: Box::new(record) }]
            }
            Effect::Named(renamed, _) => vec![Event::AgentRenamed { to: renamed.id.clone() }],
            Effect::Left => vec![Event::AgentLeftMemory],
        }
    }

    fn tell(&self, turn: Option<&TurnId>, event: impl FnOnce() -> Event) {
        self.hooks.watches.tell(&self.now.id, turn, event);
    }

    /// Tells that a turn is over, and how unless it has said so itself.
    fn tell_end(&self, card: &TurnCard, otherwise: TurnEnd) {
        self.tell(Some(&card.id), || {
            let (ended, began) = card.live.take_end();
            Event::TurnEnded {
                ended: ended.unwrap_or_else(|| Ended::empty(otherwise)),
                message_count: self.now.conversation.len(),
                lasted: began.map(|began| began.elapsed()).unwrap_or_default(),
            }
        });
    }

    fn seen(&self) -> Seen {
        Seen {
            snapshot: Arc::new(self.now.clone()),
            turns: self.now.turns.iter().map(|card| card.live.look()).collect(),
            moment: self.hooks.watches.moment(),
        }
    }

    fn publish(&mut self) -> Arc<Snapshot> {
        self.shown.publish(self.now.clone())
    }
}

impl Drop for Task {
    /// However it ends: nobody waits for an agent without a task, and nobody finds one.
    fn drop(&mut self) {
        if self.shown.gone().is_none() && std::thread::panicking() {
            tracing::error!(agent = %self.now.id, "an agent's task panicked");
            (self.hooks.gone)(&self.now.id, self.shown.number());
        }
        self.shown.go(Gone::Broken);
        self.shown.over.cancel();
    }
}
