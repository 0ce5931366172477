//! What the turn of an agent has come to while it runs, for whoever looks.

use std::sync::Mutex;
use std::time::Instant;

use jiff::Timestamp;

use crate::lock;
use crate::message::ToolCall;
use crate::watch::Ended;

/// A turn that waits or runs. It writes here what it says; others read.
#[derive(Default)]
pub struct Live(Mutex<State>);

#[derive(Default)]
struct State {
    began: Option<(Timestamp, Instant)>,
    text: String,
    step: u32,
    step_start: usize,
    /// Characters of what was said and of what was thought in this step.
    said: u64,
    thought: u64,
    open_calls: Vec<ToolCall>,
    ended: Option<Ended>,
}

/// A turn as of one moment.
#[derive(Clone, Debug, Default)]
pub struct LiveTurn {
    pub started_at: Option<Timestamp>,
    /// From 1; 0 before the first.
    pub step: u32,
    /// Characters of what was said in this step.
    pub offset: u64,
    /// What was said in all steps; no more than its end.
    pub text: String,
    /// Tool calls without a result.
    pub open_calls: Vec<ToolCall>,
}

impl Live {
    /// The turn as it is now, with at most `text_bytes_max` of what it said.
    pub fn look(&self, text_bytes_max: usize) -> LiveTurn {
        let state = lock(&self.0);
        let from = state.text.len().saturating_sub(text_bytes_max);
        let from = state.text.ceil_char_boundary(from);
        LiveTurn {
            started_at: state.began.map(|(at, _)| at),
            step: state.step,
            offset: state.said,
            text: state.text[from..].to_owned(),
            open_calls: state.open_calls.clone(),
        }
    }

    pub(super) fn begin(&self) {
        lock(&self.0).began = Some((crate::now(), Instant::now()));
    }

    /// How it ended, and since when it ran.
    pub(super) fn take_end(&self) -> (Option<Ended>, Option<Instant>) {
        let mut state = lock(&self.0);
        (state.ended.take(), state.began.map(|(_, began)| began))
    }

    pub(crate) fn end(&self, ended: Ended) {
        lock(&self.0).ended = Some(ended);
    }

    pub(crate) fn begin_step(&self) {
        let mut state = lock(&self.0);
        state.step += 1;
        state.step_start = state.text.len();
        (state.said, state.thought) = (0, 0);
    }

    /// Adds to the text what belongs to no step.
    pub(crate) fn part(&self, between: &str) {
        let mut state = lock(&self.0);
        state.text.push_str(between);
        state.step_start = state.text.len();
    }

    /// Adds to the text. Returns the step, and where in its text this begins and ends.
    pub(crate) fn say(&self, piece: &str) -> (u32, u64, u64) {
        let mut state = lock(&self.0);
        state.text.push_str(piece);
        let offset = state.said;
        state.said += piece.chars().count() as u64;
        (state.step, offset, state.said)
    }

    /// The same for what is thought, which is not kept.
    pub(crate) fn think(&self, piece: &str) -> (u32, u64, u64) {
        let mut state = lock(&self.0);
        let offset = state.thought;
        state.thought += piece.chars().count() as u64;
        (state.step, offset, state.thought)
    }

    pub(crate) fn call(&self, call: &ToolCall) {
        lock(&self.0).open_calls.push(call.clone());
    }

    pub(crate) fn call_ended(&self, id: &str) {
        let mut state = lock(&self.0);
        if let Some(place) = state.open_calls.iter().position(|call| call.id == id) {
            state.open_calls.remove(place);
        }
    }

    /// Bytes of the text, and of the part of this step.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let state = lock(&self.0);
        (state.text.len(), state.text.len() - state.step_start)
    }

    pub(crate) fn step_text(&self) -> String {
        let state = lock(&self.0);
        state.text[state.step_start..].to_owned()
    }

    pub(crate) fn take_text(&self) -> String {
        std::mem::take(&mut lock(&self.0).text)
    }
}
