//! What happens often, shown now and then: whoever looks on sees the latest a few times a second.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::Notify;

/// Rings when there is something to show.
pub struct Paced {
    pause: Duration,
    arrived: Notify,
}

impl Paced {
    /// At least so much time lies between two that are shown.
    pub fn new(pause: Duration) -> Self {
        Self { pause, arrived: Notify::new() }
    }

    /// There is something to show.
    pub fn ring(&self) {
        self.arrived.notify_one();
    }

    /// Calls `show` for what arrives while `work` goes on, and for what is left when it is done.
    pub async fn during<T>(&self, work: impl Future<Output = T>, show: impl Fn()) -> T {
        let done = tokio::select! {
            biased;
            done = work => done,
            never = self.carry(&show) => match never {},
        };
        show();
        done
    }

    async fn carry(&self, show: &impl Fn()) -> Infallible {
        loop {
            self.arrived.notified().await;
            show();
            tokio::time::sleep(self.pause).await;
        }
    }
}
