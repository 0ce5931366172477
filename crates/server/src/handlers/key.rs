//! Keys of callers: to sign requests, or to be let in at a door.

use nexus_core::keys::{DAYS_DEFAULT, NewKey};
use nexus_core::lifecycle::{AccessError, AgentSpec};
use nexus_core::store::{self, KeyAgent, KeyRecord};
use nexus_protocol::RpcError;
use nexus_protocol::key::{
    CreateKey, CreateKeyParams, CreateKeyResult, Door, KeyEntry, ListKeys, ListKeysResult,
    RevokeKey, RevokeKeyParams, RevokeKeyResult,
};
use nexus_protocol::params::{Bounded, NoParams};

use super::agent_id;
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

pub fn register(table: &mut Table) {
    table.on::<CreateKey, _, _>(create);
    table.on::<ListKeys, _, _>(list);
    table.on::<RevokeKey, _, _>(revoke);
}

async fn create(cx: Cx, params: CreateKeyParams) -> Result<CreateKeyResult, RpcError> {
    let services = cx.services();
    let keys = &services.engine.keys;
    if params.doors.as_ref().is_some_and(Vec::is_empty) {
        return Err(RpcError::invalid_param("/doors", "doors must name at least one door"));
    }
    let doors = params.doors.unwrap_or_default();
    if params.agent_id.is_some() || doors.is_empty() {
        let unused = [("preset", params.preset.is_some()), ("cwd", params.cwd.is_some())];
        if let Some((name, _)) = unused.into_iter().find(|(_, is_given)| *is_given) {
            let why = format!("{name} is of an agent that is made, and none is");
            return Err(RpcError::invalid_param(format!("/{name}"), why));
        }
    }
    let key = NewKey {
        name: params.name,
        doors: doors.into_iter().map(stored_door).collect(),
        methods: params.methods,
        agent: None,
        days: params.expires_days.map_or(DAYS_DEFAULT, Bounded::get),
    };
    let requester = &cx.caller.requester;
    let made = match params.agent_id {
        None if !key.doors.is_empty() => {
            let agent = AgentSpec {
                preset: params.preset,
                cwd: params.cwd,
                hand: cx.caller.hand,
                ..AgentSpec::default()
            };
            keys.create_with_agent(&services.engine.agents, requester, key, agent).await
        }
        None => keys.create(requester, key).await,
        Some(name) => {
            keys.check(requester, &key).map_err(wire)?;
            let id = agent_id("agent_id", &name)?;
            let born = services.engine.agents.born(&id).await.map_err(wire)?;
            let born = born.ok_or_else(|| wire(AccessError::Unknown(id.clone())))?;
            keys.create(requester, NewKey { agent: Some(KeyAgent { id, born }), ..key }).await
        }
    };
    let made = made.map_err(wire)?;
    services.signatures.keys.changed().await;
    let (entry, mode) = (key_entry(&made.record), services.signatures.mode().name().into());
    Ok(CreateKeyResult { key: made.secret, entry, mode })
}

async fn list(cx: Cx, _: NoParams) -> Result<ListKeysResult, RpcError> {
    let services = cx.services();
    let keys = services.engine.keys.list(&cx.caller.requester).await.map_err(wire)?;
    let mode = services.signatures.mode().name().into();
    Ok(ListKeysResult { keys: keys.iter().map(key_entry).collect(), mode })
}

async fn revoke(cx: Cx, params: RevokeKeyParams) -> Result<RevokeKeyResult, RpcError> {
    let services = cx.services();
    let keys = services.engine.keys.list(&cx.caller.requester).await.map_err(wire)?;
    let revoked = services.engine.keys.revoke(&cx.caller.requester, &params.name).await;
    // Also after a failure: it may have been done.
    services.signatures.keys.changed().await;
    let revoked = revoked.map_err(wire)?;
    // What came through a door with a key that is no more ends too.
    let key = keys.iter().find(|key| key.name == params.name);
    for door in key.into_iter().flat_map(|key| &key.doors) {
        services.engine.turns.cancel_from(&format!("{}:{}", door.name(), params.name)).await;
    }
    Ok(RevokeKeyResult { revoked })
}

/// A key as it is shown, without its secret.
pub fn key_entry(key: &KeyRecord) -> KeyEntry {
    KeyEntry {
        name: key.name.clone(),
        methods: key.methods.clone(),
        doors: (!key.doors.is_empty())
            .then(|| key.doors.iter().map(|door| shown_door(*door)).collect()),
        agent_id: key.agent.as_ref().map(|agent| agent.id.to_string()),
        created_at: key.created_at.to_string(),
        expires_at: key.expires_at.to_string(),
    }
}

/// A door as the store names it.
pub fn stored_door(door: Door) -> store::Door {
    match door {
        Door::Mcp => store::Door::Mcp,
        Door::OpenAi => store::Door::OpenAi,
        Door::WebSocket => store::Door::WebSocket,
        Door::Acp => store::Door::Acp,
    }
}

fn shown_door(door: store::Door) -> Door {
    match door {
        store::Door::Mcp => Door::Mcp,
        store::Door::OpenAi => Door::OpenAi,
        store::Door::WebSocket => Door::WebSocket,
        store::Door::Acp => Door::Acp,
    }
}
