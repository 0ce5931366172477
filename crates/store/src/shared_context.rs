//! The shared context in SQL. Each function runs inside a transaction that its caller opened.

use nexus_core::store::{
    ContextChange, ContextKind, ContextOutcome, Effect, EntryNow, SharedContext, entry_bytes,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::Value;

use super::agent::{signed, unsigned};
use super::fault::Fault;

/// An entry: its kind, its key and its value.
pub(super) type Entry = (ContextKind, String, Value);

pub(super) fn read(db: &Connection) -> Result<SharedContext, Fault> {
    let mut context = SharedContext { version: version(db)?, ..SharedContext::default() };
    let mut query = db.prepare_cached("SELECT kind, key, value FROM context_entries")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, key, value) = decode(row.get(0)?, row.get(1)?, &row.get::<_, String>(2)?)?;
        context.entries.insert((kind, key), value);
    }
    Ok(context)
}

pub(super) fn change(db: &Connection, change: &ContextChange) -> Result<ContextOutcome, Fault> {
    let now = standing(db, change)?;
    let effect = match change.effect(&now) {
        Ok(effect) => effect,
        Err(refusal) => return Ok(ContextOutcome::Refused(refusal)),
    };
    match effect {
        Effect::Nothing => {
            return Ok(ContextOutcome::Done { changed: false, version: now.version });
        }
        Effect::Put(value) => put(db, &(change.kind, change.key.clone(), value))?,
        Effect::Remove => {
            db.prepare_cached("DELETE FROM context_entries WHERE kind = ? AND key = ?")?
                .execute(params![number(change.kind), change.key])?;
        }
    }
    let version = now.version + 1;
    set_version(db, version)?;
    Ok(ContextOutcome::Done { changed: true, version })
}

fn standing(db: &Connection, change: &ContextChange) -> Result<EntryNow, Fault> {
    let current = db
        .prepare_cached("SELECT value FROM context_entries WHERE kind = ? AND key = ?")?
        .query_row(params![number(change.kind), change.key], |row| row.get::<_, String>(0))
        .optional()?;
    let (others, others_bytes): (i64, i64) = db
        .prepare_cached(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM context_entries
             WHERE NOT (kind = ? AND key = ?)",
        )?
        .query_row(params![number(change.kind), change.key], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    Ok(EntryNow {
        version: version(db)?,
        current: current.as_deref().map(serde_json::from_str).transpose()?,
        others: unsigned(others)?,
        others_bytes: unsigned(others_bytes)?,
    })
}

/// Writes an entry, in place of the one that is there.
pub(super) fn put(db: &Connection, (kind, key, value): &Entry) -> Result<(), Fault> {
    db.prepare_cached(
        "INSERT INTO context_entries (kind, key, bytes, value) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (kind, key) DO UPDATE SET bytes = ?3, value = ?4",
    )?
    .execute(params![
        number(*kind),
        key,
        signed(entry_bytes(key, value))?,
        value.to_string()
    ])?;
    Ok(())
}

pub(super) fn version(db: &Connection) -> Result<u64, Fault> {
    let version = db
        .prepare_cached("SELECT version FROM context_version")?
        .query_row([], |row| row.get(0))?;
    unsigned(version)
}

pub(super) fn set_version(db: &Connection, version: u64) -> Result<(), Fault> {
    db.prepare_cached("UPDATE context_version SET version = ?")?.execute([signed(version)?])?;
    Ok(())
}

/// The entry with this number.
pub(super) fn by_number(db: &Connection, seq: i64) -> Result<Option<Entry>, Fault> {
    let mut query =
        db.prepare_cached("SELECT kind, key, value FROM context_entries WHERE seq = ?")?;
    let mut rows = query.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(decode(row.get(0)?, row.get(1)?, &row.get::<_, String>(2)?)?))
}

fn decode(kind: i64, key: String, value: &str) -> Result<Entry, Fault> {
    let kind = ContextKind::ALL
        .into_iter()
        .find(|it| number(*it) == kind)
        .ok_or_else(|| Fault::unfit(format!("unknown kind of context {kind}")))?;
    Ok((kind, key, serde_json::from_str(value)?))
}

fn number(kind: ContextKind) -> i64 {
    match kind {
        ContextKind::File => 0,
        ContextKind::Dependency => 1,
        ContextKind::State => 2,
    }
}
