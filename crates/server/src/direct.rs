//! The interface for code in the same process: the dispatcher without a socket, and without JSON.

use std::sync::Arc;

use nexus_core::{AgentId, Hand, Requester};
use nexus_protocol::api::{Api, CallError, Target as Endpoint};
use nexus_protocol::{Method, RpcError};

use crate::dispatcher::{ANSWER_BYTES_MAX, Caller, Dispatcher, Signer, Target};

/// Calls the dispatcher as `requester`. `for_agent` gives the `AgentScopedApi` of one agent. A call goes on when its
/// future is dropped.
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
        let target = match target {
            Endpoint::Server => Target::Server,
            Endpoint::Agent(name) => Target::Agent(
                AgentId::parse(name)
                    .map_err(|error| RpcError::invalid_param("/agent_id", error.to_string()))?,
            ),
        };
        let requester = self.requester.clone();
        let caller = Caller {
            requester,
            hand: Hand::Program,
            signer: Signer::Process,
            target,
            peer: None,
            behalf: None,
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        Ok(self.dispatcher.call::<M>(caller, params).await?)
    }
}
