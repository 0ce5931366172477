//! One agent asking another.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::approval::Announce;
use crate::authority::{Action, Requester};
use crate::engine::{AccessError, Engine};
use crate::name::AgentId;
use crate::turn::{EventSink, TurnError, TurnEvent, TurnInput, TurnOutcome};

#[derive(Debug, Clone, Error)]
pub enum DelegateError {
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
const ENDING_MAX: Duration = Duration::from_secs(2);

impl Engine {
    /// Sends `content` from one agent to another and waits for the answer. When nobody waits any more, because the asking
    /// turn was cancelled or the call's time is over, the asked turn is cancelled: it would work for nobody, and hold an
    /// agent that can then be asked nothing else. What the asked one needs leave for is announced to whoever watches the
    /// asking one.
    pub async fn ask_agent(
        self: &Arc<Self>,
        from: &Agent,
        to: &AgentId,
        content: String,
        cancel: &CancellationToken,
        announce: Announce,
    ) -> Result<TurnOutcome, DelegateError> {
        let agent = self.agent(&Requester::Agent(from.id()), to, Action::Send).await?;
        let _wait =
            self.waits.begin(&from.id(), to).ok_or_else(|| DelegateError::Circle(to.clone()))?;
        let input = TurnInput {
            content,
            source: Some("agent".into()),
            source_agent: Some(from.id()),
            nested: true,
            sink: Some(Box::new(Upward(announce))),
            ..TurnInput::default()
        };
        let turn = self.start_turn(&agent, input)?;
        // Also when this future is dropped. After the turn's end it cancels nothing.
        let asked = turn.cancel.clone().drop_guard();
        let limit = self.settings.tool_timeout;
        let patience = limit - ENDING_MAX.min(limit / 4);
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
            (self.0)(approval);
        }
        true
    }
}
