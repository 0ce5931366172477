//! The answer to a `send` as it is made.

use std::time::Duration;

use nexus_protocol::CallError;
use nexus_protocol::answer::{Item as _, StreamItem};
use nexus_protocol::turn::SendResult;
use tokio::time::Instant;

use crate::incoming::Incoming;

/// What happens in a streamed turn, in order, up to `Done` or an error. Dropping it closes the connection, which
/// cancels the turn.
pub struct SendStream {
    id: u64,
    incoming: Option<Incoming>,
    /// When to give up, and how long that was from the start.
    deadline: Option<(Instant, Duration)>,
}

impl SendStream {
    pub(crate) fn new(id: u64, incoming: Incoming, timeout: Option<Duration>) -> Self {
        let deadline = timeout.map(|timeout| (Instant::now() + timeout, timeout));
        Self { id, incoming: Some(incoming), deadline }
    }

    /// Passes over what comes before the whole answer.
    pub async fn finish(mut self) -> Result<SendResult, CallError> {
        while let Some(item) = self.next().await {
            if let StreamItem::Done(answer) = item? {
                return Ok(answer);
            }
        }
        Err(CallError::Transport("the stream ended without an answer".into()))
    }

    /// The next item; `None` after `Done` or an error. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Result<StreamItem, CallError>> {
        let reading = self.incoming.as_mut()?.next();
        let message = match self.deadline {
            None => reading.await,
            Some((at, limit)) => match tokio::time::timeout_at(at, reading).await {
                Ok(message) => message,
                Err(_) => Err(CallError::Timeout(limit)),
            },
        };
        let item = message.and_then(|message| StreamItem::read(&message, self.id));
        if item.as_ref().map_or(true, StreamItem::is_last) {
            self.incoming = None;
        }
        Some(item)
    }
}
