//! The names of agents and turns, checked once, where they come in.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;
use thiserror::Error;

/// Longest name: one optional leading dot and 62 characters.
const NAME_CHARS_MAX: usize = 62;

/// The agent that answers when a caller names none.
pub const DEFAULT_AGENT: &str = "main";

/// A valid agent name: `^\.?[A-Za-z0-9][A-Za-z0-9._-]{0,61}$` without `..`.
///
/// Names become directory names of logs and parts of URLs, so nothing that could mean another place is a name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(CompactString);

/// Why a text is not a name. The sentence names the rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    #[error("agent name is empty")]
    Empty,
    #[error("agent name is longer than {NAME_CHARS_MAX} characters after an optional leading dot")]
    TooLong,
    #[error("agent name must start with a letter or digit, after an optional leading dot")]
    Start,
    #[error("agent name may hold only letters, digits, '.', '_' and '-'")]
    Character,
    #[error("agent name may not contain '..'")]
    DoubleDot,
}

impl AgentId {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let rest = text.strip_prefix('.').unwrap_or(text).as_bytes();
        match rest.first() {
            None => return Err(NameError::Empty),
            Some(first) if !first.is_ascii_alphanumeric() => return Err(NameError::Start),
            Some(_) => {}
        }
        if rest.iter().any(|byte| !byte.is_ascii_alphanumeric() && !b"._-".contains(byte)) {
            return Err(NameError::Character);
        }
        if rest.len() > NAME_CHARS_MAX {
            return Err(NameError::TooLong);
        }
        if text.contains("..") {
            return Err(NameError::DoubleDot);
        }
        Ok(Self(text.into()))
    }

    /// A fresh permanent name: 8 hex characters.
    pub fn random() -> Self {
        let mut bytes = [0_u8; 4];
        crate::fill_random(&mut bytes);
        Self(format!("{:08x}", u32::from_be_bytes(bytes)).into())
    }

    /// The `number`th temporary name.
    pub fn temporary(number: u64) -> Self {
        Self(format!(".{number}").into())
    }

    pub fn default_agent() -> Self {
        Self(DEFAULT_AGENT.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Temporary agents are never stored and do not outlive the process.
    pub fn is_temp(&self) -> bool {
        self.0.starts_with('.')
    }
}

impl Borrow<str> for AgentId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentId({})", self.0)
    }
}

/// What the wire calls `request_id`: names one turn of one agent. A number on the wire stays a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TurnId {
    Text(Arc<str>),
    Number(i64),
}

impl TurnId {
    pub fn random() -> Self {
        let mut bytes = [0_u8; 8];
        crate::fill_random(&mut bytes);
        Self::Text(format!("req_{:016x}", u64::from_be_bytes(bytes)).into())
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        let longest = "a".repeat(62);
        for good in
            ["a", "0", "main", ".1", "worker-1", "a.b_c-d", "A9.", &longest, &format!(".{longest}")]
        {
            assert!(AgentId::parse(good).is_ok(), "{good}");
        }
        let cases = [
            ("", NameError::Empty),
            (".", NameError::Empty),
            ("..", NameError::Start),
            ("..a", NameError::Start),
            ("-a", NameError::Start),
            ("_a", NameError::Start),
            ("a..b", NameError::DoubleDot),
            ("a/b", NameError::Character),
            ("a\\b", NameError::Character),
            ("a b", NameError::Character),
            ("a\n", NameError::Character),
            ("a\0", NameError::Character),
            ("ä", NameError::Start),
            ("aä", NameError::Character),
            (&"a".repeat(63), NameError::TooLong),
        ];
        for (bad, error) in cases {
            assert_eq!(AgentId::parse(bad), Err(error), "{bad:?}");
        }
    }
}
