//! What everybody but an agent's own task has of it.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::task::{Command, Effect, Enqueue, Said, Task, Write, Writing};
use super::{AgentSettings, Live, LiveTurn, Snapshot};
use crate::account::Account;
use crate::brief::Brief;
use crate::lock;
use crate::logs::AgentLogs;
use crate::message::{Role, SharedMessage};
use crate::name::{AgentId, TurnId};
use crate::permission::Grants;
use crate::store::{
    Append, ApprovalAnswer, Fence, Lease, Progress, Settlement, Store, StoreError, Ticket,
};
use crate::usage::Bill;
use crate::watch::{Asked, Watches};

/// Commands that may wait for the task. It never waits for anything while it takes them, so this is room for a burst;
/// whoever finds it full waits for a moment.
const COMMANDS_MAX: usize = 64;

/// A live agent. Cheap to clone. Whoever has one may find that the agent has gone; every command then says so.
#[derive(Clone)]
pub struct Agent(Arc<Door>);

struct Door {
    shown: Arc<Shown>,
    commands: mpsc::Sender<Command>,
}

/// What an agent's task shows of itself.
pub(super) struct Shown {
    /// Tells agents of one process apart, whatever they are called.
    number: u64,
    snapshot: ArcSwap<Snapshot>,
    /// The account of the tree it belongs to.
    account: Arc<Account>,
    /// Grows with every change to any agent that a list could show.
    version: Arc<AtomicU64>,
    /// Why the agent is not to be had any more.
    gone: OnceLock<Gone>,
    /// Cancelled when the agent goes; every turn's token is a child of it.
    pub(super) going: CancellationToken,
    /// Cancelled when its task has ended, and with it all that the agent did.
    pub(super) over: CancellationToken,
    /// Whether somebody asked for the agent, or a turn of it ended, since `idle_since` was noted. Written only when that
    /// is news: every call comes by here.
    touched: AtomicBool,
    idle_since: Mutex<Instant>,
    /// Whether it ever asked for leave: of a temporary agent the store knows by this alone.
    asked: AtomicBool,
}

/// An agent as of one moment, which all that is told of it comes before or after.
pub struct Seen {
    pub snapshot: Arc<Snapshot>,
    /// What its turns have come to, in the order of the snapshot's.
    pub turns: Vec<LiveTurn>,
    pub(crate) moment: u64,
}

/// Why an agent is not in this process any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// For good.
    Ended,
    /// Another process has it.
    Lost,
    /// It was idle; whoever wants it finds it in the store.
    Left,
    /// Its task failed.
    Broken,
}

impl Gone {
    pub(crate) fn error(self) -> StoreError {
        match self {
            Self::Ended => StoreError::Ended,
            Self::Lost | Self::Left => StoreError::LeaseLost,
            Self::Broken => StoreError::Failed("the agent's task failed".into()),
        }
    }
}

/// What an agent's task works with.
#[derive(Clone)]
pub(crate) struct Hooks {
    pub store: Arc<dyn Store>,
    pub logs: Arc<dyn AgentLogs>,
    pub version: Arc<AtomicU64>,
    pub watches: Arc<Watches>,
    /// Told when an agent turns out not to be this process's any more.
    pub gone: Arc<OnGone>,
}

/// Takes an agent's name and its number.
type OnGone = dyn Fn(&AgentId, u64) + Send + Sync;

/// What an agent does one after the other: its turns, and what has to wait for them.
pub(crate) trait Work: Send {
    /// Carries it out. What this returns is called when its name is free again.
    fn run(self: Box<Self>) -> BoxFuture<'static, Finish>;

    /// Ends what was never begun.
    fn skip(self: Box<Self>, why: Skipped);
}

/// Work that is to wait for its turn, and what is shown of it.
pub(crate) struct Order {
    pub id: TurnId,
    pub asked: Arc<Asked>,
    pub live: Arc<Live>,
    pub cancel: CancellationToken,
    pub work: Box<dyn Work>,
}

pub(crate) type Finish = Box<dyn FnOnce() + Send>;

#[derive(Clone, Debug)]
pub(crate) enum Skipped {
    Cancelled,
    Gone(StoreError),
}

#[derive(Debug, Clone, Error)]
pub enum EnqueueError {
    #[error("a turn of that name is in flight already")]
    Duplicate,
    #[error("too many turns of this agent are waiting")]
    Full,
    #[error(transparent)]
    Gone(#[from] StoreError),
}

/// What is to be written down of a conversation, as one step.
#[derive(Default)]
pub(crate) struct Entry {
    pub messages: Vec<SharedMessage>,
    pub progress: Progress,
    /// What the messages were made with.
    pub brief: Option<Arc<Brief>>,
    /// What was used for none of the messages.
    pub spent: Bill,
}

/// Another name for an agent, as the store has it.
pub(crate) struct Renamed {
    pub id: AgentId,
    pub born: u64,
    /// New where a temporary agent became permanent.
    pub lease: Option<Lease>,
}

impl Agent {
    /// Starts the task of an agent that this process holds.
    pub(crate) fn start(snapshot: Snapshot, account: Arc<Account>, hooks: Hooks) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let shown = Arc::new(Shown {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            snapshot: ArcSwap::from_pointee(snapshot.clone()),
            account,
            version: hooks.version.clone(),
            gone: OnceLock::new(),
            going: CancellationToken::new(),
            over: CancellationToken::new(),
            touched: AtomicBool::new(true),
            idle_since: Mutex::new(Instant::now()),
            asked: AtomicBool::new(false),
        });
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        tokio::spawn(Task::new(shown.clone(), snapshot, hooks, received).run());
        Self(Arc::new(Door { shown, commands }))
    }

    /// The agent as it is now. For a look; whoever keeps it takes a `snapshot`.
    pub fn look(&self) -> impl Deref<Target = Arc<Snapshot>> + '_ {
        self.0.shown.snapshot.load()
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.shown.snapshot.load_full()
    }

    /// The name the agent has now.
    pub fn id(&self) -> AgentId {
        self.look().id.clone()
    }

    /// Tells agents of one process apart, whatever they are called.
    pub fn number(&self) -> u64 {
        self.0.shown.number
    }

    /// What the agent's tree may take and has taken.
    pub fn account(&self) -> &Arc<Account> {
        &self.0.shown.account
    }

    /// How many turns run or wait.
    pub fn turns_in_flight(&self) -> usize {
        self.look().turns.len()
    }

    /// Cancels the turn of that name, running or waiting. False when there is none.
    pub async fn cancel(&self, turn: &TurnId) -> bool {
        if self.look().cancel(turn) {
            return true;
        }
        // It may have been sent a moment ago, and not be shown yet: this comes after it.
        let (reply, answer) = oneshot::channel();
        self.command(Command::Cancel(turn.clone(), reply)).await;
        answer.await.unwrap_or(false)
    }

    /// Cancels every turn that runs or waits. Returns how many there were.
    pub fn cancel_all(&self) -> usize {
        self.look().turns.iter().map(|card| card.cancel.cancel()).count()
    }

    /// The agent as those who begin to watch it are told; `None` when it is gone.
    pub(crate) async fn see(&self) -> Option<Seen> {
        let (reply, answer) = oneshot::channel();
        self.command(Command::See(reply)).await;
        self.answer(answer).await
    }

    /// Queues work behind what the agent does already, unless as much as `queued_max` waits.
    pub(crate) async fn enqueue(
        &self,
        order: Order,
        queued_max: usize,
    ) -> Result<(), EnqueueError> {
        let (reply, answer) = oneshot::channel();
        let enqueue = Enqueue { order, queued_max, reply };
        self.command(Command::Enqueue(Box::new(enqueue))).await;
        self.answer(answer).await.unwrap_or_else(|| Err(self.gone_error().into()))
    }

    /// A token for a turn of this agent: cancelled with it.
    pub(crate) fn turn_token(&self) -> CancellationToken {
        self.0.shown.going.child_token()
    }

    /// Writes messages down: to the store, then to memory and the log. Until the store has them nobody is shown them.
    ///
    /// Of what a turn begins with, the messages alone are written where they say everything: whatever the turn comes to
    /// is noted when it ends, and a second page on the disk for each question would say no more than that it was asked.
    pub(crate) async fn append(&self, entry: Entry) -> Result<Arc<Snapshot>, StoreError> {
        self.write(move |now, store| {
            let Entry { messages, progress, brief, spent } = entry;
            // The agent may have been marked since the turn looked.
            let should_shutdown = progress.should_shutdown || now.progress.should_shutdown;
            let progress = Progress { should_shutdown, ..progress };
            let asks = !messages.is_empty() && messages.iter().all(|it| it.role == Role::User);
            let progress = (!asks || progress != now.progress).then_some(progress);
            let made =
                messages.iter().filter_map(|it| it.meta.made.as_deref()).map(|made| made.bill);
            let spent = made.fold(spent, |sum, bill| sum + bill);
            let bill = (!spent.is_empty()).then(|| now.bill + spent);
            let known =
                |brief: &Arc<Brief>| now.brief.as_ref().map(|it| it.digest) == Some(brief.digest);
            let brief = brief.filter(|brief| !known(brief));
            Some(write(now, store, Said { messages, progress, bill, brief }))
        })
        .await
    }

    /// Marks the agent as done, or as in use again. Does not wait for a turn that runs.
    pub(crate) async fn mark(&self, done: bool) -> Result<(), StoreError> {
        let marked = self.write(move |now, store| {
            let progress = Some(Progress { should_shutdown: done, ..now.progress });
            let said = Said { messages: Vec::new(), progress, bill: None, brief: None };
            Some(write(now, store, said))
        });
        marked.await.map(drop)
    }

    /// Notes what was used for the agent beside what it says.
    pub(crate) async fn spend(&self, spent: Bill) -> Result<(), StoreError> {
        if spent.is_empty() {
            return Ok(());
        }
        let noted = self.write(move |now, store| {
            let (progress, bill) = (Some(now.progress), Some(now.bill + spent));
            Some(write(now, store, Said { messages: Vec::new(), progress, bill, brief: None }))
        });
        noted.await.map(drop)
    }

    /// Changes settings, on disk first. Each change starts from what the last one left, and one that `change` refuses
    /// leaves nothing.
    pub(crate) async fn change<E: From<StoreError> + Send + 'static>(
        &self,
        change: impl FnOnce(&mut AgentSettings, &Snapshot) -> Result<(), E> + Send + 'static,
    ) -> Result<Arc<Snapshot>, E> {
        let (refuse, mut refused) = oneshot::channel();
        let written = self.write(move |now, store| {
            let mut settings = (*now.settings).clone();
            if let Err(error) = change(&mut settings, now) {
                let _ = refuse.send(error);
                return None;
            }
            let written = now.lease.map(|lease| store.update(lease, settings.clone()));
            Some(after(written, Effect::Set(Box::new(settings))))
        });
        match (written.await, refused.try_recv()) {
            (_, Ok(error)) => Err(error),
            (written, Err(_)) => Ok(written?),
        }
    }

    /// Writes down what a call of the step that runs began elsewhere. What earlier steps began is over.
    pub(crate) async fn keep_ticket(&self, call: String, what: String) -> Result<(), StoreError> {
        let kept = self.change(move |settings, now| {
            let step = now.conversation.open_step().ok_or(StoreError::Ended)?;
            settings.tickets.retain(|it| it.step == step && it.call != call);
            settings.tickets.push(Ticket { step, call, what });
            Ok::<_, StoreError>(())
        });
        kept.await.map(drop)
    }

    /// Notes how an approval of this agent ended, and in the same step what it adds to what the agent may do without
    /// asking. The caller has checked that it may have that with the permissions of `checked`; false, and nothing is
    /// noted, when it has others by now.
    pub(crate) async fn settle_approval(
        &self,
        id: String,
        answer: ApprovalAnswer,
        grants: Grants,
        checked: Arc<Snapshot>,
    ) -> Result<bool, StoreError> {
        let (refuse, mut refused) = oneshot::channel();
        let settled = self.write(move |now, store| {
            if now.settings.permissions != checked.settings.permissions {
                let _ = refuse.send(());
                return None;
            }
            let mut settings = (*now.settings).clone();
            settings.grants.extend(grants);
            let grant = now.lease.map(|lease| (lease, settings.clone()));
            let store = store.clone();
            let written =
                async move { store.settle_approval(Settlement { id, answer, grant }).await };
            Some(after(Some(written.boxed()), Effect::Set(Box::new(settings))))
        });
        match (settled.await, refused.try_recv()) {
            (_, Ok(())) => Ok(false),
            (settled, Err(_)) => settled.map(|_| true),
        }
    }

    /// Notes on disk that the agent was saved by name.
    pub(crate) async fn keep(&self) -> Result<(), StoreError> {
        let kept = self.write(|now, store| {
            let (store, lease) = (store.clone(), now.lease);
            let written = lease.map(|lease| async move { store.keep(lease).await }.boxed());
            Some(after(written, Effect::None))
        });
        kept.await.map(drop)
    }

    /// Gives the agent another name. `rename` has the store do it; `follow` lets others follow, before anybody can see
    /// the agent under its new name.
    pub(crate) async fn rename<R>(
        &self,
        rename: impl FnOnce(&Snapshot, &Arc<dyn Store>) -> R + Send + 'static,
        follow: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<Snapshot>, StoreError>
    where
        R: Future<Output = Result<Renamed, StoreError>> + Send + 'static,
    {
        self.write(move |now, store| {
            let renaming = rename(now, store);
            let effect = async move { Ok(Effect::Named(renaming.await?, Box::new(follow))) };
            Some(effect.boxed())
        })
        .await
    }

    /// Lets the agent show its parent's new name, and waits until it does.
    pub(crate) async fn follow_parent(&self, parent: AgentId) {
        let (reply, shown) = oneshot::channel();
        self.command(Command::FollowParent(parent, reply)).await;
        // One that is gone shows nothing any more.
        self.answer(shown).await;
    }

    /// As `follow_parent`, of an agent that nobody has found yet: there is room for a command.
    pub(crate) fn learn_parent(&self, parent: AgentId) {
        let (reply, _) = oneshot::channel();
        let _ = self.0.commands.try_send(Command::FollowParent(parent, reply));
    }

    /// Gives the lease back and ends the task. For an agent that nobody can find any more.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        let left = self.write(|now, store| {
            let (store, lease) = (store.clone(), now.lease);
            let written = lease.map(|lease| async move { store.release(lease).await }.boxed());
            Some(after(written, Effect::Left))
        });
        left.await.map(drop)
    }

    /// Ends the agent in this process: its turns are cancelled, and no command is taken any more.
    pub(crate) fn end(&self, gone: Gone) {
        self.0.shown.go(gone);
    }

    /// Cancelled when the agent is not in this process any more, and what was started for it alone has no more use.
    pub fn going(&self) -> CancellationToken {
        self.0.shown.going.clone()
    }

    /// Whether it is gone for good, and not only from this process.
    pub fn has_ended(&self) -> bool {
        self.gone() == Some(Gone::Ended)
    }

    /// Resolves when all that the agent did has ended. Only after `end` is it bound to come.
    pub(crate) async fn over(&self) {
        self.0.shown.over.cancelled().await;
    }

    pub(crate) fn gone(&self) -> Option<Gone> {
        self.0.shown.gone.get().copied()
    }

    /// Whether the lease with which this process may write the agent has a fence up to `fence`.
    pub(crate) fn is_held_through(&self, fence: Fence) -> bool {
        self.look().lease.is_some_and(|lease| lease.fence <= fence)
    }

    /// Notes that the store knows of something that the agent asked.
    pub(crate) fn note_asked(&self) {
        self.0.shown.asked.store(true, Ordering::Release);
    }

    pub(crate) fn has_asked(&self) -> bool {
        self.0.shown.asked.load(Ordering::Acquire)
    }

    pub(crate) fn touch(&self) {
        self.0.shown.touch();
    }

    /// Whether nobody wanted anything of it for so long, and it does nothing. The time counts from when it was first
    /// found untouched.
    ///
    /// One that knows what is nowhere else, keys of its MCP servers, is in use: it would come back without them.
    pub(crate) fn is_idle(&self, idle: Duration) -> bool {
        let now = self.look();
        if !now.id.is_temp() && now.settings.servers.iter().any(|it| it.whole.is_some()) {
            return false;
        }
        let shown = &self.0.shown;
        let mut since = lock(&shown.idle_since);
        if shown.touched.swap(false, Ordering::Relaxed) {
            *since = Instant::now();
        }
        self.turns_in_flight() == 0 && since.elapsed() >= idle
    }

    async fn write(
        &self,
        begin: impl FnOnce(&Snapshot, &Arc<dyn Store>) -> Option<Writing> + Send + 'static,
    ) -> Result<Arc<Snapshot>, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.command(Command::Write(Write { begin: Box::new(begin), reply })).await;
        self.answer(answer).await.unwrap_or_else(|| Err(self.gone_error()))
    }

    /// What the task answers; `None` when it is over. A command that comes in as the task ends is never looked at, and
    /// lies there, with the way back to us, for as long as anybody has a handle.
    async fn answer<T>(&self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        tokio::select! {
            biased;
            answered = &mut answer => answered.ok(),
            () = self.over() => answer.try_recv().ok(),
        }
    }

    /// Commands to an agent that is gone are dropped, and with them the way back to whoever gave them.
    async fn command(&self, command: Command) {
        let _ = self.0.commands.send(command).await;
    }

    fn gone_error(&self) -> StoreError {
        self.gone().unwrap_or(Gone::Broken).error()
    }
}

/// Begins to write down what was said.
fn write(now: &Snapshot, store: &Arc<dyn Store>, said: Said) -> Writing {
    let append = Append {
        first_index: now.conversation.len(),
        messages: said.messages.clone(),
        progress: said.progress,
        bill: said.bill,
        brief: said.brief.clone(),
    };
    let written = now.lease.map(|lease| store.append(lease, append));
    after(written, Effect::Said(said))
}

/// What a write comes to once the store has it, if there is anything to be written at all.
fn after(written: Option<BoxFuture<'static, Result<(), StoreError>>>, effect: Effect) -> Writing {
    async move {
        if let Some(written) = written {
            written.await?;
        }
        Ok(effect)
    }
    .boxed()
}

impl Shown {
    /// Shows the agent as it is now.
    pub(super) fn publish(&self, snapshot: Snapshot) -> Arc<Snapshot> {
        let snapshot = Arc::new(snapshot);
        self.snapshot.store(snapshot.clone());
        // After it: whoever reads the version first and the agents then never takes old for new.
        self.version.fetch_add(1, Ordering::Release);
        snapshot
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(super) fn go(&self, gone: Gone) {
        let _ = self.gone.set(gone);
        self.going.cancel();
    }

    pub(super) fn gone(&self) -> Option<Gone> {
        self.gone.get().copied()
    }

    pub(super) fn touch(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }
}
