//! A turn: from one incoming message to the agent's final answer.

mod run;
pub mod slots;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::agent::Agent;
use crate::engine::Engine;
use crate::message::ToolCall;
use crate::name::{AgentId, TurnId};
use crate::provider::{ModelError, ProviderError, Usage};
use crate::store::{ApprovalRecord, StoreError};
use slots::Refused;

/// Turns of one agent that may wait behind the one that runs. A caller that queues more has lost count.
pub const AGENT_QUEUE_MAX: usize = 256;

/// What starts a turn.
#[derive(Default)]
pub struct TurnInput {
    pub content: String,
    /// Goes on with the unfinished turn `id` instead of saying something.
    pub resume: bool,
    /// Generated when absent.
    pub id: Option<TurnId>,
    pub source: Option<String>,
    pub source_agent: Option<AgentId>,
    /// JSON Schema that the answer must satisfy.
    pub schema: Option<Arc<Value>>,
    /// Started by a tool of a running turn, in whose slot it runs: if it waited for one of its own, turns that wait
    /// for each other's children could take all slots.
    pub nested: bool,
    /// Told what happens while it happens.
    pub sink: Option<Box<dyn EventSink>>,
}

/// How a turn ended, when it did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnOutcome {
    /// The text of all steps, joined as it was streamed.
    pub content: String,
    pub cancelled: bool,
    pub halted_at_iteration_limit: bool,
}

/// Something that happened in a turn.
#[derive(Debug)]
pub enum TurnEvent<'a> {
    Text(&'a str),
    ToolCall(&'a ToolCall),
    /// `refused_by` names the rule of the gate that refused the call.
    ToolResult {
        id: &'a str,
        content: &'a str,
        refused_by: Option<&'static str>,
    },
    ApprovalRequested(&'a ApprovalRecord),
    Usage(Usage),
}

/// Takes the events of one turn. Must not block: a reader that cannot keep up is the sink's own problem.
pub trait EventSink: Send {
    /// False when the sink takes no more; it is then dropped and the turn goes on without it.
    fn event(&mut self, event: TurnEvent<'_>) -> bool;
}

#[derive(Debug, Clone, Error)]
pub enum TurnError {
    #[error("a turn named {0} is in flight already")]
    Duplicate(TurnId),
    #[error("turn {0} is not one that can be resumed")]
    NotResumable(TurnId),
    #[error("too many turns are waiting")]
    Overloaded,
    #[error("the server is stopping")]
    Stopping,
    #[error("the turn took longer than it was given")]
    Timeout,
    #[error("the conversation has {tokens} tokens and the model's window is {window}")]
    ContextTooLong { tokens: u64, window: u64 },
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
            Refused::Closed => Self::Stopping,
        }
    }
}

/// Says whose the provider traffic inside it is; see `logs`.
pub(crate) fn span(agent: &Agent) -> tracing::Span {
    tracing::info_span!(target: "nexus3::turn", "turn", agent_id = agent.id().as_str())
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
}

impl Engine {
    /// Starts a turn, or queues it behind the agent's others. It runs on its own, whatever becomes of the caller.
    pub fn start_turn(
        self: &Arc<Self>,
        agent: &Arc<Agent>,
        mut input: TurnInput,
    ) -> Result<TurnHandle, TurnError> {
        let id = input.id.take().unwrap_or_else(TurnId::random);
        if agent.turns_in_flight() > AGENT_QUEUE_MAX {
            return Err(TurnError::Overloaded);
        }
        let admission = self.slots.admit()?;
        let place = agent.enter_turn(&id).ok_or_else(|| TurnError::Duplicate(id.clone()))?;
        let (cancel, span) = (place.cancel.clone(), place.span.clone());
        let line = run::Line::join(agent);
        let (answer, outcome) = oneshot::channel();
        let turn = run::Turn {
            engine: self.clone(),
            agent: agent.clone(),
            id: id.clone(),
            cancel: cancel.clone(),
        };
        let worker = async move {
            let ended = match turn.run(input, line, &admission).await {
                // Nobody asked for it: it was stopped because another process has the agent.
                Ok(outcome) if outcome.cancelled && turn.agent.is_lost() => {
                    Err(StoreError::LeaseLost(turn.agent.id()).into())
                }
                ended => ended,
            };
            // The name is free again before the caller learns the outcome.
            drop(place);
            drop(admission);
            let _ = answer.send(ended);
        };
        self.slots.workers.spawn(worker.instrument(span));
        Ok(TurnHandle { id, cancel, outcome })
    }
}
