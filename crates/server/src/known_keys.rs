//! The keys of the store, as they were a moment ago: to sign with, and for doors.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nexus_core::keys::door_digest;
use nexus_core::store::{Door, KeyAgent, KeyRecord, StoreError};
use nexus_core::{AgentId, Engine};
use tokio::sync::{Mutex, watch};

use crate::signing::Key;

/// What another process did to the keys is noticed after so long; what was done here, at once.
pub const FRESH: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct KnownKeys {
    known: Mutex<Option<Known>>,
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
        *self.known.lock().await = None;
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

    async fn look_up<T>(
        &self,
        engine: &Engine,
        look: impl FnOnce(&Known) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        let mut known = self.known.lock().await;
        if known.as_ref().is_none_or(|known| known.read_at.elapsed() >= FRESH) {
            // Before they are read: what changes meanwhile is read again soon enough.
            let read_at = Instant::now();
            let all = engine.keys.all().await?;
            let (doors, signing): (Vec<_>, Vec<_>) =
                all.iter().partition(|key| !key.doors.is_empty());
            let signing = signing.into_iter().map(|key| (key.name.clone(), Arc::new(key.into())));
            let doors = doors
                .into_iter()
                .filter_map(|key| Some((key.secret.clone(), Arc::new(DoorKey::of(key)?))));
            let (signing, doors) = (signing.collect(), doors.collect());
            *known = Some(Known { signing, doors, read_at });
        }
        Ok(known.as_ref().and_then(look))
    }
}

impl DoorKey {
    fn of(key: &KeyRecord) -> Option<Self> {
        let KeyAgent { id, born } = key.agent.clone()?;
        let (name, doors) = (key.name.clone(), key.doors.clone());
        Some(Self { name, agent: id, doors, born, expires_at: key.expires_at })
    }
}
