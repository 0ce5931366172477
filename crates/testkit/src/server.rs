//! The HTTP server behind [`ScriptedModel`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::pending;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::billing::{Bill, Billing};
use crate::counter::Counter;
use crate::reply::{Answer, Reply, Usage};
use crate::sending::{Asked, Body, Prepared, Sending, Serving};
use crate::strict::Strictness;
use crate::traffic::Traffic;
use crate::wire::{self, Wire};

/// A model server on a free port of 127.0.0.1. Dropping it closes every connection.
///
/// It runs on the runtime it was started on; a benchmark gives it one of its own.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What one request was, for tests to look at.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    /// `Null` when it was not JSON.
    pub body: Value,
    /// The body as it came, byte for byte.
    pub bytes: Bytes,
}

impl ScriptedModel {
    pub async fn start() -> Self {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))
            .await
            .unwrap_or_else(|error| panic!("no free port for the scripted model: {error}"));
        let address = listener
            .local_addr()
            .unwrap_or_else(|error| panic!("the scripted model has no address: {error}"));
        let shared = Arc::new(Shared::new());
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self { address, shared, accepting }
    }

    /// For benchmarks: requests are counted but neither parsed nor kept, and a text of one piece is answered with
    /// bytes made once. OpenAI's usage event is sent whether asked for or not.
    pub fn without_recording(self) -> Self {
        self.shared.recording.store(false, Ordering::Relaxed);
        self
    }

    /// The base URL for a provider, as OpenAI's and Anthropic's have it.
    pub fn url(&self) -> String {
        format!("{}/v1", self.root())
    }

    /// The base URL without a version, as Ollama's and Google's have it.
    pub fn root(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Queues a reply. Replies are used first come, first served.
    pub fn push(&self, reply: Reply) {
        lock(&self.shared.queue).push_back(Arc::new(Prepared::new(reply)));
    }

    /// What is answered when nothing is queued; a short text unless set.
    pub fn set_default(&self, reply: Reply) {
        *lock(&self.shared.default) = Arc::new(Prepared::new(reply));
    }

    /// What the model of this id answers, whatever is queued: such requests use up no reply.
    pub fn set_default_of(&self, model: impl Into<String>, reply: Reply) {
        let prepared = Arc::new(Prepared::new(reply));
        lock(&self.shared.default_of).insert(model.into(), prepared);
    }

    /// Answers each request with what `script` makes of its body, when nothing is queued. For long runs with many
    /// agents at once: such requests are not kept.
    pub fn set_script(&self, script: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        *lock(&self.shared.script) = Some(Arc::new(script));
    }

    /// Answers requests for this path, by whatever method, with this document: what a service says of its models.
    pub fn set_page(&self, path: impl Into<String>, page: Value) {
        lock(&self.shared.pages).insert(path.into(), page);
    }

    /// The requests for such pages, oldest first. They are not counted with the others.
    pub fn page_requests(&self) -> Vec<RecordedRequest> {
        lock(&self.shared.page_requests).clone()
    }

    /// Serves at most `n` requests at a time, each until the end of its answer. More are answered 429 with a time to
    /// wait of one second, and use up no reply.
    pub fn at_once(&self, n: usize) {
        self.shared.traffic.at_once(n);
    }

    /// Answers the next `count` requests 429 with this `Retry-After`. They use up no reply.
    pub fn storm(&self, count: usize, retry_after: impl Into<String>) {
        self.shared.traffic.storm(count, retry_after.into());
    }

    /// Requests that were answered 429 by [`ScriptedModel::at_once`] or [`ScriptedModel::storm`].
    pub fn refused(&self) -> usize {
        self.shared.traffic.refused()
    }

    /// The most requests that were served at one time.
    pub fn most_served(&self) -> usize {
        self.shared.traffic.most_served()
    }

    /// From now on refuses with 400 what the real services refuse, in their words. Such requests use up no reply.
    ///
    /// On `messages` that is: no `max_tokens`; sampling parameters; a system message among the others; an answer last,
    /// unless it paused; calls without results and results without calls; empty texts; more than four cache marks, or a
    /// longer one after a shorter; thoughts that were not given out, or not after exactly these tools, this system text
    /// and these blocks. On `chat`: a system message that is not the first, calls without results, and calls of this turn
    /// without the `reasoning_content` that came with them. On `responses`: ids although nothing is stored, outputs
    /// without calls, encrypted content that was not given out. On `generate_content`: the first call of a step without
    /// its signature. On `ollama`: more than the window holds, if it may not be truncated.
    pub fn strict(&self) {
        self.shared.is_strict.store(true, Ordering::Relaxed);
    }

    /// What was refused by [`ScriptedModel::strict`], oldest first.
    pub fn rejections(&self) -> Vec<String> {
        self.shared.strictness.rejections()
    }

    /// From now on counts each request by its length, reports what a cache by the published rules would give instead of
    /// the reply's own input, and adds it up.
    pub fn billing(&self) {
        self.shared.is_billing.store(true, Ordering::Relaxed);
    }

    /// What all models have billed together.
    pub fn bill(&self) -> Bill {
        lock(&self.shared.billing).values().map(Billing::bill).sum()
    }

    /// What the model of this id has billed.
    pub fn bill_of(&self, model: &str) -> Bill {
        lock(&self.shared.billing).get(model).map(Billing::bill).unwrap_or_default()
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.shared.requests).clone()
    }

    /// The latest request; panics without one.
    pub fn last_request(&self) -> RecordedRequest {
        lock(&self.shared.requests)
            .last()
            .cloned()
            .unwrap_or_else(|| panic!("the scripted model was not asked"))
    }

    pub fn request_count(&self) -> usize {
        self.shared.request_count.get()
    }

    /// Waits until at least `n` requests have arrived in full.
    pub async fn wait_for_requests(&self, n: usize) {
        self.shared.request_count.reach(n, "requests").await;
    }

    /// Replies whose client went away before the end.
    pub fn disconnects(&self) -> usize {
        self.shared.disconnects.get()
    }

    pub async fn wait_for_disconnects(&self, n: usize) {
        self.shared.disconnects.reach(n, "disconnects").await;
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.get()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The wire it came by; `None` for a page.
    pub fn wire(&self) -> Option<Wire> {
        Wire::of_path(self.path.split('?').next().unwrap_or_default())
    }

    /// The id of the model that was asked for; empty where there is none.
    pub fn model(&self) -> &str {
        wire::model_of(&self.path, &self.body)
    }

    /// The last user message; of several text blocks the last.
    pub fn last_user_text(&self) -> Option<&str> {
        wire::last_user_text(&self.body)
    }
}

type Script = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

struct Shared {
    queue: Mutex<VecDeque<Arc<Prepared>>>,
    default: Mutex<Arc<Prepared>>,
    /// By model.
    default_of: Mutex<HashMap<String, Arc<Prepared>>>,
    script: Mutex<Option<Script>>,
    recording: AtomicBool,
    requests: Mutex<Vec<RecordedRequest>>,
    request_count: Counter,
    disconnects: Arc<Counter>,
    connections: Counter,
    pages: Mutex<HashMap<String, Value>>,
    page_requests: Mutex<Vec<RecordedRequest>>,
    traffic: Arc<Traffic>,
    is_strict: AtomicBool,
    strictness: Strictness,
    is_billing: AtomicBool,
    /// By model: none reads what another one has kept.
    billing: Mutex<BTreeMap<String, Billing>>,
}

impl Shared {
    fn new() -> Self {
        Self {
            queue: Mutex::default(),
            default: Mutex::new(Arc::new(Prepared::new(Reply::text(
                "Hello from the scripted model.",
            )))),
            default_of: Mutex::default(),
            script: Mutex::default(),
            recording: AtomicBool::new(true),
            requests: Mutex::default(),
            request_count: Counter::default(),
            disconnects: Arc::default(),
            connections: Counter::default(),
            pages: Mutex::default(),
            page_requests: Mutex::default(),
            traffic: Arc::default(),
            is_strict: AtomicBool::new(false),
            strictness: Strictness::default(),
            is_billing: AtomicBool::new(false),
            billing: Mutex::default(),
        }
    }

    /// Whether the reply depends on more of a request than its script does.
    fn looks_at_requests(&self) -> bool {
        self.is_strict.load(Ordering::Relaxed)
            || self.is_billing.load(Ordering::Relaxed)
            || !lock(&self.default_of).is_empty()
    }

    /// The answer to a request that the real service would refuse.
    fn rejection(&self, wire: Wire, body: &Value) -> Option<Reply> {
        if !self.is_strict.load(Ordering::Relaxed) {
            return None;
        }
        let rejection = self.strictness.check(wire, body)?;
        let refusal = Reply::status(400).message(rejection.message);
        Some(match rejection.code {
            Some(code) => refusal.code(code),
            None => refusal,
        })
    }

    /// Keeps what later requests are held against, and says what this one used if it is billed.
    fn note(&self, wire: Wire, model: &str, body: &Value, reply: &Reply) -> Option<Usage> {
        if self.is_strict.load(Ordering::Relaxed) {
            self.strictness.remember(wire, body, reply, &wire::content_of(reply));
        }
        let is_answer = matches!(reply.answer, Answer::Stream(_) | Answer::Echo);
        let is_billed = is_answer && self.is_billing.load(Ordering::Relaxed);
        is_billed.then(|| {
            let mut billing = lock(&self.billing);
            billing.entry(model.to_owned()).or_default().count(wire, body, reply.usage)
        })
    }

    /// The answer to a request for this model.
    fn reply_of(&self, model: &str) -> (Arc<Prepared>, Option<Script>) {
        let own = lock(&self.default_of).get(model).cloned();
        own.map_or_else(|| self.next_reply(), |own| (own, None))
    }

    fn next_reply(&self) -> (Arc<Prepared>, Option<Script>) {
        match lock(&self.queue).pop_front() {
            Some(queued) => (queued, None),
            None => (lock(&self.default).clone(), lock(&self.script).clone()),
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if let Ok((stream, _)) = listener.accept().await {
            shared.connections.add();
            connections.spawn(serve(stream, shared.clone()));
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Without it each small event would wait for the acknowledgement of the one before. A socket that refuses the
    // option is only slower.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    // An error here is a client that went away or a reply that was told to break off: both are the test's own doing.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let page = lock(&shared.pages).get(head.uri.path()).cloned();
    if let Some(page) = page {
        let asked = Heard::read(body).await.recorded(head);
        lock(&shared.page_requests).push(asked);
        return plain(StatusCode::OK, page.to_string());
    }
    let (Some(wire), &Method::POST) = (Wire::of_path(head.uri.path()), &head.method) else {
        return plain(StatusCode::NOT_FOUND, "the scripted model has no such endpoint".to_owned());
    };
    let mut serving = match shared.traffic.enter() {
        Ok(place) => Serving::new(place, shared.disconnects.clone()),
        Err(retry_after) => {
            let refusal =
                Reply::status(429).message("Rate limit reached.").retry_after(retry_after);
            return turned_away(shared, head, Heard::read(body).await, &refusal, wire);
        }
    };
    if !shared.looks_at_requests() {
        let (prepared, script) = shared.next_reply();
        let recording = shared.recording.load(Ordering::Relaxed) && script.is_none();
        let is_echo = matches!(prepared.reply.answer, Answer::Echo);
        let heard = match recording || script.is_some() || is_echo {
            true => Heard::read(body).await,
            false => Heard::nothing_of(body).await,
        };
        return served(shared, Exchange { wire, head, heard, prepared, script, serving }).await;
    }
    let heard = Heard::read(body).await;
    if let Some(refusal) = shared.rejection(wire, &heard.value) {
        serving.ends();
        return turned_away(shared, head, heard, &refusal, wire);
    }
    let (prepared, script) = shared.reply_of(wire::model_of(head.uri.path(), &heard.value));
    served(shared, Exchange { wire, head, heard, prepared, script, serving }).await
}

/// A request that was taken, and what it is answered with.
struct Exchange {
    wire: Wire,
    head: Parts,
    heard: Heard,
    prepared: Arc<Prepared>,
    /// Makes the reply instead, from the request.
    script: Option<Script>,
    serving: Serving,
}

async fn served(shared: &Arc<Shared>, exchange: Exchange) -> Response<Body> {
    let Exchange { wire, head, heard, mut prepared, script, mut serving } = exchange;
    let recording = shared.recording.load(Ordering::Relaxed) && script.is_none();
    let asked = &heard.value;
    let usage_asked = !recording || asked["stream_options"]["include_usage"] == true;
    let said = wire::last_user_text(asked).unwrap_or_default().to_owned();
    if let Some(script) = script {
        prepared = Arc::new(Prepared::new(script(asked)));
    }
    let is_document = prepared.reply.is_document || wire.wants_document(head.uri.path(), asked);
    let model = wire::model_of(head.uri.path(), asked);
    let usage = shared.note(wire, model, asked, &prepared.reply);
    if recording {
        lock(&shared.requests).push(heard.recorded(head));
    }
    shared.request_count.add();

    if let Some(gate) = &prepared.reply.gate {
        gate.opened().await;
    }
    let is_usual = !recording && !is_document && usage.is_none();
    let whole = if is_usual { prepared.whole(wire) } else { None };
    if let Some(whole) = whole {
        serving.ends();
        return success(&prepared.reply, wire.stream_type(), wire, Either::Left(Full::new(whole)));
    }
    match &prepared.reply.answer {
        Answer::Hang => pending().await,
        Answer::Status { .. } => {
            serving.ends();
            http_error(&prepared.reply, wire)
        }
        Answer::Stream(_) | Answer::Echo | Answer::Raw(_) => {
            let frames = prepared.frames(&Asked { wire, said: &said, is_document, usage });
            let delay = prepared.reply.chunk_delay;
            let body = Sending { frames, usage_asked, delay, serving }.body();
            let media_type = if is_document { "application/json" } else { wire.stream_type() };
            success(&prepared.reply, media_type, wire, body)
        }
    }
}

/// Answers a request that uses up no reply.
fn turned_away(
    shared: &Shared,
    head: Parts,
    heard: Heard,
    refusal: &Reply,
    wire: Wire,
) -> Response<Body> {
    if shared.recording.load(Ordering::Relaxed) {
        lock(&shared.requests).push(heard.recorded(head));
    }
    shared.request_count.add();
    http_error(refusal, wire)
}

/// The body of a request.
struct Heard {
    bytes: Bytes,
    /// `Null` when it is not JSON.
    value: Value,
}

impl Heard {
    async fn read(body: Incoming) -> Self {
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Self { bytes, value }
    }

    /// Reads to the end all the same, so that the connection can be used again.
    async fn nothing_of(mut body: Incoming) -> Self {
        while let Some(Ok(_)) = body.frame().await {}
        Self { bytes: Bytes::new(), value: Value::Null }
    }

    fn recorded(self, head: Parts) -> RecordedRequest {
        let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        RecordedRequest { path, headers: head.headers, body: self.value, bytes: self.bytes }
    }
}

fn success(reply: &Reply, media_type: &'static str, wire: Wire, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    add_headers(&mut response, reply, wire);
    response
}

fn http_error(reply: &Reply, wire: Wire) -> Response<Body> {
    let Answer::Status { status, body } = &reply.answer else {
        panic!("{:?} is no HTTP error", reply.answer);
    };
    let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let wait = reply.retry_after.as_deref();
    let mut response = plain(status, wire::error_body(body, status.as_u16(), wait, wire));
    let value = wait.filter(|wait| wire::waits_in_header(wire, wait));
    if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    add_headers(&mut response, reply, wire);
    response
}

fn add_headers(response: &mut Response<Body>, reply: &Reply, wire: Wire) {
    let headers = response.headers_mut();
    if let Some(name) = wire.request_id_header() {
        headers.insert(name, HeaderValue::from_static("req_scripted"));
    }
    for (name, value) in &reply.headers {
        let (Ok(known), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
        else {
            panic!("{name}: {value} is no header");
        };
        headers.insert(known, value);
    }
}

fn plain(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
