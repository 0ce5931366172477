//! A store in memory, with the rules of the real one.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nexus_core::AgentId;
use nexus_core::message::SharedMessage;
use nexus_core::store::{
    AgentRecord, Append, ApprovalRecord, ApprovalStatus, Fence, SessionPage, SessionQuery,
    SessionRecord, SettingsRecord, Store, StoreError, StoredAgent, StoredApproval,
};

/// A store in memory. `fail_appends` makes it refuse, as a full disk would.
#[derive(Default)]
pub struct MemoryStore {
    agents: Mutex<BTreeMap<AgentId, Kept>>,
    approvals: Mutex<BTreeMap<String, ApprovalRecord>>,
    pub fail_appends: std::sync::atomic::AtomicBool,
}

#[derive(Clone)]
struct Kept {
    record: AgentRecord,
    messages: Vec<SharedMessage>,
    saved: bool,
    kept: bool,
    copy_of: Option<AgentId>,
}

impl Kept {
    fn new(record: AgentRecord, messages: Vec<SharedMessage>) -> Self {
        Self { record, messages, saved: false, kept: false, copy_of: None }
    }

    fn session(&self) -> SessionRecord {
        SessionRecord {
            record: self.record.clone(),
            saved: self.saved,
            updated_at: self.record.created_at,
            made_by: self.record.parent.clone(),
        }
    }

    fn set(&mut self, settings: SettingsRecord) {
        let SettingsRecord { permissions, grants, model, cwd, system_prompt } = settings;
        self.record.permissions = permissions;
        self.record.grants = grants;
        self.record.model = model;
        self.record.cwd = cwd;
        self.record.system_prompt = system_prompt;
    }
}

impl MemoryStore {
    fn family(&self, ids: &[AgentId]) -> Vec<AgentId> {
        let agents = self.agents.lock().unwrap();
        let mut family = ids.to_vec();
        let mut next = 0;
        while next < family.len() {
            let children = agents.values().filter(|kept| !kept.saved);
            let children =
                children.filter(|kept| kept.record.parent.as_ref() == Some(&family[next]));
            let children: Vec<_> = children.map(|kept| kept.record.id.clone()).collect();
            family.extend(children.into_iter().filter(|id| !ids.contains(id)));
            next += 1;
        }
        family
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, agent: AgentRecord) -> Result<Fence, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        if agents.contains_key(&agent.id) {
            return Err(StoreError::Exists(agent.id));
        }
        agents.insert(agent.id.clone(), Kept::new(agent, Vec::new()));
        Ok(Fence(1))
    }

    async fn acquire(&self, id: &AgentId) -> Result<Option<StoredAgent>, StoreError> {
        let found = self.agents.lock().unwrap().get(id).filter(|kept| !kept.saved).cloned();
        Ok(found.map(|Kept { record, messages, .. }| StoredAgent {
            record,
            fence: Fence(1),
            messages,
        }))
    }

    async fn list(&self) -> Result<Vec<AgentRecord>, StoreError> {
        let agents = self.agents.lock().unwrap();
        Ok(agents.values().filter(|kept| !kept.saved).map(|kept| kept.record.clone()).collect())
    }

    async fn destroy(&self, ids: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError> {
        let family = self.family(&ids);
        let mut agents = self.agents.lock().unwrap();
        agents.retain(|id, kept| kept.saved || kept.kept || !family.contains(id));
        for kept in agents.values_mut() {
            kept.saved |= family.contains(&kept.record.id);
            if kept.record.parent.as_ref().is_some_and(|parent| family.contains(parent)) {
                kept.record.parent = None;
            }
        }
        self.approvals.lock().unwrap().retain(|_, approval| !family.contains(&approval.agent));
        Ok(family)
    }

    async fn sessions(&self, query: SessionQuery) -> Result<SessionPage, StoreError> {
        let agents = self.agents.lock().unwrap();
        let all: Vec<_> = agents.values().map(Kept::session).collect();
        let total = all.len() as u64;
        let page = all.into_iter().skip(query.offset as usize).take(query.limit as usize);
        Ok(SessionPage { total, sessions: page.collect() })
    }

    async fn session(&self, name: &AgentId) -> Result<Option<SessionRecord>, StoreError> {
        Ok(self.agents.lock().unwrap().get(name).map(Kept::session))
    }

    async fn read_session(
        &self,
        name: &AgentId,
    ) -> Result<Option<(SessionRecord, Vec<SharedMessage>)>, StoreError> {
        let found = self.agents.lock().unwrap().get(name).cloned();
        Ok(found.map(|kept| (kept.session(), kept.messages)))
    }

    async fn settle(
        &self,
        _: &AgentId,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<Fence, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        if agents.contains_key(&record.id) {
            return Err(StoreError::Exists(record.id));
        }
        agents.insert(record.id.clone(), Kept { kept: true, ..Kept::new(record, messages) });
        Ok(Fence(1))
    }

    async fn keep(&self, id: &AgentId, _: Fence) -> Result<(), StoreError> {
        self.agents.lock().unwrap().get_mut(id).unwrap().kept = true;
        Ok(())
    }

    async fn copy_session(
        &self,
        from: &AgentId,
        to: &AgentId,
        replace: bool,
    ) -> Result<bool, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        let Some(mut copy) = agents.get(from).cloned() else { return Ok(false) };
        if agents.get(to).is_some_and(|old| !(replace && old.copy_of.as_ref() == Some(from))) {
            return Err(StoreError::Exists(to.clone()));
        }
        copy.record.id = to.clone();
        (copy.saved, copy.kept, copy.copy_of) = (true, true, replace.then(|| from.clone()));
        agents.insert(to.clone(), copy);
        Ok(true)
    }

    async fn load(
        &self,
        from: &AgentId,
        to: &AgentId,
        settings: Option<SettingsRecord>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        let Some(mut found) = agents.get(from).cloned() else { return Ok(None) };
        if from != to && agents.contains_key(to) {
            return Err(StoreError::Exists(to.clone()));
        }
        found.record.id = to.clone();
        (found.saved, found.copy_of) = (false, None);
        settings.into_iter().for_each(|settings| found.set(settings));
        agents.insert(to.clone(), found.clone());
        let Kept { record, messages, .. } = found;
        Ok(Some(StoredAgent { record, fence: Fence(1), messages }))
    }

    async fn rename(&self, from: &AgentId, to: &AgentId) -> Result<bool, StoreError> {
        let mut agents = self.agents.lock().unwrap();
        if agents.contains_key(to) {
            return Err(StoreError::Exists(to.clone()));
        }
        let Some(mut found) = agents.remove(from) else { return Ok(false) };
        found.record.id = to.clone();
        agents.insert(to.clone(), found);
        for kept in agents.values_mut().filter(|kept| kept.record.parent.as_ref() == Some(from)) {
            kept.record.parent = Some(to.clone());
        }
        Ok(true)
    }

    async fn delete(&self, name: &AgentId) -> Result<Vec<AgentId>, StoreError> {
        match self.agents.lock().unwrap().get_mut(name) {
            Some(found) => (found.saved, found.kept) = (false, false),
            None => return Ok(Vec::new()),
        }
        self.destroy(vec![name.clone()]).await
    }

    fn append(
        &self,
        id: &AgentId,
        _: Fence,
        append: Append,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        if self.fail_appends.load(std::sync::atomic::Ordering::Relaxed) {
            return async { Err(StoreError::DiskFull) }.boxed();
        }
        let mut agents = self.agents.lock().unwrap();
        let result = match agents.get_mut(id) {
            None => Err(StoreError::Unknown(id.clone())),
            Some(Kept { record, messages, .. }) => {
                assert_eq!(append.first_index, messages.len() as u64);
                messages.extend(append.messages);
                record.message_count = messages.len() as u64;
                record.last_action_at = messages.last().map(|message| message.meta.at);
                record.progress = append.progress.unwrap_or(record.progress);
                Ok(())
            }
        };
        async { result }.boxed()
    }

    fn update(
        &self,
        id: &AgentId,
        _: Fence,
        settings: SettingsRecord,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let mut agents = self.agents.lock().unwrap();
        agents.get_mut(id).unwrap().set(settings);
        async { Ok(()) }.boxed()
    }

    async fn release(&self, _: &AgentId, _: Fence) -> Result<(), StoreError> {
        Ok(())
    }

    async fn put_approval(&self, approval: ApprovalRecord) -> Result<(), StoreError> {
        self.approvals.lock().unwrap().insert(approval.id.clone(), approval);
        Ok(())
    }

    async fn settle_approval(&self, id: &str, status: ApprovalStatus) -> Result<(), StoreError> {
        if let Some(approval) = self.approvals.lock().unwrap().get_mut(id) {
            approval.status = status;
        }
        Ok(())
    }

    async fn approval(&self, id: &str) -> Result<Option<StoredApproval>, StoreError> {
        let found = self.approvals.lock().unwrap().get(id).cloned();
        Ok(found.map(|record| StoredApproval { record, waits_in: None }))
    }

    async fn approvals(&self) -> Result<Vec<ApprovalRecord>, StoreError> {
        Ok(self.approvals.lock().unwrap().values().cloned().collect())
    }

    fn changes_elsewhere(&self) -> u64 {
        0
    }

    fn void_through(&self) -> Fence {
        Fence(0)
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
