//! A turn's events as notifications on the caller's connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nexus_core::turn::{EventSink, TurnEvent};
use nexus_protocol::stream::{
    Event, STREAM_DATA, STREAM_END, STREAM_EVENT, STREAM_START, StreamData, StreamEnd, StreamEvent,
    StreamStart,
};
use nexus_protocol::{RpcError, envelope};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::dispatcher::{Cx, Peer};
use crate::handlers::approval_entry;

/// One open stream: `stream_start`, then what the sink is told, then `stream_end`.
pub struct Stream(Arc<State>);

struct State {
    id: String,
    peer: Arc<Peer>,
    /// Chunks sent so far.
    chunks: AtomicU64,
    /// Text that found the queue full. It leaves as one chunk when there is room again, so that a model that is faster
    /// than the line costs fewer chunks and not the stream.
    held: Mutex<String>,
    /// Cancelled when the reader fell behind and the queue was full.
    overrun: CancellationToken,
}

impl Stream {
    /// Opens a stream where the caller's connection can carry one.
    pub async fn open(cx: &Cx) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let peer = cx.caller.peer.clone()?;
        let state = State {
            id: format!("stream_{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            peer,
            chunks: AtomicU64::new(0),
            held: Mutex::default(),
            overrun: CancellationToken::new(),
        };
        let task_id = cx.request_id.as_ref().and_then(|id| serde_json::from_str(id.as_json()).ok());
        let task_id = task_id.unwrap_or(RawValue::NULL);
        let start = StreamStart { stream_id: (&*state.id).into(), task_id };
        // A peer that is gone is noticed by whoever waits for the turn.
        let _ = state.peer.outbox.send(encode(STREAM_START, &start)).await;
        Some(Self(Arc::new(state)))
    }

    pub fn sink(&self) -> Sink {
        Sink(self.0.clone())
    }

    /// Resolves when the peer is gone.
    pub async fn closed(&self) {
        self.0.peer.closed.cancelled().await;
    }

    /// Resolves when the reader fell too far behind.
    pub async fn overrun(&self) {
        self.0.overrun.cancelled().await;
    }

    pub fn overrun_error(&self) -> RpcError {
        RpcError::unavailable(
            "The stream's reader is too slow",
            "The stream was ended because its queue was full; the turn goes on.",
            &["Read the answer with get_messages.", "Send without stream."],
        )
    }

    pub async fn end(self) {
        let held = std::mem::take(&mut *self.0.held());
        if !held.is_empty() && !self.0.overrun.is_cancelled() {
            let _ = self.0.peer.outbox.send(self.0.chunk(&held)).await;
        }
        let end = StreamEnd {
            stream_id: (&*self.0.id).into(),
            total_chunks: self.0.chunks.load(Ordering::Relaxed),
        };
        let _ = self.0.peer.outbox.send(encode(STREAM_END, &end)).await;
    }
}

/// Text that may be held back for a reader. More than any queue of chunks would hold: whoever is this far behind has
/// stopped reading.
const HELD_BYTES_MAX: usize = 1024 * 1024;

impl State {
    /// The next chunk, counted.
    fn chunk(&self, text: &str) -> Vec<u8> {
        let sequence = self.chunks.fetch_add(1, Ordering::Relaxed) + 1;
        encode(
            STREAM_DATA,
            &StreamData { stream_id: (&*self.id).into(), chunk: text.into(), sequence },
        )
    }

    /// Sends text, or holds it back. False when too much is held back already.
    fn text(&self, piece: &str) -> bool {
        let mut held = self.held();
        let Ok(place) = self.peer.outbox.try_reserve() else {
            held.push_str(piece);
            return held.len() <= HELD_BYTES_MAX && !self.peer.outbox.is_closed();
        };
        if held.is_empty() {
            place.send(self.chunk(piece));
        } else {
            held.push_str(piece);
            place.send(self.chunk(&held));
            held.clear();
        }
        true
    }

    /// Sends what is not text, after the text before it. False when there is no room.
    fn event(&self, event: Event) -> bool {
        if !self.held().is_empty() && !self.text("") {
            return false;
        }
        let event = StreamEvent { stream_id: (&*self.id).into(), event };
        self.held().is_empty() && self.peer.outbox.try_send(encode(STREAM_EVENT, &event)).is_ok()
    }

    fn held(&self) -> MutexGuard<'_, String> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a stream that a turn writes to.
pub struct Sink(Arc<State>);

impl EventSink for Sink {
    fn event(&mut self, event: TurnEvent<'_>) -> bool {
        let sent = match event {
            TurnEvent::Text(piece) => self.0.text(piece),
            TurnEvent::ToolCall(call) => self.0.event(Event::ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            }),
            TurnEvent::ToolResult { id, content, refused_by } => self.0.event(Event::ToolResult {
                id: id.into(),
                content: content.into(),
                refused_by: refused_by.map(Into::into),
            }),
            TurnEvent::ApprovalRequested(record) => {
                let approval = approval_entry(record.clone());
                self.0.event(Event::ApprovalRequested { approval })
            }
            TurnEvent::Usage(usage) => self.0.event(Event::Usage {
                input_tokens: usage.input,
                output_tokens: usage.output,
                cached_tokens: usage.cached,
            }),
        };
        if !sent {
            self.0.overrun.cancel();
        }
        sent
    }
}

fn encode(method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    if let Err(error) = envelope::write_notification(&mut out, method, params) {
        tracing::error!(%error, "a notification could not be encoded");
    }
    out
}
