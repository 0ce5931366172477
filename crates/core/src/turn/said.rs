//! What a turn has said so far, and who listens.

use super::TurnError;
use crate::events::{EventSink, TurnEvent};
use crate::message::ToolCall;
use crate::provider::ProviderError;

/// What the models of one turn may say together, text and tool calls. A provider bounds each of its answers; a turn has
/// many, and all of them are kept until it ends.
const TURN_BYTES_MAX: usize = 32 << 20;

/// The text of the turn so far, and who listens. The pieces told to the sink, joined, are the text.
pub(super) struct Said {
    text: String,
    step_start: usize,
    /// The step goes on in the middle of the one before it.
    joins: bool,
    /// Bytes of the tool calls.
    calls_bytes: usize,
    /// Something that was thought was told, and not that this is over.
    thinking: bool,
    thoughts_shown: bool,
    sink: Option<Box<dyn EventSink>>,
}

impl Said {
    pub fn new(sink: Option<Box<dyn EventSink>>, thoughts_shown: bool) -> Self {
        Self {
            text: String::new(),
            step_start: 0,
            joins: false,
            calls_bytes: 0,
            thinking: false,
            thoughts_shown,
            sink,
        }
    }

    pub fn is_watched(&self) -> bool {
        self.sink.is_some()
    }

    /// Whether the turn may go on.
    pub fn check(&self) -> Result<(), TurnError> {
        if self.text.len() + self.calls_bytes <= TURN_BYTES_MAX {
            return Ok(());
        }
        let reason =
            format!("its answers in this turn are together larger than {TURN_BYTES_MAX} bytes");
        Err(ProviderError::Broken(reason).into())
    }

    pub fn call(&mut self, call: &ToolCall) {
        self.calls_bytes += call.text_bytes();
        self.tell(TurnEvent::ToolCall(call));
    }

    pub fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// What comes now is another step, or the rest of the last one.
    pub fn begin_step(&mut self, joins: bool) {
        self.step_start = self.text.len();
        self.joins = joins;
    }

    pub fn step_text(&self) -> &str {
        &self.text[self.step_start..]
    }

    pub fn say(&mut self, piece: &str) {
        // The words of two steps would run together without a break between them.
        if self.step_start > 0 && self.step_start == self.text.len() && !self.joins {
            self.text.push_str("\n\n");
            self.step_start = self.text.len();
            self.tell(TurnEvent::Text("\n\n"));
        }
        self.text.push_str(piece);
        self.tell(TurnEvent::Text(piece));
    }

    pub fn think(&mut self, piece: &str) {
        if self.thoughts_shown {
            self.thinking = true;
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

    pub fn tell(&mut self, event: TurnEvent<'_>) {
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

    #[test]
    fn what_a_turn_may_say_just_under_and_just_over() {
        let mut said = Said::new(None, true);
        said.call(&ToolCall::new("c", "tool", json!([1])));
        said.say(&"x".repeat(TURN_BYTES_MAX - "tool[1]".len()));
        assert!(said.check().is_ok());
        said.say("x");
        let error = said.check().unwrap_err().to_string();
        assert!(error.contains("are together larger than 33554432 bytes"), "{error}");
    }

    #[test]
    fn the_rest_of_a_cut_answer_follows_without_a_blank_line() {
        let mut said = Said::new(None, true);
        for (piece, joins) in [("one", false), ("two", false), ("rest", true)] {
            said.begin_step(joins);
            said.say(piece);
        }
        assert_eq!(said.step_text(), "rest");
        assert_eq!(said.take_text(), "one\n\ntworest");
    }
}
