//! Looks at a database without changing it: whether it is whole, and what can be read of one that is not.
//!
//! Everything is looked up by its key, one row at a time, so that a damaged page costs what lies on it and no more. A
//! history is one piece, so a conversation ends before its first message that cannot be read. A session whose
//! permissions cannot be read whole is not saved: it must not come back with others. Nor is a plan of which something is
//! missing: what it did would be done again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nexus_core::AgentId;
use nexus_core::message::SharedMessage;
use nexus_core::store::{MemoryRecord, SessionRecord};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use thiserror::Error;

use super::agent::{SELECT_AGENT, signed, unsigned};
use super::blob::Bytes;
use super::fault::Fault;
use super::log::{self, Tail};
use super::open::{self, OpenError};
use super::owner::{Owner, SILENCE_MAX, random_hex};
use super::record::{decode_message, micros};
use super::{key, memory, plan, schema, session, shared_context};

/// Complaints of SQLite's own check that are shown; a database with more is no better known by them.
const PROBLEMS_MAX: u32 = 20;

/// What was found.
#[derive(Debug)]
pub struct Checkup {
    pub path: PathBuf,
    pub version: usize,
    /// What SQLite's own check complains about; none in a whole database.
    pub problems: Vec<String>,
    /// Sessions that can be read, at least in part.
    pub sessions: Vec<Readable>,
    /// How many more there may have been: places for sessions that cannot be looked at, or whose settings are spoilt.
    pub unreadable: u64,
    /// Without those that others took the place of.
    pub memories: Rows,
    /// With what became of their tasks.
    pub plans: Rows,
    /// The entries of the shared context, and its version if that cannot be read.
    pub context: Rows,
    /// Keys for signing that are no agent's.
    pub keys: Rows,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub readable: u64,
    /// How many more there may have been.
    pub unreadable: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Readable {
    pub name: String,
    /// How many messages it should have; where that cannot be read, one more than can be.
    pub messages: u64,
    /// How many of them, from the first, can be read.
    pub readable: u64,
}

#[derive(Debug, Error)]
pub enum DoctorError {
    #[error("there is no store {}", .0.display())]
    Missing(PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(
        "{} has store version {found}, from before this program; start nexus3 once, which brings it up to date",
        .path.display()
    )]
    Older { path: PathBuf, found: usize },
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    #[error("{} cannot be written: {reason}", .path.display())]
    Write { path: PathBuf, reason: String },
}

impl Checkup {
    pub fn is_whole(&self) -> bool {
        let complete = self.sessions.iter().all(|session| session.messages == session.readable);
        let rows = [self.memories, self.plans, self.context, self.keys];
        let lost = rows.iter().any(|rows| rows.unreadable > 0) || self.unreadable > 0;
        self.problems.is_empty() && !lost && complete
    }
}

/// Examines the database under `home`. With `salvage`, what can be read is written to a new database of that name.
pub fn examine(home: &Path, salvage: Option<&Path>) -> Result<Checkup, DoctorError> {
    let path = home.join(open::FILE_NAME);
    if !path.exists() {
        return Err(DoctorError::Missing(path));
    }
    let classify = |error: rusqlite::Error| OpenError::from_sql(error, &path);
    let db = open::open_reader(&path).map_err(classify)?;
    let version = open::check_version(&db, &path)?;
    if version < schema::STEPS.len() {
        return Err(DoctorError::Older { path, found: version });
    }
    let mut target = salvage.map(Target::make).transpose()?;
    let mut checkup = Checkup {
        problems: problems(&db),
        version,
        sessions: Vec::new(),
        unreadable: 0,
        memories: Rows::default(),
        plans: Rows::default(),
        context: Rows::default(),
        keys: Rows::default(),
        path,
    };
    for id in 1..=last_id(&db) {
        match read(&db, id) {
            Ok(None) => {}
            Ok(Some(found)) => {
                if let Some(target) = &mut target {
                    target.put(&found)?;
                }
                checkup.sessions.push(Readable {
                    name: found.session.record.id.to_string(),
                    messages: found.expected,
                    readable: found.messages.len() as u64,
                });
            }
            Err(_) => checkup.unreadable += 1,
        }
    }
    let into = target.as_ref();
    let put_memory = |to: &Connection, found: &MemoryRecord| memory::add(to, found, None).map(drop);
    checkup.memories = save(into, last_memory(&db), |seq| memory::in_place(&db, seq), put_memory)?;
    let last_plan = last(&db, "plans", &["max(rowid) FROM plans"]);
    checkup.plans = save(into, last_plan, |rowid| plan::by_number(&db, rowid), plan::put)?;
    checkup.context = save_context(&db, into)?;
    let last_key = last(&db, "keys", &["max(seq) FROM keys"]);
    checkup.keys = save(into, last_key, |seq| key::by_number(&db, seq), key::put)?;
    if let Some(target) = target {
        target.finish()?;
    }
    Ok(checkup)
}

/// Saves the rows with the numbers up to `last`.
fn save<T>(
    target: Option<&Target>,
    last: i64,
    find: impl Fn(i64) -> Result<Option<T>, Fault>,
    put: impl Fn(&Connection, &T) -> Result<(), Fault>,
) -> Result<Rows, DoctorError> {
    let mut rows = Rows::default();
    for number in 1..=last {
        match find(number) {
            Ok(None) => {}
            Ok(Some(found)) => {
                if let Some(target) = target {
                    target.wrote(put(&target.db, &found))?;
                }
                rows.readable += 1;
            }
            Err(_) => rows.unreadable += 1,
        }
    }
    Ok(rows)
}

fn save_context(db: &Connection, target: Option<&Target>) -> Result<Rows, DoctorError> {
    let last = last(db, "context_entries", &["max(seq) FROM context_entries"]);
    let find = |seq| shared_context::by_number(db, seq);
    let mut rows = save(target, last, find, shared_context::put)?;
    // Each entry that was ever added was a change.
    let version = shared_context::version(db).or_else(|_| {
        rows.unreadable += 1;
        unsigned(last)
    });
    if let (Some(target), Ok(version)) = (target, version) {
        target.wrote(shared_context::set_version(&target.db, version))?;
    }
    Ok(rows)
}

fn problems(db: &Connection) -> Vec<String> {
    let check = || -> rusqlite::Result<Vec<String>> {
        let mut query = db.prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?;
        query.query_map([], |row| row.get(0))?.collect()
    };
    let mut found = check().unwrap_or_else(|error| vec![error.to_string()]);
    found.retain(|line| line != "ok");
    found
}

/// The last id that was given to an agent, or could have been.
fn last_id(db: &Connection) -> i64 {
    // Ids of logs are ids of agents, so any table may know.
    last(
        db,
        "agents",
        &["max(id) FROM agents", "max(agent_id) FROM heads", "max(log_id) FROM runs"],
    )
}

fn last_memory(db: &Connection) -> i64 {
    last(db, "memories", &["max(seq) FROM memories", "max(seq) FROM memory_vectors"])
}

/// The last number that was given to a row of a table, by what counts them or by those that have one.
fn last(db: &Connection, table: &str, seen: &[&str]) -> i64 {
    let ask = |sql: &str| db.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten();
    let given = ask(&format!("SELECT seq FROM sqlite_sequence WHERE name = '{table}'"));
    let seen = seen.iter().filter_map(|what| ask(&format!("SELECT {what}"))).max();
    given.max(seen).unwrap_or(0)
}

/// A session as far as it can be read.
struct Found {
    session: SessionRecord,
    kept: bool,
    messages: Vec<SharedMessage>,
    expected: u64,
}

fn read(db: &Connection, id: i64) -> Result<Option<Found>, Fault> {
    let mut query = db.prepare_cached(&format!("{SELECT_AGENT} WHERE a.id = ?"))?;
    let mut rows = query.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (kept, log_id) = (row.get("kept")?, row.get("log_id")?);
    // Where the end of the conversation cannot be read either, it goes on for as long as something can.
    let tail = log::tail(db, log_id);
    let messages = readable(db, log_id, tail.as_ref().map_or(i64::MAX, |tail| tail.length));
    let readable = messages.len() as u64;
    let expected = tail.and_then(|tail| unsigned(tail.length)).unwrap_or(readable + 1);
    let last_at = messages.last().map(|message| micros(message.meta.at));
    let session = session::decode(row, Tail { length: signed(readable)?, last_at })?;
    Ok(Some(Found { session, kept, messages, expected }))
}

/// The messages of a conversation of `length` up to the first that cannot be read.
fn readable(db: &Connection, log_id: i64, length: i64) -> Vec<SharedMessage> {
    let mut messages = Vec::new();
    let Ok(stretches) = log::stretches(db, log_id, length) else { return messages };
    for stretch in stretches {
        for index in stretch.start..stretch.end {
            match message(db, stretch.log_id, index) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) | Err(_) => return messages,
            }
        }
    }
    messages
}

fn message(db: &Connection, log_id: i64, index: i64) -> Result<Option<SharedMessage>, Fault> {
    let mut query =
        db.prepare_cached("SELECT role, at, content, extra FROM messages WHERE seq = ?")?;
    let Some(place) = log::place(db, log_id, index)? else { return Ok(None) };
    let row = query
        .query_row([place], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get::<_, Option<String>>(3)?,
            ))
        })
        .optional()?;
    let Some((role, at, content, extra)) = row else { return Ok(None) };
    let message = decode_message(db, &role, at, content, extra.as_deref(), Bytes::Read)?;
    Ok(Some(Arc::new(message)))
}

/// The database that what can be read is written to.
struct Target {
    db: Connection,
    path: PathBuf,
    /// An owner is needed to write agents; this one has nothing to do with the home.
    me: Owner,
    scratch: PathBuf,
}

impl Target {
    fn make(path: &Path) -> Result<Self, DoctorError> {
        let failed = |reason: String| DoctorError::Write { path: path.to_path_buf(), reason };
        let path = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
        if path.symlink_metadata().is_ok() {
            return Err(DoctorError::Exists(path));
        }
        open::make(&path).map_err(|cause| failed(cause.to_string()))?;
        let db = open::connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)
            .map_err(|error| failed(error.to_string()))?;
        db.execute_batch("BEGIN").map_err(|error| failed(error.to_string()))?;
        let scratch = std::env::temp_dir().join(format!("nexus3-doctor-{}", random_hex()));
        Ok(Self { db, path, me: Owner::new(&scratch, SILENCE_MAX), scratch })
    }

    fn put(&mut self, found: &Found) -> Result<(), DoctorError> {
        let inserted = insert(&self.db, &mut self.me, found);
        self.wrote(inserted)
    }

    fn wrote(&self, outcome: Result<(), Fault>) -> Result<(), DoctorError> {
        outcome.map_err(|fault| self.failed(format!("{fault:?}")))
    }

    fn finish(mut self) -> Result<(), DoctorError> {
        let done = self.db.execute_batch("UPDATE heads SET owner = NULL; COMMIT");
        let done = done.map_err(|error| self.failed(error.to_string()));
        self.me.retire();
        match std::fs::remove_dir_all(&self.scratch) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(%error, "a scratch directory was not removed");
            }
            _ => {}
        }
        done
    }

    fn failed(&self, reason: String) -> DoctorError {
        DoctorError::Write { path: self.path.clone(), reason }
    }
}

fn insert(db: &Connection, me: &mut Owner, found: &Found) -> Result<(), Fault> {
    let SessionRecord { record, saved, made_by, updated_at } = &found.session;
    session::Whole::encode(record.clone(), &found.messages)?.insert(db, me)?;
    let agent_id: i64 = db
        .prepare_cached(
            "UPDATE agents SET saved = ?, kept = ?, made_by = ? WHERE name = ? RETURNING id",
        )?
        .query_row(
            params![saved, found.kept, made_by.as_ref().map(AgentId::as_str), record.id.as_str()],
            |row| row.get(0),
        )?;
    db.prepare_cached("UPDATE heads SET updated_at = ? WHERE agent_id = ?")?
        .execute(params![micros(*updated_at), agent_id])?;
    Ok(())
}
