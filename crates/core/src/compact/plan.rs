//! Which part of a conversation a summary may stand for, and how long it may be.

use std::sync::Arc;

use super::summary_message;
use super::transcript::without_middle;
use super::weigh::{Scales, Shown, scaled};
use crate::brief::Brief;
use crate::conversation::{Conversation, ends_turn};
use crate::list::List;
use crate::message::{Message, Meta, Part, Role, SharedMessage};
use crate::model::ModelInfo;
use crate::redact::redact;

/// A summary that may have fewer tokens than this is not worth a model call, unless somebody asks for it.
const LEAST: u64 = 256;

/// What is kept to the letter has to leave so much for the summary of the rest.
const ROOMY: u64 = 2_048;

/// Fewer tokens than these say nothing.
const WORD: u64 = 8;

/// Bytes of what was asked that a turn keeps before its eyes.
const ASKED_BYTES_MAX: usize = 4_000;

/// Bytes of an answer's end from which a model can go on.
const ENDING_BYTES: usize = 1_000;

/// What a compaction has to keep to.
pub(super) struct Bounds {
    /// What the next call may weigh. The first is what is wanted; where a single message is so large that this cannot be
    /// had, the next has to do.
    pub limits: [u64; 3],
    /// What recent messages, kept to the letter, may take.
    pub keep: u64,
    /// Somebody asks for it: it is done also where there is no need.
    pub force: bool,
}

/// A conversation that weighs `before` with `next` at its end.
pub(super) struct Outline {
    pub conversation: Conversation,
    pub next: Option<SharedMessage>,
    pub model: Arc<ModelInfo>,
    pub brief: Arc<Brief>,
    pub before: u64,
    pub bounds: Bounds,
}

pub(super) struct Plan {
    /// What is summarised, valid as a conversation.
    pub older: List<SharedMessage>,
    /// The first message that stays as it is.
    pub first_kept: Option<SharedMessage>,
    /// How many messages of the history, from its start, the summary stands for.
    pub covers: usize,
    /// The most tokens the summary may have, as we count them.
    pub most: u64,
    /// Whether a model could do something with that.
    pub is_worth_asking: bool,
    /// What is said beside the summary.
    pub notes: Vec<Part>,
}

/// Not even what has to be kept fits into the window.
#[derive(Debug)]
pub(super) struct Unfit {
    pub tokens: u64,
}

impl Outline {
    /// The ways to shorten the conversation, the best first; none when there is no need or nothing to be gained.
    pub fn plans(&self, scales: &Scales) -> Result<Vec<Plan>, Unfit> {
        let context: Vec<_> = self.conversation.context().iter().cloned().collect();
        let ratio = scales.ratio(&self.model);
        let keep = (self.bounds.keep as f64 / ratio) as u64;
        let all = context.len();
        let recent = cut_point(&context, keep, |it| scales.message(it));
        let [wanted, larger, window] = self.bounds.limits;
        let [kept, none_kept] = [recent, all].map(|cut| (cut, self.fixed(scales, &context, cut)));
        if !self.bounds.force && scaled(none_kept.1, ratio) > window {
            return Err(Unfit { tokens: scaled(none_kept.1, ratio) });
        }
        let part = |most: u64, share: u64| most.min(window / share);
        let (least, roomy) = match self.bounds.force {
            true => (WORD, WORD),
            false => (part(LEAST, 32), part(ROOMY, 16)),
        };
        let total = self.total(scales, &Shown::of(&self.conversation, self.next.as_ref()));
        let mut plans = Vec::new();
        for (limit, (cut, fixed), room) in [
            (wanted, kept, roomy),
            (wanted, none_kept, least),
            (larger, none_kept, least),
            (window, none_kept, least),
            (window, none_kept, WORD),
        ] {
            if !self.bounds.force && self.before <= limit {
                break;
            }
            // Whatever the limit, there has to be less in the end.
            let most = unscaled(limit, ratio).min(total.saturating_sub(1)).saturating_sub(fixed);
            if most >= room {
                let plan = self.plan(&context, cut, most);
                plans.extend(plan.map(|plan| Plan { is_worth_asking: most >= least, ..plan }));
            }
        }
        Ok(plans)
    }

    fn plan(&self, context: &[SharedMessage], cut: usize, most: u64) -> Option<Plan> {
        let older = self.older(context, cut);
        let said = older.iter().filter(|it| it.role != Role::Summary).count();
        // Asked for, it has to be worth it: an exchange at least.
        if older.is_empty() || (self.bounds.force && said < 2) {
            return None;
        }
        Some(Plan {
            older,
            first_kept: context.get(cut).cloned(),
            covers: self.covers(context, cut)?,
            most,
            is_worth_asking: true,
            notes: self.notes(context, cut),
        })
    }

    /// The messages before the cut, as they would be shown if something were said now.
    fn older(&self, context: &[SharedMessage], cut: usize) -> List<SharedMessage> {
        let next = Arc::new(Message::new(Role::User, "", Meta::default()));
        let mut whole = self.conversation.context_with(&next);
        whole.pop();
        match cut < context.len() {
            true => whole.iter().take(cut).cloned().collect(),
            false => whole,
        }
    }

    fn covers(&self, context: &[SharedMessage], cut: usize) -> Option<usize> {
        let covers = match context.get(cut) {
            Some(first_kept) => self.conversation.history_index(first_kept)?,
            None => self.conversation.len(),
        };
        usize::try_from(covers).ok()
    }

    /// Tokens of the next call beside those of the summary's text.
    fn fixed(&self, scales: &Scales, context: &[SharedMessage], cut: usize) -> u64 {
        let mut shorter = self.conversation.clone();
        if cut > 0
            && let Some(covers) = self.covers(context, cut)
        {
            let meta = Meta { covers: Some(covers), ..Meta::default() };
            shorter.push(summary_message(String::new(), self.notes(context, cut), meta));
        }
        self.total(scales, &Shown::of(&shorter, self.next.as_ref()))
    }

    fn total(&self, scales: &Scales, shown: &Shown) -> u64 {
        scales.brief(&self.brief).total() + scales.messages(shown.messages())
    }

    /// What a turn that is under way needs to go on, where nothing is kept and its last user message is no more than a
    /// word to go on: what was asked, and how the answer so far ends.
    fn notes(&self, context: &[SharedMessage], cut: usize) -> Vec<Part> {
        let said = || self.conversation.history_from(0).rev();
        let last = said().find(|it| it.role != Role::Summary);
        let Some(last) = last.filter(|it| !ends_turn(it)) else { return Vec::new() };
        let told = said().find(|it| it.role == Role::User).is_some_and(|it| !it.has_words());
        if cut < context.len() || !told {
            return Vec::new();
        }
        let of_turn = |it: &&SharedMessage| it.meta.turn == last.meta.turn;
        let asked = said().filter(of_turn).find(|it| it.role == Role::User && it.has_words());
        let asked = asked.map(|it| {
            format!("The user has asked: {}", without_middle(&it.text(), ASKED_BYTES_MAX))
        });
        let answer = said().filter(of_turn).find(|it| it.role == Role::Assistant);
        let answer = answer.filter(|_| last.role == Role::User).map(|it| {
            let text = it.text();
            let start = text.ceil_char_boundary(text.len().saturating_sub(ENDING_BYTES));
            format!("Your answer so far ends with: {}", &text[start..])
        });
        let notes = asked.into_iter().chain(answer);
        notes.map(|note| Part::Context(redact(&note))).collect()
    }
}

fn unscaled(tokens: u64, ratio: f64) -> u64 {
    (tokens as f64 / ratio) as u64
}

/// Where the context is cut: the messages before the returned index are summarised. Cuts only before what a user said, so
/// that no tool call is parted from its result and no cut answer from its rest, and keeps at most `keep` tokens.
fn cut_point(
    context: &[SharedMessage],
    keep: u64,
    tokens: impl Fn(&SharedMessage) -> u64,
) -> usize {
    let mut kept = 0;
    let mut cut = context.len();
    for (index, message) in context.iter().enumerate().rev() {
        kept += tokens(message);
        if kept > keep {
            break;
        }
        if message.role == Role::User && message.has_words() {
            cut = index;
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `roles` is a word such as `uaua`, `g` for a user's message that only tells the model to go on; every message has
    /// one token. Expects how many are summarised.
    fn check(roles: &str, keep: u64, expected: usize) {
        let message = |role: char| {
            let role = match role {
                'u' => Role::User,
                'a' => Role::Assistant,
                't' => Role::Tool,
                'g' => {
                    let parts = vec![Part::Context("go on".into())];
                    return Arc::new(Message::of_parts(Role::User, parts, Meta::default()));
                }
                _ => Role::Summary,
            };
            Arc::new(Message::new(role, "x", Meta::default()))
        };
        let context: Vec<_> = roles.chars().map(message).collect();
        assert_eq!(cut_point(&context, keep, |_| 1), expected, "{roles} {keep}");
    }

    #[test]
    fn the_cut_stands_before_a_user_message() {
        check("", 0, 0);
        check("uauaua", 2, 4);
        check("uauaua", 3, 4);
        check("uauaua", 4, 2);
        check("uatauata", 4, 4);
        check("uauaua", 0, 6);
        check("ua", 9, 0);
    }

    #[test]
    fn a_cut_answer_is_not_parted_from_its_rest() {
        check("uauaga", 2, 6);
        check("uauaga", 4, 2);
    }
}
