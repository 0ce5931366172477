//! Requests for leave in SQL. Each function runs inside a transaction that its caller opened.

use nexus_core::store::{ApprovalRecord, ApprovalStatus};
use rusqlite::{Connection, Row, params};

use super::fault::Fault;
use super::owner::{Holder, Owner};
use super::record::{agent_id, micros, timestamp};

/// Stores an approval, or its new status. It belongs to this process: nobody else can answer it.
pub(super) fn put(db: &Connection, me: &mut Owner, approval: &ApprovalRecord) -> Result<(), Fault> {
    db.prepare_cached(
        "INSERT INTO approvals (id, agent, tool, arguments, reason, created_at, status, owner)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET status = excluded.status",
    )?
    .execute(params![
        approval.id,
        approval.agent.as_str(),
        approval.tool,
        serde_json::to_string(&approval.arguments)?,
        approval.reason,
        micros(approval.created_at),
        approval.status.name(),
        me.id()?
    ])?;
    Ok(())
}

/// All approvals, oldest first. What waited in a process that is gone was denied by that.
pub(super) fn list(db: &Connection, me: &Owner) -> Result<Vec<ApprovalRecord>, Fault> {
    let mut query = db.prepare_cached("SELECT * FROM approvals ORDER BY created_at, id")?;
    let mut rows = query.query([])?;
    let mut approvals = Vec::new();
    while let Some(row) = rows.next()? {
        let mut approval = decode(row)?;
        let owner: String = row.get("owner")?;
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
