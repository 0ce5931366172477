//! What is remembered about people and chats.

use jiff::Timestamp;
use nexus_core::memory::{Found, Identity, NewMemory};
use nexus_core::store::{MemoryRecord, MemoryScope};
use nexus_protocol::RpcError;
use nexus_protocol::memory::{
    FoundMemory, ListedMemory, MemoryAdd, MemoryAddParams, MemoryDelete, MemoryDeleteParams,
    MemoryDeleteResult, MemoryEntry, MemoryList, MemoryListParams, MemoryMetadata, MemorySearch,
    MemorySearchParams,
};
use nexus_protocol::params::NonBlank;
use serde::Serialize;

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

const SEARCH_LIMIT: u32 = 10;
const LIST_LIMIT: u32 = 20;

/// Who told it, when nobody says so.
const SOURCE: &str = "rpc";

/// What of an answer is none of its entries.
const ENVELOPE_BYTES: usize = 4 << 10;

pub fn register(table: &mut Table) {
    table.on::<MemoryAdd, _, _>(add);
    table.on::<MemorySearch, _, _>(search);
    table.on::<MemoryList, _, _>(list);
    table.on::<MemoryDelete, _, _>(delete);
}

async fn add(cx: Cx, params: MemoryAddParams) -> Result<MemoryEntry, RpcError> {
    let who = speaker(&cx, params.user_id, params.chat_id, params.context_token).await?;
    let new = NewMemory {
        content: params.content.into_string(),
        source: given(params.source).unwrap_or_else(|| SOURCE.into()),
        expires_days: params.expires_days,
        subjects: params
            .subjects
            .unwrap_or_default()
            .into_iter()
            .map(NonBlank::into_string)
            .collect(),
        shared: params.shared.unwrap_or(false),
        of_guest: cx.caller.behalf.as_ref().is_some_and(|behalf| behalf.door().is_some()),
    };
    let memories = &cx.services().engine.memories;
    let kept = memories.add(&cx.caller.requester, &who, new).await.map_err(wire)?;
    Ok(MemoryEntry {
        id: kept.id.to_string(),
        shared: is_shared(&kept),
        content: kept.content,
        source: kept.source,
        created_at: kept.created_at.to_string(),
        expires_at: moment(kept.expires_at),
        subjects: kept.subjects,
    })
}

async fn search(cx: Cx, params: MemorySearchParams) -> Result<Vec<FoundMemory>, RpcError> {
    let who = speaker(&cx, params.user_id, params.chat_id, params.context_token).await?;
    let limit = params.limit.map_or(SEARCH_LIMIT, |limit| limit.get());
    let query = params.query.into_string();
    let found = cx.services().engine.memories.search(&who, &query, limit).await.map_err(wire)?;
    Ok(fitting(found.into_iter().map(found_entry), cx.caller.answer_bytes_max))
}

async fn list(cx: Cx, params: MemoryListParams) -> Result<Vec<ListedMemory>, RpcError> {
    let who = speaker(&cx, params.user_id, params.chat_id, params.context_token).await?;
    let limit = params.limit.map_or(LIST_LIMIT, |limit| limit.get());
    let (expired, bytes_max) =
        (params.include_expired.unwrap_or(false), cx.caller.answer_bytes_max);
    let memories = &cx.services().engine.memories;
    let listed = memories.list(&who, limit, expired, bytes_max).await.map_err(wire)?;
    Ok(fitting(listed.into_iter().map(listed_entry), bytes_max))
}

async fn delete(cx: Cx, params: MemoryDeleteParams) -> Result<MemoryDeleteResult, RpcError> {
    let who = speaker(&cx, params.user_id, params.chat_id, params.context_token).await?;
    let id = params.memory_id.into_string();
    let memories = &cx.services().engine.memories;
    let deleted = memories.delete(&cx.caller.requester, &who, &id).await.map_err(wire)?;
    Ok(MemoryDeleteResult { deleted })
}

/// On whose behalf a call asks: as a token or its socket says, else as it says itself, if it may.
async fn speaker(
    cx: &Cx,
    user: Option<String>,
    chat: Option<String>,
    token: Option<String>,
) -> Result<Identity, RpcError> {
    let (services, now) = (cx.services(), Timestamp::now());
    let verify = |token: String| {
        let tokens = services.context_tokens.as_ref();
        tokens
            .and_then(|tokens| tokens.verify(&token, now).ok())
            .ok_or_else(|| services.failures.refusal(RpcError::identity_failed()))
    };
    let token = given(token).map(verify).transpose()?;
    let behalf = match &cx.caller.behalf {
        Some(behalf) => behalf.speaker(token, now)?,
        None => token.map(|claims| claims.identity),
    };
    match behalf {
        Some(identity) => Ok(identity),
        None => {
            let named = Identity { user: given(user), chat: given(chat) };
            services.engine.memories.speaker(&cx.caller.requester, named).await.map_err(wire)
        }
    }
}

/// What says nothing is absent.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// As many entries from the first as an answer has room for. What is too large for the rest of it hides nothing behind it.
fn fitting<T: Serialize>(entries: impl Iterator<Item = T>, bytes_max: usize) -> Vec<T> {
    let mut room = bytes_max.saturating_sub(ENVELOPE_BYTES);
    entries
        .filter(|entry| {
            let bytes = serde_json::to_vec(entry).map_or(usize::MAX, |json| json.len() + 1);
            let left = room.checked_sub(bytes);
            room = left.unwrap_or(room);
            left.is_some()
        })
        .collect()
}

fn found_entry(found: Found) -> FoundMemory {
    let Found { memory, similarity } = found;
    FoundMemory {
        id: memory.id.to_string(),
        similarity: f64::from(similarity),
        source: memory.source.clone(),
        created_at: memory.created_at.to_string(),
        metadata: MemoryMetadata {
            shared: is_shared(&memory),
            expires_at: moment(memory.expires_at),
            supersedes: memory.supersedes.iter().map(ToString::to_string).collect(),
            subjects: memory.subjects,
        },
        content: memory.content,
    }
}

fn listed_entry(memory: MemoryRecord) -> ListedMemory {
    ListedMemory {
        id: memory.id.to_string(),
        content: memory.content,
        source: memory.source,
        created_at: memory.created_at.to_string(),
        expires_at: moment(memory.expires_at),
        subjects: memory.subjects,
    }
}

fn is_shared(memory: &MemoryRecord) -> bool {
    matches!(memory.scope, MemoryScope::Chat(_))
}

fn moment(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}
