//! The terminal that started this server, over a pair of connected sockets: the frames of the Unix socket, calls side by
//! side.

use std::sync::Arc;

use nexus_core::watch::Watches;
use nexus_core::{Hand, Requester};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Terms};
use super::stall::Stall;
use super::unix::{FRAME_BYTES_MAX, Frames};
use crate::dispatcher::{Dispatcher, Signer};
use crate::outbox::Peer;

/// Calls of the terminal that run at once. A watch is one, and a `cancel` must not wait behind a `send`.
const CALLS_MAX: usize = 1024;

/// A terminal that is served.
pub struct Channel {
    peer: Arc<Peer>,
}

impl Channel {
    /// Serves the terminal until its input ends or `stop`. It is the administrator, and a person. The task ends when
    /// every call that still ran has been answered.
    pub fn serve(
        dispatcher: Arc<Dispatcher>,
        stream: UnixStream,
        stop: CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let terms = Terms {
            requester: Requester::Administrator,
            hand: Hand::Person,
            signer: Signer::Process,
            door: None,
            answer_bytes_max: FRAME_BYTES_MAX,
            silence_max: None,
            // A terminal that was suspended reads on when it is continued.
            stall: Stall::never(),
            place: None,
        };
        let frames = Frames::<CALLS_MAX>;
        let connection = Connection::new(dispatcher, frames, stream.into_split(), terms);
        let peer = connection.peer();
        let answered = tokio::spawn(async move {
            if let Err(error) = connection.run(&stop).await {
                tracing::debug!(%error, "the terminal cannot be reached any more");
            }
        });
        (Self { peer }, answered)
    }

    pub fn is_gone(&self) -> bool {
        self.peer.closed.is_cancelled()
    }

    /// Returns when the terminal is gone.
    pub async fn gone(&self) {
        self.peer.closed.cancelled().await;
    }

    /// Whether somebody watches beside the terminal.
    pub fn others_watch(&self, watches: &Watches) -> bool {
        watches.count_beside(Arc::as_ptr(&self.peer).addr()) > 0
    }
}
