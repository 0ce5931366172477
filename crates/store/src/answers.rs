//! Calls that are carried out once, in SQL. Each function runs inside a transaction that its caller opened.

use jiff::Timestamp;
use nexus_core::store::{ANSWER_KEPT, AnswerRoom, CallDigest, Earlier, is_forgotten};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::agent::{signed, unsigned};
use super::fault::Fault;
use super::owner::{Owner, Whose};
use super::record::{micros, timestamp};

/// Rows that a call removes when there is no room for it: it waits for that.
const REMOVED_FOR_ROOM: u32 = 500;

struct Row {
    params: Vec<u8>,
    owner: String,
    ended_at: Option<i64>,
    answer: Option<String>,
}

pub(super) fn begin(
    db: &Connection,
    me: &mut Owner,
    call: &CallDigest,
    room: AnswerRoom,
    now: Timestamp,
) -> Result<Earlier, Fault> {
    if let Some(row) = find(db, call)? {
        let ended_at = row.ended_at.map(timestamp).transpose()?;
        if ended_at.is_none_or(|at| !is_forgotten(at, now)) {
            return known(db, me, call, row, now);
        }
        remove_row(db, call)?;
    }
    if is_full(db, room)? {
        remove(db, me, now, REMOVED_FOR_ROOM)?;
        if is_full(db, room)? {
            return Ok(Earlier::Full);
        }
    }
    db.prepare_cached("INSERT INTO answers (id, params, owner) VALUES (?, ?, ?)")?
        .execute(params![call.id, call.params, me.id()?])?;
    hold(db, 1, 0)?;
    Ok(Earlier::Nothing)
}

/// What is said to a call that was made before.
fn known(
    db: &Connection,
    me: &Owner,
    call: &CallDigest,
    row: Row,
    now: Timestamp,
) -> Result<Earlier, Fault> {
    if row.params != call.params {
        return Ok(Earlier::OtherParams);
    }
    if let Some(answer) = row.answer {
        return Ok(Earlier::Answered(answer));
    }
    if row.ended_at.is_none() {
        match me.whose(&row.owner) {
            Whose::Another(holder) => return Ok(Earlier::UnderWay(holder)),
            // Of this process: it is not at it any more, or it would not ask.
            Whose::Mine | Whose::Nobodys => {
                db.prepare_cached("UPDATE answers SET ended_at = ? WHERE id = ?")?
                    .execute(params![micros(now), call.id])?;
            }
        }
    }
    Ok(Earlier::CutOff)
}

/// Whoever was taken for dead in between may still say what came of its call.
pub(super) fn keep(
    db: &Connection,
    call: &CallDigest,
    answer: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let kept = db
        .prepare_cached(
            "UPDATE answers SET answer = ?, ended_at = ?
             WHERE id = ? AND params = ? AND answer IS NULL",
        )?
        .execute(params![answer, micros(now), call.id, call.params])?;
    if kept > 0 {
        hold(db, 0, signed(answer.len() as u64)?)?;
    }
    Ok(())
}

pub(super) fn forget(db: &Connection, call: &CallDigest) -> Result<(), Fault> {
    let gone = db
        .prepare_cached("DELETE FROM answers WHERE id = ? AND params = ? AND answer IS NULL")?
        .execute(params![call.id, call.params])?;
    hold(db, -signed(gone as u64)?, 0)
}

pub(super) fn remove(
    db: &Connection,
    me: &Owner,
    now: Timestamp,
    limit: u32,
) -> Result<u64, Fault> {
    end_of_the_dead(db, me, now)?;
    let before = now.checked_sub(ANSWER_KEPT).unwrap_or(Timestamp::MIN);
    let mut query = db.prepare_cached("SELECT id FROM answers WHERE ended_at < ? LIMIT ?")?;
    let old = query.query_map(params![micros(before), limit], |row| row.get(0))?;
    let old: Vec<[u8; 32]> = old.collect::<Result<_, _>>()?;
    for id in &old {
        remove_row(db, &CallDigest { id: *id, params: [0; 32] })?;
    }
    Ok(old.len() as u64)
}

/// What was under way in processes that are gone ends now.
fn end_of_the_dead(db: &Connection, me: &Owner, now: Timestamp) -> Result<(), Fault> {
    let mut query =
        db.prepare_cached("SELECT DISTINCT owner FROM answers WHERE ended_at IS NULL")?;
    let owners = query.query_map([], |row| row.get(0))?;
    let owners: Vec<String> = owners.collect::<Result<_, _>>()?;
    for owner in owners.iter().filter(|owner| me.whose(owner) == Whose::Nobodys) {
        db.prepare_cached("UPDATE answers SET ended_at = ? WHERE owner = ? AND ended_at IS NULL")?
            .execute(params![micros(now), owner])?;
    }
    Ok(())
}

fn find(db: &Connection, call: &CallDigest) -> Result<Option<Row>, Fault> {
    let mut query =
        db.prepare_cached("SELECT params, owner, ended_at, answer FROM answers WHERE id = ?")?;
    let row = query.query_row([call.id], |row| {
        Ok(Row {
            params: row.get(0)?,
            owner: row.get(1)?,
            ended_at: row.get(2)?,
            answer: row.get(3)?,
        })
    });
    Ok(row.optional()?)
}

fn remove_row(db: &Connection, call: &CallDigest) -> Result<(), Fault> {
    let bytes: i64 = db
        .prepare_cached(
            "DELETE FROM answers WHERE id = ?
             RETURNING coalesce(length(CAST(answer AS BLOB)), 0)",
        )?
        .query_row([call.id], |row| row.get(0))?;
    hold(db, -1, -bytes)
}

fn is_full(db: &Connection, room: AnswerRoom) -> Result<bool, Fault> {
    let (calls, bytes) = db
        .prepare_cached("SELECT calls, bytes FROM answers_held")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(unsigned(calls)? >= room.calls_max || unsigned(bytes)? >= room.bytes_max)
}

fn hold(db: &Connection, calls: i64, bytes: i64) -> Result<(), Fault> {
    db.prepare_cached("UPDATE answers_held SET calls = calls + ?, bytes = bytes + ?")?
        .execute([calls, bytes])?;
    Ok(())
}
