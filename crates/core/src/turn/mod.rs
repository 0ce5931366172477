//! A turn: from one incoming message to the agent's final answer.

mod run;
mod said;
mod slots;
mod standing;
mod step;
pub(crate) mod talk;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::account::{Exceeded, MemoryShare};
use crate::agent::{Agent, EnqueueError, Finish, Live, Order, Skipped, Work};
use crate::approval::Person;
use crate::authority::AskedBy;
use crate::briefing::Briefing;
use crate::compact::{CompactError, Compaction, Compactor};
use crate::directory::Directory;
use crate::events::{EventSink, TurnOutcome};
use crate::footprint::Footprint;
use crate::gate::Gate;
use crate::memory::Memories;
use crate::message::{ATTACHED_BYTES_MAX, Content};
use crate::name::{AgentId, TurnId};
use crate::observe::Observer;
use crate::provider::{ModelError, Models, ProviderError};
use crate::store::StoreError;
use crate::watch::{Asked, Watches};
use run::Opening;
use slots::Refused;
pub use slots::{Admission, Slots};
use standing::Standing;

/// How often turns are cancelled while a stop waits for them: one may have been on its way when the others were.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);

/// The source of what waits in line to shorten a conversation.
const COMPACT: &str = "compact";

/// Starts turns, and what waits in line with them.
pub struct Turns {
    pub(crate) directory: Arc<Directory>,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) briefing: Arc<Briefing>,
    pub(crate) compactor: Arc<Compactor>,
    pub(crate) memories: Arc<Memories>,
    /// Memories that are put before a turn.
    pub(crate) recall: u32,
    pub(crate) slots: Slots,
    pub(crate) limits: TurnLimits,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) watches: Arc<Watches>,
}

#[derive(Clone, Copy, Debug)]
pub struct TurnLimits {
    pub max_tool_iterations: u32,
    pub max_concurrent_tools: usize,
    /// Tool calls that a model may make in one step.
    pub max_calls_per_step: usize,
}

/// What starts a turn.
#[derive(Default)]
pub struct TurnInput {
    pub content: Content,
    /// Goes on with the unfinished turn `id` instead of saying something.
    pub resume: bool,
    /// Generated when absent.
    pub id: Option<TurnId>,
    pub source: Option<String>,
    pub source_agent: Option<AgentId>,
    /// On whose share of the places it is.
    pub asked_by: AskedBy,
    /// JSON Schema that the answer must satisfy.
    pub schema: Option<Arc<Value>>,
    /// The most tokens of one answer, where the caller has set a bound. An answer that is cut by it is not mended.
    pub max_output_tokens: Option<u32>,
    /// Started by a tool of a running turn, in whose slot it runs: if it waited for one of its own, turns that wait
    /// for each other's children could take all slots.
    pub nested: bool,
    /// Told of the files that its tools change.
    pub footprint: Option<Arc<Footprint>>,
    /// Told what happens while it happens.
    pub sink: Option<Box<dyn EventSink>>,
    /// Answers what it asks, and what turns ask that it waits for.
    pub person: Option<Person>,
}

#[derive(Debug, Clone, Error)]
pub enum TurnError {
    #[error("a turn named {0} is in flight already")]
    Duplicate(TurnId),
    #[error("turn {0} is not one that can be resumed")]
    NotResumable(TurnId),
    #[error("too many turns are waiting")]
    Overloaded,
    /// A bound of the agent's tree.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    #[error("the server is stopping")]
    Stopping,
    #[error("the turn took longer than it was given")]
    Timeout,
    #[error("the conversation has {tokens} tokens and the model's window is {window}")]
    ContextTooLong { tokens: u64, window: u64 },
    #[error(
        "the attachments of the conversation have {bytes} bytes, and a request has at most {ATTACHED_BYTES_MAX}: compact it"
    )]
    Attached { bytes: u64 },
    /// The provider finds it too long after it was shortened.
    #[error(
        "the model's provider finds the conversation too long ({reason}): {system} tokens of instructions, {tools} of tools, \
         {messages} of messages, {last} of them in the last one"
    )]
    Overflow { reason: String, system: u64, tools: u64, messages: u64, last: u64 },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the turn failed inside the server")]
    Panicked,
}

impl From<Refused> for TurnError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Overloaded,
            Refused::Share(exceeded) => Self::Exceeded(exceeded),
            Refused::Closed => Self::Stopping,
        }
    }
}

impl From<CompactError> for TurnError {
    fn from(error: CompactError) -> Self {
        match error {
            CompactError::TooLong { tokens, window } => Self::ContextTooLong { tokens, window },
            CompactError::Attached { bytes } => Self::Attached { bytes },
            CompactError::Model(error) => Self::Model(error),
            CompactError::Store(error) => Self::Store(error),
        }
    }
}

/// A turn that runs or waits. Dropping the handle does not end it.
pub struct TurnHandle {
    pub id: TurnId,
    pub cancel: CancellationToken,
    outcome: oneshot::Receiver<Result<TurnOutcome, TurnError>>,
}

impl TurnHandle {
    /// Waits for the end. A `timeout` cancels the turn and waits until it has stopped.
    pub async fn wait(mut self, timeout: Option<Duration>) -> Result<TurnOutcome, TurnError> {
        let lost = |_| Err(TurnError::Panicked);
        let Some(timeout) = timeout else { return self.outcome.await.unwrap_or_else(lost) };
        match tokio::time::timeout(timeout, &mut self.outcome).await {
            Ok(outcome) => outcome.unwrap_or_else(lost),
            Err(_) => {
                self.cancel.cancel();
                // Whatever it came to, its caller's time was over first.
                let _ = self.outcome.await;
                Err(TurnError::Timeout)
            }
        }
    }

    /// As `wait`, for somebody who may be told to stop: then the turn is cancelled, and its end waited for.
    pub async fn wait_or_cancel(
        self,
        cancel: &CancellationToken,
        timeout: Option<Duration>,
    ) -> Result<TurnOutcome, TurnError> {
        let stop = self.cancel.clone();
        let answer = self.wait(timeout);
        tokio::pin!(answer);
        tokio::select! {
            biased;
            ended = &mut answer => ended,
            () = cancel.cancelled() => {
                stop.cancel();
                answer.await
            }
        }
    }
}

impl Turns {
    /// Starts a turn, or queues it behind the agent's others. It runs on its own, whatever becomes of the caller.
    pub async fn start(
        self: &Arc<Self>,
        agent: &Agent,
        mut input: TurnInput,
    ) -> Result<TurnHandle, TurnError> {
        agent.account().check_memory()?;
        let id = input.id.take().unwrap_or_else(TurnId::random);
        let place = Counted { nested: input.nested, asked_by: input.asked_by };
        let mut waiting = MemoryShare::new(agent.account().clone());
        waiting.set(input.content.memory_bytes());
        let asked = Arc::new(Asked {
            content: Arc::new(std::mem::take(&mut input.content)),
            source: input.source.take(),
            source_agent: input.source_agent.take(),
            resumed: input.resume,
        });
        let live = Arc::<Live>::default();
        let shown = (asked.clone(), live.clone());
        let turn = |cancel| Opening {
            turns: self.clone(),
            agent: agent.clone(),
            id: id.clone(),
            cancel,
            asked,
            live,
            input,
            waiting,
        };
        let (cancel, outcome) = self.enqueue(agent, &id, place, shown, turn).await?;
        Ok(TurnHandle { id, cancel, outcome })
    }

    /// Summarises the older part of a conversation. Waits for its turn and for a slot like any other.
    pub async fn compact(
        self: &Arc<Self>,
        agent: &Agent,
        force: bool,
        asked_by: AskedBy,
    ) -> Result<Compaction, TurnError> {
        let id = TurnId::random();
        let (compactor, own) = (self.compactor.clone(), agent.clone());
        let summary = |cancel| Summary { compactor, agent: own, force, cancel };
        let asked = Arc::new(Asked { source: Some(COMPACT.into()), ..Asked::default() });
        let place = Counted { nested: false, asked_by };
        let shown = (asked, Arc::default());
        let (_, outcome) = self.enqueue(agent, &id, place, shown, summary).await?;
        outcome.await.unwrap_or(Err(TurnError::Panicked))
    }

    async fn enqueue<J: Job>(
        &self,
        agent: &Agent,
        id: &TurnId,
        place: Counted,
        (asked, live): (Arc<Asked>, Arc<Live>),
        job: impl FnOnce(CancellationToken) -> J,
    ) -> Result<(CancellationToken, oneshot::Receiver<Result<J::Outcome, TurnError>>), TurnError>
    {
        let Counted { nested, asked_by } = place;
        let admission = self.slots.admit(agent.account(), asked_by)?;
        let cancel = agent.turn_token();
        let (answer, outcome) = oneshot::channel();
        let waits =
            Waits { job: job(cancel.clone()), cancel: cancel.clone(), nested, admission, answer };
        let queued_max = slots::queued_max(asked_by);
        let (id, work) = (id.clone(), Box::new(waits));
        let order = Order { id: id.clone(), asked, live, cancel: cancel.clone(), work };
        let queued = agent.enqueue(order, queued_max).await;
        queued.map_err(|error| match error {
            EnqueueError::Duplicate => TurnError::Duplicate(id),
            EnqueueError::Full => TurnError::Overloaded,
            EnqueueError::Gone(error) => TurnError::Store(error),
        })?;
        Ok((cancel, outcome))
    }

    /// How many turns run or wait, and how many of them wait: behind another turn of their agent, or for a slot.
    pub fn in_flight(&self) -> (usize, usize) {
        let (all, without_slot) = self.slots.count();
        let behind = |agent: &Agent| agent.look().turns.iter().filter(|it| !it.running).count();
        let queued = self.directory.agents().iter().map(behind).sum::<usize>() + without_slot;
        (all, queued.min(all))
    }

    pub fn max_tool_iterations(&self) -> u32 {
        self.limits.max_tool_iterations
    }

    /// Cancels what came from a source, whichever agent it is of.
    pub async fn cancel_from(&self, source: &str) {
        for agent in self.directory.agents() {
            for turn in agent.look().turns.iter() {
                if turn.asked.source.as_deref() == Some(source) {
                    agent.cancel(&turn.id).await;
                }
            }
        }
    }

    /// Cancels all that run or wait.
    pub fn cancel_all(&self) {
        for agent in self.directory.agents() {
            agent.cancel_all();
        }
    }

    /// Takes no new turns; those in flight get `grace` and are then cancelled. Returns when none is left.
    pub async fn stop(&self, grace: Duration) {
        self.slots.close();
        let mut patience = grace;
        while tokio::time::timeout(patience, self.slots.empty()).await.is_err() {
            self.cancel_all();
            patience = CANCEL_AGAIN;
        }
    }
}

/// Where a job is counted.
struct Counted {
    nested: bool,
    asked_by: AskedBy,
}

/// What is done in an agent's line of turns.
trait Job: Send + 'static {
    type Outcome: Send + 'static;

    fn run(
        self,
        standing: Arc<Standing>,
    ) -> impl Future<Output = Result<Self::Outcome, TurnError>> + Send;

    /// What it comes to when it is cancelled before it began.
    fn cancelled() -> Self::Outcome;
}

/// A job that waits for its turn, and then for a slot: one that waits for its agent must not hold a slot.
struct Waits<J: Job> {
    job: J,
    cancel: CancellationToken,
    nested: bool,
    admission: Admission,
    answer: oneshot::Sender<Result<J::Outcome, TurnError>>,
}

impl<J: Job> Work for Waits<J> {
    fn run(self: Box<Self>) -> BoxFuture<'static, Finish> {
        let Self { job, cancel, nested, admission, answer } = *self;
        async move {
            let standing = Arc::new(Standing::new(admission, nested));
            let outcome = match cancel.run_until_cancelled(standing.enter()).await {
                Some(()) => job.run(standing.clone()).await,
                None => Ok(J::cancelled()),
            };
            standing.leave();
            let finish: Finish = Box::new(move || {
                drop(standing);
                let _ = answer.send(outcome);
            });
            finish
        }
        .boxed()
    }

    fn skip(self: Box<Self>, why: Skipped) {
        let Self { admission, answer, .. } = *self;
        drop(admission);
        let _ = answer.send(match why {
            Skipped::Cancelled => Ok(J::cancelled()),
            Skipped::Gone(StoreError::Ended) => Ok(J::cancelled()),
            Skipped::Gone(error) => Err(error.into()),
        });
    }
}

struct Summary {
    compactor: Arc<Compactor>,
    agent: Agent,
    force: bool,
    cancel: CancellationToken,
}

impl Job for Summary {
    type Outcome = Compaction;

    async fn run(self, _: Arc<Standing>) -> Result<Compaction, TurnError> {
        Ok(self.compactor.compact(&self.agent, self.force, &self.cancel).await?)
    }

    fn cancelled() -> Compaction {
        Compaction::Skipped("cancelled")
    }
}
