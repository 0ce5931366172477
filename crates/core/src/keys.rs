//! Keys by which callers sign what they ask for: who makes them, and what they may be.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;

use crate::authority::{Denied, Requester};
use crate::now;
use crate::store::{KeyAdded, KeyAgent, KeyRecord, KeyStore, StoreError};

/// One for each program that calls, and to spare.
pub const KEYS_MAX: u64 = 1_000;

pub const NAME_CHARS_MAX: usize = 64;

/// Patterns of one key; a key for more is one for all.
pub const METHODS_MAX: usize = 100;

/// Of one pattern. No method's name is nearly as long.
pub const METHOD_BYTES_MAX: usize = 100;

/// Days that a key is good for when nobody says.
pub const DAYS_DEFAULT: u32 = 90;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The keys as the engine has them. They are the administrator's alone.
pub struct Keys {
    store: Arc<dyn KeyStore>,
}

/// What a key is to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub name: String,
    /// `None` for all.
    pub methods: Option<Vec<String>>,
    pub agent: Option<KeyAgent>,
    pub days: u32,
}

#[derive(Debug, Error)]
pub enum KeyError {
    #[error("name must be 1 to {NAME_CHARS_MAX} letters, digits, '.', '_' and '-', got: {0:?}")]
    Name(String),
    #[error("methods must name at least one method")]
    NoMethods,
    #[error("methods must be at most {METHODS_MAX}, got: {0}")]
    Methods(usize),
    #[error(
        "methods must hold names of methods, or beginnings of names with a * behind them, got: {0:?}"
    )]
    Method(String),
    #[error("a key named {0} exists already: revoke_key frees the name")]
    Exists(String),
    #[error("there are {KEYS_MAX} keys, and there can be no more: revoke_key makes room")]
    Full,
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("this machine gave no random bytes")]
    Random(#[source] io::Error),
}

impl Keys {
    pub fn new(store: Arc<dyn KeyStore>) -> Self {
        Self { store }
    }

    /// Makes a key. It is on disk when this returns.
    pub async fn create(&self, requester: &Requester, key: NewKey) -> Result<KeyRecord, KeyError> {
        requester.administrator_only("make keys")?;
        let NewKey { name, methods, agent, days } = key;
        check_name(&name)?;
        if let Some(methods) = &methods {
            check_methods(methods)?;
        }
        let created_at = now();
        let record = KeyRecord {
            secret: generate_secret().map_err(KeyError::Random)?,
            expires_at: created_at.saturating_add(DAY * days).unwrap_or(created_at),
            name,
            methods,
            agent,
            created_at,
        };
        match self.store.add_key(record.clone(), KEYS_MAX).await? {
            KeyAdded::Done => Ok(record),
            KeyAdded::Exists => Err(KeyError::Exists(record.name)),
            KeyAdded::Full => Err(KeyError::Full),
        }
    }

    pub async fn list(&self, requester: &Requester) -> Result<Vec<KeyRecord>, KeyError> {
        requester.administrator_only("list keys")?;
        Ok(self.store.keys().await?)
    }

    /// Ends a key. False when there is none of this name.
    pub async fn revoke(&self, requester: &Requester, name: &str) -> Result<bool, KeyError> {
        requester.administrator_only("end keys")?;
        Ok(self.store.remove_key(name).await?)
    }

    /// All of them, for whoever checks signatures.
    pub async fn all(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.store.keys().await
    }
}

/// Whether a method is among those that patterns name.
pub fn leads_to(patterns: &[String], method: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => method.starts_with(beginning),
        None => method == pattern,
    })
}

/// Whether a text can be the name of a key.
pub fn check_name(name: &str) -> Result<(), KeyError> {
    let fits = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-".contains(&it));
    if fits { Ok(()) } else { Err(KeyError::Name(name.chars().take(NAME_CHARS_MAX + 1).collect())) }
}

/// Whether these can be the methods that a key is for.
pub fn check_methods(methods: &[String]) -> Result<(), KeyError> {
    match methods.len() {
        0 => return Err(KeyError::NoMethods),
        1..=METHODS_MAX => {}
        more => return Err(KeyError::Methods(more)),
    }
    let is_method = |text: &str| {
        let name = text.strip_suffix('*').unwrap_or(text);
        (1..=METHOD_BYTES_MAX).contains(&text.len())
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-/".contains(&it))
    };
    match methods.iter().find(|method| !is_method(method)) {
        None => Ok(()),
        Some(method) => Err(KeyError::Method(method.chars().take(METHOD_BYTES_MAX).collect())),
    }
}

fn generate_secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("nxs_{}", URL_SAFE_NO_PAD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_just_under_and_just_over() {
        for good in ["a", "CI.build_2-x", &"n".repeat(NAME_CHARS_MAX)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a:b", "é", "a/b", "a\n", &"n".repeat(NAME_CHARS_MAX + 1)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn methods_are_names_or_beginnings() {
        let check = |methods: &[&str]| {
            check_methods(&methods.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()).is_ok()
        };
        let long = "m".repeat(METHOD_BYTES_MAX);
        assert!(check(&["send"]) && check(&["memory.*", "*"]) && check(&[&long]));
        assert!(check(&vec!["send"; METHODS_MAX]));
        assert!(!check(&vec!["send"; METHODS_MAX + 1]));
        for bad in ["", "**", "a*b", "a b", "send\n", &format!("{long}m")] {
            assert!(!check(&[bad]), "{bad}");
        }
        assert!(!check(&[]));
        let patterns = ["memory.*".to_owned(), "send".to_owned()];
        assert!(leads_to(&patterns, "memory.add") && leads_to(&patterns, "send"));
        assert!(!leads_to(&patterns, "sender") && !leads_to(&patterns, "mem"));
        assert!(leads_to(&["*".to_owned()], "anything"));
    }
}
