//! The interface for code in the same process: the dispatcher without a socket, and without JSON.

use std::sync::Arc;

use nexus_core::{AgentId, Requester};
use nexus_protocol::api::{Api, CallError, Target as Endpoint};
use nexus_protocol::{Method, RpcError};

use crate::dispatcher::{Caller, Dispatcher, Target};

/// Calls the dispatcher as `requester`. `for_agent` gives the `AgentScopedApi` of one agent.
#[derive(Clone)]
pub struct DirectAgentApi {
    dispatcher: Arc<Dispatcher>,
    requester: Requester,
}

impl DirectAgentApi {
    pub fn new(dispatcher: Arc<Dispatcher>, requester: Requester) -> Self {
        Self { dispatcher, requester }
    }
}

impl Api for DirectAgentApi {
    async fn call<M: Method>(
        &self,
        target: &Endpoint,
        params: M::Params,
    ) -> Result<M::Result, CallError> {
        let agent_id = match target {
            Endpoint::Server => None,
            Endpoint::Agent(name) => Some(
                AgentId::parse(name)
                    .map_err(|error| RpcError::invalid_param("/agent_id", error.to_string()))?,
            ),
        };
        let caller = Caller {
            requester: self.requester.clone(),
            target: agent_id.clone().map_or(Target::Server, Target::Agent),
            peer: None,
            answer_bytes_max: usize::MAX,
        };
        Ok(self.dispatcher.call::<M>(caller, agent_id, params).await?)
    }
}
