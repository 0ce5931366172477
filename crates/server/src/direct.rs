//! The interface for code in the same process: the dispatcher without a socket, and without JSON.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use nexus_core::store::Door;
use nexus_core::{AgentId, Hand, Requester};
use nexus_protocol::answer::{Item, StreamItem, WatchItem};
use nexus_protocol::api::{
    Api, CallError, Happenings, StreamApi, Target as Endpoint, TurnItems, WatchApi,
};
use nexus_protocol::envelope::Call;
use nexus_protocol::turn::{Send as SendMessage, SendParams, SendResult};
use nexus_protocol::watch::{Watch, WatchParams};
use nexus_protocol::{Method, RpcError};
use serde_json::Value;

use crate::dispatcher::{ANSWER_BYTES_MAX, Caller, Dispatcher, Signer, Target};
use crate::outbox::{Peer, Taken, Takes};
use crate::transport::memory::{MemoryConnection, Notifications};

/// Calls the dispatcher as `requester`. `for_agent` gives the `AgentScopedApi` of one agent. A call goes on when its
/// future is dropped.
#[derive(Clone)]
pub struct DirectAgentApi {
    dispatcher: Arc<Dispatcher>,
    requester: Requester,
    door: Option<Door>,
}

impl DirectAgentApi {
    pub fn new(dispatcher: Arc<Dispatcher>, requester: Requester) -> Self {
        Self { dispatcher, requester, door: None }
    }

    /// The same for another protocol, as which its calls are logged and counted.
    pub fn through(self, door: Door) -> Self {
        Self { door: Some(door), ..self }
    }

    /// Sends a message to an agent, and tells its turn as it is made.
    pub fn send_stream(
        &self,
        agent_id: &str,
        params: SendParams,
    ) -> Result<DirectStream<StreamItem>, CallError> {
        let params = SendParams { stream: Some(true), ..params };
        self.open::<SendMessage, _>(Some(agent_id), &params, Takes::Bytes)
    }

    /// Watches agents: everything that happens to them.
    pub fn watch(&self, params: &WatchParams) -> Result<DirectStream<WatchItem>, CallError> {
        self.open::<Watch, _>(None, params, Takes::Values)
    }

    fn open<M: Method, T: Item>(
        &self,
        agent_id: Option<&str>,
        params: &M::Params,
        takes: Takes,
    ) -> Result<DirectStream<T>, CallError> {
        let unwritable = |error: serde_json::Error| CallError::Call(error.to_string());
        let mut params = serde_json::to_value(params).map_err(unwritable)?;
        if let (Some(agent_id), Value::Object(params)) = (agent_id, &mut params) {
            params.insert("agent_id".into(), agent_id.into());
        }
        let call = serde_json::to_vec(&Call::new(CALL, M::NAME, &params)).map_err(unwritable)?;
        let (connection, told) =
            MemoryConnection::taking(takes, self.dispatcher.clone(), self.requester.clone());
        let connection = connection.through(self.door);
        let answer = Box::pin(async move { connection.request(call).await });
        Ok(DirectStream {
            told,
            answer,
            last: None,
            raw: Vec::new(),
            kind: PhantomData,
            is_over: false,
        })
    }

    fn caller(&self, target: Target, peer: Option<Arc<Peer>>) -> Caller {
        Caller {
            requester: self.requester.clone(),
            hand: Hand::Program,
            signer: Signer::Process,
            target,
            peer,
            behalf: None,
            door: self.door,
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }
}

fn to_agent(name: &str) -> Result<Target, CallError> {
    let id = AgentId::parse(name)
        .map_err(|error| RpcError::invalid_param("/agent_id", error.to_string()))?;
    Ok(Target::Agent(id))
}

/// The one call of its connection.
const CALL: u64 = 1;

/// What a call tells, in order, up to its answer. Dropping it hangs up: a turn is cancelled, a watch ends.
pub struct DirectStream<T> {
    told: Notifications,
    /// Has the connection, which is closed with it.
    answer: Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>,
    /// The answer, while something is left that was told before it.
    last: Option<Vec<u8>>,
    raw: Vec<u8>,
    kind: PhantomData<T>,
    is_over: bool,
}

impl<T: Item> DirectStream<T> {
    /// The next item; `None` after the last one or an error. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Result<T, CallError>> {
        if self.is_over {
            return None;
        }
        let item = match self.taken().await {
            Some(Taken::Event(event)) => T::happened(event),
            Some(Taken::Message(message)) => {
                self.raw = message;
                T::read(&self.raw, CALL)
            }
            None => Err(CallError::Transport("there was no answer".into())),
        };
        self.is_over = item.as_ref().map_or(true, T::is_last);
        Some(item)
    }

    async fn taken(&mut self) -> Option<Taken> {
        if self.last.is_none() {
            tokio::select! {
                biased;
                Some(taken) = self.told.next() => return Some(taken),
                answer = &mut self.answer => self.last = Some(answer?),
            }
        }
        self.told.waiting().or_else(|| self.last.take().map(Taken::Message))
    }
}

impl DirectStream<StreamItem> {
    /// The message of the last item, as others would get it over a wire.
    pub fn raw(&self) -> &[u8] {
        &self.raw
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
            Endpoint::Agent(name) => to_agent(name)?,
        };
        Ok(self.dispatcher.call::<M>(self.caller(target, None), params).await?)
    }
}

impl WatchApi for DirectAgentApi {
    type Watch = DirectStream<WatchItem>;

    async fn send_held(&self, agent_id: &str, params: SendParams) -> Result<SendResult, CallError> {
        let params = SendParams { stream: Some(true), ..params };
        let load = self.dispatcher.freight().load(&self.requester);
        let peer = Arc::new(Peer::taking(Takes::Nothing, load));
        let _closed = peer.closed.clone().drop_guard();
        let caller = self.caller(to_agent(agent_id)?, Some(peer));
        Ok(self.dispatcher.call::<SendMessage>(caller, params).await?)
    }

    async fn watch(&self, params: WatchParams) -> Result<Self::Watch, CallError> {
        self.watch(&params)
    }
}

impl Happenings for DirectStream<WatchItem> {
    async fn next(&mut self) -> Option<Result<WatchItem, CallError>> {
        self.next().await
    }
}

impl StreamApi for DirectAgentApi {
    type Turn = DirectStream<StreamItem>;

    async fn send_stream(
        &self,
        agent_id: &str,
        params: SendParams,
    ) -> Result<Self::Turn, CallError> {
        self.send_stream(agent_id, params)
    }
}

impl TurnItems for DirectStream<StreamItem> {
    async fn next(&mut self) -> Option<Result<StreamItem, CallError>> {
        self.next().await
    }
}
