//! Ending agents for good.

use std::collections::HashSet;
use std::sync::Arc;

use super::{AccessError, Lifecycle};
use crate::agent::Agent;
use crate::authority::{Action, Requester};
use crate::detached;
use crate::directory::Claim;
use crate::name::AgentId;
use crate::store::StoreError;
use crate::watch::Event;

impl Lifecycle {
    /// Ends an agent and its descendants for good; their turns are cancelled, and over when this returns. Returns who
    /// went, the agent first; nobody when there was no such agent. Costs as much as the family is large.
    pub async fn destroy(
        self: &Arc<Self>,
        requester: &Requester,
        id: &AgentId,
    ) -> Result<Vec<AgentId>, AccessError> {
        self.release_lost();
        if *requester != Requester::Administrator {
            self.kin.authorize(requester, Action::Manage, id).await?;
        }
        let (this, id) = (self.clone(), id.clone());
        Ok(detached(async move { this.end(&id).await }).await?)
    }

    async fn end(&self, id: &AgentId) -> Result<Vec<AgentId>, StoreError> {
        // One that is being renamed would be ended here while it lives on in the store.
        let claim = self.directory.claim(id).await;
        let family = self.directory.family(id);
        if id.is_temp() && family.is_empty() {
            return Ok(Vec::new());
        }
        let gone: Vec<_> = family.iter().map(Agent::snapshot).collect();
        let ended = self.end_stored(id, &family).await?;
        self.spending.settle(&gone).await;
        if ended.is_empty() && !id.is_temp() {
            // Another process has ended it; what is left of it here goes too.
            self.forget(claim, std::slice::from_ref(id)).await;
            return Ok(Vec::new());
        }
        Ok(self.forget(claim, &ended).await)
    }

    /// Of the family, the store is asked to end what it knows of: permanent agents, and what temporary ones asked for.
    pub(super) async fn end_stored(
        &self,
        id: &AgentId,
        family: &[Agent],
    ) -> Result<Vec<AgentId>, StoreError> {
        let asked = family.iter().filter(|agent| agent.has_asked()).map(Agent::id);
        let mut ids: Vec<_> = asked.filter(AgentId::is_temp).collect();
        if !id.is_temp() {
            ids.insert(0, id.clone());
        }
        let mut ended = match ids.is_empty() {
            true => Vec::new(),
            false => self.store.destroy(ids).await?,
        };
        if id.is_temp() {
            ended.retain(|ended| ended != id);
            ended.insert(0, id.clone());
        }
        Ok(ended)
    }

    /// Ends agents in memory, with what is live beneath them, and waits until they are over. Returns them all. The name by
    /// which they were ended is free before that.
    pub(crate) async fn forget(&self, claim: Claim, ended: &[AgentId]) -> Vec<AgentId> {
        let removed = self.directory.remove(ended);
        drop(claim);
        let known: HashSet<_> = ended.iter().collect();
        let beneath = removed.iter().map(|(id, _)| id).filter(|id| !known.contains(id));
        let all: Vec<_> = ended.iter().chain(beneath).cloned().collect();
        for (_, agent) in &removed {
            agent.over().await;
        }
        for id in &all {
            self.hooks.watches.tell(id, None, || Event::AgentEnded);
        }
        all
    }
}
