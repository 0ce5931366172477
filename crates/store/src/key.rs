//! Keys of callers, in SQL. Each function runs inside a transaction that its caller opened.

use nexus_core::AgentId;
use nexus_core::store::{Door, KeyAdded, KeyAgent, KeyRecord, Lease};
use rusqlite::{Connection, Row, params};

use super::agent::{self, signed, unsigned};
use super::fault::Fault;
use super::owner::Owner;
use super::record::{AgentRow, micros, timestamp};

pub(super) fn add(db: &Connection, key: &KeyRecord, keys_max: u64) -> Result<KeyAdded, Fault> {
    let room = room(db, &key.name, keys_max)?;
    if room == KeyAdded::Done(()) {
        put(db, key)?;
    }
    Ok(room)
}

/// Adds a key and makes the agent that its holder acts as.
pub(super) fn add_with_agent(
    db: &Connection,
    me: &mut Owner,
    key: KeyRecord,
    (id, row): (AgentId, &AgentRow),
    keys_max: u64,
) -> Result<KeyAdded<Lease>, Fault> {
    match room(db, &key.name, keys_max)? {
        KeyAdded::Done(()) => {}
        KeyAdded::Exists => return Ok(KeyAdded::Exists),
        KeyAdded::Full => return Ok(KeyAdded::Full),
    }
    let lease = agent::create(db, me, &id, row)?;
    let agent = Some(KeyAgent { id, born: lease.fence.0 });
    put(db, &KeyRecord { agent, ..key })?;
    Ok(KeyAdded::Done(lease))
}

/// Whether there is room for a key of this name.
fn room(db: &Connection, name: &str, keys_max: u64) -> Result<KeyAdded, Fault> {
    let (count, same): (i64, i64) = db
        .prepare_cached("SELECT count(*), coalesce(sum(name = ?), 0) FROM keys")?
        .query_row([name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if same > 0 {
        return Ok(KeyAdded::Exists);
    }
    if unsigned(count)? >= keys_max {
        return Ok(KeyAdded::Full);
    }
    Ok(KeyAdded::Done(()))
}

pub(super) fn put(db: &Connection, key: &KeyRecord) -> Result<(), Fault> {
    let agent = key.agent.as_ref();
    db.prepare_cached(
        "INSERT INTO keys (name, secret, doors, methods, agent, born, created_at, expires_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        key.name,
        key.secret,
        doors(&key.doors)?,
        key.methods.as_ref().map(serde_json::to_string).transpose()?,
        agent.map(|agent| agent.id.as_str()),
        agent.map(|agent| signed(agent.born)).transpose()?,
        micros(key.created_at),
        micros(key.expires_at),
    ])?;
    Ok(())
}

pub(super) fn all(db: &Connection) -> Result<Vec<KeyRecord>, Fault> {
    let mut query = db.prepare_cached("SELECT * FROM keys ORDER BY name")?;
    let mut rows = query.query([])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(decode(row)?);
    }
    Ok(keys)
}

pub(super) fn remove(db: &Connection, name: &str) -> Result<bool, Fault> {
    Ok(db.prepare_cached("DELETE FROM keys WHERE name = ?")?.execute([name])? > 0)
}

/// The key with this number, unless it is an agent's: one that is saved elsewhere is born anew, and its keys end with it.
pub(super) fn by_number(db: &Connection, seq: i64) -> Result<Option<KeyRecord>, Fault> {
    let mut query = db.prepare_cached("SELECT * FROM keys WHERE seq = ? AND agent IS NULL")?;
    let mut rows = query.query([seq])?;
    rows.next()?.map(decode).transpose()
}

fn decode(row: &Row) -> Result<KeyRecord, Fault> {
    let (agent, born): (Option<String>, Option<i64>) = (row.get("agent")?, row.get("born")?);
    let agent = match (agent, born) {
        (Some(id), Some(born)) => {
            let id = AgentId::parse(&id).map_err(|error| Fault::unfit(error.to_string()))?;
            Some(KeyAgent { id, born: unsigned(born)? })
        }
        _ => None,
    };
    let methods: Option<String> = row.get("methods")?;
    let doors: Option<String> = row.get("doors")?;
    Ok(KeyRecord {
        name: row.get("name")?,
        secret: row.get("secret")?,
        doors: opened(doors.as_deref())?,
        methods: methods.as_deref().map(serde_json::from_str).transpose()?,
        agent,
        created_at: timestamp(row.get("created_at")?)?,
        expires_at: timestamp(row.get("expires_at")?)?,
    })
}

fn doors(doors: &[Door]) -> Result<Option<String>, Fault> {
    let names: Vec<_> = doors.iter().map(|door| door.name()).collect();
    Ok((!names.is_empty()).then(|| serde_json::to_string(&names)).transpose()?)
}

/// A key for a door that this program does not know is no key to sign with: it is unfit.
fn opened(written: Option<&str>) -> Result<Vec<Door>, Fault> {
    let names: Vec<String> = written.map(serde_json::from_str).transpose()?.unwrap_or_default();
    let named = |name: &String| {
        Door::named(name).ok_or_else(|| Fault::unfit(format!("a key for an unknown door: {name}")))
    };
    names.iter().map(named).collect()
}
