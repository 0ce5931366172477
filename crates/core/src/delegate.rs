//! One agent asking another.

use std::sync::Arc;

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
}

impl Engine {
    /// Sends `content` from one agent to another and waits for the answer. A cancel of the asking turn cancels the
    /// asked one; what the asked one needs leave for is announced to whoever watches the asking one.
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
        let asked = turn.cancel.clone();
        let answer = turn.wait(None);
        tokio::pin!(answer);
        tokio::select! {
            biased;
            outcome = &mut answer => Ok(outcome?),
            () = cancel.cancelled() => {
                asked.cancel();
                Ok(answer.await?)
            }
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
