//! How much a model call weighs, in tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;

use crate::brief::Brief;
use crate::conversation::Conversation;
use crate::list::List;
use crate::message::SharedMessage;
use crate::model::ModelInfo;
use crate::provider::Model;
use crate::tokens::{PER_MESSAGE, TokenCounter};
use crate::tool::is_of_servers;
use crate::usage::Usage;
use crate::{lock, on_thread};

/// Models whose counts are known apart. A server has a handful.
const RATIOS_MAX: usize = 256;

/// Briefs whose tokens are remembered.
const BRIEFS_MAX: usize = 64;

/// The part that a new count has in what is known of a model.
const RATIO_GAIN: f64 = 0.25;

/// No tokenizer is further off than this: a count that is speaks of something else, and nothing is learned from it.
const RATIO_LEAST: f64 = 0.25;
const RATIO_MOST: f64 = 4.0;

/// From shorter calls nothing is learned: what providers add to each would weigh too much.
const LEARNED_LEAST: u64 = 256;

/// A service that leaves out what does not fit still reads this much. Some say nothing better than a smaller number.
const READ_LEAST: u64 = 1_000;

/// A count this many times smaller than the bytes that were sent is none that could be relied on.
const BYTES_PER_TOKEN_MAX: u64 = 8;

/// Weighs calls: by what providers have counted, and by the tokenizer for the rest.
pub(super) struct Scales {
    counter: Arc<dyn TokenCounter>,
    ratios: Mutex<HashMap<String, Ratio>>,
    briefs: Mutex<HashMap<u64, BriefTokens>>,
}

/// How many tokens a provider counts for each of ours.
#[derive(Clone, Copy)]
struct Ratio {
    value: f64,
    /// When the newest count came that it was learned from.
    at: Timestamp,
}

#[derive(Clone, Copy)]
pub(super) struct BriefTokens {
    pub system: u64,
    pub tools: u64,
    /// Of `tools`, those of MCP servers.
    pub mcp: u64,
}

/// What a model call would show behind its brief.
#[derive(Clone)]
pub(super) struct Shown {
    messages: List<SharedMessage>,
    /// Never fewer than those of the messages.
    bytes: usize,
    /// How many of them were said before the last summary was made.
    kept: usize,
}

/// What a provider has counted: the message it stands with, and its tokens.
struct Counted {
    at: usize,
    made: Timestamp,
    input: u64,
    output: u64,
}

impl Shown {
    /// What is shown of a conversation once `next` was said.
    pub fn of(conversation: &Conversation, next: Option<&SharedMessage>) -> Self {
        let messages = match next {
            Some(next) => conversation.context_with(next),
            None => conversation.context(),
        };
        let bytes = conversation.context_bytes() + next.map_or(0, |next| next.text_bytes());
        Self { messages, bytes, kept: conversation.kept() }
    }

    pub fn messages(&self) -> &List<SharedMessage> {
        &self.messages
    }

    /// What a call has shown, where the conversation has come no further since.
    pub fn in_call(messages: &List<SharedMessage>, conversation: &Conversation) -> Self {
        let (bytes, kept) = (conversation.context_bytes(), conversation.kept());
        Self { messages: messages.clone(), bytes, kept }
    }
}

impl Scales {
    pub fn new(counter: Arc<dyn TokenCounter>) -> Self {
        Self { counter, ratios: Mutex::default(), briefs: Mutex::default() }
    }

    /// Never fewer than the tokens of a call, and found without the tokenizer.
    pub fn bound(&self, shown: &Shown, model: &ModelInfo, brief: &Brief) -> u64 {
        let around = u64::from(PER_MESSAGE);
        match counted(shown, model, brief) {
            Some(Counted { at, input, output, .. }) => {
                let since = shown.messages.from(at + 1).map(|it| it.text_bytes() as u64 + around);
                input + output + since.sum::<u64>()
            }
            None => (brief.bytes() + shown.bytes) as u64 + shown.messages.len() as u64 * around,
        }
    }

    /// About how many tokens a call has: what the provider counted for the last one and an estimate of what came since,
    /// or an estimate of it all, as the model's own tokens.
    pub async fn weigh(self: &Arc<Self>, shown: Shown, model: &Model, brief: &Arc<Brief>) -> u64 {
        let (scales, model, brief) = (self.clone(), model.info.clone(), brief.clone());
        on_thread(move || scales.weigh_here(&shown, &model, &brief)).await
    }

    /// Whether a provider has left out some of what it was sent, and does not say so.
    pub async fn has_truncated(
        self: &Arc<Self>,
        shown: Shown,
        model: &Model,
        brief: &Arc<Brief>,
        usage: &Usage,
    ) -> bool {
        if usage.estimated || usage.input == 0 {
            return false;
        }
        let (input, window) = (usage.input, u64::from(model.context_window));
        is_truncated(input, self.bound(&shown, model, brief), window)
            && is_truncated(input, self.weigh(shown, model, brief).await, window)
    }

    fn weigh_here(&self, shown: &Shown, model: &ModelInfo, brief: &Brief) -> u64 {
        let ratio = self.ratio(model);
        let whole = || scaled(self.brief(brief).total() + self.messages(&shown.messages), ratio);
        let Some(Counted { at, made, input, output }) = counted(shown, model, brief) else {
            return whole();
        };
        let before = shown.messages.iter().take(at).map(|it| self.message(it)).sum::<u64>();
        let before = self.brief(brief).total() + before;
        if is_truncated(input, scaled(before, ratio), model.context_window.into()) {
            return whole();
        }
        self.learn(model, input, before, made);
        let since = shown.messages.from(at + 1).map(|it| self.message(it)).sum();
        input + output + scaled(since, self.ratio(model))
    }

    /// How many tokens of the model one of ours is; 1 before anything was counted.
    pub fn ratio(&self, model: &ModelInfo) -> f64 {
        lock(&self.ratios).get(&key(model)).map_or(1.0, |ratio| ratio.value)
    }

    /// A provider has counted `input` tokens for what we took for `estimated`. Each count is heeded once.
    pub fn learn(&self, model: &ModelInfo, input: u64, estimated: u64, at: Timestamp) {
        if estimated < LEARNED_LEAST {
            return;
        }
        let sample = input as f64 / estimated as f64;
        if !(RATIO_LEAST..=RATIO_MOST).contains(&sample) {
            return;
        }
        let (key, mut ratios) = (key(model), lock(&self.ratios));
        let known = ratios.get(&key).copied();
        let value = match known {
            Some(known) if known.at >= at => return,
            Some(known) => known.value + RATIO_GAIN * (sample - known.value),
            None => sample,
        };
        bounded_insert(&mut ratios, key, Ratio { value, at }, RATIOS_MAX);
    }

    pub fn text(&self, text: &str) -> u64 {
        self.counter.count(text).into()
    }

    pub fn message(&self, message: &SharedMessage) -> u64 {
        message.tokens(&*self.counter).into()
    }

    pub fn messages(&self, messages: &List<SharedMessage>) -> u64 {
        messages.iter().map(|message| self.message(message)).sum()
    }

    pub fn brief(&self, brief: &Brief) -> BriefTokens {
        if let Some(known) = lock(&self.briefs).get(&brief.digest) {
            return *known;
        }
        let mut tokens = BriefTokens { system: self.text(&brief.system), tools: 0, mcp: 0 };
        for tool in brief.tools.iter() {
            let count = tool.tokens(&*self.counter);
            tokens.tools += count;
            tokens.mcp += if is_of_servers(&tool.name) { count } else { 0 };
        }
        bounded_insert(&mut lock(&self.briefs), brief.digest, tokens, BRIEFS_MAX);
        tokens
    }
}

impl BriefTokens {
    pub fn total(self) -> u64 {
        self.system + self.tools
    }
}

/// What the provider has counted last, of a call that began as this one does.
fn counted(shown: &Shown, model: &ModelInfo, brief: &Brief) -> Option<Counted> {
    let messages = &shown.messages;
    let counts = |message: &SharedMessage| {
        message.meta.made.as_ref().is_some_and(|made| {
            made.origin.model == model.id
                && made.origin.provider == model.provider_name
                && made.briefing == brief.digest
                && !made.bill.usage.estimated
                && made.bill.usage.input > 0
        })
    };
    let back = messages.iter().rev().position(counts)?;
    let at = messages.len() - 1 - back;
    if at < shown.kept {
        return None;
    }
    let answer = messages.from(at).next()?;
    let Usage { input, output, .. } = answer.meta.made.as_ref()?.bill.usage;
    let after = messages.from(at).map(|it| it.text_bytes()).sum::<usize>();
    let bytes = brief.bytes() + shown.bytes.saturating_sub(after);
    let reliable = input.saturating_mul(BYTES_PER_TOKEN_MAX) >= bytes as u64;
    reliable.then_some(Counted { at, made: answer.meta.at, input, output })
}

/// Whether so few tokens were counted, of so many, that the rest cannot have been read.
pub(super) fn is_truncated(input: u64, estimated: u64, window: u64) -> bool {
    input >= READ_LEAST && estimated > window / 2 && input.saturating_mul(2) < estimated
}

pub(super) fn scaled(tokens: u64, ratio: f64) -> u64 {
    (tokens as f64 * ratio).ceil() as u64
}

fn key(model: &ModelInfo) -> String {
    format!("{}/{}", model.provider_name, model.id)
}

/// When there are too many, any of the others makes room: what is lost is learned again.
fn bounded_insert<K: std::hash::Hash + Eq + Clone, V>(
    map: &mut HashMap<K, V>,
    key: K,
    value: V,
    max: usize,
) {
    if map.len() >= max
        && !map.contains_key(&key)
        && let Some(other) = map.keys().next().cloned()
    {
        map.remove(&other);
    }
    map.insert(key, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brief::BriefSource;
    use crate::message::{Made, Message, Meta, Origin, Role};
    use crate::store::Window;
    use crate::usage::Bill;

    struct Letters;

    impl TokenCounter for Letters {
        fn count(&self, text: &str) -> u32 {
            text.len() as u32
        }
    }

    fn scales() -> Scales {
        Scales::new(Arc::new(Letters))
    }

    fn model(id: &str) -> ModelInfo {
        ModelInfo { context_window: 10_000, ..ModelInfo::undescribed("p", "w", id) }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_ratio_moves_towards_what_is_counted() {
        let (scales, model) = (scales(), model("a"));
        assert_eq!(scales.ratio(&model), 1.0);
        scales.learn(&model, 2_000, 1_000, at(1));
        assert_eq!(scales.ratio(&model), 2.0, "the first count is all there is");
        scales.learn(&model, 1_000, 1_000, at(2));
        assert_eq!(scales.ratio(&model), 1.75);
        // What was heeded, or is older, is not heeded again.
        scales.learn(&model, 1_000, 1_000, at(2));
        scales.learn(&model, 1_000, 1_000, at(1));
        assert_eq!(scales.ratio(&model), 1.75);
        assert_eq!(scales.ratio(&self::model("b")), 1.0, "each model has its own");
    }

    #[test]
    fn what_says_nothing_is_not_learned() {
        let (scales, model) = (scales(), model("a"));
        scales.learn(&model, 512, LEARNED_LEAST - 1, at(1));
        scales.learn(&model, 249, 1_000, at(1));
        scales.learn(&model, 4_001, 1_000, at(1));
        assert_eq!(scales.ratio(&model), 1.0);
        scales.learn(&model, 512, LEARNED_LEAST, at(1));
        assert_eq!(scales.ratio(&model), 2.0);
        for (input, ratio) in [(250, RATIO_LEAST), (4_000, RATIO_MOST)] {
            let model = self::model(&input.to_string());
            scales.learn(&model, input, 1_000, at(1));
            assert_eq!(scales.ratio(&model), ratio);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let scales = scales();
        for number in 0..=RATIOS_MAX {
            scales.learn(&model(&number.to_string()), 2_000, 1_000, at(1));
        }
        assert_eq!(lock(&scales.ratios).len(), RATIOS_MAX);
        assert_eq!(scales.ratio(&model(&RATIOS_MAX.to_string())), 2.0, "the newest is there");
        for number in 0..=BRIEFS_MAX {
            let brief = Brief::new(number.to_string().into(), Arc::from([]), BriefSource::Own);
            scales.brief(&brief);
        }
        assert_eq!(lock(&scales.briefs).len(), BRIEFS_MAX);
    }

    /// A conversation of 1,000 letters for which `input` tokens were counted, an answer of 50 and a question of 400.
    fn weighed(scales: &Scales, input: u64) -> u64 {
        let brief = Brief::new("s".repeat(100).into(), Arc::from([]), BriefSource::Own);
        let (model, origin) = (model("a"), Origin::default());
        let origin = Origin { provider: "p".into(), model: "a".into(), ..origin };
        let usage = Usage { input, output: 60, ..Usage::default() };
        let made = Made {
            origin,
            briefing: brief.digest,
            stop: Default::default(),
            bill: Bill::of(usage, None),
        };
        let meta = Meta { made: Some(Arc::new(made)), at: at(1), ..Meta::default() };
        let said = |role, length, meta| Arc::new(Message::new(role, "x".repeat(length), meta));
        let messages = vec![
            said(Role::User, 1_000 - 100 - 4, Meta::default()),
            said(Role::Assistant, 50 - 4, meta),
            said(Role::User, 400 - 4, Meta::default()),
        ];
        let conversation = Conversation::new(Window { first: 0, messages });
        let shown = Shown::of(&conversation, None);
        let weight = scales.weigh_here(&shown, &model, &brief);
        let bound = scales.bound(&shown, &model, &brief);
        assert!(weight <= bound || scales.ratio(&model) > 1.0, "{weight} of {bound}");
        weight
    }

    #[test]
    fn a_call_weighs_what_was_counted_and_an_estimate_of_the_rest() {
        let scales = scales();
        assert_eq!(weighed(&scales, 500), 500 + 60 + 200);
        assert_eq!(scales.ratio(&model("a")), 0.5);
        assert_eq!(weighed(&self::scales(), 1_000), 1_000 + 60 + 400);
        // Nothing was counted, and then as much as nothing.
        assert_eq!(weighed(&scales, 0), 725, "by what is known of the model");
        assert_eq!(weighed(&self::scales(), 0), 1_450, "by the tokenizer alone");
        assert_eq!(weighed(&self::scales(), 100), 1_450);
    }

    #[test]
    fn a_count_that_cannot_be_is_none() {
        assert!(is_truncated(2_500, 5_001, 10_000));
        assert!(!is_truncated(2_501, 5_001, 10_000));
        assert!(!is_truncated(2_000, 5_000, 10_000), "half a window may be anything");
        assert!(is_truncated(READ_LEAST, 5_001, 10_000));
        assert!(!is_truncated(READ_LEAST - 1, 5_001, 10_000), "that says nothing");
    }
}
