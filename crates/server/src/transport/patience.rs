//! How long a connection waits for a request, without a timer for each request.

use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use rustix::time::{ClockId, clock_gettime};

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
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self { limit, end: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Begins a wait.
    pub fn begin(&self) {
        *self.lock() = roughly_now() + self.limit;
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

/// The time by the kernel's last tick, right to some milliseconds. Every request asks, and the exact time costs four times
/// as much.
fn roughly_now() -> Instant {
    static START: LazyLock<(Instant, Duration)> = LazyLock::new(|| (Instant::now(), tick()));
    let (start, tick_then) = *START;
    start + tick().saturating_sub(tick_then)
}

fn tick() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

impl Timer for Patience {
    fn now(&self) -> Instant {
        roughly_now()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        *self.lock() = deadline;
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
