//! What happens to agents, as a `watch` tells it.

use nexus_protocol::CallError;
use nexus_protocol::answer::{Item as _, WatchItem};
use nexus_protocol::api::Happenings;

use crate::incoming::Incoming;

/// An open watch. Dropping it ends the watch, and nothing else.
pub struct WatchStream {
    id: u64,
    incoming: Option<Incoming>,
}

impl WatchStream {
    pub(crate) fn new(id: u64, incoming: Incoming) -> Self {
        Self { id, incoming: Some(incoming) }
    }

    /// The next item; `None` after `Done` or an error. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Result<WatchItem, CallError>> {
        let message = self.incoming.as_mut()?.next().await;
        let item = message.and_then(|message| WatchItem::read(&message, self.id));
        if item.as_ref().map_or(true, WatchItem::is_last) {
            self.incoming = None;
        }
        Some(item)
    }
}

impl Happenings for WatchStream {
    async fn next(&mut self) -> Option<Result<WatchItem, CallError>> {
        self.next().await
    }
}
