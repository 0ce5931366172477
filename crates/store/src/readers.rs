//! Reads, on threads where they may block, beside the writer and never in its way.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nexus_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::fault::Fault;
use super::open::open_reader;

/// Reads at a time. Each has a connection with a page cache of its own; a read is mostly decoding, so more of them
/// than cores would only queue in another place.
const READS_MAX: u32 = 2;

pub(super) struct Readers {
    turns: Arc<Semaphore>,
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    /// Connections that no read is using, opened as they are first needed.
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        let turns = Arc::new(Semaphore::new(READS_MAX as usize));
        Self { turns, shared: Arc::new(Shared { path, idle: Mutex::new(Vec::new()) }) }
    }

    /// Runs `work` in a transaction of its own: all it reads is of one moment.
    pub(super) async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let shared = self.shared.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            shared.run(work)
        });
        match reading.await {
            Ok(outcome) => Ok(outcome?),
            Err(error) if error.is_cancelled() => Err(StoreError::Closed),
            Err(error) => Err(StoreError::Failed(error.to_string())),
        }
    }

    /// Waits for the reads that are under way and closes the connections. Later reads are refused.
    pub(super) async fn close(&self) {
        // An error says that it was closed before.
        let all = self.turns.acquire_many(READS_MAX).await;
        self.turns.close();
        drop(all);
        self.shared.idle().clear();
    }
}

impl Shared {
    fn run<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        let idle = self.idle().pop();
        let mut db = match idle {
            Some(db) => db,
            None => open_reader(&self.path)?,
        };
        let transaction = db.transaction()?;
        let outcome = work(&transaction)?;
        transaction.finish()?;
        // Only here: a connection on which something failed is not used again.
        self.idle().push(db);
        Ok(outcome)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        // Nothing panics while the list is held, and the list is whole at every moment.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
