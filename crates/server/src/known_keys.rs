//! The keys of the store, as they were a moment ago: to sign with, and for doors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nexus_core::keys::door_digest;
use nexus_core::store::{Door, KeyAgent, KeyRecord, StoreError};
use nexus_core::{AgentId, Engine};
use tokio::sync::watch;

use crate::signing::Key;

/// What another process did to a key that is known here is noticed after so long; what was done here, at once.
pub const FRESH: Duration = Duration::from_secs(1);

/// A key that is not known may have been made a moment ago, so that the store is asked before it is refused. However
/// many guess, it is asked no more often than this.
const ASKED_AGAIN: Duration = Duration::from_millis(50);

#[derive(Default)]
pub struct KnownKeys {
    known: Mutex<Option<Arc<Known>>>,
    /// Whoever has it reads the store.
    reading: tokio::sync::Mutex<()>,
    /// Told of each change that was made here.
    changes: watch::Sender<()>,
}

struct Known {
    /// To sign with, by name.
    signing: HashMap<String, Arc<Key>>,
    /// For doors, by the digests of their secrets.
    doors: HashMap<String, Arc<DoorKey>>,
    read_at: Instant,
}

/// A key for doors, as it is used.
#[derive(Clone, Debug)]
pub struct DoorKey {
    pub name: String,
    pub agent: AgentId,
    doors: Vec<Door>,
    born: u64,
    expires_at: Timestamp,
}

impl KnownKeys {
    /// Lets a change be seen at once.
    pub async fn changed(&self) {
        // Whoever reads now may not have seen it.
        let _reading = self.reading.lock().await;
        *self.lock() = None;
        self.changes.send_replace(());
    }

    /// The key to sign with of this name.
    pub async fn signing(
        &self,
        engine: &Engine,
        name: &str,
    ) -> Result<Option<Arc<Key>>, StoreError> {
        self.look_up(engine, |known| known.signing.get(name).cloned()).await
    }

    /// The key whose secret this is, if it opens this door now.
    pub async fn door(
        &self,
        engine: &Engine,
        door: Door,
        secret: &str,
    ) -> Result<Option<Arc<DoorKey>>, StoreError> {
        let digest = door_digest(secret);
        let key = self.look_up(engine, |known| known.doors.get(&digest).cloned()).await?;
        let Some(key) = key.filter(|key| key.doors.contains(&door)) else { return Ok(None) };
        let is_same = engine.agents.clone().birth(key.agent.clone()).await == Some(key.born);
        Ok((is_same && Timestamp::now() < key.expires_at).then_some(key))
    }

    /// Returns when the key of this name does not open this door any more: at once where that was done here.
    pub async fn ended(&self, engine: &Engine, door: Door, name: &str) {
        let mut changes = self.changes.subscribe();
        while self.holds(engine, door, name).await {
            let _ = tokio::time::timeout(FRESH, changes.changed()).await;
        }
    }

    async fn holds(&self, engine: &Engine, door: Door, name: &str) -> bool {
        let find = |known: &Known| known.doors.values().find(|key| key.name == name).cloned();
        let Ok(found) = self.look_up(engine, find).await else { return true };
        let Some(key) = found.filter(|key| key.doors.contains(&door)) else { return false };
        let is_same = engine.agents.clone().birth(key.agent.clone()).await == Some(key.born);
        is_same && Timestamp::now() < key.expires_at
    }

    /// What is known of a key, or that the store had none after this was asked.
    async fn look_up<T>(
        &self,
        engine: &Engine,
        look: impl Fn(&Known) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        let asked = Instant::now();
        loop {
            let is_good =
                |known: &Arc<Known>| known.read_at >= asked || known.read_at.elapsed() < FRESH;
            let known = self.lock().clone().filter(is_good);
            let Some(known) = known else {
                self.read(engine, asked).await?;
                continue;
            };
            let found = look(&known);
            if found.is_some() || known.read_at >= asked {
                return Ok(found);
            }
            tokio::time::sleep_until((known.read_at + ASKED_AGAIN).into()).await;
            self.read(engine, asked).await?;
        }
    }

    /// Reads the store, unless somebody did since then.
    async fn read(&self, engine: &Engine, since: Instant) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        if self.lock().as_ref().is_some_and(|known| known.read_at >= since) {
            return Ok(());
        }
        // Before they are read: what changes meanwhile is read again soon enough.
        let read_at = Instant::now();
        let all = engine.keys.all().await?;
        let (doors, signing): (Vec<_>, Vec<_>) = all.iter().partition(|key| !key.doors.is_empty());
        let signing = signing.into_iter().map(|key| (key.name.clone(), Arc::new(key.into())));
        let doors = doors
            .into_iter()
            .filter_map(|key| Some((key.secret.clone(), Arc::new(DoorKey::of(key)?))));
        let (signing, doors) = (signing.collect(), doors.collect());
        *self.lock() = Some(Arc::new(Known { signing, doors, read_at }));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DoorKey {
    fn of(key: &KeyRecord) -> Option<Self> {
        let KeyAgent { id, born } = key.agent.clone()?;
        let (name, doors) = (key.name.clone(), key.doors.clone());
        Some(Self { name, agent: id, doors, born, expires_at: key.expires_at })
    }
}
