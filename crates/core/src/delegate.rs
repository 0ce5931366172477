//! What an agent does with others, in its own name.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::approval::Announce;
use crate::authority::{Action, AskedBy, Requester};
use crate::events::{EventSink, TurnEvent, TurnOutcome};
use crate::lifecycle::{AccessError, AgentSpec, Lifecycle};
use crate::name::AgentId;
use crate::tool::Colleagues;
use crate::turn::{TurnError, TurnInput, Turns};
use crate::waits::Waits;

pub(crate) struct Delegation {
    pub lifecycle: Arc<Lifecycle>,
    pub turns: Arc<Turns>,
    pub waits: Waits,
    /// How long one tool call may take.
    pub tool_timeout: Duration,
}

#[derive(Debug, Clone, Error)]
enum DelegateError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Turn(#[from] TurnError),
    #[error("agent {0} is itself waiting for this agent's answer; waiting for it would never end")]
    Circle(AgentId),
    #[error(
        "agent {agent} did not answer within {seconds} s; its turn was cancelled, and what it did so far stands. Ask for less at a time"
    )]
    Late { agent: AgentId, seconds: u64 },
}

/// What of the time for a tool call is left to the asked turn for its end, so that the asking one is told more than that
/// its time is over.
const ENDING: Duration = Duration::from_secs(2);

#[async_trait]
impl Colleagues for Delegation {
    async fn create(&self, own: &Agent, spec: AgentSpec) -> Result<Agent, String> {
        self.lifecycle.create(&requester(own), spec).await.map_err(|error| error.to_string())
    }

    async fn find(&self, own: &Agent, id: &AgentId, action: Action) -> Result<Agent, String> {
        let found = self.lifecycle.find(&requester(own), id, action).await;
        found.map_err(|error| error.to_string())
    }

    async fn ask(
        &self,
        own: &Agent,
        id: &AgentId,
        content: String,
        cancel: &CancellationToken,
        announce: Announce,
    ) -> Result<TurnOutcome, String> {
        let asked = self.ask_agent(own, id, content, cancel, announce).await;
        asked.map_err(|error| error.to_string())
    }

    async fn destroy(&self, own: &Agent, id: &AgentId) -> Result<Vec<AgentId>, String> {
        self.lifecycle.destroy(&requester(own), id).await.map_err(|error| error.to_string())
    }
}

fn requester(own: &Agent) -> Requester {
    Requester::Agent(own.id())
}

impl Delegation {
    /// Sends `content` from one agent to another and waits for the answer. When nobody waits any more, because the asking
    /// turn was cancelled or the call's time is over, the asked turn is cancelled: it would work for nobody, and hold an
    /// agent that can then be asked nothing else. What the asked one needs leave for is announced to whoever watches the
    /// asking one.
    async fn ask_agent(
        &self,
        from: &Agent,
        to: &AgentId,
        content: String,
        cancel: &CancellationToken,
        announce: Announce,
    ) -> Result<TurnOutcome, DelegateError> {
        let agent = self.lifecycle.find(&requester(from), to, Action::Send).await?;
        let wait = self.waits.begin(from.number(), agent.number());
        let _wait = wait.ok_or_else(|| DelegateError::Circle(to.clone()))?;
        let input = TurnInput {
            content: content.into(),
            source: Some("agent".into()),
            source_agent: Some(from.id()),
            asked_by: AskedBy::Agent,
            nested: true,
            person: announce.person().cloned(),
            sink: Some(Box::new(Upward(announce))),
            ..TurnInput::default()
        };
        let turn = self.turns.start(&agent, input).await?;
        // Also when this future is dropped. After the turn's end it cancels nothing.
        let asked = turn.cancel.clone().drop_guard();
        let patience = self.tool_timeout - ENDING.min(self.tool_timeout / 4);
        let answer = turn.wait(None);
        tokio::pin!(answer);
        let late = tokio::select! {
            biased;
            outcome = &mut answer => return Ok(outcome?),
            () = cancel.cancelled() => false,
            () = tokio::time::sleep(patience) => true,
        };
        drop(asked);
        // The wait is over when the asked turn is: until then it still counts for circles.
        let ended = answer.await;
        match late {
            true => Err(DelegateError::Late { agent: to.clone(), seconds: patience.as_secs() }),
            false => Ok(ended?),
        }
    }
}

/// Passes on what a person has to know of a turn that another turn waits for.
struct Upward(Announce);

impl EventSink for Upward {
    fn event(&mut self, event: TurnEvent<'_>) -> bool {
        if let TurnEvent::ApprovalRequested(approval) = event {
            self.0.tell(approval);
        }
        true
    }
}
