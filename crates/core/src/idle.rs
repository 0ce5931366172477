//! Agents that nobody asks for: they leave memory, so that it is bounded by what is active.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, future, stream};

use crate::agent::Agent;
use crate::engine::Engine;
use crate::name::AgentId;
use crate::store::StoreError;

/// Enough to fill a group of writes without keeping others from theirs.
const UNLOADED_AT_ONCE: usize = 64;

impl Engine {
    /// Lets agents out of memory that have been idle for so long, and gives their leases back; the next call restores
    /// them. Ends temporary agents that have been idle for `temp_idle`, with their children. Returns how many went.
    pub async fn sweep(&self, idle: Duration, temp_idle: Duration) -> usize {
        let idle_agents = names(self.pool.idle(idle)).filter(|id| !id.is_temp());
        // Together, so that they share the store's flushes.
        let unloaded = stream::iter(idle_agents)
            .map(|id| async move { self.unload(&id, idle).await })
            .buffer_unordered(UNLOADED_AT_ONCE)
            .filter(|unloaded| future::ready(*unloaded));
        let mut gone = unloaded.count().await;
        for id in names(self.pool.idle(temp_idle)).filter(AgentId::is_temp) {
            gone += self.end_idle(&id, temp_idle).await;
        }
        gone
    }

    async fn unload(&self, id: &AgentId, idle: Duration) -> bool {
        // Whoever wants the agent back meanwhile waits for its name, so the lease is not taken before it is returned.
        let _lifecycle = self.lifecycle.read().await;
        let _name = self.name_lock(id).await;
        let Some(agent) = self.pool.unload(id, idle) else { return false };
        if let Some(fence) = agent.fence() {
            match self.parts.store.release(id, fence).await {
                // A store that closes gives all leases back.
                Ok(()) | Err(StoreError::Closed) => {}
                // It stays ours, and is taken again without harm.
                Err(error) => {
                    tracing::warn!(agent = %id, %error, "the lease of an idle agent was not given back");
                }
            }
        }
        true
    }

    async fn end_idle(&self, id: &AgentId, idle: Duration) -> usize {
        let _alone = self.lifecycle.write().await;
        let family = self.pool.family(id);
        let is_idle = |id: &AgentId| self.pool.live(id).is_none_or(|agent| agent.is_idle(idle));
        match family.iter().all(is_idle) {
            // A temporary agent's children are temporary too, so the store knows none of them.
            true => self.forget(family, Vec::new()).len(),
            false => 0,
        }
    }
}

/// Names only: whoever held the agents here would keep them from being let go.
fn names(agents: Vec<Arc<Agent>>) -> impl Iterator<Item = AgentId> {
    let names: Vec<_> = agents.iter().map(|agent| agent.id()).collect();
    names.into_iter()
}
