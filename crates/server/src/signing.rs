//! Calls that their callers signed: whether a signature holds, is new, and what its key leads to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use nexus_core::keys::leads_to;
use nexus_core::store::{KeyRecord, StoreError};
use nexus_core::{AgentId, Engine, Hand, Requester};
use nexus_protocol::key::{CreateKey, RevokeKey};
use nexus_protocol::{Method as _, Request, RpcError};
use nexus_signing::{Auth, Secret, WINDOW_SECONDS, signed_bytes};

use crate::dispatcher::{Caller, Signer};
use crate::errors::wire;
use crate::known_keys::{self, KnownKeys};

/// Signatures that are remembered, some fifty bytes each. They are remembered for as long as they could be sent again.
pub const SEEN_MAX: usize = 1_000_000;

/// Signatures are forgotten by so many seconds of their time at once.
const SLOT_SECONDS: u64 = 60;

/// Whether signatures are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Off,
    /// A call may be signed, and then must be rightly.
    Optional,
    Required,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// A key as it is used.
#[derive(Clone)]
pub struct Key {
    pub secret: Secret,
    /// Names, or beginnings of names with a `*` behind them. `None` for all.
    pub methods: Option<Vec<String>>,
    /// In whose name it signs.
    pub agent: Option<AgentId>,
    /// Which of those that had the name; `None` for whoever has it.
    pub born: Option<u64>,
    pub expires_at: Option<Timestamp>,
}

impl From<&KeyRecord> for Key {
    fn from(record: &KeyRecord) -> Self {
        Self {
            secret: Secret::new(&record.secret),
            methods: record.methods.clone(),
            agent: record.agent.as_ref().map(|agent| agent.id.clone()),
            born: record.agent.as_ref().map(|agent| agent.born),
            expires_at: Some(record.expires_at),
        }
    }
}

/// The keys of the configuration.
#[derive(Clone, Default)]
pub struct Configured {
    /// For what is signed without a `key_id`.
    pub unnamed: Option<Arc<Key>>,
    pub named: HashMap<String, Arc<Key>>,
}

pub struct Signatures {
    mode: Mode,
    configured: Configured,
    pub keys: KnownKeys,
    seen: Mutex<Seen>,
    started: u64,
}

/// Why a call is not carried out.
pub(crate) enum Refused {
    /// It should have been signed.
    Unsigned,
    /// Its signature does not hold, for whatever reason.
    Forged,
    /// The signature holds, or was never looked at; the error says the rest.
    Otherwise(RpcError),
}

impl Signatures {
    /// What was signed before `started` is not taken: another may have taken it, which remembers nothing any more.
    pub fn new(mode: Mode, configured: Configured, started: Timestamp) -> Self {
        let (keys, seen) = (KnownKeys::default(), Mutex::default());
        Self { mode, configured, keys, seen, started: seconds(started) }
    }

    /// Those of a server that looks at none.
    pub fn off() -> Self {
        Self::new(Mode::Off, Configured::default(), Timestamp::UNIX_EPOCH)
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether a call's signature is looked at.
    pub(crate) fn concern(&self, caller: &Caller) -> bool {
        self.mode != Mode::Off && caller.signer != Signer::Process
    }

    /// Who calls, after a look at the signature: whoever it was, or the key's agent. `None` where there is none.
    pub(crate) async fn check(
        &self,
        engine: &Arc<Engine>,
        caller: &Caller,
        request: &Request<'_>,
    ) -> Result<Option<Caller>, Refused> {
        let Some(auth) = request.auth else {
            return if self.mode == Mode::Required { Err(Refused::Unsigned) } else { Ok(None) };
        };
        let auth: Auth = serde_json::from_str(auth).map_err(invalid)?;
        let now = Timestamp::now();
        let named = auth.key_id.as_deref().unwrap_or_default();
        let key = self.key(engine, auth.key_id.as_deref()).await;
        let key = key.map_err(|error| Refused::Otherwise(wire(error)))?.ok_or(Refused::Forged)?;
        let signed = signed_bytes(request.text).map_err(invalid)?;
        let mac = key.secret.verify(&signed, &auth.signature).ok_or(Refused::Forged)?;
        if !self.is_timely(auth.timestamp, seconds(now)) {
            return Err(Refused::Forged);
        }
        // After all else that a stranger could fail at: only what was signed is remembered.
        self.remember(mac, auth.timestamp, seconds(now))?;
        if let Some(methods) = &key.methods {
            check_role(named, methods, &request.method)?;
        }
        let requester = lowered(engine, &key, &caller.requester).await?;
        let signer = Signer::Key(named.into());
        Ok(Some(Caller { requester, signer, hand: Hand::Program, ..caller.clone() }))
    }

    fn is_timely(&self, timestamp: u64, now: u64) -> bool {
        timestamp.abs_diff(now) <= WINDOW_SECONDS && timestamp >= self.started
    }

    /// Resolves when the key that a call was signed with is good no more. For calls that last.
    pub(crate) async fn ended(&self, engine: &Arc<Engine>, signer: &Signer) {
        let Signer::Key(name) = signer else { return std::future::pending().await };
        let name = Some(&**name).filter(|name| !name.is_empty());
        loop {
            tokio::time::sleep(known_keys::FRESH).await;
            // While the store cannot say, it is as good as it was.
            if matches!(self.key(engine, name).await, Ok(None)) {
                return;
            }
        }
    }

    /// The key of this name, or the server's own, if it is good now.
    async fn key(
        &self,
        engine: &Arc<Engine>,
        name: Option<&str>,
    ) -> Result<Option<Arc<Key>>, StoreError> {
        let key = self.named(engine, name).await?;
        let now = Timestamp::now();
        Ok(key.filter(|key| key.expires_at.is_none_or(|end| now < end)))
    }

    async fn named(
        &self,
        engine: &Arc<Engine>,
        name: Option<&str>,
    ) -> Result<Option<Arc<Key>>, StoreError> {
        let Some(name) = name else {
            return Ok(self.configured.unnamed.clone());
        };
        if let Some(key) = self.configured.named.get(name) {
            return Ok(Some(key.clone()));
        }
        self.keys.signing(engine, name).await
    }

    fn remember(&self, mac: [u8; 32], timestamp: u64, now: u64) -> Result<(), Refused> {
        // Nothing panics while it is held.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.add(mac, timestamp, now) {
            Sight::New => Ok(()),
            Sight::Again => Err(Refused::Forged),
            Sight::Full => Err(Refused::Otherwise(too_many())),
        }
    }
}

/// Refuses what the key is not for. One that is for some methods makes none that is for more.
fn check_role(name: &str, methods: &[String], method: &str) -> Result<(), Refused> {
    let details = if !leads_to(methods, method) {
        format!("the key {name:?} is for {} and nothing else", methods.join(", "))
    } else if [CreateKey::NAME, RevokeKey::NAME].contains(&method) {
        format!("the key {name:?} is for some methods only, and such keys make and end none")
    } else {
        return Ok(());
    };
    Err(Refused::Otherwise(RpcError::not_of_key(details)))
}

/// Whose rights a call has that is signed with this key: never more than it had without.
async fn lowered(
    engine: &Arc<Engine>,
    key: &Key,
    requester: &Requester,
) -> Result<Requester, Refused> {
    let Some(agent) = &key.agent else { return Ok(requester.clone()) };
    let born = engine.agents.born(agent).await;
    let born = born.map_err(|error| Refused::Otherwise(wire(error)))?;
    let lives = born.is_some_and(|born| key.born.is_none_or(|of_key| of_key == born));
    match requester {
        _ if !lives => Err(Refused::Forged),
        Requester::Agent(own) if own != agent => Err(Refused::Forged),
        _ => Ok(Requester::Agent(agent.clone())),
    }
}

fn invalid(error: impl std::fmt::Display) -> Refused {
    Refused::Otherwise(RpcError::invalid_request(format!("auth: {error}")))
}

fn too_many() -> RpcError {
    RpcError::unavailable(
        "Too many signed calls",
        format!("{SEEN_MAX} signatures of the last minutes are remembered, and no more."),
        &["Wait, and sign the call anew."],
    )
    .with("retry_after_ms", 1_000.into())
}

fn seconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_second()).unwrap_or_default()
}

/// Signatures that were taken and could be sent again, by the minute of their time.
#[derive(Default)]
struct Seen {
    slots: BTreeMap<u64, HashSet<[u8; 16]>>,
    count: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Sight {
    New,
    Again,
    Full,
}

impl Seen {
    fn add(&mut self, mac: [u8; 32], timestamp: u64, now: u64) -> Sight {
        let live = now.saturating_sub(WINDOW_SECONDS) / SLOT_SECONDS;
        while let Some(slot) = self.slots.first_entry().filter(|slot| *slot.key() < live) {
            self.count -= slot.remove().len();
        }
        // Half of it is enough: nobody without the key can make one that looks like another.
        let mut half = [0; 16];
        half.copy_from_slice(&mac[..16]);
        let slot = self.slots.entry(timestamp / SLOT_SECONDS).or_default();
        if slot.contains(&half) {
            return Sight::Again;
        }
        if self.count >= SEEN_MAX {
            return Sight::Full;
        }
        slot.insert(half);
        self.count += 1;
        Sight::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u64) -> [u8; 32] {
        let mut mac = [0; 32];
        mac[..8].copy_from_slice(&number.to_be_bytes());
        mac
    }

    #[test]
    fn a_signature_is_taken_once_for_as_long_as_it_is_timely() {
        let signatures = Signatures::off();
        let mut seen = Seen::default();
        for signed_at in [1_000, 1_059, 1_060, 1_300] {
            let one = mac(signed_at);
            let first = signed_at - WINDOW_SECONDS;
            let last = signed_at + WINDOW_SECONDS;
            assert_eq!(seen.add(one, signed_at, first), Sight::New);
            for now in first..=last {
                assert!(signatures.is_timely(signed_at, now));
                assert_eq!(seen.add(one, signed_at, now), Sight::Again, "{signed_at} {now}");
            }
            assert!(!signatures.is_timely(signed_at, last + 1));
            assert!(!signatures.is_timely(signed_at, first - 1));
        }
        assert_eq!(seen.add(mac(1), 9_000, 9_000), Sight::New);
        assert_eq!((seen.count, seen.slots.len()), (1, 1), "what is too old is forgotten");
    }

    #[test]
    fn what_was_signed_before_the_start_is_not_taken() {
        let signatures = Signatures { started: 1_000, ..Signatures::off() };
        assert!(signatures.is_timely(1_000, 1_001) && !signatures.is_timely(999, 1_001));
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let mut seen = Seen::default();
        for number in 0..SEEN_MAX as u64 - 1 {
            assert_eq!(seen.add(mac(number), 1_000, 1_000), Sight::New);
        }
        assert_eq!(seen.add(mac(u64::MAX), 1_000, 1_000), Sight::New, "the last");
        assert_eq!(seen.add(mac(u64::MAX - 1), 1_000, 1_000), Sight::Full);
        assert_eq!(seen.add(mac(7), 1_000, 1_000), Sight::Again, "even then");
        assert_eq!(seen.add(mac(u64::MAX - 1), 1_400, 1_400), Sight::New, "later there is room");
    }
}
