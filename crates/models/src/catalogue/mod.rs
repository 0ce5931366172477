//! What is known of models before anybody asks their services: a table that is shipped with the program.
//!
//! `models.jsonl` is made by `cargo xtask models` and lies in the program as it is. [`table`] finds a line of it,
//! [`entry`] says what a line holds, and [`family`] finds the line of a model that is called by another name than its own.
//! [`said`] keeps what services say of their models when they are asked.

mod entry;
mod family;
pub mod said;
mod table;

use reqwest::Url;

pub use entry::{Entry, Input, Kind as ThinkingKind, Price, Rate, Thinks, Tier};
pub use table::Table;

use crate::Kind;

/// The shipped table.
const SHIPPED: &[u8] = include_bytes!("models.jsonl");

pub fn shipped() -> Table<'static> {
    Table::new(SHIPPED)
}

/// What the table knows of a model, and how surely it is that model.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    pub entry: Entry,
    pub by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its own name.
    Name,
    /// Another spelling of its name, or the name its maker gave it.
    Family,
}

/// Whose models a provider has, and so by which vendors they stand in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shop {
    /// These vendors', the nearest first.
    Vendors(&'static [&'static str]),
    /// Everybody's, by `vendor/id`.
    Router,
    /// Nobody knows: a server of one's own, or a gateway to others.
    Unknown,
}

/// Services that speak as OpenAI does, by the end of their host's name.
const HOSTS: [(&str, Shop); 14] = [
    ("api.openai.com", Shop::Vendors(&["openai"])),
    ("api.deepseek.com", Shop::Vendors(&["deepseek"])),
    ("api.mistral.ai", Shop::Vendors(&["mistral"])),
    ("api.groq.com", Shop::Vendors(&["groq"])),
    ("api.x.ai", Shop::Vendors(&["xai"])),
    ("api.moonshot.ai", Shop::Vendors(&["moonshot"])),
    ("api.moonshot.cn", Shop::Vendors(&["moonshot"])),
    ("aliyuncs.com", Shop::Vendors(&["dashscope"])),
    ("api.z.ai", Shop::Vendors(&["zai"])),
    ("api.cerebras.ai", Shop::Vendors(&["cerebras"])),
    ("api.together.xyz", Shop::Vendors(&["together"])),
    ("api.fireworks.ai", Shop::Vendors(&["fireworks"])),
    ("generativelanguage.googleapis.com", Shop::Vendors(&["gemini"])),
    ("openrouter.ai", Shop::Router),
];

impl Shop {
    pub fn of(kind: Kind, base_url: &str) -> Self {
        match kind {
            Kind::Anthropic => Self::Vendors(&["anthropic"]),
            Kind::Azure => Self::Vendors(&["azure", "openai"]),
            Kind::Gemini => Self::Vendors(&["gemini"]),
            Kind::Ollama => Self::Vendors(&["ollama"]),
            Kind::OpenRouter => Self::Router,
            Kind::OpenAi => {
                let url = Url::parse(base_url).ok();
                let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
                let is_at = |end: &str| {
                    let before = host.strip_suffix(end);
                    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
                };
                HOSTS.iter().find(|(end, _)| is_at(end)).map_or(Self::Unknown, |(_, shop)| *shop)
            }
        }
    }

    /// What the shipped table knows of the model `id`.
    pub fn known(self, id: &str) -> Option<Known> {
        family::known(shipped(), self, id)
    }

    /// The models of this shop that the shipped table has.
    pub fn models(self) -> impl Iterator<Item = Entry> {
        // What a second vendor has is there to be looked up by, not to be offered.
        let vendor = match self {
            Self::Vendors([first, ..]) => Some(format!("{first}/")),
            _ => None,
        };
        vendor.into_iter().flat_map(|prefix| shipped().starting_with(&prefix))
    }
}

/// The id of a model whose key is `vendor/id`.
pub fn id_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, id)| id)
}

#[cfg(test)]
mod tests;
