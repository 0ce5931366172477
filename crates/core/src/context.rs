//! What a model call sees of a conversation.
//!
//! The history is append-only and is never edited: what is wrong with it (a message nobody answered, a tool call that
//! a crash cut off) is left out or completed here, each time it is read. So there is no state that could be lost.

use std::sync::Arc;

use crate::message::{Message, Meta, Role, SharedMessage};

/// A conversation in memory: the whole history, and the part of it that models see.
#[derive(Default)]
pub struct Conversation {
    history: Vec<SharedMessage>,
    context: Vec<SharedMessage>,
    context_bytes: usize,
}

impl Conversation {
    pub fn from_history(history: Vec<SharedMessage>) -> Self {
        let mut conversation = Self::default();
        for message in history {
            conversation.push(message);
        }
        conversation
    }

    pub fn push(&mut self, message: SharedMessage) {
        if message.role == Role::Summary {
            self.restart_context(&message);
        } else {
            extend(&mut self.context, &message, &mut self.context_bytes);
        }
        self.history.push(message);
    }

    /// The context as it would be with `next` at its end: what the model is shown when `next` is sent.
    pub fn context_with(&self, next: &SharedMessage) -> Vec<SharedMessage> {
        let mut context = Vec::with_capacity(self.context.len() + 8);
        context.extend_from_slice(&self.context);
        extend(&mut context, next, &mut 0);
        context
    }

    pub fn history(&self) -> &[SharedMessage] {
        &self.history
    }

    pub fn context(&self) -> &[SharedMessage] {
        &self.context
    }

    /// Bytes of the context's text: never fewer than its tokens.
    pub fn context_bytes(&self) -> usize {
        self.context_bytes
    }

    /// Where in the history a message of the context stands. Searched from the end: callers ask for recent ones.
    pub fn history_index(&self, message: &SharedMessage) -> Option<usize> {
        self.history.iter().rposition(|candidate| Arc::ptr_eq(candidate, message))
    }

    /// From a summary on, the context is the summary and what came after the part it stands for.
    fn restart_context(&mut self, summary: &SharedMessage) {
        let covered = summary.meta.covers.unwrap_or(self.history.len()).min(self.history.len());
        let (mut context, mut bytes) = (vec![summary.clone()], summary.text_bytes());
        for message in &self.history[covered..] {
            if message.role != Role::Summary {
                extend(&mut context, message, &mut bytes);
            }
        }
        (self.context, self.context_bytes) = (context, bytes);
    }
}

/// What stands in for the result of a tool call that was cut off.
const INTERRUPTED_CALL: &str = "Interrupted: whether this call took effect is not known.";

/// Appends `message` so that the context stays valid for every provider: before a user message there is no other
/// unanswered one and no tool call without its result.
fn extend(context: &mut Vec<SharedMessage>, message: &SharedMessage, bytes: &mut usize) {
    if message.role == Role::User {
        while let Some(unanswered) = context.pop_if(|last| last.role == Role::User) {
            *bytes = bytes.saturating_sub(unanswered.text_bytes());
        }
        for id in open_calls(context) {
            let result = Message::tool_result(id, INTERRUPTED_CALL, Meta::default());
            *bytes += result.text_bytes();
            context.push(Arc::new(result));
        }
    }
    *bytes += message.text_bytes();
    context.push(message.clone());
}

/// Ids of the tool calls in the last step that have no result.
fn open_calls(context: &[SharedMessage]) -> Vec<String> {
    let results = context.iter().rev().take_while(|message| message.role == Role::Tool).count();
    let (before, results) = context.split_at(context.len() - results);
    let calls = before.last().map_or(&[][..], |message| &message.tool_calls);
    let answered =
        |id: &str| results.iter().any(|result| result.tool_call_id.as_deref() == Some(id));
    calls.iter().map(|call| call.id.clone()).filter(|id| !answered(id)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::message::ToolCall;

    /// Builds a conversation from words (`u1` user, `a1` assistant, `c1,2` assistant that calls tools 1 and 2, `t1`
    /// result of call 1, `s3` summary of the first 3) and compares the context, written the same way.
    fn check(history: &str, context: &str) {
        let conversation =
            Conversation::from_history(history.split_whitespace().map(message).collect());
        let words: Vec<_> = conversation.context().iter().map(|message| word(message)).collect();
        assert_eq!(words.join(" "), context, "{history}");
        let bytes: usize = conversation.context().iter().map(|message| message.text_bytes()).sum();
        assert_eq!(conversation.context_bytes(), bytes);
    }

    fn message(word: &str) -> SharedMessage {
        let (kind, rest) = word.split_at(1);
        let meta = Meta::default();
        Arc::new(match kind {
            "u" => Message::new(Role::User, rest, meta),
            "a" => Message::new(Role::Assistant, rest, meta),
            "c" => {
                let call =
                    |id: &str| ToolCall { id: id.into(), name: "n".into(), arguments: json!({}) };
                Message::new(Role::Assistant, "", meta)
                    .with_tool_calls(rest.split(',').map(call).collect())
            }
            "t" => Message::tool_result(rest, "done", meta),
            _ => Message::new(Role::Summary, "sum", Meta { covers: rest.parse().ok(), ..meta }),
        })
    }

    fn word(message: &Message) -> String {
        let ids: Vec<_> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
        match message.role {
            Role::User => format!("u{}", message.content),
            Role::Assistant if ids.is_empty() => format!("a{}", message.content),
            Role::Assistant => format!("c{}", ids.join(",")),
            Role::Tool if message.content == INTERRUPTED_CALL => {
                format!("x{}", message.tool_call_id.as_deref().unwrap())
            }
            Role::Tool => format!("t{}", message.tool_call_id.as_deref().unwrap()),
            Role::Summary => "s".into(),
        }
    }

    #[test]
    fn a_plain_conversation_is_its_context() {
        check("u1 a1 u2 a2", "u1 a1 u2 a2");
        check("u1 c1,2 t1 t2 a1", "u1 c1,2 t1 t2 a1");
    }

    #[test]
    fn an_unanswered_message_is_left_out_when_the_next_comes() {
        check("u1 a1 u2", "u1 a1 u2");
        check("u1 a1 u2 u3 u4 a4", "u1 a1 u4 a4");
    }

    #[test]
    fn a_cut_off_tool_call_gets_a_result() {
        check("u1 c1,2 t1 u2", "u1 c1,2 t1 x2 u2");
        check("u1 c1 u2 a2", "u1 c1 x1 u2 a2");
    }

    #[test]
    fn a_summary_replaces_what_it_covers() {
        check("u1 a1 u2 a2 s2 u3 a3", "s u2 a2 u3 a3");
        check("u1 a1 s2 u2 a2 u3 a3 s5 u4", "s u3 a3 u4");
    }

    proptest! {
        #[test]
        fn any_history_gives_a_valid_context(words in prop::collection::vec("u|a|c[12](,3)?|t[123]|s[0-9]", 0..20)) {
            let history = words.iter().map(|word| message(word)).collect();
            let conversation = Conversation::from_history(history);
            let next = conversation.context_with(&message("unext"));
            prop_assert_eq!(word(next.last().unwrap()), "unext");
            for pair in next.windows(2) {
                prop_assert!(!(pair[0].role == Role::User && pair[1].role == Role::User));
            }
            prop_assert!(open_calls(&next[..next.len() - 1]).is_empty());
        }
    }
}
