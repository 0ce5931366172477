//! Listing, loading, saving, copying, renaming and deleting sessions.

use jiff::Timestamp;
use nexus_core::session::LoadSpec;
use nexus_core::store::SessionRecord;
use nexus_protocol::RpcError;
use nexus_protocol::session::{
    CloneSession, CloneSessionParams, CloneSessionResult, DeleteSession, DeleteSessionParams,
    DeleteSessionResult, ListSessions, ListSessionsParams, ListSessionsResult, LoadSession,
    LoadSessionParams, LoadSessionResult, RenameSession, RenameSessionParams, RenameSessionResult,
    SaveSession, SaveSessionParams, SaveSessionResult, SessionEntry,
};

use super::agent_id;
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::{session, wire};

/// Sessions on a page when the caller names no number.
const PAGE_SESSIONS: u32 = 50;

pub fn register(table: &mut Table) {
    table.on::<ListSessions, _, _>(list);
    table.on::<LoadSession, _, _>(load);
    table.on::<SaveSession, _, _>(save);
    table.on::<CloneSession, _, _>(clone);
    table.on::<RenameSession, _, _>(rename);
    table.on::<DeleteSession, _, _>(delete);
}

async fn list(cx: Cx, params: ListSessionsParams) -> Result<ListSessionsResult, RpcError> {
    let engine = &cx.services().engine;
    let offset = params.offset.unwrap_or(0);
    let limit = params.limit.map_or(PAGE_SESSIONS, |limit| limit.get());
    let temporary = params.include_temp.unwrap_or(false);
    let listed = engine.sessions.list(&cx.caller.requester, offset, limit, temporary).await;
    let page = listed.map_err(wire)?;
    let default_model = engine.models.resolve(None).ok().map(|model| model.alias.clone());
    let sessions = page.sessions.into_iter();
    Ok(ListSessionsResult {
        total: page.total,
        offset,
        limit,
        sessions: sessions.map(|session| entry(session, default_model.as_ref())).collect(),
    })
}

fn entry(session: SessionRecord, default_model: Option<&String>) -> SessionEntry {
    let SessionRecord { record, updated_at, made_by, saved: _ } = session;
    SessionEntry {
        is_temp: record.id.is_temp(),
        name: record.id.to_string(),
        message_count: record.message_count,
        created_at: seconds(record.created_at),
        updated_at: seconds(updated_at),
        provenance: made_by.map_or_else(|| "user".into(), |agent| agent.to_string()),
        model: record.settings.model.or_else(|| default_model.cloned()),
        permission_level: record.settings.permissions.level.name().into(),
        cwd: record.settings.cwd.display().to_string(),
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_microsecond() as f64 / 1e6
}

async fn load(cx: Cx, params: LoadSessionParams) -> Result<LoadSessionResult, RpcError> {
    let spec = LoadSpec {
        session: agent_id("session_name", &params.session_name)?,
        agent: params.agent_id.map(|name| agent_id("agent_id", &name)).transpose()?,
        preset: params.preset,
        model: params.model,
        hand: cx.caller.hand,
    };
    let loaded = cx.services().engine.sessions.load(&cx.caller.requester, spec).await;
    let agent = loaded.map_err(session("session_name", "agent_id"))?;
    Ok(LoadSessionResult {
        restored: true,
        agent_id: agent.id().to_string(),
        message_count: agent.look().conversation.len(),
    })
}

async fn save(cx: Cx, params: SaveSessionParams) -> Result<SaveSessionResult, RpcError> {
    let id = agent_id("agent_id", &params.agent_id)?;
    let name = agent_id("session_name", &params.session_name)?;
    let saved = cx.services().engine.sessions.save(&cx.caller.requester, &id, &name).await;
    let agent_id = saved.map_err(session("agent_id", "session_name"))?.to_string();
    Ok(SaveSessionResult { saved: true, session_name: params.session_name, agent_id })
}

async fn clone(cx: Cx, params: CloneSessionParams) -> Result<CloneSessionResult, RpcError> {
    let from = agent_id("src_session", &params.src_session)?;
    let to = agent_id("dest_session", &params.dest_session)?;
    let (sessions, requester) = (&cx.services().engine.sessions, &cx.caller.requester);
    let cloned = match params.upto {
        upto if from.is_temp() => sessions.fork(requester, &from, &to, upto).await,
        Some(upto) => sessions.copy_upto(requester, &from, &to, upto).await,
        None => sessions.copy(requester, &from, &to).await,
    };
    cloned.map_err(session("src_session", "dest_session"))?;
    let CloneSessionParams { src_session, dest_session, upto: _ } = params;
    Ok(CloneSessionResult { cloned: true, src_session, dest_session })
}

async fn rename(cx: Cx, params: RenameSessionParams) -> Result<RenameSessionResult, RpcError> {
    let from = agent_id("old_name", &params.old_name)?;
    let to = agent_id("new_name", &params.new_name)?;
    let renamed = cx.services().engine.sessions.rename(&cx.caller.requester, &from, &to).await;
    renamed.map_err(session("old_name", "new_name"))?;
    let RenameSessionParams { old_name, new_name } = params;
    Ok(RenameSessionResult { renamed: true, old_name, new_name })
}

async fn delete(cx: Cx, params: DeleteSessionParams) -> Result<DeleteSessionResult, RpcError> {
    let name = agent_id("session_name", &params.session_name)?;
    let deleted = cx.services().engine.sessions.delete(&cx.caller.requester, &name).await;
    let deleted = deleted.map_err(session("session_name", "session_name"))?;
    Ok(DeleteSessionResult { deleted, session_name: params.session_name })
}
