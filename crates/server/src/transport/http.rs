//! HTTP on loopback: `POST /` and `/rpc` for the server, `POST /agent/{id}` for one agent.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nexus_core::keys::DOOR_PREFIX;
use nexus_core::store::Door as DoorKind;
use nexus_core::{AgentId, Hand, Requester};
use nexus_json::{MESSAGE_VALUES_MAX, VALUE_BYTES};
use nexus_protocol::RpcError;
use nexus_protocol::envelope::too_many_values;
use nexus_protocol::error::RATE_LIMITED;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::courtesy::{Courtesy, refusal};
use super::door::{Door, Visit, Visitor};
use super::gzip::{GZIP_BYTES_MIN, deflate, inflate, off_thread, packed};
use super::listeners::Listeners;
use super::patience::Patience;
use super::places::{Busy, Guest, Place, Places};
use super::sse::{Events, Phase};
use super::unix::FRAME_BYTES_MAX;
use super::ws::{self, Upgrade};
use super::{begin, error_message, finished, laden, reply, too_large, too_many_connections};
use crate::auth::{self, Auth, AuthError};
use crate::begin::Begun;
use crate::dispatcher::{Caller, Class, Dispatcher, Reply, Signer, Target};
use crate::errors::wire;
use crate::freight::{Load, SMALL_BYTES_MAX};
use crate::outbox::Peer;
use crate::signing::Mode;

/// What one request may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// After decompression.
    pub body_bytes_max: usize,
    /// Before compression.
    pub answer_bytes_max: usize,
    pub header_bytes_max: usize,
    pub header_count_max: usize,
    /// To deliver a request, headers and body.
    pub read_timeout: Duration,
    pub connections_max: usize,
}

/// A bound port, not yet served.
pub struct HttpServer {
    listeners: Listeners,
    context: Context,
}

/// What a connection works with.
struct Context {
    dispatcher: Arc<Dispatcher>,
    auth: Arc<Auth>,
    limits: Limits,
    doors: Arc<[Arc<dyn Door>]>,
    websocket: bool,
}

impl Context {
    fn for_connection(&self) -> Self {
        Self {
            dispatcher: self.dispatcher.for_connection(),
            auth: self.auth.clone(),
            limits: self.limits,
            doors: self.doors.clone(),
            websocket: self.websocket,
        }
    }

    fn door(&self, path: &str) -> Option<&Arc<dyn Door>> {
        self.doors.iter().find(|door| door.has(path))
    }
}

type Body = Either<Full<Bytes>, Either<Events, Visit>>;

impl HttpServer {
    pub fn new(
        listeners: Listeners,
        dispatcher: Arc<Dispatcher>,
        auth: Auth,
        limits: Limits,
        doors: Vec<Arc<dyn Door>>,
    ) -> Self {
        let (auth, doors) = (Arc::new(auth), doors.into());
        let context = Context { dispatcher, auth, limits, doors, websocket: false };
        Self { listeners, context }
    }

    /// Whether the methods are also called over WebSockets.
    pub fn with_websocket(mut self, websocket: bool) -> Self {
        self.context.websocket = websocket;
        self
    }

    /// Serves until `stop`, then lets running calls finish and closes idle connections.
    pub async fn run(self, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let places = Places::new(self.context.limits.connections_max);
        while let Some(stream) = self.listeners.next(&places, &stop).await {
            let _ = stream.set_nodelay(true);
            let (context, stop) = (Arc::new(self.context.for_connection()), stop.clone());
            match places.take(&stop).await {
                Some(place) => connections.spawn(serve(context, stream, Arc::new(place), stop)),
                None => connections.spawn(turn_away(stream)),
            };
        }
        drop(self.listeners);
        connections.close();
        connections.wait().await;
    }
}

async fn serve(
    context: Arc<Context>,
    stream: TcpStream,
    place: Arc<Place>,
    stop: CancellationToken,
) {
    let limits = context.limits;
    let patience = Patience::new(limits.read_timeout);
    let stream = Courtesy::new(stream, patience.clone());
    let client = Arc::new(Client {
        clock: patience.clone(),
        place: place.clone(),
        upgrade: Mutex::default(),
    });
    let (peer, dispatcher) = (client.clone(), context.dispatcher.clone());
    let service = service_fn(move |request| {
        let (context, client) = (context.clone(), client.clone());
        async move { Ok::<_, Infallible>(answer(&context, &client, request).await) }
    });
    // hyper's own limits stand a little above ours, so that ours answer with JSON-RPC.
    let connection = http1::Builder::new()
        .timer(patience.clone())
        .header_read_timeout(limits.read_timeout)
        .max_headers(limits.header_count_max * 2)
        .max_buf_size((limits.header_bytes_max * 2).max(64 * 1024))
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let end = place.end();
    let served = async {
        tokio::select! {
            biased;
            ended = &mut connection => ended,
            // Another has the place: a stranger is not told why.
            () = end.cancelled() => {
                if !stop.is_cancelled() && !place.is_heard() {
                    return Ok(());
                }
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    let ended = tokio::select! {
        biased;
        ended = served => ended,
        () = patience.ticks() => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
        return;
    }
    let upgrade = peer.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(upgrade) = upgrade
        && let Err(error) = ws::serve(dispatcher, upgrade, &end, &stop).await
    {
        tracing::debug!(%error, "a WebSocket ended badly");
    }
}

/// Tells one connection too many that it is one too many.
async fn turn_away(mut stream: TcpStream) {
    let refusal = refusal((503, "Service Unavailable"), &too_many_connections());
    let _ = stream.write_all(&refusal).await;
    let _ = stream.shutdown().await;
}

/// The other end of a connection.
struct Client {
    /// Runs since the first byte of its request.
    clock: Patience,
    place: Arc<Place>,
    /// What its connection becomes, once it is asked to be something else.
    upgrade: Mutex<Option<Upgrade>>,
}

async fn answer(context: &Context, client: &Client, request: Request<Incoming>) -> Response<Body> {
    client.clock.headers_read();
    let (mut head, mut body) = request.into_parts();
    if context.websocket && head.uri.path() == ws::PATH {
        let upgraded = Box::pin(upgrade(context, client, &mut head)).await;
        return upgraded.unwrap_or_else(Into::into);
    }
    let door = context.door(head.uri.path());
    let answered = match door {
        Some(door) => Box::pin(visit(context, client, door, &head, &mut body)).await,
        None => call(context, client, &head, &mut body).await,
    };
    let refusal = match answered {
        Ok(response) => return response,
        Err(refusal) => refusal,
    };
    // A client that waits for leave to send, or that is too slow, is not listened to any longer.
    let sending = !body.is_end_stream() && !head.headers.contains_key(header::EXPECT);
    if sending && refusal.status != StatusCode::REQUEST_TIMEOUT {
        tokio::spawn(tokio::time::timeout_at(client.clock.end().into(), discard(body)));
    }
    let own = door.and_then(|door| door.refuse(refusal.status, &refusal.error));
    let mut response = Response::from(refusal);
    if let Some((status, body)) = own {
        *response.status_mut() = status;
        *response.body_mut() = Either::Left(Full::new(body));
    }
    response
}

async fn call(
    context: &Context,
    client: &Client,
    head: &request::Parts,
    body: &mut Incoming,
) -> Result<Response<Body>, Rejection> {
    let prepared = prepare(context, head).await?;
    introduce(context, client, &prepared.caller.requester)?;
    let Prepared { caller, coding, .. } = &prepared;
    let bytes_max = context.limits.body_bytes_max;
    let reading = Reading { requester: &caller.requester, coding: *coding, bytes_max };
    let (message, load) = read(context, &reading, body, &client.clock).await?;
    let message = laden(message, load);
    Ok(carry_out(context, prepared, message, client.place.busy()).await)
}

/// Notes who has a connection, if who it is may have one more.
fn introduce(context: &Context, client: &Client, requester: &Requester) -> Result<(), Rejection> {
    let id = match requester {
        Requester::Administrator => {
            client.place.introduce_administrator();
            return Ok(());
        }
        Requester::Agent(id) => id,
    };
    let agents = &context.dispatcher.services().engine.agents;
    let guest = || match agents.account_of(id) {
        Some(account) => Guest::Tree(account.number()),
        None => Guest::Agent(id.clone()),
    };
    client
        .place
        .introduce_agent(guest)
        .map_err(|_| refuse(StatusCode::SERVICE_UNAVAILABLE, too_many_connections()))
}

/// Lets a caller speak the methods over a WebSocket. The rules of this port hold there too.
async fn upgrade(
    context: &Context,
    client: &Client,
    head: &mut request::Parts,
) -> Result<Response<Body>, Rejection> {
    check_size(&head.headers, &context.limits)?;
    check_origin(&head.headers)?;
    let visitor = admit_visitor(context, &head.headers, DoorKind::WebSocket).await?;
    let accept = ws::accepted(&head.method, &head.headers)?;
    let on = head.extensions.remove::<OnUpgrade>().ok_or_else(|| {
        refuse(StatusCode::BAD_REQUEST, RpcError::invalid_request("this cannot be upgraded"))
    })?;
    introduce(context, client, &visitor.requester)?;
    let message_bytes_max = match visitor.requester {
        Requester::Administrator => FRAME_BYTES_MAX,
        // No more than by any other way.
        Requester::Agent(_) => FRAME_BYTES_MAX.min(context.limits.body_bytes_max),
    };
    let upgrade = Upgrade { on, visitor, place: client.place.clone(), message_bytes_max };
    *client.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// Lets a caller through to another protocol. The rules of this port hold there too.
async fn visit(
    context: &Context,
    client: &Client,
    door: &Arc<dyn Door>,
    head: &request::Parts,
    body: &mut Incoming,
) -> Result<Response<Body>, Rejection> {
    check_size(&head.headers, &context.limits)?;
    if door.kind() != DoorKind::Mcp || !is_own_origin(&head.headers) {
        check_origin(&head.headers)?;
    }
    let visitor = admit_visitor(context, &head.headers, door.kind()).await?;
    introduce(context, client, &visitor.requester)?;
    let bytes_max = door.body_bytes_max();
    let reading =
        Reading { requester: &visitor.requester, coding: coding(&head.headers)?, bytes_max };
    let (message, load) = read(context, &reading, body, &client.clock).await?;
    let load = weighed(context, &reading, &message, load).await?;
    let busy = client.place.busy();
    let mut request = Request::from_parts(head.clone(), message);
    request.headers_mut().remove(header::CONTENT_ENCODING);
    let over = visitor.key.clone().map(|key| over(context.dispatcher.clone(), door.kind(), key));
    let takes_gzip = mentions(&head.headers, &header::ACCEPT_ENCODING, "gzip");
    let response = door.answer(visitor, request).await;
    let response = packed(response, takes_gzip).await;
    // What was asked lives on in what streams, waiting for a model for instance.
    Ok(response.map(|body| Either::Right(Either::Right(Visit::new(body, over, busy, load)))))
}

/// How long a door may still say that a key, and all that came with it, has ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// Returns when there is nothing more to be said to whoever came with a key.
fn over(dispatcher: Arc<Dispatcher>, door: DoorKind, key: String) -> BoxFuture<'static, ()> {
    async move {
        dispatcher.services().key_ended(door, Some(&key)).await;
        tokio::time::sleep(FAREWELL).await;
    }
    .boxed()
}

/// Reads on behind a refusal. Clients that send everything before they read would see a broken connection instead.
async fn discard(mut body: Incoming) {
    let mut bytes = 0;
    while bytes < DISCARD_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// What is read of a body that was refused. Larger ones are no mistake of a client's.
const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the head of a request says.
struct Prepared {
    caller: Caller,
    coding: Coding,
    wants_events: bool,
    takes_gzip: bool,
}

/// How a body is read.
struct Reading<'a> {
    requester: &'a Requester,
    coding: Coding,
    bytes_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
}

/// An answer that comes before any method runs.
pub(super) struct Rejection {
    pub status: StatusCode,
    pub error: RpcError,
}

pub(super) fn refuse(status: StatusCode, error: RpcError) -> Rejection {
    Rejection { status, error }
}

async fn prepare(context: &Context, request: &request::Parts) -> Result<Prepared, Rejection> {
    let invalid = RpcError::invalid_request;
    let target = route(request.uri.path())?;
    if request.method != Method::POST {
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, invalid("only POST is served here")));
    }
    let headers = &request.headers;
    check_size(headers, &context.limits)?;
    check_origin(headers)?;
    let requester = admit(context, headers).await?;
    let coding = coding(headers)?;
    Ok(Prepared {
        caller: Caller {
            requester,
            hand: Hand::Program,
            signer: Signer::Nobody,
            target,
            peer: None,
            behalf: None,
            door: None,
            answer_bytes_max: context.limits.answer_bytes_max,
        },
        coding,
        wants_events: mentions(headers, &header::ACCEPT, "text/event-stream"),
        takes_gzip: mentions(headers, &header::ACCEPT_ENCODING, "gzip"),
    })
}

/// Who calls, by the token.
async fn admit(context: &Context, headers: &HeaderMap) -> Result<Requester, Rejection> {
    let header = |name: &HeaderName| headers.get(name).map(HeaderValue::as_bytes);
    let identified =
        context.auth.identify(header(&header::AUTHORIZATION), header(&X_NEXUS_AGENT)).await;
    identified.map_err(|error| not_let_in(context, error))
}

/// Who comes to a door, by the token or by a key.
async fn admit_visitor(
    context: &Context,
    headers: &HeaderMap,
    door: DoorKind,
) -> Result<Visitor, Rejection> {
    let shown = headers.get(header::AUTHORIZATION).and_then(|it| auth::bearer(it.as_bytes()));
    let key = shown.and_then(|it| str::from_utf8(it).ok()).filter(|it| it.starts_with(DOOR_PREFIX));
    let services = context.dispatcher.services();
    let Some(secret) = key else {
        let requester = admit(context, headers).await?;
        // What a door carries cannot be signed, but for the methods themselves.
        if door != DoorKind::WebSocket && services.signatures.mode() == Mode::Required {
            let details = format!(
                "calls have to be signed here, and at this door they cannot be: it takes keys for it (nexus3 key create \
                 NAME --door {})",
                door.name()
            );
            return Err(refuse(StatusCode::FORBIDDEN, RpcError::not_of_key(details)));
        }
        return Ok(Visitor { requester, key: None });
    };
    let key = services.signatures.keys.door(&services.engine, door, secret).await;
    let key = key.map_err(|error| refuse(StatusCode::SERVICE_UNAVAILABLE, wire(error)))?;
    let key = key.ok_or_else(|| not_let_in(context, AuthError::Wrong))?;
    Ok(Visitor { requester: Requester::Agent(key.agent.clone()), key: Some(key.name.clone()) })
}

fn not_let_in(context: &Context, error: AuthError) -> Rejection {
    let refusal = context.auth.refusal();
    let status = match error {
        _ if refusal.code == RATE_LIMITED => StatusCode::TOO_MANY_REQUESTS,
        AuthError::Missing => StatusCode::UNAUTHORIZED,
        AuthError::Wrong => StatusCode::FORBIDDEN,
    };
    refuse(status, refusal)
}

fn coding(headers: &HeaderMap) -> Result<Coding, Rejection> {
    let coding = headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    match coding.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"identity" | b"") => Ok(Coding::Identity),
        Some(b"gzip" | b"x-gzip") => Ok(Coding::Gzip),
        Some(_) => Err(refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            RpcError::invalid_request("content coding must be gzip or identity"),
        )),
    }
}

static X_NEXUS_AGENT: HeaderName = HeaderName::from_static("x-nexus-agent");

fn route(path: &str) -> Result<Target, Rejection> {
    let unknown = |error| refuse(StatusCode::NOT_FOUND, error);
    match path.strip_prefix("/agent/") {
        Some(name) => match AgentId::parse(name) {
            Ok(id) => Ok(Target::Agent(id)),
            Err(error) => Err(unknown(RpcError::invalid_param("/agent_id", error.to_string()))),
        },
        None if path == "/" || path == "/rpc" => Ok(Target::Server),
        None => Err(unknown(RpcError::invalid_request("POST to /, /rpc or /agent/{agent_id}"))),
    }
}

fn check_size(headers: &HeaderMap, limits: &Limits) -> Result<(), Rejection> {
    let too_much = |what: String| {
        Err(refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, RpcError::invalid_request(what)))
    };
    if headers.len() > limits.header_count_max {
        return too_much(format!("more than {} headers", limits.header_count_max));
    }
    // The separators of a header line are four bytes: `: ` and the line end.
    let bytes: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if bytes > limits.header_bytes_max {
        return too_much(format!("headers are larger than {} bytes", limits.header_bytes_max));
    }
    Ok(())
}

/// A web page must not reach this server: browsers send `Origin`, and a rebound name shows in `Host`.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Rejection> {
    let forbidden = |why| Err(refuse(StatusCode::FORBIDDEN, RpcError::invalid_request(why)));
    if headers.contains_key(header::ORIGIN) {
        return forbidden(
            "requests with an Origin header are refused: web pages may not call this server",
        );
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_loopback_host(host) {
        Ok(())
    } else {
        forbidden("the Host header must name a loopback address")
    }
}

/// Whether a request says that it comes from a page of this server itself. There are none; MCP's own test of this rule
/// sends it all the same.
fn is_own_origin(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    match (text(header::ORIGIN), text(header::HOST)) {
        (Some(origin), Some(host)) => {
            is_loopback_host(host) && origin.strip_prefix("http://") == Some(host)
        }
        _ => false,
    }
}

fn is_loopback_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port))
            if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            name
        }
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn mentions(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| {
        value.split(',').any(|part| {
            let (kind, parameters) = part.split_once(';').unwrap_or((part, ""));
            let quality = parameters
                .split_once("q=")
                .and_then(|(_, quality)| quality.trim().parse::<f32>().ok());
            kind.trim().eq_ignore_ascii_case(wanted) && quality.unwrap_or(1.0) > 0.0
        })
    })
}

/// Reads the body within its limits. The limit holds while inflating, so a bomb is never unpacked. The clock has run
/// since the first byte of the headers.
async fn read(
    context: &Context,
    reading: &Reading<'_>,
    body: &mut Incoming,
    clock: &Patience,
) -> Result<(Bytes, Option<Load>), Rejection> {
    let bytes_max = reading.bytes_max;
    let too_large = || refuse(StatusCode::PAYLOAD_TOO_LARGE, too_large(bytes_max));
    let invalid = |why: &str| refuse(StatusCode::BAD_REQUEST, RpcError::invalid_request(why));
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let load = load(context, reading, body)?;
    let mut collecting = std::pin::pin!(Limited::new(body, bytes_max).collect());
    // Most bodies came with their headers: those need no timer.
    let collected = match collecting.as_mut().now_or_never() {
        Some(collected) => Ok(collected),
        None => tokio::time::timeout_at(clock.end().into(), collecting).await,
    };
    let packed = match collected {
        Err(_) => {
            return Err(refuse(
                StatusCode::REQUEST_TIMEOUT,
                RpcError::invalid_request("the request took too long"),
            ));
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(_)) => return Err(invalid("the body could not be read")),
        Ok(Ok(body)) => body.to_bytes(),
    };
    if reading.coding == Coding::Identity {
        return Ok((packed, load));
    }
    match off_thread(packed.len(), move || inflate(&packed, bytes_max)).await {
        Ok(Some(message)) => Ok((message.into(), load)),
        Ok(None) => Err(too_large()),
        Err(_) => Err(invalid("the body is not valid gzip")),
    }
}

/// What a body that is about to be read will be, in the server as a whole. Its length may not be known before it is there.
fn load(
    context: &Context,
    reading: &Reading<'_>,
    body: &Incoming,
) -> Result<Option<Load>, Rejection> {
    let exact = body.size_hint().exact().filter(|_| reading.coding == Coding::Identity);
    let bytes = exact.map_or(reading.bytes_max, |bytes| bytes as usize);
    if bytes <= SMALL_BYTES_MAX {
        return Ok(None);
    }
    let mut load = context.dispatcher.freight().load(reading.requester);
    match load.reach(bytes) {
        Ok(()) => Ok(Some(load)),
        Err(full) => Err(refuse(StatusCode::SERVICE_UNAVAILABLE, full.into())),
    }
}

/// What a body weighs that another protocol is about to make values of: they take far more than its bytes.
async fn weighed(
    context: &Context,
    reading: &Reading<'_>,
    message: &Bytes,
    load: Option<Load>,
) -> Result<Option<Load>, Rejection> {
    if message.len() <= SMALL_BYTES_MAX {
        return Ok(load);
    }
    let counted = message.clone();
    let values = off_thread(message.len(), move || nexus_json::values(&counted)).await;
    if values > MESSAGE_VALUES_MAX {
        return Err(refuse(StatusCode::BAD_REQUEST, too_many_values()));
    }
    let mut load = load.unwrap_or_else(|| context.dispatcher.freight().load(reading.requester));
    match load.reach(message.len() + values * VALUE_BYTES) {
        Ok(()) => Ok(Some(load)),
        Err(full) => Err(refuse(StatusCode::SERVICE_UNAVAILABLE, full.into())),
    }
}

async fn carry_out(
    context: &Context,
    prepared: Prepared,
    message: Bytes,
    busy: Busy,
) -> Response<Body> {
    let Prepared { caller, wants_events, takes_gzip, .. } = prepared;
    if wants_events {
        // On the heap: every call would carry the room for it.
        return Box::pin(carry_out_streaming(context, caller, message, takes_gzip, busy)).await;
    }
    respond(reply(begin(&context.dispatcher, caller, message)).await, takes_gzip).await
}

async fn carry_out_streaming(
    context: &Context,
    mut caller: Caller,
    message: Bytes,
    takes_gzip: bool,
    busy: Busy,
) -> Response<Body> {
    let peer = Arc::new(Peer::new(context.dispatcher.freight().load(&caller.requester)));
    caller.peer = Some(peer.clone());
    let closed = peer.closed.clone().drop_guard();
    // Wait until there is something to stream or the call is over: only then is it clear which answer this is.
    let phase = match begin(&context.dispatcher, caller, message) {
        Begun::Done(reply) => Phase::Replied(reply),
        Begun::Running(mut worker) => tokio::select! {
            biased;
            () = peer.outbox.filled() => Phase::Running(worker),
            joined = &mut worker => Phase::Replied(finished(joined)),
        },
    };
    match phase {
        Phase::Replied(reply)
            if peer.outbox.is_empty()
                && (reply.class != Class::Answered || reply.body.is_none()) =>
        {
            respond(reply, takes_gzip).await
        }
        phase => {
            let mut response =
                Response::new(Either::Right(Either::Left(Events::new(peer, phase, closed, busy))));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
    }
}

async fn respond(reply: Reply, takes_gzip: bool) -> Response<Body> {
    let status = match reply.class {
        Class::Answered if reply.body.is_none() => StatusCode::ACCEPTED,
        Class::Answered => StatusCode::OK,
        Class::Malformed => StatusCode::BAD_REQUEST,
        Class::UnknownAgent => StatusCode::NOT_FOUND,
        Class::Unsigned => StatusCode::UNAUTHORIZED,
        Class::Forged => StatusCode::FORBIDDEN,
        Class::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
        Class::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = reply.body.unwrap_or_default();
    let gzip = takes_gzip && body.len() > GZIP_BYTES_MIN;
    let body = if gzip { off_thread(body.len(), move || deflate(&body)).await } else { body };
    let mut response = json_response(status, laden(body, reply.load));
    let headers = response.headers_mut();
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Class::RateLimited { retry_after_ms } = reply.class {
        headers.insert(header::RETRY_AFTER, retry_after(retry_after_ms));
    }
    response
}

/// Whole seconds.
fn retry_after(ms: u64) -> HeaderValue {
    HeaderValue::from(ms.div_ceil(1000))
}

fn json_response(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl From<Rejection> for Response<Body> {
    fn from(refusal: Rejection) -> Self {
        let mut response = json_response(refusal.status, error_message(&refusal.error).into());
        let headers = response.headers_mut();
        if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        if refusal.status == StatusCode::UPGRADE_REQUIRED {
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        if refusal.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = refusal.error.retry_after_ms() {
            headers.insert(header::RETRY_AFTER, retry_after(wait));
        }
        response
    }
}
