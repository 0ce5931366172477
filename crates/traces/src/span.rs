//! What is sent: a span and its attributes.

use std::borrow::Cow;

/// Longest text of an attribute, or of a name: agents, models and turns are named by callers.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace: [u8; 16],
    pub id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub name: String,
    pub kind: Kind,
    /// Since 1970.
    pub began_nanos: u64,
    pub ended_nanos: u64,
    pub attributes: Vec<Attribute>,
    pub failed: bool,
}

/// By the numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Internal = 1,
    Client = 3,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    pub key: Cow<'static, str>,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Whole(i64),
    Real(f64),
}

pub fn text(key: &'static str, text: &str) -> Attribute {
    Attribute { key: key.into(), value: Value::Text(short(text).to_owned()) }
}

pub fn whole(key: &'static str, number: u64) -> Attribute {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    Attribute { key: key.into(), value: Value::Whole(number) }
}

pub fn real(key: &'static str, number: f64) -> Attribute {
    Attribute { key: key.into(), value: Value::Real(number) }
}

/// As much of a text as a span may have of it.
pub fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let longest = "x".repeat(TEXT_BYTES_MAX);
        assert_eq!(short(&longest), longest);
        assert_eq!(short(&format!("{longest}y")), longest);
        let odd = format!("{}ä", "x".repeat(TEXT_BYTES_MAX - 1));
        assert_eq!(short(&odd).len(), TEXT_BYTES_MAX - 1);
    }
}
