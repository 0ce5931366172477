//! Room for what agents make themselves. The administrator is not bound.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::{AccessError, Lifecycle};
use crate::account::Exceeded;
use crate::authority::{Action, Requester};
use crate::name::AgentId;
use crate::store::Census;

/// Leave to make one more. Held until that is made: whoever counts next has to find it.
pub(crate) struct Room {
    _making: Option<OwnedMutexGuard<()>>,
}

impl Lifecycle {
    /// Room for one more agent beneath `parent`, or without one for a saved session, in the tree of the agent that makes
    /// it.
    pub(crate) async fn room(
        self: &Arc<Self>,
        requester: &Requester,
        parent: Option<&AgentId>,
    ) -> Result<Room, AccessError> {
        let Requester::Agent(own) = requester else { return Ok(Room { _making: None }) };
        let account = self.find(requester, own, Action::Read).await?.account().clone();
        account.check_memory()?;
        let making = account.make().await;
        let above = self.kin.ancestors(own).await?;
        let root = above.last().map_or(own, |root| &root.id);
        let bounds = account.bounds();
        let Census { children, tree } = self.census(root, parent, bounds.agents_max).await?;
        if let Some(parent) = parent
            && children >= bounds.children_max
        {
            let max = bounds.children_max;
            return Err(Exceeded::Children { parent: parent.clone(), max }.into());
        }
        if tree >= bounds.agents_max {
            let max = bounds.agents_max;
            return Err(Exceeded::Agents { root: root.clone(), max }.into());
        }
        Ok(Room { _making: Some(making) })
    }

    /// Counts those that are stored, and with them the temporary ones, which live here or nowhere, up to `most` of either.
    async fn census(
        &self,
        root: &AgentId,
        parent: Option<&AgentId>,
        most: usize,
    ) -> Result<Census, AccessError> {
        // Nobody beneath a temporary agent is stored.
        let mut census = match root.is_temp() {
            true => Census::default(),
            false => self.store.census(root, parent, most).await?,
        };
        if let Some(parent) = parent {
            let temporary = self.directory.temporary_children(parent);
            census.children += usize::try_from(temporary).unwrap_or(usize::MAX);
        }
        census.tree += self.directory.temporary_in_tree(root, most.saturating_add(1));
        Ok(census)
    }
}
