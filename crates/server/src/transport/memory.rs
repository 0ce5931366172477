//! A connection within the process: the same messages, without bytes on any wire.

use std::collections::VecDeque;
use std::sync::Arc;

use nexus_core::store::Door;
use nexus_core::{Hand, Requester};
use tokio::sync::mpsc::error::TryRecvError;
use tokio_util::sync::DropGuard;

use super::{begin, reply};
use crate::dispatcher::{ANSWER_BYTES_MAX, Caller, Dispatcher, Signer, Target};
use crate::outbox::{Peer, Taken, Takes};

/// One connection. Calls run side by side; notifications of all of them arrive at the receiver.
pub struct MemoryConnection {
    dispatcher: Arc<Dispatcher>,
    caller: Caller,
    _closed: DropGuard,
}

/// The notifications of one connection.
pub struct Notifications {
    peer: Arc<Peer>,
    /// Taken from the outbox, not yet received.
    taken: VecDeque<Taken>,
}

impl MemoryConnection {
    pub fn open(dispatcher: Arc<Dispatcher>, requester: Requester) -> (Self, Notifications) {
        Self::taking(Takes::Bytes, dispatcher, requester)
    }

    pub(crate) fn taking(
        takes: Takes,
        dispatcher: Arc<Dispatcher>,
        requester: Requester,
    ) -> (Self, Notifications) {
        let peer = Arc::new(Peer::taking(takes, dispatcher.freight().load(&requester)));
        let caller = Caller {
            requester,
            hand: Hand::Program,
            signer: Signer::Process,
            target: Target::Server,
            peer: Some(peer.clone()),
            behalf: Some(Arc::default()),
            door: None,
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let _closed = peer.closed.clone().drop_guard();
        let notifications = Notifications { peer, taken: VecDeque::new() };
        (Self { dispatcher, caller, _closed }, notifications)
    }

    /// The same for calls of another protocol.
    pub fn through(mut self, door: Option<Door>) -> Self {
        self.caller.door = door;
        self
    }

    /// Carries out a message and returns the answer, if there is one. The call goes on if this future is dropped.
    pub async fn request(&self, message: Vec<u8>) -> Option<Vec<u8>> {
        reply(begin(&self.dispatcher, self.caller.clone(), message.into())).await.body
    }
}

impl Notifications {
    /// The next notification; `None` when the connection was dropped and no more wait.
    pub async fn recv(&mut self) -> Option<Vec<u8>> {
        self.next().await.map(Taken::into_message)
    }

    /// The next notification, if one waits.
    pub fn try_recv(&mut self) -> Result<Vec<u8>, TryRecvError> {
        self.waiting().map(Taken::into_message).ok_or(TryRecvError::Empty)
    }

    /// As `recv`, of a peer that takes values.
    pub(crate) async fn next(&mut self) -> Option<Taken> {
        if self.taken.is_empty() {
            tokio::select! {
                biased;
                () = self.peer.outbox.filled() => {}
                () = self.peer.closed.cancelled() => {}
            }
        }
        self.waiting()
    }

    pub(crate) fn waiting(&mut self) -> Option<Taken> {
        if self.taken.is_empty() {
            self.peer.outbox.take_values(|taken| self.taken.push_back(taken));
        }
        self.taken.pop_front()
    }
}
