//! What a connection waits for beside its peer: the end of the server, or of its own patience.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A future that is polled only when it was woken, however often its task is. A connection's task is polled with every
/// request; to ask each time whether the server stops would cost more than reading the request.
pub struct Rarely<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
    /// What the bell has, where it can be compared without a lock.
    task: Option<Waker>,
}

struct Bell {
    rung: AtomicBool,
    /// Who is woken. Stays when it rings.
    task: Mutex<Option<Waker>>,
}

impl Bell {
    fn with_task<T>(&self, with: impl FnOnce(&mut Option<Waker>) -> T) -> T {
        with(&mut self.task.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        if let Some(task) = self.with_task(|task| task.clone()) {
            task.wake();
        }
    }
}

impl<F: Future> Rarely<F> {
    pub fn new(future: F) -> Self {
        // Rung, so that the first poll is one.
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), task: Mutex::default() });
        Self { future: Box::pin(future), waker: bell.clone().into(), bell, task: None }
    }
}

impl<F: Future> Future for Rarely<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, bell, waker, task } = &mut *self;
        // Before the look at the bell: whoever rings after it finds this task.
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
            bell.with_task(|known| known.clone_from(task));
        }
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

    /// Counts how often its task was woken.
    #[derive(Default)]
    struct Task(Mutex<usize>);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    #[test]
    fn every_ring_reaches_the_task() {
        let task = Arc::new(Task::default());
        let (waker, inner) = (Waker::from(task.clone()), Arc::new(Mutex::new(None)));
        let kept = inner.clone();
        let mut rarely = Rarely::new(std::future::poll_fn(move |cx| {
            *kept.lock().unwrap() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        let mut poll = || Pin::new(&mut rarely).poll(&mut Context::from_waker(&waker));
        let ring = || inner.lock().unwrap().clone().unwrap().wake();
        assert!(poll().is_pending());
        for rings in 1..4 {
            ring();
            assert_eq!(*task.0.lock().unwrap(), rings);
            // The task may be polled for other reasons too, before and after.
            assert!(poll().is_pending() && poll().is_pending());
        }
    }
}
