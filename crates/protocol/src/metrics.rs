//! What the server counts and measures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::NoParams;

method! {
    /// Returns what the server has counted and measured since it started: the figures that it also serves to Prometheus. For
    /// the administrator.
    GetMetrics = "get_metrics", Server Read, NoParams => GetMetricsResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetMetricsResult {
    /// All there are, those without a sample included.
    pub metrics: Vec<Metric>,
}

/// One metric, by all its labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// As Prometheus knows it, with its unit.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: MetricKind,
    /// What it means.
    pub help: String,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    /// Only grows, until the server starts anew.
    Counter,
    /// How it is now.
    Gauge,
    /// How often, how much together, and how it is spread.
    Histogram,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    pub labels: BTreeMap<String, String>,
    /// Of a counter or a gauge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Of a histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    pub count: u64,
    /// All values together.
    pub sum: f64,
    /// Each counts also what the ones before it do.
    pub buckets: Vec<Bucket>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// The largest value that it counts; null for the last, which counts all.
    pub le: Option<f64>,
    pub count: u64,
}
