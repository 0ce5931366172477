//! Requests for leave in SQL. Each function runs inside a transaction that its caller opened.

use nexus_core::store::{
    ApprovalAnswer, ApprovalPage, ApprovalQuery, ApprovalRecord, ApprovalStatus, Lease, StoreError,
    StoredApproval,
};
use nexus_core::{AgentId, TurnId};
use rusqlite::{Connection, Row, ToSql, params};
use serde::de::DeserializeOwned;

use super::agent;
use super::fault::Fault;
use super::owner::{Onlooker, Owner, Whose};
use super::record::{TurnRecord, agent_id, micros, timestamp};

/// Approvals of one agent that are kept beside those that wait. People look at the last few; each holds the arguments of
/// its call, which may be a whole file.
const KEPT_MAX: u32 = 100;

/// Stores an approval. It belongs to this process: nobody else can answer it.
pub(super) fn put(db: &Connection, me: &mut Owner, approval: &ApprovalRecord) -> Result<(), Fault> {
    let agent = approval.agent.as_str();
    let lineage: Vec<&str> = approval.lineage.iter().map(AgentId::as_str).collect();
    let turn = approval.turn.as_ref().map(TurnRecord::from);
    let stored = db
        .prepare_cached(
            "INSERT INTO approvals (id, agent, tool, arguments, reason, created_at, status, owner, lineage, turn,
                 expires_at, granted, preview, decided_by, message, inquiry, born)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18
             WHERE ?9 OR EXISTS (SELECT 1 FROM agents WHERE name = ?2 AND saved = 0)",
        )?
        .execute(params![
            approval.id,
            agent,
            approval.tool,
            serde_json::to_string(&approval.arguments)?,
            approval.reason,
            micros(approval.created_at),
            approval.answer.status.name(),
            me.id()?,
            approval.agent.is_temp(),
            serde_json::to_string(&lineage)?,
            turn.map(|turn| serde_json::to_string(&turn)).transpose()?,
            approval.expires_at.map(micros),
            approval.grant.as_ref().map(serde_json::to_string).transpose()?,
            approval.preview.as_ref().map(serde_json::to_string).transpose()?,
            approval.answer.by,
            approval.answer.message,
            approval.inquiry.as_ref().map(serde_json::to_string).transpose()?,
            approval.born.to_be_bytes()
        ])?;
    if stored == 0 {
        return Err(StoreError::Ended.into());
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

/// Notes how an approval ended, and what the agent that asked has by that.
pub(super) fn settle(
    db: &Connection,
    me: &Owner,
    id: &str,
    answer: &ApprovalAnswer,
    grant: Option<&(Lease, String)>,
) -> Result<(), Fault> {
    if let Some((lease, settings)) = grant {
        agent::update(db, me, *lease, settings)?;
    }
    let ApprovalAnswer { status, by, message } = answer;
    db.prepare_cached("UPDATE approvals SET status = ?, decided_by = ?, message = ? WHERE id = ?")?
        .execute(params![status.name(), by, message, id])?;
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

/// Removes what permanent agents asked for. Their names are given as a JSON list.
pub(super) fn forget(db: &Connection, names: &str) -> Result<(), Fault> {
    db.prepare_cached("DELETE FROM approvals WHERE agent IN (SELECT value FROM json_each(?))")?
        .execute([names])?;
    Ok(())
}

/// Removes what a temporary agent asked for in this process: another may have one of the same name.
pub(super) fn forget_temporary(db: &Connection, me: &Owner, agent: &AgentId) -> Result<(), Fault> {
    db.prepare_cached("DELETE FROM approvals WHERE agent = ? AND owner = ?")?
        .execute(params![agent.as_str(), me.claimed_id()])?;
    Ok(())
}

/// The processes in which temporary agents asked for anything.
pub(super) fn askers(db: &Connection) -> Result<Vec<String>, Fault> {
    let mut owners = db.prepare("SELECT DISTINCT owner FROM approvals WHERE agent LIKE '.%'")?;
    Ok(owners.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// Removes what temporary agents asked for in those of the processes that are gone: they went with them.
pub(super) fn forget_gone(db: &Connection, me: &Owner, askers: &[String]) -> Result<(), Fault> {
    for owner in askers.iter().filter(|owner| me.whose(owner) == Whose::Nobodys) {
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
    if record.answer.status == ApprovalStatus::Pending {
        match me.whose(&row.get::<_, String>("owner")?) {
            Whose::Another(holder) => waits_in = Some(holder),
            Whose::Nobodys => record.answer.status = ApprovalStatus::DeniedByRestart,
            Whose::Mine => {}
        }
    }
    Ok(Some(StoredApproval { record, waits_in }))
}

/// A page of approvals, oldest first, without those of other processes' temporary agents. What waited in a process that
/// is gone was denied by that.
pub(super) fn page(
    db: &Connection,
    me: &Owner,
    query: &ApprovalQuery,
) -> Result<ApprovalPage, Fault> {
    page_by(db, me.claimed_id(), |owner| me.whose(owner), query)
}

/// The same, of those that wait in other processes.
pub(super) fn page_elsewhere(
    db: &Connection,
    onlooker: &Onlooker,
    query: &ApprovalQuery,
) -> Result<ApprovalPage, Fault> {
    page_by(db, onlooker.claimed_id().as_deref(), |owner| onlooker.whose(owner), query)
}

fn page_by(
    db: &Connection,
    own_id: Option<&str>,
    whose: impl Fn(&str) -> Whose,
    query: &ApprovalQuery,
) -> Result<ApprovalPage, Fault> {
    let limit = i64::from(query.limit) + 1;
    let mut values: Vec<(&str, &dyn ToSql)> = vec![(":limit", &limit), (":me", &own_id)];
    let mut filter = String::from("WHERE (agent NOT LIKE '.%' OR owner = :me)");
    let agent = query.agent.as_ref().map(AgentId::as_str);
    if agent.is_some() {
        filter.push_str(" AND agent = :agent");
        values.push((":agent", &agent));
    }
    let living = match query.elsewhere {
        true => serde_json::to_string(&waiting_elsewhere(db, &whose)?)?,
        false => String::new(),
    };
    if query.elsewhere {
        // Not a parameter: the index is of these alone.
        filter.push_str(
            " AND status = 'pending' AND owner IN (SELECT value FROM json_each(:living))",
        );
        values.push((":living", &living));
    }
    let mut line = "";
    let own = query.line_of.as_ref().map(AgentId::as_str);
    if own.is_some() {
        line = "WITH RECURSIVE line (name) AS (
                    VALUES (:own)
                    UNION SELECT a.name FROM line JOIN agents a ON a.parent = line.name AND a.saved = 0)";
        filter.push_str(" AND agent IN line");
        values.push((":own", &own));
    }
    if query.after.is_some() {
        filter.push_str(
            " AND (created_at, id) > (SELECT created_at, id FROM approvals WHERE id = :after)",
        );
        values.push((":after", &query.after));
    }
    let mut select = db.prepare_cached(&format!(
        "{line} SELECT * FROM approvals {filter} ORDER BY created_at, id LIMIT :limit"
    ))?;
    let mut rows = select.query(values.as_slice())?;
    let mut page = ApprovalPage::default();
    while let Some(row) = rows.next()? {
        if page.approvals.len() == query.limit as usize {
            page.more = true;
            break;
        }
        let mut approval = decode(row)?;
        if approval.answer.status == ApprovalStatus::Pending
            && whose(&row.get::<_, String>("owner")?) == Whose::Nobodys
        {
            approval.answer.status = ApprovalStatus::DeniedByRestart;
        }
        page.approvals.push(approval);
    }
    Ok(page)
}

/// The other living processes in which something waits. Few, however much waited in processes that are gone.
fn waiting_elsewhere(db: &Connection, whose: impl Fn(&str) -> Whose) -> Result<Vec<String>, Fault> {
    let mut owners =
        db.prepare_cached("SELECT DISTINCT owner FROM approvals WHERE status = 'pending'")?;
    let owners = owners.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    Ok(owners.into_iter().filter(|it| matches!(whose(it), Whose::Another(_))).collect())
}

fn decode(row: &Row<'_>) -> Result<ApprovalRecord, Fault> {
    let status: String = row.get("status")?;
    Ok(ApprovalRecord {
        id: row.get("id")?,
        agent: agent_id(&row.get::<_, String>("agent")?)?,
        // What an earlier release asked has none; its temporary agents went with it.
        born: row.get::<_, Option<[u8; 8]>>("born")?.map_or(0, u64::from_be_bytes),
        tool: row.get("tool")?,
        arguments: serde_json::from_str(&row.get::<_, String>("arguments")?)?,
        reason: row.get("reason")?,
        created_at: timestamp(row.get("created_at")?)?,
        lineage: decode_lineage(row.get("lineage")?)?,
        turn: decode_json::<TurnRecord<'_>>(row.get("turn")?)?.map(TurnId::from),
        expires_at: row.get::<_, Option<i64>>("expires_at")?.map(timestamp).transpose()?,
        grant: decode_json(row.get("granted")?)?,
        preview: decode_json(row.get("preview")?)?,
        inquiry: decode_json(row.get("inquiry")?)?,
        answer: ApprovalAnswer {
            status: ApprovalStatus::ALL
                .into_iter()
                .find(|known| known.name() == status)
                .ok_or_else(|| Fault::unfit(format!("unknown approval status {status:?}")))?,
            by: row.get("decided_by")?,
            message: row.get("message")?,
        },
    })
}

/// What an earlier release asked has none.
fn decode_lineage(stored: Option<String>) -> Result<Vec<AgentId>, Fault> {
    let names: Vec<String> = decode_json(stored)?.unwrap_or_default();
    names.iter().map(|name| agent_id(name)).collect()
}

fn decode_json<T: DeserializeOwned>(stored: Option<String>) -> Result<Option<T>, Fault> {
    Ok(stored.as_deref().map(serde_json::from_str).transpose()?)
}
