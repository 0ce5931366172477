//! A turn's events as notifications on the caller's connection.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// One open stream: `stream_start`, then what the sink is told, then `stream_end`.
pub struct Stream(Arc<State>);

struct State {
    id: String,
    peer: Arc<Peer>,
    /// Chunks sent so far.
    chunks: AtomicU64,
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
        let end = StreamEnd {
            stream_id: (&*self.0.id).into(),
            total_chunks: self.0.chunks.load(Ordering::Relaxed),
        };
        let _ = self.0.peer.outbox.send(encode(STREAM_END, &end)).await;
    }
}

/// The end of a stream that a turn writes to.
pub struct Sink(Arc<State>);

impl EventSink for Sink {
    fn event(&mut self, event: TurnEvent<'_>) -> bool {
        let state = &*self.0;
        let stream_id = Cow::from(&*state.id);
        let message = match event {
            TurnEvent::Text(chunk) => {
                let sequence = state.chunks.load(Ordering::Relaxed) + 1;
                encode(STREAM_DATA, &StreamData { stream_id, chunk: chunk.into(), sequence })
            }
            TurnEvent::ToolCall(call) => {
                let (id, name, arguments) =
                    (call.id.clone(), call.name.clone(), call.arguments.clone());
                encode(
                    STREAM_EVENT,
                    &StreamEvent { stream_id, event: Event::ToolCall { id, name, arguments } },
                )
            }
            TurnEvent::ToolResult { id, content } => {
                let event = Event::ToolResult { id: id.into(), content: content.into() };
                encode(STREAM_EVENT, &StreamEvent { stream_id, event })
            }
            TurnEvent::Usage(usage) => {
                let (input_tokens, output_tokens, cached_tokens) =
                    (usage.input, usage.output, usage.cached);
                let event = Event::Usage { input_tokens, output_tokens, cached_tokens };
                encode(STREAM_EVENT, &StreamEvent { stream_id, event })
            }
        };
        if state.peer.outbox.try_send(message).is_err() {
            state.overrun.cancel();
            return false;
        }
        if matches!(event, TurnEvent::Text(_)) {
            state.chunks.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
}

fn encode(method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    if let Err(error) = envelope::write_notification(&mut out, method, params) {
        tracing::error!(%error, "a notification could not be encoded");
    }
    out
}
