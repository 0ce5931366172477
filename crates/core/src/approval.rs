//! What waits for somebody's leave.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::agent::{Agent, Snapshot};
use crate::authority::{Action, Requester};
use crate::inquiry::{Asking, Complete, Reply};
use crate::kin::{AuthorizeError, Kin};
use crate::mcp::McpGrants;
use crate::name::{AgentId, TurnId};
use crate::permission::Grants;
use crate::preview::{Grant, Preview};
use crate::store::{
    ApprovalAnswer, ApprovalQuery, ApprovalRecord, ApprovalStatus, Holder, Settlement, Store,
    StoreError,
};
use crate::watch::{Event, Watches};
use crate::{detached, lock};

/// What is done with an action that needs approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Denied at once, and the model is told why: the way of a server that nobody watches.
    Deny,
    /// The turn waits for an answer so long, and then it is denied.
    Ask { timeout: Duration },
    /// The same while somebody watches who shows approvals to a person; otherwise denied at once.
    Auto { timeout: Duration },
}

impl ApprovalMode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask { .. } => "ask",
            Self::Auto { .. } => "auto",
        }
    }
}

/// An answer to a request for leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    AllowOnce,
    /// Allow it, and what is like it, as long as the agent lives.
    AllowSession,
    /// The same for all tools of the MCP server whose tool asks, as they are now.
    AllowServer,
    Deny,
}

/// An answer to an approval.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    Leave(Decision),
    /// A denial, and what the model is told beside it.
    Denial(String),
    /// To a question of a server.
    Reply(Reply),
}

impl From<Decision> for Response {
    fn from(decision: Decision) -> Self {
        Self::Leave(decision)
    }
}

#[derive(Debug, Clone, Error)]
pub enum RespondError {
    #[error("unknown approval: {0}")]
    Unknown(String),
    #[error("approval {0} was decided already")]
    Decided(String),
    #[error("approval {0} is being decided by another answer")]
    Deciding(String),
    #[error(
        "approval {0} is denied: the agent may not be given this any more, since it is trusted less by now or would touch something else"
    )]
    TooMuch(String),
    #[error("approval {id} waits in another process (process {})", .holder.pid)]
    Elsewhere { id: String, holder: Holder },
    #[error("an agent may not approve its own actions")]
    Own,
    #[error("approval {id} is {what}")]
    Unfit { id: String, what: &'static str },
    #[error(
        "approval {0} is not about a tool of an MCP server alone, so there are no others to allow"
    )]
    NoServer(String),
    #[error("{0}")]
    Form(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A question to somebody with the right to answer it.
pub(crate) struct Question {
    pub tool: String,
    pub arguments: Value,
    /// What is asked, for a person.
    pub reason: String,
    /// The turn that waits for the answer.
    pub turn: TurnId,
    /// How long it waits.
    pub patience: Duration,
    pub matter: Matter,
}

/// What is asked.
pub(crate) enum Matter {
    /// Leave for a call.
    Leave {
        /// What `AllowSession` adds to the agent.
        grant: Grants,
        preview: Option<Preview>,
        recheck: Recheck,
        siblings: Siblings,
    },
    /// What a server wants to know, whose call has its leave.
    Server(Asking),
}

/// Those for whom a turn is carried out, and the turns that it waits for: told of each question that has to be asked, and
/// perhaps with somebody among them who answers it.
#[derive(Clone)]
pub struct Announce {
    tell: Arc<dyn Fn(&ApprovalRecord) + Send + Sync>,
    person: Option<Person>,
}

impl Announce {
    pub fn new(
        tell: impl Fn(&ApprovalRecord) + Send + Sync + 'static,
        person: Option<Person>,
    ) -> Self {
        Self { tell: Arc::new(tell), person }
    }

    pub(crate) fn tell(&self, record: &ApprovalRecord) {
        (self.tell)(record);
    }

    pub(crate) fn person(&self) -> Option<&Person> {
        self.person.as_ref()
    }
}

/// Somebody who answers what a turn asks, for as long as they are there.
#[derive(Clone, Debug)]
pub struct Person(CancellationToken);

impl Person {
    /// One who is there until the guard is dropped.
    pub fn new() -> (Self, DropGuard) {
        let gone = CancellationToken::new();
        (Self(gone.clone()), gone.drop_guard())
    }

    fn is_there(&self) -> bool {
        !self.0.is_cancelled()
    }
}

/// Looks whether a question could still be asked, and returns the agent as it was then; `None` when it could not. It may
/// have waited for minutes, and whoever says yes says it of the agent as it is now.
pub(crate) type Recheck = Arc<dyn Fn() -> BoxFuture<'static, Rechecked> + Send + Sync>;

pub(crate) type Rechecked = Result<Option<Arc<Snapshot>>, StoreError>;

/// All tools of the MCP servers of which a question asks for one, as they are when somebody answers it.
pub(crate) type Siblings = Arc<dyn Fn() -> McpGrants + Send + Sync>;

/// How a question ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Denied(&'static str),
    /// With these words.
    DeniedWith(String),
}

/// Approvals on one page of those that were decided.
const PAGE: u32 = 1_000;

/// Who answered, where that was no agent.
const ADMINISTRATOR: &str = "administrator";

/// How long a decision that could not be written down waits before it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The approvals that wait in this process.
pub struct Approvals {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) kin: Arc<Kin>,
    pub(crate) mode: ApprovalMode,
    /// How long somebody is waited for who is there to answer, whatever the mode.
    pub(crate) timeout: Duration,
    pub(crate) waiting: Mutex<HashMap<String, Waiting>>,
    pub(crate) watches: Arc<Watches>,
}

/// A question that waits. Its agent and not its name: that may change.
pub(crate) struct Waiting {
    agent: Agent,
    record: ApprovalRecord,
    answers: Answers,
    /// Somebody's answer is being written down. Until it is, nothing is decided; if it cannot be, others may answer.
    deciding: bool,
    /// How it ended, once that is on disk.
    ended: watch::Sender<Option<Ended>>,
}

/// How a question is answered.
#[derive(Clone)]
enum Answers {
    Leave { grant: Grants, recheck: Recheck, siblings: Siblings },
    Form(Complete),
}

/// How a question ended. What stands in a form is for the server that asked, and is kept nowhere.
#[derive(Clone, Debug)]
struct Ended {
    answer: ApprovalAnswer,
    form: Map<String, Value>,
}

impl From<ApprovalAnswer> for Ended {
    fn from(answer: ApprovalAnswer) -> Self {
        Self { answer, form: Map::new() }
    }
}

impl Waiting {
    fn record(&self) -> ApprovalRecord {
        ApprovalRecord { agent: self.agent.id(), ..self.record.clone() }
    }
}

impl Approvals {
    /// How long a question may wait for its answer; or why none is asked.
    pub(crate) fn patience(&self, person: Option<&Person>) -> Result<Duration, &'static str> {
        match self.mode {
            _ if person.is_some_and(Person::is_there) => Ok(self.timeout),
            ApprovalMode::Ask { timeout } => Ok(timeout),
            ApprovalMode::Auto { timeout } if self.watches.has_approver() => Ok(timeout),
            ApprovalMode::Auto { .. } => {
                Err("it needs approval, and nobody watches who could give it (approvals: auto)")
            }
            ApprovalMode::Deny => Err(
                "it needs approval, and this server denies what needs approval (approvals: deny)",
            ),
        }
    }

    /// Asks for leave, and waits for the answer.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        agent: &Agent,
        question: Question,
        cancel: &CancellationToken,
        announce: &Announce,
    ) -> Result<Verdict, StoreError> {
        self.wait(agent, question, cancel, announce).await.map(verdict)
    }

    /// Puts a question of a server, and waits for the answer.
    pub(crate) async fn inquire(
        self: &Arc<Self>,
        agent: &Agent,
        question: Question,
        cancel: &CancellationToken,
        announce: &Announce,
    ) -> Result<Reply, StoreError> {
        let ended = self.wait(agent, question, cancel, announce).await?;
        let (status, form) = ended.map(|it| (it.answer.status, it.form)).unzip();
        Ok(match status {
            Some(ApprovalStatus::Accepted) => Reply::Accept(form.unwrap_or_default()),
            Some(ApprovalStatus::Declined) => Reply::Decline,
            _ => Reply::Cancel,
        })
    }

    /// Waits for the answer to a question. `announce` is told of the approval when it is stored. Waits no longer than
    /// `cancel` and the question's patience allow, but for an answer that is being written down. `None` when its place is
    /// gone with the server.
    async fn wait(
        self: &Arc<Self>,
        agent: &Agent,
        question: Question,
        cancel: &CancellationToken,
        announce: &Announce,
    ) -> Result<Option<Ended>, StoreError> {
        let patience = question.patience;
        let (asked, mut ended) = self.put(agent, question, announce).await?;
        let given_up = tokio::select! {
            biased;
            ended = decided(&mut ended) => return Ok(ended),
            () = cancel.cancelled() => ApprovalStatus::Cancelled,
            () = tokio::time::sleep(patience) => ApprovalStatus::TimedOut,
        };
        // Unless somebody's answer is being written down: then that decides, if it can be written.
        while !asked.give_up(given_up) {
            let changed = ended.changed().await;
            let found = ended.borrow_and_update().clone();
            if found.is_some() {
                return Ok(found);
            }
            if changed.is_err() {
                break;
            }
        }
        Ok(Some(ApprovalAnswer::from(given_up).into()))
    }

    /// Stores a question and lets it wait.
    async fn put(
        self: &Arc<Self>,
        agent: &Agent,
        question: Question,
        announce: &Announce,
    ) -> Result<(Asked, watch::Receiver<Option<Ended>>), StoreError> {
        let created_at = crate::now();
        let (answers, preview, inquiry) = match question.matter {
            Matter::Leave { grant, preview, recheck, siblings } => {
                (Answers::Leave { grant, recheck, siblings }, preview, None)
            }
            Matter::Server(Asking { inquiry, complete }) => {
                (Answers::Form(complete), None, Some(Arc::new(inquiry)))
            }
        };
        let mut record = ApprovalRecord {
            id: format!("appr_{:016x}", crate::random_number()),
            agent: agent.id(),
            born: agent.look().born,
            tool: question.tool,
            arguments: question.arguments,
            reason: question.reason,
            created_at,
            lineage: Vec::new(),
            turn: Some(question.turn),
            expires_at: created_at.checked_add(question.patience).ok(),
            grant: match &answers {
                Answers::Leave { grant, .. } => Grant::only(grant),
                Answers::Form(_) => None,
            },
            preview: preview.map(Arc::new),
            inquiry,
            answer: ApprovalStatus::Pending.into(),
        };
        agent.note_asked();
        let (sender, ended) = watch::channel(None);
        let (this, agent, announce) = (self.clone(), agent.clone(), announce.clone());
        let put = async move {
            let above = this.kin.ancestors(&record.agent).await.unwrap_or_default();
            record.lineage = above.into_iter().rev().map(|it| it.id).collect();
            this.store.put_approval(record.clone()).await?;
            let id = record.id.clone();
            let waiting =
                Waiting { agent, record: record.clone(), answers, deciding: false, ended: sender };
            lock(&this.waiting).insert(id.clone(), waiting);
            this.watches.tell(&record.agent, record.turn.as_ref(), || Event::ApprovalRequested {
                record: Box::new(record.clone()),
            });
            announce.tell(&record);
            // If nobody takes it, the question goes with it.
            Ok::<_, StoreError>(Asked { approvals: this, id })
        };
        Ok((detached(put).await?, ended))
    }

    /// What is done with what needs leave.
    pub fn mode(&self) -> ApprovalMode {
        self.mode
    }

    /// How many wait in this process.
    pub fn waiting_count(&self) -> usize {
        lock(&self.waiting).len()
    }

    /// The approvals `requester` may see, oldest first; of one agent, where one is named. Those that wait, in other
    /// processes too, and with `decided` all others.
    pub async fn list(
        &self,
        requester: &Requester,
        agent: Option<&AgentId>,
        decided: bool,
    ) -> Result<Vec<ApprovalRecord>, StoreError> {
        let records = match decided {
            true => self.stored(requester, agent, false).await?,
            false => {
                // First what is elsewhere: an agent that comes here meanwhile is not seen twice.
                let mut records = self.stored(requester, agent, true).await?;
                records.retain(|record| record.answer.status == ApprovalStatus::Pending);
                records.extend(self.waiting());
                records
            }
        };
        self.seen(requester, agent, records).await
    }

    /// Those of them that wait in this process.
    pub(crate) async fn list_here(
        &self,
        requester: &Requester,
    ) -> Result<Vec<ApprovalRecord>, StoreError> {
        self.seen(requester, None, self.waiting()).await
    }

    fn waiting(&self) -> Vec<ApprovalRecord> {
        lock(&self.waiting).values().map(Waiting::record).collect()
    }

    async fn seen(
        &self,
        requester: &Requester,
        agent: Option<&AgentId>,
        mut records: Vec<ApprovalRecord>,
    ) -> Result<Vec<ApprovalRecord>, StoreError> {
        records.retain(|record| agent.is_none_or(|agent| *agent == record.agent));
        let mut seen = Vec::with_capacity(records.len());
        for record in records {
            match self.kin.authorize(requester, Action::Read, &record.agent).await {
                Ok(()) => seen.push(record),
                Err(AuthorizeError::Denied(_)) => {}
                Err(AuthorizeError::Store(error)) => return Err(error),
            }
        }
        seen.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(seen)
    }

    async fn stored(
        &self,
        requester: &Requester,
        agent: Option<&AgentId>,
        elsewhere: bool,
    ) -> Result<Vec<ApprovalRecord>, StoreError> {
        let all = ApprovalQuery { elsewhere, ..ApprovalQuery::default() };
        let of = |agent: Option<AgentId>| ApprovalQuery { agent, ..all.clone() };
        let queries = match (agent, requester) {
            (Some(agent), _) => vec![of(Some(agent.clone()))],
            (None, Requester::Administrator) => vec![of(None)],
            // Of a temporary agent and its children the store knows no line.
            (None, Requester::Agent(own)) if own.is_temp() => {
                let family = self.kin.directory.family(own).into_iter();
                family.filter(Agent::has_asked).map(|it| of(Some(it.id()))).collect()
            }
            (None, Requester::Agent(own)) => {
                vec![ApprovalQuery { line_of: Some(own.clone()), ..all.clone() }]
            }
        };
        let mut records: Vec<ApprovalRecord> = Vec::new();
        for query in queries {
            let mut after = None;
            loop {
                let query = ApprovalQuery { after: after.take(), limit: PAGE, ..query.clone() };
                let page = self.store.approvals(query).await?;
                after = page.approvals.last().map(|record| record.id.clone());
                records.extend(page.approvals);
                if !page.more {
                    break;
                }
            }
        }
        records.retain(|record| self.is_of_the_living(record));
        Ok(records)
    }

    /// The store does not know when a temporary agent ends: what another one asked that had its name is no longer shown.
    fn is_of_the_living(&self, record: &ApprovalRecord) -> bool {
        let agent = &record.agent;
        let lives = |now: Arc<Snapshot>| now.born == record.born;
        !agent.is_temp() || self.kin.directory.peek(agent).is_some_and(lives)
    }

    /// Answers an approval. The administrator and the agent's ancestors may, the agent itself may not. When this fails
    /// because the answer could not be stored, nothing is decided.
    pub async fn respond(
        self: &Arc<Self>,
        requester: &Requester,
        id: &str,
        response: impl Into<Response>,
    ) -> Result<ApprovalRecord, RespondError> {
        let asking = lock(&self.waiting)
            .get(id)
            .map(|waiting| (waiting.agent.id(), waiting.answers.clone()));
        let Some((asking, answers)) = asking else {
            return Err(self.not_waiting(requester, id).await?);
        };
        self.authorize(requester, id, &asking).await?;
        if *requester == Requester::Agent(asking) {
            return Err(RespondError::Own);
        }
        let answered = answered(id, response.into(), answers)?;
        let Answered { status, message, form, of_server } = answered;
        let by = match requester {
            Requester::Administrator => ADMINISTRATOR.to_owned(),
            Requester::Agent(agent) => agent.to_string(),
        };
        let answer = ApprovalAnswer { status, by: Some(by), message };
        let (this, id) = (self.clone(), id.to_owned());
        detached(async move { this.decide(&id, Ended { answer, form }, of_server).await }).await
    }

    /// To whoever may not answer it, an approval looks the same as one that is not there.
    async fn authorize(
        &self,
        requester: &Requester,
        id: &str,
        asking: &AgentId,
    ) -> Result<(), RespondError> {
        match self.kin.authorize(requester, Action::Manage, asking).await {
            Ok(()) => Ok(()),
            Err(AuthorizeError::Denied(_)) => Err(RespondError::Unknown(id.into())),
            Err(AuthorizeError::Store(error)) => Err(error.into()),
        }
    }

    /// Writes an end down and, when it is on disk, tells the turn that waits. Of two at once, one decides.
    /// With `of_server` all tools of the server are granted beside the one that was asked for.
    async fn decide(
        &self,
        id: &str,
        said: Ended,
        of_server: bool,
    ) -> Result<ApprovalRecord, RespondError> {
        let Some(begun) = self.begin(id) else {
            return Err(match lock(&self.waiting).contains_key(id) {
                true => RespondError::Deciding(id.into()),
                false => RespondError::Decided(id.into()),
            });
        };
        let Ended { answer, form } = said;
        let status = answer.status;
        match self.settle_begun(id, answer, begun, of_server).await {
            Ok(settled) => {
                let ended = self.end(id, Ended { answer: settled, form });
                let ended = ended.ok_or_else(|| RespondError::Decided(id.into()))?;
                match ended.answer.status == status {
                    true => Ok(ended),
                    false => Err(RespondError::TooMuch(id.into())),
                }
            }
            Err(error) => {
                if let Some(waiting) = lock(&self.waiting).get_mut(id) {
                    waiting.deciding = false;
                    // Whoever waits for the outcome looks again.
                    waiting.ended.send_replace(None);
                }
                Err(error.into())
            }
        }
    }

    /// Writes an answer down, and returns how the question ended by it. Leave is given to the agent as it is now: where it
    /// could not be asked for any more, or the agent is changed in this moment, nothing is allowed.
    async fn settle_begun(
        &self,
        id: &str,
        answer: ApprovalAnswer,
        begun: Begun,
        of_server: bool,
    ) -> Result<ApprovalAnswer, StoreError> {
        let Begun { agent, answers } = begun;
        let Answers::Leave { mut grant, recheck, siblings } = answers else {
            return self.settle(id, answer).await;
        };
        if answer.status == ApprovalStatus::Denied {
            return self.settle(id, answer).await;
        }
        // Whoever answered has not denied it.
        let denied = ApprovalAnswer::from(ApprovalStatus::Denied);
        let Some(checked) = recheck().await? else { return self.settle(id, denied).await };
        if answer.status == ApprovalStatus::AllowedOnce {
            return self.settle(id, answer).await;
        }
        if of_server {
            grant.mcp.extend(siblings());
        }
        match agent.settle_approval(id.into(), answer.clone(), grant, checked).await? {
            true => Ok(answer),
            false => self.settle(id, denied).await,
        }
    }

    /// Begins to decide. `None` when somebody else does, or it is decided.
    fn begin(&self, id: &str) -> Option<Begun> {
        let mut waiting = lock(&self.waiting);
        let found = waiting.get_mut(id).filter(|found| !found.deciding)?;
        found.deciding = true;
        Some(Begun { agent: found.agent.clone(), answers: found.answers.clone() })
    }

    async fn settle(&self, id: &str, answer: ApprovalAnswer) -> Result<ApprovalAnswer, StoreError> {
        let settlement = Settlement { id: id.into(), answer: answer.clone(), grant: None };
        self.store.settle_approval(settlement).await.map(|()| answer)
    }

    fn end(&self, id: &str, ended: Ended) -> Option<ApprovalRecord> {
        let found = lock(&self.waiting).remove(id)?;
        let record = ApprovalRecord { answer: ended.answer.clone(), ..found.record() };
        self.watches.tell(&record.agent, record.turn.as_ref(), || Event::ApprovalDecided {
            record: Box::new(record.clone()),
        });
        // The turn may have ended in between; the decision stands all the same.
        found.ended.send_replace(Some(ended));
        Some(record)
    }

    /// Notes the end of a question that nobody waits for any more. Tried until it is written down: it would be shown as
    /// waiting.
    async fn settle_in_the_end(&self, id: &str, status: ApprovalStatus) {
        while let Err(error) = self.settle(id, status.into()).await {
            if matches!(error, StoreError::Closed) {
                // The next start finds it waiting in a process that is gone.
                break;
            }
            tracing::warn!(%error, "the end of an approval was not stored yet");
            tokio::time::sleep(RETRY).await;
        }
        self.end(id, ApprovalAnswer::from(status).into());
    }

    async fn not_waiting(
        &self,
        requester: &Requester,
        id: &str,
    ) -> Result<RespondError, RespondError> {
        let Some(stored) = self.store.approval(id).await? else {
            return Ok(RespondError::Unknown(id.into()));
        };
        self.authorize(requester, id, &stored.record.agent).await?;
        Ok(match stored.waits_in {
            Some(holder) => RespondError::Elsewhere { id: id.into(), holder },
            None => RespondError::Decided(id.into()),
        })
    }
}

/// A question that somebody began to decide.
struct Begun {
    agent: Agent,
    answers: Answers,
}

/// A question of a turn that may go away while it waits: it does not stay behind.
struct Asked {
    approvals: Arc<Approvals>,
    id: String,
}

impl Asked {
    /// Ends the question, unless somebody's answer is being written down.
    fn give_up(&self, status: ApprovalStatus) -> bool {
        if self.approvals.begin(&self.id).is_none() {
            return false;
        }
        let (approvals, id) = (self.approvals.clone(), self.id.clone());
        tokio::spawn(async move { approvals.settle_in_the_end(&id, status).await });
        true
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.give_up(ApprovalStatus::Cancelled);
    }
}

/// An answer as it is written down, and what is not.
struct Answered {
    status: ApprovalStatus,
    message: Option<String>,
    form: Map<String, Value>,
    /// It is for all tools of a server.
    of_server: bool,
}

/// What an answer comes to; or why the question is not answered by it.
fn answered(id: &str, response: Response, answers: Answers) -> Result<Answered, RespondError> {
    use ApprovalStatus::{Accepted, Cancelled, Declined, Denied};
    let unfit = |what| RespondError::Unfit { id: id.into(), what };
    let of_server = response == Response::Leave(Decision::AllowServer);
    let (status, message, form) = match (response, answers) {
        (Response::Leave(Decision::AllowServer), Answers::Leave { grant, .. })
            if !matches!(Grant::only(&grant), Some(Grant::Mcp { .. })) =>
        {
            return Err(RespondError::NoServer(id.into()));
        }
        (Response::Leave(decision), Answers::Leave { .. }) => (decision.status(), None, Map::new()),
        (Response::Denial(message), Answers::Leave { .. }) => (Denied, Some(message), Map::new()),
        (Response::Reply(reply), Answers::Form(complete)) => match reply {
            Reply::Accept(form) => (Accepted, None, complete(form).map_err(RespondError::Form)?),
            Reply::Decline => (Declined, None, Map::new()),
            Reply::Cancel => (Cancelled, None, Map::new()),
        },
        (Response::Reply(_), Answers::Leave { .. }) => {
            return Err(unfit(
                "a request for leave, which is answered by allow_once, allow_session or deny",
            ));
        }
        (Response::Leave(_) | Response::Denial(_), Answers::Form(_)) => {
            return Err(unfit(
                "a question of an MCP server, which is answered by accept, decline or cancel",
            ));
        }
    };
    Ok(Answered { status, message, form, of_server })
}

impl Decision {
    fn status(self) -> ApprovalStatus {
        match self {
            Self::AllowOnce => ApprovalStatus::AllowedOnce,
            Self::AllowSession | Self::AllowServer => ApprovalStatus::AllowedSession,
            Self::Deny => ApprovalStatus::Denied,
        }
    }
}

/// How a question ended; `None` when its place is gone with the server.
async fn decided(ended: &mut watch::Receiver<Option<Ended>>) -> Option<Ended> {
    ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone())
}

fn verdict(ended: Option<Ended>) -> Verdict {
    let (status, message) = ended.map(|it| (it.answer.status, it.answer.message)).unzip();
    if let Some(message) = message.flatten() {
        return Verdict::DeniedWith(message);
    }
    match status {
        Some(ApprovalStatus::AllowedOnce | ApprovalStatus::AllowedSession) => Verdict::Allowed,
        Some(ApprovalStatus::TimedOut) => Verdict::Denied("nobody approved it in time"),
        Some(ApprovalStatus::Cancelled) => Verdict::Denied("the turn was cancelled"),
        Some(ApprovalStatus::DeniedByRestart) | None => Verdict::Denied("the server stopped"),
        Some(_) => Verdict::Denied("it was denied"),
    }
}
