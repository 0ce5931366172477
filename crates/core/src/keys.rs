//! Keys of callers, to sign what they ask for or to be let in at a door: who makes them, and what they may be.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::authority::{Denied, Requester};
use crate::lifecycle::{AgentSpec, CreateError, Lifecycle};
use crate::now;
use crate::store::{AgentRecord, Door, KeyAdded, KeyAgent, KeyRecord, KeyStore, StoreError};

/// One for each program that calls, and to spare.
pub const KEYS_MAX: u64 = 1_000;

pub const NAME_CHARS_MAX: usize = 64;

/// Patterns of one key; a key for more is one for all.
pub const METHODS_MAX: usize = 100;

/// Of one pattern. No method's name is nearly as long.
pub const METHOD_BYTES_MAX: usize = 100;

/// Days that a key is good for when nobody says.
pub const DAYS_DEFAULT: u32 = 90;

const SIGNING_PREFIX: &str = "nxs_";

/// What the key for a door begins with.
pub const DOOR_PREFIX: &str = "nxd_";

/// What the agent that is made for a key is called: this, and the key's name.
const DOOR_AGENT: &str = "door-";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The keys as the engine has them. They are the administrator's alone.
pub struct Keys {
    store: Arc<dyn KeyStore>,
}

/// What a key is to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub name: String,
    /// What it opens; nothing for a key to sign with.
    pub doors: Vec<Door>,
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
    #[error("a key for doors is not for methods: it acts as its agent")]
    DoorsAndMethods,
    #[error("a key for doors acts as an agent, and none is named")]
    NoAgent,
    #[error("a key named {0} exists already")]
    Exists(String),
    #[error("there are {KEYS_MAX} keys, and there can be no more")]
    Full,
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The agent that was to be made with it.
    #[error(transparent)]
    Agent(#[from] CreateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("this machine gave no random bytes")]
    Random(#[source] io::Error),
}

impl Keys {
    pub fn new(store: Arc<dyn KeyStore>) -> Self {
        Self { store }
    }

    /// Whether such a key can be made by this requester.
    pub fn check(&self, requester: &Requester, key: &NewKey) -> Result<(), KeyError> {
        requester.administrator_only("make keys")?;
        check_name(&key.name)?;
        if let Some(methods) = &key.methods {
            check_methods(methods)?;
        }
        match key.doors.is_empty() || key.methods.is_none() {
            true => Ok(()),
            false => Err(KeyError::DoorsAndMethods),
        }
    }

    /// Makes a key. It is on disk when this returns.
    pub async fn create(&self, requester: &Requester, key: NewKey) -> Result<MadeKey, KeyError> {
        self.check(requester, &key)?;
        if !key.doors.is_empty() && key.agent.is_none() {
            return Err(KeyError::NoAgent);
        }
        let made = key.make()?;
        added(self.store.add_key(made.record.clone(), KEYS_MAX).await?, &made.record.name)?;
        Ok(made)
    }

    /// Makes a key for doors, and the agent that its holder acts as, which is called after it: there are both afterwards,
    /// or neither.
    pub async fn create_with_agent(
        &self,
        lifecycle: &Arc<Lifecycle>,
        requester: &Requester,
        key: NewKey,
        agent: AgentSpec,
    ) -> Result<MadeKey, KeyError> {
        self.check(requester, &key)?;
        // Before its agent, whose name is taken too when the key's is.
        if self.store.keys().await?.iter().any(|other| other.name == key.name) {
            return Err(KeyError::Exists(key.name));
        }
        let agent = AgentSpec { name: Some(format!("{DOOR_AGENT}{}", key.name)), ..agent };
        let mut made = key.make()?;
        let (store, record) = (self.store.clone(), made.record.clone());
        let write = move |agent: AgentRecord| {
            async move {
                let outcome = store.add_key_with_agent(record.clone(), agent, KEYS_MAX).await;
                added(outcome.map_err(CreateError::from)?, &record.name)
            }
            .boxed()
        };
        let agent = lifecycle.create_along(requester, agent, write).await?;
        let now = agent.look();
        made.record.agent = Some(KeyAgent { id: now.id.clone(), born: now.born });
        Ok(made)
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

fn added<T>(added: KeyAdded<T>, name: &str) -> Result<T, KeyError> {
    match added {
        KeyAdded::Done(done) => Ok(done),
        KeyAdded::Exists => Err(KeyError::Exists(name.to_owned())),
        KeyAdded::Full => Err(KeyError::Full),
    }
}

impl NewKey {
    fn make(self) -> Result<MadeKey, KeyError> {
        let Self { name, doors, methods, agent, days } = self;
        let created_at = now();
        let prefix = if doors.is_empty() { SIGNING_PREFIX } else { DOOR_PREFIX };
        let secret = generate_secret(prefix).map_err(KeyError::Random)?;
        let record = KeyRecord {
            secret: if doors.is_empty() { secret.clone() } else { door_digest(&secret) },
            doors,
            expires_at: created_at.saturating_add(DAY * days).unwrap_or(created_at),
            name,
            methods,
            agent,
            created_at,
        };
        Ok(MadeKey { record, secret })
    }
}

/// A key that was made, and its secret, which is told this once.
pub struct MadeKey {
    pub record: KeyRecord,
    pub secret: String,
}

/// What is kept of the key for a door.
pub fn door_digest(secret: &str) -> String {
    Sha256::digest(secret).iter().map(|byte| format!("{byte:02x}")).collect()
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

fn generate_secret(prefix: &str) -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)))
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
