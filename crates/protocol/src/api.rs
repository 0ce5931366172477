//! The interface as Rust code calls it: one trait for every way in, so that what is written against it runs in the
//! server's own process as well as over HTTP or a socket.

use std::sync::Arc;

use crate::agent::{
    CreateAgent, CreateAgentParams, CreateAgentResult, DestroyAgent, DestroyAgentParams,
    DestroyAgentResult, ListAgents, ListAgentsParams, ListAgentsResult, Shutdown, ShutdownResult,
};
use crate::answer::{StreamItem, WatchItem};
use crate::conversation::{
    Compact, CompactParams, CompactResult, GetContext, GetContextResult, GetMessages,
    GetMessagesParams, GetMessagesResult, GetTokens, GetTokensResult,
};
use crate::error::RpcError;
use crate::method::Method;
use crate::params::{BLANK, NoParams, NonBlank};
use crate::server::{ShutdownServer, ShutdownServerResult};
use crate::turn::{Cancel, CancelParams, CancelResult, RequestId, Send as SendMessage};
use crate::turn::{SendParams, SendResult};
use crate::watch::WatchParams;

/// Whoever can be asked to run a method. An implementation writes `call`; the rest reads well.
pub trait Api: Sync {
    fn call<M: Method>(
        &self,
        target: &Target,
        params: M::Params,
    ) -> impl Future<Output = Result<M::Result, CallError>> + Send;

    fn create_agent(
        &self,
        params: CreateAgentParams,
    ) -> impl Future<Output = Result<CreateAgentResult, CallError>> + Send {
        self.call::<CreateAgent>(&Target::Server, params)
    }

    fn destroy_agent(
        &self,
        agent_id: impl Into<String>,
    ) -> impl Future<Output = Result<DestroyAgentResult, CallError>> + Send {
        self.call::<DestroyAgent>(&Target::Server, DestroyAgentParams { agent_id: agent_id.into() })
    }

    fn list_agents(&self) -> impl Future<Output = Result<ListAgentsResult, CallError>> + Send {
        self.call::<ListAgents>(&Target::Server, ListAgentsParams::default())
    }

    fn shutdown_server(
        &self,
    ) -> impl Future<Output = Result<ShutdownServerResult, CallError>> + Send {
        self.call::<ShutdownServer>(&Target::Server, NoParams {})
    }

    /// The same interface, seen from one agent.
    fn for_agent(&self, agent_id: impl Into<String>) -> AgentScopedApi<'_, Self>
    where
        Self: Sized,
    {
        AgentScopedApi { api: self, target: Target::Agent(agent_id.into()) }
    }
}

/// Whoever also carries what lasts as long as its caller: watches, and turns that are cancelled with it.
pub trait WatchApi: Api {
    type Watch: Happenings;

    /// Sends a message and waits for the answer. Who drops this, or dies, has cancelled the turn, unless the call has an
    /// idempotency key.
    fn send_held(
        &self,
        agent_id: &str,
        params: SendParams,
    ) -> impl Future<Output = Result<SendResult, CallError>> + Send;

    /// Watches agents: everything that happens to them. Dropping the watch ends it, and nothing else.
    fn watch(
        &self,
        params: WatchParams,
    ) -> impl Future<Output = Result<Self::Watch, CallError>> + Send;
}

impl<A: Api + Send> Api for Arc<A> {
    fn call<M: Method>(
        &self,
        target: &Target,
        params: M::Params,
    ) -> impl Future<Output = Result<M::Result, CallError>> + Send {
        A::call::<M>(self, target, params)
    }
}

impl<A: WatchApi + Send> WatchApi for Arc<A> {
    type Watch = A::Watch;

    fn send_held(
        &self,
        agent_id: &str,
        params: SendParams,
    ) -> impl Future<Output = Result<SendResult, CallError>> + Send {
        A::send_held(self, agent_id, params)
    }

    fn watch(
        &self,
        params: WatchParams,
    ) -> impl Future<Output = Result<Self::Watch, CallError>> + Send {
        A::watch(self, params)
    }
}

/// Whoever also tells a turn while it is made.
pub trait StreamApi: Api {
    type Turn: TurnItems;

    /// Sends a message to an agent. Who drops what this returns has cancelled the turn, unless the call has an idempotency
    /// key.
    fn send_stream(
        &self,
        agent_id: &str,
        params: SendParams,
    ) -> impl Future<Output = Result<Self::Turn, CallError>> + Send;
}

/// What a streamed turn tells.
pub trait TurnItems: Send + 'static {
    /// The next item; `None` after the last one or an error. May be dropped and called again without losing anything.
    fn next(&mut self) -> impl Future<Output = Option<Result<StreamItem, CallError>>> + Send;
}

/// What a watch tells.
pub trait Happenings: Send + 'static {
    /// The next item; `None` after the last one or an error. May be dropped and called again without losing anything.
    fn next(&mut self) -> impl Future<Output = Option<Result<WatchItem, CallError>>> + Send;
}

/// Which endpoint is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Server,
    /// The agent of this name.
    Agent(String),
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// Nobody was reached, so nothing has run.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection broke after the call may have been read; whether it ran is not known.
    #[error("connection lost: {0}")]
    Transport(String),
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// What came back is not an answer to this call.
    #[error("not an answer: {0}")]
    Answer(String),
    /// The call cannot be sent at all.
    #[error("not a call: {0}")]
    Call(String),
}

/// One agent's methods.
pub struct AgentScopedApi<'a, A> {
    api: &'a A,
    target: Target,
}

impl<A: Api> AgentScopedApi<'_, A> {
    pub async fn call<M: Method>(&self, params: M::Params) -> Result<M::Result, CallError> {
        self.api.call::<M>(&self.target, params).await
    }

    /// Sends `content` and waits for the answer. For more than the text, `call::<Send>`.
    pub async fn send(&self, content: impl Into<String>) -> Result<SendResult, CallError> {
        let blank = || RpcError::invalid_param("/content", format!("content {BLANK}"));
        let content = NonBlank::new(content).ok_or_else(blank)?;
        self.call::<SendMessage>(SendParams::new(content)).await
    }

    pub async fn cancel(&self, request_id: RequestId) -> Result<CancelResult, CallError> {
        self.call::<Cancel>(CancelParams { request_id }).await
    }

    pub async fn get_tokens(&self) -> Result<GetTokensResult, CallError> {
        self.call::<GetTokens>(NoParams {}).await
    }

    pub async fn get_context(&self) -> Result<GetContextResult, CallError> {
        self.call::<GetContext>(NoParams {}).await
    }

    pub async fn get_messages(
        &self,
        page: GetMessagesParams,
    ) -> Result<GetMessagesResult, CallError> {
        self.call::<GetMessages>(page).await
    }

    /// Compacts now; `call::<Compact>` can leave it to the context's size.
    pub async fn compact(&self) -> Result<CompactResult, CallError> {
        self.call::<Compact>(CompactParams::default()).await
    }

    /// Marks the agent as done.
    pub async fn shutdown(&self) -> Result<ShutdownResult, CallError> {
        self.call::<Shutdown>(NoParams {}).await
    }
}
