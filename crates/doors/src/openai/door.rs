//! The paths of the door.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response};
use jiff::Timestamp;
use nexus_protocol::StreamApi;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::Visitor;
use super::bare::Models;
use super::conversations::Conversations;
use super::embeddings::Lines;
use super::failure::Failure;
use super::listing;
use super::repeats::Repeats;
use super::responses::{self, Kept};

/// Largest request: a conversation with its images.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What is answered.
pub type Reply = BoxBody<Bytes, Infallible>;

const BASE: &str = "/v1";

/// The door for all visitors. `A` is what each of them calls methods with.
pub struct Door<A> {
    opened: i64,
    pub(super) models: Arc<dyn Models>,
    pub(super) repeats: Repeats,
    pub(super) conversations: Arc<Conversations>,
    pub(super) kept: Arc<Kept>,
    pub(super) embedding: Lines,
    api: std::marker::PhantomData<fn(A)>,
}

impl<A: StreamApi + Clone + Send + Sync + 'static> Door<A> {
    pub fn new(models: Arc<dyn Models>) -> Self {
        Self {
            models,
            opened: Timestamp::now().as_second(),
            repeats: Repeats::default(),
            conversations: Arc::default(),
            kept: Arc::default(),
            embedding: Lines::default(),
            api: std::marker::PhantomData,
        }
    }

    /// Whether a path is one of this door.
    pub fn has(path: &str) -> bool {
        path.strip_prefix(BASE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Answers one request of a visitor.
    pub async fn answer(
        &self,
        api: A,
        visitor: &Visitor,
        request: Request<Bytes>,
    ) -> Response<Reply> {
        let answered = self.route(api, visitor, &request).await;
        answered.unwrap_or_else(|failure| refused(&failure))
    }

    async fn route(
        &self,
        api: A,
        visitor: &Visitor,
        request: &Request<Bytes>,
    ) -> Result<Response<Reply>, Failure> {
        let path = request.uri().path();
        let rest = path.strip_prefix(BASE).unwrap_or_default();
        let verb = |verb: &'static str| match request.method().as_str() == verb {
            true => Ok(()),
            false => Err(Failure::wrong_verb(verb)),
        };
        match rest {
            "/models" => {
                verb("GET")?;
                let all = self.listed(&api).await?;
                Ok(json_response(&json!({"object": "list", "data": all})))
            }
            "/chat/completions" => {
                verb("POST")?;
                self.chat(api, visitor, request).await
            }
            responses::PATH => {
                verb("POST")?;
                self.respond(api, visitor, request).await
            }
            "/embeddings" => {
                verb("POST")?;
                self.embed(visitor, request).await
            }
            _ => {
                if let Some(name) = rest.strip_prefix("/models/") {
                    verb("GET")?;
                    return self.model(&api, name).await;
                }
                let kept = rest.strip_prefix(responses::PATH).and_then(|it| it.strip_prefix('/'));
                match kept {
                    Some(kept) => self.kept_response(visitor, request, kept),
                    None => Err(Failure::no_path(request.method(), path)),
                }
            }
        }
    }

    async fn listed(&self, api: &A) -> Result<Vec<Value>, Failure> {
        let embedder = self.models.embedder().0;
        listing::all(api, &embedder, self.opened).await
    }

    async fn model(&self, api: &A, name: &str) -> Result<Response<Reply>, Failure> {
        let name = percent_decode_str(name).decode_utf8_lossy();
        let all = self.listed(api).await?;
        let found = all.into_iter().find(|entry| entry["id"] == *name);
        let found =
            found.ok_or_else(|| Failure::no_model(format!("there is no model {name:?}")))?;
        Ok(json_response(&found))
    }
}

pub(super) fn json_response(value: &Value) -> Response<Reply> {
    response("application/json", Full::new(Bytes::from(value.to_string())).boxed())
}

pub(super) fn stream_response(body: Reply) -> Response<Reply> {
    let mut response = response("text/event-stream; charset=utf-8", body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn response(kind: &'static str, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn refused(failure: &Failure) -> Response<Reply> {
    let mut response = json_response(&failure.to_json());
    *response.status_mut() = failure.status;
    let headers = response.headers_mut();
    if failure.has_begun {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    if let Some(wait) = failure.retry_after_ms {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1000)));
    }
    if let Some(verb) = failure.allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(verb));
    }
    response
}
