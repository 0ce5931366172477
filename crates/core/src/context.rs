//! What a model call sees of a conversation.
//!
//! The history is append-only and is never edited: what is wrong with it (a message nobody answered, a tool call that
//! a crash cut off) is left out or completed here, each time it is read. So there is no state that could be lost.

use std::sync::Arc;

use crate::message::{Message, Meta, Role, SharedMessage, ToolCall};
use crate::name::TurnId;

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

    /// The turn that the conversation ends in the middle of, if it does: cut off by a restart, a cancel, its iteration limit
    /// or a provider that failed. A turn that runs looks the same.
    pub fn unfinished(&self) -> Option<Unfinished> {
        let last = self.history.iter().rev().find(|message| message.role != Role::Summary)?;
        let finished = last.role == Role::Assistant && !last.meta.interrupted;
        if finished && last.tool_calls.is_empty() {
            return None;
        }
        Some(Unfinished { turn: last.meta.turn.clone()?, open_calls: open_calls(&self.context) })
    }

    /// The context with which an unfinished turn goes on, once the calls that were open have `results`. What the model
    /// had not said to its end is left out.
    pub fn resumed(&self, results: &[SharedMessage]) -> Vec<SharedMessage> {
        let mut context = self.context.clone();
        drop_cut_off(&mut context, &mut 0);
        for result in results {
            extend(&mut context, result, &mut 0);
        }
        context
    }

    /// Bytes of the context's text: never fewer than its tokens.
    pub fn context_bytes(&self) -> usize {
        self.context_bytes
    }

    /// Where in the history a message of the context stands. Searched from the end: callers ask for recent ones.
    pub fn history_index(&self, message: &SharedMessage) -> Option<usize> {
        self.history.iter().rposition(|candidate| Arc::ptr_eq(candidate, message))
    }

    /// From a summary on, the context is the summary and what came after the part it stands for. One made in the middle
    /// of a turn may stand for all there is: then what the turn is about follows it in the user's own words.
    fn restart_context(&mut self, summary: &SharedMessage) {
        let covered = summary.meta.covers.unwrap_or(self.history.len()).min(self.history.len());
        let (mut context, mut bytes) = (vec![summary.clone()], summary.text_bytes());
        if covered == self.history.len()
            && self
                .history
                .iter()
                .rev()
                .find(|it| it.role != Role::Summary)
                .is_some_and(|it| it.role == Role::Tool)
            && let Some(asked) = self.history.iter().rev().find(|it| it.role == Role::User)
        {
            extend(&mut context, asked, &mut bytes);
        }
        for message in &self.history[covered..] {
            if message.role != Role::Summary {
                extend(&mut context, message, &mut bytes);
            }
        }
        (self.context, self.context_bytes) = (context, bytes);
    }
}

/// A turn that did not reach its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    pub turn: TurnId,
    /// Ids of the tool calls that were begun and have no result: whether they took effect is not known.
    pub open_calls: Vec<String>,
}

/// What stands in for the result of a tool call that was cut off.
pub(crate) const INTERRUPTED_CALL: &str =
    "Interrupted: whether this call took effect is not known.";

/// Appends `message` so that the context stays valid for every provider: before a user message there is no other
/// unanswered one and no tool call without its result, and results stand in the order of their calls.
fn extend(context: &mut Vec<SharedMessage>, message: &SharedMessage, bytes: &mut usize) {
    let mut place = context.len();
    match message.role {
        Role::User => {
            while let Some(unanswered) = context.pop_if(|last| last.role == Role::User) {
                *bytes = bytes.saturating_sub(unanswered.text_bytes());
            }
            for id in open_calls(context) {
                let result = Message::tool_result(id, INTERRUPTED_CALL, Meta::default());
                extend(context, &Arc::new(result), bytes);
            }
            place = context.len();
        }
        // Only a turn that was resumed says on what it had not said to the end.
        Role::Assistant => {
            drop_cut_off(context, bytes);
            place = context.len();
        }
        // They are written down as they come, which is not the order of the calls.
        Role::Tool => place = place_of(context, message),
        Role::Summary => {}
    }
    *bytes += message.text_bytes();
    context.insert(place, message.clone());
}

/// Takes away an answer that was cut off in the middle.
fn drop_cut_off(context: &mut Vec<SharedMessage>, bytes: &mut usize) {
    if let Some(partial) =
        context.pop_if(|last| last.role == Role::Assistant && last.meta.interrupted)
    {
        *bytes = bytes.saturating_sub(partial.text_bytes());
    }
}

/// The calls of the last step, and where in the context their results begin.
fn last_calls(context: &[SharedMessage]) -> (&[ToolCall], usize) {
    let results = context.iter().rev().take_while(|message| message.role == Role::Tool).count();
    let start = context.len() - results;
    (context[..start].last().map_or(&[][..], |message| &message.tool_calls), start)
}

/// Where among the results of the last step `result` belongs.
fn place_of(context: &[SharedMessage], result: &Message) -> usize {
    let (calls, start) = last_calls(context);
    let rank = |result: &Message| {
        calls.iter().position(|call| Some(&call.id) == result.tool_call_id.as_ref())
    };
    let Some(own) = rank(result) else { return context.len() };
    let later = context[start..].iter().position(|other| rank(other).is_some_and(|it| it > own));
    later.map_or(context.len(), |later| start + later)
}

/// Ids of the tool calls in the last step that have no result.
fn open_calls(context: &[SharedMessage]) -> Vec<String> {
    let (calls, start) = last_calls(context);
    let answered =
        |id: &str| context[start..].iter().any(|result| result.tool_call_id.as_deref() == Some(id));
    calls.iter().map(|call| call.id.clone()).filter(|id| !answered(id)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Builds a conversation from words (`u1` user, `a1` assistant, `c1,2` assistant that calls tools 1 and 2, `t1`
    /// result of call 1, `i1` assistant cut off, `s3` summary of the first 3) and compares the context, written the
    /// same way.
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
        let meta = Meta { turn: Some(TurnId::Number(1)), ..Meta::default() };
        Arc::new(match kind {
            "u" => Message::new(Role::User, rest, meta),
            "a" => Message::new(Role::Assistant, rest, meta),
            "i" => Message::new(Role::Assistant, rest, Meta { interrupted: true, ..meta }),
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
            Role::Assistant if message.meta.interrupted => format!("i{}", message.content),
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
    fn results_stand_in_the_order_of_their_calls() {
        check("u1 c1,2,3 t3 t1 t2 a1", "u1 c1,2,3 t1 t2 t3 a1");
        check("u1 c1,2,3 t2 u2", "u1 c1,2,3 x1 t2 x3 u2");
    }

    #[test]
    fn an_answer_that_was_cut_off_is_replaced_when_its_turn_goes_on() {
        check("u1 i1 u2", "u1 i1 u2");
        check("u1 i1 a1 u2", "u1 a1 u2");
        check("u1 c1 t1 i1 a1", "u1 c1 t1 a1");
    }

    /// `open` is `-` for a finished conversation, else the calls without a result.
    fn check_unfinished(history: &str, open: &str, resumed: &str) {
        let conversation =
            Conversation::from_history(history.split_whitespace().map(message).collect());
        let unfinished = conversation.unfinished();
        let calls = unfinished.as_ref().map(|unfinished| unfinished.open_calls.join(","));
        assert_eq!(calls.as_deref().unwrap_or("-"), open, "{history}");
        let calls = unfinished.map_or(Vec::new(), |unfinished| unfinished.open_calls);
        let result = |id: &String| message(&format!("t{id}"));
        let results: Vec<_> = calls.iter().map(result).collect();
        let words: Vec<_> = conversation.resumed(&results).iter().map(|it| word(it)).collect();
        assert_eq!(words.join(" "), resumed, "{history}");
    }

    #[test]
    fn a_turn_that_was_cut_off_is_told_from_one_that_ended() {
        check_unfinished("", "-", "");
        check_unfinished("u1 a1", "-", "u1 a1");
        check_unfinished("u1 a1 u2", "", "u1 a1 u2");
        check_unfinished("u1 i1", "", "u1");
        check_unfinished("u1 c1,2", "1,2", "u1 c1,2 t1 t2");
        check_unfinished("u1 c1,2 t2", "1", "u1 c1,2 t1 t2");
        check_unfinished("u1 c1 t1", "", "u1 c1 t1");
        check_unfinished("u1 a1 u2 c1 s2", "1", "s u2 c1 t1");
    }

    #[test]
    fn a_summary_replaces_what_it_covers() {
        check("u1 a1 u2 a2 s2 u3 a3", "s u2 a2 u3 a3");
        check("u1 a1 s2 u2 a2 u3 a3 s5 u4", "s u3 a3 u4");
        check("u1 a1 s2", "s");
    }

    #[test]
    fn a_summary_in_the_middle_of_a_turn_leaves_what_was_asked() {
        check("u1 a1 u2 c1 t1 s5", "s u2");
        check("u1 a1 u2 c1 t1 s5 a2 u3", "s u2 a2 u3");
        check("u1 c1 t1 s3 c2 t2 s6", "s u1");
        check("u1 a1 u2 c1 t1 s2", "s u2 c1 t1");
    }

    proptest! {
        #[test]
        fn any_history_gives_a_valid_context(words in prop::collection::vec("u|a|i|c[12](,3)?|t[123]|s[0-9]", 0..20)) {
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
