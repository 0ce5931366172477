//! A number that tests can wait for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// How long a test waits for something that is about to happen. Long, for a loaded machine; only a failing test sees it.
const WAIT_MAX: Duration = Duration::from_secs(20);

#[derive(Default)]
pub(crate) struct Counter {
    count: AtomicUsize,
    changed: Notify,
}

impl Counter {
    pub fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub fn get(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub async fn reach(&self, n: usize, what: &str) {
        let reached = async {
            loop {
                let changed = self.changed.notified();
                if self.get() >= n {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(WAIT_MAX, reached).await.is_err() {
            panic!("the scripted model saw {} {what}, not {n}", self.get());
        }
    }
}
