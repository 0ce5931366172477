//! What is remembered of model services: what they enforced, and until when they want to be left alone. Questions
//! are answered from memory; what is new is written behind whoever found it out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use nexus_core::listing::{Learned, Lesson};
use nexus_core::provider::Pauses;
use nexus_core::store::{AgentStore as _, StoreError};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::fault::Fault;
use super::record::{micros, timestamp};

/// Models of which something is remembered. Whoever can call the server can name models.
const LESSONS_MAX: usize = 1_000;

/// By provider and model.
type Lessons = HashMap<(String, String), Lesson>;

pub struct Remembered {
    store: Arc<SqliteStore>,
    lessons: Mutex<Lessons>,
    pauses: Arc<Mutex<HashMap<String, Timestamp>>>,
    /// What other processes had written when pauses were last read.
    seen: AtomicU64,
}

impl Remembered {
    pub async fn load(store: Arc<SqliteStore>) -> Result<Arc<Self>, StoreError> {
        let seen = AtomicU64::new(store.foreign_commits());
        let (lessons, pauses) = store.readers.read(|db| Ok((lessons(db)?, pauses(db)?))).await?;
        let (lessons, pauses) = (Mutex::new(lessons), Arc::new(Mutex::new(pauses)));
        Ok(Arc::new(Self { store, lessons, pauses, seen }))
    }
}

impl Learned for Remembered {
    fn known(&self, provider: &str, id: &str) -> Lesson {
        let lessons = lock(&self.lessons);
        if lessons.is_empty() {
            return Lesson::default();
        }
        lessons.get(&(provider.to_owned(), id.to_owned())).copied().unwrap_or_default()
    }

    fn learn(&self, provider: &str, id: &str, lesson: Lesson) {
        let key = (provider.to_owned(), id.to_owned());
        {
            let mut lessons = lock(&self.lessons);
            if lessons.len() >= LESSONS_MAX && !lessons.contains_key(&key) {
                return;
            }
            let known = lessons.entry(key.clone()).or_default();
            *known = known.with(lesson);
        }
        let (provider, id) = key;
        self.write(move |db| {
            db.prepare_cached(
                "INSERT INTO lessons (provider, model, tokens, thoughts_always) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (provider, model) DO UPDATE SET
                 tokens = coalesce(?3, tokens), thoughts_always = max(?4, thoughts_always)",
            )?
            .execute(params![provider, id, lesson.window, lesson.thoughts_always])?;
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

fn lessons(db: &Connection) -> Result<Lessons, Fault> {
    let mut query = db.prepare("SELECT provider, model, tokens, thoughts_always FROM lessons")?;
    let rows = query.query_map([], |row| {
        let lesson = Lesson { window: row.get(2)?, thoughts_always: row.get(3)? };
        Ok(((row.get(0)?, row.get(1)?), lesson))
    })?;
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
