//! A conversation in memory, and what a model call sees of it.
//!
//! The history is append-only and is never edited: what is wrong with it (a message nobody answered, a tool call that
//! a crash cut off) is left out or completed here, each time it is read. So there is no state that could be lost.

use std::collections::HashMap;
use std::sync::Arc;

use crate::list::List;
use crate::message::{Made, Message, Meta, Part, Role, SharedMessage, StopReason, ToolCall};
use crate::name::TurnId;
use crate::store::Window;

/// The end of a history that is kept in memory, and the part of it that models see. Copies are cheap, whatever its
/// length.
#[derive(Clone, Default)]
pub struct Conversation {
    /// How many messages of the history lie before those in memory.
    first: u64,
    history: List<SharedMessage>,
    /// What models see, up to the calls of the last step.
    context: List<SharedMessage>,
    /// How many messages of the context were said before the last summary was made, itself included.
    kept: usize,
    /// The results of the last step, while nothing was said after it.
    results: Option<Arc<Results>>,
    context_bytes: usize,
    /// Of what stands beside the text of the context.
    attached_bytes: u64,
    memory_bytes: usize,
}

/// What came of the calls of one step. Results are written down as they come and shown in the order of their calls.
#[derive(Clone)]
struct Results {
    calls: Arc<Calls>,
    found: Vec<Option<SharedMessage>>,
    /// How many results each id of `Calls` has. Of two calls with one id, the first is answered first.
    answered: Vec<usize>,
    /// Results of calls that the step did not make.
    strays: Vec<SharedMessage>,
}

/// Where the calls of one step stand, so that no result has to look for its own.
struct Calls {
    /// The number of each id.
    ids: HashMap<String, usize>,
    /// The places of the calls that bear an id, by its number.
    places: Vec<Vec<usize>>,
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

impl Conversation {
    pub fn new(window: Window) -> Self {
        let mut conversation = Self { first: window.first, ..Self::default() };
        // What is shown begins anew with a summary. Each would go through all that came before it, so of many only the
        // last is heeded.
        let summary = window.messages.iter().rposition(|it| it.role == Role::Summary);
        for (index, message) in window.messages.into_iter().enumerate() {
            match summary.is_some_and(|summary| index < summary) {
                true => conversation.remember(message),
                false => conversation.push(message),
            }
        }
        conversation
    }

    pub fn push(&mut self, message: SharedMessage) {
        match message.role {
            Role::Summary => self.restart_context(&message),
            _ => self.show(&message),
        }
        self.remember(message);
    }

    fn remember(&mut self, message: SharedMessage) {
        self.memory_bytes += message.memory_bytes();
        self.history.push(message);
    }

    /// How many messages the history has.
    pub fn len(&self) -> u64 {
        self.first + self.history.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of the first message in memory; those before it are in the store alone.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The messages in memory, oldest first, from index `start` of the history on.
    pub fn history_from(&self, start: u64) -> impl DoubleEndedIterator<Item = &SharedMessage> {
        self.history.from(usize::try_from(start.saturating_sub(self.first)).unwrap_or(usize::MAX))
    }

    /// What a model call sees.
    pub fn context(&self) -> List<SharedMessage> {
        let results = self.results.iter().flat_map(|results| results.shown());
        let mut context = self.context.clone();
        context.extend(results.cloned());
        context
    }

    /// The context as it would be with `next` at its end: what the model is shown when `next` is sent.
    pub fn context_with(&self, next: &SharedMessage) -> List<SharedMessage> {
        let mut conversation = self.clone();
        conversation.show(next);
        conversation.context()
    }

    /// The turn that the conversation ends in the middle of, if it does: cut off by a restart, a cancel, its iteration limit
    /// or a provider that failed. A turn that runs looks the same.
    pub fn unfinished(&self) -> Option<Unfinished> {
        let last = self.last_said().filter(|last| !ends_turn(last))?;
        let open_calls = self.open_calls().map(|call| call.id.clone()).collect();
        Some(Unfinished { turn: last.meta.turn.clone()?, open_calls })
    }

    /// The context with which an unfinished turn goes on, once the calls that were open have `results`. What the model
    /// had not said to its end is left out.
    pub fn resumed(&self, results: &[SharedMessage]) -> List<SharedMessage> {
        let mut conversation = self.clone();
        conversation.drop_cut_off();
        results.iter().for_each(|result| conversation.show(result));
        conversation.context()
    }

    /// Bytes of the context's text: never fewer than its tokens.
    pub fn context_bytes(&self) -> usize {
        self.context_bytes
    }

    /// Bytes of the attachments that a request with the context has.
    pub fn attached_bytes(&self) -> u64 {
        self.attached_bytes
    }

    /// About how much memory the messages take that are kept in it.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// How the last answer of this service was made, since the last summary.
    pub fn last_made(&self, provider: &str, wire: &str) -> Option<Arc<Made>> {
        let mut said = self.context.from(self.kept).rev().filter_map(|it| it.meta.made.as_ref());
        said.find(|it| it.origin.provider == provider && it.origin.wire == wire).cloned()
    }

    /// How many messages of the context were said before the last summary was made, itself included: models have seen
    /// them behind other words.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Where in the history a message of the context stands. Searched from the end: callers ask for recent ones.
    pub fn history_index(&self, message: &SharedMessage) -> Option<u64> {
        let message = message.whole.as_ref().unwrap_or(message);
        let back =
            self.history.iter().rev().position(|candidate| Arc::ptr_eq(candidate, message))?;
        Some(self.len() - 1 - back as u64)
    }

    /// Lets go of what the last summary stands for. For agents that are stored: the store has it.
    pub fn trim(&mut self) {
        let Some(covers) = self.history.iter().rev().find_map(|it| it.meta.covers) else { return };
        let covered = usize::try_from((covers as u64).saturating_sub(self.first)).unwrap_or(0);
        let before = self.history.iter().take(covered);
        let asked = before.enumerate().filter(|(_, it)| it.role == Role::User).last();
        let kept = asked.map_or(covered, |(index, _)| index);
        self.history = self.history.from(kept).cloned().collect();
        self.memory_bytes = self.history.iter().map(|message| message.memory_bytes()).sum();
        self.first += kept as u64;
    }

    fn last_said(&self) -> Option<&SharedMessage> {
        self.history.iter().rev().find(|message| message.role != Role::Summary)
    }

    /// Where the last step stands in the history, if calls in it have no result.
    pub fn open_step(&self) -> Option<u64> {
        self.open_calls().next()?;
        self.history_index(self.context.last()?)
    }

    /// The tool calls in the last step that have no result.
    pub fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let calls = self.context.last().into_iter().flat_map(|message| message.calls());
        let found = self.results.iter().flat_map(|results| &results.found);
        calls.zip(found).filter(|(_, result)| result.is_none()).map(|(call, _)| call)
    }

    /// Puts `message` at the end of the context so that it stays valid for every provider: before a user message there is
    /// no other unanswered one and no tool call without its result, and results stand in the order of their calls.
    fn show(&mut self, message: &SharedMessage) {
        match message.role {
            Role::Tool => {
                self.count(message);
                match &mut self.results {
                    Some(results) => Arc::make_mut(results).take(message),
                    None => self.context.push(message.clone()),
                }
                return;
            }
            Role::User => {
                self.end_step();
                self.drop_refused(message);
                while let Some(unanswered) = self.pop_if(|last| last.role == Role::User) {
                    self.uncount(&unanswered);
                }
            }
            // Only a turn that was resumed says on what it had not said to the end.
            Role::Assistant => {
                self.end_step();
                self.drop_cut_off();
                self.results = Results::of(message).map(Arc::new);
            }
            Role::Summary => {}
        }
        self.count(message);
        self.context.push(message.clone());
    }

    /// Counts a message that is shown.
    fn count(&mut self, message: &Message) {
        self.context_bytes += message.text_bytes();
        self.attached_bytes += message.attached_bytes();
    }

    /// Counts one no more that is taken away.
    fn uncount(&mut self, message: &Message) {
        self.context_bytes = self.context_bytes.saturating_sub(message.text_bytes());
        self.attached_bytes = self.attached_bytes.saturating_sub(message.attached_bytes());
    }

    /// Moves the results of the last step into the context. Calls without one get a word in its place.
    fn end_step(&mut self) {
        let Some(results) = self.results.take() else { return };
        let asked = self.context.last().cloned();
        let calls = asked.iter().flat_map(|message| message.calls());
        for (call, found) in calls.zip(&results.found) {
            let result = found.clone().unwrap_or_else(|| {
                let stand_in = Message::tool_result(&call.id, INTERRUPTED_CALL, Meta::default());
                self.count(&stand_in);
                Arc::new(stand_in)
            });
            self.context.push(result);
        }
        self.context.extend(results.strays.iter().cloned());
    }

    /// Takes away an answer that was cut off in the middle.
    fn drop_cut_off(&mut self) {
        if let Some(partial) =
            self.pop_if(|last| last.role == Role::Assistant && last.meta.interrupted)
        {
            self.uncount(&partial);
        }
    }

    /// Takes away the turn that a provider refused to answer, when the next begins: shown again, it would be refused
    /// again.
    fn drop_refused(&mut self, next: &Message) {
        let refused = |last: &SharedMessage| {
            last.meta.made.as_ref().is_some_and(|made| made.stop.reason.is_refused())
        };
        let Some(last) = self.context.last().filter(|last| refused(last)).cloned() else { return };
        if last.meta.turn == next.meta.turn {
            return;
        }
        while let Some(gone) =
            self.pop_if(|it| it.meta.turn == last.meta.turn && it.role != Role::Summary)
        {
            self.uncount(&gone);
        }
    }

    fn pop_if(&mut self, matches: impl FnOnce(&Message) -> bool) -> Option<SharedMessage> {
        match self.results.is_none() && self.context.last().is_some_and(|last| matches(last)) {
            true => self.context.pop(),
            false => None,
        }
    }

    /// From a summary on, the context is the summary and what came after the part it stands for. One made in the middle
    /// of a turn may stand for all there is: then what the turn is about follows it in the user's own words. That an
    /// answer is to go on is said again only if it has not gone on yet.
    fn restart_context(&mut self, summary: &SharedMessage) {
        let covers = summary.meta.covers.map_or(self.len(), |covers| covers as u64);
        let covers = covers.min(self.len());
        let last = self.last_said().cloned();
        let within_turn =
            covers == self.len() && last.as_ref().is_some_and(|last| !ends_turn(last));
        let is_last = |it: &SharedMessage| last.as_ref().is_some_and(|last| Arc::ptr_eq(it, last));
        let history = self.history.clone();
        let asked = history.iter().rev().find(|it| it.role == Role::User);
        let asked = asked.filter(|it| within_turn && (it.has_words() || is_last(it)));
        self.context = List::default();
        self.results = None;
        self.context.push(summary.clone());
        self.context_bytes = summary.text_bytes();
        self.attached_bytes = 0;
        if let Some(asked) = asked {
            self.show(&shortened(asked));
        }
        let kept = usize::try_from(covers.saturating_sub(self.first)).unwrap_or(usize::MAX);
        for message in history.from(kept).filter(|message| message.role != Role::Summary) {
            self.show(&shortened(message));
        }
        self.kept = self.context.len();
    }
}

/// Whether a message is an answer to which nothing is missing.
pub(crate) fn ends_turn(message: &Message) -> bool {
    let waits = message.meta.made.as_ref().is_some_and(|it| it.stop.reason == StopReason::Pause);
    let whole = message.role == Role::Assistant && !message.meta.interrupted;
    whole && !waits && !message.has_calls()
}

/// Bytes of a tool's result that are shown on after a summary: about a thousand tokens.
const OLD_RESULT_BYTES_MAX: usize = 4_000;

/// A message as it is shown after a summary: without what the model thought, which is bound to words that are gone, with
/// a word for each picture and document, and with the beginning of what a tool returned.
fn shortened(message: &SharedMessage) -> SharedMessage {
    let long = |text: &str| message.role == Role::Tool && text.len() > OLD_RESULT_BYTES_MAX;
    let changes = |part: &Part| match part {
        Part::Thought(_) | Part::Attachment(_) => true,
        Part::Text(text) => long(text),
        Part::Context(_) | Part::Call(_) => false,
    };
    if !message.parts.iter().any(changes) {
        return message.clone();
    }
    let shorten = |part: &Part| match part {
        Part::Thought(_) => None,
        Part::Attachment(attachment) => {
            Some(Part::Context(format!("[{}: shown earlier.]", attachment.words())))
        }
        Part::Text(text) if long(text) => {
            let end = text.floor_char_boundary(OLD_RESULT_BYTES_MAX);
            let rest = text.len() - end;
            Some(Part::Text(format!("{}\n[{rest} more bytes: shown earlier.]", &text[..end])))
        }
        part => Some(part.clone()),
    };
    let parts = message.parts.iter().filter_map(shorten).collect();
    let mut short = Message::of_parts(message.role, parts, message.meta.clone());
    short.tool_call_id = message.tool_call_id.clone();
    short.whole = Some(message.clone());
    Arc::new(short)
}

impl Results {
    /// Room for the results of the calls in `message`; `None` when it makes none.
    fn of(message: &Message) -> Option<Self> {
        if !message.has_calls() {
            return None;
        }
        let mut calls = Calls { ids: HashMap::new(), places: Vec::new() };
        for (place, call) in message.calls().enumerate() {
            let number = *calls.ids.entry(call.id.clone()).or_insert(calls.places.len());
            match calls.places.get_mut(number) {
                Some(places) => places.push(place),
                None => calls.places.push(vec![place]),
            }
        }
        let found = vec![None; message.calls().count()];
        let answered = vec![0; calls.places.len()];
        Some(Self { calls: Arc::new(calls), found, answered, strays: Vec::new() })
    }

    fn take(&mut self, result: &SharedMessage) {
        match self.next_place(result) {
            Some(place) => self.found[place] = Some(result.clone()),
            None => self.strays.push(result.clone()),
        }
    }

    /// The place of the call that a result is for; `None` when the step made no such call, or it is answered.
    fn next_place(&mut self, result: &Message) -> Option<usize> {
        let number = *self.calls.ids.get(result.tool_call_id.as_ref()?)?;
        let place = *self.calls.places[number].get(self.answered[number])?;
        self.answered[number] += 1;
        Some(place)
    }

    fn shown(&self) -> impl Iterator<Item = &SharedMessage> {
        self.found.iter().flatten().chain(&self.strays)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn conversation(words: &str) -> Conversation {
        let messages = words.split_whitespace().map(message).collect();
        Conversation::new(Window { first: 0, messages })
    }

    fn context(conversation: &Conversation) -> String {
        let words: Vec<_> = conversation.context().iter().map(|message| word(message)).collect();
        words.join(" ")
    }

    /// Builds a conversation from words (`u1` user, `a1` assistant, `c1,2` assistant that calls tools 1 and 2, `t1`
    /// result of call 1, `i1` assistant cut off, `g` a word of ours to go on, `s3` summary of the first 3) and compares the
    /// context, written the same way.
    fn check(history: &str, context: &str) {
        let conversation = conversation(history);
        assert_eq!(super::tests::context(&conversation), context, "{history}");
        let bytes: usize = conversation.context().iter().map(|message| message.text_bytes()).sum();
        assert_eq!(conversation.context_bytes(), bytes);
    }

    fn message(word: &str) -> SharedMessage {
        let (kind, rest) = word.split_at(1);
        let meta = Meta { turn: Some(TurnId::Number(1)), ..Meta::default() };
        Arc::new(match kind {
            "u" => Message::new(Role::User, rest, meta),
            "g" => Message::of_parts(Role::User, vec![Part::Context("on".into())], meta),
            "a" => Message::new(Role::Assistant, rest, meta),
            "i" => Message::new(Role::Assistant, rest, Meta { interrupted: true, ..meta }),
            "c" => {
                let call = |id: &str| Part::Call(ToolCall::new(id, "n", json!({})));
                Message::of_parts(Role::Assistant, rest.split(',').map(call).collect(), meta)
            }
            "t" => Message::tool_result(rest, "done", meta),
            _ => Message::new(Role::Summary, "sum", Meta { covers: rest.parse().ok(), ..meta }),
        })
    }

    fn word(message: &Message) -> String {
        let ids: Vec<_> = message.calls().map(|call| call.id.as_str()).collect();
        let text = message.text();
        match message.role {
            Role::User if !message.has_words() => "g".into(),
            Role::User => format!("u{text}"),
            Role::Assistant if message.meta.interrupted => format!("i{text}"),
            Role::Assistant if ids.is_empty() => format!("a{text}"),
            Role::Assistant => format!("c{}", ids.join(",")),
            Role::Tool if text == INTERRUPTED_CALL => {
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
        let conversation = conversation(history);
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
        check_unfinished("u1 a1 u2 c1 s4", "", "s u2");
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
        // Nothing was said to it yet.
        check("u1 a1 u2 s3", "s u2");
        check("u1 a1 u2 s3 u3", "s u3");
        check("u1 a1 u2 i2 s4", "s u2");
        check("u1 a1 u2 c1 s4", "s u2");
        // To go on is said to a model that has not.
        check("u1 a1 g s3", "s g");
        check("u1 a1 g c1 t1 s5", "s");
    }

    proptest! {
        #[test]
        fn any_history_gives_a_valid_context(words in prop::collection::vec("u0|a|g|i|c[12](,3)?|t[123]|s[0-9]", 0..20)) {
            let history = words.iter().map(|word| message(word)).collect();
            let conversation = Conversation::new(Window { first: 0, messages: history });
            let next = conversation.context_with(&message("unext"));
            let next: Vec<_> = next.iter().collect();
            prop_assert_eq!(word(next.last().unwrap()), "unext");
            for pair in next.windows(2) {
                prop_assert!(!(pair[0].role == Role::User && pair[1].role == Role::User));
            }
            let mut open = std::collections::BTreeSet::new();
            for message in next {
                prop_assert!(open.is_empty() || message.role == Role::Tool, "a call without its result");
                open.extend(message.calls().map(|call| call.id.clone()));
                message.tool_call_id.as_ref().map(|id| open.remove(id));
            }
        }
    }

    #[test]
    fn what_a_summary_stands_for_leaves_memory() {
        let trimmed = |words: &str, first: u64| {
            let mut conversation = conversation(words);
            let before = (context(&conversation), conversation.len());
            conversation.trim();
            assert_eq!((context(&conversation), conversation.len()), before, "{words}");
            assert_eq!(conversation.first(), first, "{words}");
            // Read again from the store it is the same.
            let messages = conversation.history_from(0).cloned().collect();
            let again = Conversation::new(Window { first, messages });
            assert_eq!((context(&again), again.len()), before, "{words}");
        };
        trimmed("u1 a1 u2 a2", 0);
        trimmed("u1 a1 u2 a2 s2 u3 a3", 0);
        trimmed("u1 a1 u2 a2 s4 u3 a3", 2);
        trimmed("u1 a1 u2 a2 s4 u3 a3 u4 a4 s9 u5", 7);
        trimmed("u1 c1 t1 s3 c2 t2 s6", 0);
        trimmed("u1 a1 u2 c1 t1 s5 a2 u3", 2);
        trimmed("u1 a1 u2 s3", 2);
        trimmed("u1 a1 g s3 a2", 2);
    }

    #[test]
    fn calls_that_share_an_id_are_answered_in_their_order() {
        check("u1 c1,1,2 t1 t2 t1 a1", "u1 c1,1,2 t1 t1 t2 a1");
        check("u1 c1,1 t1 u2", "u1 c1,1 t1 x1 u2");
        check("u1 c1 t1 t1 t3 u2", "u1 c1 t1 t1 t3 u2");
    }

    /// What a stranger's file can hold. With each of these a search in every push, or a look at all that came before
    /// each summary, would take minutes.
    #[test]
    fn a_conversation_costs_as_much_as_it_is_long() {
        const MESSAGES: usize = 100_000;
        let one_id = format!("u1 c{}1", "1,".repeat(MESSAGES));
        check_whole(&format!("{one_id}{}", " t1".repeat(MESSAGES + 1)), MESSAGES + 3);
        check_whole(&format!("u1 a1{}", " s0".repeat(MESSAGES)), 3);
        check_whole(&format!("u1 c1{}", " t2".repeat(MESSAGES)), MESSAGES + 2);
        check_whole(&"u1 ".repeat(MESSAGES), 1);
    }

    /// Makes the conversation at once and expects so many messages to be shown.
    fn check_whole(history: &str, shown: usize) {
        let conversation = conversation(history);
        assert_eq!(conversation.context().len(), shown);
        assert_eq!(conversation.len(), history.split_whitespace().count() as u64);
    }

    #[test]
    fn the_memory_of_a_conversation_is_that_of_its_messages() {
        let mut conversation = conversation("u1 a1 u2 c1 t1 a2");
        let counted = |conversation: &Conversation| -> usize {
            conversation.history_from(0).map(|message| message.memory_bytes()).sum()
        };
        assert_eq!(conversation.memory_bytes(), counted(&conversation));
        conversation.push(message("s6"));
        let before = conversation.memory_bytes();
        conversation.trim();
        assert_eq!(conversation.memory_bytes(), counted(&conversation));
        assert!(conversation.memory_bytes() < before);
        let call = Part::Call(ToolCall::new("1", "n", json!([[], [], []])));
        let calls = Message::of_parts(Role::Assistant, vec![call], Meta::default());
        assert!(calls.memory_bytes() > 3 * size_of::<serde_json::Value>());
    }

    /// A model may ask for more in one step than anybody expects, and each result is a push.
    #[test]
    fn many_calls_in_one_step_are_placed_in_order() {
        const CALLS: usize = 10_000;
        let ids: Vec<_> = (0..CALLS).map(|id| id.to_string()).collect();
        let mut conversation = conversation(&format!("u1 c{}", ids.join(",")));
        for id in ids.iter().rev() {
            conversation.push(message(&format!("t{id}")));
        }
        let results: Vec<_> = conversation.context().from(2).cloned().collect();
        assert!(results.iter().map(|it| it.tool_call_id.as_ref()).eq(ids.iter().map(Some)));
    }
}
