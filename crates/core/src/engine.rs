//! The agent domain as one value: everything a handler, a tool or the in-process API can ask for.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::approval::{ApprovalMode, Approvals};
use crate::authority::{Action, Denied, Requester, authorize};
use crate::compact::CompactionSettings;
use crate::create::{AgentSpec, CreateError};
use crate::logs::AgentLogs;
use crate::name::AgentId;
use crate::permission::Preset;
use crate::pool::{Card, Pool};
use crate::prompt::{Prompt, Prompts};
use crate::provider::{Models, ToolSpec};
use crate::store::{Store, StoreError};
use crate::tokens::TokenCounter;
use crate::tool::Toolbox;
use crate::turn::slots::Slots;
use crate::waits::Waits;

pub struct Engine {
    pub(crate) parts: Parts,
    pub(crate) settings: Settings,
    pub(crate) pool: Pool,
    pub(crate) slots: Slots,
    pub(crate) approvals: Approvals,
    pub(crate) waits: Waits,
    /// Making and restoring take it shared, destroying takes it alone: no child appears under a parent that goes.
    pub(crate) lifecycle: tokio::sync::RwLock<()>,
    /// One agent is made or restored by one caller at a time; the name's hash picks the lock.
    names: [tokio::sync::Mutex<()>; NAME_LOCKS],
    /// How far `Store::changes_elsewhere` has been heeded.
    refreshed: AtomicU64,
    /// How far `Store::void_through` has been heeded.
    released: AtomicU64,
    stop_requested: CancellationToken,
}

/// Locks that names share. More than callers usually have at once, so that they seldom meet by accident.
const NAME_LOCKS: usize = 64;

/// The traits of the core, filled.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub models: Arc<dyn Models>,
    pub prompts: Arc<dyn Prompts>,
    pub logs: Arc<dyn AgentLogs>,
    pub counter: Arc<dyn TokenCounter>,
    pub toolbox: Toolbox,
}

pub struct Settings {
    /// Where agents work that were given no directory.
    pub cwd: PathBuf,
    /// Never open to any agent: the program's own files, with which one could become the administrator.
    pub protected: BTreeSet<PathBuf>,
    pub default_preset: String,
    /// Presets of the configuration, beside the built-in ones.
    pub presets: HashMap<String, Preset>,
    pub max_tool_iterations: u32,
    pub max_concurrent_tools: usize,
    /// How long one tool call may take.
    pub tool_timeout: Duration,
    pub approvals: ApprovalMode,
    /// Whether agents below `yolo` may have the network at all.
    pub network: bool,
    /// Whether the kernel can hold commands within an agent's permissions.
    pub commands_confined: bool,
    /// What does that, in words.
    pub sandbox: String,
    pub compaction: CompactionSettings,
    /// Turns that run at once.
    pub max_concurrent: usize,
    /// Turns that may wait beside those that run.
    pub max_queued: usize,
}

/// Why an agent cannot be had.
#[derive(Debug, Clone, Error)]
pub enum AccessError {
    #[error("unknown agent: {0}")]
    Unknown(AgentId),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Opens the pool on what lies in the store.
    pub async fn open(parts: Parts, settings: Settings) -> Result<Arc<Self>, StoreError> {
        let pool = Pool::default();
        pool.insert_stored(parts.store.list().await?);
        Ok(Arc::new(Self {
            slots: Slots::new(settings.max_concurrent, settings.max_queued),
            approvals: Approvals::default(),
            waits: Waits::default(),
            parts,
            settings,
            pool,
            lifecycle: tokio::sync::RwLock::new(()),
            names: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            refreshed: AtomicU64::new(0),
            released: AtomicU64::new(0),
            stop_requested: CancellationToken::new(),
        }))
    }

    /// The agent `id`, if `requester` may do `action` to it. A stored agent is restored first.
    pub async fn agent(
        &self,
        requester: &Requester,
        id: &AgentId,
        action: Action,
    ) -> Result<Arc<Agent>, AccessError> {
        self.release_lost();
        // Before anything is restored: whoever may not touch an agent must not make this process take its lease.
        self.authorize(requester, action, id)?;
        match self.pool.live(id) {
            Some(agent) => {
                agent.touch();
                Ok(agent)
            }
            // On the heap: every call on an agent would carry the room for it.
            None => Box::pin(self.restore(id)).await,
        }
    }

    /// Drops the agents that another process took over while this one was paused: what they are in this memory is old.
    pub(crate) fn release_lost(&self) {
        let void_through = self.parts.store.void_through();
        if void_through.0 > self.released.load(Ordering::Acquire) {
            self.pool.release(void_through);
            self.released.fetch_max(void_through.0, Ordering::AcqRel);
        }
    }

    /// The agent of that name, if it is in memory. For callers that know who may see it.
    pub fn live_agent(&self, id: &AgentId) -> Option<Arc<Agent>> {
        self.pool.live(id)
    }

    /// Whether there is an agent of that name, as far as `requester` can tell.
    pub async fn knows(&self, requester: &Requester, id: &AgentId) -> bool {
        if self.pool.contains(id) || *requester != Requester::Administrator {
            return self.pool.contains(id);
        }
        !matches!(Box::pin(self.restore(id)).await, Err(AccessError::Unknown(_)))
    }

    /// The agent that answers when a caller names none. The administrator's first use makes it.
    pub async fn default_agent(
        &self,
        requester: &Requester,
        action: Action,
    ) -> Result<Arc<Agent>, CreateError> {
        let id = AgentId::default_agent();
        match self.agent(requester, &id, action).await {
            Err(AccessError::Unknown(_)) if *requester == Requester::Administrator => {
                let spec = AgentSpec { name: Some(id.as_str().into()), ..AgentSpec::default() };
                match Box::pin(self.create_agent(requester, spec)).await {
                    // Another caller was first.
                    Err(CreateError::Exists(_)) => Ok(self.agent(requester, &id, action).await?),
                    made => made,
                }
            }
            found => Ok(found?),
        }
    }

    pub(crate) fn authorize(
        &self,
        requester: &Requester,
        action: Action,
        id: &AgentId,
    ) -> Result<(), Denied> {
        let Requester::Agent(own) = requester else { return Ok(()) };
        let (ancestors, own_parent) = (self.pool.ancestors(id), self.pool.parent_of(own));
        authorize(requester, action, id, &ancestors, own_parent.as_ref())
    }

    async fn restore(&self, id: &AgentId) -> Result<Arc<Agent>, AccessError> {
        let unknown = || AccessError::Unknown(id.clone());
        if id.is_temp() {
            return Err(unknown());
        }
        let _lifecycle = self.lifecycle.read().await;
        let _name = self.name_lock(id).await;
        if let Some(agent) = self.pool.live(id) {
            return Ok(agent);
        }
        let Some(stored) = self.parts.store.acquire(id).await? else {
            self.pool.remove(id);
            return Err(unknown());
        };
        let agent = Agent::restored(stored, self.pool.version.clone());
        self.pool.insert(agent.clone());
        Ok(agent)
    }

    pub(crate) async fn name_lock(&self, id: &AgentId) -> tokio::sync::MutexGuard<'_, ()> {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(id);
        self.names[(hash % NAME_LOCKS as u64) as usize].lock().await
    }

    /// Ends an agent and its descendants for good; their turns are cancelled. Returns who went, the agent first;
    /// nobody when there was no such agent.
    pub async fn destroy_agent(
        &self,
        requester: &Requester,
        id: &AgentId,
    ) -> Result<Vec<AgentId>, AccessError> {
        match self.agent(requester, id, Action::Manage).await {
            Ok(_) => {}
            Err(AccessError::Unknown(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let _alone = self.lifecycle.write().await;
        let family = self.pool.family(id);
        let asked = |id: &&AgentId| !id.is_temp() || self.approvals.forget(id);
        let stored: Vec<_> = family.iter().filter(asked).cloned().collect();
        let gone = match stored.is_empty() {
            true => Vec::new(),
            false => self.parts.store.destroy(stored).await?,
        };
        Ok(self.forget(family, gone))
    }

    /// Ends agents in memory: those this process knew, and those the store found beside them. Returns them all.
    pub(crate) fn forget(&self, mut family: Vec<AgentId>, gone: Vec<AgentId>) -> Vec<AgentId> {
        let unseen: Vec<_> = gone.into_iter().filter(|id| !family.contains(id)).collect();
        family.extend(unseen);
        for agent in family.iter().filter_map(|id| self.pool.remove(id)) {
            agent.ended.cancel();
        }
        family
    }

    /// Learns of the agents that other processes on the same home have made, changed and ended. Costs nothing while they
    /// did not.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.release_lost();
        let changes = self.parts.store.changes_elsewhere();
        if changes == self.refreshed.load(Ordering::Acquire) {
            return Ok(());
        }
        // Shared, so that nothing is ended here between the two: it would come back.
        let _lifecycle = self.lifecycle.read().await;
        self.pool.replace_stored(self.parts.store.list().await?);
        self.refreshed.fetch_max(changes, Ordering::AcqRel);
        Ok(())
    }

    /// The agents `requester` may see: all for the administrator, its own line for an agent.
    pub fn list_agents(&self, requester: &Requester) -> Vec<Card> {
        let mut cards = self.pool.cards();
        if let Requester::Agent(own) = requester {
            let mut line = self.pool.family(own);
            line.extend(self.pool.ancestors(own));
            cards.retain(|card| line.contains(&card.record.id));
        }
        cards
    }

    /// Marks an agent as done. When all agents are, the server is asked to stop.
    pub async fn shut_down_agent(
        &self,
        requester: &Requester,
        id: &AgentId,
    ) -> Result<(), AccessError> {
        let agent = self.agent(requester, id, Action::Manage).await?;
        agent.mark(&*self.parts.store, true).await?;
        if self.pool.all_shut_down() {
            self.stop_requested.cancel();
        }
        Ok(())
    }

    /// Asks whoever runs this engine to stop it.
    pub fn request_stop(&self, requester: &Requester) -> Result<(), Denied> {
        match requester {
            Requester::Administrator => {
                self.stop_requested.cancel();
                Ok(())
            }
            Requester::Agent(_) => Err(Denied::AdministratorOnly("stop the server")),
        }
    }

    /// Cancelled when a stop was asked for.
    pub fn stop_requested(&self) -> &CancellationToken {
        &self.stop_requested
    }

    /// Takes no new turns; those in flight get `grace` and are then cancelled. Returns when none is left.
    pub async fn stop_turns(&self, grace: Duration) {
        self.slots.close(grace).await;
    }

    /// Flushes the store and gives its leases back. Comes last, when nobody calls any more.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.parts.store.close().await
    }

    /// When the agent was made or loaded; `None` when there is none of that name.
    pub fn born(&self, id: &AgentId) -> Option<Timestamp> {
        self.pool.born(id)
    }

    /// Grows with every change that `list_agents` could show.
    pub fn version(&self) -> u64 {
        self.pool.version.load(Ordering::Acquire)
    }

    pub fn max_tool_iterations(&self) -> u32 {
        self.settings.max_tool_iterations
    }

    /// What holds commands within their agent's permissions, in words.
    pub fn sandbox(&self) -> &str {
        &self.settings.sandbox
    }

    pub fn models(&self) -> &dyn Models {
        &*self.parts.models
    }

    /// What the model is told before the conversation: the system prompt and the tools. A model that wants it brief
    /// hears only what somebody set for this agent.
    pub(crate) async fn briefing(
        &self,
        agent: &Arc<Agent>,
        brief: bool,
    ) -> (Arc<str>, Arc<[ToolSpec]>) {
        if brief {
            return (agent.system_prompt_override().unwrap_or_default().into(), Arc::from([]));
        }
        let tools = self.parts.toolbox.specs(&self.effective_permissions(agent));
        (self.prompt(agent).await.text, tools)
    }

    /// The agent's system prompt: its own, or the layers of its directory, read once.
    pub(crate) async fn prompt(&self, agent: &Arc<Agent>) -> Prompt {
        if let Some(text) = agent.system_prompt_override() {
            return Prompt { text: text.into(), source: None };
        }
        if let Some(prompt) = agent.cached_prompt() {
            return prompt;
        }
        let (agent, prompts) = (agent.clone(), self.parts.prompts.clone());
        let load = move || agent.prompt_or(|| prompts.load(&agent.cwd()));
        tokio::task::spawn_blocking(load)
            .await
            .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}
