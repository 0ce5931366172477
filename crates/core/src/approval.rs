//! What waits for somebody's leave.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::authority::{Action, Denied, Requester};
use crate::engine::Engine;
use crate::lock;
use crate::name::AgentId;
use crate::permission::Grants;
use crate::store::{ApprovalRecord, ApprovalStatus, StoreError};

/// What is done with an action that needs approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Denied at once, and the model is told why: the way of a server that nobody watches.
    Deny,
    /// The turn waits for an answer so long, and then it is denied.
    Ask { timeout: Duration },
}

/// An answer to an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    AllowOnce,
    /// Allow it, and what is like it, as long as the agent lives.
    AllowSession,
    Deny,
}

#[derive(Debug, Clone, Error)]
pub enum RespondError {
    #[error("unknown approval: {0}")]
    Unknown(String),
    #[error("approval {0} was decided already")]
    Decided(String),
    #[error("approval {id} waits in another process ({owner})")]
    Elsewhere { id: String, owner: String },
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("an agent may not approve its own actions")]
    Own,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A question to somebody with the right to say yes.
#[derive(Clone, Debug)]
pub struct Question {
    pub agent: AgentId,
    pub tool: String,
    pub arguments: Value,
    /// What is asked, for a person.
    pub reason: String,
    /// What `AllowSession` adds to the agent.
    pub grant: Grants,
}

/// Tells whoever watches a turn of a question that it, or a turn that it waits for, has to ask.
pub type Announce = Arc<dyn Fn(&ApprovalRecord) + Send + Sync>;

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Denied(&'static str),
}

/// The approvals that wait in this process.
#[derive(Default)]
pub struct Approvals {
    waiting: Mutex<HashMap<String, Waiting>>,
    /// The temporary agents that asked: the store knows of them by this alone.
    temporary: Mutex<HashSet<AgentId>>,
}

impl Approvals {
    /// Questions of an agent that got another name are asked under that.
    pub(crate) fn rename(&self, from: &AgentId, to: &AgentId) {
        for waiting in lock(&self.waiting).values_mut().filter(|it| it.record.agent == *from) {
            waiting.record.agent = to.clone();
        }
    }
}

struct Waiting {
    record: ApprovalRecord,
    grant: Grants,
    answer: oneshot::Sender<Decision>,
}

impl Engine {
    /// Asks, and waits for the answer as the settings say. `announce` is told of the approval when it is stored.
    pub(crate) async fn ask(
        &self,
        question: Question,
        cancel: &CancellationToken,
        announce: &Announce,
    ) -> Result<Verdict, StoreError> {
        let ApprovalMode::Ask { timeout } = self.settings.approvals else {
            return Ok(Verdict::Denied(
                "it needs approval, and this server denies what needs approval (approvals: deny)",
            ));
        };
        let record = ApprovalRecord {
            id: new_id(),
            agent: question.agent.clone(),
            tool: question.tool,
            arguments: question.arguments,
            reason: question.reason,
            created_at: crate::now(),
            status: ApprovalStatus::Pending,
        };
        if record.agent.is_temp() {
            lock(&self.approvals.temporary).insert(record.agent.clone());
        }
        self.parts.store.put_approval(record.clone()).await?;
        let (answer, decision) = oneshot::channel();
        let place = Place { approvals: &self.approvals, id: record.id.clone() };
        lock(&self.approvals.waiting).insert(
            record.id.clone(),
            Waiting { record: record.clone(), grant: question.grant, answer },
        );
        announce(&record);
        let (status, verdict) = tokio::select! {
            biased;
            () = cancel.cancelled() => (ApprovalStatus::Cancelled, Verdict::Denied("the turn was cancelled")),
            () = self.slots.cancel_all.cancelled() => (ApprovalStatus::Cancelled, Verdict::Denied("the server stopped")),
            decision = decision => match decision {
                // Whoever answered has written the status down.
                Ok(Decision::AllowOnce | Decision::AllowSession) => return Ok(Verdict::Allowed),
                Ok(Decision::Deny) | Err(_) => return Ok(Verdict::Denied("it was denied")),
            },
            () = tokio::time::sleep(timeout) => (ApprovalStatus::TimedOut, Verdict::Denied("nobody approved it in time")),
        };
        drop(place);
        self.parts.store.settle_approval(&record.id, status).await?;
        Ok(verdict)
    }

    /// The approvals `requester` may see, oldest first; of one agent, where one is named. Those that wait, and with
    /// `decided` all others too.
    pub async fn list_approvals(
        &self,
        requester: &Requester,
        agent: Option<&AgentId>,
        decided: bool,
    ) -> Result<Vec<ApprovalRecord>, StoreError> {
        let mut records = if decided {
            self.parts.store.approvals().await?
        } else {
            lock(&self.approvals.waiting).values().map(|waiting| waiting.record.clone()).collect()
        };
        records.retain(|record| agent.is_none_or(|agent| *agent == record.agent));
        records.retain(|record| self.authorize(requester, Action::Read, &record.agent).is_ok());
        // What is older than its agent was asked by another of that name.
        records.retain(|record| {
            self.pool.born(&record.agent).is_none_or(|born| born <= record.created_at)
        });
        records.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(records)
    }

    /// Answers an approval. The administrator and the agent's ancestors may, the agent itself may not.
    pub async fn respond_approval(
        self: &Arc<Self>,
        requester: &Requester,
        id: &str,
        decision: Decision,
    ) -> Result<ApprovalRecord, RespondError> {
        let asking =
            lock(&self.approvals.waiting).get(id).map(|waiting| waiting.record.agent.clone());
        let Some(agent_id) = asking else { return Err(self.not_waiting(requester, id).await?) };
        self.authorize(requester, Action::Manage, &agent_id)?;
        if *requester == Requester::Agent(agent_id.clone()) {
            return Err(RespondError::Own);
        }
        // Taken out first: of two answers at once, one decides.
        let taken = lock(&self.approvals.waiting).remove(id);
        let waiting = taken.ok_or_else(|| RespondError::Decided(id.into()))?;
        let status = match decision {
            Decision::AllowOnce => ApprovalStatus::AllowedOnce,
            Decision::AllowSession => ApprovalStatus::AllowedSession,
            Decision::Deny => ApprovalStatus::Denied,
        };
        let record = ApprovalRecord { status, ..waiting.record };
        self.parts.store.settle_approval(id, status).await?;
        if decision == Decision::AllowSession
            && let Some(agent) = self.pool.live(&agent_id)
        {
            agent.grant(&*self.parts.store, waiting.grant).await?;
        }
        // The turn may have ended in between; the decision stands all the same.
        let _ = waiting.answer.send(decision);
        Ok(record)
    }

    async fn not_waiting(
        &self,
        requester: &Requester,
        id: &str,
    ) -> Result<RespondError, RespondError> {
        let Some(stored) = self.parts.store.approval(id).await? else {
            return Ok(RespondError::Unknown(id.into()));
        };
        self.authorize(requester, Action::Manage, &stored.record.agent)?;
        Ok(match stored.waits_in {
            Some(owner) => RespondError::Elsewhere { id: id.into(), owner },
            None => RespondError::Decided(id.into()),
        })
    }
}

impl Approvals {
    /// Whether the store may have something of an agent that ends.
    pub(crate) fn forget(&self, agent: &AgentId) -> bool {
        lock(&self.temporary).remove(agent)
    }
}

/// A question's place among those that wait; leaves it when dropped.
struct Place<'a> {
    approvals: &'a Approvals,
    id: String,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(&self.approvals.waiting).remove(&self.id);
    }
}

fn new_id() -> String {
    let mut bytes = [0_u8; 8];
    crate::fill_random(&mut bytes);
    format!("appr_{:016x}", u64::from_be_bytes(bytes))
}
