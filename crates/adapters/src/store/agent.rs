//! Agents and their conversations in SQL. Each function runs inside a transaction that its caller opened.

use std::path::PathBuf;
use std::sync::Arc;

use nexus_core::AgentId;
use nexus_core::message::SharedMessage;
use nexus_core::store::{AgentRecord, Fence, Progress, StoreError};
use rusqlite::{Connection, Row, params};

use super::approval;
use super::fault::Fault;
use super::owner::{Holder, Owner};
use super::record::{
    AgentRow, MessageRow, agent_id, decode_grants, decode_message, decode_permissions, micros,
    timestamp,
};

/// The messages of one append and what changes with them.
pub(super) struct Step<'a> {
    pub(super) first_index: u64,
    pub(super) rows: &'a [MessageRow],
    pub(super) progress: Progress,
}

/// Appends to a conversation that this process holds under `fence`. This is the path every turn takes, several times.
pub(super) fn append(
    db: &Connection,
    me: &Owner,
    id: &AgentId,
    fence: Fence,
    step: &Step<'_>,
) -> Result<(), Fault> {
    let head = Head::held(db, me, id, fence)?;
    if head.message_count != step.first_index {
        return Err(Fault::unfit(format!(
            "agent {id} has {} messages; an append at {} would leave a gap or overwrite",
            head.message_count, step.first_index
        )));
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO messages (log_id, idx, role, at, content, extra) VALUES (?, ?, ?, ?, ?, ?)",
    )?;
    let mut next = signed(step.first_index)?;
    for row in step.rows {
        insert.execute(params![
            head.log_id,
            next,
            row.role(),
            row.at(),
            row.content(),
            row.extra()
        ])?;
        next += 1;
    }
    let progress = &step.progress;
    db.prepare_cached(
        "UPDATE heads SET message_count = ?, last_action_at = ?, halted_at_iteration_limit = ?,
             last_iteration_count = ?, should_shutdown = ? WHERE agent_id = ?",
    )?
    .execute(params![
        next,
        progress.last_action_at.map(micros),
        progress.halted_at_iteration_limit,
        progress.last_iteration_count,
        progress.should_shutdown,
        head.agent_id
    ])?;
    Ok(())
}

/// Replaces the permissions and grants of an agent that this process holds under `fence`.
pub(super) fn update(
    db: &Connection,
    me: &Owner,
    id: &AgentId,
    fence: Fence,
    (permissions, grants): (&str, Option<&str>),
) -> Result<(), Fault> {
    let head = Head::held(db, me, id, fence)?;
    db.prepare_cached("UPDATE agents SET permissions = ?, grants = ? WHERE id = ?")?
        .execute(params![permissions, grants, head.agent_id])?;
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
        return Err(StoreError::Exists(id.clone()).into());
    }
    let agent = db.last_insert_rowid();
    let fence = next_fence(db)?;
    let progress = &row.progress;
    db.prepare_cached(
        "INSERT INTO heads
             (agent_id, log_id, message_count, last_action_at, halted_at_iteration_limit,
              last_iteration_count, should_shutdown, owner, fence)
         VALUES (?1, ?1, 0, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        agent,
        progress.last_action_at.map(micros),
        progress.halted_at_iteration_limit,
        progress.last_iteration_count,
        progress.should_shutdown,
        me.id()?,
        signed(fence.0)?
    ])?;
    Ok(fence)
}

/// Makes this process the owner of an agent, unless another living one is. Whoever held it before, under whatever
/// fence, can no longer write.
pub(super) fn take_lease(
    db: &Connection,
    me: &mut Owner,
    id: &AgentId,
) -> Result<Option<Fence>, Fault> {
    let Some(head) = Head::find(db, id)? else { return Ok(None) };
    head.refuse_if_held_elsewhere(me, id)?;
    let fence = next_fence(db)?;
    db.prepare_cached("UPDATE heads SET owner = ?, fence = ? WHERE agent_id = ?")?
        .execute(params![me.id()?, signed(fence.0)?, head.agent_id])?;
    Ok(Some(fence))
}

/// Removes agents and their descendants with all they said, and returns their names. One that lives in another process
/// is not ours to end; then none is removed.
pub(super) fn destroy(db: &Connection, me: &Owner, ids: &[AgentId]) -> Result<Vec<AgentId>, Fault> {
    let mut family = ids.to_vec();
    let mut children = db.prepare_cached("SELECT name FROM agents WHERE parent = ? ORDER BY id")?;
    let mut next = 0;
    while next < family.len() {
        let mut rows = children.query([family[next].as_str()])?;
        while let Some(row) = rows.next()? {
            let child = agent_id(&row.get::<_, String>(0)?)?;
            if !family.contains(&child) {
                family.push(child);
            }
        }
        next += 1;
    }
    let mut gone = Vec::new();
    for id in family {
        if id.is_temp() {
            approval::forget(db, me, &id)?;
        }
        let Some(head) = Head::find(db, &id)? else { continue };
        head.refuse_if_held_elsewhere(me, &id)?;
        db.prepare_cached("DELETE FROM messages WHERE log_id = ?")?.execute([head.log_id])?;
        approval::forget(db, me, &id)?;
        db.prepare_cached("DELETE FROM agents WHERE id = ?")?.execute([head.agent_id])?;
        gone.push(id);
    }
    Ok(gone)
}

/// Gives back every lease of this process.
pub(super) fn release_all(db: &Connection, me: &Owner) -> Result<(), Fault> {
    if let Some(id) = me.claimed_id() {
        db.execute("UPDATE heads SET owner = NULL WHERE owner = ?", [id])?;
    }
    Ok(())
}

/// All agents in the order in which they were stored.
pub(super) fn list(db: &Connection) -> Result<Vec<AgentRecord>, Fault> {
    let mut query = db.prepare_cached(&format!("{SELECT_AGENT} ORDER BY a.id"))?;
    let mut rows = query.query([])?;
    let mut agents = Vec::new();
    while let Some(row) = rows.next()? {
        agents.push(decode_agent(row)?);
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
    let record = decode_agent(row)?;
    let messages = read_messages(db, row.get("log_id")?, &record)?;
    Ok(Some((record, messages)))
}

fn read_messages(
    db: &Connection,
    log_id: i64,
    record: &AgentRecord,
) -> Result<Vec<SharedMessage>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT idx, role, at, content, extra FROM messages WHERE log_id = ? AND idx < ? ORDER BY idx",
    )?;
    let mut rows = query.query(params![log_id, signed(record.message_count)?])?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        if unsigned(row.get(0)?)? != messages.len() as u64 {
            break;
        }
        let (role, extra): (String, Option<String>) = (row.get(1)?, row.get(4)?);
        let message = decode_message(&role, row.get(2)?, row.get(3)?, extra.as_deref())
            .map_err(|fault| fault.about(format!("message {} of {}", messages.len(), record.id)))?;
        messages.push(Arc::new(message));
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

const SELECT_AGENT: &str = "SELECT a.*, h.* FROM agents a JOIN heads h ON h.agent_id = a.id";

fn decode_agent(row: &Row<'_>) -> Result<AgentRecord, Fault> {
    let name: String = row.get("name")?;
    let parent: Option<String> = row.get("parent")?;
    let ceiling: Option<String> = row.get("ceiling")?;
    let last_action_at: Option<i64> = row.get("last_action_at")?;
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
            last_action_at: last_action_at.map(timestamp).transpose()?,
            halted_at_iteration_limit: row.get("halted_at_iteration_limit")?,
            last_iteration_count: row.get("last_iteration_count")?,
            should_shutdown: row.get("should_shutdown")?,
        },
        message_count: unsigned(row.get("message_count")?)?,
    })
}

/// Where an agent stands: what is to be known before it is written.
struct Head {
    agent_id: i64,
    log_id: i64,
    message_count: u64,
    owner: Option<String>,
    fence: Fence,
}

impl Head {
    fn find(db: &Connection, id: &AgentId) -> Result<Option<Self>, Fault> {
        let mut query = db.prepare_cached(
            "SELECT agent_id, log_id, message_count, owner, fence FROM heads
             WHERE agent_id = (SELECT id FROM agents WHERE name = ?)",
        )?;
        let mut rows = query.query([id.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Self {
            agent_id: row.get(0)?,
            log_id: row.get(1)?,
            message_count: unsigned(row.get(2)?)?,
            owner: row.get(3)?,
            fence: Fence(unsigned(row.get(4)?)?),
        }))
    }

    /// The head of an agent that this process holds under `fence`. One that was destroyed has no lease either.
    fn held(db: &Connection, me: &Owner, id: &AgentId, fence: Fence) -> Result<Self, Fault> {
        let head = Self::find(db, id)?.ok_or_else(|| StoreError::LeaseLost(id.clone()))?;
        let held = head.owner.is_some() && head.owner.as_deref() == me.claimed_id();
        if held && head.fence == fence {
            Ok(head)
        } else {
            Err(StoreError::LeaseLost(id.clone()).into())
        }
    }

    fn refuse_if_held_elsewhere(&self, me: &Owner, id: &AgentId) -> Result<(), Fault> {
        match self.owner.as_deref().map(|owner| me.holder(owner)) {
            Some(Holder::Living(owner)) => {
                Err(StoreError::HeldElsewhere { id: id.clone(), owner }.into())
            }
            Some(Holder::Me | Holder::Dead) | None => Ok(()),
        }
    }
}

/// A fence that no agent had before.
fn next_fence(db: &Connection) -> Result<Fence, Fault> {
    let last: i64 = db
        .prepare_cached("UPDATE leases SET last_fence = last_fence + 1 RETURNING last_fence")?
        .query_row([], |row| row.get(0))?;
    Ok(Fence(unsigned(last)?))
}

/// SQLite's integers are signed.
fn signed(number: u64) -> Result<i64, Fault> {
    i64::try_from(number).map_err(|_| Fault::unfit(format!("{number} is too large to be stored")))
}

fn unsigned(number: i64) -> Result<u64, Fault> {
    u64::try_from(number).map_err(|_| Fault::unfit(format!("stored number {number} is negative")))
}
