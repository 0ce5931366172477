//! What a turn has said so far, and who listens.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::TurnError;
use crate::agent::Live;
use crate::events::{EventSink, TurnEvent};
use crate::gate::ToolOutcome;
use crate::message::ToolCall;
use crate::name::{AgentId, TurnId};
use crate::progress::ToolProgress;
use crate::provider::ProviderError;
use crate::tool::Onlookers;
use crate::watch::{Event, Piece, Watches};

/// What the models of one turn may say together, text and tool calls. A provider bounds each of its answers; a turn has
/// many, and all of them are kept until it ends.
const TURN_BYTES_MAX: usize = 32 << 20;

/// Between the words of two steps.
const STEPS_PARTED: &str = "\n\n";

/// The text of the turn so far, and who listens. The pieces told to the sink, joined, are the text.
pub(super) struct Said {
    /// Where the text is, and where others look at it.
    live: Arc<Live>,
    watched: Arc<Watched>,
    /// A step has begun that does not go on in the middle of the one before it, and has said nothing.
    parts: bool,
    /// Bytes of the tool calls.
    calls_bytes: usize,
    /// Something that was thought was told, and not that this is over.
    thinking: bool,
    thoughts_shown: bool,
    sink: Option<Box<dyn EventSink>>,
}

/// The way from a turn to those who watch its agent.
pub(super) struct Watched {
    pub watches: Arc<Watches>,
    /// The name its agent has now.
    pub agent: Box<dyn Fn() -> AgentId + Send + Sync>,
    pub turn: TurnId,
}

impl Watched {
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if self.watches.is_watched() {
            self.watches.tell(&(self.agent)(), Some(&self.turn), event);
        }
    }

    /// Tells what the sink of the turn is told, but for its text, which has a place of its own here, and for what it asks:
    /// that is told where it is asked.
    fn tell_event(&self, event: &TurnEvent<'_>) {
        if !self.watches.is_watched() {
            return;
        }
        let event = match event {
            TurnEvent::ToolCall(call) => Event::ToolCall((*call).clone()),
            TurnEvent::ToolProgress { id, progress } => {
                Event::ToolProgress { id: (*id).into(), progress: (*progress).clone() }
            }
            TurnEvent::ToolResult { id, content, failed, lasted, refused_by, change } => {
                Event::ToolResult {
                    id: (*id).into(),
                    content: (*content).into(),
                    failed: *failed,
                    lasted: *lasted,
                    refused_by: *refused_by,
                    change: change.cloned(),
                }
            }
            TurnEvent::Waiting(waiting) => Event::Waiting((*waiting).clone()),
            TurnEvent::Fallback { from, to, reason } => {
                Event::Fallback { from: (*from).into(), to: (*to).into(), reason: (*reason).into() }
            }
            TurnEvent::Usage(usage) => Event::Usage(*usage),
            TurnEvent::Text(_)
            | TurnEvent::Reasoning(_)
            | TurnEvent::ReasoningEnd { .. }
            | TurnEvent::ApprovalRequested(_) => return,
        };
        self.tell(|| event);
    }

    fn tell_piece(
        &self,
        kind: fn(Piece) -> Event,
        (step, offset, end): (u32, u64, u64),
        text: &str,
    ) {
        if self.watches.wants_deltas() {
            self.tell(|| kind(Piece { step, offset, end, text: text.into() }));
        }
    }
}

/// Those who see one call of a turn: whoever watches its agent, and who reads the turn's stream.
pub(super) struct WatchedCall {
    pub watched: Arc<Watched>,
    pub id: String,
    /// The turn has a stream.
    pub streamed: bool,
    /// To the turn, which alone tells its stream.
    pub reports: mpsc::Sender<Report>,
}

/// How far the call of that id is.
pub(super) type Report = (String, ToolProgress);

impl Onlookers for WatchedCall {
    /// A stream of the turn has only its own events, which say nothing of files: a diff is made for those who watch.
    fn want_changes(&self) -> bool {
        self.watched.watches.is_watched()
    }

    fn want_output(&self) -> bool {
        self.watched.watches.wants_deltas()
    }

    fn show_output(&self, text: String) {
        self.watched.tell(|| Event::ToolOutput { id: self.id.clone(), text });
    }

    fn want_progress(&self) -> bool {
        self.streamed || self.watched.watches.is_watched()
    }

    /// What finds no place says nothing that the next does not.
    fn show_progress(&self, progress: ToolProgress) {
        let _ = self.reports.try_send((self.id.clone(), progress));
    }
}

impl Said {
    pub fn new(
        live: Arc<Live>,
        watched: Arc<Watched>,
        sink: Option<Box<dyn EventSink>>,
        thoughts_shown: bool,
    ) -> Self {
        let (parts, thinking) = (false, false);
        Self { live, watched, parts, calls_bytes: 0, thinking, thoughts_shown, sink }
    }

    /// Whether somebody waits for the words.
    pub fn is_watched(&self) -> bool {
        self.sink.is_some()
    }

    /// Whether the turn may go on.
    pub fn check(&self) -> Result<(), TurnError> {
        if self.live.lengths().0 + self.calls_bytes <= TURN_BYTES_MAX {
            return Ok(());
        }
        let reason =
            format!("its answers in this turn are together larger than {TURN_BYTES_MAX} bytes");
        Err(ProviderError::Broken(reason).into())
    }

    pub fn call(&mut self, call: &ToolCall) {
        self.calls_bytes += call.text_bytes();
        self.live.call(call);
        self.tell(TurnEvent::ToolCall(call));
    }

    /// What came of a call.
    pub fn result(&mut self, call: &ToolCall, outcome: &ToolOutcome, lasted: Duration) {
        let ToolOutcome { content, refused_by, failed, change, .. } = outcome;
        let (id, failed, refused_by) = (&*call.id, *failed, *refused_by);
        self.live.call_ended(id);
        let change = change.as_ref();
        self.tell(TurnEvent::ToolResult { id, content, failed, lasted, refused_by, change });
    }

    /// How far calls are that are under way.
    pub fn progress(&mut self, (id, progress): &Report) {
        self.tell(TurnEvent::ToolProgress { id, progress });
    }

    pub fn take_text(&mut self) -> String {
        self.live.take_text()
    }

    /// What comes now is another step, or the rest of the last one.
    pub fn begin_step(&mut self, joins: bool) {
        self.live.begin_step();
        self.parts = !joins;
    }

    pub fn step_text(&self) -> String {
        self.live.step_text()
    }

    /// Bytes of what was said in this step.
    pub fn step_bytes(&self) -> usize {
        self.live.lengths().1
    }

    pub fn say(&mut self, piece: &str) {
        // The words of two steps would run together without a break between them.
        if std::mem::take(&mut self.parts) && self.live.lengths().0 > 0 {
            self.live.part(STEPS_PARTED);
            self.tell(TurnEvent::Text(STEPS_PARTED));
        }
        let place = self.live.say(piece);
        self.watched.tell_piece(Event::Delta, place, piece);
        self.tell(TurnEvent::Text(piece));
    }

    pub fn think(&mut self, piece: &str) {
        if self.thoughts_shown {
            self.thinking = true;
            let place = self.live.think(piece);
            self.watched.tell_piece(Event::Reasoning, place, piece);
            self.tell(TurnEvent::Reasoning(piece));
        }
    }

    /// Tells that what was thought is over, if anything was.
    pub fn end_thinking(&mut self, tokens: u64) {
        if std::mem::take(&mut self.thinking) {
            let tokens = Some(tokens).filter(|tokens| *tokens > 0);
            self.tell(TurnEvent::ReasoningEnd { tokens });
        }
    }

    /// A wait for who reads along, where much waits for them.
    pub fn crowded(&self) -> Option<BoxFuture<'static, ()>> {
        self.sink.as_ref()?.crowded()
    }

    pub fn tell(&mut self, event: TurnEvent<'_>) {
        self.watched.tell_event(&event);
        if let Some(sink) = &mut self.sink
            && !sink.event(event)
        {
            self.sink = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said() -> Said {
        let watched = Watched {
            watches: Arc::default(),
            agent: Box::new(AgentId::default_agent),
            turn: TurnId::random(),
        };
        Said::new(Arc::default(), Arc::new(watched), None, true)
    }

    #[test]
    fn what_a_turn_may_say_just_under_and_just_over() {
        let mut said = said();
        said.call(&ToolCall::new("c", "tool", json!([1])));
        said.say(&"x".repeat(TURN_BYTES_MAX - "tool[1]".len()));
        assert!(said.check().is_ok());
        said.say("x");
        let error = said.check().unwrap_err().to_string();
        assert!(error.contains("are together larger than 33554432 bytes"), "{error}");
    }

    #[test]
    fn the_rest_of_a_cut_answer_follows_without_a_blank_line() {
        let mut said = said();
        for (piece, joins) in [("one", false), ("two", false), ("rest", true)] {
            said.begin_step(joins);
            said.say(piece);
        }
        assert_eq!(said.step_text(), "rest");
        assert_eq!(said.take_text(), "one\n\ntworest");
    }
}
