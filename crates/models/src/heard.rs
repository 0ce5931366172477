//! What was decoded of an answer: pieces for whoever listens, and the whole in its order.

use std::collections::VecDeque;

use nexus_core::message::{Part, Stop, StopReason, Thought};
use nexus_core::provider::{Answer, ProviderError, ProviderEvent};
use nexus_core::usage::{Cost, Usage};

use super::bounds::Bounds;
use super::calls::{Calls, Ending};

/// What was decoded of an answer so far.
#[derive(Default)]
pub(super) struct Heard {
    /// What was not yet asked for.
    ready: VecDeque<Result<ProviderEvent, ProviderError>>,
    /// In the order in which they began.
    pieces: Vec<Piece>,
    /// Held back until the answer is complete.
    pub calls: Calls,
    /// Bytes of text and thoughts.
    text_bytes: usize,
    /// Bytes that its decoder holds back until it has all of what they belong to.
    pub held_bytes: usize,
    /// What was counted so far.
    pub usage: Usage,
    told: Usage,
    /// Why the model stopped, once it has.
    pub stop: Option<Stop>,
    /// What the provider says it costs.
    pub cost: Option<Cost>,
}

enum Piece {
    Text(String),
    Thought(Thought),
    /// The call of this number.
    Call(usize),
}

impl Heard {
    /// A piece of the text, which may be empty.
    pub fn text(&mut self, text: String) {
        if !text.is_empty() {
            self.add_text(&text);
            self.ready.push_back(Ok(ProviderEvent::Text(text)));
        }
    }

    /// How likely the tokens of the text were that comes next.
    pub fn logprobs(&mut self, entries: Vec<serde_json::Value>) {
        self.text_bytes += entries.iter().map(|it| it.to_string().len()).sum::<usize>();
        self.ready.push_back(Ok(ProviderEvent::Logprobs(entries)));
    }

    /// Text that is not streamed: whether it stands is decided when the answer is complete.
    pub fn unsaid(&mut self, text: &str) {
        if !text.is_empty() {
            self.add_text(text);
        }
    }

    fn add_text(&mut self, text: &str) {
        self.text_bytes += text.len();
        match self.pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    /// Another text begins, where the wire tells texts apart.
    pub fn begin_text(&mut self) {
        self.pieces.push(Piece::Text(String::new()));
    }

    /// A piece of what the model thinks, which may be empty.
    pub fn think(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        self.text_bytes += text.len();
        match self.pieces.last_mut() {
            Some(Piece::Thought(thought)) if thought.payload.is_none() => {
                thought.text.push_str(&text);
            }
            _ => self.pieces.push(Piece::Thought(Thought { text: text.clone(), payload: None })),
        }
        self.ready.push_back(Ok(ProviderEvent::Reasoning(text)));
    }

    /// Another thought begins, where the wire tells thoughts apart.
    pub fn begin_thought(&mut self) {
        self.pieces.push(Piece::Thought(Thought::default()));
    }

    /// What only this wire can read of the last thought; of one without words, where there was none.
    pub fn seal(&mut self, payload: &serde_json::Value) {
        let payload: Box<str> = payload.to_string().into();
        self.text_bytes += payload.len();
        match self.pieces.last_mut() {
            Some(Piece::Thought(thought)) if thought.payload.is_none() => {
                thought.payload = Some(payload);
            }
            _ => {
                let thought = Thought { text: String::new(), payload: Some(payload) };
                self.pieces.push(Piece::Thought(thought));
            }
        }
    }

    /// Where the next piece will stand, for who has to come back to it.
    pub fn place(&self) -> usize {
        self.pieces.len()
    }

    /// As `seal`, of the thought that stands at this place.
    pub fn seal_at(&mut self, place: usize, payload: &serde_json::Value) {
        if let Some(Piece::Thought(thought)) = self.pieces.get_mut(place) {
            let payload: Box<str> = payload.to_string().into();
            self.text_bytes += payload.len();
            thought.payload = Some(payload);
        }
    }

    /// As `seal`, of the first thought, where the wire has one seal for all of them.
    pub fn seal_first(&mut self, payload: &serde_json::Value) {
        let first = self.pieces.iter_mut().find_map(|piece| match piece {
            Piece::Thought(thought) => Some(thought),
            _ => None,
        });
        let payload: Box<str> = payload.to_string().into();
        self.text_bytes += payload.len();
        match first {
            Some(thought) => thought.payload = Some(payload),
            None => {
                let thought = Thought { text: String::new(), payload: Some(payload) };
                self.pieces.insert(0, Piece::Thought(thought));
            }
        }
    }

    /// As `seal`, of a thought that stands alone whatever came before it.
    pub fn seal_alone(&mut self, payload: &serde_json::Value) {
        self.begin_thought();
        self.seal(payload);
    }

    /// A fragment of the call at `index`; see [`Calls::add`].
    pub fn call(
        &mut self,
        index: Option<usize>,
        id: Option<String>,
        name: Option<String>,
        arguments: &str,
    ) {
        let before = self.calls.len();
        self.calls.add(index, id, name, arguments);
        self.pieces.extend((before..self.calls.len()).map(Piece::Call));
    }

    /// The model has stopped.
    pub fn stopped(&mut self, reason: StopReason) {
        self.stop.get_or_insert(Stop::from(reason));
    }

    /// The model has stopped for a reason that is not known.
    pub fn stopped_oddly(&mut self, word: &str) {
        let details = Some(serde_json::json!({ "raw": word }));
        self.stop.get_or_insert(Stop { reason: StopReason::Other, details });
    }

    pub fn next(&mut self) -> Option<Result<ProviderEvent, ProviderError>> {
        self.ready.pop_front()
    }

    /// Lets those who listen know what was counted, where that is news.
    pub fn tell_usage(&mut self) {
        if self.usage != self.told {
            self.told = self.usage;
            self.ready.push_back(Ok(ProviderEvent::Usage(self.usage)));
        }
    }

    pub fn fail(&mut self, error: ProviderError) {
        self.ready.push_back(Err(error));
    }

    /// The answer is complete. `limit` is the most tokens it was allowed to have.
    pub fn finish(&mut self, limit: Option<u32>) {
        let stop = self.stop.take().unwrap_or_default();
        let at_limit = limit.is_some_and(|limit| self.usage.output >= limit.into());
        let ending = if stop.reason.is_cut() || at_limit { Ending::Cut } else { Ending::Whole };
        let mut calls: Vec<_> = self.calls.take(ending).map(Some).collect();
        let part = |piece: Piece| match piece {
            Piece::Text(text) => (!text.is_empty()).then_some(Part::Text(text)),
            Piece::Thought(thought) => {
                let says = !thought.text.is_empty() || thought.payload.is_some();
                says.then_some(Part::Thought(thought))
            }
            Piece::Call(number) => calls.get_mut(number).and_then(Option::take).map(Part::Call),
        };
        let parts = std::mem::take(&mut self.pieces).into_iter().filter_map(part).collect();
        let answer = Answer { parts, stop, usage: self.usage, cost: self.cost };
        self.ready.push_back(Ok(ProviderEvent::Done(Box::new(answer))));
    }

    /// What was said so far.
    pub fn bytes(&self) -> usize {
        self.text_bytes + self.held_bytes + self.calls.bytes()
    }

    /// Refuses what is more than an answer may be.
    pub fn check(&self, bounds: &Bounds) -> Result<(), ProviderError> {
        if self.bytes() > bounds.answer_bytes_max as usize {
            return Err(over("the answer", bounds.answer_bytes_max));
        }
        if self.calls.len() > bounds.calls_max as usize {
            let most = bounds.calls_max;
            return Err(ProviderError::Broken(format!(
                "the answer has more than {most} tool calls"
            )));
        }
        Ok(())
    }
}

pub(super) fn over(what: &str, bytes_max: u32) -> ProviderError {
    ProviderError::Broken(format!("{what} is larger than {bytes_max} bytes"))
}
