//! Transports turn bytes into messages and answers into bytes, and say who calls. None looks inside a message.

pub mod http;
pub mod memory;
mod patience;
mod rarely;
mod sse;
pub mod stdio;
pub mod unix;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use nexus_protocol::{RpcError, envelope};
use tokio::task::JoinHandle;

use crate::dispatcher::{Caller, Dispatcher, Reply};

/// Notifications that may wait for a slow reader. A stream that gets this far ahead is ended; see `stream`.
const OUTBOX_MESSAGES_MAX: usize = 1024;

/// A call that was begun.
enum Begun {
    Done(Reply),
    /// Runs on its own worker, so that it goes on when its connection does not.
    Running(JoinHandle<Reply>),
}

/// Begins to carry out a message. A call that never has to wait, as reads do not, is answered on the spot and costs
/// no worker.
fn begin(dispatcher: &Arc<Dispatcher>, caller: Caller, message: Bytes) -> Begun {
    let dispatcher = dispatcher.clone();
    let mut call = Box::pin(async move { dispatcher.handle(caller, &message).await });
    // Whoever polls next, the worker, leaves its own waker.
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => Begun::Done(reply),
        Poll::Pending => Begun::Running(tokio::spawn(call)),
    }
}

impl Begun {
    async fn reply(self) -> Reply {
        match self {
            Self::Done(reply) => reply,
            Self::Running(worker) => finished(worker.await),
        }
    }
}

/// The reply of a worker. One that died gives an error without an id: which call it was is lost with it.
fn finished(joined: Result<Reply, tokio::task::JoinError>) -> Reply {
    joined.unwrap_or_else(|_| Reply {
        body: Some(error_message(&RpcError::internal("The server failed inside this call"))),
        ..Reply::default()
    })
}

/// An error that is not the answer to any call.
fn error_message(error: &RpcError) -> Vec<u8> {
    let mut out = Vec::new();
    envelope::write_error(&mut out, None, error);
    out
}

fn too_large(bytes_max: usize) -> RpcError {
    RpcError::invalid_request(format!("message is larger than {bytes_max} bytes"))
}
