//! Making, finding, listing, ending and unloading agents: the one owner of their lives.
//!
//! What changes more than memory runs on a task of its own, which the caller can leave at any time: it comes to its end
//! all the same, and what it left in the store and in memory agree.

mod create;
mod end;
mod finish;
mod history;
mod idle;
mod lend;
mod list;
mod room;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::account::{Account, Exceeded};
use crate::agent::{Agent, Gone, Hooks, Snapshot};
use crate::authority::{Action, Denied, Requester};
use crate::conversation::Conversation;
use crate::detached;
use crate::directory::{Claim, Directory};
use crate::kin::{AuthorizeError, Kin};
use crate::name::AgentId;
use crate::permission::Preset;
use crate::provider::Models;
use crate::spending::Spending;
use crate::store::{AgentRecord, Lease, Store, StoreError, StoredAgent};
use crate::watch::Event;

pub(crate) use create::check_tools;
pub use create::{AgentSpec, CreateError};
pub use history::HistoryPage;
pub use list::{Card, CardPage, ListQuery, Status};
pub(crate) use room::Room;

pub struct Lifecycle {
    pub(crate) directory: Arc<Directory>,
    pub(crate) kin: Arc<Kin>,
    pub(crate) spending: Arc<Spending>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) hooks: Hooks,
    pub(crate) rules: Rules,
    /// How far `Store::void_through` has been heeded.
    pub(crate) released: AtomicU64,
    /// Cancelled when this program is to stop.
    pub(crate) stop: CancellationToken,
}

/// What agents are made by.
pub struct Rules {
    /// Where agents work that were given no directory.
    pub cwd: PathBuf,
    /// Never open to any agent: the program's own files, with which one could become the administrator.
    pub protected: BTreeSet<PathBuf>,
    pub default_preset: String,
    /// Presets of the configuration, beside the built-in ones.
    pub presets: HashMap<String, Preset>,
    /// The names of the tools that change files, for presets that have none of them.
    pub write_tools: BTreeSet<String>,
}

/// Why an agent cannot be had.
#[derive(Debug, Clone, Error)]
pub enum AccessError {
    #[error("unknown agent: {0}")]
    Unknown(AgentId),
    #[error(transparent)]
    Denied(#[from] Denied),
    /// A bound of the tree that the calling agent belongs to.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<AuthorizeError> for AccessError {
    fn from(error: AuthorizeError) -> Self {
        match error {
            AuthorizeError::Denied(denied) => Self::Denied(denied),
            AuthorizeError::Store(error) => Self::Store(error),
        }
    }
}

impl Lifecycle {
    /// The agent `id`, if `requester` may do `action` to it. A stored agent is restored first, and the administrator's
    /// first use of the default agent makes it.
    pub async fn agent(
        self: &Arc<Self>,
        requester: &Requester,
        id: &AgentId,
        action: Action,
    ) -> Result<Agent, CreateError> {
        match self.find(requester, id, action).await {
            Err(AccessError::Unknown(_))
                if *requester == Requester::Administrator && *id == AgentId::default_agent() =>
            {
                // On the heap: every call on an agent would carry the room for it.
                Box::pin(self.make_default(requester, action)).await
            }
            found => Ok(found?),
        }
    }

    async fn make_default(
        self: &Arc<Self>,
        requester: &Requester,
        action: Action,
    ) -> Result<Agent, CreateError> {
        let id = AgentId::default_agent();
        let spec = AgentSpec { name: Some(id.as_str().into()), ..AgentSpec::default() };
        match self.create(requester, spec).await {
            // Another caller was first.
            Err(CreateError::Exists(_)) => Ok(self.find(requester, &id, action).await?),
            made => made,
        }
    }

    /// As `agent`, of one that was made already.
    pub async fn find(
        self: &Arc<Self>,
        requester: &Requester,
        id: &AgentId,
        action: Action,
    ) -> Result<Agent, AccessError> {
        self.release_lost();
        // Before anything is restored: whoever may not touch an agent must not make this process take its lease.
        if *requester != Requester::Administrator {
            self.kin.authorize(requester, action, id).await?;
        }
        match self.directory.live(id) {
            Some(agent) => Ok(agent),
            None => Box::pin(self.restore(requester, id)).await,
        }
    }

    /// Where agents work that were given no directory.
    pub fn cwd(&self) -> &Path {
        &self.rules.cwd
    }

    /// The agent of that name, if it is in memory. For callers that know who may see it.
    pub fn live(&self, id: &AgentId) -> Option<Agent> {
        self.directory.live(id)
    }

    /// Whether there is an agent of that name, as far as `requester` can tell. An agent is not told: what it may not touch
    /// has to look the same to it, whether it is there or not, so it learns of either by being refused.
    pub async fn knows(&self, requester: &Requester, id: &AgentId) -> Result<bool, StoreError> {
        match requester {
            Requester::Agent(_) => Ok(true),
            Requester::Administrator if *id == AgentId::default_agent() => Ok(true),
            Requester::Administrator => Ok(self.born(id).await?.is_some()),
        }
    }

    /// What tells the agent from others that had its name; `None` when there is none.
    pub async fn born(&self, id: &AgentId) -> Result<Option<u64>, StoreError> {
        if let Some(agent) = self.directory.live(id) {
            return Ok(Some(agent.look().born));
        }
        if id.is_temp() {
            return Ok(None);
        }
        let lineage = self.store.lineage(id).await?;
        Ok(lineage.first().map(|record| record.born))
    }

    /// As `born`, for whoever checks tokens: while the store cannot say, no token is known.
    pub fn birth(self: Arc<Self>, id: AgentId) -> BoxFuture<'static, Option<u64>> {
        async move { self.born(&id).await.unwrap_or_default() }.boxed()
    }

    async fn restore(
        self: &Arc<Self>,
        requester: &Requester,
        id: &AgentId,
    ) -> Result<Agent, AccessError> {
        if id.is_temp() {
            return Err(AccessError::Unknown(id.clone()));
        }
        if let Requester::Agent(own) = requester
            && let Some(own) = self.directory.account_of(own)
        {
            // What it brings into memory is counted there.
            own.check_memory()?;
        }
        let (this, id) = (self.clone(), id.clone());
        detached(async move {
            let claim = this.directory.claim(&id).await;
            if let Some(agent) = this.directory.live(&id) {
                return Ok(agent);
            }
            let unknown = || AccessError::Unknown(id.clone());
            claim.follow();
            let stored = this.store.acquire(&id).await?.ok_or_else(unknown)?;
            let agent = this.settle_in(&claim, stored, None).await.ok_or_else(unknown)?;
            let record = || Event::AgentChanged { record: Box::new(agent.look().record()) };
            this.hooks.watches.tell(&id, None, record);
            Ok(agent)
        })
        .await
    }

    /// Starts an agent that lies in the store and is held, and puts it where others find it. `None` when it was ended
    /// meanwhile.
    pub(crate) async fn settle_in(
        &self,
        claim: &Claim,
        stored: StoredAgent,
        parent: Option<&Agent>,
    ) -> Option<Agent> {
        let StoredAgent { record, lease, window } = stored;
        let (born, named) = (record.born, record.parent.clone());
        let account = self.account(&record, parent).await;
        let agent = self.start(record, account, Conversation::new(window), Some(lease));
        if self.directory.insert(claim, agent.clone(), named, parent).is_ok() {
            return Some(agent);
        }
        // Perhaps it was another of that name that ended, or its parent has a namesake by now, of whom it is a child.
        claim.follow();
        let stored = self.store.lineage(claim.id()).await.unwrap_or_default();
        if let Some(record) = stored.into_iter().next().filter(|record| record.born == born) {
            claim.spare();
            if self.directory.insert(claim, agent.clone(), record.parent, None).is_ok() {
                return Some(agent);
            }
        }
        agent.end(Gone::Ended);
        None
    }

    pub(crate) fn start(
        &self,
        record: AgentRecord,
        account: Arc<Account>,
        conversation: Conversation,
        lease: Option<Lease>,
    ) -> Agent {
        Agent::start(Snapshot::new(record, conversation, lease), account, self.hooks.clone())
    }

    /// Tells those who watch that there is a further agent.
    pub(crate) async fn tell_created(&self, agent: &Agent) {
        let watches = &self.hooks.watches;
        if !watches.is_watched() {
            return;
        }
        let id = agent.id();
        // While the store cannot say who is above it, those who watch them are not told.
        let above = self.kin.ancestors(&id).await.unwrap_or_default();
        let lineage = above.into_iter().map(|it| it.id).collect();
        let record = Box::new(agent.look().record());
        watches.tell(&id, None, || Event::AgentCreated { record, lineage });
    }

    /// The account of the tree that an agent belongs to, or is the root of.
    pub(crate) async fn account(
        &self,
        record: &AgentRecord,
        parent: Option<&Agent>,
    ) -> Arc<Account> {
        if let Some(parent) = parent {
            return parent.account().clone();
        }
        let Some(parent) = &record.parent else { return self.directory.account(&record.id) };
        if let Some(account) = self.directory.account_of(parent) {
            return account;
        }
        // While the store cannot say who is above the parent, nobody is: the agent is held already, and must not be lost
        // for an account.
        let line = self.kin.line(parent).await.unwrap_or_default();
        self.directory.account(line.last().map_or(parent, |root| &root.id))
    }

    /// Drops the agents that another process took over while this one was paused: what they are in this memory is old.
    pub(crate) fn release_lost(&self) {
        let void_through = self.store.void_through();
        if void_through.0 > self.released.load(Ordering::Acquire) {
            for lost in self.directory.lose(void_through) {
                self.hooks.watches.tell(&lost, None, || Event::AgentElsewhere);
            }
            self.released.fetch_max(void_through.0, Ordering::AcqRel);
        }
    }

    /// Changes with every change that a list of agents could show.
    pub fn version(&self) -> (u64, u64) {
        (self.directory.version().load(Ordering::Acquire), self.store.foreign_commits())
    }
}
