//! Transports turn bytes into messages and answers into bytes, and say who calls. None looks inside a message.

pub mod channel;
mod connection;
mod courtesy;
pub mod door;
mod gzip;
pub mod http;
pub mod listeners;
pub mod memory;
mod patience;
mod places;
pub mod scrape;
mod sse;
mod stall;
pub mod stdio;
pub mod unix;
mod weight;
mod ws;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nexus_protocol::{RpcError, envelope};
use tokio::task::{JoinError, JoinHandle};

use self::places::Places;
use crate::begin::{self, Begun};
use crate::dispatcher::{Caller, Reply};
use crate::freight::Load;
use crate::host::Host;

/// Begins to carry out a message.
fn begin(host: &Arc<impl Host>, caller: Caller, message: Bytes) -> Begun<Reply> {
    let host = host.clone();
    begin::begin(async move { host.handle(caller, &message).await })
}

/// The reply to a message, whose call goes on if this is dropped.
async fn reply(begun: Begun<Reply>) -> Reply {
    match begun {
        Begun::Done(reply) => reply,
        Begun::Running(worker) => finished(worker.await),
    }
}

/// The reply of a worker. One that died gives an error without an id: which call it was is lost with it.
fn finished(joined: Result<Reply, JoinError>) -> Reply {
    joined.unwrap_or_else(|_| Reply {
        body: Some(error_message(&begin::worker_died())),
        ..Reply::default()
    })
}

/// A call on its own worker.
type Worker = JoinHandle<Reply>;

/// Bytes on their way to a peer or from it, which weigh for as long as somebody has them.
fn laden<B>(body: B, load: Option<Load>) -> Bytes
where
    B: AsRef<[u8]> + Into<Bytes> + Send + 'static,
{
    struct Laden<B>(B, #[expect(dead_code, reason = "held, not read")] Load);

    impl<B: AsRef<[u8]>> AsRef<[u8]> for Laden<B> {
        fn as_ref(&self) -> &[u8] {
            self.0.as_ref()
        }
    }

    match load {
        None => body.into(),
        Some(load) => Bytes::from_owner(Laden(body, load)),
    }
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

/// How long is waited after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection could not be accepted: for want of file descriptors, most likely. A stranger gives one back, and others
/// get time to.
async fn not_accepted(error: &io::Error, places: &Places) {
    tracing::warn!(%error, "a connection could not be accepted");
    places.give_one_up();
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// One connection more than there may be.
fn too_many_connections() -> RpcError {
    RpcError::overloaded("Too many connections are open.", 1_000)
}
