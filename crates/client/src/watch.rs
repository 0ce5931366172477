//! What happens to agents, as a `watch` tells it.

use nexus_protocol::CallError;
use nexus_protocol::watch::{WATCH_EVENT, WatchEvent, WatchResult};
use serde_json::value::RawValue;

use crate::answer;
use crate::incoming::{Incoming, params};

/// An open watch. Dropping it ends the watch, and nothing else.
pub struct WatchStream {
    id: u64,
    incoming: Option<Incoming>,
}

#[derive(Debug)]
pub enum WatchItem {
    Event {
        event: Box<WatchEvent>,
        /// As the server wrote it.
        raw: Box<RawValue>,
    },
    /// A kind of event that this client does not know yet.
    Unknown(Box<RawValue>),
    /// The watch ended; nothing comes after it.
    Done(WatchResult),
}

impl WatchStream {
    pub(crate) fn new(id: u64, incoming: Incoming) -> Self {
        Self { id, incoming: Some(incoming) }
    }

    /// The next item; `None` after `Done` or an error. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Result<WatchItem, CallError>> {
        let message = self.incoming.as_mut()?.next().await;
        let item = message.and_then(|message| item(&message, self.id));
        if matches!(item, Ok(WatchItem::Done(_)) | Err(_)) {
            self.incoming = None;
        }
        Some(item)
    }
}

fn item(message: &[u8], id: u64) -> Result<WatchItem, CallError> {
    let message = answer::envelope(message)?;
    match message.method.as_deref() {
        None => answer::result(message, id).map(WatchItem::Done),
        Some(WATCH_EVENT) => {
            let raw: Box<RawValue> = params(&message)?;
            Ok(match serde_json::from_str(raw.get()) {
                Ok(event) => WatchItem::Event { event, raw },
                Err(_) => WatchItem::Unknown(raw),
            })
        }
        Some(_) => params(&message).map(WatchItem::Unknown),
    }
}
