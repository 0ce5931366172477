//! The one door to the screen: text that does nothing but appear.

mod sieve;
#[cfg(test)]
mod tests;

pub use sieve::{HELD_BYTES_MAX, Sieve};

use crate::style::{Span, Style};

/// Text in which nothing can move the cursor, change a mode or hide what is written. Its only control characters are
/// line ends and tabs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown(String);

impl Shown {
    /// Words of this program.
    pub fn ours(text: &'static str) -> Self {
        Self(text.into())
    }

    /// Words of anybody else: a model, a tool, a server, a name, a path.
    pub fn foreign(text: &str) -> Self {
        let mut sieve = Sieve::default();
        let mut shown = sieve.push(text);
        shown.push_str(&sieve.finish());
        Self(shown)
    }

    /// A command or path that somebody is to judge: whatever is not printable ASCII is underlined, since a letter can
    /// look like another. Nothing is left out, not even colours.
    pub fn suspicious(text: &str, style: Style) -> Vec<Span> {
        let plain = |c: char| matches!(c, ' '..='~' | '\n' | '\t');
        let mut spans = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let familiar = plain(first);
            let end = rest.find(|c| plain(c) != familiar).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            let style = Style { underline: style.underline || !familiar, ..style };
            spans.push(Span { text: Self::foreign(run), style, link: None });
            rest = after;
        }
        spans
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        Self::foreign(text)
    }
}

impl From<String> for Shown {
    fn from(text: String) -> Self {
        Self::foreign(&text)
    }
}
