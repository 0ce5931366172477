//! A connection within the process: the same messages, without bytes on any wire.

use std::sync::Arc;

use nexus_core::Requester;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{OUTBOX_MESSAGES_MAX, begin};
use crate::dispatcher::{Caller, Dispatcher, Peer, Target};

/// One connection. Calls run side by side; notifications of all of them arrive at the receiver.
pub struct MemoryConnection {
    dispatcher: Arc<Dispatcher>,
    caller: Caller,
    _closed: DropGuard,
}

impl MemoryConnection {
    pub fn open(
        dispatcher: Arc<Dispatcher>,
        requester: Requester,
    ) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (outbox, notifications) = mpsc::channel(OUTBOX_MESSAGES_MAX);
        let closed = CancellationToken::new();
        let caller = Caller {
            requester,
            target: Target::Server,
            peer: Some(Arc::new(Peer { outbox, closed: closed.clone() })),
            answer_bytes_max: usize::MAX,
        };
        (Self { dispatcher, caller, _closed: closed.drop_guard() }, notifications)
    }

    /// Carries out a message and returns the answer, if there is one. The call goes on if this future is dropped.
    pub async fn request(&self, message: Vec<u8>) -> Option<Vec<u8>> {
        begin(&self.dispatcher, self.caller.clone(), message.into()).reply().await.body
    }
}
