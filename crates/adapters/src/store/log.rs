//! What was said, in SQL. A log holds the messages of one session from where it began; what came before lies in the
//! log it was forked from. Each function runs inside a transaction that its caller opened.

use std::sync::Arc;

use nexus_core::message::SharedMessage;
use nexus_core::store::AgentRecord;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::agent::{signed, unsigned};
use super::fault::Fault;
use super::record::decode_message;

/// Bits of a message's key that number it within its log; those above name the log.
const INDEX_BITS: u32 = 32;

/// The key of a message. See `schema` for why it is one number.
pub(super) fn key(log_id: i64, index: i64) -> Result<i64, Fault> {
    let fits =
        (0..1 << INDEX_BITS).contains(&index) && (0..1 << (63 - INDEX_BITS)).contains(&log_id);
    match fits {
        true => Ok(log_id << INDEX_BITS | index),
        false => Err(Fault::unfit(format!("message {index} of log {log_id} has no key"))),
    }
}

/// How far a conversation has come. It is read off the messages: a count beside them would be a second page for each
/// append to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) length: i64,
    /// When the last message was written.
    pub(super) last_at: Option<i64>,
}

/// Looks for the last message of a log, which is one step down the tree. A log in which nothing was said yet is as long
/// as its fork.
pub(super) fn tail(db: &Connection, log_id: i64) -> Result<Tail, Fault> {
    let decode = |row: &Row<'_>| Ok(Tail { length: row.get(0)?, last_at: row.get(1)? });
    let own = db
        .prepare_cached(
            "SELECT idx + 1, at FROM messages WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT 1",
        )?
        .query_row([key(log_id, 0)?, key(log_id + 1, 0)?], decode)
        .optional()?;
    if let Some(own) = own {
        return Ok(own);
    }
    let forked = db
        .prepare_cached(
            "SELECT length, at FROM forks
             LEFT JOIN messages ON key = (forks.parent << 32 | forks.length - 1)
             WHERE forks.log_id = ?",
        )?
        .query_row([log_id], decode)
        .optional()?;
    Ok(forked.unwrap_or_default())
}

/// A part of a conversation that lies in one log: the messages from `start` to before `end`.
pub(super) struct Stretch {
    pub(super) log_id: i64,
    pub(super) start: i64,
    pub(super) end: i64,
}

/// All messages of a conversation.
pub(super) fn read(
    db: &Connection,
    log_id: i64,
    record: &AgentRecord,
) -> Result<Vec<SharedMessage>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT idx, role, at, content, extra FROM messages
         WHERE key >= ? AND key < ? ORDER BY key",
    )?;
    let mut messages = Vec::new();
    for stretch in stretches(db, log_id, signed(record.message_count)?)? {
        let Stretch { log_id, start, end } = stretch;
        let mut rows = query.query([key(log_id, start)?, key(log_id, end)?])?;
        while let Some(row) = rows.next()? {
            if unsigned(row.get(0)?)? != messages.len() as u64 {
                break;
            }
            let (role, extra): (String, Option<String>) = (row.get(1)?, row.get(4)?);
            let message = decode_message(&role, row.get(2)?, row.get(3)?, extra.as_deref());
            let message = message.map_err(|fault| {
                fault.about(format!("message {} of {}", messages.len(), record.id))
            })?;
            messages.push(Arc::new(message));
        }
    }
    if messages.len() as u64 != record.message_count {
        return Err(Fault::unfit(format!(
            "of the {} messages of agent {} the one at {} is missing",
            record.message_count,
            record.id,
            messages.len()
        )));
    }
    Ok(messages)
}

/// Lets the log `new` go on from the first `length` messages of `log_id`.
pub(super) fn fork(db: &Connection, new: i64, log_id: i64, length: i64) -> Result<(), Fault> {
    // The log in which the last message lies, so that copies of copies that never spoke make no chain.
    let last = stretches(db, log_id, length)?.pop();
    if let Some(Stretch { log_id: parent, .. }) = last.filter(|stretch| stretch.end > 0) {
        db.prepare_cached("INSERT INTO forks (log_id, parent, length) VALUES (?, ?, ?)")?
            .execute(params![new, parent, length])?;
    }
    Ok(())
}

/// Removes a log whose session is gone, as far as no other log has its past in it; then, of the logs before it, what
/// was kept for it alone.
pub(super) fn remove(db: &Connection, log_id: i64) -> Result<(), Fault> {
    let mut next = Some(log_id);
    while let Some(log_id) = next {
        let shared: Option<i64> = db
            .prepare_cached("SELECT max(length) FROM forks WHERE parent = ?")?
            .query_row([log_id], |row| row.get(0))?;
        db.prepare_cached("DELETE FROM messages WHERE key >= ? AND key < ?")?
            .execute([key(log_id, shared.unwrap_or(0))?, key(log_id + 1, 0)?])?;
        if shared.is_some() {
            return Ok(());
        }
        let parent: Option<i64> = db
            .prepare_cached("DELETE FROM forks WHERE log_id = ? RETURNING parent")?
            .query_row([log_id], |row| row.get(0))
            .optional()?;
        next = match parent {
            Some(parent) if !is_used(db, parent)? => Some(parent),
            Some(_) | None => None,
        };
    }
    Ok(())
}

/// Whether a session still appends to the log.
fn is_used(db: &Connection, log_id: i64) -> Result<bool, Fault> {
    // A log bears the id of the agent it was made for.
    let mut query = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM heads WHERE agent_id = ?1 AND log_id = ?1)",
    )?;
    Ok(query.query_row([log_id], |row| row.get(0))?)
}

/// Where the first `length` messages of a log lie, oldest first.
pub(super) fn stretches(db: &Connection, log_id: i64, length: i64) -> Result<Vec<Stretch>, Fault> {
    let mut query = db.prepare_cached("SELECT parent, length FROM forks WHERE log_id = ?")?;
    let mut stretches = Vec::new();
    let (mut log_id, mut end) = (log_id, length);
    loop {
        let fork: Option<(i64, i64)> =
            query.query_row([log_id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let start = fork.map_or(0, |(_, start)| start);
        if end > start {
            stretches.push(Stretch { log_id, start, end });
        }
        match fork {
            None => break,
            Some((parent, start)) => (log_id, end) = (parent, end.min(start)),
        }
    }
    stretches.reverse();
    Ok(stretches)
}
