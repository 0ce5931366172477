//! The store: agents and their conversations in one SQLite database under the home directory.
//!
//! Writes go through one thread that commits them in groups (`writer`), reads through a few connections of their own
//! (`readers`). Who may write an agent is settled by `owner`; what the tables look like stands in `schema`.

mod agent;
pub mod agent_logs;
mod approval;
mod commits;
mod doctor;
mod fault;
mod log;
mod open;
mod owner;
mod readers;
mod record;
mod schema;
mod session;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use nexus_core::AgentId;
use nexus_core::message::SharedMessage;
use nexus_core::store::{
    AgentRecord, Append, ApprovalRecord, ApprovalStatus, Fence, SessionPage, SessionQuery,
    SessionRecord, SettingsRecord, Store, StoreError, StoredAgent, StoredApproval,
};
use rusqlite::Connection;

pub use self::commits::{Commits, Verdict};
pub use self::doctor::{Checkup, DoctorError, Readable, examine};
pub use self::open::OpenError;
use self::owner::{Owner, SILENCE_MAX, VoidThrough};
use self::readers::Readers;
use self::record::{AgentRow, MessageRow, SettingsRow};
use self::writer::Writer;

/// The store of one process. Dropping it without `close` is safe, as a `kill -9` is: what was answered is on disk, and
/// the next process that wants one of its agents takes it over.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    changes_elsewhere: Arc<AtomicU64>,
    void_through: VoidThrough,
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
        if let Err(fault) = approval::forget_gone(&opened.db, &owner) {
            // Nobody is shown them meanwhile, and the next start tries again.
            tracing::warn!(?fault, "what temporary agents asked for was not removed");
        }
        if let Err(fault) = agent::catch_up(&opened.db) {
            // They are in their old places until they are used.
            tracing::warn!(?fault, "sessions that were cut off are not in their places");
        }
        let void_through = owner.void_through();
        let changes_elsewhere = Arc::new(AtomicU64::new(0));
        let writer = Writer::start(opened.db, owner, changes_elsewhere.clone(), options.commits)
            .map_err(|source| OpenError::Thread { path: opened.path, source })?;
        Ok(Self { writer, readers, changes_elsewhere, void_through })
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

    /// Reads an agent after its lease is ours: nobody else can append between the two.
    async fn read_held(
        &self,
        id: &AgentId,
        fence: Fence,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let name = id.clone();
        let found = self.readers.read(move |db| agent::read(db, &name)).await?;
        Ok(found.map(|(record, messages)| StoredAgent { record, fence, messages }))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn create(&self, agent: AgentRecord) -> Result<Fence, StoreError> {
        let row = AgentRow::encode(&agent)?;
        self.writer.submit(move |db, me| agent::create(db, me, &agent.id, &row)).await
    }

    async fn acquire(&self, id: &AgentId) -> Result<Option<StoredAgent>, StoreError> {
        let name = id.clone();
        let lease = self.writer.submit(move |db, me| agent::take_lease(db, me, &name)).await?;
        match lease {
            Some(fence) => self.read_held(id, fence).await,
            None => Ok(None),
        }
    }

    async fn list(&self) -> Result<Vec<AgentRecord>, StoreError> {
        self.readers.read(agent::list).await
    }

    async fn destroy(&self, ids: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError> {
        self.writer.submit(move |db, me| agent::destroy(db, me, &ids)).await
    }

    fn append(
        &self,
        id: &AgentId,
        fence: Fence,
        append: Append,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        // Encoded here and not on the writer's thread, which every agent shares.
        let rows: Result<Vec<_>, _> = append.messages.iter().map(MessageRow::encode).collect();
        let rows = match rows {
            Ok(rows) => rows,
            Err(fault) => return Box::pin(async { Err(fault.into()) }),
        };
        let (id, first_index, progress) = (id.clone(), append.first_index, append.progress);
        Box::pin(self.writer.submit(move |db, me| {
            agent::append(db, me, &id, fence, &agent::Step { first_index, rows: &rows, progress })
        }))
    }

    fn update(
        &self,
        id: &AgentId,
        fence: Fence,
        settings: SettingsRecord,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let row = match SettingsRow::encode(settings) {
            Ok(row) => row,
            Err(fault) => return Box::pin(async { Err(fault.into()) }),
        };
        let id = id.clone();
        Box::pin(self.writer.submit(move |db, me| agent::update(db, me, &id, fence, &row)))
    }

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

    async fn settle(
        &self,
        was: &AgentId,
        record: AgentRecord,
        messages: Vec<SharedMessage>,
    ) -> Result<Fence, StoreError> {
        let (was, whole) = (was.clone(), session::Whole::encode(record, &messages)?);
        self.writer.submit(move |db, me| session::settle(db, me, &was, &whole)).await
    }

    async fn keep(&self, id: &AgentId, fence: Fence) -> Result<(), StoreError> {
        let id = id.clone();
        self.writer.submit(move |db, me| session::keep(db, me, &id, fence)).await
    }

    async fn copy_session(
        &self,
        from: &AgentId,
        to: &AgentId,
        replace: bool,
    ) -> Result<bool, StoreError> {
        let (from, to) = (from.clone(), to.clone());
        self.writer.submit(move |db, _| session::copy(db, &from, &to, replace)).await
    }

    async fn load(
        &self,
        from: &AgentId,
        to: &AgentId,
        settings: Option<SettingsRecord>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let settings = settings.map(SettingsRow::encode).transpose()?;
        let (from, name) = (from.clone(), to.clone());
        let work = move |db: &Connection, me: &mut Owner| {
            session::load(db, me, &from, &name, settings.as_ref())
        };
        match self.writer.submit(work).await? {
            Some(fence) => self.read_held(to, fence).await,
            None => Ok(None),
        }
    }

    async fn rename(&self, from: &AgentId, to: &AgentId) -> Result<bool, StoreError> {
        let (from, to) = (from.clone(), to.clone());
        self.writer.submit(move |db, me| session::rename(db, me, &from, &to)).await
    }

    async fn delete(&self, name: &AgentId) -> Result<Vec<AgentId>, StoreError> {
        let name = name.clone();
        self.writer.submit(move |db, me| session::delete(db, me, &name)).await
    }

    async fn release(&self, id: &AgentId, fence: Fence) -> Result<(), StoreError> {
        let id = id.clone();
        self.writer.submit(move |db, me| agent::release(db, me, &id, fence)).await
    }

    async fn put_approval(&self, approval: ApprovalRecord) -> Result<(), StoreError> {
        self.writer.submit(move |db, me| approval::put(db, me, &approval)).await
    }

    async fn settle_approval(&self, id: &str, status: ApprovalStatus) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.writer.submit(move |db, _| approval::settle(db, &id, status)).await
    }

    async fn approval(&self, id: &str) -> Result<Option<StoredApproval>, StoreError> {
        let id = id.to_owned();
        // Only the writer knows which process this is.
        self.writer.submit(move |db, me| approval::find(db, me, &id)).await
    }

    async fn approvals(&self) -> Result<Vec<ApprovalRecord>, StoreError> {
        // By the writer, as above.
        self.writer.submit(|db, me| approval::list(db, me)).await
    }

    fn changes_elsewhere(&self) -> u64 {
        self.changes_elsewhere.load(Ordering::Acquire)
    }

    fn void_through(&self) -> Fence {
        Fence(self.void_through.get())
    }

    async fn close(&self) -> Result<(), StoreError> {
        // Readers first: the last connection to leave is the one that tidies the write-ahead log away.
        self.readers.close().await;
        self.writer.close().await
    }
}
