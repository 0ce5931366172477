//! The door every call comes through, and the one table of methods behind it.

use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use nexus_core::authority::Action;
use nexus_core::engine::AccessError;
use nexus_core::{Agent, AgentId, Requester};
use nexus_protocol::envelope::{self, Incoming};
use nexus_protocol::error::{RATE_LIMITED, UNAVAILABLE};
use nexus_protocol::{Id, Kind, Method, Request, RpcError, Scope, params, plain};
use schemars::Schema;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Services;
use crate::calls::Call;
use crate::errors::wire;

/// The way back to a peer while its call runs.
pub struct Peer {
    /// Takes notifications. Bounded: see `transport`.
    pub outbox: mpsc::Sender<Vec<u8>>,
    /// Cancelled when the peer is gone.
    pub closed: CancellationToken,
}

/// Who calls, what they called, and how they can be reached while the call runs. Made by a transport.
#[derive(Clone)]
pub struct Caller {
    pub requester: Requester,
    pub target: Target,
    /// `None` where notifications cannot travel.
    pub peer: Option<Arc<Peer>>,
    /// Largest answer the connection can carry.
    pub answer_bytes_max: usize,
}

/// Which endpoint was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Server,
    Agent(AgentId),
}

/// The answer to a message.
#[derive(Debug, Default)]
pub struct Reply {
    /// `None` when nothing is to be answered.
    pub body: Option<Vec<u8>>,
    pub class: Class,
}

/// What kind of answer it is, for transports that have their own words for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Methods ran, well or not.
    #[default]
    Answered,
    /// The message was no JSON-RPC.
    Malformed,
    /// The endpoint's agent does not exist.
    UnknownAgent,
    RateLimited {
        retry_after_ms: u64,
    },
    Overloaded,
}

#[derive(Clone)]
pub struct Dispatcher {
    table: Arc<Table>,
    services: Arc<Services>,
}

/// The methods by name, found with a quick hash. Two of one name stop the program at start.
#[derive(Default)]
pub struct Table {
    entries: HashMap<&'static str, Entry, RandomState>,
}

struct Entry {
    info: MethodInfo,
    run: Run,
    /// The handler as `TypedHandler<M>`, for callers in the same process.
    typed: Box<dyn Any + Send + Sync>,
}

/// Decodes, runs and encodes one call. Without an id the result is not encoded.
type Run = Box<
    dyn Fn(Cx, Option<&str>, Option<Id>) -> BoxFuture<'static, Result<Vec<u8>, RpcError>>
        + Send
        + Sync,
>;

type TypedHandler<M> = Arc<
    dyn Fn(Cx, <M as Method>::Params) -> BoxFuture<'static, Result<<M as Method>::Result, RpcError>>
        + Send
        + Sync,
>;

/// What the documents say of a method.
#[derive(Clone)]
pub struct MethodInfo {
    pub name: &'static str,
    pub scope: Scope,
    pub kind: Kind,
    pub doc: &'static str,
    pub params: fn() -> Schema,
    pub result: fn() -> Schema,
}

/// What a handler knows of its call.
pub struct Cx {
    dispatcher: Arc<Dispatcher>,
    pub caller: Caller,
    /// The agent the call is for, where one was named.
    pub agent_id: Option<AgentId>,
    pub request_id: Option<Id>,
}

impl Cx {
    pub fn services(&self) -> &Services {
        &self.dispatcher.services
    }

    /// The agent this call is for, if the caller may do `action` to it.
    pub async fn agent(&self, action: Action) -> Result<Arc<Agent>, RpcError> {
        let (engine, requester) = (&self.services().engine, &self.caller.requester);
        match &self.agent_id {
            Some(id) => engine.agent(requester, id, action).await.map_err(wire),
            // On the heap: every call would carry the room for it.
            None => Box::pin(engine.default_agent(requester, action)).await.map_err(wire),
        }
    }
}

impl Table {
    /// Adds a method with its handler.
    pub fn on<M, F, Fut>(&mut self, handler: F)
    where
        M: Method,
        F: Fn(Cx, M::Params) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Result, RpcError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let same = handler.clone();
        let typed: TypedHandler<M> = Arc::new(move |cx, params| same(cx, params).boxed());
        let run: Run = Box::new(move |cx, raw, id| match params::decode::<M::Params>(raw) {
            Err(error) => futures_util::future::ready(Err(error)).boxed(),
            Ok(params) => {
                let result = handler(cx, params);
                async move { encode(id.as_ref(), &result.await?) }.boxed()
            }
        });
        let info = MethodInfo {
            name: M::NAME,
            scope: M::SCOPE,
            kind: M::KIND,
            doc: M::DOC,
            params: || schemars::schema_for!(M::Params),
            result: || schemars::schema_for!(M::Result),
        };
        let entry = Entry { info, run, typed: Box::new(typed) };
        assert!(self.entries.insert(M::NAME, entry).is_none(), "two methods named {}", M::NAME);
    }
    /// All methods, by name.
    pub fn infos(&self) -> Vec<MethodInfo> {
        let mut infos: Vec<_> = self.entries.values().map(|entry| entry.info.clone()).collect();
        infos.sort_by_key(|info| info.name);
        infos
    }
}

fn encode(id: Option<&Id>, result: &impl serde::Serialize) -> Result<Vec<u8>, RpcError> {
    let mut out = Vec::with_capacity(256);
    if let Some(id) = id {
        envelope::write_result(&mut out, id, result).map_err(|error| {
            tracing::error!(%error, "a result could not be encoded");
            RpcError::internal("The result could not be encoded")
        })?;
    }
    Ok(out)
}

impl Dispatcher {
    pub fn new(table: Table, services: Services) -> Self {
        Self { table: Arc::new(table), services: Arc::new(services) }
    }

    /// The same for one connection. Its calls count themselves here: at one counter for all, connections on different
    /// cores would wait for each other.
    pub fn for_connection(&self) -> Arc<Self> {
        Arc::new(self.clone())
    }

    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Carries out a message: at most one reply, whatever it holds.
    pub async fn handle(self: &Arc<Self>, caller: Caller, message: &[u8]) -> Reply {
        let incoming = match envelope::parse(message) {
            Ok(incoming) => incoming,
            Err(error) => {
                self.log("", None, Instant::now(), Some(error.code));
                return Reply { body: Some(error_body(None, &error)), class: Class::Malformed };
            }
        };
        match incoming {
            Incoming::Single(request) => {
                let (body, class) = self.handle_one(&caller, Ok(request)).await;
                Reply { body, class }
            }
            // On the heap: a single call would carry the room for it.
            Incoming::Batch(batch) => Box::pin(self.handle_batch(&caller, batch)).await,
        }
    }

    async fn handle_batch(
        self: &Arc<Self>,
        caller: &Caller,
        batch: Vec<Result<Request<'_>, RpcError>>,
    ) -> Reply {
        let answers = batch.into_iter().map(|element| self.handle_one(caller, element));
        let bodies: Vec<_> =
            join_all(answers).await.into_iter().filter_map(|(body, _)| body).collect();
        let body =
            (!bodies.is_empty()).then(|| [b"[", bodies.join(&b","[..]).as_slice(), b"]"].concat());
        Reply { body, class: Class::Answered }
    }

    async fn handle_one(
        self: &Arc<Self>,
        caller: &Caller,
        request: Result<Request<'_>, RpcError>,
    ) -> (Option<Vec<u8>>, Class) {
        let start = Instant::now();
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.log("", None, start, Some(error.code));
                return (Some(error_body(None, &error)), Class::Malformed);
            }
        };
        let id = request.id.clone();
        let (result, class) = match self.unknown_target(caller).await {
            Some(error) => (Err(error), Class::UnknownAgent),
            None => {
                let result = self.run(caller, &request).await;
                let class = result.as_ref().err().map(class_of).unwrap_or_default();
                (result, class)
            }
        };
        let code = result.as_ref().err().map(|error| error.code);
        self.log(&request.method, id.as_ref(), start, code);
        let Some(id) = id else {
            // Whoever sent a notification is told nothing, not even that its agent does not exist.
            return (None, Class::Answered);
        };
        let body = match result {
            Ok(body) if body.len() > caller.answer_bytes_max => {
                let limit = caller.answer_bytes_max;
                let error = RpcError::internal(format!("The answer is larger than {limit} bytes"));
                error_body(Some(&id), &error)
            }
            Ok(body) => body,
            Err(error) => error_body(Some(&id), &error),
        };
        (Some(body), class)
    }

    /// The error for an agent endpoint whose agent does not exist.
    async fn unknown_target(&self, caller: &Caller) -> Option<RpcError> {
        let Target::Agent(id) = &caller.target else { return None };
        let known = self.services.engine.knows(&caller.requester, id).await;
        (!known).then(|| wire(AccessError::Unknown(id.clone())))
    }

    async fn run(
        self: &Arc<Self>,
        caller: &Caller,
        request: &Request<'_>,
    ) -> Result<Vec<u8>, RpcError> {
        let at_server = caller.target == Target::Server;
        let entry = self.table.entries.get(&*request.method);
        let entry = entry
            .filter(|entry| at_server || entry.info.scope == Scope::Agent)
            .ok_or_else(|| RpcError::method_not_found(&request.method))?;
        let (agent_id, params) = match &caller.target {
            Target::Server if entry.info.scope == Scope::Agent => take_agent_id(request.params)?,
            Target::Server => (None, request.params.map(Cow::Borrowed)),
            Target::Agent(id) => (Some(id.clone()), request.params.map(Cow::Borrowed)),
        };
        let cx = Cx {
            dispatcher: self.clone(),
            caller: caller.clone(),
            agent_id,
            request_id: request.id.clone(),
        };
        let run = (entry.run)(cx, params.as_deref(), request.id.clone());
        AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(method = &*request.method, "a handler panicked");
            Err(RpcError::internal("The server failed inside this call"))
        })
    }

    fn log(&self, method: &str, id: Option<&Id>, start: Instant, error: Option<i32>) {
        let ended = Instant::now();
        self.services.calls.call(&Call { method, id, duration: ended - start, ended, error });
    }

    /// Runs a method without bytes in between, for callers in the same process.
    pub async fn call<M: Method>(
        self: &Arc<Self>,
        caller: Caller,
        agent_id: Option<AgentId>,
        params: M::Params,
    ) -> Result<M::Result, RpcError> {
        let typed = self
            .table
            .entries
            .get(M::NAME)
            .and_then(|entry| entry.typed.downcast_ref::<TypedHandler<M>>());
        let handler = typed.ok_or_else(|| RpcError::method_not_found(M::NAME))?;
        handler(Cx { dispatcher: self.clone(), caller, agent_id, request_id: None }, params).await
    }
}

/// Takes `agent_id` out of the parameters of an agent method called at server scope: it is part of the address, not of
/// the method. Returns it with the parameters that are left.
fn take_agent_id(params: Option<&str>) -> Result<(Option<AgentId>, Params<'_>), RpcError> {
    let whole = params.map(Cow::Borrowed);
    let refused = |why: String| RpcError::invalid_param("/agent_id", why);
    let parse = |name: &str| AgentId::parse(name).map_err(|error| refused(error.to_string()));
    if let Some(name) = params.and_then(only_agent_id) {
        return Ok((Some(parse(name)?), None));
    }
    // A substring is enough to decide: whatever is not found here is refused later as an unknown parameter.
    let Some(text) = params.filter(|text| text.contains("\"agent_id\"")) else {
        return Ok((None, whole));
    };
    let Ok(mut members) = serde_json::from_str::<Members>(text) else { return Ok((None, whole)) };
    let Some(raw) = members.remove("agent_id") else { return Ok((None, whole)) };
    let id = match serde_json::from_str::<Option<String>>(raw.get()) {
        Ok(name) => name.as_deref().map(parse).transpose()?,
        Err(_) => return Err(refused("agent_id must be string".into())),
    };
    if members.is_empty() {
        return Ok((id, None));
    }
    let rest = serde_json::to_string(&members)
        .map_err(|error| RpcError::invalid_params(format!("Invalid params: {error}")))?;
    Ok((id, Some(Cow::Owned(rest))))
}

/// The agent's name in parameters that hold nothing else, as those of most small calls.
fn only_agent_id(params: &str) -> Option<&str> {
    let mut found = None;
    plain::members(params, |name, value| match name {
        "agent_id" => found.replace(plain::string(value)?).is_none().then_some(()),
        _ => None,
    })?;
    found
}

/// The parameters of a call, still text.
type Params<'a> = Option<Cow<'a, str>>;

/// Parameters by name, each still text.
type Members<'a> = BTreeMap<String, &'a RawValue>;

fn error_body(id: Option<&Id>, error: &RpcError) -> Vec<u8> {
    let mut out = Vec::new();
    envelope::write_error(&mut out, id, error);
    out
}

fn class_of(error: &RpcError) -> Class {
    match (error.code, error.retry_after_ms()) {
        (RATE_LIMITED, retry) => Class::RateLimited { retry_after_ms: retry.unwrap_or_default() },
        (UNAVAILABLE, Some(_)) => Class::Overloaded,
        _ => Class::Answered,
    }
}
