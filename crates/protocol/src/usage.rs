//! What model calls use and cost, and what is asked of a model's thinking.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::object;
use crate::schema::Name;

method! {
    /// Returns what model calls used and cost: of one agent, of its whole tree, or (to the administrator) of all agents.
    GetUsage = "get_usage", Server Read, GetUsageParams => GetUsageResult
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GetUsageParams {
    /// All agents when absent, which only the administrator may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub agent_id: Option<String>,
    /// Its descendants too, those that are gone included; false when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<bool>,
    /// Rows by this, the dearest first. By `model` and `day`, agents that are gone are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<UsageBy>,
    /// Only since this moment, ISO 8601; agents that are gone are then left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageBy {
    /// As `provider/model-id`.
    Model,
    Agent,
    /// Days in UTC, as `2026-11-16`.
    Day,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetUsageResult {
    pub usage: Usage,
    /// Of the calls whose price is known; null when none is.
    pub cost_usd: Option<f64>,
    /// Calls whose price is not known.
    pub cost_unknown_calls: u64,
    /// All calls.
    pub calls: u64,
    /// Where they were asked for, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<UsageRow>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UsageRow {
    /// The model, agent or day.
    pub key: String,
    pub usage: Usage,
    pub cost_usd: Option<f64>,
    pub cost_unknown_calls: u64,
    pub calls: u64,
}

/// Tokens, counted alike for every provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Everything the model read, from a cache or not.
    pub input: u64,
    /// The part of `input` that came from the provider's cache.
    pub cache_read: u64,
    /// The part of `input` that was written to it.
    pub cache_write: u64,
    /// Everything the model wrote, thoughts included.
    pub output: u64,
    /// The part of `output` that was thought.
    pub reasoning: u64,
    /// Tokens of answers that were thrown away, beside the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<u64>,
    /// True when some of it is the server's own estimate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// All that an agent's model calls used, as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageTotals {
    /// Read and written, thrown-away answers included.
    pub tokens: u64,
    /// Of the calls whose price is known; null when none is.
    pub cost_usd: Option<f64>,
    /// Calls whose price is not known.
    pub cost_unknown_calls: u64,
}

/// What is asked of a model's thinking: whether it thinks, or how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ReasoningChoice {
    /// True: as its provider does by default.
    Switch(bool),
    Detailed(#[serde(deserialize_with = "object::one")] ReasoningDetails),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReasoningDetails {
    /// How hard it thinks. One that the model does not know is lowered to the nearest it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// The most tokens it thinks, for models that are asked so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub budget_tokens: Option<std::num::NonZeroU32>,
    /// `none` keeps what it thinks off streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<ReasoningDisplay>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningDisplay {
    Stream,
    None,
}
