//! Ending agents with all that descend from them, and counting them, in SQL. A family may be large and everything else
//! waits for the writer meanwhile, so the number of statements does not grow with it. Each function runs inside a transaction that its caller
//! opened.

use std::collections::{BTreeMap, HashMap};

use nexus_core::AgentId;
use nexus_core::store::{Census, StoreError};
use nexus_core::usage::Bill;
use rusqlite::{Connection, named_params, params};

use super::approval;
use super::fault::Fault;
use super::log;
use super::memory;
use super::owner::{Owner, Whose};
use super::record::{agent_id, decode_bill};
use super::spending;

/// One agent of a family that ends.
struct Member {
    agent: i64,
    log_id: i64,
    name: AgentId,
    owner: Option<String>,
    /// It was saved by name, so its session stays.
    kept: bool,
    parent: Option<String>,
    /// What it and those of its descendants used that are gone.
    spent: Bill,
    depth: u32,
}

/// Removes agents and their descendants with all they said, and returns their names, parents first. One that lives in
/// another process is not ours to end; then none is removed. Of one that was saved by name the session stays, without a
/// parent: so does every saved session beneath them.
pub(super) fn destroy(db: &Connection, me: &Owner, ids: &[AgentId]) -> Result<Vec<AgentId>, Fault> {
    let family = members(db, ids)?;
    refuse_if_held_elsewhere(me, &family)?;
    for id in ids.iter().filter(|id| id.is_temp()) {
        approval::forget_temporary(db, me, id)?;
    }
    let (kept, gone): (Vec<&Member>, Vec<&Member>) = family.iter().partition(|it| it.kept);
    for (heir, bill) in heirs(&family, &gone) {
        spending::absorb(db, &heir, bill)?;
    }
    set_aside(db, &kept)?;
    let names = list(family.iter().map(|member| member.name.as_str()))?;
    approval::forget(db, &names)?;
    db.prepare_cached(
        "UPDATE agents SET made_by = parent, parent = NULL
         WHERE saved = 1 AND parent IN (SELECT value FROM json_each(?))",
    )?
    .execute([&names])?;
    memory::forget(db, gone.iter().map(|member| &member.name))?;
    let agents = list(gone.iter().map(|member| member.agent))?;
    db.prepare_cached("DELETE FROM agents WHERE id IN (SELECT value FROM json_each(?))")?
        .execute([agents])?;
    log::remove_all(db, &list(gone.iter().map(|member| member.log_id))?)?;
    Ok(family.into_iter().map(|member| member.name).collect())
}

/// Who is left to say what each that goes has used: its nearest ancestor outside of the family.
fn heirs(family: &[Member], gone: &[&Member]) -> BTreeMap<AgentId, Bill> {
    let parents: HashMap<&str, Option<&str>> =
        family.iter().map(|it| (it.name.as_str(), it.parent.as_deref())).collect();
    let mut heirs: BTreeMap<AgentId, Bill> = BTreeMap::new();
    for member in gone.iter().filter(|member| !member.spent.is_empty()) {
        let mut heir = member.parent.as_deref();
        // However the rows lie, nobody has more ancestors than the family has members.
        for _ in 0..family.len() {
            match heir.and_then(|heir| parents.get(heir)) {
                Some(above) => heir = *above,
                None => break,
            }
        }
        if let Some(Ok(heir)) = heir.map(AgentId::parse) {
            *heirs.entry(heir).or_default() += member.spent;
        }
    }
    heirs
}

/// How many children `parent` has, and how large the tree of `root` is. Looks at no more than `most` agents for each.
pub(super) fn census(
    db: &Connection,
    root: &AgentId,
    parent: Option<&AgentId>,
    most: usize,
) -> Result<Census, Fault> {
    let mut query = db.prepare_cached(
        "WITH RECURSIVE tree (name) AS (
             SELECT name FROM agents WHERE name = :root AND saved = 0
             UNION SELECT a.name FROM tree JOIN agents a ON a.parent = tree.name AND a.saved = 0
             LIMIT :most)
         SELECT (SELECT count(*) FROM
                 (SELECT 1 FROM agents WHERE parent = :parent AND saved = 0 LIMIT :most)),
             (SELECT count(*) FROM tree)
             + (SELECT count(*) FROM tree JOIN agents a ON a.parent = tree.name AND a.saved = 1)
             + (SELECT count(*) FROM tree JOIN agents a ON a.made_by = tree.name
                WHERE a.saved = 1 AND a.parent IS NULL)",
    )?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let parent = parent.map(AgentId::as_str);
    let count = |row: &rusqlite::Row<'_>, column| {
        row.get::<_, i64>(column).map(|count| usize::try_from(count).unwrap_or(0))
    };
    Ok(query.query_row(
        named_params! {":root": root.as_str(), ":parent": parent, ":most": most},
        |row| Ok(Census { children: count(row, 0)?, tree: count(row, 1)? }),
    )?)
}

/// The agents and their descendants, as far as they are no saved sessions, parents first.
fn members(db: &Connection, ids: &[AgentId]) -> Result<Vec<Member>, Fault> {
    let mut query = db.prepare_cached(
        "WITH RECURSIVE family (id, name, kept, depth, parent) AS (
             SELECT a.id, value, a.kept, a.depth, a.parent
             FROM json_each(?) LEFT JOIN agents a ON a.name = value AND a.saved = 0
             UNION SELECT a.id, a.name, a.kept, a.depth, a.parent
             FROM family JOIN agents a ON a.parent = family.name AND a.saved = 0)
         SELECT id, log_id, name, owner, kept, depth, parent, bill, ended_bill
         FROM family JOIN heads ON agent_id = id",
    )?;
    let mut rows = query.query([list(ids.iter().map(AgentId::as_str))?])?;
    let mut family = Vec::new();
    while let Some(row) = rows.next()? {
        let bill = |column| -> Result<Bill, Fault> {
            match row.get_ref(column)?.as_str_or_null() {
                Ok(text) => Ok(decode_bill(text)?),
                Err(error) => Err(Fault::unfit(error.to_string())),
            }
        };
        let spent = bill(7)? + bill(8)?;
        family.push(Member {
            agent: row.get(0)?,
            log_id: row.get(1)?,
            name: agent_id(&row.get::<_, String>(2)?)?,
            owner: row.get(3)?,
            kept: row.get(4)?,
            depth: row.get(5)?,
            parent: row.get(6)?,
            spent,
        });
    }
    family.sort_by_key(|member| (member.depth, member.agent));
    Ok(family)
}

fn refuse_if_held_elsewhere(me: &Owner, family: &[Member]) -> Result<(), Fault> {
    // Each is looked for once: that opens its file.
    let mut known: HashMap<&str, Whose> = HashMap::new();
    for Member { name, owner, .. } in family {
        let Some(owner) = owner.as_deref() else { continue };
        if let Whose::Another(holder) = known.entry(owner).or_insert_with(|| me.whose(owner)) {
            let holder = holder.clone();
            return Err(StoreError::HeldElsewhere { id: name.clone(), holder }.into());
        }
    }
    Ok(())
}

/// Makes saved sessions of agents.
fn set_aside(db: &Connection, kept: &[&Member]) -> Result<(), Fault> {
    let kept = list(kept.iter().map(|member| member.agent))?;
    db.prepare_cached(
        "UPDATE heads SET owner = NULL, should_shutdown = 0
         WHERE agent_id IN (SELECT value FROM json_each(?))",
    )?
    .execute([&kept])?;
    db.prepare_cached(
        "UPDATE agents SET saved = 1, made_by = coalesce(parent, made_by), parent = NULL
         WHERE id IN (SELECT value FROM json_each(?))",
    )?
    .execute(params![kept])?;
    Ok(())
}

/// A list as one value that a statement can be given.
fn list<T: serde::Serialize>(items: impl Iterator<Item = T>) -> Result<String, Fault> {
    Ok(serde_json::to_string(&items.collect::<Vec<_>>())?)
}
