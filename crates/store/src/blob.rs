//! Bytes beside the text of messages, in SQL: each once, for as long as a message shows it. Each function runs inside a
//! transaction that its caller opened.

use std::sync::Arc;

use nexus_core::message::Blob;
use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Fault;

/// Whether the bytes are read with a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    Read,
    /// For who only wants to know of them: a page of a history may show gigabytes.
    Left,
}

pub(super) fn put(db: &Connection, log_id: i64, index: i64, blob: &Blob) -> Result<(), Fault> {
    if blob.bytes.len() as u64 != blob.size {
        return Err(Fault::unfit("an attachment without its bytes"));
    }
    db.prepare_cached("INSERT OR IGNORE INTO blobs (hash, bytes) VALUES (?, ?)")?
        .execute(params![&blob.hash[..], &blob.bytes[..]])?;
    db.prepare_cached(
        "INSERT OR IGNORE INTO blob_uses (log_id, idx, blob_id)
         SELECT ?, ?, id FROM blobs WHERE hash = ?",
    )?
    .execute(params![log_id, index, &blob.hash[..]])?;
    Ok(())
}

pub(super) fn find(db: &Connection, hash: [u8; 32], bytes: Bytes) -> Result<Blob, Fault> {
    let found = match bytes {
        Bytes::Read => db
            .prepare_cached("SELECT bytes FROM blobs WHERE hash = ?")?
            .query_row([&hash[..]], |row| row.get::<_, Vec<u8>>(0))
            .optional()?
            .map(|bytes| Blob { hash, size: bytes.len() as u64, bytes: bytes.into() }),
        // SQLite knows the length without reading what is so long.
        Bytes::Left => db
            .prepare_cached("SELECT length(bytes) FROM blobs WHERE hash = ?")?
            .query_row([&hash[..]], |row| row.get::<_, i64>(0))
            .optional()?
            .map(|size| Blob { hash, size: size.unsigned_abs(), bytes: Arc::default() }),
    };
    found.ok_or_else(|| Fault::unfit("an attachment is missing"))
}

/// Forgets what the messages of a log from `first` on show, as far as no other shows it.
pub(super) fn forget(db: &Connection, log_id: i64, first: i64) -> Result<(), Fault> {
    let mut gone =
        db.prepare_cached("DELETE FROM blob_uses WHERE log_id = ? AND idx >= ? RETURNING blob_id")?;
    let blobs: Vec<i64> =
        gone.query_map([log_id, first], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    remove_unused(db, &blobs)
}

/// The same for whole logs, given as a JSON list, but for those of another such list.
pub(super) fn forget_all(db: &Connection, logs: &str, but: &str) -> Result<(), Fault> {
    let mut gone = db.prepare_cached(
        "DELETE FROM blob_uses WHERE log_id IN (SELECT value FROM json_each(?1))
         AND log_id NOT IN (SELECT value FROM json_each(?2)) RETURNING blob_id",
    )?;
    let blobs: Vec<i64> =
        gone.query_map([logs, but], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    remove_unused(db, &blobs)
}

fn remove_unused(db: &Connection, blobs: &[i64]) -> Result<(), Fault> {
    if blobs.is_empty() {
        return Ok(());
    }
    db.prepare_cached(
        "DELETE FROM blobs WHERE id IN (SELECT value FROM json_each(?))
         AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_id = blobs.id)",
    )?
    .execute([serde_json::to_string(blobs)?])?;
    Ok(())
}
