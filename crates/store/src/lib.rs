//! The store: agents and their conversations in one SQLite database under the home directory.
//!
//! Writes go through one thread that commits them in groups (`writer`), reads through a few connections of their own
//! (`readers`). Who may write an agent is settled by `owner`; what the tables look like stands in `schema`.

mod agent;
pub mod agent_logs;
mod answers;
mod approval;
mod blob;
mod briefing;
mod commits;
mod doctor;
mod family;
mod fault;
mod key;
mod log;
mod memory;
mod open;
mod owner;
mod plan;
mod readers;
mod record;
mod remembered;
mod schema;
mod session;
mod shared_context;
mod spending;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::agent::AgentSettings;
use nexus_core::brief::Brief;
use nexus_core::message::SharedMessage;
use nexus_core::observe::Observer;
use nexus_core::plan::{PlanId, PlanStatus, TaskRecord};
use nexus_core::store::{
    AgentKey, AgentPage, AgentQuery, AgentRecord, AgentStore, AnswerRoom, AnswersStore, Append,
    ApprovalPage, ApprovalQuery, ApprovalRecord, ApprovalStore, Begun, CallDigest, Census, Contact,
    ContextChange, ContextOutcome, ContextStore, Copied, Deletion, Earlier, Fence, IdPrefix,
    KeyAdded, KeyRecord, KeyStore, Lease, MemoriesStore, MemoryId, MemoryKey, MemoryQuery,
    MemoryRecord, MemoryRoom, MemoryScope, PlanPage, PlanQuery, PlanRecord, PlanRoom, PlanRun,
    PlanStore, ScopeKey, SessionPage, SessionQuery, SessionRecord, SessionStore, Settlement,
    SharedContext, SpendingQuery, Spent, StoreError, StoredAgent, StoredApproval, StoredPlan,
    StoredVector, Unembedded,
};
use nexus_core::usage::Bill;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use self::briefing::BriefRow;
pub use self::commits::{Commits, Verdict};
pub use self::doctor::{Checkup, DoctorError, Readable, Rows, examine};
use self::fault::Fault;
pub use self::open::OpenError;
use self::owner::{Onlooker, Owner, SILENCE_MAX, VoidThrough};
use self::readers::Readers;
use self::record::{AgentRow, MessageRow, encode_bill, encode_settings};
pub use self::remembered::Remembered;
use self::writer::Writer;

/// The store of one process. Dropping it without `close` is safe, as a `kill -9` is: what was answered is on disk, and
/// the next process that wants one of its agents takes it over.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    foreign_commits: Arc<AtomicU64>,
    void_through: VoidThrough,
    onlooker: Onlooker,
}

/// What the fault harness changes about a store.
pub struct Options {
    /// How long another process that holds its lock may show no sign of life before its agents are taken over.
    pub silence_max: Duration,
    pub commits: Option<Box<dyn Commits>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { silence_max: SILENCE_MAX, commits: None }
    }
}

impl SqliteStore {
    /// Opens the store under `home`, making the directory and the database where they are missing.
    pub fn open(home: &Path) -> Result<Self, OpenError> {
        Self::open_with(home, Options::default())
    }

    pub fn open_with(home: &Path, options: Options) -> Result<Self, OpenError> {
        let opened = open::open(home)?;
        let readers = Readers::new(opened.path.clone());
        let owner = Owner::new(&opened.home, options.silence_max);
        if let Err(fault) = clear_up(&opened.db, &owner) {
            // Nothing is wrong by that: sessions that were cut off are in their old places until they are used, and what
            // the temporary agents of dead processes asked for is shown to nobody. The next start tries again.
            tracing::warn!(?fault, "what dead processes left behind was not cleared up");
        }
        let (void_through, onlooker) = (owner.void_through(), owner.onlooker());
        let foreign_commits = Arc::new(AtomicU64::new(0));
        let writer = Writer::start(opened.db, owner, foreign_commits.clone(), options.commits)
            .map_err(|source| OpenError::Thread { path: opened.path, source })?;
        Ok(Self { writer, readers, foreign_commits, void_through, onlooker })
    }

    /// Tells this one of every commit from now on.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.writer.observe(observer);
    }

    /// Stores a session that comes from elsewhere, as a saved one. `StoreError::Exists` or `Saved` when the name is taken.
    pub async fn put_saved(
        &self,
        record: AgentRecord,
        messages: &[SharedMessage],
    ) -> Result<(), StoreError> {
        let whole = session::Whole::encode(record, messages)?;
        self.writer.submit(move |db, me| session::put_saved(db, me, &whole)).await
    }

    /// Everybody's memories behind `after`, in the order in which they were added, without what was superseded.
    pub async fn every_memory(
        &self,
        after: MemoryKey,
        limit: u32,
    ) -> Result<Vec<(MemoryKey, MemoryRecord)>, StoreError> {
        self.readers.read(move |db| memory::every(db, after, limit)).await
    }

    /// Reads an agent after its lease is ours: nobody else can append between the two.
    async fn read_held(&self, lease: Lease) -> Result<Option<StoredAgent>, StoreError> {
        let (record, window) = self.readers.read(move |db| agent::read(db, lease.agent)).await?;
        Ok(Some(StoredAgent { record, lease, window }))
    }
}

/// Makes up for what processes that died did not write, with one flush however many agents they had.
fn clear_up(db: &Connection, me: &Owner) -> Result<(), Fault> {
    let (askers, behind) = (approval::askers(db)?, agent::cut_off(db)?);
    if askers.is_empty() && behind.is_empty() {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    approval::forget_gone(db, me, &askers)?;
    agent::catch_up(db, &behind)?;
    Ok(transaction.commit()?)
}

#[async_trait]
impl AgentStore for SqliteStore {
    async fn create(&self, agent: AgentRecord) -> Result<Lease, StoreError> {
        let row = AgentRow::encode(&agent)?;
        self.writer.submit(move |db, me| agent::create(db, me, &agent.id, &row)).await
    }

    async fn create_child(
        &self,
        agent: AgentRecord,
        parent: AgentKey,
    ) -> Result<Lease, StoreError> {
        let row = AgentRow::encode(&agent)?;
        let work = move |db: &Connection, me: &mut Owner| {
            agent::create_child(db, me, &agent.id, row, parent)
        };
        self.writer.submit(work).await
    }

    async fn acquire(&self, id: &AgentId) -> Result<Option<StoredAgent>, StoreError> {
        let name = id.clone();
        match self.writer.submit(move |db, me| agent::take_lease(db, me, &name)).await? {
            Some(lease) => self.read_held(lease).await,
            None => Ok(None),
        }
    }

    fn append(&self, lease: Lease, append: Append) -> BoxFuture<'static, Result<(), StoreError>> {
        // Encoded here and not on the writer's thread, which every agent shares.
        let rows: Result<Vec<_>, _> = append.messages.iter().map(MessageRow::encode).collect();
        let rows = match rows {
            Ok(rows) => rows,
            Err(fault) => return ready(Err(fault.into())).boxed(),
        };
        let brief = match append.brief.as_deref().map(BriefRow::encode).transpose() {
            Ok(brief) => brief,
            Err(fault) => return ready(Err(fault.into())).boxed(),
        };
        let bill = append.bill.map(|bill| encode_bill(&bill));
        let (first_index, progress) = (append.first_index, append.progress);
        let write = self.writer.submit(move |db, me| {
            let (bill, brief) = (bill.as_deref(), brief.as_ref());
            let step = agent::Step { first_index, rows: &rows, progress, bill, brief };
            agent::append(db, me, lease, &step)
        });
        write.boxed()
    }

    fn update(
        &self,
        lease: Lease,
        settings: AgentSettings,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let settings = match encode_settings(&settings) {
            Ok(settings) => settings,
            Err(fault) => return ready(Err(fault.into())).boxed(),
        };
        self.writer.submit(move |db, me| agent::update(db, me, lease, &settings)).boxed()
    }

    async fn briefing(&self, digest: u64) -> Result<Option<Brief>, StoreError> {
        self.readers.read(move |db| briefing::find(db, digest)).await
    }

    async fn agents(&self, query: AgentQuery) -> Result<AgentPage, StoreError> {
        self.readers.read(move |db| agent::page(db, &query)).await
    }

    async fn elsewhere(&self, among: Vec<AgentId>) -> Result<HashSet<AgentId>, StoreError> {
        let onlooker = self.onlooker.clone();
        self.readers.read(move |db| agent::elsewhere(db, &onlooker, &among)).await
    }

    async fn lineage(&self, id: &AgentId) -> Result<Vec<AgentRecord>, StoreError> {
        let id = id.clone();
        self.readers.read(move |db| agent::lineage(db, &id)).await
    }

    async fn census(
        &self,
        root: &AgentId,
        parent: Option<&AgentId>,
        most: usize,
    ) -> Result<Census, StoreError> {
        let (root, parent) = (root.clone(), parent.cloned());
        self.readers.read(move |db| family::census(db, &root, parent.as_ref(), most)).await
    }

    async fn messages(
        &self,
        agent: AgentKey,
        first: u64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<SharedMessage>, StoreError> {
        self.readers.read(move |db| agent::messages(db, agent, first, limit, bytes_max)).await
    }

    async fn spending(&self, query: SpendingQuery) -> Result<Vec<Spent>, StoreError> {
        self.readers.read(move |db| spending::report(db, &query)).await
    }

    async fn absorb(&self, heir: &AgentId, bill: Bill) -> Result<(), StoreError> {
        let heir = heir.clone();
        self.writer.submit(move |db, _| spending::absorb(db, &heir, bill)).await
    }

    async fn destroy(&self, ids: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError> {
        self.writer.submit(move |db, me| family::destroy(db, me, &ids)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.writer.submit(move |db, me| agent::release(db, me, lease)).await
    }

    fn void_through(&self) -> Fence {
        Fence(self.void_through.get())
    }

    fn foreign_commits(&self) -> u64 {
        self.foreign_commits.load(Ordering::Acquire)
    }

    async fn announce(&self, contact: Contact) -> Result<(), StoreError> {
        self.writer.announce(contact).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        // Readers first: the last connection to leave is the one that tidies the write-ahead log away.
        self.readers.close().await;
        self.writer.close().await
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn sessions(&self, query: SessionQuery) -> Result<SessionPage, StoreError> {
        self.readers.read(move |db| session::page(db, &query)).await
    }

    async fn session(&self, name: &AgentId) -> Result<Option<SessionRecord>, StoreError> {
        let name = name.clone();
        self.readers.read(move |db| session::find(db, &name)).await
    }

    async fn read_session(
        &self,
        name: &AgentId,
    ) -> Result<Option<(SessionRecord, Vec<SharedMessage>)>, StoreError> {
        let name = name.clone();
        self.readers.read(move |db| session::read(db, &name)).await
    }

    async fn session_message(
        &self,
        name: &AgentId,
        index: u64,
    ) -> Result<Option<SharedMessage>, StoreError> {
        let name = name.clone();
        self.readers.read(move |db| session::message(db, &name, index)).await
    }

    async fn settle(
        &self,
        was: &AgentId,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<(Lease, u64), StoreError> {
        let (was, whole) = (was.clone(), session::Whole::encode(record, &messages)?);
        self.writer.submit(move |db, me| session::settle(db, me, &was, &whole)).await
    }

    async fn keep(&self, lease: Lease) -> Result<(), StoreError> {
        self.writer.submit(move |db, me| session::keep(db, me, lease)).await
    }

    async fn copy_session(
        &self,
        from: &AgentId,
        copy: Copied,
        replace: bool,
    ) -> Result<bool, StoreError> {
        let (from, copy) = (from.clone(), session::Copy::encode(copy)?);
        self.writer.submit(move |db, _| session::copy(db, &from, &copy, replace)).await
    }

    async fn load(
        &self,
        name: &AgentId,
        settings: Option<AgentSettings>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let settings = settings.as_ref().map(encode_settings).transpose()?;
        let name = name.clone();
        let work = move |db: &Connection, me: &mut Owner| {
            session::load(db, me, &name, settings.as_deref())
        };
        match self.writer.submit(work).await? {
            Some(lease) => self.read_held(lease).await,
            None => Ok(None),
        }
    }

    async fn load_copy(
        &self,
        from: &AgentId,
        copy: Copied,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let (from, copy) = (from.clone(), session::Copy::encode(copy)?);
        let work = move |db: &Connection, me: &mut Owner| session::load_copy(db, me, &from, &copy);
        match self.writer.submit(work).await? {
            Some(lease) => self.read_held(lease).await,
            None => Ok(None),
        }
    }

    async fn rename(&self, from: &AgentId, to: &AgentId) -> Result<Option<u64>, StoreError> {
        let (from, to) = (from.clone(), to.clone());
        self.writer.submit(move |db, me| session::rename(db, me, &from, &to)).await
    }

    async fn delete(&self, name: &AgentId) -> Result<Vec<AgentId>, StoreError> {
        let name = name.clone();
        self.writer.submit(move |db, me| session::delete(db, me, &name)).await
    }
}

#[async_trait]
impl ApprovalStore for SqliteStore {
    async fn put_approval(&self, approval: ApprovalRecord) -> Result<(), StoreError> {
        self.writer.submit(move |db, me| approval::put(db, me, &approval)).await
    }

    async fn settle_approval(&self, settlement: Settlement) -> Result<(), StoreError> {
        let Settlement { id, answer, grant } = settlement;
        let encode = |(lease, settings)| Ok((lease, encode_settings(&settings)?));
        let grant = grant.map(encode).transpose().map_err(|fault: Fault| fault)?;
        self.writer
            .submit(move |db, me| approval::settle(db, me, &id, &answer, grant.as_ref()))
            .await
    }

    async fn approval(&self, id: &str) -> Result<Option<StoredApproval>, StoreError> {
        let id = id.to_owned();
        // By the writer, who gives up processes that are silent.
        self.writer.submit(move |db, me| approval::find(db, me, &id)).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<ApprovalPage, StoreError> {
        if query.elsewhere {
            let onlooker = self.onlooker.clone();
            let page = move |db: &_| approval::page_elsewhere(db, &onlooker, &query);
            return self.readers.read(page).await;
        }
        // By the writer, as above.
        self.writer.submit(move |db, me| approval::page(db, me, &query)).await
    }
}

#[async_trait]
impl MemoriesStore for SqliteStore {
    async fn add_memory(
        &self,
        memory: MemoryRecord,
        room: Option<MemoryRoom>,
    ) -> Result<Option<MemoryRecord>, StoreError> {
        self.writer.submit(move |db, _| memory::add(db, &memory, room)).await
    }

    async fn restore_memory(
        &self,
        memory: MemoryRecord,
        now: Timestamp,
    ) -> Result<MemoryRecord, StoreError> {
        self.writer.submit(move |db, _| memory::restore(db, &memory, now)).await
    }

    async fn memories_with(
        &self,
        scopes: Vec<MemoryScope>,
        words: Vec<String>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Vec<MemoryRecord>, StoreError> {
        self.readers.read(move |db| memory::with_words(db, &scopes, &words, limit, now)).await
    }

    async fn memories_by_id(
        &self,
        scopes: Vec<MemoryScope>,
        ids: Vec<MemoryId>,
        now: Timestamp,
    ) -> Result<Vec<MemoryRecord>, StoreError> {
        self.readers.read(move |db| memory::by_id(db, &scopes, &ids, now)).await
    }

    async fn memories(&self, query: MemoryQuery) -> Result<Vec<MemoryRecord>, StoreError> {
        self.readers.read(move |db| memory::page(db, &query)).await
    }

    async fn delete_memory(
        &self,
        scopes: Vec<MemoryScope>,
        prefix: IdPrefix,
    ) -> Result<Deletion, StoreError> {
        self.writer.submit(move |db, _| memory::delete(db, &scopes, prefix)).await
    }

    async fn remove_expired(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.writer.submit(move |db, _| memory::remove_expired(db, before, limit)).await
    }

    async fn gone_memories(&self, ids: Vec<MemoryId>) -> Result<Vec<MemoryId>, StoreError> {
        self.readers.read(move |db| memory::gone(db, &ids)).await
    }

    async fn scope_keys(&self, scopes: Vec<MemoryScope>) -> Result<Vec<ScopeKey>, StoreError> {
        self.readers.read(move |db| memory::scope_keys(db, &scopes)).await
    }

    async fn unembedded(
        &self,
        model: &str,
        after: MemoryKey,
        limit: u32,
    ) -> Result<Vec<Unembedded>, StoreError> {
        let model = model.to_owned();
        self.readers.read(move |db| memory::unembedded(db, &model, after, limit)).await
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: Vec<(MemoryKey, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let model = model.to_owned();
        self.writer.submit(move |db, _| memory::put_vectors(db, &model, &vectors)).await
    }

    async fn vectors(
        &self,
        model: &str,
        after: MemoryKey,
        limit: u32,
    ) -> Result<Vec<StoredVector>, StoreError> {
        let model = model.to_owned();
        self.readers.read(move |db| memory::vectors(db, &model, after, limit)).await
    }
}

#[async_trait]
impl PlanStore for SqliteStore {
    async fn add_plan(
        &self,
        plan: PlanRecord,
        stale: Timestamp,
        room: PlanRoom,
    ) -> Result<(), StoreError> {
        self.writer.submit(move |db, me| plan::add(db, me, &plan, stale, room)).await
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<StoredPlan>, StoreError> {
        let id = id.clone();
        // Only the writer knows which process this is.
        self.writer.submit(move |db, me| plan::find(db, me, &id)).await
    }

    async fn plans(&self, query: PlanQuery) -> Result<PlanPage, StoreError> {
        // By the writer, as above.
        self.writer.submit(move |db, me| plan::page(db, me, &query)).await
    }

    async fn begin_plan(&self, id: &PlanId, now: Timestamp) -> Result<Option<Begun>, StoreError> {
        let id = id.clone();
        self.writer.submit(move |db, me| plan::begin(db, me, &id, now)).await
    }

    async fn note_task(
        &self,
        run: &PlanRun,
        task: String,
        record: TaskRecord,
    ) -> Result<(), StoreError> {
        let run = run.clone();
        self.writer.submit(move |db, me| plan::note(db, me, &run, &task, &record)).await
    }

    async fn end_plan(
        &self,
        run: &PlanRun,
        status: PlanStatus,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let run = run.clone();
        self.writer.submit(move |db, me| plan::end(db, me, &run, status, now)).await
    }
}

#[async_trait]
impl ContextStore for SqliteStore {
    async fn shared_context(&self) -> Result<SharedContext, StoreError> {
        self.readers.read(shared_context::read).await
    }

    async fn change_context(&self, change: ContextChange) -> Result<ContextOutcome, StoreError> {
        self.writer.submit(move |db, _| shared_context::change(db, &change)).await
    }
}

#[async_trait]
impl AnswersStore for SqliteStore {
    async fn begin_answer(
        &self,
        call: CallDigest,
        room: AnswerRoom,
        now: Timestamp,
    ) -> Result<Earlier, StoreError> {
        self.writer.submit(move |db, me| answers::begin(db, me, &call, room, now)).await
    }

    async fn keep_answer(
        &self,
        call: CallDigest,
        answer: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer.submit(move |db, _| answers::keep(db, &call, &answer, now)).await
    }

    async fn forget_answer(&self, call: CallDigest) -> Result<(), StoreError> {
        self.writer.submit(move |db, _| answers::forget(db, &call)).await
    }

    async fn remove_answers(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.writer.submit(move |db, me| answers::remove(db, me, now, limit)).await
    }
}

#[async_trait]
impl KeyStore for SqliteStore {
    async fn add_key(&self, key: KeyRecord, keys_max: u64) -> Result<KeyAdded, StoreError> {
        self.writer.submit(move |db, _| key::add(db, &key, keys_max)).await
    }

    async fn add_key_with_agent(
        &self,
        key: KeyRecord,
        agent: AgentRecord,
        keys_max: u64,
    ) -> Result<KeyAdded<Lease>, StoreError> {
        let row = AgentRow::encode(&agent)?;
        let work = move |db: &Connection, me: &mut Owner| {
            key::add_with_agent(db, me, key, (agent.id, &row), keys_max)
        };
        self.writer.submit(work).await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.readers.read(key::all).await
    }

    async fn remove_key(&self, name: &str) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.writer.submit(move |db, _| key::remove(db, &name)).await
    }
}
