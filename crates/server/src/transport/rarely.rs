//! What a connection waits for beside its peer: the end of the server, or of its own patience.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A future that is polled only when it was woken, however often its task is. A connection's task is polled with every
/// request; to ask each time whether the server stops would cost more than reading the request.
pub struct Rarely<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

struct Bell {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future> Rarely<F> {
    pub fn new(future: F) -> Self {
        // Rung, so that the first poll is one.
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { future: Box::pin(future), waker: bell.clone().into(), bell }
    }
}

impl<F: Future> Future for Rarely<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, bell, waker } = &mut *self;
        // Before the look at the bell: whoever rings after it finds this task.
        bell.task.register(cx.waker());
        if !bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        bell.rung.store(false, Ordering::Release);
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn is_polled_when_it_was_woken_and_not_before() {
        let polls = Arc::new(Mutex::new(0));
        let (bell, ringing) = tokio::sync::oneshot::channel::<()>();
        let counted = polls.clone();
        let mut ringing = Box::pin(ringing);
        let mut rarely = Rarely::new(std::future::poll_fn(move |cx| {
            *counted.lock().unwrap() += 1;
            ringing.as_mut().poll(cx)
        }));
        for _ in 0..3 {
            assert!(futures_util::poll!(&mut rarely).is_pending());
        }
        assert_eq!(*polls.lock().unwrap(), 1);
        bell.send(()).unwrap();
        rarely.await.unwrap();
        assert_eq!(*polls.lock().unwrap(), 2);
    }
}
