//! Keys by which callers sign their requests.

use nexus_core::keys::{DAYS_DEFAULT, NewKey};
use nexus_core::lifecycle::AccessError;
use nexus_core::store::{KeyAgent, KeyRecord};
use nexus_protocol::RpcError;
use nexus_protocol::key::{
    CreateKey, CreateKeyParams, CreateKeyResult, KeyEntry, ListKeys, ListKeysResult, RevokeKey,
    RevokeKeyParams, RevokeKeyResult,
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
    let agent = match params.agent_id {
        None => None,
        Some(name) => {
            let id = agent_id("agent_id", &name)?;
            let born = services.engine.agents.born(&id).await.map_err(wire)?;
            let born = born.ok_or_else(|| wire(AccessError::Unknown(id.clone())))?;
            Some(KeyAgent { id, born })
        }
    };
    let key = NewKey {
        name: params.name,
        methods: params.methods,
        agent,
        days: params.expires_days.map_or(DAYS_DEFAULT, Bounded::get),
    };
    let made = services.engine.keys.create(&cx.caller.requester, key).await.map_err(wire)?;
    services.signatures.keys_changed().await;
    let (entry, mode) = (key_entry(&made), services.signatures.mode().name().into());
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
    let revoked = services.engine.keys.revoke(&cx.caller.requester, &params.name).await;
    // Also after a failure: it may have been done.
    services.signatures.keys_changed().await;
    Ok(RevokeKeyResult { revoked: revoked.map_err(wire)? })
}

/// A key as it is shown, without its secret.
pub fn key_entry(key: &KeyRecord) -> KeyEntry {
    KeyEntry {
        name: key.name.clone(),
        methods: key.methods.clone(),
        agent_id: key.agent.as_ref().map(|agent| agent.id.to_string()),
        created_at: key.created_at.to_string(),
        expires_at: key.expires_at.to_string(),
    }
}
