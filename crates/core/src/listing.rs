//! What models there are, and who says what of them.

use std::sync::Arc;

use crate::model::ModelInfo;

/// Which models are listed.
#[derive(Clone, Debug, Default)]
pub struct ModelQuery {
    /// Those of this provider alone.
    pub provider: Option<String>,
    /// Also those that no configuration names.
    pub all: bool,
    pub offset: u64,
    pub limit: u32,
}

#[derive(Clone, Debug, Default)]
pub struct ModelPage {
    /// All that the query means, on this page or not.
    pub total: u64,
    /// The name of the one that answers when none is named, on this page or not.
    pub default: Option<String>,
    pub models: Vec<ListedModel>,
}

#[derive(Clone, Debug)]
pub struct ListedModel {
    pub info: Arc<ModelInfo>,
    pub sources: Sources,
    /// Whether it takes tools, where that is known.
    pub tools: Option<bool>,
    /// Whether its answers can be held to a JSON Schema, where that is known.
    pub schemas: Option<bool>,
    /// The only wires that reach it, where not every one of its service does.
    pub wires: Vec<String>,
    /// The day its service ends it, as `2026-01-31`.
    pub retires: Option<String>,
    /// Why no turn could have it now.
    pub unavailable: Option<String>,
    /// Whether its provider has the key it needs, or needs none.
    pub key_set: bool,
    /// It answers when none is named.
    pub default: bool,
}

/// Where each figure of a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    pub context_window: Source,
    pub max_output: Source,
    pub inputs: Source,
    pub thinking: Source,
    pub prices: Source,
}

/// Who says something of a model; who comes first is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Configuration,
    /// A provider's rejection.
    Learned,
    /// The provider, when it was asked.
    Provider,
    /// The table that is shipped with the program.
    Catalogue,
    /// The same table, of another model of the family.
    Family,
    /// Nobody.
    Assumed,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Learned => "learned",
            Self::Provider => "provider",
            Self::Catalogue => "catalogue",
            Self::Family => "family",
            Self::Assumed => "assumed",
        }
    }
}

/// What a provider was found to enforce for a model, which is more than anybody says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lesson {
    pub window: Option<u32>,
    /// It wants its thoughts back with every message.
    pub thoughts_always: bool,
}

impl Lesson {
    pub fn window(tokens: u32) -> Self {
        Self { window: Some(tokens), ..Self::default() }
    }

    pub fn thoughts_always() -> Self {
        Self { thoughts_always: true, ..Self::default() }
    }

    /// What is known once `new` is.
    pub fn with(self, new: Self) -> Self {
        Self {
            window: new.window.or(self.window),
            thoughts_always: new.thoughts_always || self.thoughts_always,
        }
    }
}

/// The memory of such lessons.
pub trait Learned: Send + Sync {
    fn known(&self, provider: &str, id: &str) -> Lesson;

    /// Adds to what is known.
    fn learn(&self, provider: &str, id: &str, lesson: Lesson);
}
