//! Methods on models: what there is to choose from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::Bounded;

method! {
    /// Lists the models that agents can have, those that the configuration names first, and says of each figure where it
    /// comes from. A model that is not listed can be asked for all the same, as `provider/id`.
    ListModels = "list_models", Server Read, ListModelsParams => ListModelsResult
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListModelsParams {
    /// Those of this provider alone, by its name in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Also those that the providers have beside the configured ones, as far as they are known; false when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// How many to leave out from the start, 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Most models to return, 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 1000>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListModelsResult {
    /// All that was asked for, on this page or not.
    pub total: u64,
    pub offset: u64,
    pub limit: u32,
    /// The name of the model that answers when none is named, listed here or not; null when there is none.
    #[serde(default)]
    pub default: Option<String>,
    pub models: Vec<ModelEntry>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelEntry {
    /// The name to ask for it by.
    pub alias: String,
    /// The provider's name in the configuration.
    pub provider: String,
    /// The provider's own name for it.
    pub id: String,
    /// The format that it is spoken to in: `messages`, `chat`, `responses`, `generate_content`, `ollama`, `local`.
    pub wire: String,
    pub context_window: u32,
    /// The most tokens of one answer; null when nobody knows.
    pub max_output_tokens: Option<u32>,
    /// `text`, `image`, `pdf`.
    pub input: Vec<String>,
    pub reasoning: ModelReasoning,
    /// What it is known to be able to do: `image`, `pdf`, `reasoning`, `schemas`, `tools`.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Null when nobody knows it.
    pub price: Option<ModelPrice>,
    /// Whether it takes tools; null when nobody knows.
    pub tools: Option<bool>,
    /// Whether its answers can be held to a JSON Schema; null when nobody knows.
    pub schemas: Option<bool>,
    /// The only wires that reach it; empty when every one does that its provider speaks.
    pub wires: Vec<String>,
    /// The day its service ends it, as `2026-01-31`; null when none is known.
    pub retires: Option<String>,
    pub sources: ModelSources,
    /// Whether a turn could have it now.
    #[serde(default)]
    pub available: bool,
    /// Why it is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether its provider has the key it needs, or needs none.
    pub key_set: bool,
    /// It answers when none is named.
    pub default: bool,
}

impl ModelEntry {
    /// What it can be asked for by: its alias, and that behind its provider's name. Where two providers have an alias, only
    /// the latter is one.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let behind = format!("{}/", self.provider);
        let whole = (!self.alias.starts_with(&behind)).then(|| behind + &self.alias);
        [self.alias.clone()].into_iter().chain(whole)
    }

    pub fn is_named(&self, name: &str) -> bool {
        self.names().any(|it| it == name)
    }
}

/// How a model thinks, and what is asked of it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelReasoning {
    /// How it is asked to: `effort`, `budget` (a number of tokens), or `none` when it cannot be asked.
    pub kind: String,
    /// The efforts it knows, in rising order; empty when nobody knows.
    pub efforts: Vec<String>,
    /// It cannot be told not to.
    pub always_on: bool,
    /// Whether the configuration asks for it.
    pub asked: bool,
    /// The effort that the configuration asks for.
    pub effort: Option<String>,
    pub budget_tokens: Option<u32>,
}

/// Dollars for a million tokens.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelPrice {
    #[serde(flatten)]
    pub rates: ModelRates,
    /// What calls with longer inputs cost, in rising order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<ModelPriceAbove>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelPriceAbove {
    /// The input has more tokens than this.
    pub tokens: u64,
    #[serde(flatten)]
    pub rates: ModelRates,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelRates {
    pub input: f64,
    pub output: f64,
    /// As `input` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// As `input` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// Where each figure comes from: `configuration`, `learned` (a provider's rejection), `provider` (as it said itself when
/// `nexus3 models refresh` asked), `catalogue` (the table that is shipped with the server), `family` (the same, of the
/// nearest model that it has) or `assumed`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelSources {
    pub context_window: String,
    pub max_output_tokens: String,
    pub input: String,
    pub reasoning: String,
    pub price: String,
}
