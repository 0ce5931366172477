//! What a handler knows of its call.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use nexus_core::authority::Action;
use nexus_core::name::DEFAULT_AGENT;
use nexus_core::{Agent, AgentId};
use nexus_protocol::{Id, Kind, Method, RpcError, Scope, params};
use tracing::Span;

use crate::Services;
use crate::dispatcher::{Caller, Dispatcher, Target};
use crate::errors::wire;

/// What a handler knows of its call.
pub struct Cx {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub caller: Caller,
    /// The agent the call is for, where one was named.
    pub agent_id: Option<AgentId>,
    pub request_id: Option<Id>,
    /// When the call came.
    pub started: Instant,
    /// The call has a key under which its answer can be asked for again.
    pub(crate) keyed: bool,
}

impl Cx {
    pub fn services(&self) -> &Services {
        self.dispatcher.services()
    }

    /// The agent this call is for, if the caller may do `action` to it.
    pub async fn agent(&self, action: Action) -> Result<Agent, RpcError> {
        let (agents, requester) = (&self.services().engine.agents, &self.caller.requester);
        let id = match &self.agent_id {
            Some(id) => Cow::Borrowed(id),
            None => Cow::Owned(AgentId::default_agent()),
        };
        agents.agent(requester, &id, action).await.map_err(wire)
    }

    /// The parameters. Those of an agent method that was called at server scope say which agent they are for.
    pub(crate) fn decode<M: Method>(&mut self, raw: Option<&str>) -> Result<M::Params, RpcError> {
        if M::SCOPE != Scope::Agent || self.caller.target != Target::Server {
            return params::decode(raw);
        }
        let (params, name) = params::decode_addressed(raw)?;
        self.agent_id = name
            .map(|name| AgentId::parse(&name))
            .transpose()
            .map_err(|error| RpcError::invalid_param("/agent_id", error.to_string()))?;
        Ok(params)
    }

    /// Says in the log whose call it was that a line is about. Only for calls that take a while: a small one would
    /// spend a good part of its time on it.
    pub(crate) fn span<M: Method>(&self) -> Span {
        match (M::KIND, &self.agent_id) {
            (Kind::Turn, agent_id) => {
                let agent_id = agent_id.as_ref().map_or(DEFAULT_AGENT, AgentId::as_str);
                tracing::info_span!("call", agent_id)
            }
            _ => Span::none(),
        }
    }
}
