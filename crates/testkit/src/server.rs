//! The HTTP server behind [`ScriptedModel`].

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::pending;
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::reply::{Answer, Reply, Step};
use crate::wire::{self, Format, Frame};

/// How long a test waits for something that is about to happen. Long, for a loaded machine; only a failing test sees it.
const WAIT_MAX: Duration = Duration::from_secs(20);

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

    /// The base URL for a provider of either kind.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Queues a reply. Replies are used first come, first served.
    pub fn push(&self, reply: Reply) {
        lock(&self.shared.queue).push_back(Arc::new(Prepared::new(reply)));
    }

    /// What is answered when nothing is queued; a short text unless set.
    pub fn set_default(&self, reply: Reply) {
        *lock(&self.shared.default) = Arc::new(Prepared::new(reply));
    }

    /// Answers each request with what `script` makes of its body, when nothing is queued. For long runs with many
    /// agents at once: such requests are not kept.
    pub fn set_script(&self, script: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        *lock(&self.shared.script) = Some(Arc::new(script));
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

    /// The last user message; of several text blocks the last.
    pub fn last_user_text(&self) -> Option<&str> {
        last_user_text(&self.body)
    }
}

type Script = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

struct Shared {
    queue: Mutex<VecDeque<Arc<Prepared>>>,
    default: Mutex<Arc<Prepared>>,
    script: Mutex<Option<Script>>,
    recording: AtomicBool,
    requests: Mutex<Vec<RecordedRequest>>,
    request_count: Counter,
    disconnects: Counter,
    connections: Counter,
}

impl Shared {
    fn new() -> Self {
        Self {
            queue: Mutex::default(),
            default: Mutex::new(Arc::new(Prepared::new(Reply::text(
                "Hello from the scripted model.",
            )))),
            script: Mutex::default(),
            recording: AtomicBool::new(true),
            requests: Mutex::default(),
            request_count: Counter::default(),
            disconnects: Counter::default(),
            connections: Counter::default(),
        }
    }

    fn next_reply(&self) -> (Arc<Prepared>, Option<Script>) {
        match lock(&self.queue).pop_front() {
            Some(queued) => (queued, None),
            None => (lock(&self.default).clone(), lock(&self.script).clone()),
        }
    }
}

/// A reply with what was encoded for it, so that a default reply is encoded once.
struct Prepared {
    reply: Reply,
    frames: [OnceLock<Arc<[Frame]>>; 2],
    whole: [OnceLock<Bytes>; 2],
}

impl Prepared {
    fn new(reply: Reply) -> Self {
        Self { reply, frames: Default::default(), whole: Default::default() }
    }

    fn frames(&self, format: Format, said: &str) -> Arc<[Frame]> {
        let encode = || wire::frames(&self.reply, format, said).into();
        match self.reply.answer {
            Answer::Echo => encode(),
            _ => self.frames[format as usize].get_or_init(encode).clone(),
        }
    }

    /// The complete body of a text in one piece, with which nothing happens that takes time.
    fn whole(&self, format: Format) -> Option<Bytes> {
        let Reply {
            answer: Answer::Stream(steps),
            gate: None,
            chunk_delay: None,
            piece_bytes: None,
            ..
        } = &self.reply
        else {
            return None;
        };
        let [Step::Text(_)] = steps.as_slice() else { return None };
        let join =
            || self.frames(format, "").iter().filter_map(Frame::bytes).flatten().copied().collect();
        Some(self.whole[format as usize].get_or_init(join).clone())
    }
}

type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, io::Result<BodyFrame<Bytes>>>>>;

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
    let format = Format::of_path(head.uri.path());
    let (Some(format), Method::POST) = (format, head.method) else {
        return plain(StatusCode::NOT_FOUND, "the scripted model has no such endpoint".to_owned());
    };
    let (mut prepared, script) = shared.next_reply();
    let recording = shared.recording.load(Ordering::Relaxed) && script.is_none();
    let mut guard = DisconnectGuard { shared: shared.clone(), armed: true };

    let parsed = if recording || script.is_some() || matches!(prepared.reply.answer, Answer::Echo) {
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    } else {
        discard(body).await;
        Value::Null
    };
    let usage_asked = !recording || parsed["stream_options"]["include_usage"] == true;
    let said = last_user_text(&parsed).unwrap_or_default().to_owned();
    if let Some(script) = script {
        prepared = Arc::new(Prepared::new(script(&parsed)));
    }
    if recording {
        let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        lock(&shared.requests).push(RecordedRequest { path, headers: head.headers, body: parsed });
    }
    shared.request_count.add();

    if let Some(gate) = &prepared.reply.gate {
        gate.opened().await;
    }
    if !recording && let Some(whole) = prepared.whole(format) {
        guard.armed = false;
        return event_stream(Either::Left(Full::new(whole)));
    }
    match &prepared.reply.answer {
        Answer::Hang => pending().await,
        Answer::Status { status, body, retry_after } => {
            guard.armed = false;
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = plain(status, wire::error_body(body, status.as_u16(), format));
            if let Some(value) =
                retry_after.as_ref().and_then(|value| HeaderValue::from_str(value).ok())
            {
                response.headers_mut().insert(RETRY_AFTER, value);
            }
            response
        }
        Answer::Stream(_) | Answer::Echo | Answer::Raw(_) => {
            let frames = prepared.frames(format, &said);
            let sending =
                Sending { frames, next: 0, usage_asked, delay: prepared.reply.chunk_delay, guard };
            event_stream(Either::Right(StreamBody::new(stream::unfold(sending, send_next).boxed())))
        }
    }
}

/// A body on its way to a client.
struct Sending {
    frames: Arc<[Frame]>,
    next: usize,
    usage_asked: bool,
    delay: Option<Duration>,
    guard: DisconnectGuard,
}

async fn send_next(mut sending: Sending) -> Option<(io::Result<BodyFrame<Bytes>>, Sending)> {
    loop {
        let frame = sending.frames.get(sending.next)?.clone();
        sending.next += 1;
        match frame {
            Frame::UsageIfAsked(_) if !sending.usage_asked => {}
            Frame::Bytes(bytes) | Frame::UsageIfAsked(bytes) => {
                if let Some(delay) = sending.delay {
                    tokio::time::sleep(delay).await;
                }
                // The client may hang up as soon as it has the last event.
                sending.guard.armed = sending.next < sending.frames.len();
                return Some((Ok(BodyFrame::data(bytes)), sending));
            }
            Frame::Wait(gate) => gate.opened().await,
            Frame::Hang => pending().await,
            Frame::Cut => {
                // What was sent so far is flushed while this body has nothing to give; only then is the error raised.
                tokio::task::yield_now().await;
                sending.guard.armed = false;
                return Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), sending));
            }
        }
    }
}

/// Counts a reply that was dropped before its end: hyper drops it when the client closes the connection.
struct DisconnectGuard {
    shared: Arc<Shared>,
    armed: bool,
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        if self.armed {
            self.shared.disconnects.add();
        }
    }
}

/// A number that tests can wait for.
#[derive(Default)]
struct Counter {
    count: AtomicUsize,
    changed: Notify,
}

impl Counter {
    fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    fn get(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    async fn reach(&self, n: usize, what: &str) {
        let reached = async {
            loop {
                let changed = self.changed.notified();
                if self.get() >= n {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(WAIT_MAX, reached).await.is_err() {
            panic!("the scripted model saw {} {what}, not {n}", self.get());
        }
    }
}

/// Reads to the end, so that the connection can be used again.
async fn discard(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}

fn last_user_text(body: &Value) -> Option<&str> {
    let messages = body["messages"].as_array()?;
    // Anthropic sends tool results as user messages; those hold no text of a user.
    messages.iter().rev().filter(|message| message["role"] == "user").find_map(|message| {
        match &message["content"] {
            Value::String(text) => Some(text.as_str()),
            Value::Array(blocks) => blocks.iter().rev().find_map(|block| block["text"].as_str()),
            _ => None,
        }
    })
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    response
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
