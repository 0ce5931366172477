//! What is known of a model, and what is asked of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::AttachmentKind;
use crate::usage::Prices;

/// What a window is taken for when nobody knows better: every current model of the large services has at least this.
pub const WINDOW_ASSUMED: u32 = 128_000;

/// The most tokens of one answer where nobody said otherwise.
const OUTPUT_LIMIT: u32 = 64_000;

/// What is known and was chosen of a model. Every call carries it to the wire.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// The name it is asked for by: what `list_agents` shows and what is stored with an agent.
    pub alias: String,
    pub provider_name: String,
    /// The wire format it is reached by.
    pub wire: &'static str,
    /// The provider's own name for it.
    pub id: String,
    pub context_window: u32,
    /// The most tokens it can write in one answer; `None` when nobody knows.
    pub max_output: Option<u32>,
    /// The most it is allowed to, where somebody said so.
    pub output_limit: Option<u32>,
    pub inputs: Inputs,
    /// How it thinks, as far as it does.
    pub thinking: Thinking,
    /// What is asked of that, unless the agent says otherwise.
    pub reasoning: Reasoning,
    /// Prefixes shorter than this many tokens are not cached.
    pub cache_minimum: u32,
    pub prices: Option<Prices>,
    /// Aliases of models that take its place for a step when its service cannot.
    pub fallback: Vec<String>,
    pub fallback_on_refusal: bool,
    /// Fields of the request that only the configuration knows the meaning of.
    pub extra_body: Map<String, Value>,
    /// Too small for tools and long instructions: it is told only what somebody set for the agent.
    pub brief: bool,
}

impl ModelInfo {
    /// A model of which only the name is known.
    pub fn undescribed(provider_name: &str, wire: &'static str, id: &str) -> Self {
        Self {
            alias: id.to_owned(),
            provider_name: provider_name.to_owned(),
            wire,
            id: id.to_owned(),
            context_window: WINDOW_ASSUMED,
            max_output: None,
            output_limit: None,
            inputs: Inputs::default(),
            thinking: Thinking::default(),
            reasoning: Reasoning::Off,
            cache_minimum: 1024,
            prices: None,
            fallback: Vec::new(),
            fallback_on_refusal: false,
            extra_body: Map::new(),
            brief: false,
        }
    }

    /// The most tokens one answer may have; `None` when nobody knows what the model can.
    pub fn answer_max(&self) -> Option<u32> {
        match (self.max_output, self.output_limit) {
            (None, None) => None,
            (own, limit) => Some(own.unwrap_or(u32::MAX).min(limit.unwrap_or(OUTPUT_LIMIT))),
        }
    }
}

/// What a model takes beside text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    pub image: bool,
    pub pdf: bool,
}

impl Inputs {
    /// Whether attachments of this kind are among them.
    pub fn take(self, kind: AttachmentKind) -> bool {
        match kind {
            AttachmentKind::Image => self.image,
            AttachmentKind::File { .. } => self.pdf,
        }
    }
}

/// How a model thinks, as its provider lets one ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    pub kind: ThinkingKind,
    /// The efforts it knows, in rising order; empty when nobody knows.
    pub efforts: Vec<Effort>,
    /// It cannot be told not to.
    pub always_on: bool,
    /// Its thoughts go back with every message, not only with those of the turn that has calls.
    pub replayed_always: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingKind {
    /// It does not, or nobody knows how to ask.
    #[default]
    None,
    /// By a number of tokens: Claude up to 4.5, Gemini 2.5.
    Budget,
    /// By an effort: everything newer.
    Effort,
}

/// How hard a model is to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl Effort {
    pub const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.name() == name)
    }

    /// The nearest that is not harder, of those a model knows; the least it knows when all are harder. Who is to think a
    /// little is never told not to think.
    pub fn lowered(self, known: &[Self]) -> Self {
        let known = || known.iter().copied().filter(|it| *it != Self::None || self == Self::None);
        known().filter(|it| *it <= self).max().or_else(|| known().min()).unwrap_or(self)
    }
}

/// What is asked of a model's thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// Nothing: what the provider does on its own.
    #[default]
    Off,
    /// To think as its provider does by default.
    On,
    Asked {
        effort: Option<Effort>,
        budget_tokens: Option<u32>,
        /// Whether its thoughts appear on streams.
        shown: bool,
    },
}

impl Reasoning {
    pub fn is_off(self) -> bool {
        self == Self::Off
    }

    pub fn effort(self) -> Option<Effort> {
        match self {
            Self::Asked { effort, .. } => effort,
            Self::Off | Self::On => None,
        }
    }

    pub fn budget_tokens(self) -> Option<u32> {
        match self {
            Self::Asked { budget_tokens, .. } => budget_tokens,
            Self::Off | Self::On => None,
        }
    }

    pub fn is_shown(self) -> bool {
        !matches!(self, Self::Asked { shown: false, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_is_lowered_to_one_that_is_known() {
        let known = [Effort::Low, Effort::High];
        for (asked, expected) in [
            (Effort::None, Effort::Low),
            (Effort::Low, Effort::Low),
            (Effort::Medium, Effort::Low),
            (Effort::High, Effort::High),
            (Effort::Max, Effort::High),
        ] {
            assert_eq!(asked.lowered(&known), expected, "{asked:?}");
        }
        assert_eq!(Effort::Max.lowered(&[]), Effort::Max);
        let can_rest = [Effort::None, Effort::Low];
        assert_eq!(Effort::Minimal.lowered(&can_rest), Effort::Low);
        assert_eq!(Effort::None.lowered(&can_rest), Effort::None);
    }
}
