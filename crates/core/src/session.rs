//! Sessions: agents as they lie in the store. What they are and who may do what stands in docs/decisions/0014.

use std::sync::Arc;

use thiserror::Error;

use crate::agent::Agent;
use crate::authority::{Action, Denied, Requester};
use crate::create::CreateError;
use crate::engine::{AccessError, Engine};
use crate::name::AgentId;
use crate::permission::{Grants, Preset};
use crate::rights::linked;
use crate::settings::SettingsError;
use crate::store::{
    AgentRecord, SessionPage, SessionQuery, SessionRecord, SettingsRecord, StoreError,
};

#[derive(Debug, Clone, Error)]
pub enum SessionError {
    #[error("unknown session: {0}")]
    Unknown(AgentId),
    #[error("a session named {0} exists already")]
    Exists(AgentId),
    #[error("the name of a session may not start with '.': {0} is temporary")]
    Temporary(AgentId),
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
}

impl Engine {
    /// The sessions `requester` may see, the most recently changed first: all for the administrator, its own and those
    /// of its descendants for an agent. Temporary agents, where they are asked for, come before all others.
    pub async fn list_sessions(
        &self,
        requester: &Requester,
        offset: u64,
        limit: u32,
        include_temp: bool,
    ) -> Result<SessionPage, StoreError> {
        let mut page = match include_temp {
            true => self.temporary_sessions(requester),
            false => Vec::new(),
        };
        let temporary = page.len() as u64;
        page.drain(..usize::try_from(offset.min(temporary)).unwrap_or(page.len()));
        page.truncate(limit as usize);
        let query = SessionQuery {
            offset: offset.saturating_sub(temporary),
            limit: limit - page.len() as u32,
            line_of: match requester {
                Requester::Administrator => None,
                Requester::Agent(own) => Some(own.clone()),
            },
        };
        let stored = self.parts.store.sessions(query).await?;
        page.extend(stored.sessions);
        Ok(SessionPage { total: temporary + stored.total, sessions: page })
    }

    fn temporary_sessions(&self, requester: &Requester) -> Vec<SessionRecord> {
        let cards = self.pool.cards().into_iter().map(|card| card.record);
        let mut temporary: Vec<_> = cards
            .filter(|record| record.id.is_temp())
            .filter(|record| self.authorize(requester, Action::Read, &record.id).is_ok())
            .map(|record| SessionRecord {
                updated_at: record.last_action_at.unwrap_or(record.created_at),
                made_by: record.parent.clone(),
                saved: false,
                record,
            })
            .collect();
        temporary.sort_by(|a, b| (b.updated_at, &a.record.id).cmp(&(a.updated_at, &b.record.id)));
        temporary
    }

    /// Saves an agent under a name. Under its own this notes that it was saved by name; under another it makes a saved
    /// copy; a temporary agent becomes permanent under the name. Returns the name the agent has afterwards.
    pub async fn save_session(
        &self,
        requester: &Requester,
        id: &AgentId,
        name: &AgentId,
    ) -> Result<AgentId, SessionError> {
        permanent(name)?;
        let agent = self.agent(requester, id, Action::Manage).await?;
        if id == name {
            agent.keep(&*self.parts.store).await?;
            return Ok(name.clone());
        }
        self.may_name(requester).await?;
        if id.is_temp() {
            return self.settle(&agent, name).await;
        }
        let id = agent.id();
        match self.parts.store.copy_session(&id, name, true).await? {
            true => Ok(id),
            false => Err(AccessError::Unknown(id).into()),
        }
    }

    /// Makes a temporary agent permanent under `name`, its running turns included.
    async fn settle(&self, agent: &Arc<Agent>, name: &AgentId) -> Result<AgentId, SessionError> {
        let _alone = self.lifecycle.write().await;
        let _writing = agent.writing.lock().await;
        let was = agent.id();
        // Ended, or saved by another caller, since it was looked up.
        if agent.ended.is_cancelled() || !was.is_temp() {
            return Err(AccessError::Unknown(was).into());
        }
        if let Some(parent) = agent.parent().filter(AgentId::is_temp) {
            return Err(SessionError::OutlivesParent(was, parent));
        }
        let record = AgentRecord { id: name.clone(), ..agent.record() };
        let messages = agent.with_conversation(|conversation| conversation.history().to_vec());
        let fence = self.parts.store.settle(&was, record, messages).await?;
        agent.rename(name, Some(fence));
        self.follow(&was, name);
        Ok(name.clone())
    }

    /// Makes a saved copy of a session.
    pub async fn clone_session(
        &self,
        requester: &Requester,
        from: &AgentId,
        to: &AgentId,
    ) -> Result<(), SessionError> {
        permanent(to)?;
        self.may(requester, from).await?;
        self.may_name(requester).await?;
        match self.parts.store.copy_session(from, to, false).await? {
            true => Ok(()),
            false => Err(SessionError::Unknown(from.clone())),
        }
    }

    /// Gives a session another name. A live agent follows it, its running turns included.
    pub async fn rename_session(
        &self,
        requester: &Requester,
        from: &AgentId,
        to: &AgentId,
    ) -> Result<(), SessionError> {
        permanent(to)?;
        self.may(requester, from).await?;
        self.may_name(requester).await?;
        let _alone = self.lifecycle.write().await;
        self.release_lost();
        let agent = self.pool.live(from);
        let _writing = match &agent {
            Some(agent) => Some(agent.writing.lock().await),
            None => None,
        };
        if from.is_temp() || !self.parts.store.rename(from, to).await? {
            return Err(SessionError::Unknown(from.clone()));
        }
        if let Some(agent) = &agent {
            agent.rename(to, None);
        }
        self.follow(from, to);
        Ok(())
    }

    /// Lets all that speaks of an agent by its name speak of the new one.
    fn follow(&self, from: &AgentId, to: &AgentId) {
        self.pool.rename(from, to);
        self.waits.rename(from, to);
        self.approvals.rename(from, to);
        self.parts.logs.renamed(from, to);
    }

    /// Removes a session; an agent that works on it ends, and its descendants with it. False when there is none.
    pub async fn delete_session(
        &self,
        requester: &Requester,
        name: &AgentId,
    ) -> Result<bool, SessionError> {
        if name.is_temp() {
            return Ok(false);
        }
        self.may(requester, name).await?;
        let _alone = self.lifecycle.write().await;
        let family = self.pool.family(name);
        let gone = self.parts.store.delete(name).await?;
        let deleted = !gone.is_empty();
        self.forget(family, gone);
        Ok(deleted)
    }

    /// Makes an agent of a session. Under another name than its own the session stays, and the agent is a copy.
    pub async fn load_session(
        &self,
        requester: &Requester,
        spec: LoadSpec,
    ) -> Result<Arc<Agent>, SessionError> {
        let LoadSpec { session, agent, preset, model } = spec;
        let to = agent.unwrap_or_else(|| session.clone());
        self.may(requester, &session).await?;
        self.may_name(requester).await?;
        if to != session && *requester == Requester::Agent(session.clone()) {
            return Err(Denied::OwnCopy(session).into());
        }
        let preset = match preset {
            Some(name) => Some(linked(self.preset(Some(&name))?).await),
            None => None,
        };
        let _lifecycle = self.lifecycle.read().await;
        let _name = self.name_lock(&to).await;
        self.release_lost();
        if self.pool.live(&to).is_some() {
            return Err(SessionError::Live(to));
        }
        let found = match session.is_temp() {
            true => None,
            false => self.parts.store.session(&session).await?,
        };
        let found = found.ok_or_else(|| SessionError::Unknown(session.clone()))?;
        let settings = self.overridden(&found.record, preset.as_ref(), model.as_deref())?;
        if model.is_some() {
            self.check_fits(&session, settings.as_ref()).await?;
        }
        let agent = self.make(&session, &to, settings).await?;
        let agent = agent.ok_or_else(|| SessionError::Unknown(session.clone()))?;
        self.pool.insert(agent.clone());
        if found.saved && to == session {
            self.pool.note_loaded(&to);
        }
        Ok(agent)
    }

    /// What a session is to work with instead of its own settings; `None` when nothing was asked for. Never above its
    /// ceiling.
    fn overridden(
        &self,
        record: &AgentRecord,
        preset: Option<&Preset>,
        model: Option<&str>,
    ) -> Result<Option<SettingsRecord>, CreateError> {
        if preset.is_none() && model.is_none() {
            return Ok(None);
        }
        let mut settings = own_settings(record);
        if let Some(model) = model {
            self.parts.models.resolve(Some(model))?;
            settings.model = Some(model.into());
        }
        if let Some(preset) = preset {
            let asked = self.switched(preset, &record.cwd, &record.permissions);
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

    /// Whether a session's conversation fits the model it is to have.
    async fn check_fits(
        &self,
        session: &AgentId,
        settings: Option<&SettingsRecord>,
    ) -> Result<(), SessionError> {
        let Some(agent) = self.detached(session, session, settings.cloned()).await? else {
            return Ok(());
        };
        let model = self.model(&agent).map_err(SettingsError::from)?;
        Ok(self.check_window(&agent, &model).await?)
    }

    async fn make(
        &self,
        session: &AgentId,
        to: &AgentId,
        settings: Option<SettingsRecord>,
    ) -> Result<Option<Arc<Agent>>, SessionError> {
        if to.is_temp() {
            return self.detached(session, to, settings).await;
        }
        let stored = self.parts.store.load(session, to, settings).await?;
        Ok(stored.map(|stored| Agent::restored(stored, self.pool.version.clone())))
    }

    /// An agent with what a session holds, that is not stored.
    async fn detached(
        &self,
        session: &AgentId,
        to: &AgentId,
        settings: Option<SettingsRecord>,
    ) -> Result<Option<Arc<Agent>>, SessionError> {
        let Some((found, messages)) = self.parts.store.read_session(session).await? else {
            return Ok(None);
        };
        let settings = settings.unwrap_or_else(|| own_settings(&found.record));
        let SettingsRecord { permissions, grants, model, cwd, system_prompt } = settings;
        let record = AgentRecord {
            id: to.clone(),
            created_at: crate::now(),
            permissions,
            grants,
            model,
            cwd,
            system_prompt,
            ..found.record
        };
        Ok(Some(Agent::new(record, None, messages, self.pool.version.clone())))
    }

    /// Whether `requester` may act on a session: the administrator on every one, an agent on its own and on those of
    /// its descendants. A saved session stands where its parent stands.
    async fn may(&self, requester: &Requester, name: &AgentId) -> Result<(), SessionError> {
        let Requester::Agent(own) = requester else { return Ok(()) };
        if self.pool.contains(name) {
            return Ok(self.authorize(requester, Action::Manage, name)?);
        }
        let saved = self.parts.store.session(name).await?;
        let parent = saved.and_then(|session| session.record.parent);
        let beneath = |parent: &AgentId| parent == own || self.pool.ancestors(parent).contains(own);
        match parent.is_some_and(|parent| beneath(&parent)) {
            true => Ok(()),
            false => Err(Denied::Action {
                requester: own.clone(),
                target: name.clone(),
                action: Action::Manage,
            }
            .into()),
        }
    }

    /// Whoever takes names makes agents, or what becomes one.
    async fn may_name(&self, requester: &Requester) -> Result<(), SessionError> {
        let Requester::Agent(own) = requester else { return Ok(()) };
        let agent = self.agent(requester, own, Action::Read).await?;
        match self.effective_permissions(&agent).agents {
            true => Ok(()),
            false => Err(Denied::NewName(own.clone()).into()),
        }
    }
}

fn permanent(name: &AgentId) -> Result<(), SessionError> {
    match name.is_temp() {
        true => Err(SessionError::Temporary(name.clone())),
        false => Ok(()),
    }
}

fn own_settings(record: &AgentRecord) -> SettingsRecord {
    SettingsRecord {
        permissions: record.permissions.clone(),
        grants: record.grants.clone(),
        model: record.model.clone(),
        cwd: record.cwd.clone(),
        system_prompt: record.system_prompt.clone(),
    }
}
