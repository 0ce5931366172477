//! Whom a turn asks, and with what.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use crate::account::Account;
use crate::agent::Snapshot;
use crate::brief::Brief;
use crate::briefing::earlier;
use crate::list::List;
use crate::message::SharedMessage;
use crate::model::ModelInfo;
use crate::provider::{Model, ModelCall, Models, Recurs, Urgency};

/// The model of a turn, what it is told, and what was tried with it.
pub(super) struct Talk {
    pub model: Model,
    pub brief: Arc<Brief>,
    pub call: ModelCall,
    /// Models that may take over, in the order in which they do.
    fallbacks: VecDeque<String>,
    /// The bound on an answer that the caller of the turn has set.
    pub asked_max: Option<u32>,
    /// What came between in the step that is under way.
    pub tried: Tried,
    /// How often in a row the conversation was too long for the model.
    pub overflows: u32,
    /// It was too long for an answer that is kept, in a window of this size: it is shortened before the next.
    pub full: Option<u32>,
}

/// What was tried in one step.
#[derive(Default)]
pub(super) struct Tried {
    pub broken: u32,
    pub empty: u32,
    pub larger: bool,
    pub window: bool,
    pub thoughts: bool,
}

/// What a turn asks for beside what is said.
#[derive(Default)]
pub(super) struct Wishes {
    pub schema: Option<Arc<Value>>,
    pub max_output_tokens: Option<u32>,
    pub urgency: Urgency,
}

impl Talk {
    pub fn new(
        model: Model,
        brief: Arc<Brief>,
        agent: &Snapshot,
        account: &Account,
        messages: List<SharedMessage>,
        wishes: Wishes,
    ) -> Self {
        let reasoning = agent.settings.reasoning.unwrap_or(model.reasoning);
        let call = ModelCall {
            model: model.info.clone(),
            reasoning,
            system: brief.system.clone(),
            tools: brief.tools.clone(),
            messages,
            earlier: 0,
            max_tokens: None,
            schema: wishes.schema,
            strict: false,
            asker: agent.asker(account, wishes.urgency),
            recurs: Recurs::Whole,
        };
        let fallbacks = model.fallback.iter().cloned().collect();
        let asked_max = wishes.max_output_tokens;
        let mut talk = Self {
            model,
            brief,
            call,
            fallbacks,
            asked_max,
            tried: Tried::default(),
            overflows: 0,
            full: None,
        };
        talk.look_back();
        talk
    }

    /// A further step begins; an answer may have so many tokens.
    pub fn begin_step(&mut self, answer_max: Option<u32>) {
        self.tried = Tried::default();
        self.bound_answer(answer_max);
    }

    pub fn bound_answer(&mut self, answer_max: Option<u32>) {
        self.call.max_tokens = match (answer_max, self.asked_max) {
            (Some(most), Some(asked)) => Some(most.min(asked)),
            (most, asked) => most.or(asked),
        };
    }

    pub fn show(&mut self, messages: List<SharedMessage>) {
        self.call.messages = messages;
    }

    /// Goes on with another brief, from here on.
    pub fn renew(&mut self, brief: Arc<Brief>) {
        self.call.system = brief.system.clone();
        self.call.tools = brief.tools.clone();
        self.brief = brief;
        self.look_back();
    }

    /// Goes on with what is known of the model by now, and as if its window were no larger than this. Returns the model
    /// as it was.
    pub fn narrow(&mut self, models: &dyn Models, window: u64) -> Model {
        let left = self.model.clone();
        if let Ok(model) = models.resolve(Some(&self.model.alias))
            && model.is_same(&self.model)
        {
            self.call.model = model.info.clone();
            self.model = model;
        }
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        if window < self.model.context_window {
            let info = ModelInfo { context_window: window, ..(*self.model.info).clone() };
            self.model.info = Arc::new(info);
        }
        left
    }

    /// Goes on without anything that was thought so far.
    pub fn forget_thoughts(&mut self) {
        self.renew(Arc::new(self.brief.again()));
        self.call.earlier = self.call.messages.len();
    }

    /// Goes on with everything that was thought so far, in all of the conversation.
    pub fn recall_thoughts(&mut self) {
        let mut info = (*self.model.info).clone();
        info.thinking.replayed_always = true;
        self.model.info = Arc::new(info);
        self.call.model = self.model.info.clone();
    }

    /// Lets the next model take over that can. Returns the alias of the one that is left. An answer is still bounded as
    /// that one's were.
    pub fn fall_back(&mut self, models: &dyn Models, needed: u64) -> Option<String> {
        while let Some(alias) = self.fallbacks.pop_front() {
            let Some(next) = self.stand_in(models, &alias, needed) else { continue };
            self.call.model = next.info.clone();
            if self.call.reasoning == self.model.reasoning {
                self.call.reasoning = next.reasoning;
            }
            let left = std::mem::replace(&mut self.model, next);
            self.tried = Tried::default();
            self.look_back();
            return Some(left.alias.clone());
        }
        None
    }

    /// Whether a model of another service is left that could take over: those of one wait together.
    pub fn may_go_elsewhere(&self, models: &dyn Models, needed: impl FnOnce() -> u64) -> bool {
        if self.fallbacks.is_empty() {
            return false;
        }
        let needed = needed();
        let is_elsewhere = |next: &Model| !Arc::ptr_eq(&next.provider, &self.model.provider);
        let next = |alias: &String| self.stand_in(models, alias, needed);
        self.fallbacks.iter().filter_map(next).any(|next| is_elsewhere(&next))
    }

    /// The model of this name, if it can be shown all there is to show.
    fn stand_in(&self, models: &dyn Models, alias: &str, needed: u64) -> Option<Model> {
        let model = models.resolve(Some(alias)).ok()?;
        let mut attached = self.call.messages.iter().flat_map(|message| message.attachments());
        let fits = needed <= u64::from(model.context_window)
            && attached.all(|attachment| model.inputs.take(attachment.kind));
        fits.then_some(model)
    }

    /// Finds how much of the conversation belongs to earlier epochs of this service.
    fn look_back(&mut self) {
        self.call.earlier = earlier(&self.call.messages, &self.model, &self.brief);
    }
}
