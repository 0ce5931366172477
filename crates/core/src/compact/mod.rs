//! Keeping a conversation within the model's window: weighing it, and summarising its older part.

mod digest;
mod plan;
mod summary;
mod transcript;
mod weigh;

use std::sync::Arc;

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, Entry, Snapshot};
use crate::brief::Brief;
use crate::briefing::Briefing;
use crate::ledger::Ledger;
use crate::list::List;
use crate::message::{
    ATTACHED_BYTES_MAX, Made, Message, Meta, Origin, Part, Role, SharedMessage, StopReason,
};
use crate::observe::Observer;
use crate::on_thread;
use crate::provider::{Model, ModelError, Models};
use crate::store::StoreError;
use crate::tokens::TokenCounter;
use crate::usage::{Bill, Usage};
use crate::watch::{Event, Watches};
use digest::digest;
use plan::{Bounds, Outline, Plan, Unfit};
use summary::{Ladder, Summary};
use weigh::{BriefTokens, Scales, Shown};

/// Weighs conversations and shortens them.
pub struct Compactor {
    models: Arc<dyn Models>,
    scales: Arc<Scales>,
    briefing: Arc<Briefing>,
    settings: CompactionSettings,
    observer: Arc<dyn Observer>,
    watches: Arc<Watches>,
}

#[derive(Clone, Debug)]
pub struct CompactionSettings {
    /// Whether turns compact on their own when the window fills.
    pub enabled: bool,
    /// The model that summarises; the agent's own when absent.
    pub model: Option<String>,
    /// The part of the window that may be filled before older messages are summarised.
    pub trigger_threshold: f64,
    /// The part of the window that recent messages, kept to the letter, may take.
    pub recent_preserve_ratio: f64,
}

/// Tokens of an agent's context, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCount {
    pub system: u64,
    pub tools: u64,
    /// Of `tools`, those of MCP servers.
    pub mcp: u64,
    pub messages: u64,
    /// The model's window; 0 when the agent's model is not available.
    pub budget: u64,
}

impl TokenCount {
    pub fn total(&self) -> u64 {
        self.system + self.tools + self.messages
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compaction {
    Done {
        before: u64,
        after: u64,
    },
    /// Nothing was done, and why.
    Skipped(&'static str),
}

/// Why a conversation was not shortened. What goes wrong with models does not belong here: then others are asked, and in
/// the end none.
#[derive(Debug, Clone, Error)]
pub enum CompactError {
    #[error("the conversation has {tokens} tokens and the model's window is {window}")]
    TooLong { tokens: u64, window: u64 },
    #[error(
        "the attachments of the conversation have {bytes} bytes, and a request has at most {ATTACHED_BYTES_MAX}: compact it"
    )]
    Attached { bytes: u64 },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A conversation that is to be shortened.
struct Task<'a> {
    agent: &'a Agent,
    now: Arc<Snapshot>,
    /// The model that is to go on with it.
    model: &'a Model,
    brief: &'a Arc<Brief>,
    /// What is said next.
    next: Option<&'a SharedMessage>,
    /// What the next call would weigh.
    before: u64,
    /// The provider has found it too long, whatever we think.
    rejected: bool,
    /// Somebody asks for it, need or not.
    force: bool,
}

enum Shortened {
    Done(Arc<Snapshot>),
    Nothing,
    Cancelled,
}

impl Compactor {
    pub(crate) fn new(
        models: Arc<dyn Models>,
        counter: Arc<dyn TokenCounter>,
        briefing: Arc<Briefing>,
        settings: CompactionSettings,
        observer: Arc<dyn Observer>,
        watches: Arc<Watches>,
    ) -> Self {
        let scales = Arc::new(Scales::new(counter));
        Self { models, scales, briefing, settings, observer, watches }
    }

    pub async fn count(&self, agent: &Snapshot) -> Result<TokenCount, StoreError> {
        let (budget, brief) = match self.models.resolve(agent.settings.model.as_deref()) {
            Ok(model) => (model.context_window.into(), model.brief),
            Err(_) => (0, false),
        };
        let brief = self.briefing.of(agent, brief).await?;
        let (messages, scales) = (agent.conversation.context(), self.scales.clone());
        Ok(on_thread(move || {
            let BriefTokens { system, tools, mcp } = scales.brief(&brief);
            let messages = scales.messages(&messages);
            TokenCount { system, tools, mcp, messages, budget }
        })
        .await)
    }

    /// Summarises the older part of the conversation, if it must. Called in the agent's line of turns.
    pub(crate) async fn compact(
        &self,
        agent: &Agent,
        force: bool,
        cancel: &CancellationToken,
    ) -> Result<Compaction, CompactError> {
        let now = agent.snapshot();
        let model = self.models.resolve(now.settings.model.as_deref())?;
        let brief = self.briefing.epoch(&now, &model).await?.brief;
        let weight = self.weigh(&now, &model, &brief).await;
        if !force && weight <= self.trigger(&model) {
            return Ok(Compaction::Skipped("below_threshold"));
        }
        let before = self.count(&now).await?.total();
        let task = Task {
            agent,
            now,
            model: &model,
            brief: &brief,
            next: None,
            before: weight,
            rejected: false,
            force: true,
        };
        Ok(match self.carry_out(&task, cancel).await? {
            Shortened::Done(now) => {
                Compaction::Done { before, after: self.count(&now).await?.total() }
            }
            Shortened::Nothing => Compaction::Skipped("nothing_to_compact"),
            Shortened::Cancelled => Compaction::Skipped("cancelled"),
        })
    }

    /// Makes sure that `next` fits behind the conversation, summarising its older part if it must. Whether it was.
    ///
    /// The text's bytes bound its tokens from above, so the tokenizer is not even loaded before they could matter.
    pub(crate) async fn make_room(
        &self,
        agent: &Agent,
        model: &Model,
        brief: &Arc<Brief>,
        next: Option<&SharedMessage>,
        cancel: &CancellationToken,
    ) -> Result<bool, CompactError> {
        let now = agent.snapshot();
        let shown = Shown::of(&now.conversation, next);
        let mut attached = attached_bytes(&now, next);
        if self.scales.bound(&shown, model, brief) <= self.trigger(model)
            && attached <= ATTACHED_BYTES_MAX
        {
            return Ok(false);
        }
        let mut tokens = self.scales.weigh(shown, model, brief).await;
        let mut rounds = 0;
        while self.settings.enabled
            && (tokens > self.trigger(model) || attached > ATTACHED_BYTES_MAX)
            && rounds < ROUNDS_MAX
        {
            let (now, before) = (agent.snapshot(), tokens);
            // Attachments go out of sight with any summary, also where there is room for their tokens.
            let force = tokens <= self.trigger(model);
            let task = Task { agent, now, model, brief, next, before, rejected: false, force };
            match self.carry_out(&task, cancel).await? {
                Shortened::Done(now) => {
                    rounds += 1;
                    attached = attached_bytes(&now, next);
                    let shown = Shown::of(&now.conversation, next);
                    tokens = self.scales.weigh(shown, model, brief).await;
                }
                Shortened::Nothing => break,
                Shortened::Cancelled => return Ok(rounds > 0),
            }
        }
        if attached > ATTACHED_BYTES_MAX {
            return Err(CompactError::Attached { bytes: attached });
        }
        let window = u64::from(model.context_window);
        match tokens > window {
            true => Err(CompactError::TooLong { tokens, window }),
            false => Ok(rounds > 0),
        }
    }

    /// Summarises as much as it can of a conversation that a provider found too long. Whether that was anything.
    pub(crate) async fn shorten(
        &self,
        agent: &Agent,
        model: &Model,
        brief: &Arc<Brief>,
        cancel: &CancellationToken,
    ) -> Result<bool, CompactError> {
        if !self.settings.enabled {
            return Ok(false);
        }
        let now = agent.snapshot();
        let before = self.weigh(&now, model, brief).await;
        let task =
            Task { agent, now, model, brief, next: None, before, rejected: true, force: false };
        match self.carry_out(&task, cancel).await {
            Ok(done) => Ok(matches!(done, Shortened::Done(_))),
            Err(CompactError::TooLong { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// About how many tokens a call has as the conversation stands.
    pub(crate) async fn weigh(&self, now: &Snapshot, model: &Model, brief: &Arc<Brief>) -> u64 {
        self.scales.weigh(Shown::of(&now.conversation, None), model, brief).await
    }

    /// Whether the provider has silently left out some of what a call has shown, by what it says that it has read.
    pub(crate) async fn is_truncated(
        &self,
        now: &Snapshot,
        messages: &List<SharedMessage>,
        model: &Model,
        brief: &Arc<Brief>,
        usage: &Usage,
    ) -> bool {
        let shown = Shown::in_call(messages, &now.conversation);
        self.scales.has_truncated(shown, model, brief, usage).await
    }

    /// The most tokens the next answer may have: what the model can, what it is allowed to, and what the window leaves.
    pub(crate) async fn answer_max(
        &self,
        now: &Snapshot,
        model: &Model,
        brief: &Arc<Brief>,
    ) -> Option<u32> {
        Some(self.answer_within(now, model, brief, model.answer_max()?).await)
    }

    /// As many of `most` tokens as the window leaves for the next answer.
    pub(crate) async fn answer_within(
        &self,
        now: &Snapshot,
        model: &Model,
        brief: &Arc<Brief>,
        most: u32,
    ) -> u32 {
        let left = |tokens: u64| {
            let left = u64::from(model.context_window).saturating_sub(tokens + margin(model));
            u32::try_from(left).unwrap_or(u32::MAX)
        };
        let shown = Shown::of(&now.conversation, None);
        if left(self.scales.bound(&shown, model, brief)) >= most {
            return most;
        }
        let tokens = self.scales.weigh(shown, model, brief).await;
        most.min(left(tokens)).max(1)
    }

    pub(crate) async fn last_message_tokens(&self, now: &Snapshot) -> u64 {
        let scales = self.scales.clone();
        let last = now.conversation.context().last().cloned();
        on_thread(move || last.map_or(0, |message| scales.message(&message))).await
    }

    /// How much of a window the context may fill before it is compacted; all of it where nothing is compacted.
    pub fn context_capacity(&self, window: u64) -> u64 {
        match self.settings.enabled {
            true => (window as f64 * self.settings.trigger_threshold) as u64,
            false => window,
        }
    }

    /// The most a call may weigh before older messages are summarised: then little of the window is left, or too little
    /// for an answer.
    fn trigger(&self, model: &Model) -> u64 {
        let window = u64::from(model.context_window);
        let part = (window as f64 * self.settings.trigger_threshold) as u64;
        part.min(window.saturating_sub(answer_room(model)))
    }

    /// Puts a summary in the place of the older part. It always ends: where no model can make one, there is a digest, and
    /// where that does not help either, nothing is changed.
    async fn carry_out(
        &self,
        task: &Task<'_>,
        cancel: &CancellationToken,
    ) -> Result<Shortened, CompactError> {
        let plans = self.plans(task).await?;
        let Some(first) = plans.first() else { return Ok(Shortened::Nothing) };
        let ledger = Ledger::default();
        let ladder = Ladder { compactor: self, task, plan: first, ledger: &ledger };
        let asked = async {
            match first.is_worth_asking {
                true => ladder.climb().await,
                false => None,
            }
        };
        let Some(summary) = cancel.run_until_cancelled(asked).await else {
            ledger.discard();
            return match self.spend(task.agent, ledger.total()).await {
                Ok(()) | Err(StoreError::Ended) => Ok(Shortened::Cancelled),
                Err(error) => Err(error.into()),
            };
        };
        let (plan, Summary { text, origin }) = match summary {
            Some(summary) => (first, summary),
            None => match self.digest(task, &plans).await {
                Some((plan, text)) => (plan, Summary { text, origin: task.model.origin() }),
                None => {
                    self.spend(task.agent, ledger.total()).await?;
                    return Ok(Shortened::Nothing);
                }
            },
        };
        let meta = Meta {
            at: crate::now(),
            covers: Some(plan.covers),
            made: made(origin, ledger.total()),
            ..Meta::default()
        };
        let messages = vec![summary_message(text, plan.notes.clone(), meta)];
        let progress = task.agent.look().progress;
        let entry = Entry { messages, progress, ..Entry::default() };
        let now = task.agent.append(entry).await?;
        if self.watches.is_watched() {
            let shown = Shown::of(&now.conversation, task.next);
            let after = self.scales.weigh(shown, task.model, task.brief).await;
            self.watches.tell(&now.id, None, || Event::Compacted { before: task.before, after });
        }
        Ok(Shortened::Done(now))
    }

    async fn plans(&self, task: &Task<'_>) -> Result<Vec<Plan>, CompactError> {
        let window = u64::from(task.model.context_window);
        let bounds = Bounds {
            limits: [
                self.trigger(task.model),
                window.saturating_sub(answer_room(task.model)),
                window,
            ],
            keep: (window as f64 * self.settings.recent_preserve_ratio) as u64,
            force: task.force,
        };
        let outline = Outline {
            conversation: task.now.conversation.clone(),
            next: task.next.cloned(),
            model: task.model.info.clone(),
            brief: task.brief.clone(),
            before: task.before,
            bounds,
        };
        let scales = self.scales.clone();
        let plans = on_thread(move || outline.plans(&scales)).await;
        plans.map_err(|Unfit { tokens }| CompactError::TooLong { tokens, window })
    }

    /// What stands in for a summary, and the plan it keeps to.
    async fn digest<'p>(&self, task: &Task<'_>, plans: &'p [Plan]) -> Option<(&'p Plan, String)> {
        tracing::warn!(agent = %task.now.id, "no model could summarise the conversation");
        for plan in plans {
            let (older, most, in_need) = (plan.older.clone(), plan.most, !task.force);
            let (scales, toolbox) = (self.scales.clone(), self.briefing.toolbox.clone());
            let count = move |text: &str| scales.text(text);
            let text = on_thread(move || digest(&older, &toolbox, in_need, most, count)).await;
            if let Some(text) = text {
                return Some((plan, text));
            }
        }
        None
    }

    /// Notes what was paid for nothing.
    async fn spend(&self, agent: &Agent, spent: Bill) -> Result<(), StoreError> {
        if spent.is_empty() {
            return Ok(());
        }
        let progress = agent.look().progress;
        agent.append(Entry { progress, spent, ..Entry::default() }).await.map(drop)
    }
}

/// Bytes of the attachments that a call has with `next` at its end.
fn attached_bytes(now: &Snapshot, next: Option<&SharedMessage>) -> u64 {
    now.conversation.attached_bytes() + next.map_or(0, |next| next.attached_bytes())
}

fn summary_message(text: String, notes: Vec<Part>, meta: Meta) -> SharedMessage {
    let parts = [Part::Text(text)].into_iter().chain(notes).collect();
    Arc::new(Message::of_parts(Role::Summary, parts, meta))
}

/// How a summary was made; a digest for which no model was paid was not made by any.
fn made(origin: Origin, bill: Bill) -> Option<Arc<Made>> {
    let stop = StopReason::EndTurn.into();
    (!bill.is_empty()).then(|| Arc::new(Made { origin, briefing: 0, stop, bill }))
}

/// How often room is made for one message. Once will do, unless a model's way of counting was learned on the way.
const ROUNDS_MAX: u32 = 2;

/// What is left free beside the input and the answer: counts are never exact.
const MARGIN_LEAST: u64 = 2_048;

/// An answer with fewer tokens than this is not worth asking for.
const ANSWER_LEAST: u64 = 4_096;

/// Of a small window no more than this part is kept free.
const RESERVED_PART: u64 = 32;

/// What a call has to leave of the window.
fn answer_room(model: &Model) -> u64 {
    margin(model) + reserve(model, ANSWER_LEAST)
}

fn margin(model: &Model) -> u64 {
    reserve(model, MARGIN_LEAST.max(u64::from(model.context_window) / 50))
}

fn reserve(model: &Model, tokens: u64) -> u64 {
    tokens.min(u64::from(model.context_window) / RESERVED_PART)
}
