//! Watching agents. The call lasts as long as the watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use nexus_core::authority::Action;
use nexus_core::watch::{Interest, Over, Owner, Watch};
use nexus_core::watching::{Outset, WatchSpec};
use nexus_core::{AgentId, Requester};
use nexus_protocol::RpcError;
use nexus_protocol::watch::{
    Event, Unwatch, UnwatchParams, UnwatchResult, WATCHER_NAME_CHARS_MAX, Watch as WatchMethod,
    WatchParams, WatchResult,
};

use super::agent_id;
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;
use crate::watch::{Feed, of_message, of_server, snapshots};

/// Messages that are read at once for a client that has missed some, and their bytes.
const MISSED_AT_ONCE: u32 = 100;
const MISSED_BYTES_MAX: usize = 1 << 20;

/// Agents that one call may name.
const AGENTS_MAX: usize = 1_000;

pub fn register(table: &mut Table) {
    table.on::<WatchMethod, _, _>(watch);
    table.on::<Unwatch, _, _>(unwatch);
}

async fn watch(cx: Cx, params: WatchParams) -> Result<WatchResult, RpcError> {
    let Some(peer) = cx.caller.peer.clone() else {
        let why = "watch tells by notifications, and this call has no way back for them: over HTTP, send \
                   Accept: text/event-stream";
        return Err(RpcError::invalid_params(why));
    };
    let spec = spec(&params)?;
    let after = cursors(&spec, params.after)?;
    let owner =
        Owner { requester: cx.caller.requester.clone(), connection: Arc::as_ptr(&peer).addr() };
    let (mut watch, standing) =
        cx.services().engine.watching.open(owner, spec).await.map_err(wire)?;
    let mut feed = Feed::open(peer, watch.id(), cx.request_id.as_ref());
    let (lane, services) = (feed.lane(), cx.services());
    let over = tokio::select! {
        biased;
        // Nobody is left to be told why.
        () = lane.closed() => Ok(Over::Unwatched),
        () = lane.overrun() => Ok(Over::Gap),
        () = services.signatures.ended(&services.engine, &cx.caller.signer) => Ok(Over::Gone),
        over = tell(&cx, &mut watch, &mut feed, standing, after) => over,
    }?;
    drop(watch);
    let reason = match over {
        Over::Gap => {
            feed.put_last(&of_server(Event::Gap {}));
            "gap"
        }
        Over::Unwatched => "unwatched",
        Over::Gone => "gone",
        Over::Stopping => "stopping",
    };
    Ok(WatchResult { watch_id: feed.id().into(), reason: reason.into(), events: feed.count() })
}

/// Tells how things stand, what the client has missed, and then what happens, at the pace of its reader.
async fn tell(
    cx: &Cx,
    watch: &mut Watch,
    feed: &mut Feed,
    standing: Outset,
    after: BTreeMap<AgentId, u64>,
) -> Result<Over, RpcError> {
    let services = cx.services();
    let counts = standing.agents.iter().map(|it| &it.card.record);
    let counts = counts.filter(|record| after.contains_key(&record.id));
    let missed: Vec<_> =
        counts.map(|it| (it.id.clone(), after[&it.id], it.message_count)).collect();
    for snapshot in snapshots(&services.engine, standing) {
        feed.put(of_server(Event::Snapshot(snapshot))).await;
    }
    for (agent, from, to) in missed {
        catch_up(cx, feed, &agent, from, to).await?;
    }
    loop {
        match watch.next().await {
            Ok(happening) => feed.put_shared(&services.engine, &happening).await,
            Err(over) => return Ok(over),
        }
    }
}

/// Sends the messages of an agent from `from` up to `to`, which the client was told it had.
async fn catch_up(
    cx: &Cx,
    feed: &mut Feed,
    id: &AgentId,
    mut from: u64,
    to: u64,
) -> Result<(), RpcError> {
    let engine = &cx.services().engine;
    let agent = engine.agents.find(&cx.caller.requester, id, Action::Read).await.map_err(wire)?;
    while from < to {
        let limit = u32::try_from(to - from).unwrap_or(u32::MAX).min(MISSED_AT_ONCE);
        let page =
            engine.agents.history(&agent, from, limit, MISSED_BYTES_MAX).await.map_err(wire)?;
        if page.messages.is_empty() {
            return Ok(());
        }
        for message in &page.messages {
            feed.put(of_message(id, from, message)).await;
            from += 1;
        }
    }
    Ok(())
}

fn spec(params: &WatchParams) -> Result<WatchSpec, RpcError> {
    let named = params.agents.as_deref();
    if named.is_some_and(|agents| agents.is_empty() || agents.len() > AGENTS_MAX) {
        let rule = format!("agents names 1 to {AGENTS_MAX} agents; all when absent");
        return Err(RpcError::invalid_param("/agents", rule));
    }
    let parse = |(index, name): (usize, &String)| {
        let at = |error| RpcError::invalid_param(format!("/agents/{index}"), format!("{error}"));
        AgentId::parse(name).map_err(at)
    };
    let agents = named.map(|agents| agents.iter().enumerate().map(parse).collect::<Result<_, _>>());
    let name = params.name.as_deref().unwrap_or_default();
    if name.chars().count() > WATCHER_NAME_CHARS_MAX || name.chars().any(char::is_control) {
        let rule = format!(
            "name has at most {WATCHER_NAME_CHARS_MAX} characters, none of them a control character"
        );
        return Err(RpcError::invalid_param("/name", rule));
    }
    Ok(WatchSpec {
        agents: agents.transpose()?,
        descendants: params.descendants.unwrap_or(false),
        interest: Interest {
            deltas: params.deltas.unwrap_or(true),
            approver: params.approver.unwrap_or(false),
            name: params.name.clone(),
        },
    })
}

/// The first message of each agent that the client has not.
fn cursors(
    spec: &WatchSpec,
    after: Option<BTreeMap<String, i64>>,
) -> Result<BTreeMap<AgentId, u64>, RpcError> {
    let after = after.unwrap_or_default();
    if after.len() > AGENTS_MAX {
        let rule = format!("after names at most {AGENTS_MAX} agents");
        return Err(RpcError::invalid_param("/after", rule));
    }
    let cursor = |(name, index): (String, i64)| {
        let id = agent_id("after", &name)?;
        let at = |rule: &str| RpcError::invalid_param(format!("/after/{name}"), rule);
        let named = spec.agents.as_ref().is_none_or(|agents| agents.contains(&id));
        if !named && !spec.descendants {
            return Err(at("after names an agent that is not watched"));
        }
        let next = index.checked_add(1).and_then(|next| u64::try_from(next).ok());
        Ok((id, next.ok_or_else(|| at("the index of a message is -1 or more"))?))
    };
    after.into_iter().map(cursor).collect()
}

async fn unwatch(cx: Cx, params: UnwatchParams) -> Result<UnwatchResult, RpcError> {
    let number = Feed::number(&params.watch_id);
    let watches = cx.services().engine.watching.watches();
    let requester: &Requester = &cx.caller.requester;
    Ok(UnwatchResult { ended: number.is_some_and(|number| watches.unwatch(requester, number)) })
}
