//! How many turns run and wait at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Bounds the turns of a server: so many run, so many more wait, and a further one is refused at once.
pub struct Slots {
    running: Arc<Semaphore>,
    admitted: Arc<AtomicUsize>,
    admitted_max: usize,
    turns: TaskTracker,
    closed: CancellationToken,
}

/// Leave to wait for a slot; gives it back when dropped.
pub struct Admission {
    running: Arc<Semaphore>,
    admitted: Arc<AtomicUsize>,
    _turn: TaskTrackerToken,
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
            turns: TaskTracker::new(),
            closed: CancellationToken::new(),
        }
    }

    pub fn admit(&self) -> Result<Admission, Refused> {
        if self.closed.is_cancelled() {
            return Err(Refused::Closed);
        }
        let admission = Admission {
            running: self.running.clone(),
            admitted: self.admitted.clone(),
            _turn: self.turns.token(),
        };
        // The admission gives its count back when it is dropped on the refusing branch.
        if self.admitted.fetch_add(1, Ordering::Relaxed) >= self.admitted_max {
            return Err(Refused::Full);
        }
        Ok(admission)
    }

    /// Takes no new turns.
    pub fn close(&self) {
        self.closed.cancel();
        self.turns.close();
    }

    /// Resolves when none is left of those that were admitted. Only after `close` is it bound to come.
    pub async fn empty(&self) {
        self.turns.wait().await;
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
