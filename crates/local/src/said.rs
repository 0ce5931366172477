//! How answers were written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Answers that are remembered: those of sixteen agents, sixteen turns back.
const ANSWERS_MAX: usize = 256;

/// The tokens of the last answers, by their text. A text can be cut in many ways, and a model does not always choose the
/// one that a tokenizer would; read again in another way, nothing of a conversation that was remembered behind it would
/// be of use.
#[derive(Default)]
pub struct Said(Mutex<VecDeque<(String, Arc<[u32]>)>>);

impl Said {
    /// The tokens with which `text` was written, if it was.
    pub fn tokens(&self, text: &str) -> Option<Arc<[u32]>> {
        let answers = self.lock();
        answers.iter().rev().find(|(known, _)| known == text).map(|(_, tokens)| tokens.clone())
    }

    pub fn put(&self, text: String, tokens: &[u32]) {
        let mut answers = self.lock();
        if answers.len() == ANSWERS_MAX {
            answers.pop_front();
        }
        answers.push_back((text, tokens.into()));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, Arc<[u32]>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answers_are_known_and_older_ones_are_not() {
        let said = Said::default();
        for at in 0..=ANSWERS_MAX {
            said.put(at.to_string(), &[at as u32]);
        }
        assert_eq!(said.tokens("0"), None);
        assert_eq!(said.tokens("1").as_deref(), Some(&[1][..]));
        said.put("1".into(), &[7, 7]);
        assert_eq!(said.tokens("1").as_deref(), Some(&[7, 7][..]), "the last way counts");
    }
}
