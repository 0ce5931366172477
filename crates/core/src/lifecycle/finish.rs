//! Agents that are done, and the server with the last of them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{AccessError, Lifecycle};
use crate::authority::{Action, Denied, Requester};
use crate::name::AgentId;

impl Lifecycle {
    /// Marks an agent as done. When the administrator has marked the last of all agents, the server is asked to stop. What
    /// agents mark themselves stops nobody but them: an agent may end itself and what is beneath it, and no more.
    pub async fn shut_down(
        self: &Arc<Self>,
        requester: &Requester,
        id: &AgentId,
    ) -> Result<(), AccessError> {
        let agent = self.find(requester, id, Action::Manage).await?;
        agent.mark(true).await?;
        if *requester == Requester::Administrator && self.all_shut_down().await? {
            self.stop.cancel();
        }
        Ok(())
    }

    /// Asks whoever runs this program to stop it.
    pub fn request_stop(&self, requester: &Requester) -> Result<(), Denied> {
        requester.administrator_only("stop the server")?;
        self.stop.cancel();
        Ok(())
    }

    /// Cancelled when a stop was asked for.
    pub fn stop_requested(&self) -> &CancellationToken {
        &self.stop
    }
}
