//! Other protocols on the same port: each has a path, and everything of a request after the token was looked at.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{Request, Response, StatusCode};
use nexus_core::Requester;
use nexus_core::store::Door as Opened;
use nexus_protocol::RpcError;

use super::places::Busy;
use crate::freight::Load;

/// Answers requests to its paths in a format of its own.
pub trait Door: Send + Sync {
    /// Whether a path is one of its own, such as `/mcp`.
    fn has(&self, path: &str) -> bool;

    /// Which one it is, for keys.
    fn kind(&self) -> Opened;

    /// Largest request.
    fn body_bytes_max(&self) -> usize;

    /// What is answered to a request that did not get to the door, in its format. JSON-RPC's when `None`.
    fn refuse(&self, _: StatusCode, _: &RpcError) -> Option<(StatusCode, Bytes)> {
        None
    }

    fn answer(
        &self,
        visitor: Visitor,
        request: Request<Bytes>,
    ) -> BoxFuture<'_, Response<DoorBody>>;
}

/// Who came to a door.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub requester: Requester,
    /// The name of the key that was shown.
    pub key: Option<String>,
}

pub type DoorBody = BoxBody<Bytes, Infallible>;

/// What a door answers. As long as it lasts, its connection is in use, and what was asked is under way.
pub(super) struct Visit {
    body: DoorBody,
    /// Nothing is said any more when this is over: the key that opened the door does not any longer.
    over: Option<BoxFuture<'static, ()>>,
    _busy: Busy,
    _load: Option<Load>,
}

impl Visit {
    pub fn new(
        body: DoorBody,
        over: Option<BoxFuture<'static, ()>>,
        busy: Busy,
        load: Option<Load>,
    ) -> Self {
        Self { body, over, _busy: busy, _load: load }
    }
}

impl Body for Visit {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending()
            && self.over.as_mut().is_some_and(|over| over.poll_unpin(cx).is_ready())
        {
            self.over = None;
            return Poll::Ready(None);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
