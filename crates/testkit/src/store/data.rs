//! What a store in memory holds, and the rules by which it changes. Each function happens whole or refuses and changes
//! nothing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::agent::AgentSettings;
use nexus_core::brief::Brief;
use nexus_core::message::{Role, SharedMessage};
use nexus_core::permission::DEPTH_MAX;
use nexus_core::plan::PlanId;
use nexus_core::spending::day;
use nexus_core::store::{
    AgentKey, AgentPage, AgentQuery, AgentRecord, AnswerRoom, Append, ApprovalPage, ApprovalQuery,
    ApprovalRecord, ApprovalStatus, Begun, CallDigest, Census, Contact, ContextChange,
    ContextOutcome, Copied, Earlier, Effect, EntryNow, Fence, Holder, KeyRecord, Lease,
    ListedAgent, PlanPage, PlanQuery, PlanRecord, PlanRoom, SessionPage, SessionQuery,
    SessionRecord, Settlement, SharedContext, SpendingBy, SpendingQuery, Spent, StoreError,
    StoredAgent, StoredApproval, StoredPlan, Window, entry_bytes,
};
use nexus_core::usage::Bill;

use super::answers::Answers;
use super::memories::Memories;
use super::plans::Plans;

/// A process that writes, by a number that no other ever has. One that was taken for dead goes on under a new one.
pub(super) type Process = u32;

#[derive(Default)]
pub(super) struct Data {
    rows: BTreeMap<i64, Row>,
    keys: HashMap<AgentId, i64>,
    approvals: BTreeMap<String, Asked>,
    briefings: HashMap<u64, Arc<Brief>>,
    pub(super) memories: Memories,
    pub(super) plans: Plans,
    pub(super) context: SharedContext,
    pub(super) answers: Answers,
    pub(super) signing: BTreeMap<String, KeyRecord>,
    living: BTreeMap<Process, Contact>,
    last_key: i64,
    pub(super) last_fence: u64,
    last_process: Process,
    /// Grows with each change of a session: which was changed last is not a matter of a clock.
    changes: u64,
    /// Writes that happened, of whomever.
    pub(super) commits: u64,
}

#[derive(Clone)]
struct Row {
    record: AgentRecord,
    messages: Vec<SharedMessage>,
    /// How many messages from the first were copied from another.
    own_from: usize,
    /// What its descendants used that are gone.
    ended: Bill,
    owner: Option<Process>,
    fence: u64,
    saved: bool,
    kept: bool,
    copy_of: Option<i64>,
    made_by: Option<AgentId>,
    changed: u64,
    updated_at: Timestamp,
}

#[derive(Clone)]
struct Asked {
    record: ApprovalRecord,
    owner: Process,
}

impl Data {
    pub(super) fn change_context(&mut self, change: ContextChange) -> ContextOutcome {
        let SharedContext { version, entries } = &mut self.context;
        let at = (change.kind, change.key.clone());
        let others: Vec<_> = entries.iter().filter(|(key, _)| **key != at).collect();
        let now = EntryNow {
            version: *version,
            current: entries.get(&at).cloned(),
            others: others.len() as u64,
            others_bytes: others.iter().map(|((_, key), value)| entry_bytes(key, value)).sum(),
        };
        match change.effect(&now) {
            Err(refusal) => return ContextOutcome::Refused(refusal),
            Ok(Effect::Nothing) => {
                return ContextOutcome::Done { changed: false, version: *version };
            }
            Ok(Effect::Put(value)) => entries.insert(at, value),
            Ok(Effect::Remove) => entries.remove(&at),
        };
        *version += 1;
        ContextOutcome::Done { changed: true, version: *version }
    }

    pub(super) fn begin_answer(
        &mut self,
        me: Process,
        call: CallDigest,
        room: AnswerRoom,
        now: Timestamp,
    ) -> Earlier {
        let living = &self.living;
        self.answers.begin(me, call, room, now, |process| {
            let contact = living.get(&process).filter(|_| process != me)?.clone();
            Some(Holder { pid: process, contact })
        })
    }

    pub(super) fn remove_answers(&mut self, now: Timestamp, limit: u32) -> u64 {
        let living = &self.living;
        self.answers.remove(now, limit, |process| living.contains_key(&process))
    }

    /// A process begins. What the temporary agents of those that are gone asked for is removed.
    pub(super) fn join(&mut self) -> Process {
        let living = &self.living;
        self.approvals.retain(|_, it| !it.record.agent.is_temp() || living.contains_key(&it.owner));
        self.last_process += 1;
        self.living.insert(self.last_process, Contact::default());
        self.last_process
    }

    /// A process ends, without a word or with one.
    pub(super) fn leave(&mut self, process: Process) {
        self.living.remove(&process);
    }

    pub(super) fn add_plan(&mut self, plan: PlanRecord, stale: Timestamp, room: PlanRoom) {
        let living = &self.living;
        self.plans.add(plan, stale, room, &|process| living.contains_key(&process));
    }

    pub(super) fn plan(&self, id: &PlanId) -> Option<StoredPlan> {
        self.plans.find(id, &|process| self.living.contains_key(&process))
    }

    pub(super) fn plan_page(&self, query: &PlanQuery) -> PlanPage {
        self.plans.page(query, &|process| self.living.contains_key(&process))
    }

    pub(super) fn begin_plan(&mut self, me: Process, id: &PlanId, now: Timestamp) -> Option<Begun> {
        let fence = self.next_fence();
        let living = &self.living;
        self.plans.begin(me, id, fence, now, &|process| living.contains_key(&process))
    }

    pub(super) fn announce(&mut self, me: Process, contact: Contact) {
        self.living.insert(me, contact);
    }

    pub(super) fn contact(&self, process: Process) -> Contact {
        self.living.get(&process).cloned().unwrap_or_default()
    }

    pub(super) fn release_all(&mut self, me: Process) {
        for row in self.rows.values_mut().filter(|row| row.owner == Some(me)) {
            row.owner = None;
        }
    }

    pub(super) fn create(&mut self, me: Process, record: AgentRecord) -> Result<Lease, StoreError> {
        self.insert(me, record, Vec::new())
    }

    pub(super) fn create_child(
        &mut self,
        me: Process,
        record: AgentRecord,
        parent: AgentKey,
    ) -> Result<Lease, StoreError> {
        match self.rows.get(&parent.0).filter(|row| !row.saved) {
            Some(row) => {
                let parent = Some(row.record.id.clone());
                self.insert(me, AgentRecord { parent, ..record }, Vec::new())
            }
            None => Err(StoreError::UnknownParent(record.parent.unwrap_or(record.id))),
        }
    }

    fn insert(
        &mut self,
        me: Process,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<Lease, StoreError> {
        self.refuse_if_taken(&record.id)?;
        if let Some(parent) = record.parent.as_ref().filter(|parent| !parent.is_temp())
            && self.named(parent).is_none_or(|(_, row)| row.saved)
        {
            return Err(StoreError::UnknownParent(parent.clone()));
        }
        let fence = self.next_fence();
        let row = Row {
            record: AgentRecord { born: fence, ..record },
            messages,
            own_from: 0,
            ended: Bill::default(),
            owner: Some(me),
            fence,
            saved: false,
            kept: false,
            copy_of: None,
            made_by: None,
            changed: 0,
            updated_at: Timestamp::now(),
        };
        let agent = self.add(row);
        Ok(Lease { agent, fence: Fence(fence) })
    }

    fn add(&mut self, mut row: Row) -> AgentKey {
        self.changes += 1;
        row.changed = self.changes;
        row.count();
        self.last_key += 1;
        if row.record.root == 0 {
            row.record.root = self.last_key.unsigned_abs();
        }
        self.keys.insert(row.record.id.clone(), self.last_key);
        self.rows.insert(self.last_key, row);
        AgentKey(self.last_key)
    }

    pub(super) fn acquire(
        &mut self,
        me: Process,
        id: &AgentId,
    ) -> Result<Option<StoredAgent>, StoreError> {
        match self.named(id) {
            Some((key, row)) if !row.saved => self.take(me, key).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    fn take(&mut self, me: Process, key: i64) -> Result<StoredAgent, StoreError> {
        let Some(row) = self.rows.get(&key) else { return Err(StoreError::Ended) };
        self.refuse_if_held_elsewhere(me, row)?;
        let fence = self.next_fence();
        let Some(row) = self.rows.get_mut(&key) else { return Err(StoreError::Ended) };
        (row.owner, row.fence) = (Some(me), fence);
        let lease = Lease { agent: AgentKey(key), fence: Fence(fence) };
        Ok(StoredAgent { record: row.record.clone(), lease, window: window(&row.messages) })
    }

    fn held(&mut self, me: Process, lease: Lease) -> Result<&mut Row, StoreError> {
        match self.rows.get_mut(&lease.agent.0) {
            Some(row) if row.saved => Err(StoreError::Ended),
            Some(row) if row.owner == Some(me) && row.fence == lease.fence.0 => Ok(row),
            Some(_) => Err(StoreError::LeaseLost),
            None => Err(StoreError::Ended),
        }
    }

    pub(super) fn append(
        &mut self,
        me: Process,
        lease: Lease,
        append: Append,
    ) -> Result<(), StoreError> {
        let changes = self.changes + 1;
        let row = self.held(me, lease)?;
        let length = row.messages.len() as u64;
        if append.first_index != length {
            let at = append.first_index;
            return Err(StoreError::Failed(format!("an append at {at} of {length} messages")));
        }
        row.messages.extend(append.messages);
        row.count();
        row.record.bill = append.bill.unwrap_or(row.record.bill);
        if let Some(progress) = append.progress {
            row.record.progress = progress;
            (row.changed, row.updated_at) = (changes, Timestamp::now());
            self.changes = changes;
        }
        if let Some(brief) = append.brief {
            self.briefings.insert(brief.digest, brief);
        }
        Ok(())
    }

    pub(super) fn briefing(&self, digest: u64) -> Option<Brief> {
        self.briefings.get(&digest).map(|brief| (**brief).clone())
    }

    pub(super) fn update(
        &mut self,
        me: Process,
        lease: Lease,
        settings: AgentSettings,
    ) -> Result<(), StoreError> {
        let changes = self.changes + 1;
        let row = self.held(me, lease)?;
        row.record.settings = settings;
        (row.changed, row.updated_at) = (changes, Timestamp::now());
        self.changes = changes;
        Ok(())
    }

    pub(super) fn release(&mut self, me: Process, lease: Lease) -> Result<(), StoreError> {
        self.held(me, lease)?.owner = None;
        Ok(())
    }

    pub(super) fn keep(&mut self, me: Process, lease: Lease) -> Result<(), StoreError> {
        self.held(me, lease)?.kept = true;
        Ok(())
    }

    pub(super) fn agents(&self, query: &AgentQuery) -> AgentPage {
        let after = match &query.after {
            None => 0,
            Some(name) => match self.keys.get(name) {
                Some(key) => *key,
                None => return AgentPage::default(),
            },
        };
        let line = query.line_of.as_ref().map(|own| {
            let above = self.lineage(own).into_iter().map(|record| record.id);
            above.chain(self.beneath(std::slice::from_ref(own), false)).collect::<HashSet<_>>()
        });
        let mut shown = self.rows.range(after + 1..).map(|(_, row)| row).filter(|row| {
            let passed_over = query.working && row.record.progress.should_shutdown;
            !(row.saved || passed_over)
                && line.as_ref().is_none_or(|line| line.contains(&row.record.id))
        });
        let agents = shown.by_ref().take(query.limit as usize).map(|row| ListedAgent {
            record: row.record.clone(),
            child_count: self.children(&row.record.id, false).count() as u64,
        });
        AgentPage { agents: agents.collect(), more: shown.next().is_some() }
    }

    pub(super) fn elsewhere(&self, me: Process, among: Vec<AgentId>) -> HashSet<AgentId> {
        let is_elsewhere = |row: &Row| {
            row.owner.is_some_and(|owner| owner != me && self.living.contains_key(&owner))
        };
        let held =
            |id: &AgentId| self.named(id).is_some_and(|(_, row)| !row.saved && is_elsewhere(row));
        among.into_iter().filter(held).collect()
    }

    pub(super) fn lineage(&self, id: &AgentId) -> Vec<AgentRecord> {
        let mut lineage: Vec<AgentRecord> = Vec::new();
        let mut next = Some(id.clone());
        while let Some(name) = next.filter(|_| lineage.len() <= DEPTH_MAX as usize) {
            let Some((_, row)) = self.named(&name).filter(|(_, row)| !row.saved) else { break };
            next = row.record.parent.clone();
            lineage.push(row.record.clone());
        }
        lineage
    }

    pub(super) fn census(&self, root: &AgentId, parent: Option<&AgentId>) -> Census {
        let agent = |id: &AgentId| self.named(id).is_some_and(|(_, row)| !row.saved);
        let tree = self.beneath(std::slice::from_ref(root), false).into_iter().filter(agent);
        let tree: HashSet<_> = tree.collect();
        let belongs = |row: &&Row| {
            let made_by = row.record.parent.as_ref().or(row.made_by.as_ref());
            row.saved && made_by.is_some_and(|made_by| tree.contains(made_by))
        };
        let saved = self.rows.values().filter(belongs).count();
        let children = parent.map_or(0, |parent| self.children(parent, false).count());
        Census { children, tree: tree.len() + saved }
    }

    pub(super) fn messages(
        &self,
        agent: AgentKey,
        first: u64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<SharedMessage>, StoreError> {
        let row = self.rows.get(&agent.0).filter(|row| !row.saved).ok_or(StoreError::Ended)?;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let within = |message: &&SharedMessage| {
            let follows = bytes == 0 || bytes < bytes_max;
            bytes += message.text_bytes();
            follows
        };
        let wanted = row.messages.iter().skip(first).take(limit as usize);
        Ok(wanted.take_while(within).cloned().collect())
    }

    pub(super) fn destroy(
        &mut self,
        me: Process,
        ids: &[AgentId],
    ) -> Result<Vec<AgentId>, StoreError> {
        let mut family: Vec<i64> = self
            .beneath(ids, false)
            .iter()
            .filter_map(|id| self.named(id))
            .filter(|(_, row)| !row.saved)
            .map(|(key, _)| key)
            .collect();
        family.sort_by_key(|key| (self.rows.get(key).map(|row| row.record.depth), *key));
        for row in family.iter().filter_map(|key| self.rows.get(key)) {
            self.refuse_if_held_elsewhere(me, row)?;
        }
        self.bequeath(&family);
        let mut gone = Vec::new();
        for key in family {
            let Some(row) = self.rows.get_mut(&key) else { continue };
            gone.push(row.record.id.clone());
            if row.kept {
                (row.saved, row.owner) = (true, None);
                row.record.progress.should_shutdown = false;
                row.made_by = row.record.parent.take().or(row.made_by.take());
            } else if let Some(row) = self.rows.remove(&key) {
                self.keys.remove(&row.record.id);
                self.memories.forget(std::slice::from_ref(&row.record.id));
            }
        }
        let ended: HashSet<&AgentId> = gone.iter().collect();
        for row in self.rows.values_mut().filter(|row| row.saved) {
            if row.record.parent.as_ref().is_some_and(|parent| ended.contains(parent)) {
                row.made_by = row.record.parent.take();
            }
        }
        self.approvals.retain(|_, it| {
            let of_temp = it.owner == me && it.record.agent.is_temp();
            !(ended.contains(&it.record.agent) || of_temp && ids.contains(&it.record.agent))
        });
        Ok(gone)
    }

    /// What those who go have used is noted with their nearest ancestor that stays.
    fn bequeath(&mut self, family: &[i64]) {
        let of_family: HashSet<i64> = family.iter().copied().collect();
        for key in family {
            let Some(row) = self.rows.get(key).filter(|row| !row.kept) else { continue };
            let (bill, mut heir) = (row.record.bill + row.ended, row.record.parent.clone());
            while let Some(key) = heir.as_ref().and_then(|id| self.keys.get(id))
                && of_family.contains(key)
            {
                heir = self.rows.get(key).and_then(|row| row.record.parent.clone());
            }
            if let Some(heir) = heir {
                self.absorb(&heir, bill);
            }
        }
    }

    pub(super) fn absorb(&mut self, heir: &AgentId, bill: Bill) {
        if let Some(row) = self.keys.get(heir).and_then(|key| self.rows.get_mut(key)) {
            row.ended += bill;
        }
    }

    pub(super) fn spending(&self, query: &SpendingQuery) -> Vec<Spent> {
        let family = query.of.as_ref().map(|of| match query.tree {
            true => self.beneath(std::slice::from_ref(of), false),
            false => vec![of.clone()],
        });
        let asked = |row: &&Row| {
            !row.saved && family.as_ref().is_none_or(|family| family.contains(&row.record.id))
        };
        let mut sums: BTreeMap<String, Bill> = BTreeMap::new();
        for row in self.rows.values().filter(asked) {
            if query.by == SpendingBy::Agent && query.since.is_none() {
                let all = query.tree || query.of.is_none();
                let ended = if all { row.ended } else { Bill::default() };
                *sums.entry(row.record.id.to_string()).or_default() += row.record.bill + ended;
                continue;
            }
            for message in row.messages.iter().skip(row.own_from) {
                let Some(made) = &message.meta.made else { continue };
                if query.since.is_some_and(|since| message.meta.at < since) {
                    continue;
                }
                let key = match query.by {
                    SpendingBy::Agent => row.record.id.to_string(),
                    SpendingBy::Model => format!("{}/{}", made.origin.provider, made.origin.model),
                    SpendingBy::Day => day(message.meta.at),
                };
                *sums.entry(key).or_default() += made.bill;
            }
        }
        sums.into_iter().map(|(key, bill)| Spent { key, bill }).collect()
    }

    pub(super) fn sessions(&self, query: &SessionQuery) -> SessionPage {
        let line = query.line_of.as_ref().map(|own| self.beneath(std::slice::from_ref(own), true));
        let line = line.map(|line| line.into_iter().collect::<HashSet<_>>());
        let mut all: Vec<&Row> = self
            .rows
            .values()
            .filter(|row| line.as_ref().is_none_or(|line| line.contains(&row.record.id)))
            .collect();
        all.sort_by_key(|row| std::cmp::Reverse(row.changed));
        let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
        let page = all.iter().skip(offset).take(query.limit as usize);
        SessionPage { total: all.len() as u64, sessions: page.map(|row| row.session()).collect() }
    }

    pub(super) fn session(&self, name: &AgentId) -> Option<(SessionRecord, Vec<SharedMessage>)> {
        self.named(name).map(|(_, row)| (row.session(), row.messages.clone()))
    }

    pub(super) fn settle(
        &mut self,
        me: Process,
        was: &AgentId,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<(Lease, u64), StoreError> {
        let name = record.id.clone();
        let lease = self.insert(me, record, messages)?;
        self.keep(me, lease)?;
        self.rename_approvals(me, was, &name);
        Ok((lease, lease.fence.0))
    }

    pub(super) fn copy(
        &mut self,
        from: &AgentId,
        copied: Copied,
        replace: bool,
    ) -> Result<bool, StoreError> {
        let Some((source, row)) = self.named(from) else { return Ok(false) };
        let mut copy = Row { owner: None, saved: true, kept: true, ..row.copied() };
        match self.named(&copied.name) {
            Some((key, old)) if replace && old.saved && old.copy_of == Some(source) => {
                self.rows.remove(&key);
            }
            Some(_) | None => self.refuse_if_taken(&copied.name)?,
        }
        copy.copy_of = replace.then_some(source);
        self.add_copy(copy, copied);
        Ok(true)
    }

    fn add_copy(&mut self, mut copy: Row, copied: Copied) -> Lease {
        if let Some(max) = copied.length_max {
            copy.messages.truncate(usize::try_from(max).unwrap_or(usize::MAX));
            copy.own_from = copy.messages.len();
            copy.count();
        }
        copy.fence = self.next_fence();
        copy.record.id = copied.name;
        copy.record.born = copy.fence;
        copy.record.created_at = Timestamp::now();
        copy.record.settings = copied.settings;
        copy.record.progress = copied.progress;
        copy.made_by = copied.made_by;
        copy.updated_at = copy.record.created_at;
        let fence = Fence(copy.fence);
        Lease { agent: self.add(copy), fence }
    }

    pub(super) fn load(
        &mut self,
        me: Process,
        name: &AgentId,
        settings: Option<AgentSettings>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let Some((key, session)) = self.named(name) else { return Ok(None) };
        let was_saved = session.saved;
        let fence = self.take(me, key)?.lease.fence;
        let Some(row) = self.rows.get_mut(&key) else { return Ok(None) };
        if was_saved {
            (row.saved, row.copy_of, row.record.born) = (false, None, fence.0);
        }
        if let Some(settings) = settings {
            row.record.settings = settings;
        }
        Ok(Some(row.stored(key)))
    }

    pub(super) fn load_copy(
        &mut self,
        me: Process,
        from: &AgentId,
        copied: Copied,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let Some((_, source)) = self.named(from) else { return Ok(None) };
        self.refuse_if_taken(&copied.name)?;
        let copy =
            Row { owner: Some(me), saved: false, kept: false, copy_of: None, ..source.copied() };
        let AgentKey(key) = self.add_copy(copy, copied).agent;
        Ok(self.rows.get(&key).map(|row| row.stored(key)))
    }

    pub(super) fn rename(
        &mut self,
        me: Process,
        from: &AgentId,
        to: &AgentId,
    ) -> Result<Option<u64>, StoreError> {
        let Some((key, row)) = self.named(from) else { return Ok(None) };
        self.refuse_if_held_elsewhere(me, row)?;
        self.refuse_if_taken(to)?;
        let born = self.next_fence();
        self.keys.remove(from);
        self.keys.insert(to.clone(), key);
        if let Some(row) = self.rows.get_mut(&key) {
            (row.record.id, row.record.born) = (to.clone(), born);
        }
        for row in self.rows.values_mut().filter(|row| row.record.parent.as_ref() == Some(from)) {
            row.record.parent = Some(to.clone());
        }
        for row in self.rows.values_mut().filter(|row| row.made_by.as_ref() == Some(from)) {
            row.made_by = Some(to.clone());
        }
        self.rename_approvals(me, from, to);
        self.memories.rename(from, to);
        self.plans.rename(from, to);
        Ok(Some(born))
    }

    pub(super) fn delete(
        &mut self,
        me: Process,
        name: &AgentId,
    ) -> Result<Vec<AgentId>, StoreError> {
        let Some(key) = self.keys.get(name).copied() else { return Ok(Vec::new()) };
        let Some(row) = self.rows.get_mut(&key) else { return Ok(Vec::new()) };
        let before = (row.saved, row.kept);
        (row.saved, row.kept) = (false, false);
        let gone = self.destroy(me, std::slice::from_ref(name));
        if gone.is_err()
            && let Some(row) = self.rows.get_mut(&key)
        {
            (row.saved, row.kept) = before;
        }
        gone
    }

    pub(super) fn put_approval(
        &mut self,
        me: Process,
        record: ApprovalRecord,
    ) -> Result<(), StoreError> {
        let known =
            record.agent.is_temp() || self.named(&record.agent).is_some_and(|(_, row)| !row.saved);
        if !known {
            return Err(StoreError::Ended);
        }
        self.approvals.insert(record.id.clone(), Asked { record, owner: me });
        Ok(())
    }

    pub(super) fn settle_approval(
        &mut self,
        me: Process,
        settlement: Settlement,
    ) -> Result<(), StoreError> {
        if let Some((lease, settings)) = settlement.grant {
            self.update(me, lease, settings)?;
        }
        if let Some(asked) = self.approvals.get_mut(&settlement.id) {
            asked.record.answer = settlement.answer;
        }
        Ok(())
    }

    pub(super) fn approval(&self, me: Process, id: &str) -> Option<StoredApproval> {
        let asked = self.approvals.get(id)?;
        let record = self.as_seen(asked);
        let waits = record.answer.status == ApprovalStatus::Pending && asked.owner != me;
        Some(StoredApproval { waits_in: waits.then(|| self.holder(asked.owner)), record })
    }

    pub(super) fn approvals(&self, me: Process, query: &ApprovalQuery) -> ApprovalPage {
        let line = query.line_of.as_ref().map(|own| self.beneath(std::slice::from_ref(own), false));
        let mut all: Vec<&Asked> = self
            .approvals
            .values()
            .filter(|it| !it.record.agent.is_temp() || it.owner == me)
            .filter(|it| query.agent.as_ref().is_none_or(|agent| *agent == it.record.agent))
            .filter(|it| line.as_ref().is_none_or(|line| line.contains(&it.record.agent)))
            .filter(|it| {
                let waits = || self.as_seen(it).answer.status == ApprovalStatus::Pending;
                !query.elsewhere || (it.owner != me && waits())
            })
            .collect();
        all.sort_by_key(|it| (it.record.created_at, it.record.id.clone()));
        if let Some(after) = &query.after {
            let Some(after) = self.approvals.get(after) else { return ApprovalPage::default() };
            let after = (after.record.created_at, &after.record.id);
            all.retain(|it| (it.record.created_at, &it.record.id) > after);
        }
        let more = all.len() > query.limit as usize;
        let page = all.into_iter().take(query.limit as usize);
        ApprovalPage { approvals: page.map(|it| self.as_seen(it)).collect(), more }
    }

    fn as_seen(&self, asked: &Asked) -> ApprovalRecord {
        let mut record = asked.record.clone();
        if record.answer.status == ApprovalStatus::Pending
            && !self.living.contains_key(&asked.owner)
        {
            record.answer.status = ApprovalStatus::DeniedByRestart;
        }
        record
    }

    fn rename_approvals(&mut self, me: Process, from: &AgentId, to: &AgentId) {
        let theirs =
            |it: &&mut Asked| it.record.agent == *from && (!from.is_temp() || it.owner == me);
        for asked in self.approvals.values_mut().filter(theirs) {
            asked.record.agent = to.clone();
        }
    }

    fn named(&self, name: &AgentId) -> Option<(i64, &Row)> {
        let key = *self.keys.get(name)?;
        self.rows.get(&key).map(|row| (key, row))
    }

    fn children(&self, parent: &AgentId, saved: bool) -> impl Iterator<Item = &Row> {
        let rows = self.rows.values().filter(move |row| saved || !row.saved);
        rows.filter(|row| row.record.parent.as_ref() == Some(parent))
    }

    /// The names and those of all that descend from them, parents first, saved sessions among them or not.
    fn beneath(&self, ids: &[AgentId], saved: bool) -> Vec<AgentId> {
        let mut children: HashMap<&AgentId, Vec<&AgentId>> = HashMap::new();
        for row in self.rows.values().filter(|row| saved || !row.saved) {
            if let Some(parent) = &row.record.parent {
                children.entry(parent).or_default().push(&row.record.id);
            }
        }
        let mut next: VecDeque<&AgentId> = ids.iter().collect();
        let (mut seen, mut family) = (HashSet::new(), Vec::new());
        while let Some(id) = next.pop_front() {
            if seen.insert(id) {
                family.push(id.clone());
                next.extend(children.get(id).into_iter().flatten());
            }
        }
        family
    }

    fn refuse_if_taken(&self, name: &AgentId) -> Result<(), StoreError> {
        match self.named(name) {
            None => Ok(()),
            Some((_, row)) if row.saved => Err(StoreError::Saved(name.clone())),
            Some(_) => Err(StoreError::Exists(name.clone())),
        }
    }

    fn refuse_if_held_elsewhere(&self, me: Process, row: &Row) -> Result<(), StoreError> {
        match row.owner {
            Some(owner) if owner != me && self.living.contains_key(&owner) => {
                let holder = self.holder(owner);
                Err(StoreError::HeldElsewhere { id: row.record.id.clone(), holder })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn holder(&self, process: Process) -> Holder {
        Holder { pid: process, contact: self.contact(process) }
    }

    fn next_fence(&mut self) -> u64 {
        self.last_fence += 1;
        self.last_fence
    }
}

impl Row {
    /// A copy of what was said. What it cost was paid once.
    fn copied(&self) -> Self {
        let mut copy = self.clone();
        (copy.record.bill, copy.ended) = (Bill::default(), Bill::default());
        copy.own_from = copy.messages.len();
        copy
    }

    fn count(&mut self) {
        self.record.message_count = self.messages.len() as u64;
        self.record.last_action_at = self.messages.last().map(|message| message.meta.at);
    }

    /// The agent that this row is, held by its owner.
    fn stored(&self, key: i64) -> StoredAgent {
        let lease = Lease { agent: AgentKey(key), fence: Fence(self.fence) };
        StoredAgent { record: self.record.clone(), lease, window: window(&self.messages) }
    }

    fn session(&self) -> SessionRecord {
        let said_at = self.record.last_action_at.unwrap_or(self.updated_at);
        SessionRecord {
            record: self.record.clone(),
            saved: self.saved,
            updated_at: self.updated_at.max(said_at),
            made_by: self.record.parent.clone().or_else(|| self.made_by.clone()),
        }
    }
}

fn window(messages: &[SharedMessage]) -> Window {
    let first = match messages.iter().rposition(|it| it.role == Role::Summary) {
        None => 0,
        Some(summary) => {
            let covers = messages[summary].meta.covers.unwrap_or(summary).min(summary);
            let asked = messages[..covers].iter().rposition(|it| it.role == Role::User);
            asked.unwrap_or(covers)
        }
    };
    Window { first: first as u64, messages: messages[first..].to_vec() }
}
