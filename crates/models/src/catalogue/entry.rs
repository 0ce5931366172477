//! What is known of one model, as a line of a table says it.

use nexus_core::model::{Effort, Inputs, Thinking, ThinkingKind};
use nexus_core::usage::{Prices, Rates};
use serde::{Deserialize, Serialize};

/// What is absent is not known. Every reader passes over members that a later version added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// `vendor/id`. It comes first: the search reads it without reading the rest.
    pub key: String,
    /// The most tokens of a conversation. Where the service counts input and answer apart, those of the input: that is
    /// what a conversation that grows runs into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// The most tokens of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<Input>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinks>,
    /// Prefixes shorter than this many tokens are not cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_minimum: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Whether answers can be held to a JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schemas: Option<bool>,
    /// The only wires that reach it, where not every one of its service does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wires: Vec<String>,
    /// The day its service ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retires: Option<String>,
}

/// What a model takes beside text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    Image,
    Pdf,
}

/// How a model thinks; see [`Thinking`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thinks {
    pub kind: Kind,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub efforts: Vec<Effort>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub always_on: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed_always: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    #[default]
    None,
    Budget,
    Effort,
}

/// Dollars for a million tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    #[serde(flatten)]
    pub base: Rate,
    /// In rising order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<Tier>,
}

/// What calls cost whose input is longer than this many tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    pub tokens: u64,
    #[serde(flatten)]
    pub rate: Rate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub input: f64,
    pub output: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

impl Entry {
    pub fn inputs(&self) -> Option<Inputs> {
        let inputs = self.inputs.as_ref()?;
        Some(Inputs { image: inputs.contains(&Input::Image), pdf: inputs.contains(&Input::Pdf) })
    }

    pub fn thinking(&self) -> Option<Thinking> {
        let Thinks { kind, efforts, always_on, replayed_always } = self.thinking.clone()?;
        let kind = match kind {
            Kind::None => ThinkingKind::None,
            Kind::Budget => ThinkingKind::Budget,
            Kind::Effort => ThinkingKind::Effort,
        };
        Some(Thinking { kind, efforts, always_on, replayed_always })
    }

    /// `None` too when the figures cannot be prices.
    pub fn prices(&self) -> Option<Prices> {
        self.price.as_ref()?.prices()
    }
}

impl Price {
    /// The same in billionths of a dollar.
    pub fn prices(&self) -> Option<Prices> {
        let tiers = self.above.iter().map(|tier| Some((tier.tokens, tier.rate.rates()?)));
        Some(Prices { base: self.base.rates()?, tiers: tiers.collect::<Option<_>>()? })
    }
}

impl Rate {
    fn rates(&self) -> Option<Rates> {
        let nanos = |dollars: f64| nexus_core::usage::Cost::from_usd(dollars).map(|cost| cost.0);
        let optional = |dollars: Option<f64>| match dollars {
            Some(dollars) => nanos(dollars).map(Some),
            None => Some(None),
        };
        Some(Rates {
            input: nanos(self.input)?,
            output: nanos(self.output)?,
            cache_read: optional(self.cache_read)?,
            cache_write: optional(self.cache_write)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_billionths_of_a_dollar_and_nothing_else() {
        let rate = Rate { input: 2.5, output: 10.0, cache_read: Some(0.25), cache_write: None };
        let price = Price { base: rate, above: vec![Tier { tokens: 200_000, rate }] };
        let rates = Rates {
            input: 2_500_000_000,
            output: 10_000_000_000,
            cache_read: Some(250_000_000),
            cache_write: None,
        };
        let expected = Prices { base: rates, tiers: vec![(200_000, rates)] };
        assert_eq!(price.prices(), Some(expected));
        let odd = Rate { cache_read: Some(-1.0), ..rate };
        assert_eq!(Price { base: odd, above: Vec::new() }.prices(), None);
        let above = vec![Tier { tokens: 1, rate: odd }];
        assert_eq!(Price { base: rate, above }.prices(), None);
    }

    #[test]
    fn an_entry_is_one_line_with_its_key_first_and_reads_back() {
        let entry = Entry {
            key: "v/m".into(),
            window: Some(1),
            inputs: Some(vec![Input::Pdf]),
            thinking: Some(Thinks {
                kind: Kind::Effort,
                efforts: vec![Effort::None, Effort::Xhigh],
                ..Thinks::default()
            }),
            price: Some(Price {
                base: Rate { input: 0.175, output: 2.0, ..Rate::default() },
                above: Vec::new(),
            }),
            ..Entry::default()
        };
        let line = serde_json::to_string(&entry).unwrap();
        let expected = concat!(
            r#"{"key":"v/m","window":1,"inputs":["pdf"],"#,
            r#""thinking":{"kind":"effort","efforts":["none","xhigh"]},"#,
            r#""price":{"input":0.175,"output":2.0}}"#
        );
        assert_eq!(line, expected);
        assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry);
        assert_eq!(entry.inputs(), Some(Inputs { image: false, pdf: true }));
        assert_eq!(Entry::default().inputs(), None);
    }

    #[test]
    fn what_a_later_version_added_is_passed_over() {
        let entry: Entry = serde_json::from_str(r#"{"key":"v/m","smell":"good"}"#).unwrap();
        assert_eq!(entry, Entry { key: "v/m".into(), ..Entry::default() });
    }
}
