//! Resources that a host wants to be told of when they change.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nexus_protocol::answer::WatchItem;
use nexus_protocol::api::Happenings as _;
use nexus_protocol::watch::{Event, WatchParams};
use nexus_protocol::{CallError, WatchApi};
use tokio_util::task::AbortOnDropHandle;

use super::resources::{Part, place};
use crate::begun;

/// Resources of one host at once.
pub const SUBSCRIPTIONS_MAX: usize = 64;

/// Those of a session, of the era that has sessions. They end with it.
#[derive(Clone, Default)]
pub struct Subscriptions {
    open: Arc<Mutex<HashMap<String, AbortOnDropHandle<()>>>>,
}

impl Subscriptions {
    /// False when there are too many.
    pub fn add(&self, uri: String, telling: impl FnOnce() -> AbortOnDropHandle<()>) -> bool {
        let mut open = self.lock();
        if open.len() >= SUBSCRIPTIONS_MAX && !open.contains_key(&uri) {
            return false;
        }
        open.insert(uri, telling());
        true
    }

    pub fn remove(&self, uri: &str) {
        self.lock().remove(uri);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells which of some resources have changed.
pub struct Changes<A: WatchApi> {
    watch: A::Watch,
    uris: Vec<String>,
}

impl<A: WatchApi> Changes<A> {
    pub async fn of(api: &A, uris: Vec<String>) -> Result<Self, CallError> {
        let agents = uris.iter().filter_map(|uri| place(uri)).map(|(agent, _)| agent.to_owned());
        let agents: BTreeSet<String> = agents.collect();
        let params = WatchParams {
            agents: Some(agents.into_iter().collect()),
            descendants: None,
            deltas: Some(false),
            after: None,
            approver: None,
            name: None,
        };
        Ok(Self { watch: begun::watch(api, params).await?, uris })
    }

    /// The next that changed; `None` when nothing is left to be told.
    pub async fn next(&mut self) -> Option<String> {
        while let Some(Ok(item)) = self.watch.next().await {
            let WatchItem::Event(event) = item else { continue };
            let part = match &event.happened.event {
                Event::Message { .. } => Part::Messages,
                Event::ApprovalRequested { .. } | Event::ApprovalDecided { .. } => Part::Approvals,
                _ => continue,
            };
            let Some(agent) = &event.happened.agent_id else { continue };
            let changed = self.uris.iter().find(|uri| place(uri) == Some((agent, part)));
            if let Some(uri) = changed {
                return Some(uri.clone());
            }
        }
        None
    }
}
