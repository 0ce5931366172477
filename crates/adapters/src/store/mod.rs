//! The store: agents and their conversations in one SQLite database under the home directory.
//!
//! Writes go through one thread that commits them in groups (`writer`), reads through a few connections of their own
//! (`readers`). Who may write an agent is settled by `owner`; what the tables look like stands in `schema`.

mod agent;
mod approval;
mod fault;
mod open;
mod owner;
mod readers;
mod record;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use nexus_core::AgentId;
use nexus_core::store::{
    AgentRecord, Append, ApprovalRecord, ApprovalStatus, Fence, SettingsRecord, Store, StoreError,
    StoredAgent, StoredApproval,
};

pub use self::open::OpenError;
use self::owner::Owner;
use self::readers::Readers;
use self::record::{AgentRow, MessageRow, encode_grants, encode_permissions};
use self::writer::Writer;

/// The store of one process. Dropping it without `close` is safe, as a `kill -9` is: what was answered is on disk, and
/// the next process that wants one of its agents takes it over.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
}

impl SqliteStore {
    /// Opens the store under `home`, making the directory and the database where they are missing.
    pub fn open(home: &Path) -> Result<Self, OpenError> {
        let opened = open::open(home)?;
        let readers = Readers::new(opened.path.clone());
        let owner = Owner::new(&opened.home);
        if let Err(fault) = approval::forget_gone(&opened.db, &owner) {
            // Nobody is shown them meanwhile, and the next start tries again.
            tracing::warn!(?fault, "what temporary agents asked for was not removed");
        }
        let writer = Writer::start(opened.db, owner)
            .map_err(|source| OpenError::Thread { path: opened.path, source })?;
        Ok(Self { writer, readers })
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
        let Some(fence) = lease else { return Ok(None) };
        // Reading after the lease is ours: nobody else can append between the two.
        let name = id.clone();
        let found = self.readers.read(move |db| agent::read(db, &name)).await?;
        Ok(found.map(|(record, messages)| StoredAgent { record, fence, messages }))
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
        let encoded = encode_permissions(&settings.permissions)
            .and_then(|permissions| Ok((permissions, encode_grants(&settings.grants)?)));
        let (permissions, grants) = match encoded {
            Ok(encoded) => encoded,
            Err(fault) => return Box::pin(async { Err(fault.into()) }),
        };
        let id = id.clone();
        Box::pin(self.writer.submit(move |db, me| {
            agent::update(db, me, &id, fence, (&permissions, grants.as_deref()))
        }))
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

    async fn close(&self) -> Result<(), StoreError> {
        // Readers first: the last connection to leave is the one that tidies the write-ahead log away.
        self.readers.close().await;
        self.writer.close().await
    }
}
