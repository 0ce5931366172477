//! Agents that nobody asks for: they leave memory, so that it is bounded by what is active.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, future, stream};

use super::{AccessError, Lifecycle};
use crate::agent::{Agent, Gone};
use crate::authority::{Action, Requester};
use crate::detached;
use crate::name::AgentId;
use crate::store::StoreError;

/// Enough to fill a group of writes without keeping others from theirs.
const UNLOADED_AT_ONCE: usize = 64;

impl Lifecycle {
    /// Lets agents out of memory that have been idle for so long, and gives their leases back; the next call restores
    /// them. Ends temporary agents that have been idle for `temp_idle`, with their children. Returns how many went.
    pub async fn sweep(self: &Arc<Self>, idle: Duration, temp_idle: Duration) -> usize {
        let permanent = self.directory.idle(idle).into_iter().filter(|id| !id.is_temp());
        // Together, so that they share the store's flushes.
        let unloaded = stream::iter(permanent)
            .map(|id| {
                let this = self.clone();
                detached(async move { this.unload(&id, idle).await })
            })
            .buffer_unordered(UNLOADED_AT_ONCE)
            .filter(|unloaded| future::ready(*unloaded));
        let mut gone = unloaded.count().await;
        for id in self.directory.idle(temp_idle).into_iter().filter(AgentId::is_temp) {
            let this = self.clone();
            gone += detached(async move { this.end_idle(&id, temp_idle).await }).await;
        }
        gone
    }

    /// Lets an agent and its descendants out of memory, but for those that work or are temporary and all above them.
    /// Returns who went.
    pub async fn release(
        self: &Arc<Self>,
        requester: &Requester,
        id: &AgentId,
    ) -> Result<Vec<AgentId>, AccessError> {
        self.kin.authorize(requester, Action::Manage, id).await?;
        if self.born(id).await?.is_none() {
            return Err(AccessError::Unknown(id.clone()));
        }
        let mut released = Vec::new();
        // Children first: whoever has some stays.
        let family = self.directory.family(id);
        for agent in family.iter().rev().map(Agent::id).filter(|id| !id.is_temp()) {
            let (this, name) = (self.clone(), agent.clone());
            if detached(async move { this.unload(&name, Duration::ZERO).await }).await {
                released.push(agent);
            }
        }
        Ok(released)
    }

    async fn unload(&self, id: &AgentId, idle: Duration) -> bool {
        // Whoever wants the agent back meanwhile waits for its name, so the lease is not taken before it is returned.
        let claim = self.directory.claim(id).await;
        let Some(agent) = self.directory.withdraw(&claim, idle) else { return false };
        match agent.leave().await {
            // A store that closes gives all leases back.
            Ok(()) | Err(StoreError::Closed) => {}
            // It stays ours, and is taken again without harm.
            Err(error) => {
                tracing::warn!(agent = %id, %error, "the lease of an idle agent was not given back");
            }
        }
        agent.end(Gone::Left);
        true
    }

    async fn end_idle(&self, id: &AgentId, idle: Duration) -> usize {
        let claim = self.directory.claim(id).await;
        let family = self.directory.family(id);
        // Nobody is left of one that went with its parent.
        if family.is_empty() || !family.iter().all(|agent| agent.is_idle(idle)) {
            return 0;
        }
        // A temporary agent's children are temporary too, so the store knows only what they asked for.
        match self.end_stored(id, &family).await {
            Ok(ended) => self.forget(claim, &ended).await.len(),
            Err(error) => {
                tracing::warn!(agent = %id, %error, "an idle temporary agent was not ended");
                0
            }
        }
    }
}
