//! A server for tests: it answers what it was told to and remembers what it was asked.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub(crate) const FORBIDDEN_BODY: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"Authentication failed","data":{"type":"AUTHENTICATION_FAILED"}}}"#;

/// Answers on a free port until dropped.
pub(crate) struct FakeServer {
    pub address: SocketAddr,
    state: Arc<State>,
    _accepting: AbortOnDropHandle<()>,
}

pub(crate) struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
    /// Counted from 0 in the order they were accepted.
    pub connection: usize,
}

/// `ID` in the body stands for the id of the request.
pub(crate) struct Reply {
    status: u16,
    kind: &'static str,
    body: String,
}

type Script = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

struct State {
    script: Script,
    seen: Mutex<Vec<Seen>>,
}

impl FakeServer {
    pub async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    pub fn start_on(
        listener: TcpListener,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { script: Box::new(script), seen: Mutex::default() });
        let accepting = tokio::spawn(accept(listener, state.clone()));
        Self { address, state, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// Answers with each of `replies` in turn.
    pub async fn replying(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Mutex<VecDeque<_>> = Mutex::new(replies.into_iter().collect());
        Self::start(move |_| replies.lock().unwrap().pop_front().unwrap()).await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was asked since the last look.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.seen.lock().unwrap())
    }
}

impl Reply {
    pub fn json(status: u16, body: impl Into<String>) -> Self {
        Self { status, kind: "application/json", body: body.into() }
    }

    pub fn result(result: Value) -> Self {
        Self::json(200, format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{result}}}"#))
    }

    pub fn version() -> Self {
        Self::result(json!({"name": "nexus3", "version": "1", "protocol": "1", "features": []}))
    }

    pub fn error(status: u16, code: i32, data: Value) -> Self {
        let error = json!({"code": code, "message": "Refused", "data": data});
        Self::json(status, format!(r#"{{"jsonrpc":"2.0","id":ID,"error":{error}}}"#))
    }

    pub fn events(events: &[&str]) -> Self {
        let body = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        Self { status: 200, kind: "text/event-stream", body }
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    for connection in 0.. {
        let (stream, _) = listener.accept().await.unwrap();
        let state = state.clone();
        let service = service_fn(move |request| serve(request, connection, state.clone()));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn serve(
    request: Request<Incoming>,
    connection: usize,
    state: Arc<State>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let seen = Seen { path: head.uri.path().into(), headers: head.headers, body, connection };
    let reply = (state.script)(&seen);
    let body = reply.body.replace("ID", &seen.body["id"].to_string());
    state.seen.lock().unwrap().push(seen);
    let response = Response::builder().status(reply.status).header(CONTENT_TYPE, reply.kind);
    Ok(response.body(Full::new(body.into())).unwrap())
}
