//! What was said, in SQL. A log holds the messages of one session from where it began; what came before lies in the
//! log it was forked from. Each function runs inside a transaction that its caller opened.

use std::ops::Range;
use std::sync::Arc;

use nexus_core::message::SharedMessage;
use nexus_core::store::AgentRecord;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::agent::{signed, unsigned};
use super::fault::Fault;
use super::record::{MessageRow, decode_message};

/// A run begins anew before each multiple of this, so it is never longer.
const RUN_MAX: i64 = 32;

/// Messages of one log that follow each other in the table: message `first` and those after it lie at `seq` and after.
#[derive(Clone, Copy)]
struct Run {
    first: i64,
    seq: i64,
}

fn decode_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run { first: row.get(0)?, seq: row.get(1)? })
}

/// Appends to a log. Refused when the first message would leave a gap or overwrite.
pub(super) fn append(
    db: &Connection,
    log_id: i64,
    first_index: i64,
    rows: &[MessageRow],
) -> Result<(), Fault> {
    let last: Option<(i64, i64, i64)> = db
        .prepare_cached("SELECT seq, log_id, idx FROM messages ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    // Nobody else has spoken since.
    let mut follows = last.is_some_and(|(_, log, index)| (log, index + 1) == (log_id, first_index));
    if !follows {
        let Tail { length, .. } = tail(db, log_id)?;
        if length != first_index {
            return Err(Fault::unfit(format!(
                "the conversation has {length} messages; an append at {first_index} would leave a \
                 gap or overwrite"
            )));
        }
    }
    let mut begin = db.prepare_cached("INSERT INTO runs (log_id, first, seq) VALUES (?, ?, ?)")?;
    let mut insert = db.prepare_cached(
        "INSERT INTO messages (seq, log_id, idx, role, at, content, extra)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )?;
    let next = last.map_or(1, |(seq, ..)| seq + 1);
    for ((seq, index), row) in (next..).zip(first_index..).zip(rows) {
        if !follows || index % RUN_MAX == 0 {
            begin.execute([log_id, index, seq])?;
            follows = true;
        }
        let (role, at, content, extra) = (row.role(), row.at(), row.content(), row.extra());
        insert.execute(params![seq, log_id, index, role, at, content, extra])?;
    }
    Ok(())
}

/// Where message `index` of a log lies, if it is there.
pub(super) fn place(db: &Connection, log_id: i64, index: i64) -> Result<Option<i64>, Fault> {
    let run = db
        .prepare_cached(
            "SELECT first, seq FROM runs WHERE log_id = ? AND first <= ? ORDER BY first DESC LIMIT 1",
        )?
        .query_row([log_id, index], decode_run)
        .optional()?;
    let Some(run) = run else { return Ok(None) };
    let seq = db
        .prepare_cached("SELECT seq FROM messages WHERE seq = ? AND log_id = ? AND idx = ?")?
        .query_row([run.seq + (index - run.first), log_id, index], |row| row.get(0))
        .optional()?;
    Ok(seq)
}

/// Where the messages of a log from `start` to before `end` lie: ranges of the table, in order, that may hold messages
/// of other logs too.
fn ranges(db: &Connection, log_id: i64, start: i64, end: i64) -> Result<Vec<Range<i64>>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT first, seq FROM runs WHERE log_id = ? AND first > ? AND first < ? ORDER BY first",
    )?;
    let runs: Vec<Run> = query
        .query_map([log_id, start - RUN_MAX, end], decode_run)?
        .collect::<rusqlite::Result<_>>()?;
    let mut ranges: Vec<Range<i64>> = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let next = runs.get(at + 1).map_or(run.first + RUN_MAX, |next| next.first);
        let (from, to) = (run.first.max(start), next.min(end));
        if from < to {
            let range = run.seq + (from - run.first)..run.seq + (to - run.first);
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
    }
    Ok(ranges)
}

/// How far a conversation has come. It is read off the messages: a count beside them would be a second page for each
/// append to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) length: i64,
    /// When the last message was written.
    pub(super) last_at: Option<i64>,
}

/// Looks for the last message of a log. A log in which nothing was said yet is as long as its fork.
pub(super) fn tail(db: &Connection, log_id: i64) -> Result<Tail, Fault> {
    let run = db
        .prepare_cached("SELECT first, seq FROM runs WHERE log_id = ? ORDER BY first DESC LIMIT 1")?
        .query_row([log_id], decode_run)
        .optional()?;
    if let Some(Run { first, seq }) = run {
        let last = db
            .prepare_cached(
                "SELECT idx + 1, at FROM messages WHERE seq >= ? AND seq < ? AND log_id = ?
                 ORDER BY seq DESC LIMIT 1",
            )?
            .query_row([seq, seq + RUN_MAX, log_id], |row| {
                Ok(Tail { length: row.get(0)?, last_at: row.get(1)? })
            })
            .optional()?;
        return Ok(last.unwrap_or(Tail { length: first, last_at: None }));
    }
    let forked: Option<(i64, i64)> = db
        .prepare_cached("SELECT parent, length FROM forks WHERE log_id = ?")?
        .query_row([log_id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((parent, length)) = forked else { return Ok(Tail::default()) };
    let last_at = match place(db, parent, length - 1)? {
        Some(seq) => db
            .prepare_cached("SELECT at FROM messages WHERE seq = ?")?
            .query_row([seq], |row| row.get(0))?,
        None => None,
    };
    Ok(Tail { length, last_at })
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
         WHERE seq >= ? AND seq < ? AND log_id = ? ORDER BY seq",
    )?;
    let mut messages = Vec::new();
    let mut places = Vec::new();
    for Stretch { log_id, start, end } in stretches(db, log_id, signed(record.message_count)?)? {
        places.extend(ranges(db, log_id, start, end)?.into_iter().map(|range| (log_id, range)));
    }
    for (log_id, Range { start, end }) in places {
        let mut rows = query.query([start, end, log_id])?;
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
        let kept = shared.unwrap_or(0);
        for Range { start, end } in ranges(db, log_id, kept, i64::MAX)? {
            db.prepare_cached("DELETE FROM messages WHERE seq >= ? AND seq < ? AND log_id = ?")?
                .execute([start, end, log_id])?;
        }
        db.prepare_cached("DELETE FROM runs WHERE log_id = ? AND first >= ?")?
            .execute([log_id, kept])?;
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
