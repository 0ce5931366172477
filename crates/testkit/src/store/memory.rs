//! A store in memory, with the rules of a real one and hands to break it by.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::agent::AgentSettings;
use nexus_core::brief::Brief;
use nexus_core::message::SharedMessage;
use nexus_core::plan::{PlanId, PlanStatus, TaskRecord};
use nexus_core::store::{
    AgentKey, AgentPage, AgentQuery, AgentRecord, AgentStore, AnswerRoom, AnswersStore, Append,
    ApprovalPage, ApprovalQuery, ApprovalRecord, ApprovalStore, Begun, CallDigest, Census, Contact,
    ContextChange, ContextOutcome, ContextStore, Copied, Deletion, Earlier, Fence, IdPrefix,
    KeyAdded, KeyAgent, KeyRecord, KeyStore, Lease, MemoriesStore, MemoryId, MemoryKey,
    MemoryQuery, MemoryRecord, MemoryRoom, MemoryScope, PlanPage, PlanQuery, PlanRecord, PlanRoom,
    PlanRun, PlanStore, ScopeKey, SessionPage, SessionQuery, SessionRecord, SessionStore,
    Settlement, SharedContext, SpendingQuery, Spent, StoreError, StoredAgent, StoredApproval,
    StoredPlan, StoredVector, Unembedded,
};
use nexus_core::usage::Bill;
use tokio::sync::{oneshot, watch};

use super::data::{Data, Process};

/// A store in memory: one process on data that others may share. It keeps the contract of stores, and beside that it can
/// be told to fail a call ([`fail_next`](Self::fail_next), [`fail_when`](Self::fail_when)), to let writes wait
/// ([`hold`](Self::hold)), to be two processes ([`neighbour`](Self::neighbour)) and to have been taken for dead
/// ([`revoke`](Self::revoke)). Dropping it is the death of its process.
pub struct MemoryStore {
    data: Arc<Mutex<Data>>,
    own: Arc<Mutex<Own>>,
    waiting: watch::Receiver<usize>,
}

/// One call of a method, as it comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: &'static str,
    /// Counted from 1 over all methods of one process.
    pub number: u64,
}

/// While it lives, writes of its process are queued and wait.
#[must_use]
pub struct Held {
    data: Arc<Mutex<Data>>,
    own: Arc<Mutex<Own>>,
}

type Fault = Box<dyn FnMut(Call) -> Option<StoreError> + Send>;
type Job = Box<dyn FnOnce(&mut Data, &mut Own) + Send>;

/// What belongs to one process.
struct Own {
    process: Process,
    void_through: u64,
    calls: u64,
    commits: u64,
    closed: bool,
    holds: u32,
    queue: VecDeque<Job>,
    waiting: watch::Sender<usize>,
    faults: Vec<Fault>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::on(Arc::default())
    }
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Another process on the same data, with faults and holds of its own.
    pub fn neighbour(&self) -> Self {
        Self::on(self.data.clone())
    }

    fn on(data: Arc<Mutex<Data>>) -> Self {
        let (sender, waiting) = watch::channel(0);
        let own = Own {
            process: lock(&data).join(),
            void_through: 0,
            calls: 0,
            commits: 0,
            closed: false,
            holds: 0,
            queue: VecDeque::new(),
            waiting: sender,
            faults: Vec::new(),
        };
        Self { data, own: Arc::new(Mutex::new(own)), waiting }
    }

    /// Lets the `nth` call from here on, of whatever method, fail once and change nothing; 1 is the next one.
    pub fn fail_next(&self, nth: u64, error: StoreError) {
        let mut own = lock(&self.own);
        let number = own.calls + nth;
        own.faults.push(Box::new(move |call| (call.number == number).then(|| error.clone())));
    }

    /// Asks `fault` at each call from here on whether it is to fail.
    pub fn fail_when(&self, fault: impl FnMut(Call) -> Option<StoreError> + Send + 'static) {
        lock(&self.own).faults.push(Box::new(fault));
    }

    /// How many calls there were, so that a test can go through all places at which one could fail.
    pub fn calls(&self) -> u64 {
        lock(&self.own).calls
    }

    /// Lets writes wait, in their order, until what this returns is dropped. Reads see what was written before.
    pub fn hold(&self) -> Held {
        lock(&self.own).holds += 1;
        Held { data: self.data.clone(), own: self.own.clone() }
    }

    /// Waits until so many writes are held back.
    pub async fn until_waiting(&self, count: usize) {
        // An error would say that the store is gone, and it is borrowed here.
        self.waiting.clone().wait_for(|waiting| *waiting >= count).await.ok();
    }

    /// Takes this process for dead, as another does that has seen no sign of life from it: its leases are void, and it
    /// goes on as a new one.
    pub fn revoke(&self) {
        let (mut own, mut data) = (lock(&self.own), lock(&self.data));
        let contact = data.contact(own.process);
        data.leave(own.process);
        own.void_through = data.last_fence;
        own.process = data.join();
        data.announce(own.process, contact);
    }

    /// Queues a write, now and in order.
    fn write<T: Send + 'static>(
        &self,
        method: &'static str,
        work: impl FnOnce(&mut Data, Process) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let mut own = lock(&self.own);
        if let Err(error) = own.enter(method) {
            return ready(Err(error)).boxed();
        }
        let (reply, answer) = oneshot::channel();
        own.queue.push_back(Box::new(move |data, own| {
            let outcome = work(data, own.process);
            if outcome.is_ok() {
                own.commits += 1;
                data.commits += 1;
            }
            // Nobody listens when the caller went away; the write stands all the same.
            reply.send(outcome).ok();
        }));
        own.run(&self.data);
        async { answer.await.unwrap_or(Err(StoreError::Closed)) }.boxed()
    }

    fn read<T>(
        &self,
        method: &'static str,
        work: impl FnOnce(&Data, Process) -> T,
    ) -> Result<T, StoreError> {
        let mut own = lock(&self.own);
        own.enter(method)?;
        Ok(work(&lock(&self.data), own.process))
    }
}

impl Own {
    fn enter(&mut self, method: &'static str) -> Result<(), StoreError> {
        self.calls += 1;
        let call = Call { method, number: self.calls };
        let failed = self.faults.iter_mut().find_map(|fault| fault(call));
        match failed {
            Some(error) => Err(error),
            None if self.closed => Err(StoreError::Closed),
            None => Ok(()),
        }
    }

    /// Runs what waits, unless it is held back.
    fn run(&mut self, data: &Mutex<Data>) {
        while self.holds == 0
            && let Some(job) = self.queue.pop_front()
        {
            job(&mut lock(data), self);
        }
        self.waiting.send_replace(self.queue.len());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut own = lock(&self.own);
        own.holds -= 1;
        own.run(&self.data);
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let mut own = lock(&self.own);
        own.queue.clear();
        lock(&self.data).leave(own.process);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed while it held the lock has said so.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl AgentStore for MemoryStore {
    async fn create(&self, agent: AgentRecord) -> Result<Lease, StoreError> {
        self.write("create", |data, me| data.create(me, agent)).await
    }

    async fn create_child(
        &self,
        agent: AgentRecord,
        parent: AgentKey,
    ) -> Result<Lease, StoreError> {
        self.write("create_child", move |data, me| data.create_child(me, agent, parent)).await
    }

    async fn acquire(&self, id: &AgentId) -> Result<Option<StoredAgent>, StoreError> {
        let id = id.clone();
        self.write("acquire", move |data, me| data.acquire(me, &id)).await
    }

    fn append(&self, lease: Lease, append: Append) -> BoxFuture<'static, Result<(), StoreError>> {
        self.write("append", move |data, me| data.append(me, lease, append))
    }

    fn update(
        &self,
        lease: Lease,
        settings: AgentSettings,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        self.write("update", move |data, me| data.update(me, lease, settings))
    }

    async fn briefing(&self, digest: u64) -> Result<Option<Brief>, StoreError> {
        self.read("briefing", |data, _| data.briefing(digest))
    }

    async fn agents(&self, query: AgentQuery) -> Result<AgentPage, StoreError> {
        self.read("agents", |data, _| data.agents(&query))
    }

    async fn elsewhere(&self, among: Vec<AgentId>) -> Result<HashSet<AgentId>, StoreError> {
        self.read("elsewhere", |data, me| data.elsewhere(me, among))
    }

    async fn lineage(&self, id: &AgentId) -> Result<Vec<AgentRecord>, StoreError> {
        self.read("lineage", |data, _| data.lineage(id))
    }

    async fn census(
        &self,
        root: &AgentId,
        parent: Option<&AgentId>,
        _: usize,
    ) -> Result<Census, StoreError> {
        self.read("census", |data, _| data.census(root, parent))
    }

    async fn messages(
        &self,
        agent: AgentKey,
        first: u64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<SharedMessage>, StoreError> {
        self.read("messages", |data, _| data.messages(agent, first, limit, bytes_max))?
    }

    async fn spending(&self, query: SpendingQuery) -> Result<Vec<Spent>, StoreError> {
        self.read("spending", |data, _| data.spending(&query))
    }

    async fn absorb(&self, heir: &AgentId, bill: Bill) -> Result<(), StoreError> {
        let heir = heir.clone();
        let absorbing = self.write("absorb", move |data, _| {
            data.absorb(&heir, bill);
            Ok(())
        });
        absorbing.await
    }

    async fn destroy(&self, ids: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError> {
        self.write("destroy", move |data, me| data.destroy(me, &ids)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.write("release", move |data, me| data.release(me, lease)).await
    }

    fn void_through(&self) -> Fence {
        Fence(lock(&self.own).void_through)
    }

    fn foreign_commits(&self) -> u64 {
        let own = lock(&self.own);
        lock(&self.data).commits - own.commits
    }

    async fn announce(&self, contact: Contact) -> Result<(), StoreError> {
        self.write("announce", move |data, me| {
            data.announce(me, contact);
            Ok(())
        })
        .await
    }

    async fn close(&self) -> Result<(), StoreError> {
        let closing = self.write("close", |data, me| {
            data.release_all(me);
            data.leave(me);
            Ok(())
        });
        lock(&self.own).closed = true;
        closing.await
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn sessions(&self, query: SessionQuery) -> Result<SessionPage, StoreError> {
        self.read("sessions", |data, _| data.sessions(&query))
    }

    async fn session(&self, name: &AgentId) -> Result<Option<SessionRecord>, StoreError> {
        self.read("session", |data, _| data.session(name).map(|(session, _)| session))
    }

    async fn read_session(
        &self,
        name: &AgentId,
    ) -> Result<Option<(SessionRecord, Vec<SharedMessage>)>, StoreError> {
        self.read("read_session", |data, _| data.session(name))
    }

    async fn session_message(
        &self,
        name: &AgentId,
        index: u64,
    ) -> Result<Option<SharedMessage>, StoreError> {
        self.read("session_message", |data, _| {
            let (_, messages) = data.session(name)?;
            messages.into_iter().nth(usize::try_from(index).ok()?)
        })
    }

    async fn settle(
        &self,
        was: &AgentId,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<(Lease, u64), StoreError> {
        let was = was.clone();
        self.write("settle", move |data, me| data.settle(me, &was, record, messages)).await
    }

    async fn keep(&self, lease: Lease) -> Result<(), StoreError> {
        self.write("keep", move |data, me| data.keep(me, lease)).await
    }

    async fn copy_session(
        &self,
        from: &AgentId,
        copy: Copied,
        replace: bool,
    ) -> Result<bool, StoreError> {
        let from = from.clone();
        self.write("copy_session", move |data, _| data.copy(&from, copy, replace)).await
    }

    async fn load(
        &self,
        name: &AgentId,
        settings: Option<AgentSettings>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let name = name.clone();
        self.write("load", move |data, me| data.load(me, &name, settings)).await
    }

    async fn load_copy(
        &self,
        from: &AgentId,
        copy: Copied,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let from = from.clone();
        self.write("load_copy", move |data, me| data.load_copy(me, &from, copy)).await
    }

    async fn rename(&self, from: &AgentId, to: &AgentId) -> Result<Option<u64>, StoreError> {
        let (from, to) = (from.clone(), to.clone());
        self.write("rename", move |data, me| data.rename(me, &from, &to)).await
    }

    async fn delete(&self, name: &AgentId) -> Result<Vec<AgentId>, StoreError> {
        let name = name.clone();
        self.write("delete", move |data, me| data.delete(me, &name)).await
    }
}

#[async_trait]
impl ApprovalStore for MemoryStore {
    async fn put_approval(&self, approval: ApprovalRecord) -> Result<(), StoreError> {
        self.write("put_approval", |data, me| data.put_approval(me, approval)).await
    }

    async fn settle_approval(&self, settlement: Settlement) -> Result<(), StoreError> {
        self.write("settle_approval", |data, me| data.settle_approval(me, settlement)).await
    }

    async fn approval(&self, id: &str) -> Result<Option<StoredApproval>, StoreError> {
        self.read("approval", |data, me| data.approval(me, id))
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<ApprovalPage, StoreError> {
        self.read("approvals", |data, me| data.approvals(me, &query))
    }
}

#[async_trait]
impl MemoriesStore for MemoryStore {
    async fn add_memory(
        &self,
        memory: MemoryRecord,
        room: Option<MemoryRoom>,
    ) -> Result<Option<MemoryRecord>, StoreError> {
        self.write("add_memory", move |data, _| Ok(data.memories.add(memory, room))).await
    }

    async fn restore_memory(
        &self,
        memory: MemoryRecord,
        now: Timestamp,
    ) -> Result<MemoryRecord, StoreError> {
        let kept =
            self.write("restore_memory", move |data, _| Ok(data.memories.restore(memory, now)));
        kept.await?.ok_or_else(|| StoreError::Failed("no room where there is no bound".into()))
    }

    async fn memories_with(
        &self,
        scopes: Vec<MemoryScope>,
        words: Vec<String>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Vec<MemoryRecord>, StoreError> {
        let found = self.read("memories_with", |data, _| data.memories.with(&scopes, &words, now));
        found.map(|found| found.into_iter().take(limit as usize).collect())
    }

    async fn memories_by_id(
        &self,
        scopes: Vec<MemoryScope>,
        ids: Vec<MemoryId>,
        now: Timestamp,
    ) -> Result<Vec<MemoryRecord>, StoreError> {
        self.read("memories_by_id", |data, _| data.memories.by_id(&scopes, &ids, now))
    }

    async fn memories(&self, query: MemoryQuery) -> Result<Vec<MemoryRecord>, StoreError> {
        self.read("memories", |data, _| data.memories.page(&query))
    }

    async fn delete_memory(
        &self,
        scopes: Vec<MemoryScope>,
        prefix: IdPrefix,
    ) -> Result<Deletion, StoreError> {
        self.write("delete_memory", move |data, _| Ok(data.memories.delete(&scopes, prefix))).await
    }

    async fn remove_expired(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.write("remove_expired", move |data, _| Ok(data.memories.remove_expired(before, limit)))
            .await
    }

    async fn gone_memories(&self, ids: Vec<MemoryId>) -> Result<Vec<MemoryId>, StoreError> {
        self.read("gone_memories", |data, _| data.memories.gone(ids))
    }

    async fn scope_keys(&self, scopes: Vec<MemoryScope>) -> Result<Vec<ScopeKey>, StoreError> {
        self.read("scope_keys", |data, _| data.memories.scope_keys(&scopes))
    }

    async fn unembedded(
        &self,
        model: &str,
        after: MemoryKey,
        limit: u32,
    ) -> Result<Vec<Unembedded>, StoreError> {
        self.read("unembedded", |data, _| data.memories.unembedded(model, after, limit))
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: Vec<(MemoryKey, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let model = model.to_owned();
        self.write("put_vectors", move |data, _| {
            data.memories.put_vectors(&model, vectors);
            Ok(())
        })
        .await
    }

    async fn vectors(
        &self,
        model: &str,
        after: MemoryKey,
        limit: u32,
    ) -> Result<Vec<StoredVector>, StoreError> {
        self.read("vectors", |data, _| data.memories.vectors(model, after, limit))
    }
}

#[async_trait]
impl PlanStore for MemoryStore {
    async fn add_plan(
        &self,
        plan: PlanRecord,
        stale: Timestamp,
        room: PlanRoom,
    ) -> Result<(), StoreError> {
        self.write("add_plan", move |data, _| {
            data.add_plan(plan, stale, room);
            Ok(())
        })
        .await
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<StoredPlan>, StoreError> {
        self.read("plan", |data, _| data.plan(id))
    }

    async fn plans(&self, query: PlanQuery) -> Result<PlanPage, StoreError> {
        self.read("plans", |data, _| data.plan_page(&query))
    }

    async fn begin_plan(&self, id: &PlanId, now: Timestamp) -> Result<Option<Begun>, StoreError> {
        let id = id.clone();
        self.write("begin_plan", move |data, me| Ok(data.begin_plan(me, &id, now))).await
    }

    async fn note_task(
        &self,
        run: &PlanRun,
        task: String,
        record: TaskRecord,
    ) -> Result<(), StoreError> {
        let run = run.clone();
        self.write("note_task", move |data, me| data.plans.note(me, &run, task, record)).await
    }

    async fn end_plan(
        &self,
        run: &PlanRun,
        status: PlanStatus,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let run = run.clone();
        self.write("end_plan", move |data, me| data.plans.end(me, &run, status, now)).await
    }
}

#[async_trait]
impl ContextStore for MemoryStore {
    async fn shared_context(&self) -> Result<SharedContext, StoreError> {
        self.read("shared_context", |data, _| data.context.clone())
    }

    async fn change_context(&self, change: ContextChange) -> Result<ContextOutcome, StoreError> {
        self.write("change_context", move |data, _| Ok(data.change_context(change))).await
    }
}

#[async_trait]
impl AnswersStore for MemoryStore {
    async fn begin_answer(
        &self,
        call: CallDigest,
        room: AnswerRoom,
        now: Timestamp,
    ) -> Result<Earlier, StoreError> {
        self.write("begin_answer", move |data, me| Ok(data.begin_answer(me, call, room, now))).await
    }

    async fn keep_answer(
        &self,
        call: CallDigest,
        answer: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write("keep_answer", move |data, _| {
            data.answers.keep(call, answer, now);
            Ok(())
        })
        .await
    }

    async fn forget_answer(&self, call: CallDigest) -> Result<(), StoreError> {
        self.write("forget_answer", move |data, _| {
            data.answers.forget(call);
            Ok(())
        })
        .await
    }

    async fn remove_answers(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.write("remove_answers", move |data, _| Ok(data.remove_answers(now, limit))).await
    }
}

#[async_trait]
impl KeyStore for MemoryStore {
    async fn add_key(&self, key: KeyRecord, keys_max: u64) -> Result<KeyAdded, StoreError> {
        self.write("add_key", move |data, _| {
            let room = room_for_key(data, &key.name, keys_max);
            if room == KeyAdded::Done(()) {
                data.signing.insert(key.name.clone(), key);
            }
            Ok(room)
        })
        .await
    }

    async fn add_key_with_agent(
        &self,
        key: KeyRecord,
        agent: AgentRecord,
        keys_max: u64,
    ) -> Result<KeyAdded<Lease>, StoreError> {
        self.write("add_key_with_agent", move |data, me| {
            match room_for_key(data, &key.name, keys_max) {
                KeyAdded::Done(()) => {}
                KeyAdded::Exists => return Ok(KeyAdded::Exists),
                KeyAdded::Full => return Ok(KeyAdded::Full),
            }
            let id = agent.id.clone();
            let lease = data.create(me, agent)?;
            let agent = Some(KeyAgent { id, born: lease.fence.0 });
            data.signing.insert(key.name.clone(), KeyRecord { agent, ..key });
            Ok(KeyAdded::Done(lease))
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.read("keys", |data, _| data.signing.values().cloned().collect())
    }

    async fn remove_key(&self, name: &str) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.write("remove_key", move |data, _| Ok(data.signing.remove(&name).is_some())).await
    }
}

fn room_for_key(data: &Data, name: &str, keys_max: u64) -> KeyAdded {
    match data.signing.len() as u64 >= keys_max {
        _ if data.signing.contains_key(name) => KeyAdded::Exists,
        true => KeyAdded::Full,
        false => KeyAdded::Done(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{agent, id, step};
    use super::*;

    #[tokio::test]
    async fn the_call_that_was_told_to_fails_once_and_changes_nothing() {
        let store = MemoryStore::new();
        let lease = store.create(agent("a")).await.unwrap();
        store.fail_next(2, StoreError::DiskFull);
        store.append(lease, step(0, &["0"])).await.unwrap();
        let refused = store.append(lease, step(1, &["1"])).await;
        assert!(matches!(refused, Err(StoreError::DiskFull)));
        store.append(lease, step(1, &["1"])).await.unwrap();
        assert_eq!(store.calls(), 4);
        store.fail_when(|call| (call.method == "destroy").then_some(StoreError::Busy));
        assert!(matches!(store.destroy(vec![id("a")]).await, Err(StoreError::Busy)));
        assert_eq!(store.messages(lease.agent, 0, 9, usize::MAX).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_write_that_is_held_back_happens_though_its_caller_is_gone() {
        let store = Arc::new(MemoryStore::new());
        let lease = store.create(agent("a")).await.unwrap();
        let held = store.hold();
        let calling = tokio::spawn({
            let store = store.clone();
            async move { store.append(lease, step(0, &["0"])).await }
        });
        store.until_waiting(1).await;
        calling.abort();
        assert!(calling.await.unwrap_err().is_cancelled());
        assert!(store.messages(lease.agent, 0, 9, usize::MAX).await.unwrap().is_empty());
        drop(held);
        assert_eq!(store.messages(lease.agent, 0, 9, usize::MAX).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_process_that_is_taken_for_dead_loses_its_leases_and_takes_new_ones() {
        let store = MemoryStore::new();
        let lease = store.create(agent("a")).await.unwrap();
        assert_eq!(store.void_through(), Fence(0));
        store.revoke();
        assert!(store.void_through() >= lease.fence);
        let late = store.append(lease, step(0, &["late"])).await;
        assert!(matches!(late, Err(StoreError::LeaseLost)));
        let again = store.neighbour().acquire(&id("a")).await.unwrap().unwrap().lease;
        assert!(again.fence > store.void_through());
    }
}
