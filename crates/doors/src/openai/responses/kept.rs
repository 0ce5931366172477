//! Answers that were given, for whoever asks for them again or goes on from them. They lie in memory, as the conversations
//! of agents do that they belong to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::super::ask::{Message, Part};
use crate::shares::greediest;

/// Answers that are kept, and bytes of them with all that was said before. Of the tree that has the most, the oldest is
/// forgotten first: whoever asks for many loses its own, and not those of others.
const ANSWERS_MAX: usize = 1_024;
const BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
pub struct Kept(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The oldest first.
    answers: VecDeque<Arc<Answer>>,
    bytes: usize,
}

pub struct Answer {
    /// Whose it is: nobody else finds it.
    visitor: String,
    /// Whose share it takes.
    tree: String,
    /// In the shape in which it was given.
    pub response: Value,
    pub instructions: Option<String>,
    /// All that was said up to it, and what it says; without `instructions`.
    pub said: Vec<Message>,
    bytes: usize,
}

/// Where an answer is put when it is there.
pub struct Keeping {
    pub kept: Arc<Kept>,
    pub visitor: String,
    pub tree: String,
    pub instructions: Option<String>,
    /// Up to what is answered.
    pub said: Vec<Message>,
}

impl Keeping {
    pub fn note(self, response: &Value, answer: Message) {
        let Self { kept, visitor, tree, instructions, mut said } = self;
        said.push(answer);
        let texts = instructions.as_ref().map_or(0, String::len) + response.to_string().len();
        let bytes = texts + said.iter().map(weight).sum::<usize>();
        let response = response.clone();
        kept.add(Answer { visitor, tree, response, instructions, said, bytes });
    }
}

impl Kept {
    pub fn find(&self, visitor: &str, id: &str) -> Option<Arc<Answer>> {
        self.lock().answers.iter().rev().find(|it| it.is(visitor, id)).cloned()
    }

    /// An item of an answer, by its name.
    pub fn item(&self, visitor: &str, id: &str) -> Option<Value> {
        let known = self.lock();
        let own = known.answers.iter().rev().filter(|it| it.visitor == visitor);
        let mut items = own.filter_map(|it| it.response["output"].as_array()).flatten();
        items.find(|item| item["id"] == id).cloned()
    }

    /// False when there is none of this name.
    pub fn forget(&self, visitor: &str, id: &str) -> bool {
        let mut known = self.lock();
        let place = known.answers.iter().rposition(|it| it.is(visitor, id));
        let forgotten = place.and_then(|place| known.answers.remove(place));
        known.bytes -= forgotten.as_ref().map_or(0, |it| it.bytes);
        forgotten.is_some()
    }

    fn add(&self, answer: Answer) {
        let mut known = self.lock();
        known.bytes += answer.bytes;
        known.answers.push_back(Arc::new(answer));
        while known.answers.len() > ANSWERS_MAX || known.bytes > BYTES_MAX {
            let by_bytes = known.bytes > BYTES_MAX;
            let shares = known.answers.iter().map(|it| {
                let share = if by_bytes { it.bytes } else { 1 };
                (it.tree.as_str(), share)
            });
            let greediest = greediest(shares).map(str::to_owned);
            let place = known.answers.iter().position(|it| Some(&it.tree) == greediest.as_ref());
            let Some(oldest) = place.and_then(|place| known.answers.remove(place)) else { return };
            known.bytes -= oldest.bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn is(&self, visitor: &str, id: &str) -> bool {
        self.visitor == visitor && self.response["id"] == id
    }
}

fn weight(message: &Message) -> usize {
    let parts = message.parts.iter().map(|part| match part {
        Part::Text(text) | Part::Address(text) => text.len(),
        Part::Data { data, .. } => data.len(),
    });
    let calls = message.calls.iter().map(|call| call.function.arguments.len());
    size_of::<Message>() + parts.sum::<usize>() + calls.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::ask::Role;
    use super::*;

    fn keep(kept: &Arc<Kept>, visitor: &str, id: &str, text: &str) {
        keep_of(kept, visitor, visitor, id, text);
    }

    fn keep_of(kept: &Arc<Kept>, tree: &str, visitor: &str, id: &str, text: &str) {
        let keeping = Keeping {
            kept: kept.clone(),
            visitor: visitor.into(),
            tree: tree.into(),
            instructions: None,
            said: vec![Message::of(Role::User, text)],
        };
        let output = json!([{"id": format!("msg_{id}")}]);
        keeping.note(&json!({"id": id, "output": output}), Message::of(Role::Assistant, "a"));
    }

    #[test]
    fn an_answer_is_its_visitors_until_it_is_forgotten() {
        let kept = Arc::new(Kept::default());
        keep(&kept, "v", "1", "x");
        assert_eq!(kept.find("v", "1").unwrap().said.len(), 2);
        assert!(kept.item("v", "msg_1").is_some());
        assert!(kept.find("w", "1").is_none() && kept.item("w", "msg_1").is_none());
        assert!(!kept.forget("w", "1") && kept.forget("v", "1") && !kept.forget("v", "1"));
        assert!(kept.find("v", "1").is_none());
        assert_eq!(kept.lock().bytes, 0);
    }

    #[test]
    fn who_keeps_much_loses_its_own() {
        let kept = Arc::new(Kept::default());
        keep(&kept, "modest", "m", "x");
        for number in 0..=ANSWERS_MAX {
            keep(&kept, "greedy", &number.to_string(), "x");
        }
        assert!(kept.find("modest", "m").is_some() && kept.find("greedy", "1").is_none());
        // Nor does it help to be many.
        keep(&kept, "modest", "n", "x");
        for number in 0..=ANSWERS_MAX {
            keep_of(&kept, "greedy", &format!("greedy {number}"), "1", "x");
        }
        assert!(kept.find("modest", "m").is_some() && kept.find("modest", "n").is_some());
        for number in 0..3 {
            keep(&kept, "large", &number.to_string(), &"x".repeat(BYTES_MAX / 2));
        }
        assert!(kept.find("modest", "m").is_some() && kept.find("large", "1").is_none());
        assert!(kept.find(&format!("greedy {ANSWERS_MAX}"), "1").is_some());
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let kept = Arc::new(Kept::default());
        for number in 0..=ANSWERS_MAX {
            keep(&kept, "v", &number.to_string(), "x");
        }
        assert!(kept.find("v", "0").is_none() && kept.find("v", "1").is_some());
        let kept = Arc::new(Kept::default());
        let half = "x".repeat(BYTES_MAX / 2 - 1_000);
        keep(&kept, "v", "1", &half);
        keep(&kept, "v", "2", &half);
        assert!(kept.find("v", "1").is_some() && kept.find("v", "2").is_some());
        keep(&kept, "v", "3", &"x".repeat(2_000));
        assert!(kept.find("v", "1").is_none() && kept.find("v", "2").is_some());
        keep(&kept, "v", "4", &"x".repeat(BYTES_MAX));
        assert!(kept.lock().answers.is_empty() && kept.lock().bytes == 0);
    }
}
