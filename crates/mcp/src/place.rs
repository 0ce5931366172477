//! Places among the calls of a server that are under way.

use tokio::sync::{Semaphore, SemaphorePermit};

/// A place of one call. While a person is asked for it, it works on nothing, and the place is another's.
pub struct Place<'a> {
    all: &'a Semaphore,
    held: Option<SemaphorePermit<'a>>,
}

impl<'a> Place<'a> {
    /// Waits until there is one.
    pub async fn take(all: &'a Semaphore) -> Self {
        let mut place = Self { all, held: None };
        place.resume().await;
        place
    }

    pub fn leave(&mut self) {
        self.held = None;
    }

    /// Waits for a place again, unless it is there still.
    pub async fn resume(&mut self) {
        if self.held.is_none() {
            // Nobody closes them.
            self.held = self.all.acquire().await.ok();
        }
    }
}
