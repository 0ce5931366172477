//! What is remembered of model services: the windows they enforced, and until when they want to be left alone. Questions
//! are answered from memory; what is new is written behind whoever found it out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use nexus_core::listing::Learned;
use nexus_core::provider::Pauses;
use nexus_core::store::{AgentStore as _, StoreError};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::fault::Fault;
use super::record::{micros, timestamp};

/// Models of which a window is remembered. Whoever can call the server can name models.
const WINDOWS_MAX: usize = 1_000;

pub struct Remembered {
    store: Arc<SqliteStore>,
    windows: Mutex<HashMap<(String, String), u32>>,
    pauses: Arc<Mutex<HashMap<String, Timestamp>>>,
    /// What other processes had written when pauses were last read.
    seen: AtomicU64,
}

impl Remembered {
    pub async fn load(store: Arc<SqliteStore>) -> Result<Arc<Self>, StoreError> {
        let seen = AtomicU64::new(store.foreign_commits());
        let (windows, pauses) = store.readers.read(|db| Ok((windows(db)?, pauses(db)?))).await?;
        let (windows, pauses) = (Mutex::new(windows), Arc::new(Mutex::new(pauses)));
        Ok(Arc::new(Self { store, windows, pauses, seen }))
    }
}

impl Learned for Remembered {
    fn window(&self, provider: &str, id: &str) -> Option<u32> {
        let windows = lock(&self.windows);
        if windows.is_empty() {
            return None;
        }
        windows.get(&(provider.to_owned(), id.to_owned())).copied()
    }

    fn learn(&self, provider: &str, id: &str, window: u32) {
        let key = (provider.to_owned(), id.to_owned());
        {
            let mut windows = lock(&self.windows);
            if windows.len() >= WINDOWS_MAX && !windows.contains_key(&key) {
                return;
            }
            windows.insert(key.clone(), window);
        }
        let (provider, id) = key;
        self.write(move |db| {
            db.prepare_cached(
                "INSERT INTO windows (provider, model, tokens) VALUES (?1, ?2, ?3)
                 ON CONFLICT (provider, model) DO UPDATE SET tokens = ?3",
            )?
            .execute(params![provider, id, window])?;
            Ok(())
        });
    }
}

impl Pauses for Remembered {
    fn until(&self, lane: &str) -> Option<Timestamp> {
        self.look_again();
        lock(&self.pauses).get(lane).copied()
    }

    fn pause(&self, lane: &str, until: Timestamp) {
        lock(&self.pauses).insert(lane.to_owned(), until);
        let (lane, until, now) = (lane.to_owned(), micros(until), micros(Timestamp::now()));
        self.write(move |db| {
            db.prepare_cached("DELETE FROM lane_pauses WHERE until < ?")?.execute([now])?;
            db.prepare_cached(
                "INSERT INTO lane_pauses (lane, until) VALUES (?1, ?2)
                 ON CONFLICT (lane) DO UPDATE SET until = max(until, ?2)",
            )?
            .execute(params![lane, until])?;
            Ok(())
        });
    }
}

impl Remembered {
    /// Reads what other processes have written, if they wrote anything: the next question is answered by it.
    fn look_again(&self) {
        let commits = self.store.foreign_commits();
        if self.seen.swap(commits, Ordering::AcqRel) == commits {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, known) = (self.store.clone(), self.pauses.clone());
        runtime.spawn(async move {
            let Ok(found) = store.readers.read(pauses).await else { return };
            let mut known = lock(&known);
            for (lane, until) in found {
                let latest = known.entry(lane).or_insert(until);
                *latest = until.max(*latest);
            }
        });
    }

    fn write(&self, work: impl FnOnce(&Connection) -> Result<(), Fault> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let writing = self.store.writer.submit(move |db, _| work(db));
        runtime.spawn(async move {
            if let Err(error) = writing.await {
                tracing::warn!(%error, "what was found out of a provider was not written down");
            }
        });
    }
}

fn windows(db: &Connection) -> Result<HashMap<(String, String), u32>, Fault> {
    let mut query = db.prepare("SELECT provider, model, tokens FROM windows")?;
    let rows = query.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn pauses(db: &Connection) -> Result<HashMap<String, Timestamp>, Fault> {
    let mut query = db.prepare_cached("SELECT lane, until FROM lane_pauses")?;
    let rows = query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let mut pauses = HashMap::new();
    for row in rows {
        let (lane, until) = row?;
        pauses.insert(lane, timestamp(until)?);
    }
    Ok(pauses)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
