//! Agents that are there for one piece of work.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{AgentSpec, CreateError, Lifecycle};
use crate::agent::Agent;
use crate::authority::Requester;
use crate::detached;

impl Lifecycle {
    /// Makes an agent for `work`, and ends it when that is over: also when nobody waits for it any more, and when it
    /// panics. What the work came to, and the agent as it was in the end.
    pub(crate) async fn lend<T: Send + 'static>(
        self: &Arc<Self>,
        requester: &Requester,
        spec: AgentSpec,
        work: impl FnOnce(Agent) -> BoxFuture<'static, T> + Send + 'static,
    ) -> Result<(T, Agent), CreateError> {
        let (this, requester) = (self.clone(), requester.clone());
        detached(async move {
            let agent = this.create(&requester, spec).await?;
            let lent = agent.clone();
            let ended = AssertUnwindSafe(async { work(lent).await }).catch_unwind().await;
            if let Err(error) = this.destroy(&requester, &agent.id()).await {
                tracing::warn!(%error, agent = %agent.id(), "an agent that was made for one piece of work was not ended");
            }
            match ended {
                Ok(outcome) => Ok((outcome, agent)),
                Err(panic) => resume_unwind(panic),
            }
        })
        .await
    }
}
