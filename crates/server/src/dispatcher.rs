//! The door every call comes through, and the one table of methods behind it.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foldhash::fast::RandomState;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, ready};
use nexus_core::lifecycle::AccessError;
use nexus_core::store::Door;
use nexus_core::{AgentId, Hand, Requester};
use nexus_protocol::envelope::{self, Incoming};
use nexus_protocol::error::{RATE_LIMITED, UNAVAILABLE};
use nexus_protocol::metrics::Metric;
use nexus_protocol::{Id, Kind, Method, Request, RpcError, Scope, schema};
use schemars::Schema;
use tracing::Instrument as _;

use crate::Services;
use crate::begin::{Begun, begin, guarded, worker_died};
use crate::behalf::Behalf;
use crate::calls::EndedCall;
use crate::cx::Cx;
use crate::errors::wire;
use crate::freight::{Freight, Load, SMALL_BYTES_MAX};
use crate::handlers::stored_door;
use crate::host::Host;
use crate::metrics::{self, MethodFigures};
use crate::once;
use crate::outbox::Peer;
use crate::signing::Refused;

/// Who calls, what they called, and how they can be reached while the call runs. Made by a transport.
#[derive(Clone)]
pub struct Caller {
    /// Whose rights the call has.
    pub requester: Requester,
    /// Whether a person at the terminal makes it.
    pub hand: Hand,
    /// Who signed it.
    pub signer: Signer,
    pub target: Target,
    /// `None` where notifications cannot travel.
    pub peer: Option<Arc<Peer>>,
    /// Whom its connection speaks for; `None` where each call stands alone.
    pub behalf: Option<Arc<Behalf>>,
    /// The other protocol that it came by, for the log and the figures.
    pub door: Option<Door>,
    /// Largest answer the connection can carry.
    pub answer_bytes_max: usize,
}

impl Caller {
    /// What its answer will weigh, still nothing.
    pub(crate) fn load(&self, freight: &Arc<Freight>) -> Load {
        match self.behalf.as_ref().and_then(|behalf| behalf.account()) {
            Some(account) => freight.load_of_guest(account.clone()),
            None => freight.load(&self.requester),
        }
    }
}

/// Who vouches for a call beside its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// It comes from this process, or by a pair of sockets from the one that started it: there is nobody in between.
    Process,
    Nobody,
    /// The key of this name; an empty one is the server's own.
    Key(Arc<str>),
}

/// Which endpoint was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Server,
    Agent(AgentId),
}

/// Largest answer where neither the configuration nor a frame says otherwise. A batch has it as a whole.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The answer to a message.
#[derive(Default)]
pub struct Reply {
    /// `None` when nothing is to be answered.
    pub body: Option<Vec<u8>>,
    pub class: Class,
    /// What the body weighs in the server as a whole. Goes when it is written.
    pub load: Option<Load>,
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
    /// It had to be signed.
    Unsigned,
    /// Its signature does not hold.
    Forged,
    RateLimited {
        retry_after_ms: u64,
    },
    Overloaded,
}

#[derive(Clone)]
pub struct Dispatcher {
    table: Arc<Table>,
    services: Arc<Services>,
    freight: Arc<Freight>,
}

/// The methods by name, found with a quick hash. Two of one name stop the program at start.
#[derive(Default)]
pub struct Table {
    entries: HashMap<&'static str, Entry, RandomState>,
    /// Calls of methods that are not in it.
    unknown: MethodFigures,
}

struct Entry {
    info: MethodInfo,
    /// Only the terminal that started this server has it; to others there is no such method.
    of_terminal: bool,
    run: Run,
    /// The handler as `TypedHandler<M>`, for callers in the same process.
    typed: Box<dyn Any + Send + Sync>,
    figures: MethodFigures,
}

/// Decodes, runs and encodes one call. Without an id the result is not encoded.
type Run =
    Box<dyn Fn(Cx, Option<&str>) -> BoxFuture<'static, Result<Vec<u8>, RpcError>> + Send + Sync>;

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

impl Table {
    /// Adds a method with its handler.
    pub fn on<M, F, Fut>(&mut self, handler: F)
    where
        M: Method,
        F: Fn(Cx, M::Params) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Result, RpcError>> + Send + 'static,
    {
        self.put::<M, F, Fut>(handler, false);
    }

    /// Adds a method that only the terminal has which started this server. It stands in no list.
    pub fn on_terminal<M, F, Fut>(&mut self, handler: F)
    where
        M: Method,
        F: Fn(Cx, M::Params) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Result, RpcError>> + Send + 'static,
    {
        self.put::<M, F, Fut>(handler, true);
    }

    fn put<M, F, Fut>(&mut self, handler: F, of_terminal: bool)
    where
        M: Method,
        F: Fn(Cx, M::Params) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Result, RpcError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let same = handler.clone();
        let typed: TypedHandler<M> = Arc::new(move |cx, params| {
            let Some(key) = M::once(&params).map(once::Key::from) else {
                let span = cx.span::<M>();
                return same(cx, params).instrument(span).boxed();
            };
            let same = same.clone();
            async move {
                let run = move |cx, params| same(cx, params);
                let result = once::answer::<M, _>(cx, params, key, run).await?;
                serde_json::from_str(result.get()).map_err(|error| {
                    tracing::error!(%error, "a result that was kept cannot be read");
                    RpcError::internal("The answer that was kept cannot be read")
                })
            }
            .boxed()
        });
        let run: Run = Box::new(move |mut cx, raw| match cx.decode::<M>(raw) {
            Err(error) => ready(Err(error)).boxed(),
            Ok(params) => {
                let id = cx.request_id.clone();
                if let Some(key) = M::once(&params).map(once::Key::from) {
                    let handler = handler.clone();
                    let run = move |cx, params| handler(cx, params);
                    let result = once::answer::<M, _>(cx, params, key, run);
                    return async move { encode(id.as_ref(), &result.await?) }.boxed();
                }
                let span = cx.span::<M>();
                let result = handler(cx, params).instrument(span);
                async move { encode(id.as_ref(), &result.await?) }.boxed()
            }
        });
        let info = MethodInfo {
            name: M::NAME,
            scope: M::SCOPE,
            kind: M::KIND,
            doc: M::DOC,
            params: schema::of::<M::Params>,
            result: schema::of::<M::Result>,
        };
        let figures = MethodFigures::default();
        let entry = Entry { info, of_terminal, run, typed: Box::new(typed), figures };
        assert!(self.entries.insert(M::NAME, entry).is_none(), "two methods named {}", M::NAME);
    }

    /// All methods that are everybody's, by name.
    pub fn infos(&self) -> Vec<MethodInfo> {
        let listed = self.entries.values().filter(|entry| !entry.of_terminal);
        let mut infos: Vec<_> = listed.map(|entry| entry.info.clone()).collect();
        infos.sort_by_key(|info| info.name);
        infos
    }
}

pub(crate) fn encode(id: Option<&Id>, result: &impl serde::Serialize) -> Result<Vec<u8>, RpcError> {
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
        let engine = Arc::downgrade(&services.engine);
        let account = move |id: &AgentId| engine.upgrade()?.agents.account_of(id);
        let freight = Arc::new(Freight::with_accounts(Box::new(account)));
        Self { table: Arc::new(table), services: Arc::new(services), freight }
    }

    /// The same for one connection. Its calls count themselves here: at one counter for all, connections on different
    /// cores would wait for each other.
    pub fn for_connection(&self) -> Arc<Self> {
        Arc::new(self.clone())
    }

    pub fn services(&self) -> &Services {
        &self.services
    }

    pub(crate) fn freight(&self) -> &Arc<Freight> {
        &self.freight
    }

    /// Carries out a message: at most one reply, whatever it holds.
    pub async fn handle(self: &Arc<Self>, caller: Caller, message: &[u8]) -> Reply {
        let incoming = match envelope::parse(message) {
            Ok(incoming) => incoming,
            Err(error) => {
                self.log(&caller, "", None, Instant::now(), Some(error.code));
                return Reply {
                    body: Some(error_body(None, &error)),
                    class: Class::Malformed,
                    load: None,
                };
            }
        };
        match incoming {
            Incoming::Single(request) => {
                let id = request.id.clone();
                let (body, class) = self.handle_one(&caller, Ok(request)).await;
                settle(&self.freight, &caller, id.as_ref(), body, class)
            }
            // On the heap: a single call would carry the room for it.
            Incoming::Batch(batch) => Box::pin(self.handle_batch(&caller, batch)).await,
        }
    }

    /// Carries out the calls of a batch side by side, but reads one after another: each is told how much room the others
    /// have left, and what has none is not run.
    async fn handle_batch(
        self: &Arc<Self>,
        caller: &Caller,
        batch: Vec<Result<Request<'_>, RpcError>>,
    ) -> Reply {
        let room = Room::new(caller.answer_bytes_max, caller.load(&self.freight));
        let reading = tokio::sync::Mutex::new(());
        let answers = batch.into_iter().map(async |element| {
            let id = element.as_ref().ok().and_then(|request| request.id.clone());
            let kind = element.as_ref().ok().and_then(|request| self.kind(&request.method));
            let reads = kind == Some(Kind::Read);
            let _alone = if reads { Some(reading.lock().await) } else { None };
            if id.is_some()
                && let Err(error) = room.check()
            {
                let method = element.as_ref().map_or("", |request| &*request.method);
                self.log(caller, method, id.as_ref(), Instant::now(), Some(error.code));
                return Some(error_body(id.as_ref(), &error));
            }
            if kind == Some(Kind::Watch) {
                let method = element.as_ref().map_or("", |request| &*request.method);
                let rule =
                    format!("{method} cannot stand in a batch: it would hold up its answers");
                let error = RpcError::invalid_request(rule);
                self.log(caller, method, id.as_ref(), Instant::now(), Some(error.code));
                return id.is_some().then(|| error_body(id.as_ref(), &error));
            }
            let caller = match reads {
                true => &Caller { answer_bytes_max: room.left(), ..caller.clone() },
                false => caller,
            };
            let body = self.handle_one(caller, element).await.0?;
            Some(room.take(body).unwrap_or_else(|error| error_body(id.as_ref(), &error)))
        });
        let bodies = join_all(answers).await;
        room.reply(bodies.into_iter().flatten().collect())
    }

    fn kind(&self, method: &str) -> Option<Kind> {
        self.table.entries.get(method).map(|entry| entry.info.kind)
    }

    async fn handle_one(
        self: &Arc<Self>,
        caller: &Caller,
        request: Result<Request<'_>, RpcError>,
    ) -> (Option<Vec<u8>>, Class) {
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.log(caller, "", None, Instant::now(), Some(error.code));
                return (Some(error_body(None, &error)), Class::Malformed);
            }
        };
        // On the heap, and only where it says so: most calls are of no other protocol.
        let through =
            request.door.map(|door| Caller { door: Some(stored_door(door)), ..caller.clone() });
        let through = through.map(Box::new);
        let caller = through.as_deref().unwrap_or(caller);
        let signed = match self.signed(caller, &request).await {
            Ok(signed) => signed,
            Err((error, class)) => {
                let id = request.id.as_ref();
                self.log(caller, &request.method, id, Instant::now(), Some(error.code));
                return match id {
                    Some(_) => (Some(error_body(id, &error)), class),
                    None => (None, Class::Answered),
                };
            }
        };
        let caller = signed.as_ref().unwrap_or(caller);
        let Request { id, method, params, .. } = request;
        let (result, class) =
            self.carry_out(caller, &method, id.clone(), |entry, cx| (entry.run)(cx, params)).await;
        let Some(id) = id else {
            // Whoever sent a notification is told nothing, not even that its agent does not exist.
            return (None, Class::Answered);
        };
        let body = result.unwrap_or_else(|error| error_body(Some(&id), &error));
        (Some(body), class)
    }

    /// Who calls after a look at the call's signature, where there is to be one.
    async fn signed(
        &self,
        caller: &Caller,
        request: &Request<'_>,
    ) -> Result<Option<Caller>, (RpcError, Class)> {
        let Services { signatures, engine, failures, .. } = &*self.services;
        if !signatures.concern(caller) {
            return Ok(None);
        }
        // On the heap: a call that is not signed would carry the room for it.
        let checked = Box::pin(signatures.check(engine, caller, request));
        checked.await.map_err(|refused| {
            let (error, class) = match refused {
                Refused::Otherwise(error) => {
                    let class = class_of(&error);
                    return (error, class);
                }
                Refused::Unsigned => (RpcError::signature_failed(), Class::Unsigned),
                Refused::Forged => (RpcError::signature_failed(), Class::Forged),
            };
            let error = failures.refusal(error);
            let class = if error.code == RATE_LIMITED { class_of(&error) } else { class };
            (error, class)
        })
    }

    /// Runs a method without bytes in between, for callers in the same process. As every call it goes on when nobody
    /// waits for it any more.
    pub async fn call<M: Method>(
        self: &Arc<Self>,
        caller: Caller,
        params: M::Params,
    ) -> Result<M::Result, RpcError> {
        let dispatcher = self.clone();
        let begun = begin(async move {
            let run = |entry: &Entry, cx| match entry.typed.downcast_ref::<TypedHandler<M>>() {
                Some(handler) => handler(cx, params),
                None => ready(Err(RpcError::method_not_found(M::NAME))).boxed(),
            };
            dispatcher.carry_out(&caller, M::NAME, None, run).await.0
        });
        match begun {
            Begun::Done(result) => result,
            Begun::Running(worker) => worker.await.unwrap_or_else(|_| Err(worker_died())),
        }
    }

    /// Carries out one call, whoever brought it: the agent of its endpoint, the table, the handler with the rights of
    /// its caller, a panic that becomes the call's error, one line in the log.
    async fn carry_out<T>(
        self: &Arc<Self>,
        caller: &Caller,
        method: &str,
        id: Option<Id>,
        run: impl FnOnce(&Entry, Cx) -> BoxFuture<'static, Result<T, RpcError>>,
    ) -> (Result<T, RpcError>, Class) {
        let start = Instant::now();
        let (result, class) = match self.turned_away(caller, method).await {
            Some((error, class)) => (Err(error), class),
            None => {
                let result = match self.entry(caller, method) {
                    None => Err(RpcError::method_not_found(method)),
                    Some(entry) => {
                        let cx = self.cx(caller, id.clone(), start);
                        guarded(method, async { run(entry, cx).await }).await
                    }
                };
                let class = result.as_ref().err().map(class_of).unwrap_or_default();
                (result, class)
            }
        };
        let error = result.as_ref().err().map(|error| error.code);
        self.log(caller, method, id.as_ref(), start, error);
        (result, class)
    }

    /// Why a call is not even looked up: its caller made too many, its socket does not lead there, or its endpoint is
    /// nobody's.
    async fn turned_away(&self, caller: &Caller, method: &str) -> Option<(RpcError, Class)> {
        let counted = self.services.rates.as_ref().map_or(Ok(()), |it| it.take(caller, method));
        if let Err(error) = counted {
            let class = class_of(&error);
            return Some((error, class));
        }
        if let Some(Err(error)) = caller.behalf.as_ref().map(|behalf| behalf.check(method)) {
            return Some((error, Class::Answered));
        }
        self.unknown_target(caller).await.map(|error| (error, Class::UnknownAgent))
    }

    /// The error for an agent endpoint whose agent does not exist.
    async fn unknown_target(&self, caller: &Caller) -> Option<RpcError> {
        let Target::Agent(id) = &caller.target else { return None };
        match self.services.engine.agents.knows(&caller.requester, id).await {
            Ok(true) => None,
            Ok(false) => Some(wire(AccessError::Unknown(id.clone()))),
            Err(error) => Some(wire(error)),
        }
    }

    /// The method of this name, where the caller's endpoint has it.
    fn entry(&self, caller: &Caller, method: &str) -> Option<&Entry> {
        let at_server = caller.target == Target::Server;
        let entry = self.table.entries.get(method)?;
        if entry.of_terminal && caller.hand != Hand::Person {
            return None;
        }
        (at_server || entry.info.scope == Scope::Agent).then_some(entry)
    }

    fn cx(self: &Arc<Self>, caller: &Caller, request_id: Option<Id>, started: Instant) -> Cx {
        let agent_id = match &caller.target {
            Target::Server => None,
            Target::Agent(id) => Some(id.clone()),
        };
        let caller = caller.clone();
        Cx { dispatcher: self.clone(), caller, agent_id, request_id, started, keyed: false }
    }

    fn log(
        &self,
        caller: &Caller,
        method: &str,
        id: Option<&Id>,
        start: Instant,
        error: Option<i32>,
    ) {
        let (door, ended) = (caller.door, Instant::now());
        let duration = ended - start;
        let entry = self.table.entries.get(method);
        let figures = entry.map_or(&self.table.unknown, |entry| &entry.figures);
        figures.of(door).note(duration, error);
        self.services.calls.call(&EndedCall { method, id, door, duration, ended, error });
    }

    /// All that was counted and measured.
    pub fn metrics(&self) -> Vec<Metric> {
        let Services { engine, figures, .. } = &*self.services;
        let infos = self.table.infos().into_iter();
        let calls =
            infos.filter_map(|info| Some((info.name, &self.table.entries.get(info.name)?.figures)));
        metrics::gather(engine, figures, calls, &self.table.unknown)
    }
}

impl Host for Dispatcher {
    async fn handle(self: &Arc<Self>, caller: Caller, message: &[u8]) -> Reply {
        let reply = Self::handle(self, caller, message).await;
        self.services.figures.carried(message.len(), reply.body.as_ref().map(Vec::len));
        reply
    }

    fn for_connection(self: &Arc<Self>) -> Arc<Self> {
        Self::for_connection(self)
    }

    fn freight(&self) -> &Arc<Freight> {
        &self.freight
    }
}

/// The bytes that the answers of one batch may still have. Taken as they come, so that what is too much is not kept
/// until the last of them is there.
pub(crate) struct Room {
    bytes_max: usize,
    state: Mutex<RoomState>,
}

struct RoomState {
    taken: usize,
    /// An answer did not fit: those that have not begun would not either.
    spent: bool,
    load: Load,
}

impl Room {
    pub fn new(bytes_max: usize, load: Load) -> Self {
        // The brackets are two bytes, and all answers but one need a comma.
        Self { bytes_max, state: Mutex::new(RoomState { taken: 1, spent: false, load }) }
    }

    /// Refuses a call that has not begun when there is no room for its answer.
    fn check(&self) -> Result<(), RpcError> {
        if !self.lock().spent {
            return Ok(());
        }
        let advice = &["Send it again in a batch of its own."];
        Err(RpcError::unavailable(self.overfull(), "This call was not run.", advice))
    }

    /// What an answer that is yet to come may have.
    fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.lock().taken + 1)
    }

    /// Takes the room of an answer and gives it back, if it fits.
    pub fn take(&self, body: Vec<u8>) -> Result<Vec<u8>, RpcError> {
        let mut state = self.lock();
        let taken = state.taken.saturating_add(body.len() + 1);
        if taken > self.bytes_max {
            state.spent = true;
            return Err(RpcError::internal(self.overfull()));
        }
        if let Err(full) = state.load.reach(taken) {
            state.spent = true;
            return Err(full.into());
        }
        state.taken = taken;
        Ok(body)
    }

    fn overfull(&self) -> String {
        format!("The answers of the batch are together larger than {} bytes", self.bytes_max)
    }

    /// The answers that were taken, as one.
    pub fn reply(self, bodies: Vec<Vec<u8>>) -> Reply {
        if bodies.is_empty() {
            return Reply::default();
        }
        let mut all =
            Vec::with_capacity(bodies.iter().map(|body| body.len() + 1).sum::<usize>() + 1);
        for body in bodies {
            all.push(if all.is_empty() { b'[' } else { b',' });
            all.extend_from_slice(&body);
        }
        all.push(b']');
        let load = self.state.into_inner().unwrap_or_else(PoisonError::into_inner).load;
        Reply { body: Some(all), class: Class::Answered, load: Some(load) }
    }

    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply to a single call, where the connection and the server have room for it.
pub(crate) fn settle(
    freight: &Arc<Freight>,
    caller: &Caller,
    id: Option<&Id>,
    body: Option<Vec<u8>>,
    class: Class,
) -> Reply {
    let bytes = body.as_ref().map_or(0, Vec::len);
    let refused = |error: RpcError| {
        let body = Some(error_body(id, &error));
        Reply { body, class: class_of(&error), load: None }
    };
    if bytes > caller.answer_bytes_max {
        let limit = caller.answer_bytes_max;
        return refused(RpcError::internal(format!("The answer is larger than {limit} bytes")));
    }
    // What is not counted does not touch what all connections share.
    if bytes <= SMALL_BYTES_MAX {
        return Reply { body, class, load: None };
    }
    let mut load = caller.load(freight);
    match load.reach(bytes) {
        Ok(()) => Reply { body, class, load: Some(load) },
        Err(full) => refused(full.into()),
    }
}

pub(crate) fn error_body(id: Option<&Id>, error: &RpcError) -> Vec<u8> {
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
