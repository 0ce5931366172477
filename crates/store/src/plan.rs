//! Plans in SQL. Each function runs inside a transaction that its caller opened.

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::plan::{PlanId, PlanStatus, TaskRecord, TaskStatus};
use nexus_core::store::{
    Begun, Fence, LISTED_REQUEST_CHARS, ListedPlan, Maker, PlanPage, PlanQuery, PlanRecord,
    PlanRoom, PlanRun, StoreError, StoredPlan,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::agent::{next_fence, signed, unsigned};
use super::fault::Fault;
use super::owner::{Owner, Whose};
use super::record::{agent_id, decode_bill, encode_bill, micros, timestamp};

/// Plans that one write removes: others wait for it.
const REMOVED_AT_ONCE: u32 = 100;

pub(super) fn add(
    db: &Connection,
    me: &Owner,
    plan: &PlanRecord,
    stale: Timestamp,
    room: PlanRoom,
) -> Result<(), Fault> {
    db.prepare_cached(
        "DELETE FROM plans WHERE id IN
         (SELECT id FROM plans WHERE touched_at < ? AND owner IS NULL LIMIT ?)",
    )?
    .execute(params![micros(stale), REMOVED_AT_ONCE])?;
    if let Some(tree) = &plan.tree {
        make_room(db, me, tree, weight(plan, &serde_json::to_string(&plan.plan)?), room)?;
    }
    insert(db, plan, PlanStatus::Created, plan.created_at)
}

/// Removes plans of a tree until there is room for one more of so many bytes.
fn make_room(
    db: &Connection,
    me: &Owner,
    tree: &AgentId,
    mut bytes: u64,
    room: PlanRoom,
) -> Result<(), Fault> {
    // All that is read stands in the index.
    let mut query = db.prepare_cached(
        "SELECT id, bytes, owner FROM plans WHERE tree = ? ORDER BY touched_at DESC, id DESC",
    )?;
    let mut rows = query.query([tree.as_str()])?;
    let (mut theirs, mut plans, mut beyond) = (Vec::new(), 1, Vec::new());
    while let Some(row) = rows.next()? {
        let owner: Option<String> = row.get(2)?;
        let runs = owner.is_some_and(|owner| !matches!(me.whose(&owner), Whose::Nobodys));
        theirs.push((row.get::<_, String>(0)?, unsigned(row.get(1)?)?, runs));
    }
    // What runs has its room before all that could go for it.
    theirs.sort_by_key(|(_, _, runs)| !runs);
    for (id, weight, runs) in theirs {
        plans += 1;
        bytes = bytes.saturating_add(weight);
        if (plans > room.count_max || bytes > room.bytes_max) && !runs {
            beyond.push(id);
        }
    }
    let mut remove = db.prepare_cached("DELETE FROM plans WHERE id = ?")?;
    for id in beyond.iter().take(REMOVED_AT_ONCE as usize) {
        remove.execute([id])?;
    }
    Ok(())
}

/// What a plan takes of the room of its tree.
fn weight(plan: &PlanRecord, json: &str) -> u64 {
    (plan.request.len() + json.len()) as u64
}

/// Writes a plan that nobody runs.
fn insert(
    db: &Connection,
    plan: &PlanRecord,
    status: PlanStatus,
    touched_at: Timestamp,
) -> Result<(), Fault> {
    let (maker, born) = match &plan.maker {
        Maker::Administrator => (None, None),
        Maker::Agent(id, born) => (Some(id.as_str()), Some(born.to_be_bytes())),
    };
    let json = serde_json::to_string(&plan.plan)?;
    db.prepare_cached(
        "INSERT INTO plans
         (id, request, plan, maker, maker_born, created_at, touched_at, task_count, status, fence, tree, bytes)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)",
    )?
    .execute(params![
        plan.id.as_str(),
        plan.request,
        json,
        maker,
        born,
        micros(plan.created_at),
        micros(touched_at),
        u32::try_from(plan.plan.tasks.len()).unwrap_or(u32::MAX),
        status.name(),
        plan.tree.as_ref().map(AgentId::as_str),
        signed(weight(plan, &json))?,
    ])?;
    Ok(())
}

/// Writes a plan as it was found elsewhere, with what became of its tasks.
pub(super) fn put(db: &Connection, plan: &StoredPlan) -> Result<(), Fault> {
    insert(db, &plan.record, plan.status, plan.touched_at)?;
    plan.tasks.iter().try_for_each(|(task, record)| put_task(db, &plan.record.id, task, record))
}

pub(super) fn find(db: &Connection, me: &Owner, id: &PlanId) -> Result<Option<StoredPlan>, Fault> {
    let mut query = db.prepare_cached("SELECT * FROM plans WHERE id = ?")?;
    let mut rows = query.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (status, _) = standing(row, me)?;
    Ok(Some(StoredPlan { status, ..decode(db, row)? }))
}

/// The plan in this row of the table, with the status that was written last.
pub(super) fn by_number(db: &Connection, rowid: i64) -> Result<Option<StoredPlan>, Fault> {
    let mut query = db.prepare_cached("SELECT * FROM plans WHERE rowid = ?")?;
    let mut rows = query.query([rowid])?;
    rows.next()?.map(|row| decode(db, row)).transpose()
}

fn decode(db: &Connection, row: &Row<'_>) -> Result<StoredPlan, Fault> {
    let id = plan_id(row)?;
    let text: String = row.get("plan")?;
    let tree: Option<String> = row.get("tree")?;
    let record = PlanRecord {
        id: id.clone(),
        request: row.get("request")?,
        plan: serde_json::from_str(&text)?,
        maker: maker(row)?,
        tree: tree.as_deref().map(agent_id).transpose()?,
        created_at: timestamp(row.get("created_at")?)?,
    };
    let touched_at = timestamp(row.get("touched_at")?)?;
    Ok(StoredPlan { record, status: status(row)?, touched_at, tasks: tasks(db, &id)? })
}

fn plan_id(row: &Row<'_>) -> Result<PlanId, Fault> {
    let id: String = row.get("id")?;
    PlanId::parse(&id)
        .ok_or_else(|| Fault::unfit(format!("stored plan {id:?} has no name of ours")))
}

fn tasks(db: &Connection, id: &PlanId) -> Result<Vec<(String, TaskRecord)>, Fault> {
    let mut query = db.prepare_cached("SELECT * FROM plan_tasks WHERE plan = ? ORDER BY task")?;
    let mut rows = query.query([id.as_str()])?;
    let mut tasks = Vec::new();
    while let Some(row) = rows.next()? {
        let status: String = row.get("status")?;
        let unfit = || Fault::unfit(format!("stored status {status:?} of a task is not known"));
        let output: Option<String> = row.get("output")?;
        let bill: Option<String> = row.get("bill")?;
        let record = TaskRecord {
            status: TaskStatus::parse(&status).ok_or_else(unfit)?,
            attempts: row.get("attempts")?,
            output: output.map(|text| serde_json::from_str(&text)).transpose()?,
            reason: row.get("reason")?,
            model: row.get("model")?,
            bill: decode_bill(bill.as_deref())?,
        };
        tasks.push((row.get("task")?, record));
    }
    Ok(tasks)
}

/// How far a plan got, and the other living process that runs it.
fn standing(row: &Row<'_>, me: &Owner) -> Result<(PlanStatus, Option<u32>), Fault> {
    let status = status(row)?;
    let owner: Option<String> = row.get("owner")?;
    Ok(match (status, owner.map(|owner| me.whose(&owner))) {
        (PlanStatus::Running, Some(Whose::Mine)) => (status, None),
        (PlanStatus::Running, Some(Whose::Another(holder))) => (status, Some(holder.pid)),
        (PlanStatus::Running, _) => (PlanStatus::Interrupted, None),
        (status, _) => (status, None),
    })
}

fn status(row: &Row<'_>) -> Result<PlanStatus, Fault> {
    let stored: String = row.get("status")?;
    let unfit = || Fault::unfit(format!("stored status {stored:?} of a plan is not known"));
    PlanStatus::parse(&stored).ok_or_else(unfit)
}

fn maker(row: &Row<'_>) -> Result<Maker, Fault> {
    let name: Option<String> = row.get("maker")?;
    let born: Option<[u8; 8]> = row.get("maker_born")?;
    Ok(match (name, born) {
        (Some(name), Some(born)) => Maker::Agent(agent_id(&name)?, u64::from_be_bytes(born)),
        _ => Maker::Administrator,
    })
}

pub(super) fn page(db: &Connection, me: &Owner, query: &PlanQuery) -> Result<PlanPage, Fault> {
    let after = match &query.after {
        None => (i64::MAX, String::new()),
        Some(id) => {
            let touched = db
                .prepare_cached("SELECT touched_at FROM plans WHERE id = ?")?
                .query_row([id.as_str()], |row| row.get(0))
                .optional()?;
            let Some(touched) = touched else { return Ok(PlanPage::default()) };
            (touched, id.as_str().to_owned())
        }
    };
    let (maker, born) = match &query.maker {
        Some(Maker::Agent(id, born)) => (Some(id.as_str()), Some(born.to_be_bytes())),
        Some(Maker::Administrator) | None => (None, None),
    };
    // Each by its index: an agent that made none must not wait for all that others made to be read.
    let whose = match maker {
        Some(_) => "maker = ?4 AND maker_born = ?5",
        None => "?4 IS NULL AND ?5 IS NULL",
    };
    let mut found = db.prepare_cached(&format!(
        "SELECT id, substr(request, 1, ?7) request, status, owner, created_at, touched_at, task_count,
                (SELECT count(*) FROM plan_tasks t WHERE t.plan = plans.id AND t.status = ?1) done
         FROM plans
         WHERE (touched_at, id) < (?2, ?3) AND {whose}
         ORDER BY touched_at DESC, id DESC LIMIT ?6",
    ))?;
    let success = TaskStatus::Success.name();
    let limit = i64::from(query.limit) + 1;
    let shown = LISTED_REQUEST_CHARS;
    let mut rows = found.query(params![success, after.0, after.1, maker, born, limit, shown])?;
    let mut plans = Vec::new();
    while let Some(row) = rows.next()? {
        plans.push(ListedPlan {
            id: plan_id(row)?,
            request: row.get("request")?,
            status: standing(row, me)?.0,
            created_at: timestamp(row.get("created_at")?)?,
            touched_at: timestamp(row.get("touched_at")?)?,
            task_count: row.get("task_count")?,
            done_count: row.get("done")?,
        });
    }
    let more = plans.len() > query.limit as usize;
    plans.truncate(query.limit as usize);
    Ok(PlanPage { plans, more })
}

/// What agents of a tree made stays that tree's when its root has another name.
pub(super) fn rename(db: &Connection, from: &AgentId, to: &AgentId) -> Result<(), Fault> {
    db.prepare_cached("UPDATE plans SET tree = ? WHERE tree = ?")?
        .execute([to.as_str(), from.as_str()])?;
    Ok(())
}

pub(super) fn begin(
    db: &Connection,
    me: &mut Owner,
    id: &PlanId,
    now: Timestamp,
) -> Result<Option<Begun>, Fault> {
    let standing = db
        .prepare_cached("SELECT status, owner FROM plans WHERE id = ?")?
        .query_row([id.as_str()], |row| Ok(standing(row, me)))
        .optional()?;
    let Some(standing) = standing else { return Ok(None) };
    if let (_, Some(pid)) = standing? {
        return Ok(Some(Begun::Runs { pid }));
    }
    let fence = next_fence(db)?;
    db.prepare_cached(
        "UPDATE plans SET status = ?, owner = ?, fence = ?, touched_at = ? WHERE id = ?",
    )?
    .execute(params![
        PlanStatus::Running.name(),
        me.id()?,
        signed(fence.0)?,
        micros(now),
        id.as_str()
    ])?;
    let run = PlanRun { plan: id.clone(), fence };
    Ok(find(db, me, id)?.map(|plan| Begun::Taken(run, Box::new(plan))))
}

/// Whether the run is still the one that has its plan.
fn check(db: &Connection, me: &Owner, run: &PlanRun) -> Result<(), Fault> {
    let held = db
        .prepare_cached("SELECT owner, fence FROM plans WHERE id = ?")?
        .query_row([run.plan.as_str()], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    let Some((owner, fence)) = held else { return Err(StoreError::Ended.into()) };
    let mine = owner.is_some() && owner.as_deref() == me.claimed_id();
    match mine && Fence(unsigned(fence)?) == run.fence {
        true => Ok(()),
        false => Err(StoreError::LeaseLost.into()),
    }
}

pub(super) fn note(
    db: &Connection,
    me: &Owner,
    run: &PlanRun,
    task: &str,
    record: &TaskRecord,
) -> Result<(), Fault> {
    check(db, me, run)?;
    put_task(db, &run.plan, task, record)
}

fn put_task(db: &Connection, plan: &PlanId, task: &str, record: &TaskRecord) -> Result<(), Fault> {
    let output = record.output.as_ref().map(serde_json::to_string).transpose()?;
    db.prepare_cached(
        "INSERT INTO plan_tasks (plan, task, status, attempts, output, reason, model, bill)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (plan, task) DO UPDATE SET
             status = excluded.status, attempts = excluded.attempts, output = excluded.output,
             reason = excluded.reason, model = excluded.model, bill = excluded.bill",
    )?
    .execute(params![
        plan.as_str(),
        task,
        record.status.name(),
        record.attempts,
        output,
        record.reason,
        record.model,
        (!record.bill.is_empty()).then(|| encode_bill(&record.bill)),
    ])?;
    Ok(())
}

pub(super) fn end(
    db: &Connection,
    me: &Owner,
    run: &PlanRun,
    status: PlanStatus,
    now: Timestamp,
) -> Result<(), Fault> {
    check(db, me, run)?;
    db.prepare_cached("UPDATE plans SET status = ?, owner = NULL, touched_at = ? WHERE id = ?")?
        .execute(params![status.name(), micros(now), run.plan.as_str()])?;
    Ok(())
}
