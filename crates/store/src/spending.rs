//! What model calls used, in SQL. Each function runs inside a transaction that its caller opened.

use std::collections::BTreeMap;

use nexus_core::AgentId;
use nexus_core::spending::day;
use nexus_core::store::{SpendingBy, SpendingQuery, Spent};
use nexus_core::usage::Bill;
use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::fault::Fault;
use super::log;
use super::record::{decode_bill, decode_made, encode_bill, micros, timestamp};

/// What the calls that are asked for used.
pub(super) fn report(db: &Connection, query: &SpendingQuery) -> Result<Vec<Spent>, Fault> {
    let mut sums: BTreeMap<String, Bill> = BTreeMap::new();
    for member in members(db, query)? {
        if query.by == SpendingBy::Agent && query.since.is_none() {
            let ended =
                if query.tree || query.of.is_none() { member.ended } else { Bill::default() };
            *sums.entry(member.name).or_default() += member.own + ended;
            continue;
        }
        let since = query.since.map_or(i64::MIN, micros);
        log::each_made(db, member.log_id, since, |at, extra| {
            let Some(made) = decode_made(extra)? else { return Ok(()) };
            let key = match query.by {
                SpendingBy::Agent => member.name.clone(),
                SpendingBy::Model => format!("{}/{}", made.origin.provider, made.origin.model),
                SpendingBy::Day => day(timestamp(at)?),
            };
            *sums.entry(key).or_default() += made.bill;
            Ok(())
        })?;
    }
    Ok(sums.into_iter().map(|(key, bill)| Spent { key, bill }).collect())
}

/// Adds to what the descendants of an agent used that are gone.
pub(super) fn absorb(db: &Connection, heir: &AgentId, bill: Bill) -> Result<(), Fault> {
    let found: Option<(i64, Option<String>)> = db
        .prepare_cached(
            "SELECT agent_id, ended_bill FROM heads JOIN agents ON id = agent_id WHERE name = ?",
        )?
        .query_row([heir.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((agent, before)) = found else { return Ok(()) };
    let sum = decode_bill(before.as_deref())? + bill;
    db.prepare_cached("UPDATE heads SET ended_bill = ? WHERE agent_id = ?")?
        .execute(params![encode_bill(&sum), agent])?;
    Ok(())
}

struct Member {
    name: String,
    log_id: i64,
    own: Bill,
    ended: Bill,
}

fn members(db: &Connection, query: &SpendingQuery) -> Result<Vec<Member>, Fault> {
    let mut select = db.prepare_cached(match (&query.of, query.tree) {
        (None, _) => {
            "SELECT a.name, h.log_id, h.bill, h.ended_bill FROM agents a JOIN heads h ON h.agent_id = a.id
             WHERE a.saved = 0 AND :of IS NULL"
        }
        (Some(_), false) => {
            "SELECT a.name, h.log_id, h.bill, h.ended_bill FROM agents a JOIN heads h ON h.agent_id = a.id
             WHERE a.saved = 0 AND a.name = :of"
        }
        (Some(_), true) => {
            "WITH RECURSIVE tree (name) AS (
                 VALUES (:of)
                 UNION SELECT a.name FROM tree JOIN agents a ON a.parent = tree.name AND a.saved = 0)
             SELECT a.name, h.log_id, h.bill, h.ended_bill FROM tree JOIN agents a ON a.name = tree.name
             JOIN heads h ON h.agent_id = a.id WHERE a.saved = 0"
        }
    })?;
    let of = query.of.as_ref().map(AgentId::as_str);
    let mut rows = select.query(named_params! {":of": of})?;
    let mut members = Vec::new();
    while let Some(row) = rows.next()? {
        let bill = |column| -> Result<Bill, Fault> {
            Ok(decode_bill(row.get::<_, Option<String>>(column)?.as_deref())?)
        };
        let (own, ended) = (bill(2)?, bill(3)?);
        members.push(Member { name: row.get(0)?, log_id: row.get(1)?, own, ended });
    }
    Ok(members)
}
