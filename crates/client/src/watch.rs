//! What happens to agents, as a `watch` tells it.

use bytes::BytesMut;
use nexus_protocol::CallError;
use nexus_protocol::answer::{self, Item as _, WatchItem};
use nexus_protocol::api::Happenings;
use serde_json::value::RawValue;

use crate::incoming::Incoming;

/// An open watch. Dropping it ends the watch, and nothing else.
pub struct WatchStream {
    id: u64,
    incoming: Option<Incoming>,
    /// The message of the last item.
    message: BytesMut,
}

impl WatchStream {
    pub(crate) fn new(id: u64, incoming: Incoming) -> Self {
        Self { id, incoming: Some(incoming), message: BytesMut::new() }
    }

    /// The next item; `None` after `Done` or an error. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Result<WatchItem, CallError>> {
        let message = self.incoming.as_mut()?.next().await;
        let item = message.and_then(|message| {
            self.message = message;
            WatchItem::read(&self.message, self.id)
        });
        if item.as_ref().map_or(true, WatchItem::is_last) {
            self.incoming = None;
        }
        Some(item)
    }

    /// The last event as the server wrote it.
    pub fn raw(&self) -> Result<&RawValue, CallError> {
        answer::params(&answer::envelope(&self.message)?)
    }
}

impl Happenings for WatchStream {
    async fn next(&mut self) -> Option<Result<WatchItem, CallError>> {
        self.next().await
    }
}
