//! What conversations were begun with, in SQL. Each function runs inside a transaction that its caller opened.

use std::sync::Arc;

use nexus_core::brief::Brief;
use nexus_core::provider::ToolSpec;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::fault::Fault;

/// A brief, ready to be written.
pub(super) struct BriefRow {
    digest: i64,
    system: Arc<str>,
    tools: String,
    source: String,
    anew: u32,
}

#[derive(Serialize, Deserialize)]
struct ToolRecord {
    name: String,
    description: String,
    parameters: Arc<str>,
}

impl BriefRow {
    pub(super) fn encode(brief: &Brief) -> Result<Self, Fault> {
        let tools = brief.tools.iter().map(|tool| ToolRecord {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
        });
        Ok(Self {
            digest: brief.digest.cast_signed(),
            system: brief.system.clone(),
            tools: serde_json::to_string(&tools.collect::<Vec<_>>())?,
            source: serde_json::to_string(&brief.source)?,
            anew: brief.anew,
        })
    }
}

/// Notes that messages of a log were made with a brief.
pub(super) fn put(db: &Connection, log_id: i64, row: &BriefRow) -> Result<(), Fault> {
    let new = db
        .prepare_cached("INSERT OR IGNORE INTO briefed (log_id, digest) VALUES (?, ?)")?
        .execute([log_id, row.digest])?;
    if new > 0 {
        db.prepare_cached(
            "INSERT OR IGNORE INTO briefings (digest, system, tools, source, anew)
             VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![row.digest, &*row.system, row.tools, row.source, row.anew])?;
    }
    Ok(())
}

pub(super) fn find(db: &Connection, digest: u64) -> Result<Option<Brief>, Fault> {
    let row: Option<(String, String, String, u32)> = db
        .prepare_cached("SELECT system, tools, source, anew FROM briefings WHERE digest = ?")?
        .query_row([digest.cast_signed()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((system, tools, source, anew)) = row else { return Ok(None) };
    let tools: Vec<ToolRecord> = serde_json::from_str(&tools)?;
    let tools = tools.into_iter().map(|tool| ToolSpec {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
    });
    Ok(Some(Brief {
        digest,
        system: system.into(),
        tools: tools.collect(),
        source: serde_json::from_str(&source)?,
        anew,
    }))
}

/// Lets the copy `new` of a log be found to need what that was begun with.
pub(super) fn copy(db: &Connection, new: i64, log_id: i64) -> Result<(), Fault> {
    db.prepare_cached(
        "INSERT OR IGNORE INTO briefed (log_id, digest) SELECT ?1, digest FROM briefed WHERE log_id = ?2",
    )?
    .execute([new, log_id])?;
    Ok(())
}

/// Forgets logs, given as a JSON list, and what nobody needs without them.
pub(super) fn forget(db: &Connection, logs: &str) -> Result<(), Fault> {
    let mut gone = db.prepare_cached(
        "DELETE FROM briefed WHERE log_id IN (SELECT value FROM json_each(?)) RETURNING digest",
    )?;
    let mut digests: Vec<i64> =
        gone.query_map([logs], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    digests.sort_unstable();
    digests.dedup();
    db.prepare_cached(
        "DELETE FROM briefings WHERE digest IN (SELECT value FROM json_each(?))
         AND NOT EXISTS (SELECT 1 FROM briefed WHERE briefed.digest = briefings.digest)",
    )?
    .execute([serde_json::to_string(&digests)?])?;
    Ok(())
}
