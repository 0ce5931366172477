//! How a call is started, whoever brings it: it goes on when its caller does not.

use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt as _;
use nexus_protocol::RpcError;
use tokio::task::JoinHandle;

/// A call that was begun.
pub enum Begun<T> {
    Done(T),
    /// Runs on its own worker, so that it goes on when nobody waits for it any more.
    Running(JoinHandle<T>),
}

/// Begins a call. One that never has to wait, as reads do not, is done on the spot and costs no worker.
pub fn begin<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> Begun<T> {
    let mut call = Box::pin(call);
    // Whoever polls next, the worker, leaves its own waker.
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Begun::Done(done),
        Poll::Pending => Begun::Running(tokio::spawn(call)),
    }
}

/// Runs a handler, whose panic is its own call's error. What it panicked with stands in the log's line before.
pub async fn guarded<T>(
    method: &str,
    handler: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    AssertUnwindSafe(handler).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(method, "a handler panicked");
        Err(worker_died())
    })
}

/// What is answered for a worker that died.
pub fn worker_died() -> RpcError {
    RpcError::internal("The server failed inside this call")
}
