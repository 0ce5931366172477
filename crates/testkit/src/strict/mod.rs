//! What the real services refuse, in their own words. One file a wire; what they have to remember of their own answers
//! is here.

mod chat;
mod generate_content;
mod messages;
mod ollama;
mod responses;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::reply::{Reply, Step, StopSaid, ThoughtField};
use crate::wire::Wire;

/// A request that is answered 400.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub message: String,
    /// The wire's own word, where it is not the one that belongs to the status.
    pub code: Option<&'static str>,
}

impl From<String> for Rejection {
    fn from(message: String) -> Self {
        Self { message, code: None }
    }
}

impl From<&str> for Rejection {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

/// What was given out, and what it is bound to.
#[derive(Default)]
pub(crate) struct Strictness {
    given: Mutex<Given>,
    rejections: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Given {
    /// On `messages`, signatures and redacted thoughts with the digest of all that stood before them.
    bound: HashSet<(String, u64)>,
    /// On `messages`, the digest of conversations that end with an answer which wants to go on.
    paused: HashSet<u64>,
    /// Signatures and encrypted thoughts, of whatever wire.
    signatures: HashSet<String>,
    /// The signature that a call was given out with, by its id.
    signature_of_call: HashMap<String, String>,
    /// Calls that were thought over before, and the model that did.
    thought_calls: HashMap<String, Value>,
}

impl Strictness {
    /// Why this request is refused, if it is.
    pub fn check(&self, wire: Wire, body: &Value) -> Option<Rejection> {
        let given = lock(&self.given);
        let checked = match wire {
            Wire::Messages => messages::check(&given, body),
            Wire::Chat => chat::check(&given, body),
            Wire::Responses => responses::check(&given, body),
            Wire::GenerateContent => generate_content::check(&given, body),
            Wire::Ollama => ollama::check(body),
        };
        let rejection = checked.err()?;
        lock(&self.rejections).push(rejection.message.clone());
        Some(rejection)
    }

    /// Keeps in mind what this answer gives out.
    pub fn remember(&self, wire: Wire, body: &Value, reply: &Reply, content: &[Step]) {
        let given = &mut *lock(&self.given);
        let must_return = must_return(wire, reply, content);
        for step in content {
            match step {
                Step::Thought { signature: sign, .. } | Step::Redacted(sign) => {
                    given.signatures.insert(sign.clone());
                }
                Step::ToolCall { id, .. } if must_return && !id.is_empty() => {
                    given.thought_calls.insert(id.clone(), body["model"].clone());
                }
                _ => {}
            }
        }
        match wire {
            Wire::Messages => {
                let pauses = reply.stop == Some(StopSaid::Pause);
                messages::remember(given, body, content, pauses);
            }
            Wire::GenerateContent => generate_content::remember(given, content),
            Wire::Chat | Wire::Responses | Wire::Ollama => {}
        }
    }

    /// What was refused so far, oldest first.
    pub fn rejections(&self) -> Vec<String> {
        lock(&self.rejections).clone()
    }
}

/// Whether calls of this answer are refused later without the thought that came before them.
fn must_return(wire: Wire, reply: &Reply, content: &[Step]) -> bool {
    let is_required = |step: &Step| match (wire, step) {
        (Wire::Messages, Step::Thought { .. } | Step::Redacted(_)) => true,
        (Wire::Chat, Step::Thought { text, .. }) => {
            let field = reply.thoughts_as;
            !text.is_empty()
                && matches!(field, ThoughtField::ReasoningContent | ThoughtField::BothNames)
        }
        _ => false,
    };
    content.iter().any(is_required)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
