//! How many turns run and wait at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bounds the turns of a server: so many run, so many more wait, and a further one is refused at once.
pub struct Slots {
    running: Arc<Semaphore>,
    admitted: Arc<AtomicUsize>,
    admitted_max: usize,
    pub(crate) workers: TaskTracker,
    /// Cancelled when the server stops and its patience is over.
    pub(crate) cancel_all: CancellationToken,
    closed: CancellationToken,
}

/// Leave to wait for a slot; gives it back when dropped.
pub struct Admission {
    running: Arc<Semaphore>,
    admitted: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Full,
    Closed,
}

impl Slots {
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(running_max)),
            admitted: Arc::default(),
            admitted_max: running_max + waiting_max,
            workers: TaskTracker::new(),
            cancel_all: CancellationToken::new(),
            closed: CancellationToken::new(),
        }
    }

    pub fn admit(&self) -> Result<Admission, Refused> {
        if self.closed.is_cancelled() {
            return Err(Refused::Closed);
        }
        let admission =
            Admission { running: self.running.clone(), admitted: self.admitted.clone() };
        // The admission gives its count back when it is dropped on the refusing branch.
        if self.admitted.fetch_add(1, Ordering::Relaxed) >= self.admitted_max {
            return Err(Refused::Full);
        }
        Ok(admission)
    }

    /// Takes no new turns, waits for those in flight, and cancels them when `grace` is over.
    pub async fn close(&self, grace: Duration) {
        self.closed.cancel();
        self.workers.close();
        if tokio::time::timeout(grace, self.workers.wait()).await.is_err() {
            self.cancel_all.cancel();
            self.workers.wait().await;
        }
    }
}

impl Admission {
    /// Waits for a slot. The permit is the slot.
    pub async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        self.running.clone().acquire_owned().await.ok()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.admitted.fetch_sub(1, Ordering::Relaxed);
    }
}
