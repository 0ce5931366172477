//! `GET /metrics` for Prometheus, on a port of its own. It shows figures and takes no calls, so it asks for no token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::http::check_origin;
use super::listeners::Listeners;
use super::places::{Place, Places};
use crate::dispatcher::Dispatcher;
use crate::metrics::text;

/// Scrapers that are connected at once: a few, and a person. One more gets the place of the one that came first.
const CONNECTIONS_MAX: usize = 8;

/// For a connection, from its first byte to the last of the answer. A scraper gives up after ten by itself.
const CONNECTION_MAX: Duration = Duration::from_secs(5);

/// A head is some hundred bytes, and hyper needs a buffer of 8 KiB at least.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A bound port, not yet served.
pub struct MetricsServer {
    listeners: Listeners,
    dispatcher: Arc<Dispatcher>,
}

impl MetricsServer {
    pub fn new(listeners: Listeners, dispatcher: Arc<Dispatcher>) -> Self {
        Self { listeners, dispatcher }
    }

    /// Serves until `stop`. Each connection is for one request.
    pub async fn run(self, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let places = Places::new(CONNECTIONS_MAX);
        while let Some(stream) = self.listeners.next(&places, &stop).await {
            // All are strangers here, so there is always one whose place can be had.
            if let Some(place) = places.take(&stop).await {
                let serving = serve(self.dispatcher.clone(), stream, place);
                connections.spawn(tokio::time::timeout(CONNECTION_MAX, serving));
            }
        }
        connections.close();
        connections.wait().await;
    }
}

async fn serve(dispatcher: Arc<Dispatcher>, stream: TcpStream, place: Place) {
    let service = service_fn(move |request| {
        let answer = answer(&dispatcher, &request);
        async { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let end = place.end();
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a scrape ended badly");
            }
        }
        () = end.cancelled() => {}
    }
}

fn answer(dispatcher: &Dispatcher, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if let Err(refusal) = check_origin(request.headers()) {
        return plain(refusal.status, refusal.error.message);
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "there is only /metrics here".into());
    }
    if request.method() != Method::GET {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here".into());
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        return refusal;
    }
    respond(StatusCode::OK, text::CONTENT_TYPE, text::text(dispatcher.metrics()))
}

fn plain(status: StatusCode, why: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", why + "\n")
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
