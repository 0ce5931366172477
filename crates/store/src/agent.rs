//! Agents in SQL: one at a time, and by page. Each function runs inside a transaction that its caller opened.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::message::SharedMessage;
use nexus_core::permission::DEPTH_MAX;
use nexus_core::store::{
    AgentKey, AgentPage, AgentQuery, AgentRecord, Fence, Lease, ListedAgent, Progress, StoreError,
    Window,
};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::blob::Bytes;
use super::briefing::{self, BriefRow};
use super::fault::Fault;
use super::log::{self, History, Tail};
use super::owner::{Onlooker, Owner, Whose};
use super::record::{AgentRow, MessageRow, agent_id, decode_bill, micros, timestamp};

/// The messages of one append and what changes with them.
pub(super) struct Step<'a> {
    pub(super) first_index: u64,
    pub(super) rows: &'a [MessageRow],
    pub(super) progress: Option<Progress>,
    pub(super) bill: Option<&'a str>,
    pub(super) brief: Option<&'a BriefRow>,
}

/// Appends to a conversation that this process holds. This is the path every turn takes, several times, so it writes no
/// page that it need not.
pub(super) fn append(
    db: &Connection,
    me: &Owner,
    lease: Lease,
    step: &Step<'_>,
) -> Result<(), Fault> {
    let log_id = held(db, me, lease)?;
    log::append(db, log_id, signed(step.first_index)?, step.rows)
        .map_err(|fault| fault.about(format!("agent {}", lease.agent.0)))?;
    if let Some(brief) = step.brief {
        briefing::put(db, log_id, brief)?;
    }
    let Some(progress) = &step.progress else { return Ok(()) };
    db.prepare_cached(
        "UPDATE heads SET halted_at_iteration_limit = ?, last_iteration_count = ?,
             should_shutdown = ?, updated_at = ?, bill = coalesce(?, bill) WHERE agent_id = ?",
    )?
    .execute(params![
        progress.halted_at_iteration_limit,
        progress.last_iteration_count,
        progress.should_shutdown,
        micros(Timestamp::now()),
        step.bill,
        lease.agent.0
    ])?;
    Ok(())
}

/// Checks that this process holds the agent under this lease, and returns the log it speaks in.
pub(super) fn held(db: &Connection, me: &Owner, lease: Lease) -> Result<i64, Fault> {
    let mut query =
        db.prepare_cached("SELECT log_id, owner, fence FROM heads WHERE agent_id = ?")?;
    let mut rows = query.query([lease.agent.0])?;
    let Some(row) = rows.next()? else { return Err(StoreError::Ended.into()) };
    let mine = me.claimed_id().is_some_and(|id| row.get_ref(1).is_ok_and(|it| it == id.into()));
    if mine && unsigned(row.get(2)?)? == lease.fence.0 {
        return Ok(row.get(0)?);
    }
    // Nobody owns a saved session, so it is only asked here whether it is one.
    let saved: bool = db
        .prepare_cached("SELECT saved FROM agents WHERE id = ?")?
        .query_row([lease.agent.0], |row| row.get(0))?;
    Err(if saved { StoreError::Ended } else { StoreError::LeaseLost }.into())
}

/// Replaces the settings of an agent that this process holds.
pub(super) fn update(
    db: &Connection,
    me: &Owner,
    lease: Lease,
    settings: &str,
) -> Result<(), Fault> {
    held(db, me, lease)?;
    write_settings(db, lease.agent, settings)
}

pub(super) fn write_settings(
    db: &Connection,
    agent: AgentKey,
    settings: &str,
) -> Result<(), Fault> {
    db.prepare_cached("UPDATE agents SET settings = ? WHERE id = ?")?
        .execute(params![settings, agent.0])?;
    db.prepare_cached("UPDATE heads SET updated_at = ? WHERE agent_id = ?")?
        .execute(params![micros(Timestamp::now()), agent.0])?;
    Ok(())
}

/// Stores a new agent, held by this process, whose parent must be there when it is a permanent one.
pub(super) fn create(
    db: &Connection,
    me: &mut Owner,
    id: &AgentId,
    row: &AgentRow,
) -> Result<Lease, Fault> {
    if let Some(parent) = row.parent.as_ref().filter(|parent| !parent.is_temp()) {
        let known: bool = db
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM agents WHERE name = ? AND saved = 0)")?
            .query_row([parent.as_str()], |row| row.get(0))?;
        if !known {
            return Err(StoreError::UnknownParent(parent.clone()).into());
        }
    }
    insert(db, me, id, row)
}

/// The same beneath the agent of a key, under the name that has in this moment.
pub(super) fn create_child(
    db: &Connection,
    me: &mut Owner,
    id: &AgentId,
    row: AgentRow,
    parent: AgentKey,
) -> Result<Lease, Fault> {
    let named: Option<String> = db
        .prepare_cached("SELECT name FROM agents WHERE id = ? AND saved = 0")?
        .query_row([parent.0], |row| row.get(0))
        .optional()?;
    let Some(named) = named else {
        let asked = row.parent.unwrap_or_else(|| id.clone());
        return Err(StoreError::UnknownParent(asked).into());
    };
    insert(db, me, id, &AgentRow { parent: Some(agent_id(&named)?), ..row })
}

/// Stores a new agent, held by this process. It has said nothing yet, whatever its record counts.
pub(super) fn insert(
    db: &Connection,
    me: &mut Owner,
    id: &AgentId,
    row: &AgentRow,
) -> Result<Lease, Fault> {
    let fence = next_fence(db)?;
    let made = db
        .prepare_cached(
            "INSERT INTO agents (name, created_at, born, parent, depth, ceiling, settings)
             VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
        )?
        .execute(params![
            id.as_str(),
            row.created_at,
            signed(fence.0)?,
            row.parent.as_ref().map(AgentId::as_str),
            row.depth,
            row.ceiling,
            row.settings
        ])?;
    if made == 0 {
        return Err(taken(db, id)?);
    }
    let agent = AgentKey(db.last_insert_rowid());
    let progress = &row.progress;
    db.prepare_cached(
        "INSERT INTO heads
             (agent_id, log_id, halted_at_iteration_limit, last_iteration_count,
              should_shutdown, owner, fence, updated_at, bill)
         VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        agent.0,
        progress.halted_at_iteration_limit,
        progress.last_iteration_count,
        progress.should_shutdown,
        me.id()?,
        signed(fence.0)?,
        micros(Timestamp::now()),
        row.bill
    ])?;
    Ok(Lease { agent, fence })
}

/// Says by what a name is taken.
pub(super) fn taken(db: &Connection, id: &AgentId) -> Result<Fault, Fault> {
    let saved = Head::find(db, id)?.is_some_and(|head| head.saved);
    Ok(if saved { StoreError::Saved(id.clone()) } else { StoreError::Exists(id.clone()) }.into())
}

/// Makes this process the owner of an agent, unless another living one is. Whoever held it before, under whatever
/// fence, can no longer write.
pub(super) fn take_lease(
    db: &Connection,
    me: &mut Owner,
    id: &AgentId,
) -> Result<Option<Lease>, Fault> {
    match Head::find(db, id)? {
        Some(head) if !head.saved => head.take(db, me, id).map(Some),
        Some(_) | None => Ok(None),
    }
}

/// Gives back the lease of one agent.
pub(super) fn release(db: &Connection, me: &Owner, lease: Lease) -> Result<(), Fault> {
    held(db, me, lease)?;
    db.prepare_cached("UPDATE heads SET owner = NULL WHERE agent_id = ?")?
        .execute([lease.agent.0])?;
    Ok(())
}

/// Gives back every lease of this process.
pub(super) fn release_all(db: &Connection, me: &Owner) -> Result<(), Fault> {
    if let Some(id) = me.claimed_id() {
        db.execute("UPDATE heads SET owner = NULL WHERE owner = ?", [id])?;
    }
    Ok(())
}

/// A session whose turn was cut off, with its process, before its place among the most recently changed was written.
pub(super) struct CutOff {
    agent: AgentKey,
    said_at: i64,
}

/// Those that were cut off. Agents of living processes may be among them, and are right to be.
pub(super) fn cut_off(db: &Connection) -> Result<Vec<CutOff>, Fault> {
    let mut held =
        db.prepare("SELECT agent_id, log_id, updated_at FROM heads WHERE owner IS NOT NULL")?;
    let mut rows = held.query([])?;
    let mut behind = Vec::new();
    while let Some(row) = rows.next()? {
        let (agent, updated_at) = (AgentKey(row.get(0)?), row.get::<_, i64>(2)?);
        let said_at = log::tail(db, row.get(1)?)?.last_at;
        let said_at = said_at.filter(|at| *at > updated_at);
        behind.extend(said_at.map(|said_at| CutOff { agent, said_at }));
    }
    Ok(behind)
}

/// Gives them the place that their last message has.
pub(super) fn catch_up(db: &Connection, behind: &[CutOff]) -> Result<(), Fault> {
    let mut update =
        db.prepare("UPDATE heads SET updated_at = max(updated_at, ?) WHERE agent_id = ?")?;
    for CutOff { agent, said_at } in behind {
        update.execute([*said_at, agent.0])?;
    }
    Ok(())
}

/// A page of agents in the order in which they were stored.
pub(super) fn page(db: &Connection, query: &AgentQuery) -> Result<AgentPage, Fault> {
    let limit = i64::from(query.limit) + 1;
    let mut values: Vec<(&str, &dyn ToSql)> = vec![(":limit", &limit)];
    let mut filter = String::from("WHERE a.saved = 0");
    let after = query.after.as_ref().map(AgentId::as_str);
    if after.is_some() {
        filter.push_str(" AND a.id > (SELECT id FROM agents WHERE name = :after)");
        values.push((":after", &after));
    }
    let own = query.line_of.as_ref().map(AgentId::as_str);
    let line = if own.is_some() { line() } else { String::new() };
    if own.is_some() {
        filter.push_str(" AND a.id IN line");
        values.push((":own", &own));
    }
    if query.working {
        filter.push_str(" AND h.should_shutdown = 0");
    }
    let mut select = db.prepare_cached(&format!(
        "{line} SELECT a.*, h.*, (SELECT count(*) FROM agents c WHERE c.parent = a.name AND c.saved = 0) AS children
         FROM agents a JOIN heads h ON h.agent_id = a.id {filter} ORDER BY a.id LIMIT :limit"
    ))?;
    let mut rows = select.query(values.as_slice())?;
    let mut page = AgentPage::default();
    while let Some(row) = rows.next()? {
        if page.agents.len() == query.limit as usize {
            page.more = true;
            break;
        }
        let record = decode(row, log::tail(db, row.get("log_id")?)?)?;
        let child_count = unsigned(row.get("children")?)?;
        page.agents.push(ListedAgent { record, child_count });
    }
    Ok(page)
}

/// Those of these agents that another living process has.
pub(super) fn elsewhere(
    db: &Connection,
    onlooker: &Onlooker,
    among: &[AgentId],
) -> Result<HashSet<AgentId>, Fault> {
    let mut select = db.prepare_cached(
        "SELECT a.name, h.owner FROM agents a JOIN heads h ON h.agent_id = a.id
         WHERE a.name IN (SELECT value FROM json_each(?)) AND a.saved = 0
             AND h.owner IS NOT NULL AND h.owner IS NOT ?",
    )?;
    let among: Vec<&str> = among.iter().map(AgentId::as_str).collect();
    let mut rows = select.query(params![serde_json::to_string(&among)?, onlooker.claimed_id()])?;
    let (mut found, mut known) = (HashSet::new(), HashMap::new());
    while let Some(row) = rows.next()? {
        let owner: String = row.get(1)?;
        let whose = known.entry(owner).or_insert_with_key(|owner| onlooker.whose(owner));
        if matches!(whose, Whose::Another(_)) {
            found.insert(agent_id(&row.get::<_, String>(0)?)?);
        }
    }
    Ok(found)
}

/// The agent `:own`, its ancestors and its descendants. Whatever the rows say, nobody has more ancestors than the deepest
/// agent.
fn line() -> String {
    format!(
        "WITH RECURSIVE
         above (id, parent, steps) AS (
             SELECT id, parent, 0 FROM agents WHERE name = :own AND saved = 0
             UNION SELECT a.id, a.parent, steps + 1 FROM above JOIN agents a ON a.name = above.parent
             WHERE a.saved = 0 AND steps < {DEPTH_MAX}),
         below (id, name) AS (
             VALUES (NULL, :own)
             UNION SELECT a.id, a.name FROM below JOIN agents a ON a.parent = below.name AND a.saved = 0),
         line (id) AS (SELECT id FROM above UNION ALL SELECT id FROM below)"
    )
}

/// An agent and its ancestors, as far as they are stored.
pub(super) fn lineage(db: &Connection, id: &AgentId) -> Result<Vec<AgentRecord>, Fault> {
    let mut query =
        db.prepare_cached(&format!("{SELECT_AGENT} WHERE a.name = ? AND a.saved = 0"))?;
    let mut lineage: Vec<AgentRecord> = Vec::new();
    let mut next = Some(id.clone());
    while let Some(name) = next.filter(|_| lineage.len() <= DEPTH_MAX as usize) {
        let mut rows = query.query([name.as_str()])?;
        let Some(row) = rows.next()? else { break };
        let record = decode(row, log::tail(db, row.get("log_id")?)?)?;
        next = record.parent.clone();
        lineage.push(record);
    }
    Ok(lineage)
}

/// An agent and the end of what it said.
pub(super) fn read(db: &Connection, agent: AgentKey) -> Result<(AgentRecord, Window), Fault> {
    let mut query = db.prepare_cached(&format!("{SELECT_AGENT} WHERE a.id = ?"))?;
    let mut rows = query.query([agent.0])?;
    let Some(row) = rows.next()? else { return Err(StoreError::Ended.into()) };
    let log_id = row.get("log_id")?;
    let tail = log::tail(db, log_id)?;
    let root = unsigned(log::root(db, log_id)?)?;
    let record = AgentRecord { root, ..decode(row, tail)? };
    let window = History::of(db, log_id, tail.length)?
        .window(db)
        .map_err(|fault| fault.about(format!("agent {}", record.id)))?;
    Ok((record, window))
}

/// Some messages of an agent's history, fewer where it ends, without the bytes of what is attached to them.
pub(super) fn messages(
    db: &Connection,
    agent: AgentKey,
    first: u64,
    limit: u32,
    bytes_max: usize,
) -> Result<Vec<SharedMessage>, Fault> {
    let log_id: Option<i64> = db
        .prepare_cached(
            "SELECT log_id FROM heads JOIN agents ON id = agent_id WHERE agent_id = ? AND saved = 0",
        )?
        .query_row([agent.0], |row| row.get(0))
        .optional()?;
    let Some(log_id) = log_id else { return Err(StoreError::Ended.into()) };
    let length = log::tail(db, log_id)?.length;
    let first = i64::try_from(first).unwrap_or(i64::MAX).min(length);
    let end = first.saturating_add(limit.into()).min(length);
    History::of(db, log_id, length)?
        .read_some(db, first..end, bytes_max, Bytes::Left)
        .map_err(|fault| fault.about(format!("agent {}", agent.0)))
}

pub(super) const SELECT_AGENT: &str =
    "SELECT a.*, h.* FROM agents a JOIN heads h ON h.agent_id = a.id";

pub(super) fn decode(row: &Row<'_>, tail: Tail) -> Result<AgentRecord, Fault> {
    let name: String = row.get("name")?;
    let parent: Option<String> = row.get("parent")?;
    let ceiling: Option<String> = row.get("ceiling")?;
    let unfit = |what: &str, error: serde_json::Error| {
        Fault::from(error).about(format!("the {what} of {name}"))
    };
    Ok(AgentRecord {
        id: agent_id(&name)?,
        created_at: timestamp(row.get("created_at")?)?,
        born: unsigned(row.get("born")?)?,
        parent: parent.as_deref().map(agent_id).transpose()?,
        depth: row.get("depth")?,
        ceiling: ceiling
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| unfit("ceiling", error))?,
        settings: serde_json::from_str(&row.get::<_, String>("settings")?)
            .map_err(|error| unfit("settings", error))?,
        progress: Progress {
            halted_at_iteration_limit: row.get("halted_at_iteration_limit")?,
            last_iteration_count: row.get("last_iteration_count")?,
            should_shutdown: row.get("should_shutdown")?,
        },
        bill: decode_bill(row.get::<_, Option<String>>("bill")?.as_deref())
            .map_err(|error| unfit("bill", error))?,
        root: 0,
        message_count: unsigned(tail.length)?,
        last_action_at: tail.last_at.map(timestamp).transpose()?,
    })
}

/// Where an agent stands: what is to be known before it is written by its name.
pub(super) struct Head {
    pub(super) agent: AgentKey,
    pub(super) log_id: i64,
    owner: Option<String>,
    pub(super) saved: bool,
    /// The agent this was copied from by saving it.
    pub(super) copy_of: Option<i64>,
}

impl Head {
    pub(super) fn find(db: &Connection, id: &AgentId) -> Result<Option<Self>, Fault> {
        let mut query = db.prepare_cached(
            "SELECT agent_id, log_id, owner, saved, copy_of
             FROM agents JOIN heads ON agent_id = id WHERE name = ?",
        )?;
        let mut rows = query.query([id.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Self {
            agent: AgentKey(row.get(0)?),
            log_id: row.get(1)?,
            owner: row.get(2)?,
            saved: row.get(3)?,
            copy_of: row.get(4)?,
        }))
    }

    /// Makes this process the owner. Whoever was it before may have ended in the middle of a turn, whose beginning is
    /// in the log alone.
    pub(super) fn take(
        &self,
        db: &Connection,
        me: &mut Owner,
        id: &AgentId,
    ) -> Result<Lease, Fault> {
        self.refuse_if_held_elsewhere(me, id)?;
        let fence = next_fence(db)?;
        let said_at = log::tail(db, self.log_id)?.last_at.unwrap_or(0);
        db.prepare_cached(
            "UPDATE heads SET owner = ?, fence = ?, updated_at = max(updated_at, ?)
             WHERE agent_id = ?",
        )?
        .execute(params![me.id()?, signed(fence.0)?, said_at, self.agent.0])?;
        Ok(Lease { agent: self.agent, fence })
    }

    pub(super) fn refuse_if_held_elsewhere(&self, me: &Owner, id: &AgentId) -> Result<(), Fault> {
        match self.owner.as_deref().map(|owner| me.whose(owner)) {
            Some(Whose::Another(holder)) => {
                Err(StoreError::HeldElsewhere { id: id.clone(), holder }.into())
            }
            Some(Whose::Mine | Whose::Nobodys) | None => Ok(()),
        }
    }
}

/// A fence that no agent had before.
pub(super) fn next_fence(db: &Connection) -> Result<Fence, Fault> {
    let last: i64 = db
        .prepare_cached("UPDATE leases SET last_fence = last_fence + 1 RETURNING last_fence")?
        .query_row([], |row| row.get(0))?;
    Ok(Fence(unsigned(last)?))
}

/// The last fence that any agent was given.
pub(super) fn last_fence(db: &Connection) -> Result<Fence, Fault> {
    let last: i64 =
        db.prepare_cached("SELECT last_fence FROM leases")?.query_row([], |row| row.get(0))?;
    Ok(Fence(unsigned(last)?))
}

/// SQLite's integers are signed.
pub(super) fn signed(number: u64) -> Result<i64, Fault> {
    i64::try_from(number).map_err(|_| Fault::unfit(format!("{number} is too large to be stored")))
}

pub(super) fn unsigned(number: i64) -> Result<u64, Fault> {
    u64::try_from(number).map_err(|_| Fault::unfit(format!("stored number {number} is negative")))
}
