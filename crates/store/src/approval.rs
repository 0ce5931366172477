//! Requests for leave in SQL. Each function runs inside a transaction that its caller opened.

use nexus_core::AgentId;
use nexus_core::store::{ApprovalRecord, ApprovalStatus, StoreError, StoredApproval};
use rusqlite::{Connection, Row, params};

use super::fault::Fault;
use super::owner::{Holder, Owner};
use super::record::{agent_id, micros, timestamp};

/// Approvals of one agent that are kept beside those that wait. People look at the last few; each holds the arguments of
/// its call, which may be a whole file.
const KEPT_MAX: u32 = 100;

/// Stores an approval. It belongs to this process: nobody else can answer it.
pub(super) fn put(db: &Connection, me: &mut Owner, approval: &ApprovalRecord) -> Result<(), Fault> {
    let agent = approval.agent.as_str();
    let stored = db
        .prepare_cached(
            "INSERT INTO approvals (id, agent, tool, arguments, reason, created_at, status, owner)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
             WHERE ?9 OR EXISTS (SELECT 1 FROM agents WHERE name = ?2)",
        )?
        .execute(params![
            approval.id,
            agent,
            approval.tool,
            serde_json::to_string(&approval.arguments)?,
            approval.reason,
            micros(approval.created_at),
            approval.status.name(),
            me.id()?,
            approval.agent.is_temp()
        ])?;
    if stored == 0 {
        return Err(StoreError::LeaseLost(approval.agent.clone()).into());
    }
    // What waits in another process is a temporary namesake's, or was denied when that process ended.
    let over = "SELECT id FROM approvals WHERE agent = ?1 AND NOT (status = ?2 AND owner = ?3)
                ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?4";
    db.prepare_cached(&format!("DELETE FROM approvals WHERE id IN ({over})"))?.execute(params![
        agent,
        ApprovalStatus::Pending.name(),
        me.id()?,
        KEPT_MAX
    ])?;
    Ok(())
}

pub(super) fn settle(db: &Connection, id: &str, status: ApprovalStatus) -> Result<(), Fault> {
    db.prepare_cached("UPDATE approvals SET status = ? WHERE id = ?")?
        .execute(params![status.name(), id])?;
    Ok(())
}

/// Lets what an agent asked for follow its name. Of a temporary one, only what it asked in this process.
pub(super) fn rename(
    db: &Connection,
    me: &Owner,
    from: &AgentId,
    to: &AgentId,
) -> Result<(), Fault> {
    db.prepare_cached("UPDATE approvals SET agent = ?1 WHERE agent = ?2 AND (?3 OR owner = ?4)")?
        .execute(params![to.as_str(), from.as_str(), !from.is_temp(), me.claimed_id()])?;
    Ok(())
}

/// Removes what an agent asked for. Of a temporary one, only what it asked in this process: another may have one of the
/// same name.
pub(super) fn forget(db: &Connection, me: &Owner, agent: &AgentId) -> Result<(), Fault> {
    if agent.is_temp() {
        db.prepare_cached("DELETE FROM approvals WHERE agent = ? AND owner = ?")?
            .execute(params![agent.as_str(), me.claimed_id()])?;
    } else {
        db.prepare_cached("DELETE FROM approvals WHERE agent = ?")?.execute([agent.as_str()])?;
    }
    Ok(())
}

/// Removes what temporary agents asked for in processes that are gone: they went with them.
pub(super) fn forget_gone(db: &Connection, me: &Owner) -> Result<(), Fault> {
    let mut owners = db.prepare("SELECT DISTINCT owner FROM approvals WHERE agent LIKE '.%'")?;
    let owners: Vec<String> = owners.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for owner in owners.iter().filter(|owner| me.holder(owner) == Holder::Dead) {
        db.execute("DELETE FROM approvals WHERE agent LIKE '.%' AND owner = ?", [owner])?;
    }
    Ok(())
}

/// One approval, and the other living process in which it waits.
pub(super) fn find(db: &Connection, me: &Owner, id: &str) -> Result<Option<StoredApproval>, Fault> {
    let mut query = db.prepare_cached("SELECT * FROM approvals WHERE id = ?")?;
    let mut rows = query.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut record = decode(row)?;
    let mut waits_in = None;
    if record.status == ApprovalStatus::Pending {
        match me.holder(&row.get::<_, String>("owner")?) {
            Holder::Living(owner) => waits_in = Some(owner),
            Holder::Dead => record.status = ApprovalStatus::DeniedByRestart,
            Holder::Me => {}
        }
    }
    Ok(Some(StoredApproval { record, waits_in }))
}

/// All approvals, oldest first, without those of other processes' temporary agents. What waited in a process that is
/// gone was denied by that.
pub(super) fn list(db: &Connection, me: &Owner) -> Result<Vec<ApprovalRecord>, Fault> {
    let mut query = db.prepare_cached("SELECT * FROM approvals ORDER BY created_at, id")?;
    let mut rows = query.query([])?;
    let mut approvals = Vec::new();
    while let Some(row) = rows.next()? {
        let mut approval = decode(row)?;
        let owner: String = row.get("owner")?;
        if approval.agent.is_temp() && me.claimed_id() != Some(&owner) {
            continue;
        }
        if approval.status == ApprovalStatus::Pending && me.holder(&owner) == Holder::Dead {
            approval.status = ApprovalStatus::DeniedByRestart;
        }
        approvals.push(approval);
    }
    Ok(approvals)
}

fn decode(row: &Row<'_>) -> Result<ApprovalRecord, Fault> {
    let status: String = row.get("status")?;
    Ok(ApprovalRecord {
        id: row.get("id")?,
        agent: agent_id(&row.get::<_, String>("agent")?)?,
        tool: row.get("tool")?,
        arguments: serde_json::from_str(&row.get::<_, String>("arguments")?)?,
        reason: row.get("reason")?,
        created_at: timestamp(row.get("created_at")?)?,
        status: ApprovalStatus::ALL
            .into_iter()
            .find(|known| known.name() == status)
            .ok_or_else(|| Fault::unfit(format!("unknown approval status {status:?}")))?,
    })
}
