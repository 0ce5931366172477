//! Sessions: agents as they lie in the store. What they are and who may do what stands in docs/decisions/0014.

use std::sync::Arc;

use jiff::Timestamp;
use thiserror::Error;

use crate::agent::{Agent, AgentSettings, Gone, Renamed, Snapshot};
use crate::authority::{Action, Denied, Hand, Requester};
use crate::conversation::Conversation;
use crate::detached;
use crate::directory::Claim;
use crate::kin::{AuthorizeError, Kin};
use crate::lifecycle::{AccessError, CreateError, Lifecycle, Room};
use crate::logs::AgentLogs;
use crate::message::{Role, SharedMessage};
use crate::name::AgentId;
use crate::permission::{Grants, Level, Permissions, Preset};
use crate::rights::{linked, switched};
use crate::settings::{SettingsError, Tuning};
use crate::store::{
    AgentRecord, Copied, Progress, SessionPage, SessionQuery, SessionRecord, Store, StoreError,
    Window,
};
use crate::usage::Bill;
use crate::watch::Event;

pub struct Sessions {
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) kin: Arc<Kin>,
    pub(crate) tuning: Arc<Tuning>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) logs: Arc<dyn AgentLogs>,
}

#[derive(Debug, Clone, Error)]
pub enum SessionError {
    #[error("unknown session: {0}")]
    Unknown(AgentId),
    #[error("a session named {0} exists already")]
    Exists(AgentId),
    #[error("the name of a session may not start with '.': {0} is temporary")]
    Temporary(AgentId),
    #[error("the copy of a temporary agent is temporary: its name must start with '.', unlike {0}")]
    Permanent(AgentId),
    #[error("session {name} has {count} messages: the index {index} is past its end")]
    PastEnd { name: AgentId, index: u64, count: u64 },
    #[error("the message {0} lies between a tool call and its results")]
    BetweenCalls(u64),
    #[error("agent {0} is live already")]
    Live(AgentId),
    #[error("agent {0} would outlive its temporary parent {1}: save that one first")]
    OutlivesParent(AgentId, AgentId),
    /// A preset or model that a loaded session is not to have.
    #[error(transparent)]
    Override(#[from] CreateError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<Denied> for SessionError {
    fn from(denied: Denied) -> Self {
        Self::Access(denied.into())
    }
}

impl From<AuthorizeError> for SessionError {
    fn from(error: AuthorizeError) -> Self {
        Self::Access(error.into())
    }
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Exists(name) | StoreError::Saved(name) => Self::Exists(name),
            error => Self::Store(error),
        }
    }
}

/// What is asked of `load_session`.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    pub session: AgentId,
    /// The agent to make of it; the session's own name when absent.
    pub agent: Option<AgentId>,
    pub preset: Option<String>,
    pub model: Option<String>,
    pub hand: Hand,
}

/// What a loaded session is to have instead of its own.
struct Overrides {
    preset: Option<Preset>,
    model: Option<String>,
    /// Of an agent that is not the one that the session was.
    level_max: Level,
}

impl Sessions {
    /// The sessions `requester` may see, the most recently changed first: all for the administrator, its own and those
    /// of its descendants for an agent. Temporary agents, where they are asked for, come before all others.
    pub async fn list(
        &self,
        requester: &Requester,
        offset: u64,
        limit: u32,
        include_temp: bool,
    ) -> Result<SessionPage, StoreError> {
        let line_of = match requester {
            Requester::Administrator => None,
            Requester::Agent(own) => Some(own.clone()),
        };
        let live = match include_temp {
            true => self.temporary(line_of.as_ref()).await?,
            false => Vec::new(),
        };
        let temporary = live.len() as u64;
        let passed_over = usize::try_from(offset).unwrap_or(usize::MAX);
        let page = live.iter().skip(passed_over).take(limit as usize);
        let mut page: Vec<_> = page.map(|(updated_at, agent)| listed(*updated_at, agent)).collect();
        let query = SessionQuery {
            offset: offset.saturating_sub(temporary),
            limit: limit - page.len() as u32,
            line_of,
        };
        let stored = self.store.sessions(query).await?;
        page.extend(stored.sessions);
        Ok(SessionPage { total: temporary + stored.total, sessions: page })
    }

    /// The temporary agents that are `line_of` or descend from it, and when each last changed, the last first.
    async fn temporary(
        &self,
        line_of: Option<&AgentId>,
    ) -> Result<Vec<(Timestamp, Arc<Snapshot>)>, StoreError> {
        let above = match line_of {
            Some(own) => self.kin.ancestors(own).await?,
            None => Vec::new(),
        };
        let found = self.lifecycle.temporary(line_of).await?.into_iter();
        let found = found.filter(|agent| above.iter().all(|above| above.id != agent.id));
        let mut temporary: Vec<_> = found
            .map(|agent| (agent.last_action_at().unwrap_or(agent.created_at), agent))
            .collect();
        temporary.sort_by(|(a_at, a), (b_at, b)| (b_at, &a.id).cmp(&(a_at, &b.id)));
        Ok(temporary)
    }

    /// Saves an agent under a name. Under its own this notes that it was saved by name; under another it makes a saved
    /// copy; a temporary agent becomes permanent under the name. Returns the name the agent has afterwards.
    pub async fn save(
        self: &Arc<Self>,
        requester: &Requester,
        id: &AgentId,
        name: &AgentId,
    ) -> Result<AgentId, SessionError> {
        permanent(name)?;
        let agent = self.lifecycle.find(requester, id, Action::Manage).await?;
        if id == name {
            agent.keep().await?;
            return Ok(name.clone());
        }
        self.may_name(requester).await?;
        if id.is_temp() {
            let (this, was, to) = (self.clone(), id.clone(), name.clone());
            return detached(async move { this.settle(agent, was, to).await }).await;
        }
        let id = agent.id();
        match self.put_copy(requester, &id, name, true).await? {
            true => Ok(id),
            false => Err(AccessError::Unknown(id).into()),
        }
    }

    /// Makes a temporary agent, found under the name `was`, permanent under `name`, its running turns included.
    async fn settle(
        &self,
        agent: Agent,
        was: AgentId,
        name: AgentId,
    ) -> Result<AgentId, SessionError> {
        let (from, to) = self.lifecycle.directory.claim_both(&was, &name).await;
        // Ended, or saved by another caller, since it was looked up.
        if agent.gone().is_some() || agent.id() != was {
            return Err(AccessError::Unknown(was).into());
        }
        if let Some(parent) = agent.look().parent.clone().filter(AgentId::is_temp) {
            return Err(SessionError::OutlivesParent(was, parent));
        }
        let rename = {
            let (was, name) = (was.clone(), name.clone());
            move |now: &Snapshot, store: &Arc<dyn Store>| {
                let record = AgentRecord { id: name.clone(), ..now.record() };
                let messages = now.conversation.history_from(0).cloned().collect();
                let store = store.clone();
                async move {
                    let (lease, born) = store.settle(&was, record, messages).await?;
                    Ok(Renamed { id: name, born, lease: Some(lease) })
                }
            }
        };
        self.move_live(&agent, from, to, rename).await?;
        Ok(name)
    }

    /// Makes a temporary agent of another, which keeps its messages up to the one with the index `upto`, or all.
    pub async fn fork(
        self: &Arc<Self>,
        requester: &Requester,
        from: &AgentId,
        to: &AgentId,
        upto: Option<u64>,
    ) -> Result<(), SessionError> {
        if !to.is_temp() {
            return Err(SessionError::Permanent(to.clone()));
        }
        if *requester == Requester::Agent(from.clone()) {
            return Err(Denied::OwnCopy(from.clone()).into());
        }
        self.may(requester, from).await?;
        self.may_name(requester).await?;
        let unknown = || SessionError::Unknown(from.clone());
        let agent = self.lifecycle.find(requester, from, Action::Manage).await;
        let agent = agent.map_err(|error| match error {
            AccessError::Unknown(_) => unknown(),
            error => error.into(),
        })?;
        let now = agent.snapshot();
        let mut messages: Vec<_> = now.conversation.history_from(0).cloned().collect();
        let mut record = now.record();
        if let Some(upto) = upto {
            let next = usize::try_from(upto).ok().and_then(|it| messages.get(it.saturating_add(1)));
            check_end(from, messages.len() as u64, next, upto)?;
            messages.truncate(upto as usize + 1);
        }
        record.settings = self.of_its_own(&record, None).await?;
        record.progress = Progress::default();
        record.message_count = messages.len() as u64;
        record.bill = Bill::default();
        record.last_action_at = None;
        record.created_at = crate::now();
        record.born = crate::random_number();
        record.id = to.clone();
        let room = self.lifecycle.room(requester, record.parent.as_ref()).await?;
        let this = self.clone();
        detached(async move { this.fork_claimed(record, messages, room).await }).await
    }

    async fn fork_claimed(
        &self,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
        _room: Room,
    ) -> Result<(), SessionError> {
        let claim = self.lifecycle.directory.claim(&record.id).await;
        if self.lifecycle.live(claim.id()).is_some() {
            return Err(SessionError::Exists(record.id));
        }
        let parent = record.parent.clone();
        let above = parent.as_ref().and_then(|parent| self.lifecycle.live(parent));
        let account = self.lifecycle.account(&record, above.as_ref()).await;
        let conversation = Conversation::new(Window { first: 0, messages });
        let agent = self.lifecycle.start(record, account, conversation, None);
        match self.lifecycle.directory.insert(&claim, agent.clone(), parent, above.as_ref()) {
            Ok(()) => {
                self.lifecycle.tell_created(&agent).await;
                Ok(())
            }
            Err(_) => {
                agent.end(Gone::Ended);
                Err(SessionError::Unknown(agent.id()))
            }
        }
    }

    /// Makes a saved copy of a session.
    pub async fn copy(
        &self,
        requester: &Requester,
        from: &AgentId,
        to: &AgentId,
    ) -> Result<(), SessionError> {
        permanent(to)?;
        self.may(requester, from).await?;
        self.may_name(requester).await?;
        match self.put_copy(requester, from, to, false).await? {
            true => Ok(()),
            false => Err(SessionError::Unknown(from.clone())),
        }
    }

    /// Makes a saved copy that keeps the messages up to the one with the index `upto`. What was said is never changed, so
    /// what is looked at here is what is copied then.
    pub async fn copy_upto(
        &self,
        requester: &Requester,
        from: &AgentId,
        to: &AgentId,
        upto: u64,
    ) -> Result<(), SessionError> {
        permanent(to)?;
        self.may(requester, from).await?;
        self.may_name(requester).await?;
        let _room = self.lifecycle.room(requester, None).await?;
        let unknown = || SessionError::Unknown(from.clone());
        if from.is_temp() {
            return Err(unknown());
        }
        let found = self.store.session(from).await?.ok_or_else(unknown)?;
        let count = found.record.message_count;
        let next = match upto.saturating_add(1) < count {
            true => self.store.session_message(from, upto + 1).await?,
            false => None,
        };
        check_end(from, count, next.as_ref(), upto)?;
        let settings = self.of_its_own(&found.record, None).await?;
        let mut copy = copied(requester, to, &found, settings);
        let length = upto + 1;
        copy.length_max = Some(length);
        if length < count {
            // How the last turn ended is not how that one did.
            copy.progress = Progress::default();
        }
        match self.store.copy_session(from, copy, false).await? {
            true => Ok(()),
            false => Err(unknown()),
        }
    }

    /// Makes a saved copy, which may replace the one that was saved before. False when there is no session `from`.
    async fn put_copy(
        &self,
        requester: &Requester,
        from: &AgentId,
        to: &AgentId,
        replace: bool,
    ) -> Result<bool, SessionError> {
        let _room = self.lifecycle.room(requester, None).await?;
        let found = match from.is_temp() {
            true => None,
            false => self.store.session(from).await?,
        };
        let Some(found) = found else { return Ok(false) };
        let settings = self.of_its_own(&found.record, None).await?;
        let copy = copied(requester, to, &found, settings);
        Ok(self.store.copy_session(from, copy, replace).await?)
    }

    /// Gives a session another name. A live agent follows it, its running turns included.
    pub async fn rename(
        self: &Arc<Self>,
        requester: &Requester,
        from: &AgentId,
        to: &AgentId,
    ) -> Result<(), SessionError> {
        permanent(to)?;
        self.may(requester, from).await?;
        self.may_name(requester).await?;
        if from.is_temp() {
            return Err(SessionError::Unknown(from.clone()));
        }
        if from == to {
            return Err(SessionError::Exists(to.clone()));
        }
        let (this, from, to) = (self.clone(), from.clone(), to.clone());
        detached(async move { this.rename_claimed(from, to).await }).await
    }

    async fn rename_claimed(&self, from: AgentId, to: AgentId) -> Result<(), SessionError> {
        let (old, new) = self.lifecycle.directory.claim_both(&from, &to).await;
        self.lifecycle.release_lost();
        let rename = {
            let (from, to) = (from.clone(), to.clone());
            move |store: Arc<dyn Store>| async move {
                match store.rename(&from, &to).await? {
                    Some(born) => Ok(Renamed { id: to, born, lease: None }),
                    None => Err(StoreError::Ended),
                }
            }
        };
        let renamed = match self.lifecycle.live(&from) {
            Some(agent) => {
                let rename = move |_: &Snapshot, store: &Arc<dyn Store>| rename(store.clone());
                self.move_live(&agent, old, new, rename).await
            }
            None => {
                let renamed = rename(self.store.clone()).await;
                if renamed.is_ok() {
                    let children = self.lifecycle.directory.rename(&old, &new);
                    self.logs.renamed(&from, &to);
                    let renamed = || Event::AgentRenamed { to: to.clone() };
                    self.lifecycle.hooks.watches.tell(&from, None, renamed);
                    follow(&children, &to).await;
                }
                renamed.map(drop)
            }
        };
        match renamed {
            Err(StoreError::Ended) => Err(SessionError::Unknown(from)),
            renamed => Ok(renamed?),
        }
    }

    /// Renames a live agent: in the store, in the directory, and before its own eyes, in that order.
    async fn move_live<R>(
        &self,
        agent: &Agent,
        from: Claim,
        to: Claim,
        rename: impl FnOnce(&Snapshot, &Arc<dyn Store>) -> R + Send + 'static,
    ) -> Result<(), StoreError>
    where
        R: Future<Output = Result<Renamed, StoreError>> + Send + 'static,
    {
        let name = to.id().clone();
        let (directory, logs) = (self.lifecycle.directory.clone(), self.logs.clone());
        let (sender, children) = tokio::sync::oneshot::channel();
        let moved = move || {
            logs.renamed(from.id(), to.id());
            let children = directory.rename(&from, &to);
            let _ = sender.send((children, from, to));
        };
        agent.rename(rename, moved).await?;
        // The names are in motion until the children have followed: the next rename would overtake this one.
        if let Ok((children, ..)) = &children.await {
            follow(children, &name).await;
        }
        Ok(())
    }

    /// Removes a session; an agent that works on it ends, and its descendants with it. False when there is none.
    pub async fn delete(
        self: &Arc<Self>,
        requester: &Requester,
        name: &AgentId,
    ) -> Result<bool, SessionError> {
        if name.is_temp() {
            return Ok(false);
        }
        self.may(requester, name).await?;
        let (this, name) = (self.clone(), name.clone());
        detached(async move {
            let claim = this.lifecycle.directory.claim(&name).await;
            let gone = this.store.delete(&name).await?;
            this.lifecycle.forget(claim, &gone).await;
            Ok(!gone.is_empty())
        })
        .await
    }

    /// Makes an agent of a session. Under another name than its own the session stays, and the agent is a copy.
    pub async fn load(
        self: &Arc<Self>,
        requester: &Requester,
        spec: LoadSpec,
    ) -> Result<Agent, SessionError> {
        let LoadSpec { session, agent, preset, model, hand } = spec;
        let to = agent.unwrap_or_else(|| session.clone());
        self.may(requester, &session).await?;
        self.may_name(requester).await?;
        if to != session && *requester == Requester::Agent(session.clone()) {
            return Err(Denied::OwnCopy(session).into());
        }
        let preset = match preset {
            Some(name) => {
                let preset = self.lifecycle.preset_given(Some(&name), hand, requester)?;
                Some(linked(preset).await)
            }
            None => None,
        };
        let level_max = if hand.gives_yolo(requester) { Level::Yolo } else { Level::Trusted };
        let room = self.room_to_load(requester, &session, &to).await?;
        let (this, requester) = (self.clone(), requester.clone());
        let load = async move {
            let _room = room;
            let asked = Overrides { preset, model, level_max };
            let agent = this.load_claimed(&requester, session, to, asked).await?;
            this.lifecycle.tell_created(&agent).await;
            Ok(agent)
        };
        detached(load).await
    }

    /// Room for the agent that a session becomes; one that is an agent already becomes none. Before any name is claimed:
    /// whoever makes an agent has the room first and waits for its name then.
    async fn room_to_load(
        &self,
        requester: &Requester,
        session: &AgentId,
        to: &AgentId,
    ) -> Result<Option<Room>, SessionError> {
        if *requester == Requester::Administrator || session.is_temp() {
            return Ok(None);
        }
        let Some(found) = self.store.session(session).await? else { return Ok(None) };
        if goes_on(&found, to) {
            return Ok(None);
        }
        Ok(Some(self.lifecycle.room(requester, found.record.parent.as_ref()).await?))
    }

    async fn load_claimed(
        &self,
        requester: &Requester,
        session: AgentId,
        to: AgentId,
        asked: Overrides,
    ) -> Result<Agent, SessionError> {
        let Overrides { preset, model, level_max } = asked;
        let claim = self.lifecycle.directory.claim(&to).await;
        self.lifecycle.release_lost();
        if self.lifecycle.live(&to).is_some() {
            return Err(SessionError::Live(to));
        }
        let unknown = || SessionError::Unknown(session.clone());
        let found = match session.is_temp() {
            true => None,
            false => self.store.session(&session).await?,
        };
        let found = found.ok_or_else(unknown)?;
        let mut settings = self.overridden(&found.record, preset.as_ref(), model.as_deref())?;
        if !goes_on(&found, &to) {
            let mut own = self.of_its_own(&found.record, settings).await?;
            if own.permissions.level > level_max {
                own.permissions = self.without_yolo(&own)?;
            }
            settings = Some(own);
        }
        if model.is_some() {
            self.check_fits(&session, settings.as_ref()).await?;
        }
        claim.follow();
        if to.is_temp() {
            let (record, messages) = self.read(&session, settings).await?.ok_or_else(unknown)?;
            let record = AgentRecord {
                id: to.clone(),
                created_at: crate::now(),
                born: crate::random_number(),
                ..record
            };
            let (account, named) =
                (self.lifecycle.account(&record, None).await, record.parent.clone());
            let agent = self.lifecycle.start(record, account, messages, None);
            return match self.lifecycle.directory.insert(&claim, agent.clone(), named, None) {
                Ok(()) => Ok(agent),
                Err(_) => {
                    agent.end(Gone::Ended);
                    Err(unknown())
                }
            };
        }
        let loaded = match settings {
            Some(settings) if to != session => {
                let copy = copied(requester, &to, &found, settings);
                self.store.load_copy(&session, copy).await?
            }
            settings => self.store.load(&session, settings).await?,
        };
        let loaded = loaded.ok_or_else(unknown)?;
        self.lifecycle.settle_in(&claim, loaded, None).await.ok_or_else(unknown)
    }

    /// What a session is to work with instead of its own settings; `None` when nothing was asked for. Never above its
    /// ceiling.
    fn overridden(
        &self,
        record: &AgentRecord,
        preset: Option<&Preset>,
        model: Option<&str>,
    ) -> Result<Option<AgentSettings>, CreateError> {
        if preset.is_none() && model.is_none() {
            return Ok(None);
        }
        let mut settings = record.settings.clone();
        if let Some(model) = model {
            self.lifecycle.models.resolve(Some(model))?;
            settings.model = Some(model.into());
        }
        if let Some(preset) = preset {
            let asked = switched(&self.lifecycle, preset, &settings);
            settings.permissions = match &record.ceiling {
                Some(ceiling) if asked.level > ceiling.level => {
                    return Err(CreateError::LevelNotBelow(asked.level));
                }
                Some(ceiling) => asked.meet(ceiling),
                None => asked,
            };
            settings.grants = Grants::default();
        }
        Ok(Some(settings))
    }

    /// The settings of what is made of a session and is not the agent that it was. Leave that was given to that one while
    /// it ran ends with it; and what its ceiling and its ancestors do not allow by now it has no more, though they may be
    /// gone when it is used.
    async fn of_its_own(
        &self,
        record: &AgentRecord,
        asked: Option<AgentSettings>,
    ) -> Result<AgentSettings, StoreError> {
        let mut settings = asked.unwrap_or_else(|| record.settings.clone());
        settings.grants = Grants::default();
        settings.tickets = Vec::new();
        settings.servers = Vec::new();
        let above = match &record.parent {
            Some(parent) => self.kin.line(parent).await?,
            None => Vec::new(),
        };
        let above = above.iter().map(|ancestor| &ancestor.permissions);
        settings.permissions = record
            .ceiling
            .iter()
            .chain(above)
            .fold(settings.permissions, |met, bound| met.meet(bound));
        Ok(settings)
    }

    /// What a session that a person gave `yolo` may still do as an agent that nobody gave it.
    fn without_yolo(&self, settings: &AgentSettings) -> Result<Permissions, CreateError> {
        let trusted = Preset::built_in(Level::Trusted.name()).ok_or(CreateError::Yolo)?;
        let lowered = switched(&self.lifecycle, &trusted, settings);
        Ok(lowered.meet(&settings.permissions))
    }

    /// Whether a session's conversation fits the model it is to have.
    async fn check_fits(
        &self,
        session: &AgentId,
        settings: Option<&AgentSettings>,
    ) -> Result<(), SessionError> {
        let Some((record, conversation)) = self.read(session, settings.cloned()).await? else {
            return Ok(());
        };
        let model = self.lifecycle.models.resolve(record.settings.model.as_deref());
        let model = model.map_err(SettingsError::from)?;
        let agent = Snapshot::new(record, conversation, None);
        Ok(self.tuning.check_window(&agent, &model).await?)
    }

    /// A session with all it holds, whoever has it, and with these settings instead of its own.
    async fn read(
        &self,
        session: &AgentId,
        settings: Option<AgentSettings>,
    ) -> Result<Option<(AgentRecord, Conversation)>, SessionError> {
        let Some((found, messages)) = self.store.read_session(session).await? else {
            return Ok(None);
        };
        let settings = settings.unwrap_or(found.record.settings);
        let record = AgentRecord { settings, ..found.record };
        Ok(Some((record, Conversation::new(Window { first: 0, messages }))))
    }

    /// Whether `requester` may act on a session: the administrator on every one, an agent on its own and on those of
    /// its descendants. A saved session stands where its parent stands.
    async fn may(&self, requester: &Requester, name: &AgentId) -> Result<(), SessionError> {
        let Requester::Agent(own) = requester else { return Ok(()) };
        let parent = match name.is_temp() {
            true => None,
            false => self.store.session(name).await?.filter(|session| session.saved),
        };
        let Some(parent) = parent.and_then(|saved| saved.record.parent) else {
            return Ok(self.kin.authorize(requester, Action::Manage, name).await?);
        };
        if parent == *own || self.kin.ancestors(&parent).await?.iter().any(|it| it.id == *own) {
            return Ok(());
        }
        let (requester, target) = (own.clone(), name.clone());
        Err(Denied::Action { requester, target, action: Action::Manage }.into())
    }

    /// Whoever takes names makes agents, or what becomes one.
    async fn may_name(&self, requester: &Requester) -> Result<(), SessionError> {
        let Requester::Agent(own) = requester else { return Ok(()) };
        let agent = self.lifecycle.find(requester, own, Action::Read).await?;
        match self.kin.rights(&agent.snapshot()).await?.effective.agents {
            true => Ok(()),
            false => Err(Denied::NewName(own.clone()).into()),
        }
    }
}

/// Whether loading a session under this name goes on with the agent that it is.
fn goes_on(session: &SessionRecord, to: &AgentId) -> bool {
    !session.saved && session.record.id == *to
}

/// Whether a conversation of `count` messages can end with the message `upto`, behind which `next` stands: every call that it
/// keeps has the results that it got.
fn check_end(
    name: &AgentId,
    count: u64,
    next: Option<&SharedMessage>,
    upto: u64,
) -> Result<(), SessionError> {
    if upto >= count {
        return Err(SessionError::PastEnd { name: name.clone(), index: upto, count });
    }
    match next {
        Some(next) if next.role == Role::Tool => Err(SessionError::BetweenCalls(upto)),
        _ => Ok(()),
    }
}

/// What a copy of a session is. Nobody has told it to shut down.
fn copied(
    requester: &Requester,
    name: &AgentId,
    of: &SessionRecord,
    settings: AgentSettings,
) -> Copied {
    let made_by = match requester {
        Requester::Agent(own) => Some(own.clone()),
        Requester::Administrator => of.made_by.clone(),
    };
    let progress = Progress { should_shutdown: false, ..of.record.progress };
    Copied { name: name.clone(), settings, progress, made_by, length_max: None }
}

/// A temporary agent as a session.
fn listed(updated_at: Timestamp, agent: &Snapshot) -> SessionRecord {
    let record = agent.record();
    SessionRecord { updated_at, made_by: record.parent.clone(), saved: false, record }
}

async fn follow(children: &[Agent], parent: &AgentId) {
    for child in children {
        child.follow_parent(parent.clone()).await;
    }
}

fn permanent(name: &AgentId) -> Result<(), SessionError> {
    match name.is_temp() {
        true => Err(SessionError::Temporary(name.clone())),
        false => Ok(()),
    }
}
