//! Agents and their conversations in SQL. Each function runs inside a transaction that its caller opened.

use std::path::PathBuf;

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::message::SharedMessage;
use nexus_core::store::{AgentRecord, Fence, Progress, StoreError};
use rusqlite::{Connection, Row, params};

use super::approval;
use super::fault::Fault;
use super::log::{self, Tail};
use super::owner::{Holder, Owner};
use super::record::{
    AgentRow, MessageRow, SettingsRow, agent_id, decode_grants, decode_permissions, micros,
    timestamp,
};

/// The messages of one append and what changes with them.
pub(super) struct Step<'a> {
    pub(super) first_index: u64,
    pub(super) rows: &'a [MessageRow],
    pub(super) progress: Option<Progress>,
}

/// Appends to a conversation that this process holds under `fence`. This is the path every turn takes, several times,
/// so it writes no page that it need not.
pub(super) fn append(
    db: &Connection,
    me: &Owner,
    id: &AgentId,
    fence: Fence,
    step: &Step<'_>,
) -> Result<(), Fault> {
    let head = Head::held(db, me, id, fence)?;
    log::append(db, head.log_id, signed(step.first_index)?, step.rows)
        .map_err(|fault| fault.about(format!("agent {id}")))?;
    let Some(progress) = &step.progress else { return Ok(()) };
    db.prepare_cached(
        "UPDATE heads SET halted_at_iteration_limit = ?, last_iteration_count = ?,
             should_shutdown = ?, updated_at = ? WHERE agent_id = ?",
    )?
    .execute(params![
        progress.halted_at_iteration_limit,
        progress.last_iteration_count,
        progress.should_shutdown,
        micros(Timestamp::now()),
        head.agent_id
    ])?;
    Ok(())
}

/// Replaces the settings of an agent that this process holds under `fence`.
pub(super) fn update(
    db: &Connection,
    me: &Owner,
    id: &AgentId,
    fence: Fence,
    settings: &SettingsRow,
) -> Result<(), Fault> {
    write_settings(db, Head::held(db, me, id, fence)?.agent_id, settings)
}

pub(super) fn write_settings(
    db: &Connection,
    agent_id: i64,
    settings: &SettingsRow,
) -> Result<(), Fault> {
    db.prepare_cached(
        "UPDATE agents SET permissions = ?, grants = ?, model = ?, cwd = ?, system_prompt = ?
         WHERE id = ?",
    )?
    .execute(params![
        settings.permissions,
        settings.grants,
        settings.model,
        settings.cwd,
        settings.system_prompt,
        agent_id
    ])?;
    db.prepare_cached("UPDATE heads SET updated_at = ? WHERE agent_id = ?")?
        .execute(params![micros(Timestamp::now()), agent_id])?;
    Ok(())
}

/// Stores a new agent, held by this process. It has said nothing yet, whatever its record counts.
pub(super) fn create(
    db: &Connection,
    me: &mut Owner,
    id: &AgentId,
    row: &AgentRow,
) -> Result<Fence, Fault> {
    let made = db
        .prepare_cached(
            "INSERT INTO agents
                 (name, created_at, parent, depth, permissions, ceiling, model, cwd, system_prompt, grants)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
        )?
        .execute(params![
            id.as_str(),
            row.created_at,
            row.parent.as_ref().map(AgentId::as_str),
            row.depth,
            row.permissions,
            row.ceiling,
            row.model,
            row.cwd,
            row.system_prompt,
            row.grants
        ])?;
    if made == 0 {
        return Err(taken(db, id)?);
    }
    let agent = db.last_insert_rowid();
    let fence = next_fence(db)?;
    let progress = &row.progress;
    db.prepare_cached(
        "INSERT INTO heads
             (agent_id, log_id, halted_at_iteration_limit, last_iteration_count,
              should_shutdown, owner, fence, updated_at)
         VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        agent,
        progress.halted_at_iteration_limit,
        progress.last_iteration_count,
        progress.should_shutdown,
        me.id()?,
        signed(fence.0)?,
        micros(Timestamp::now())
    ])?;
    Ok(fence)
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
) -> Result<Option<Fence>, Fault> {
    match Head::find(db, id)? {
        Some(head) if !head.saved => head.take(db, me, id).map(Some),
        Some(_) | None => Ok(None),
    }
}

/// Removes agents and their descendants with all they said, and returns their names. One that lives in another process
/// is not ours to end; then none is removed. Of one that was saved by name the session stays, without a parent: so does
/// every saved session beneath them.
pub(super) fn destroy(db: &Connection, me: &Owner, ids: &[AgentId]) -> Result<Vec<AgentId>, Fault> {
    let mut gone = Vec::new();
    for id in family(db, ids)? {
        if id.is_temp() {
            approval::forget(db, me, &id)?;
        }
        let Some(head) = Head::find(db, &id)?.filter(|head| !head.saved) else { continue };
        head.refuse_if_held_elsewhere(me, &id)?;
        approval::forget(db, me, &id)?;
        if head.kept {
            db.prepare_cached(
                "UPDATE heads SET owner = NULL, should_shutdown = 0 WHERE agent_id = ?",
            )?
            .execute([head.agent_id])?;
            db.prepare_cached(
                "UPDATE agents SET saved = 1, made_by = coalesce(parent, made_by), parent = NULL
                 WHERE id = ?",
            )?
            .execute([head.agent_id])?;
        } else {
            remove(db, &head)?;
        }
        gone.push(id);
    }
    for id in &gone {
        db.prepare_cached(
            "UPDATE agents SET made_by = parent, parent = NULL WHERE parent = ? AND saved = 1",
        )?
        .execute([id.as_str()])?;
    }
    Ok(gone)
}

/// The agents and their descendants, as far as they are no saved sessions, parents first.
fn family(db: &Connection, ids: &[AgentId]) -> Result<Vec<AgentId>, Fault> {
    let mut family = ids.to_vec();
    let mut next = 0;
    while next < family.len() {
        let mut children = db
            .prepare_cached("SELECT name FROM agents WHERE parent = ? AND saved = 0 ORDER BY id")?;
        let names = children.query_map([family[next].as_str()], |row| row.get::<_, String>(0))?;
        for name in names {
            let child = agent_id(&name?)?;
            if !family.contains(&child) {
                family.push(child);
            }
        }
        next += 1;
    }
    Ok(family)
}

/// Removes a session's rows, and of what it said all that no copy shares.
pub(super) fn remove(db: &Connection, head: &Head) -> Result<(), Fault> {
    db.prepare_cached("DELETE FROM agents WHERE id = ?")?.execute([head.agent_id])?;
    log::remove(db, head.log_id)
}

/// Gives back the lease of one agent.
pub(super) fn release(
    db: &Connection,
    me: &Owner,
    id: &AgentId,
    fence: Fence,
) -> Result<(), Fault> {
    let head = Head::held(db, me, id, fence)?;
    db.prepare_cached("UPDATE heads SET owner = NULL WHERE agent_id = ?")?
        .execute([head.agent_id])?;
    Ok(())
}

/// Gives back every lease of this process.
pub(super) fn release_all(db: &Connection, me: &Owner) -> Result<(), Fault> {
    if let Some(id) = me.claimed_id() {
        db.execute("UPDATE heads SET owner = NULL WHERE owner = ?", [id])?;
    }
    Ok(())
}

/// Gives the sessions whose turns were cut off, with their processes, the place among the most recently changed that
/// their last message has. Those of living processes may be among them, and are right to be.
pub(super) fn catch_up(db: &Connection) -> Result<(), Fault> {
    let mut held =
        db.prepare("SELECT agent_id, log_id, updated_at FROM heads WHERE owner IS NOT NULL")?;
    let mut rows = held.query([])?;
    let mut behind = Vec::new();
    while let Some(row) = rows.next()? {
        let (agent_id, updated_at): (i64, i64) = (row.get(0)?, row.get(2)?);
        let said_at = log::tail(db, row.get(1)?)?.last_at;
        behind.extend(said_at.filter(|at| *at > updated_at).map(|at| (agent_id, at)));
    }
    for (agent_id, at) in behind {
        db.execute(
            "UPDATE heads SET updated_at = max(updated_at, ?) WHERE agent_id = ?",
            params![at, agent_id],
        )?;
    }
    Ok(())
}

/// All agents in the order in which they were stored.
pub(super) fn list(db: &Connection) -> Result<Vec<AgentRecord>, Fault> {
    let mut query =
        db.prepare_cached(&format!("{SELECT_AGENT} WHERE a.saved = 0 ORDER BY a.id"))?;
    let mut rows = query.query([])?;
    let mut agents = Vec::new();
    while let Some(row) = rows.next()? {
        agents.push(decode_agent(row, log::tail(db, row.get("log_id")?)?)?);
    }
    Ok(agents)
}

/// An agent and all it said.
pub(super) fn read(
    db: &Connection,
    id: &AgentId,
) -> Result<Option<(AgentRecord, Vec<SharedMessage>)>, Fault> {
    let mut query = db.prepare_cached(&format!("{SELECT_AGENT} WHERE a.name = ?"))?;
    let mut rows = query.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let log_id = row.get("log_id")?;
    let record = decode_agent(row, log::tail(db, log_id)?)?;
    let messages = log::read(db, log_id, &record)?;
    Ok(Some((record, messages)))
}

pub(super) const SELECT_AGENT: &str =
    "SELECT a.*, h.* FROM agents a JOIN heads h ON h.agent_id = a.id";

pub(super) fn decode_agent(row: &Row<'_>, tail: Tail) -> Result<AgentRecord, Fault> {
    let name: String = row.get("name")?;
    let parent: Option<String> = row.get("parent")?;
    let ceiling: Option<String> = row.get("ceiling")?;
    let permissions = |text: &str| {
        decode_permissions(text).map_err(|fault| fault.about(format!("permissions of {name}")))
    };
    Ok(AgentRecord {
        id: agent_id(&name)?,
        created_at: timestamp(row.get("created_at")?)?,
        parent: parent.as_deref().map(agent_id).transpose()?,
        depth: row.get("depth")?,
        permissions: permissions(&row.get::<_, String>("permissions")?)?,
        ceiling: ceiling.as_deref().map(permissions).transpose()?,
        model: row.get("model")?,
        cwd: PathBuf::from(row.get::<_, String>("cwd")?),
        system_prompt: row.get("system_prompt")?,
        grants: decode_grants(row.get::<_, Option<String>>("grants")?.as_deref())
            .map_err(|fault| fault.about(format!("grants of {name}")))?,
        progress: Progress {
            halted_at_iteration_limit: row.get("halted_at_iteration_limit")?,
            last_iteration_count: row.get("last_iteration_count")?,
            should_shutdown: row.get("should_shutdown")?,
        },
        message_count: unsigned(tail.length)?,
        last_action_at: tail.last_at.map(timestamp).transpose()?,
    })
}

/// Where an agent stands: what is to be known before it is written.
pub(super) struct Head {
    pub(super) agent_id: i64,
    pub(super) log_id: i64,
    owner: Option<String>,
    fence: Fence,
    pub(super) saved: bool,
    kept: bool,
    /// The agent this was copied from by saving it.
    pub(super) copy_of: Option<i64>,
}

impl Head {
    pub(super) fn find(db: &Connection, id: &AgentId) -> Result<Option<Self>, Fault> {
        let mut query = db.prepare_cached(
            "SELECT agent_id, log_id, owner, fence, saved, kept, copy_of
             FROM agents JOIN heads ON agent_id = id WHERE name = ?",
        )?;
        let mut rows = query.query([id.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Self {
            agent_id: row.get(0)?,
            log_id: row.get(1)?,
            owner: row.get(2)?,
            fence: Fence(unsigned(row.get(3)?)?),
            saved: row.get(4)?,
            kept: row.get(5)?,
            copy_of: row.get(6)?,
        }))
    }

    /// The head of an agent that this process holds under `fence`.
    pub(super) fn held(
        db: &Connection,
        me: &Owner,
        id: &AgentId,
        fence: Fence,
    ) -> Result<Self, Fault> {
        let head = Self::find(db, id)?.filter(|head| !head.saved);
        let head = head.ok_or_else(|| StoreError::Unknown(id.clone()))?;
        let held = head.owner.is_some() && head.owner.as_deref() == me.claimed_id();
        if held && head.fence == fence {
            Ok(head)
        } else {
            Err(StoreError::LeaseLost(id.clone()).into())
        }
    }

    /// Makes this process the owner. Whoever was it before may have ended in the middle of a turn, whose beginning is
    /// in the log alone.
    pub(super) fn take(
        &self,
        db: &Connection,
        me: &mut Owner,
        id: &AgentId,
    ) -> Result<Fence, Fault> {
        self.refuse_if_held_elsewhere(me, id)?;
        let fence = next_fence(db)?;
        let said_at = log::tail(db, self.log_id)?.last_at.unwrap_or(0);
        db.prepare_cached(
            "UPDATE heads SET owner = ?, fence = ?, updated_at = max(updated_at, ?)
             WHERE agent_id = ?",
        )?
        .execute(params![me.id()?, signed(fence.0)?, said_at, self.agent_id])?;
        Ok(fence)
    }

    pub(super) fn refuse_if_held_elsewhere(&self, me: &Owner, id: &AgentId) -> Result<(), Fault> {
        match self.owner.as_deref().map(|owner| me.holder(owner)) {
            Some(Holder::Living(owner)) => {
                Err(StoreError::HeldElsewhere { id: id.clone(), owner }.into())
            }
            Some(Holder::Me | Holder::Dead) | None => Ok(()),
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
