//! A live agent: one conversation, one permission set, at most one running turn.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::context::{Conversation, Unfinished};
use crate::lock;
use crate::logs::AgentLogs;
use crate::message::{Role, SharedMessage};
use crate::name::{AgentId, TurnId};
use crate::permission::{Grants, Permissions};
use crate::pool::Changed;
use crate::prompt::Prompt;
use crate::store::{
    AgentRecord, Append, Fence, Progress, SettingsRecord, Store, StoreError, StoredAgent,
};
use crate::turn;

pub struct Agent {
    identity: RwLock<Identity>,
    pub created_at: Timestamp,
    pub depth: u32,
    /// One lock for all of it: a call reads several parts, and between cores a lock costs more than what it guards.
    /// Never held while anything else is waited for.
    state: Mutex<State>,
    /// The pool's count of changes.
    version: Arc<AtomicU64>,
    /// Held by the one turn that runs. Fair: turns run in the order they came.
    pub(crate) turn_lock: Arc<tokio::sync::Mutex<()>>,
    /// Held by whoever writes to the store, so that the next index and the name are known. Never for longer than one
    /// write.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// Built on first use: most agents of a large pool are idle.
    prompt: Mutex<Option<Prompt>>,
    /// Whether somebody asked for the agent, or a turn of it ended, since `idle_since` was noted. Written only when that
    /// is news: every call comes by here.
    touched: AtomicBool,
    idle_since: Mutex<Instant>,
    /// Cancelled when the agent is destroyed; every turn's token is a child of it.
    pub(crate) ended: CancellationToken,
    /// Set when another process took the agent over.
    lost: AtomicBool,
}

/// Who an agent is. A rename changes it; whoever holds the agent holds the same one afterwards.
struct Identity {
    id: AgentId,
    parent: Option<AgentId>,
    /// Proof that this process may write the agent; a temporary agent is not stored and has none.
    fence: Option<Fence>,
}

/// What changes while the agent lives.
struct State {
    settings: Settings,
    conversation: Conversation,
    progress: Progress,
    /// Turns that run or wait, by name.
    turns: HashMap<TurnId, InFlight>,
}

/// How an agent stands, as of one moment.
pub struct Standing {
    pub message_count: u64,
    pub has_system_prompt: bool,
    pub progress: Progress,
    /// The turn that was cut off, unless one runs.
    pub unfinished: Option<Unfinished>,
}

/// What can be changed on a living agent. The ceiling stands beside it for those who check against it.
#[derive(Clone)]
pub(crate) struct Settings {
    pub permissions: Permissions,
    pub ceiling: Option<Permissions>,
    pub model: Option<String>,
    pub cwd: PathBuf,
    pub system_prompt: Option<String>,
    pub grants: Grants,
}

struct InFlight {
    cancel: CancellationToken,
    /// Says whose the provider traffic inside it is, so it has to learn a new name.
    span: tracing::Span,
}

impl Settings {
    pub fn record(&self) -> SettingsRecord {
        let Self { permissions, ceiling: _, model, cwd, system_prompt, grants } = self.clone();
        SettingsRecord { permissions, grants, model, cwd, system_prompt }
    }
}

impl Agent {
    pub(crate) fn new(
        record: AgentRecord,
        fence: Option<Fence>,
        messages: Vec<SharedMessage>,
        version: Arc<AtomicU64>,
    ) -> Arc<Self> {
        let AgentRecord { permissions, ceiling, model, cwd, system_prompt, grants, .. } = record;
        Arc::new(Self {
            identity: RwLock::new(Identity { id: record.id, parent: record.parent, fence }),
            created_at: record.created_at,
            depth: record.depth,
            state: Mutex::new(State {
                settings: Settings { permissions, ceiling, model, cwd, system_prompt, grants },
                conversation: Conversation::from_history(messages),
                progress: record.progress,
                turns: HashMap::new(),
            }),
            version,
            turn_lock: Arc::default(),
            writing: tokio::sync::Mutex::new(()),
            prompt: Mutex::new(None),
            touched: AtomicBool::new(true),
            idle_since: Mutex::new(Instant::now()),
            ended: CancellationToken::new(),
            lost: AtomicBool::new(false),
        })
    }

    pub(crate) fn restored(stored: StoredAgent, version: Arc<AtomicU64>) -> Arc<Self> {
        Self::new(stored.record, Some(stored.fence), stored.messages, version)
    }

    /// The name the agent has now.
    pub fn id(&self) -> AgentId {
        self.identity(|identity| identity.id.clone())
    }

    pub fn parent(&self) -> Option<AgentId> {
        self.identity(|identity| identity.parent.clone())
    }

    /// Gives the agent another name, and a fence when it was made permanent by that. The caller holds `writing` and has
    /// the store's word for it.
    pub(crate) fn rename(&self, id: &AgentId, fence: Option<Fence>) {
        let _changed = Changed(&self.version);
        {
            let mut identity = self.identity.write().unwrap_or_else(PoisonError::into_inner);
            identity.id = id.clone();
            identity.fence = fence.or(identity.fence);
        }
        // A turn that enters from here on has the new name already.
        for turn in lock(&self.state).turns.values() {
            turn.span.record("agent_id", id.as_str());
        }
    }

    /// Lets the agent follow its parent's new name.
    pub(crate) fn follow_parent(&self, parent: &AgentId) {
        let _changed = Changed(&self.version);
        let mut identity = self.identity.write().unwrap_or_else(PoisonError::into_inner);
        identity.parent = Some(parent.clone());
    }

    fn identity<T>(&self, read: impl FnOnce(&Identity) -> T) -> T {
        read(&self.identity.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn touch(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    /// Whether nobody wanted anything of it for so long, and it does nothing. The time counts from when it was first
    /// found untouched.
    pub(crate) fn is_idle(&self, idle: Duration) -> bool {
        let mut since = lock(&self.idle_since);
        if self.touched.swap(false, Ordering::Relaxed) {
            *since = Instant::now();
        }
        self.turns_in_flight() == 0 && since.elapsed() >= idle
    }

    /// The proof with which the agent is written, and given back.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.identity(|identity| identity.fence)
    }

    /// The agent as the store would keep it.
    pub fn record(&self) -> AgentRecord {
        let Settings { permissions, ceiling, model, cwd, system_prompt, grants } = self.settings();
        AgentRecord {
            id: self.id(),
            created_at: self.created_at,
            parent: self.parent(),
            depth: self.depth,
            permissions,
            ceiling,
            model,
            cwd,
            system_prompt,
            grants,
            progress: self.progress(),
            message_count: self.message_count(),
            last_action_at: self.with_conversation(|it| it.history().last().map(|it| it.meta.at)),
        }
    }

    pub fn permissions(&self) -> Permissions {
        self.read_settings(|settings| settings.permissions.clone())
    }

    /// The most this agent may ever hold; `None` when an administrator made it without a parent.
    pub fn ceiling(&self) -> Option<Permissions> {
        self.read_settings(|settings| settings.ceiling.clone())
    }

    pub fn grants(&self) -> Grants {
        self.read_settings(|settings| settings.grants.clone())
    }

    /// The most a child of this agent may hold.
    pub fn ceiling_for_children(&self) -> Permissions {
        self.read_settings(|settings| match &settings.ceiling {
            Some(ceiling) => settings.permissions.meet(ceiling),
            None => settings.permissions.clone(),
        })
    }

    pub fn model(&self) -> Option<String> {
        self.read_settings(|settings| settings.model.clone())
    }

    pub fn cwd(&self) -> PathBuf {
        self.read_settings(|settings| settings.cwd.clone())
    }

    pub fn system_prompt_override(&self) -> Option<String> {
        self.read_settings(|settings| settings.system_prompt.clone())
    }

    pub fn standing(&self) -> Standing {
        let state = lock(&self.state);
        let unfinished = || state.conversation.unfinished();
        Standing {
            message_count: state.conversation.history().len() as u64,
            // Layered prompts are never empty; one that was given may be.
            has_system_prompt: state.settings.system_prompt.as_deref() != Some(""),
            progress: state.progress,
            unfinished: state.turns.is_empty().then(unfinished).flatten(),
        }
    }

    pub fn progress(&self) -> Progress {
        lock(&self.state).progress
    }

    pub fn message_count(&self) -> u64 {
        self.with_conversation(|conversation| conversation.history().len() as u64)
    }

    /// Reads the conversation. The lock is held for `read` only, so a read never waits for a turn.
    pub fn with_conversation<T>(&self, read: impl FnOnce(&Conversation) -> T) -> T {
        read(&lock(&self.state).conversation)
    }

    /// How many turns run or wait.
    pub fn turns_in_flight(&self) -> usize {
        lock(&self.state).turns.len()
    }

    /// Cancels the turn of that name, running or waiting. False when there is none.
    pub fn cancel(&self, turn: &TurnId) -> bool {
        let token = lock(&self.state).turns.get(turn).map(|turn| turn.cancel.clone());
        token.is_some_and(|token| {
            token.cancel();
            true
        })
    }

    /// Cancels every turn that runs or waits. Returns how many there were.
    pub fn cancel_all(&self) -> usize {
        let turns: Vec<_> =
            lock(&self.state).turns.values().map(|turn| turn.cancel.clone()).collect();
        turns.iter().for_each(CancellationToken::cancel);
        turns.len()
    }

    /// Whether the lease with which this value may be written has a fence up to `fence`.
    pub(crate) fn is_held_through(&self, fence: Fence) -> bool {
        self.identity(|identity| identity.fence.is_some_and(|own| own <= fence))
    }

    /// Stops what this process still does in the name of an agent that lives elsewhere now.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.cancel_all();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Names a turn and makes its cancel token. `None` when one of that name is in flight.
    pub(crate) fn enter_turn(self: &Arc<Self>, turn: &TurnId) -> Option<TurnPlace> {
        let _changed = Changed(&self.version);
        let mut state = lock(&self.state);
        if state.turns.contains_key(turn) {
            return None;
        }
        let cancel = self.ended.child_token();
        let span = turn::span(self);
        state.turns.insert(turn.clone(), InFlight { cancel: cancel.clone(), span: span.clone() });
        Some(TurnPlace { agent: self.clone(), turn: turn.clone(), cancel, span })
    }

    /// Writes messages down: to the store, then to memory and the log. Called only by the holder of the turn lock.
    /// Until the store has them nobody is shown them.
    ///
    /// Of what a turn begins with, the messages alone are written where they say everything: whatever the turn comes to
    /// is noted when it ends, and a second page on the disk for each question would say no more than that it was asked.
    pub(crate) async fn append(
        &self,
        store: &dyn Store,
        logs: &dyn AgentLogs,
        messages: Vec<SharedMessage>,
        progress: Progress,
    ) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        // The agent may have been marked since the turn looked.
        let should_shutdown = progress.should_shutdown || self.progress().should_shutdown;
        let progress = Progress { should_shutdown, ..progress };
        let asks = !messages.is_empty() && messages.iter().all(|it| it.role == Role::User);
        let noted = (!asks || progress != self.progress()).then_some(progress);
        self.write(store, messages.clone(), noted).await?;
        let _changed = Changed(&self.version);
        logs.messages(&self.id(), &messages);
        let mut state = lock(&self.state);
        for message in messages {
            state.conversation.push(message);
        }
        Ok(())
    }

    /// Notes on disk that the agent was saved by name.
    pub(crate) async fn keep(&self, store: &dyn Store) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        match self.identity(|identity| (identity.id.clone(), identity.fence)) {
            (id, Some(fence)) => store.keep(&id, fence).await,
            (_, None) => Ok(()),
        }
    }

    /// Adds to what the agent may do without asking. The caller has checked that it is within the ceiling.
    pub(crate) async fn grant(&self, store: &dyn Store, more: Grants) -> Result<(), StoreError> {
        let extend = |settings: &mut Settings| {
            settings.grants.extend(more);
            Ok(())
        };
        self.change(store, extend).await
    }

    /// Changes settings, on disk first. Each change starts from what the last one left, and one that `change` refuses
    /// leaves nothing.
    pub(crate) async fn change<E: From<StoreError>>(
        &self,
        store: &dyn Store,
        change: impl FnOnce(&mut Settings) -> Result<(), E>,
    ) -> Result<(), E> {
        let _writing = self.writing.lock().await;
        let mut settings = self.settings();
        change(&mut settings)?;
        if let (id, Some(fence)) = self.identity(|identity| (identity.id.clone(), identity.fence)) {
            store.update(&id, fence, settings.record()).await?;
        }
        let _changed = Changed(&self.version);
        lock(&self.state).settings = settings;
        Ok(())
    }

    /// Marks the agent as done, or as in use again. Does not wait for a turn that runs.
    pub(crate) async fn mark(&self, store: &dyn Store, done: bool) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        let progress = Progress { should_shutdown: done, ..self.progress() };
        self.write(store, Vec::new(), Some(progress)).await
    }

    async fn write(
        &self,
        store: &dyn Store,
        messages: Vec<SharedMessage>,
        progress: Option<Progress>,
    ) -> Result<(), StoreError> {
        if let (id, Some(fence)) = self.identity(|identity| (identity.id.clone(), identity.fence)) {
            let append = Append { first_index: self.message_count(), messages, progress };
            store.append(&id, fence, append).await?;
        }
        let _changed = Changed(&self.version);
        if let Some(progress) = progress {
            lock(&self.state).progress = progress;
        }
        Ok(())
    }

    /// The cached prompt, or what `load` makes of the working directory.
    pub(crate) fn prompt_or(&self, load: impl FnOnce() -> Prompt) -> Prompt {
        lock(&self.prompt).get_or_insert_with(load).clone()
    }

    pub(crate) fn cached_prompt(&self) -> Option<Prompt> {
        lock(&self.prompt).clone()
    }

    /// Lets the next turn read the prompt's files again.
    pub(crate) fn forget_prompt(&self) {
        *lock(&self.prompt) = None;
    }

    fn settings(&self) -> Settings {
        self.read_settings(Settings::clone)
    }

    fn read_settings<T>(&self, read: impl FnOnce(&Settings) -> T) -> T {
        read(&lock(&self.state).settings)
    }
}

/// A turn's place among those in flight; leaves it when dropped.
pub(crate) struct TurnPlace {
    agent: Arc<Agent>,
    turn: TurnId,
    pub cancel: CancellationToken,
    pub span: tracing::Span,
}

impl Drop for TurnPlace {
    fn drop(&mut self) {
        let _changed = Changed(&self.agent.version);
        self.agent.touch();
        lock(&self.agent.state).turns.remove(&self.turn);
    }
}
