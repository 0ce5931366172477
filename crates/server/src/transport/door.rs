//! Other protocols on the same port: each has a path, and everything of a request after the token was looked at.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{Request, Response};
use nexus_core::Requester;
use nexus_core::store::Door as Opened;

use super::places::Busy;

/// Answers requests to a path in a format of its own.
pub trait Door: Send + Sync {
    /// Such as `/mcp`.
    fn path(&self) -> &'static str;

    /// Which one it is, for keys.
    fn kind(&self) -> Opened;

    /// Largest request.
    fn body_bytes_max(&self) -> usize;

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

/// What a door answers. As long as it lasts, its connection is in use.
pub(super) struct Visit {
    body: DoorBody,
    _busy: Busy,
}

impl Visit {
    pub fn new(body: DoorBody, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl Body for Visit {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
