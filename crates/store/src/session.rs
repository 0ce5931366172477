//! Sessions in SQL: agents, and what was saved of them. Each function runs inside a transaction that its caller opened.

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::message::SharedMessage;
use nexus_core::store::{
    AgentKey, AgentRecord, Copied, Fence, Lease, Progress, SessionPage, SessionQuery, SessionRecord,
};
use rusqlite::{Connection, Row, named_params, params};

use super::agent::{self, Head, SELECT_AGENT, next_fence, signed, taken, unsigned};
use super::approval;
use super::blob::Bytes;
use super::family;
use super::fault::Fault;
use super::log::{self, History, Tail};
use super::memory;
use super::owner::Owner;
use super::plan;
use super::record::{AgentRow, MessageRow, agent_id, encode_settings, micros, timestamp};

/// A page of sessions, the most recently changed first.
pub(super) fn page(db: &Connection, query: &SessionQuery) -> Result<SessionPage, Fault> {
    // The order is found in the small rows alone; the long ones are read for the page only.
    let (line, filter) = match query.line_of {
        None => ("", ""),
        Some(_) => (
            "WITH RECURSIVE line (name) AS (
                 VALUES (:own) UNION SELECT agents.name FROM agents JOIN line ON agents.parent = line.name)",
            "WHERE agent_id IN (SELECT id FROM agents WHERE name IN line)",
        ),
    };
    let own = query.line_of.as_ref().map_or("", AgentId::as_str);
    let mut count =
        db.prepare_cached(&format!("{line} SELECT count(*), :own FROM heads {filter}"))?;
    let total = unsigned(count.query_row(named_params! {":own": own}, |row| row.get(0))?)?;
    let mut select = db.prepare_cached(&format!(
        "{line} {SELECT_AGENT} JOIN (
             SELECT agent_id AS shown FROM heads {filter}
             ORDER BY updated_at DESC, agent_id DESC LIMIT :limit OFFSET :offset
         ) ON shown = a.id WHERE :own IS NOT NULL ORDER BY updated_at DESC, agent_id DESC"
    ))?;
    // No database has so many rows that the largest offset would be too small.
    let offset = i64::try_from(query.offset).unwrap_or(i64::MAX);
    let mut rows =
        select.query(named_params! {":own": own, ":limit": query.limit, ":offset": offset})?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        sessions.push(decode(row, log::tail(db, row.get("log_id")?)?)?);
    }
    Ok(SessionPage { total, sessions })
}

pub(super) fn find(db: &Connection, name: &AgentId) -> Result<Option<SessionRecord>, Fault> {
    let mut query = db.prepare_cached(&format!("{SELECT_AGENT} WHERE a.name = ?"))?;
    let mut rows = query.query([name.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    decode(row, log::tail(db, row.get("log_id")?)?).map(Some)
}

pub(super) fn read(
    db: &Connection,
    name: &AgentId,
) -> Result<Option<(SessionRecord, Vec<SharedMessage>)>, Fault> {
    let (Some(session), Some(head)) = (find(db, name)?, Head::find(db, name)?) else {
        return Ok(None);
    };
    let messages = History::of(db, head.log_id, signed(session.record.message_count)?)?
        .whole(db)
        .map_err(|fault| fault.about(format!("session {name}")))?;
    Ok(Some((session, messages)))
}

/// One message of a session, as far as it is on disk.
pub(super) fn message(
    db: &Connection,
    name: &AgentId,
    index: u64,
) -> Result<Option<SharedMessage>, Fault> {
    let (Some(session), Some(head)) = (find(db, name)?, Head::find(db, name)?) else {
        return Ok(None);
    };
    if index >= session.record.message_count {
        return Ok(None);
    }
    let (length, first) = (signed(session.record.message_count)?, signed(index)?);
    let read = History::of(db, head.log_id, length)?
        .read_some(db, first..first + 1, usize::MAX, Bytes::Left)
        .map_err(|fault| fault.about(format!("session {name}")))?;
    Ok(read.into_iter().next())
}

pub(super) fn decode(row: &Row<'_>, tail: Tail) -> Result<SessionRecord, Fault> {
    let record = agent::decode(row, tail)?;
    let made_by: Option<String> = row.get("made_by")?;
    let made_by = made_by.as_deref().map(agent_id).transpose()?;
    Ok(SessionRecord {
        made_by: record.parent.clone().or(made_by),
        saved: row.get("saved")?,
        // What a running turn began with is in the log alone.
        updated_at: timestamp(tail.last_at.unwrap_or(0).max(row.get("updated_at")?))?,
        record,
    })
}

/// A session with its messages, ready to be written.
pub(super) struct Whole {
    record: AgentRecord,
    row: AgentRow,
    messages: Vec<MessageRow>,
}

impl Whole {
    pub(super) fn encode(record: AgentRecord, messages: &[SharedMessage]) -> Result<Self, Fault> {
        let row = AgentRow::encode(&record)?;
        let messages = messages.iter().map(MessageRow::encode).collect::<Result<_, _>>()?;
        Ok(Self { record, row, messages })
    }

    /// Stores it as an agent of this process, whether or not its parent is there.
    pub(super) fn insert(&self, db: &Connection, me: &mut Owner) -> Result<Lease, Fault> {
        let lease = agent::insert(db, me, &self.record.id, &self.row)?;
        self.say(db, me, lease)?;
        Ok(lease)
    }

    fn say(&self, db: &Connection, me: &Owner, lease: Lease) -> Result<(), Fault> {
        let step = agent::Step {
            first_index: 0,
            rows: &self.messages,
            progress: None,
            bill: None,
            brief: None,
        };
        agent::append(db, me, lease, &step)
    }
}

/// Stores a session in which nobody works.
pub(super) fn put_saved(db: &Connection, me: &mut Owner, whole: &Whole) -> Result<(), Fault> {
    // Made as an agent and set aside as one: there is one way to write either.
    let AgentKey(agent) = whole.insert(db, me)?.agent;
    db.prepare_cached("UPDATE agents SET saved = 1, kept = 1 WHERE id = ?")?.execute([agent])?;
    db.prepare_cached("UPDATE heads SET owner = NULL WHERE agent_id = ?")?.execute([agent])?;
    Ok(())
}

/// Stores the temporary agent `was` under the name it has from here on. Returns its `born` beside the lease.
pub(super) fn settle(
    db: &Connection,
    me: &mut Owner,
    was: &AgentId,
    whole: &Whole,
) -> Result<(Lease, u64), Fault> {
    let lease = agent::create(db, me, &whole.record.id, &whole.row)?;
    whole.say(db, me, lease)?;
    keep(db, me, lease)?;
    approval::rename(db, me, was, &whole.record.id)?;
    Ok((lease, lease.fence.0))
}

pub(super) fn keep(db: &Connection, me: &Owner, lease: Lease) -> Result<(), Fault> {
    agent::held(db, me, lease)?;
    db.prepare_cached("UPDATE agents SET kept = 1 WHERE id = ?")?.execute([lease.agent.0])?;
    Ok(())
}

/// What a copy is to be, ready to be written.
pub(super) struct Copy {
    name: AgentId,
    settings: String,
    progress: Progress,
    made_by: Option<AgentId>,
    length_max: Option<u64>,
}

impl Copy {
    pub(super) fn encode(copy: Copied) -> Result<Self, Fault> {
        let Copied { name, settings, progress, made_by, length_max } = copy;
        Ok(Self { name, settings: encode_settings(&settings)?, progress, made_by, length_max })
    }
}

/// Makes a saved copy of `from`, whoever holds that: what is on disk of it.
pub(super) fn copy(
    db: &Connection,
    from: &AgentId,
    copy: &Copy,
    replace: bool,
) -> Result<bool, Fault> {
    let Some(source) = Head::find(db, from)? else { return Ok(false) };
    if let Some(old) = Head::find(db, &copy.name)? {
        if !(replace && old.saved && old.copy_of == Some(source.agent.0)) {
            return Err(taken(db, &copy.name)?);
        }
        db.prepare_cached("DELETE FROM agents WHERE id = ?")?.execute([old.agent.0])?;
        log::remove(db, old.log_id)?;
    }
    let copy_of = replace.then_some(source.agent.0);
    insert_copy(db, &source, copy, next_fence(db)?, CopiedAs::Saved { copy_of })?;
    Ok(true)
}

/// What becomes of a copy.
enum CopiedAs<'a> {
    Saved { copy_of: Option<i64> },
    HeldBy(&'a str),
}

/// Stores a copy where its source stands and with its ceiling, read in this moment: the parent may have another name, or
/// none, since the copy was asked for.
fn insert_copy(
    db: &Connection,
    source: &Head,
    copy: &Copy,
    fence: Fence,
    copied: CopiedAs<'_>,
) -> Result<AgentKey, Fault> {
    let (saved, copy_of, owner) = match copied {
        CopiedAs::Saved { copy_of } => (true, copy_of, None),
        CopiedAs::HeldBy(owner) => (false, None, Some(owner)),
    };
    let (now, fence) = (micros(Timestamp::now()), signed(fence.0)?);
    db.prepare_cached(
        "INSERT INTO agents
             (name, created_at, born, parent, depth, ceiling, settings, saved, kept, made_by, copy_of)
         SELECT ?1, ?2, ?3, parent, depth, ceiling, ?4, ?5, ?5, ?6, ?7 FROM agents WHERE id = ?8",
    )?
    .execute(params![
        copy.name.as_str(),
        now,
        fence,
        copy.settings,
        saved,
        copy.made_by.as_ref().map(AgentId::as_str),
        copy_of,
        source.agent.0
    ])?;
    let agent_id = db.last_insert_rowid();
    db.prepare_cached(
        "INSERT INTO heads (agent_id, log_id, halted_at_iteration_limit, last_iteration_count,
             should_shutdown, owner, fence, updated_at)
         VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        agent_id,
        copy.progress.halted_at_iteration_limit,
        copy.progress.last_iteration_count,
        copy.progress.should_shutdown,
        owner,
        fence,
        now
    ])?;
    let length = log::tail(db, source.log_id)?.length;
    let length_max = copy.length_max.and_then(|max| i64::try_from(max).ok());
    log::fork(db, agent_id, source.log_id, length_max.map_or(length, |max| length.min(max)))?;
    Ok(AgentKey(agent_id))
}

/// Makes an agent of a session.
pub(super) fn load(
    db: &Connection,
    me: &mut Owner,
    name: &AgentId,
    settings: Option<&str>,
) -> Result<Option<Lease>, Fault> {
    let Some(session) = Head::find(db, name)? else { return Ok(None) };
    let lease = session.take(db, me, name)?;
    if session.saved {
        db.prepare_cached("UPDATE agents SET saved = 0, copy_of = NULL, born = ? WHERE id = ?")?
            .execute([signed(lease.fence.0)?, lease.agent.0])?;
    }
    if let Some(settings) = settings {
        agent::write_settings(db, lease.agent, settings)?;
    }
    Ok(Some(lease))
}

/// Makes an agent of a copy.
pub(super) fn load_copy(
    db: &Connection,
    me: &mut Owner,
    from: &AgentId,
    copy: &Copy,
) -> Result<Option<Lease>, Fault> {
    let Some(source) = Head::find(db, from)? else { return Ok(None) };
    if Head::find(db, &copy.name)?.is_some() {
        return Err(taken(db, &copy.name)?);
    }
    let fence = next_fence(db)?;
    let agent = insert_copy(db, &source, copy, fence, CopiedAs::HeldBy(me.id()?))?;
    Ok(Some(Lease { agent, fence }))
}

/// Gives a session another name, and returns its new `born`. What was said keeps the names that were spoken.
pub(super) fn rename(
    db: &Connection,
    me: &Owner,
    from: &AgentId,
    to: &AgentId,
) -> Result<Option<u64>, Fault> {
    let Some(head) = Head::find(db, from)? else { return Ok(None) };
    head.refuse_if_held_elsewhere(me, from)?;
    if Head::find(db, to)?.is_some() {
        return Err(taken(db, to)?);
    }
    let Fence(born) = next_fence(db)?;
    db.prepare_cached("UPDATE agents SET name = ?, born = ? WHERE id = ?")?.execute(params![
        to.as_str(),
        signed(born)?,
        head.agent.0
    ])?;
    for refers in ["parent", "made_by"] {
        db.prepare_cached(&format!("UPDATE agents SET {refers} = ?1 WHERE {refers} = ?2"))?
            .execute([to.as_str(), from.as_str()])?;
    }
    approval::rename(db, me, from, to)?;
    memory::rename(db, from, to)?;
    plan::rename(db, from, to)?;
    Ok(Some(born))
}

/// Removes a session, saved by name or not, and ends its descendants.
pub(super) fn delete(db: &Connection, me: &Owner, name: &AgentId) -> Result<Vec<AgentId>, Fault> {
    db.prepare_cached("UPDATE agents SET saved = 0, kept = 0 WHERE name = ?")?
        .execute([name.as_str()])?;
    family::destroy(db, me, std::slice::from_ref(name))
}
