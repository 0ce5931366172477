//! Which calls have ended, although nobody waited for them: every call leaves a line in the log when it does.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// Ids of calls that have ended.
#[derive(Clone)]
pub struct Ended(watch::Receiver<HashSet<String>>);

/// Whoever reads the log. When it is dropped nobody waits any longer.
pub struct Log(watch::Sender<HashSet<String>>);

/// An id that no call had.
pub fn fresh_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Log {
    pub fn new() -> (Self, Ended) {
        let (sender, receiver) = watch::channel(HashSet::new());
        (Self(sender), Ended(receiver))
    }

    pub fn note(&self, id: &str) {
        self.0.send_modify(|ids| {
            ids.insert(id.into());
        });
    }

    pub fn forget(&self, id: &str) {
        self.0.send_modify(|ids| {
            ids.remove(id);
        });
    }
}

impl Ended {
    /// Waits until the call has ended. False when that is not to be known.
    pub async fn wait(&self, id: &str, patience: Duration) -> bool {
        let mut ids = self.0.clone();
        let ended = ids.wait_for(|ids| ids.contains(id));
        tokio::time::timeout(patience, ended).await.is_ok_and(|ended| ended.is_ok())
    }
}
