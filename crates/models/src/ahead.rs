//! The body of an answer, taken in the moment that it comes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _};
use futures_util::task::AtomicWaker;

/// So much is taken before the reader asks for it, and a chunk more.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// hyper hands a body over chunk by chunk, and goes on when the reader has taken the last one: the task of the connection
/// and that of the reader take turns, twice through the scheduler for each piece of an answer, which wakes further threads
/// on the way. Here the waker that the connection calls takes the chunk. So the connection goes through all that it has, and
/// the reader then finds all of it.
pub(super) struct Body<E> {
    source: Arc<Source<E>>,
    /// The source, as who is to be woken.
    waker: Waker,
    /// What the reader has not looked at yet.
    taken: VecDeque<Bytes>,
}

struct Source<E> {
    state: Mutex<State<E>>,
    reader: AtomicWaker,
}

struct State<E> {
    /// Until nobody wants it any more. It knows the waker, which knows this.
    chunks: Option<Chunks<E>>,
    ahead: VecDeque<Bytes>,
    ahead_bytes: usize,
    /// What follows all that is ahead.
    end: Option<Result<(), E>>,
}

type Chunks<E> = BoxStream<'static, Result<Bytes, E>>;

impl<E: Send + 'static> Body<E> {
    pub fn new(chunks: Chunks<E>) -> Self {
        let (ahead, ahead_bytes) = (VecDeque::new(), 0);
        let state = State { chunks: Some(chunks), ahead, ahead_bytes, end: None };
        let source = Arc::new(Source { state: Mutex::new(state), reader: AtomicWaker::new() });
        Self { waker: Waker::from(source.clone()), source, taken: VecDeque::new() }
    }

    /// What comes next, or nothing at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, E> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    fn poll_chunk(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Bytes>, E>> {
        if self.taken.is_empty() {
            // Before the look, so that whoever cannot be taken from during it is not missed.
            self.source.reader.register(cx.waker());
            let mut state = self.source.state();
            if state.ahead.is_empty() {
                state.take(&self.waker);
            }
            std::mem::swap(&mut self.taken, &mut state.ahead);
            state.ahead_bytes = 0;
            if self.taken.is_empty() {
                let end = state.end.as_mut().map(|end| std::mem::replace(end, Ok(())));
                return end.map_or(Poll::Pending, |end| Poll::Ready(end.map(|()| None)));
            }
        }
        Poll::Ready(Ok(self.taken.pop_front()))
    }
}

impl<E> Drop for Body<E> {
    fn drop(&mut self) {
        self.source.state().chunks = None;
    }
}

impl<E> Source<E> {
    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Send + 'static> Wake for Source<E> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Otherwise the reader is looking this very moment, and looks again.
        if let Ok(mut state) = self.state.try_lock() {
            state.take(&Waker::from(self.clone()));
        }
        self.reader.wake();
    }
}

impl<E> State<E> {
    /// Takes what there is. Whoever has more then wakes `waker`, unless so much is here that the reader comes first.
    fn take(&mut self, waker: &Waker) {
        let mut cx = Context::from_waker(waker);
        while let Some(chunks) = &mut self.chunks
            && self.end.is_none()
            && self.ahead_bytes < AHEAD_BYTES_MAX
        {
            match chunks.poll_next_unpin(&mut cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    self.ahead_bytes += chunk.len();
                    self.ahead.push_back(chunk);
                }
                Poll::Ready(Some(Err(error))) => self.end = Some(Err(error)),
                Poll::Ready(None) => self.end = Some(Ok(())),
                Poll::Pending => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
