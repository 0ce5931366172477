//! Memories in SQL. Each function runs inside a transaction that its caller opened.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::store::{
    Deletion, IdPrefix, MemoriesWeight, MemoryId, MemoryKey, MemoryQuery, MemoryRecord, MemoryRoom,
    MemoryScope, Said, ScopeKey, StoredVector, Unembedded,
};
use nexus_core::words;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::agent::unsigned;
use super::fault::Fault;
use super::record::{micros, timestamp};

/// Memories that a new one is held against, the newest of those that have a subject in common with it. The cost of adding
/// must not grow with what is there, nor with how many subjects it has.
const COMPARED_MAX: u32 = 32;

/// What `decode` reads.
const COLUMNS: &str = "m.seq, m.id, m.scope, s.kind, s.name, m.content, m.source, m.subjects, \
                       m.created_at, m.expires_at";

/// Keeps a memory, or renews the one that is like it. `None` where there is no room for it.
pub(super) fn add(
    db: &Connection,
    new: &MemoryRecord,
    room: Option<MemoryRoom>,
) -> Result<Option<MemoryRecord>, Fault> {
    keep(db, new, new.created_at, Said::Now, room)
}

/// Keeps one that was remembered elsewhere.
pub(super) fn restore(
    db: &Connection,
    memory: &MemoryRecord,
    now: Timestamp,
) -> Result<MemoryRecord, Fault> {
    let kept = keep(db, memory, now, Said::Earlier, None)?;
    kept.ok_or_else(|| Fault::unfit("a memory has no room where there is no bound"))
}

fn keep(
    db: &Connection,
    new: &MemoryRecord,
    now: Timestamp,
    said: Said,
    room: Option<MemoryRoom>,
) -> Result<Option<MemoryRecord>, Fault> {
    if let Some(there) = find(db, new.id)? {
        return Ok(Some(there));
    }
    let scope = make_scope(db, &new.scope)?;
    match same(db, scope, &new.content)? {
        // What has expired is gone, whether or not it was removed yet.
        Some((seq, Some(expiry))) if expiry <= micros(now) => expire(db, seq)?,
        Some((seq, _)) => return renew(db, seq, scope, new, said, room),
        None => {}
    }
    if !has_room(db, scope, room, MemoriesWeight { count: 1, bytes: new.bytes() })? {
        return Ok(None);
    }
    db.prepare_cached(
        "INSERT INTO memories (id, scope, digest, content, source, subjects, created_at, expires_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        new.id.0.to_be_bytes(),
        scope,
        digest(&new.content),
        new.content,
        new.source,
        serde_json::to_string(&new.subjects)?,
        micros(new.created_at),
        new.expires_at.map(micros),
    ])?;
    let seq = db.last_insert_rowid();
    let supersedes = supersede(db, seq, scope, new, said)?;
    index(db, seq, scope, &new.content, &new.subjects)?;
    Ok(Some(MemoryRecord { supersedes, ..new.clone() }))
}

/// The memory of a text that no other took the place of, and when it expires.
fn same(db: &Connection, scope: i64, content: &str) -> Result<Option<(i64, Option<i64>)>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT seq, expires_at FROM memories
         WHERE scope = ? AND digest = ? AND content = ? AND superseded_by IS NULL",
    )?;
    let found = query
        .query_row(params![scope, digest(content), content], |row| Ok((row.get(0)?, row.get(1)?)));
    Ok(found.optional()?)
}

fn has_room(
    db: &Connection,
    scope: i64,
    room: Option<MemoryRoom>,
    more: MemoriesWeight,
) -> Result<bool, Fault> {
    let Some(room) = room else { return Ok(true) };
    let (count, bytes) = db
        .prepare_cached("SELECT memories, bytes FROM memory_scopes WHERE id = ?")?
        .query_row([scope], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(room.takes(MemoriesWeight { count: unsigned(count)?, bytes: unsigned(bytes)? }, more))
}

/// Makes one memory of two that say the same.
fn renew(
    db: &Connection,
    seq: i64,
    scope: i64,
    new: &MemoryRecord,
    said: Said,
    room: Option<MemoryRoom>,
) -> Result<Option<MemoryRecord>, Fault> {
    let Some(old) = read(db, seq)? else { return Err(Fault::unfit("a memory is missing")) };
    let renewed = old.renewed(new, said);
    let bytes = renewed.bytes().saturating_sub(old.bytes());
    if !has_room(db, scope, room, MemoriesWeight { count: 0, bytes })? {
        return Ok(None);
    }
    if renewed.subjects.len() != old.subjects.len() {
        forget_words(db, seq, scope, &old.subjects)?;
        index(db, seq, scope, &renewed.content, &renewed.subjects)?;
    }
    db.prepare_cached("UPDATE memories SET expires_at = ?, subjects = ? WHERE seq = ?")?.execute(
        params![renewed.expires_at.map(micros), serde_json::to_string(&renewed.subjects)?, seq],
    )?;
    Ok(Some(renewed))
}

/// Hides what the new memory takes the place of.
fn supersede(
    db: &Connection,
    seq: i64,
    scope: i64,
    new: &MemoryRecord,
    said: Said,
) -> Result<Vec<MemoryId>, Fault> {
    let mut superseded = Vec::new();
    for old in about_same(db, scope, &new.subjects)? {
        let Some(memory) = read(db, old)? else { continue };
        let is_newer = said == Said::Earlier && memory.created_at > new.created_at;
        if is_newer || !words::nearly_same(&memory.content, &new.content) {
            continue;
        }
        forget_words(db, old, scope, &memory.subjects)?;
        db.prepare_cached("UPDATE memories SET superseded_by = ? WHERE seq = ?")?
            .execute([seq, old])?;
        db.prepare_cached("DELETE FROM memory_vectors WHERE seq = ?")?.execute([old])?;
        superseded.push(memory.id);
    }
    Ok(superseded)
}

/// What has a subject in common, each once, the newest [`COMPARED_MAX`] of it, the oldest first.
fn about_same(
    db: &Connection,
    scope: i64,
    subjects: &[String],
) -> Result<impl Iterator<Item = i64>, Fault> {
    let mut found = BTreeSet::new();
    for key in keys(subjects) {
        let mut query = db.prepare_cached(
            "SELECT seq FROM memory_subjects WHERE scope = ? AND subject = ?
             ORDER BY seq DESC LIMIT ?",
        )?;
        for seq in query.query_map(params![scope, key, COMPARED_MAX], |row| row.get(0))? {
            found.insert(seq?);
        }
    }
    let older = found.len().saturating_sub(COMPARED_MAX as usize);
    Ok(found.into_iter().skip(older))
}

fn index(
    db: &Connection,
    seq: i64,
    scope: i64,
    content: &str,
    subjects: &[String],
) -> Result<(), Fault> {
    db.prepare_cached(
        "INSERT INTO memory_words (rowid, content, subjects, scope) VALUES (?, ?, ?, ?)",
    )?
    .execute(params![
        seq,
        words::spaced(content),
        words::spaced(&subjects.join("\n")),
        scope.to_string()
    ])?;
    for key in keys(subjects) {
        db.prepare_cached("INSERT INTO memory_subjects (scope, subject, seq) VALUES (?, ?, ?)")?
            .execute(params![scope, key, seq])?;
    }
    Ok(())
}

/// Takes a memory out of what searches and later memories look at.
fn forget_words(db: &Connection, seq: i64, scope: i64, subjects: &[String]) -> Result<(), Fault> {
    db.prepare_cached("DELETE FROM memory_words WHERE rowid = ?")?.execute([seq])?;
    for key in keys(subjects) {
        db.prepare_cached(
            "DELETE FROM memory_subjects WHERE scope = ? AND subject = ? AND seq = ?",
        )?
        .execute(params![scope, key, seq])?;
    }
    Ok(())
}

/// Removes a memory and what it superseded. Each by itself, the deepest first: SQLite follows the references in their
/// rows a thousand deep and then fails.
fn remove(db: &Connection, seq: i64) -> Result<(), Fault> {
    let (scope, subjects): (i64, String) = db
        .prepare_cached("SELECT scope, subjects FROM memories WHERE seq = ?")?
        .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?)))?;
    forget_words(db, seq, scope, &serde_json::from_str::<Vec<String>>(&subjects)?)?;
    let mut query = db.prepare_cached(
        "WITH RECURSIVE going (seq, depth) AS (
             SELECT ?, 0
             UNION ALL
             SELECT m.seq, going.depth + 1 FROM going JOIN memories m ON m.superseded_by = going.seq
         ) SELECT seq FROM going ORDER BY depth DESC",
    )?;
    let going = query.query_map([seq], |row| row.get(0))?;
    for seq in going.collect::<Result<Vec<i64>, _>>()? {
        remove_row(db, seq)?;
    }
    Ok(())
}

fn remove_row(db: &Connection, seq: i64) -> Result<(), Fault> {
    db.prepare_cached("DELETE FROM memories WHERE seq = ?")?.execute([seq])?;
    Ok(())
}

/// Removes what expired, and brings back what it took the place of: that was kept for longer.
fn expire(db: &Connection, seq: i64) -> Result<(), Fault> {
    let mut query =
        db.prepare_cached("SELECT seq, scope FROM memories WHERE superseded_by = ? ORDER BY seq")?;
    let older = query.query_map([seq], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (old, scope) in older.collect::<Result<Vec<(i64, i64)>, _>>()? {
        bring_back(db, old, scope)?;
    }
    remove(db, seq)
}

/// Shows again what was superseded. It gets a new number: whoever embeds memories in their order is past its old one, and
/// its vector is gone.
fn bring_back(db: &Connection, old: i64, scope: i64) -> Result<(), Fault> {
    let Some(memory) = read(db, old)? else { return Ok(()) };
    if let Some((twin, _)) = same(db, scope, &memory.content)? {
        // Its text was kept again while it was hidden.
        renew(db, twin, scope, &memory, Said::Earlier, None)?;
        db.prepare_cached("UPDATE memories SET superseded_by = ? WHERE superseded_by = ?")?
            .execute([twin, old])?;
        return remove_row(db, old);
    }
    let new: i64 = db
        .prepare_cached(
            "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'memories' RETURNING seq",
        )?
        .query_row([], |row| row.get(0))?;
    // With what refers to it, in one statement: references are held against each other at its end.
    db.prepare_cached(
        "UPDATE memories SET seq = iif(seq = ?1, ?2, seq), superseded_by = iif(seq = ?1, NULL, ?2)
         WHERE seq = ?1 OR superseded_by = ?1",
    )?
    .execute([old, new])?;
    index(db, new, scope, &memory.content, &memory.subjects)
}

pub(super) fn delete(
    db: &Connection,
    scopes: &[MemoryScope],
    prefix: IdPrefix,
) -> Result<Deletion, Fault> {
    let mut query = db.prepare_cached(
        "SELECT seq, id, scope FROM memories
         WHERE id BETWEEN ? AND ? AND superseded_by IS NULL",
    )?;
    let visible = find_scopes(db, scopes)?;
    let mut rows =
        query.query(params![prefix.first.0.to_be_bytes(), prefix.last.0.to_be_bytes()])?;
    let mut found = None;
    while let Some(row) = rows.next()? {
        if !visible.contains(&row.get(2)?) {
            continue;
        }
        if found.is_some() {
            return Ok(Deletion::Ambiguous);
        }
        found = Some((row.get(0)?, id(row.get(1)?)));
    }
    let Some((seq, id)) = found else { return Ok(Deletion::NotFound) };
    remove(db, seq)?;
    Ok(Deletion::Deleted(id))
}

/// Removes what agents that are gone had, and their trees.
pub(super) fn forget<'a>(
    db: &Connection,
    agents: impl Iterator<Item = &'a AgentId>,
) -> Result<(), Fault> {
    // Families are large, and most remember nothing.
    let mut any =
        db.prepare_cached("SELECT EXISTS (SELECT 1 FROM memory_scopes WHERE kind > 0)")?;
    if !any.query_row([], |row| row.get::<_, bool>(0))? {
        return Ok(());
    }
    for agent in agents {
        for scope in find_scopes(db, &MemoryScope::of_agent(agent))? {
            for seq in of_scope(db, scope)? {
                remove(db, seq)?;
            }
        }
    }
    Ok(())
}

/// Gives what an agent has, and its tree, to the name that it has from now on. What somebody kept for that name before
/// there was such an agent stays with it.
pub(super) fn rename(db: &Connection, from: &AgentId, to: &AgentId) -> Result<(), Fault> {
    for (old, new) in MemoryScope::of_agent(from).iter().zip(&MemoryScope::of_agent(to)) {
        let Some(scope) = find_scopes(db, std::slice::from_ref(old))?.pop() else { continue };
        let mut waited = Vec::new();
        for there in find_scopes(db, std::slice::from_ref(new))? {
            for seq in of_scope(db, there)? {
                waited.extend(read(db, seq)?);
                remove(db, seq)?;
            }
            db.prepare_cached("DELETE FROM memory_scopes WHERE id = ?")?.execute([there])?;
        }
        let (_, name) = parts(new);
        db.prepare_cached("UPDATE memory_scopes SET name = ? WHERE id = ?")?
            .execute(params![name, scope])?;
        for memory in waited {
            keep(db, &memory, memory.created_at, Said::Earlier, None)?;
        }
    }
    Ok(())
}

/// What lies in a scope, without what others took the place of.
fn of_scope(db: &Connection, scope: i64) -> Result<Vec<i64>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT seq FROM memories WHERE scope = ? AND superseded_by IS NULL ORDER BY seq",
    )?;
    let found = query.query_map([scope], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

pub(super) fn remove_expired(db: &Connection, before: Timestamp, limit: u32) -> Result<u64, Fault> {
    let mut query = db.prepare_cached(
        "SELECT seq FROM memories
         WHERE expires_at < ? AND expires_at IS NOT NULL AND superseded_by IS NULL LIMIT ?",
    )?;
    let expired = query.query_map(params![micros(before), limit], |row| row.get(0))?;
    let expired: Vec<i64> = expired.collect::<Result<_, _>>()?;
    for seq in &expired {
        expire(db, *seq)?;
    }
    Ok(expired.len() as u64)
}

/// What the full-text index finds, in its order.
pub(super) fn with_words(
    db: &Connection,
    scopes: &[MemoryScope],
    words: &[String],
    limit: u32,
    now: Timestamp,
) -> Result<Vec<MemoryRecord>, Fault> {
    let scopes = find_scopes(db, scopes)?;
    if scopes.is_empty() || words.is_empty() {
        return Ok(Vec::new());
    }
    // Everything in it is a string of the query language, in which nothing but a quote means anything.
    let any = |words: &mut dyn Iterator<Item = String>| -> String {
        let quoted: Vec<_> =
            words.map(|word| format!("\"{}\"", word.replace(['"', '\0'], " "))).collect();
        quoted.join(" OR ")
    };
    let matching = format!(
        "{{scope}} : ({}) AND {{content subjects}} : ({})",
        any(&mut scopes.iter().map(i64::to_string)),
        any(&mut words.iter().cloned())
    );
    // Asked for by rank alone, so that the index need not look at the rows of all it finds.
    let mut query = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM memory_words w
         JOIN memories m ON m.seq = w.rowid JOIN memory_scopes s ON s.id = m.scope
         WHERE memory_words MATCH ?1 AND w.rank MATCH 'bm25(1.0, 2.0, 0.0)'
           AND (m.expires_at IS NULL OR m.expires_at > ?2)
         ORDER BY w.rank LIMIT ?3"
    ))?;
    let mut rows = query.query(params![matching, micros(now), limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(decode(db, row)?);
    }
    Ok(found)
}

pub(super) fn by_id(
    db: &Connection,
    scopes: &[MemoryScope],
    ids: &[MemoryId],
    now: Timestamp,
) -> Result<Vec<MemoryRecord>, Fault> {
    let mut found = Vec::new();
    let mut query =
        db.prepare_cached("SELECT seq FROM memories WHERE id = ? AND superseded_by IS NULL")?;
    for id in ids {
        let seq = query.query_row([id.0.to_be_bytes()], |row| row.get(0)).optional()?;
        let memory = seq.map_or(Ok(None), |seq| read(db, seq))?;
        found.extend(memory.filter(|it| scopes.contains(&it.scope) && !it.is_expired(now)));
    }
    Ok(found)
}

/// Which of these nobody would find.
pub(super) fn gone(db: &Connection, ids: &[MemoryId]) -> Result<Vec<MemoryId>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM memories WHERE id = ? AND superseded_by IS NULL)",
    )?;
    let mut gone = Vec::new();
    for id in ids {
        let is_there: bool = query.query_row([id.0.to_be_bytes()], |row| row.get(0))?;
        gone.extend((!is_there).then_some(*id));
    }
    Ok(gone)
}

/// A page of memories, the newest first: each scope is read in its order, and no more of it than is wanted.
pub(super) fn page(db: &Connection, query: &MemoryQuery) -> Result<Vec<MemoryRecord>, Fault> {
    let alive_at = query.alive_at.map_or(i64::MIN, micros);
    let mut found: Vec<(i64, i64, usize)> = Vec::new();
    for scope in find_scopes(db, &query.scopes)? {
        let mut select = db.prepare_cached(
            "SELECT created_at, seq,
                 length(CAST(content AS BLOB)) + length(CAST(subjects AS BLOB)) - length('[]')
             FROM memories
             WHERE scope = ? AND superseded_by IS NULL AND (expires_at IS NULL OR expires_at > ?)
             ORDER BY created_at DESC, seq DESC LIMIT ?",
        )?;
        let rows = select.query_map(params![scope, alive_at, query.limit], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)? as usize))
        })?;
        for row in rows {
            found.push(row?);
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.truncate(query.limit as usize);
    let mut page = Vec::new();
    for at in query.fitting(found.iter().map(|(_, _, bytes)| *bytes)) {
        page.extend(read(db, found[at].1)?);
    }
    Ok(page)
}

/// Of all scopes, in the order in which they were added.
pub(super) fn every(
    db: &Connection,
    after: MemoryKey,
    limit: u32,
) -> Result<Vec<(MemoryKey, MemoryRecord)>, Fault> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM memories m JOIN memory_scopes s ON s.id = m.scope
         WHERE m.seq > ? AND m.superseded_by IS NULL ORDER BY m.seq LIMIT ?"
    ))?;
    let mut rows = query.query(params![after.0, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((MemoryKey(row.get("seq")?), decode(db, row)?));
    }
    Ok(found)
}

pub(super) fn scope_keys(db: &Connection, scopes: &[MemoryScope]) -> Result<Vec<ScopeKey>, Fault> {
    Ok(find_scopes(db, scopes)?.into_iter().map(ScopeKey).collect())
}

pub(super) fn unembedded(
    db: &Connection,
    model: &str,
    after: MemoryKey,
    limit: u32,
) -> Result<Vec<Unembedded>, Fault> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM memories m JOIN memory_scopes s ON s.id = m.scope
         LEFT JOIN memory_vectors v ON v.seq = m.seq AND v.model = ?1
         WHERE m.seq > ?2 AND m.superseded_by IS NULL AND v.seq IS NULL ORDER BY m.seq LIMIT ?3"
    ))?;
    let mut rows = query.query(params![model, after.0, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = MemoryKey(row.get("seq")?);
        let MemoryRecord { id, content, subjects, .. } = decode_alone(row)?;
        found.push(Unembedded { key, id, scope: ScopeKey(row.get("scope")?), content, subjects });
    }
    Ok(found)
}

pub(super) fn put_vectors(
    db: &Connection,
    model: &str,
    vectors: &[(MemoryKey, Vec<u8>)],
) -> Result<(), Fault> {
    for (key, vector) in vectors {
        db.prepare_cached(
            "INSERT INTO memory_vectors (seq, model, vector)
             SELECT seq, ?2, ?3 FROM memories WHERE seq = ?1 AND superseded_by IS NULL
             ON CONFLICT (seq) DO UPDATE SET model = ?2, vector = ?3",
        )?
        .execute(params![key.0, model, vector])?;
    }
    Ok(())
}

pub(super) const VECTORS: &str = "SELECT v.seq, m.id, m.scope, v.vector FROM memory_vectors v
    JOIN memories m ON m.seq = v.seq WHERE v.seq > ?1 AND v.model = ?2 ORDER BY v.seq LIMIT ?3";

pub(super) fn vectors(
    db: &Connection,
    model: &str,
    after: MemoryKey,
    limit: u32,
) -> Result<Vec<StoredVector>, Fault> {
    let mut query = db.prepare_cached(VECTORS)?;
    let mut rows = query.query(params![after.0, model, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(StoredVector {
            key: MemoryKey(row.get(0)?),
            id: id(row.get(1)?),
            scope: ScopeKey(row.get(2)?),
            vector: row.get(3)?,
        });
    }
    Ok(found)
}

/// The memory of an id, superseded or not.
fn find(db: &Connection, id: MemoryId) -> Result<Option<MemoryRecord>, Fault> {
    let mut query = db.prepare_cached("SELECT seq FROM memories WHERE id = ?")?;
    let seq = query.query_row([id.0.to_be_bytes()], |row| row.get(0)).optional()?;
    seq.map_or(Ok(None), |seq| read(db, seq))
}

/// The memory with this number, if no other took its place.
pub(super) fn in_place(db: &Connection, seq: i64) -> Result<Option<MemoryRecord>, Fault> {
    let mut query =
        db.prepare_cached("SELECT superseded_by IS NULL FROM memories WHERE seq = ?")?;
    match query.query_row([seq], |row| row.get(0)).optional()? {
        Some(true) => read(db, seq),
        Some(false) | None => Ok(None),
    }
}

fn read(db: &Connection, seq: i64) -> Result<Option<MemoryRecord>, Fault> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM memories m JOIN memory_scopes s ON s.id = m.scope WHERE m.seq = ?"
    ))?;
    let mut rows = query.query([seq])?;
    rows.next()?.map(|row| decode(db, row)).transpose()
}

fn decode(db: &Connection, row: &Row<'_>) -> Result<MemoryRecord, Fault> {
    let seq: i64 = row.get("seq")?;
    let mut query =
        db.prepare_cached("SELECT id FROM memories WHERE superseded_by = ? ORDER BY seq")?;
    let supersedes = query.query_map([seq], |row| Ok(id(row.get(0)?)))?;
    Ok(MemoryRecord { supersedes: supersedes.collect::<Result<_, _>>()?, ..decode_alone(row)? })
}

/// Without what it superseded.
fn decode_alone(row: &Row<'_>) -> Result<MemoryRecord, Fault> {
    Ok(MemoryRecord {
        id: id(row.get("id")?),
        scope: scope(row.get("kind")?, row.get("name")?)?,
        content: row.get("content")?,
        source: row.get("source")?,
        subjects: serde_json::from_str(&row.get::<_, String>("subjects")?)?,
        created_at: timestamp(row.get("created_at")?)?,
        expires_at: row.get::<_, Option<i64>>("expires_at")?.map(timestamp).transpose()?,
        supersedes: Vec::new(),
    })
}

fn id(bytes: [u8; 16]) -> MemoryId {
    MemoryId(u128::from_be_bytes(bytes))
}

/// The number of a scope, which it gets with its first memory.
fn make_scope(db: &Connection, scope: &MemoryScope) -> Result<i64, Fault> {
    if let Some(number) = find_scope(db, scope)? {
        return Ok(number);
    }
    let (kind, name) = parts(scope);
    db.prepare_cached("INSERT INTO memory_scopes (kind, name) VALUES (?, ?)")?
        .execute(params![kind, name])?;
    Ok(db.last_insert_rowid())
}

fn find_scopes(db: &Connection, scopes: &[MemoryScope]) -> Result<Vec<i64>, Fault> {
    let mut found = Vec::new();
    for scope in scopes {
        found.extend(find_scope(db, scope)?);
    }
    Ok(found)
}

fn find_scope(db: &Connection, scope: &MemoryScope) -> Result<Option<i64>, Fault> {
    let (kind, name) = parts(scope);
    let mut query =
        db.prepare_cached("SELECT id FROM memory_scopes WHERE kind = ? AND name = ?")?;
    Ok(query.query_row(params![kind, name], |row| row.get(0)).optional()?)
}

fn parts(scope: &MemoryScope) -> (i64, &str) {
    match scope {
        MemoryScope::Global => (0, ""),
        MemoryScope::User(name) => (1, name),
        MemoryScope::Chat(name) => (2, name),
    }
}

fn scope(kind: i64, name: String) -> Result<MemoryScope, Fault> {
    match kind {
        0 => Ok(MemoryScope::Global),
        1 => Ok(MemoryScope::User(name)),
        2 => Ok(MemoryScope::Chat(name)),
        _ => Err(Fault::unfit(format!("unknown kind of memory scope {kind}"))),
    }
}

fn keys(subjects: &[String]) -> HashSet<String> {
    subjects.iter().map(|subject| words::subject_key(subject)).collect()
}

/// FNV-1a. It only has to bring like texts together: they are compared then.
fn digest(content: &str) -> i64 {
    let hash = content.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}
