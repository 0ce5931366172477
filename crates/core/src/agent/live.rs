//! What the turn of an agent has come to while it runs, for whoever looks.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Instant;

use jiff::Timestamp;

use crate::lock;
use crate::message::ToolCall;
use crate::watch::Ended;

/// What is shown of what a turn said, where it said more: the end of it.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

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
    open_calls: OpenCalls,
    ended: Option<Ended>,
}

/// Calls without a result, in their order. A step may have thousands, and models give several the same id.
#[derive(Default)]
struct OpenCalls {
    calls: BTreeMap<u64, ToolCall>,
    numbers: HashMap<String, VecDeque<u64>>,
    last: u64,
}

impl OpenCalls {
    fn add(&mut self, call: ToolCall) {
        self.last += 1;
        self.numbers.entry(call.id.clone()).or_default().push_back(self.last);
        self.calls.insert(self.last, call);
    }

    fn remove(&mut self, id: &str) {
        let Some(numbers) = self.numbers.get_mut(id) else { return };
        if let Some(number) = numbers.pop_front() {
            self.calls.remove(&number);
        }
        if numbers.is_empty() {
            self.numbers.remove(id);
        }
    }
}

/// A turn as of one moment.
#[derive(Clone, Debug, Default)]
pub struct LiveTurn {
    pub started_at: Option<Timestamp>,
    /// From 1; 0 before the first.
    pub step: u32,
    /// Characters of what was said in this step.
    pub offset: u64,
    /// What was said in all steps; where that is more than 1 MiB, its end.
    pub text: String,
    /// Tool calls without a result.
    pub open_calls: Vec<ToolCall>,
}

impl Live {
    /// The turn as it is now.
    pub fn look(&self) -> LiveTurn {
        let state = lock(&self.0);
        let from = state.text.len().saturating_sub(TEXT_BYTES_MAX);
        let from = state.text.ceil_char_boundary(from);
        LiveTurn {
            started_at: state.began.map(|(at, _)| at),
            step: state.step,
            offset: state.said,
            text: state.text[from..].to_owned(),
            open_calls: state.open_calls.calls.values().cloned().collect(),
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
        lock(&self.0).open_calls.add(call.clone());
    }

    pub(crate) fn call_ended(&self, id: &str) {
        lock(&self.0).open_calls.remove(id);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(live: &Live) -> Vec<String> {
        live.look().open_calls.iter().map(|call| format!("{}{}", call.id, call.name)).collect()
    }

    #[test]
    fn calls_of_one_id_end_in_their_order() {
        let live = Live::default();
        for (id, name) in [("a", "1"), ("b", "2"), ("a", "3")] {
            live.call(&ToolCall::new(id, name, json!({})));
        }
        live.call_ended("a");
        assert_eq!(open(&live), ["b2", "a3"]);
        live.call_ended("nobody's");
        live.call_ended("a");
        live.call_ended("a");
        assert_eq!(open(&live), ["b2"]);
    }

    #[test]
    fn the_end_of_a_long_text_is_shown_just_under_and_just_over() {
        let live = Live::default();
        live.begin_step();
        live.say(&"ä".repeat(TEXT_BYTES_MAX / 2));
        assert_eq!(live.look().text.len(), TEXT_BYTES_MAX);
        assert_eq!(live.say("x"), (1, TEXT_BYTES_MAX as u64 / 2, TEXT_BYTES_MAX as u64 / 2 + 1));
        // Whole characters.
        let shown = live.look().text;
        assert_eq!(shown.len(), TEXT_BYTES_MAX - 1);
        assert!(shown.ends_with("äx"));
    }
}
