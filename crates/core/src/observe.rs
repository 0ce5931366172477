//! What happens inside, told to whoever counts or traces it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::model::ModelInfo;
use crate::name::{AgentId, TurnId};
use crate::usage::Bill;

/// Told of each thing once, when it is over, where it happens. Must return at once: turns and the store's writer wait for
/// it. What is state and not an event, such as the turns that wait, is asked of the engine ([`crate::Engine::load`]).
pub trait Observer: Send + Sync {
    fn turn_ended(&self, _: &EndedTurn<'_>) {}

    fn model_call_ended(&self, _: &EndedModelCall<'_>) {}

    /// A provider failed, and is sent the same call again. `why` is as [`CallEnd::Failed`] says it.
    fn model_call_retried(&self, _model: &ModelInfo, _why: &'static str) {}

    /// A request changed what the one before it in its conversation had said: a provider's cache could not be read.
    fn prefix_broken(&self, _model: &ModelInfo) {}

    fn tool_call_ended(&self, _: &EndedToolCall<'_>) {}

    fn commit_ended(&self, _: &EndedCommit) {}
}

/// Nobody looks.
impl Observer for () {}

/// Both look.
impl<A: Observer, B: Observer> Observer for (Arc<A>, Arc<B>) {
    fn turn_ended(&self, turn: &EndedTurn<'_>) {
        self.0.turn_ended(turn);
        self.1.turn_ended(turn);
    }

    fn model_call_ended(&self, call: &EndedModelCall<'_>) {
        self.0.model_call_ended(call);
        self.1.model_call_ended(call);
    }

    fn model_call_retried(&self, model: &ModelInfo, why: &'static str) {
        self.0.model_call_retried(model, why);
        self.1.model_call_retried(model, why);
    }

    fn prefix_broken(&self, model: &ModelInfo) {
        self.0.prefix_broken(model);
        self.1.prefix_broken(model);
    }

    fn tool_call_ended(&self, call: &EndedToolCall<'_>) {
        self.0.tool_call_ended(call);
        self.1.tool_call_ended(call);
    }

    fn commit_ended(&self, commit: &EndedCommit) {
        self.0.commit_ended(commit);
        self.1.commit_ended(commit);
    }
}

/// One run of a turn. Callers choose the names of turns, and choose them again; what belongs to one run is told by its
/// number, which no other run in this process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRun {
    pub id: TurnId,
    pub number: u64,
}

impl TurnRun {
    pub(crate) fn begin(id: TurnId) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        Self { id, number: RUNS.fetch_add(1, Ordering::Relaxed) }
    }
}

/// A turn that ran, from its first slot on.
pub struct EndedTurn<'a> {
    pub agent: &'a AgentId,
    pub turn: &'a TurnRun,
    pub began: Instant,
    pub lasted: Duration,
    pub end: TurnEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    Done,
    Cancelled,
    /// At the limit of its steps.
    Halted,
    Failed,
}

/// One call of a model, with all that its provider tried.
pub struct EndedModelCall<'a> {
    pub model: &'a ModelInfo,
    pub agent: &'a AgentId,
    /// `None` for housekeeping, such as a summary.
    pub turn: Option<&'a TurnRun>,
    pub began: Instant,
    pub lasted: Duration,
    /// Until something was said or thought, waits for the provider included.
    pub first_token: Option<Duration>,
    pub end: CallEnd,
    /// What it used and costs, whatever became of its answer.
    pub bill: Bill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    Done,
    Cancelled,
    /// With the name of the error.
    Failed(&'static str),
}

/// A tool call that a model made, carried out or not.
pub struct EndedToolCall<'a> {
    /// `None` for one that there is not: what models make up has no end.
    pub tool: Option<&'a str>,
    pub agent: &'a AgentId,
    pub turn: &'a TurnRun,
    pub began: Instant,
    pub lasted: Duration,
    pub end: ToolEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEnd {
    Done,
    Failed,
    Cancelled,
    /// By this rule of the gate.
    Refused(&'static str),
}

/// A group of writes that the store brought to disk, or could not.
pub struct EndedCommit {
    pub lasted: Duration,
    pub writes: usize,
    pub committed: bool,
}

/// A turn that runs. The observer is told when this goes, so also of a turn that panics.
pub(crate) struct RunningTurn {
    observer: Arc<dyn Observer>,
    agent: AgentId,
    turn: TurnRun,
    began: Instant,
    pub end: TurnEnd,
}

impl RunningTurn {
    pub fn begin(observer: Arc<dyn Observer>, agent: AgentId, turn: TurnRun) -> Self {
        Self { observer, agent, turn, began: Instant::now(), end: TurnEnd::Failed }
    }
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        self.observer.turn_ended(&EndedTurn {
            agent: &self.agent,
            turn: &self.turn,
            began: self.began,
            lasted: self.began.elapsed(),
            end: self.end,
        });
    }
}

/// A model call under way. The observer is told when this goes, so also when nobody waits for the answer any more.
pub(crate) struct RunningCall {
    observer: Arc<dyn Observer>,
    model: Arc<ModelInfo>,
    agent: AgentId,
    turn: Option<TurnRun>,
    began: Instant,
    first_token: Option<Duration>,
    pub end: CallEnd,
    pub bill: Bill,
}

impl RunningCall {
    pub fn begin(
        observer: Arc<dyn Observer>,
        model: Arc<ModelInfo>,
        agent: AgentId,
        turn: Option<TurnRun>,
    ) -> Self {
        let (began, end, bill) = (Instant::now(), CallEnd::Cancelled, Bill::default());
        Self { observer, model, agent, turn, began, first_token: None, end, bill }
    }

    /// Something was said or thought.
    pub fn heard(&mut self) {
        if self.first_token.is_none() {
            self.first_token = Some(self.began.elapsed());
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.observer.model_call_ended(&EndedModelCall {
            model: &self.model,
            agent: &self.agent,
            turn: self.turn.as_ref(),
            began: self.began,
            lasted: self.began.elapsed(),
            first_token: self.first_token,
            end: self.end,
            bill: self.bill,
        });
    }
}
