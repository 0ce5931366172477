//! A turn's events as notifications on the caller's connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nexus_core::events::{EventSink, TurnEvent};
use nexus_core::plans::Sinks;
use nexus_core::progress::ToolProgress;
use nexus_protocol::stream::{
    Event, STREAM_DATA, STREAM_END, STREAM_EVENT, STREAM_START, StreamData, StreamEnd, StreamEvent,
    StreamStart,
};
use nexus_protocol::{Id, RpcError};
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::begin::worker_died;
use crate::cx::Cx;
use crate::dispatcher::Caller;
use crate::handlers::approval_entry;
use crate::handlers::usage::usage_entry;
use crate::outbox::{Lane, Takes, notification};

/// One stream: `stream_start` when it is announced, then what the sink is told, then `stream_end`.
pub struct Stream {
    state: Arc<State>,
    /// The call has a key: whoever hangs up may come back for its answer.
    keyed: bool,
}

struct State {
    id: Arc<str>,
    /// The caller's own name of the call.
    task_id: Box<RawValue>,
    lane: Lane,
    announced: Once,
}

impl State {
    /// Says `stream_start`, unless that was said. Whoever sees it may count on what it names: the turn can be cancelled.
    fn announce(&self) -> &Lane {
        self.announced.call_once(|| {
            let start = StreamStart { stream_id: (&*self.id).into(), task_id: &self.task_id };
            self.lane.put(notification(STREAM_START, &start));
        });
        &self.lane
    }
}

impl Stream {
    /// Opens a stream where the caller's connection can carry one.
    pub fn open(caller: &Caller, request_id: Option<&Id>) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let peer = caller.peer.clone()?;
        let id: Arc<str> = format!("stream_{}", NEXT.fetch_add(1, Ordering::Relaxed)).into();
        let stream_id = id.clone();
        let lane = Lane::open(peer, move |text, sequence| {
            let stream_id = (&*stream_id).into();
            notification(STREAM_DATA, &StreamData { stream_id, chunk: text.into(), sequence })
        });
        let task_id = request_id.and_then(|id| serde_json::from_str(id.as_json()).ok());
        let task_id = task_id.unwrap_or(RawValue::NULL).to_owned();
        let state = State { id, task_id, lane, announced: Once::new() };
        Some(Self { state: Arc::new(state), keyed: false })
    }

    /// The stream of a call that may have asked for one.
    pub fn wanted(cx: &Cx, wanted: Option<bool>) -> Option<Self> {
        let open = (wanted == Some(true)).then(|| Self::open(&cx.caller, cx.request_id.as_ref()));
        Some(Self { keyed: cx.keyed, ..open.flatten()? })
    }

    /// Says that the call is under way.
    pub fn announce(&self) {
        self.state.announce();
    }

    pub fn sink(&self) -> Sink {
        Sink(self.state.clone())
    }

    /// The same for a turn; none where nobody takes what it would be told.
    pub fn boxed_sink(&self) -> Option<Box<dyn EventSink>> {
        (self.state.lane.takes() != Takes::Nothing).then(|| Box::new(self.sink()) as _)
    }

    /// Sinks for work that takes several turns.
    pub fn sinks(&self) -> Sinks {
        let state = self.state.clone();
        Arc::new(move || Box::new(Sink(state.clone())))
    }

    /// Resolves when the peer is gone.
    async fn closed(&self) {
        self.state.lane.closed().await;
    }

    /// Resolves when the reader fell too far behind.
    async fn overrun(&self) {
        self.state.lane.overrun().await;
    }

    fn overrun_error(&self) -> RpcError {
        RpcError::unavailable(
            "The stream's reader is too slow",
            "The stream was ended because too much of it waited, or waited too long; the turn goes on.",
            &["Read the answer with get_messages.", "Send without stream."],
        )
        .with("scope", json!("stream"))
    }

    pub fn end(self) {
        self.state.announce().put_last(|total_chunks| {
            notification(
                STREAM_END,
                &StreamEnd { stream_id: (&*self.state.id).into(), total_chunks },
            )
        });
    }
}

/// Waits for work that may be streamed, and ends the stream. A peer that goes away takes the work along, by `cancel`, unless
/// it may come back for the answer; one that reads too slowly loses only its stream. The work goes on whatever becomes of
/// this.
pub async fn follow<T: Send + 'static>(
    stream: Option<Stream>,
    cancel: CancellationToken,
    work: impl Future<Output = Result<T, RpcError>> + Send + 'static,
) -> Result<T, RpcError> {
    let mut working = tokio::spawn(work.in_current_span());
    let died = |_| Err(worker_died());
    let Some(stream) = stream else { return working.await.unwrap_or_else(died) };
    stream.announce();
    let answer = tokio::select! {
        biased;
        // Before the answer: one that is whole must not follow a stream that is not.
        () = stream.overrun() => Err(stream.overrun_error()),
        answer = &mut working => answer.unwrap_or_else(died),
        () = stream.closed(), if !stream.keyed => {
            cancel.cancel();
            working.await.unwrap_or_else(died)
        }
    };
    stream.end();
    answer
}

/// The end of a stream that a turn writes to.
pub struct Sink(Arc<State>);

impl Sink {
    pub fn put(&self, event: Event) -> bool {
        let event = StreamEvent { stream_id: (&*self.0.id).into(), event };
        self.0.announce().put(notification(STREAM_EVENT, &event))
    }
}

impl EventSink for Sink {
    fn event(&mut self, event: TurnEvent<'_>) -> bool {
        match event {
            TurnEvent::Text(piece) => self.0.announce().put_text(piece),
            TurnEvent::ToolCall(call) => self.put(Event::ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            }),
            TurnEvent::ToolProgress { id, progress } => {
                let ToolProgress { progress, total, message } = progress.clone();
                self.put(Event::ToolProgress { id: id.into(), progress, total, message })
            }
            TurnEvent::ToolResult { id, content, refused_by, .. } => self.put(Event::ToolResult {
                id: id.into(),
                content: content.into(),
                refused_by: refused_by.map(Into::into),
            }),
            TurnEvent::ApprovalRequested(record) => {
                let approval = Box::new(approval_entry(record.clone()));
                self.put(Event::ApprovalRequested { approval })
            }
            TurnEvent::Reasoning(piece) => self.put(Event::Reasoning { text: piece.into() }),
            TurnEvent::ReasoningEnd { tokens } => self.put(Event::ReasoningEnd { tokens }),
            TurnEvent::Waiting(waiting) => self.put(Event::Waiting {
                reason: waiting.reason.into(),
                wait_ms: waiting.wait.and_then(|wait| u64::try_from(wait.as_millis()).ok()),
            }),
            TurnEvent::Fallback { from, to, reason } => self.put(Event::Fallback {
                from: from.into(),
                to: to.into(),
                reason: reason.into(),
            }),
            TurnEvent::Usage(usage) => self.put(Event::Usage(usage_entry(&usage))),
        }
    }

    fn crowded(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.lane.crowded().map(FutureExt::boxed)
    }
}
