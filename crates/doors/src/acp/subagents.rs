//! Agents beneath a session as sessions of their own, for editors that say they understand that; the part of the protocol is
//! unstable. To all others they are what the tool calls of their parent say of them. They are shown while a prompt of the
//! session runs; nothing is done with them from here.

use std::collections::HashMap;
use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    ContentBlock, ErrorStopReason, IdleStateUpdate, IdleStopReason, RunningStateUpdate, SessionId,
    SessionMessage, SessionUpdate, StateUpdate, SubagentUpdate, UnknownStateUpdate,
};
use nexus_protocol::WatchApi;
use nexus_protocol::agent::AgentEntry;
use nexus_protocol::turn::RequestId;
use nexus_protocol::watch::{Asked, Event, Happened};

use super::door::Door;
use super::fault;
use super::told::Told;

/// Those that work.
#[derive(Default)]
pub struct Subagents(HashMap<String, Child>);

struct Child {
    /// Whose session is told of it.
    parent: String,
    request: RequestId,
    told: Told,
}

impl Subagents {
    /// Something that happened to an agent beneath the session.
    pub async fn happened<A>(&mut self, door: &Door<A>, happened: &Happened)
    where
        A: WatchApi + Clone + Send + Sync + 'static,
    {
        let (Some(id), Some(request)) = (&happened.agent_id, &happened.request_id) else { return };
        if let Event::TurnStarted { asked, .. } = &happened.event {
            return self.begun(door, id, request, asked).await;
        }
        let Some(child) = self.0.get_mut(id).filter(|child| child.request == *request) else {
            return;
        };
        for update in child.told.happened(&happened.event) {
            door.tell(id, update).await;
        }
        if let Event::TurnEnded { status, error, .. } = &happened.event {
            let reason = match (status.as_str(), error) {
                (_, Some(error)) => {
                    let why = fault::internal(error.message.clone());
                    IdleStopReason::Error(ErrorStopReason::new().error(why))
                }
                ("cancelled", _) => IdleStopReason::Cancelled,
                ("halted", _) => IdleStopReason::MaxTurnRequests,
                ("truncated", _) => IdleStopReason::MaxTokens,
                _ => IdleStopReason::EndTurn,
            };
            let state = StateUpdate::Idle(IdleStateUpdate::new().stop_reason(reason));
            self.over(door, id, state).await;
        }
    }

    /// Nothing more is told of those that still work.
    pub async fn left<A>(&mut self, door: &Door<A>)
    where
        A: WatchApi + Clone + Send + Sync + 'static,
    {
        let all: Vec<String> = self.0.keys().cloned().collect();
        for id in all {
            self.over(door, &id, StateUpdate::Unknown(UnknownStateUpdate::new())).await;
        }
    }

    async fn begun<A>(&mut self, door: &Door<A>, id: &str, request: &RequestId, asked: &Asked)
    where
        A: WatchApi + Clone + Send + Sync + 'static,
    {
        let Some((parent, cwd)) = placed(door, id).await else { return };
        let turn = match request {
            RequestId::Text(name) => name.clone(),
            RequestId::Number(number) => number.to_string(),
        };
        let update = SubagentUpdate::new(SessionId::new(id))
            .title(id.to_owned())
            .cwd(cwd.clone())
            .state(StateUpdate::Running(RunningStateUpdate::new()));
        door.tell(&parent, SessionUpdate::SubagentUpdate(update)).await;
        if !asked.content.is_empty() {
            let sender = asked.source_agent_id.clone().map(SessionId::new);
            let message = SessionMessage::new(turn.clone())
                .sender_session_id(sender)
                .recipient_session_id(SessionId::new(id))
                .content(vec![ContentBlock::from(asked.content.clone())]);
            door.tell(id, SessionUpdate::SessionMessage(message)).await;
        }
        let child = Child { parent, request: request.clone(), told: Told::new(turn, cwd) };
        self.0.insert(id.to_owned(), child);
    }

    async fn over<A>(&mut self, door: &Door<A>, id: &str, state: StateUpdate)
    where
        A: WatchApi + Clone + Send + Sync + 'static,
    {
        let Some(mut child) = self.0.remove(id) else { return };
        for update in child.told.left() {
            door.tell(id, update).await;
        }
        let update = SubagentUpdate::new(SessionId::new(id)).state(state);
        door.tell(&child.parent, SessionUpdate::SubagentUpdate(update)).await;
    }
}

/// The parent of an agent, and its directory.
async fn placed<A: WatchApi>(door: &Door<A>, id: &str) -> Option<(String, PathBuf)> {
    let listed = door.api.list_agents().await.ok()?;
    let agent: &AgentEntry = listed.agents.iter().find(|agent| agent.agent_id == id)?;
    Some((agent.parent_agent_id.clone()?, agent.cwd.clone().into()))
}
