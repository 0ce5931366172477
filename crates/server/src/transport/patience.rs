//! How long a connection waits for a request, without a timer for each request.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// How long one connection waits. Every wait has the same length, so a single timer that runs on serves them all: it is
/// looked at only when it fires, and set anew when that was too early.
///
/// It is also a `Timer` for hyper, which asks for a sleep when it begins to wait for a request and drops it when the
/// headers are there; then `ticks` is the timer.
#[derive(Clone)]
pub struct Patience {
    limit: Duration,
    /// When the wait that began last ends.
    end: Arc<Mutex<Instant>>,
    /// hyper waits for the first byte of a request.
    awaits_request: Arc<AtomicBool>,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self { limit, end: Arc::new(Mutex::new(Instant::now())), awaits_request: Arc::default() }
    }

    /// Begins a wait.
    pub fn begin(&self) {
        *self.lock() = Instant::now() + self.limit;
    }

    /// Bytes have come. With the first of a request its time begins, whatever was waited before.
    pub fn received(&self) {
        if self.awaits_request.load(Ordering::Relaxed) {
            self.awaits_request.store(false, Ordering::Relaxed);
            self.begin();
        }
    }

    /// The headers are there: what comes now is the body, whose time began with them.
    pub fn headers_read(&self) {
        self.awaits_request.store(false, Ordering::Relaxed);
    }

    /// When the wait that began last ends.
    pub fn end(&self) -> Instant {
        *self.lock()
    }

    /// Ends with the wait that was begun last.
    pub async fn over(&self) {
        loop {
            let end = *self.lock();
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end.into()).await;
        }
    }

    /// Wakes its task when a sleep may have ended; never ends itself. The connection has to be polled in the same task.
    pub async fn ticks(&self) {
        let mut next = Instant::now() + self.limit;
        loop {
            tokio::time::sleep_until(next.into()).await;
            let (now, end) = (Instant::now(), *self.lock());
            // A sleep that begins after now ends later than this.
            next = if end > now { end } else { now + self.limit };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Timer for Patience {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        *self.lock() = deadline;
        self.awaits_request.store(true, Ordering::Relaxed);
        Box::pin(Until(deadline))
    }
}

/// Ends at an instant. Whoever polls it is woken by the connection's `ticks`.
struct Until(Instant);

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Sleep for Until {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_body_share_the_time_of_a_request() {
        let patience = Patience::new(Duration::from_secs(30));
        // hyper began to wait long ago.
        let waited = Instant::now() - Duration::from_secs(29);
        let _sleep = patience.sleep_until(waited + Duration::from_secs(30));
        let before_any = patience.end();
        patience.received();
        let of_request = patience.end();
        assert!(of_request > before_any, "its time begins with its first byte");
        patience.received();
        assert_eq!(patience.end(), of_request, "further bytes do not prolong it");

        // A request that lay in hyper's buffer: the bytes that come next are its body.
        let _sleep = patience.sleep_until(before_any);
        patience.headers_read();
        patience.received();
        assert_eq!(patience.end(), before_any);
    }
}
