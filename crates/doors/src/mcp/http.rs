//! The door over HTTP: streamable HTTP of both eras, sessions for the older one.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::shares::greediest;

/// Sessions of one tree of agents, or of the administrator, of the era that has them.
pub const SESSIONS_MAX: usize = 256;

/// A session that is not used for so long is over.
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// Largest message.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Visitors that are remembered. Of the tree that has the most, the one that was away longest is forgotten first, with its
/// sessions: agents make agents, and must not drive others out by that.
const VISITORS_MAX: usize = 256;

/// Serves many visitors, each with sessions and turns of its own.
pub struct HttpDoor<H> {
    visitors: Mutex<VecDeque<Arc<Served<H>>>>,
    stop: CancellationToken,
}

/// What answers a visitor. A trait, so that the conformance suite finds its own tools behind this same route.
pub trait Answers: ServerHandler {
    /// The same for one session of the visitor.
    fn for_session(&self) -> Self;
}

struct Served<H> {
    name: String,
    tree: String,
    sessions: Arc<LocalSessionManager>,
    service: StreamableHttpService<H, LocalSessionManager>,
}

/// As much of a message as is looked at here.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
}

impl<H: Answers> HttpDoor<H> {
    /// Streams end with `stop`.
    pub fn new(stop: CancellationToken) -> Self {
        Self { visitors: Mutex::default(), stop }
    }

    /// Answers one request of a visitor, who is one of `tree`. `open` makes what answers one who was not here yet.
    pub async fn answer(
        &self,
        visitor: &str,
        tree: &str,
        open: impl FnOnce() -> H,
        request: Request<Bytes>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        let served = self.served(visitor, tree, open);
        if is_first(&request) && self.sessions(tree).await >= SESSIONS_MAX {
            let why = format!("there are {SESSIONS_MAX} sessions, and there can be no more");
            return refusal(StatusCode::SERVICE_UNAVAILABLE, &why);
        }
        let is_end = request.method() == Method::DELETE;
        let mut response = served.service.handle(request.map(Full::new)).await;
        // A session that was ended is ended: hosts take "accepted" for a failure.
        if is_end && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::OK;
        }
        response
    }

    /// How many sessions there are of a tree.
    async fn sessions(&self, tree: &str) -> usize {
        let theirs: Vec<_> =
            self.lock().iter().filter(|it| it.tree == tree).map(|it| it.sessions.clone()).collect();
        let mut sessions = 0;
        for of_visitor in theirs {
            sessions += of_visitor.sessions.read().await.len();
        }
        sessions
    }

    fn served(&self, visitor: &str, tree: &str, open: impl FnOnce() -> H) -> Arc<Served<H>> {
        let mut visitors = self.lock();
        let found = visitors.iter().position(|served| served.name == visitor);
        let served = match found.and_then(|place| visitors.remove(place)) {
            Some(served) => served,
            None => Arc::new(self.serve(visitor, tree, open())),
        };
        visitors.push_back(served.clone());
        if visitors.len() > VISITORS_MAX {
            let greediest = greediest(visitors.iter().map(|it| (it.tree.as_str(), 1)));
            let place = greediest.and_then(|tree| visitors.iter().position(|it| it.tree == tree));
            place.and_then(|place| visitors.remove(place));
        }
        served
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Served<H>>>> {
        self.visitors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, visitor: &str, tree: &str, answers: H) -> Served<H> {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = SessionConfig::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE);
        let sessions = Arc::new(sessions);
        // Host and Origin were looked at before anybody was let in.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_cancellation_token(self.stop.clone())
            .with_max_request_body_bytes(BODY_BYTES_MAX);
        let service =
            StreamableHttpService::new(move || Ok(answers.for_session()), sessions.clone(), config);
        Served { name: visitor.into(), tree: tree.into(), sessions, service }
    }
}

/// Whether the request would open a session.
fn is_first(request: &Request<Bytes>) -> bool {
    request.method() == Method::POST
        && serde_json::from_slice::<Head<'_>>(request.body())
            .is_ok_and(|head| head.method.as_deref() == Some("initialize"))
}

fn refusal(status: StatusCode, why: &str) -> Response<BoxBody<Bytes, Infallible>> {
    let body = serde_json::json!({
        "jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": why},
    });
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
