//! What was said, in SQL. A log holds the messages of one session from where it began; what came before lies in the
//! log it was forked from. Each function runs inside a transaction that its caller opened.

use std::ops::Range;
use std::sync::Arc;

use nexus_core::message::{Role, SharedMessage};
use nexus_core::store::Window;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::agent::unsigned;
use super::blob::{self, Bytes};
use super::briefing;
use super::fault::Fault;
use super::record::{MessageRow, decode_message, role_name};

/// A run begins anew before each multiple of this, so it is never longer.
const RUN_MAX: i64 = 32;

/// Messages that are looked at in one go when the last of a kind is searched for.
const SEARCHED: i64 = 8 * RUN_MAX;

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
        insert.execute(params![seq, log_id, index, role, at, &*content, extra])?;
        for blob in row.blobs() {
            blob::put(db, log_id, index, blob)?;
        }
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

/// A conversation, and where its messages lie, oldest first.
pub(super) struct History {
    stretches: Vec<Stretch>,
    length: i64,
}

impl History {
    pub(super) fn of(db: &Connection, log_id: i64, length: i64) -> Result<Self, Fault> {
        Ok(Self { stretches: stretches(db, log_id, length)?, length })
    }

    /// All that was said.
    pub(super) fn whole(&self, db: &Connection) -> Result<Vec<SharedMessage>, Fault> {
        self.read(db, 0..self.length)
    }

    /// The messages of a range of indexes, all of which must be there.
    pub(super) fn read(
        &self,
        db: &Connection,
        wanted: Range<i64>,
    ) -> Result<Vec<SharedMessage>, Fault> {
        self.read_some(db, wanted, usize::MAX, Bytes::Read)
    }

    /// The same, up to the message with which they have `bytes_max` of text together.
    pub(super) fn read_some(
        &self,
        db: &Connection,
        wanted: Range<i64>,
        bytes_max: usize,
        attached: Bytes,
    ) -> Result<Vec<SharedMessage>, Fault> {
        let mut query = db.prepare_cached(
            "SELECT idx, role, at, content, extra FROM messages
             WHERE seq >= ? AND seq < ? AND log_id = ? ORDER BY seq",
        )?;
        let (mut messages, mut bytes) = (Vec::new(), 0);
        let mut index = wanted.start;
        for Stretch { log_id, start, end } in &self.stretches {
            let (start, end) = (wanted.start.max(*start), wanted.end.min(*end));
            for Range { start, end } in ranges(db, *log_id, start, end)? {
                let mut rows = query.query([start, end, *log_id])?;
                while let Some(row) = rows.next()? {
                    if row.get::<_, i64>(0)? != index {
                        break;
                    }
                    let (role, extra): (String, Option<String>) = (row.get(1)?, row.get(4)?);
                    let (at, content) = (row.get(2)?, row.get(3)?);
                    let message =
                        decode_message(db, &role, at, content, extra.as_deref(), attached)
                            .map_err(|fault| fault.about(format!("message {index}")))?;
                    bytes += message.text_bytes();
                    messages.push(Arc::new(message));
                    index += 1;
                    if bytes >= bytes_max {
                        return Ok(messages);
                    }
                }
            }
        }
        if index != wanted.end {
            let length = self.length;
            return Err(Fault::unfit(format!(
                "of {length} messages the one at {index} is missing"
            )));
        }
        Ok(messages)
    }

    /// The end of the conversation, from what its last summary leaves standing. What is attached to messages before that
    /// summary no model sees any more, so it is left where it is.
    pub(super) fn window(&self, db: &Connection) -> Result<Window, Fault> {
        let Some(summary) = self.last(db, Role::Summary, self.length)? else {
            return Ok(Window { first: 0, messages: self.whole(db)? });
        };
        let covers = self.read(db, summary..summary + 1)?.first().and_then(|it| it.meta.covers);
        let covers = covers.and_then(|covers| i64::try_from(covers).ok());
        let covers = covers.unwrap_or(summary).min(summary);
        let first = self.last(db, Role::User, covers)?.unwrap_or(covers);
        let mut messages = self.read_some(db, first..summary, usize::MAX, Bytes::Left)?;
        messages.extend(self.read(db, summary..self.length)?);
        Ok(Window { first: unsigned(first)?, messages })
    }

    /// Where the last message of a role before `end` stands. Searched from the end, and only as far as it takes.
    fn last(&self, db: &Connection, role: Role, end: i64) -> Result<Option<i64>, Fault> {
        let mut query = db.prepare_cached(
            "SELECT idx FROM messages WHERE seq >= ? AND seq < ? AND log_id = ? AND role = ?
             ORDER BY seq DESC LIMIT 1",
        )?;
        for stretch in self.stretches.iter().rev() {
            let mut end = stretch.end.min(end);
            while end > stretch.start {
                let start = stretch.start.max(end - SEARCHED);
                for range in ranges(db, stretch.log_id, start, end)?.into_iter().rev() {
                    let place = params![range.start, range.end, stretch.log_id, role_name(role)];
                    let found = query.query_row(place, |row| row.get(0)).optional()?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                end = start;
            }
        }
        Ok(None)
    }
}

/// Lets the log `new` go on from the first `length` messages of `log_id`.
pub(super) fn fork(db: &Connection, new: i64, log_id: i64, length: i64) -> Result<(), Fault> {
    // The log in which the last message lies, so that copies of copies that never spoke make no chain.
    let last = stretches(db, log_id, length)?.pop();
    if let Some(Stretch { log_id: parent, .. }) = last.filter(|stretch| stretch.end > 0) {
        db.prepare_cached("INSERT INTO forks (log_id, parent, length) VALUES (?, ?, ?)")?
            .execute(params![new, parent, length])?;
    }
    briefing::copy(db, new, log_id)
}

/// Visits what the messages of a log itself say beside their text, of those since `since` that models made.
pub(super) fn each_made(
    db: &Connection,
    log_id: i64,
    since: i64,
    mut visit: impl FnMut(i64, &str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut query = db.prepare_cached(
        "SELECT at, extra FROM messages WHERE seq >= ? AND seq < ? AND log_id = ? AND at >= ?
         AND role IN ('assistant', 'summary') AND extra IS NOT NULL ORDER BY seq",
    )?;
    for Range { start, end } in ranges(db, log_id, 0, i64::MAX)? {
        let mut rows = query.query([start, end, log_id, since])?;
        while let Some(row) = rows.next()? {
            let extra =
                row.get_ref(1)?.as_str().map_err(|error| Fault::unfit(error.to_string()))?;
            visit(row.get(0)?, extra)?;
        }
    }
    Ok(())
}

/// The log in which a conversation began, with all its copies.
pub(super) fn root(db: &Connection, log_id: i64) -> Result<i64, Fault> {
    let mut query = db.prepare_cached("SELECT parent FROM forks WHERE log_id = ?")?;
    let mut root = log_id;
    while let Some(parent) = query.query_row([root], |row| row.get(0)).optional()? {
        root = parent;
    }
    Ok(root)
}

/// Removes logs, given as a JSON list, whose sessions are gone. Those that share nothing with any other, which are nearly
/// all, go together.
pub(super) fn remove_all(db: &Connection, logs: &str) -> Result<(), Fault> {
    let mut shared = db.prepare_cached(
        "SELECT value FROM json_each(?)
         WHERE value IN (SELECT log_id FROM forks) OR value IN (SELECT parent FROM forks)",
    )?;
    let shared: Vec<i64> =
        shared.query_map([logs], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for log_id in &shared {
        remove(db, *log_id)?;
    }
    let shared = serde_json::to_string(&shared)?;
    // A run may be followed by messages of other logs, which stay.
    db.prepare_cached(
        "DELETE FROM messages WHERE seq IN (
             SELECT m.seq FROM json_each(?1) AS place
             JOIN messages m ON m.seq >= place.value ->> 0 AND m.seq < place.value ->> 1
             WHERE m.log_id IN (SELECT value FROM json_each(?2))
             AND m.log_id NOT IN (SELECT value FROM json_each(?3)))",
    )?
    .execute([&places(db, logs)?, logs, &shared])?;
    db.prepare_cached(
        "DELETE FROM runs WHERE log_id IN (SELECT value FROM json_each(?1))
         AND log_id NOT IN (SELECT value FROM json_each(?2))",
    )?
    .execute([logs, &shared])?;
    blob::forget_all(db, logs, &shared)?;
    briefing::forget(db, logs)
}

/// The ranges of the table, as a JSON list, in which all messages of these logs lie. Conversations that took turns lie in
/// each other's ranges, so that looking through them one by one would visit each message many times.
fn places(db: &Connection, logs: &str) -> Result<String, Fault> {
    let mut query = db.prepare_cached(
        "SELECT seq FROM json_each(?) AS gone JOIN runs ON log_id = gone.value ORDER BY seq",
    )?;
    let mut places: Vec<(i64, i64)> = Vec::new();
    for start in query.query_map([logs], |row| row.get::<_, i64>(0))? {
        let start = start?;
        match places.last_mut() {
            Some((_, end)) if *end >= start => *end = start + RUN_MAX,
            _ => places.push((start, start + RUN_MAX)),
        }
    }
    Ok(serde_json::to_string(&places)?)
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
        blob::forget(db, log_id, kept)?;
        briefing::forget(db, &format!("[{log_id}]"))?;
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
