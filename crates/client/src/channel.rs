//! The client over one connected stream: calls side by side, told apart by their ids.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use nexus_protocol::answer;
use nexus_protocol::watch::{Unwatch, UnwatchParams, WATCH_EVENT, Watch, WatchParams};
use nexus_protocol::{Api, CallError, Method, Target};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{FramedRead, FramedWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::incoming::Incoming;
use crate::retry::timeout_for;
use crate::unix::{codec, frame};
use crate::watch::WatchStream;

/// What one watch may have waiting. Its reader does not hold up the calls beside it; who is slower loses the watch, and
/// can watch again from where it was.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Calls a server over a stream that is connected already, as a terminal does that started it. There is no second way
/// to it: when the stream ends, so does the client. Nothing is tried again. Dropping the last clone hangs up.
#[derive(Clone)]
pub struct ChannelClient {
    shared: Arc<Shared>,
    timeout: Option<Duration>,
    _tasks: Arc<[AbortOnDropHandle<()>; 2]>,
}

/// What the client and those who read and write for it have in common.
struct Shared {
    id_last: AtomicU64,
    out: mpsc::UnboundedSender<Bytes>,
    open: Mutex<Open>,
    closed: CancellationToken,
}

/// What is waited for.
#[derive(Default)]
struct Open {
    calls: HashMap<u64, oneshot::Sender<BytesMut>>,
    /// By the ids of the calls that opened them.
    watches: HashMap<u64, Feed>,
    /// The calls, by the names that the server gave the watches.
    named: HashMap<String, u64>,
    /// Why nothing comes any more.
    lost: Option<String>,
}

/// The way to the reader of a watch.
struct Feed {
    events: mpsc::UnboundedSender<BytesMut>,
    held_bytes: Arc<AtomicUsize>,
    name: Option<String>,
}

impl ChannelClient {
    /// A client over a stream of tokio's; see [`ChannelClient::from_std`] for one of the standard library's. Within a
    /// runtime.
    pub fn new(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        let (out, waiting) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            id_last: AtomicU64::new(0),
            out,
            open: Mutex::default(),
            closed: CancellationToken::new(),
        });
        let reading = tokio::spawn(read_all(read, shared.clone()));
        let writing = tokio::spawn(write_all(write, waiting));
        let tasks = [reading, writing].map(AbortOnDropHandle::new);
        Self { shared, timeout: None, _tasks: Arc::new(tasks) }
    }

    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::new(UnixStream::from_std(stream)?))
    }

    /// How long a call may take. Without it a read has 30 s and all else no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Calls a method known by name only.
    pub async fn call_value(
        &self,
        target: &Target,
        method: &str,
        params: &Value,
    ) -> Result<Value, CallError> {
        let id = self.shared.next_id();
        self.exchange(id, frame(id, target, method, params, None)?, self.timeout).await
    }

    /// Watches agents: everything that happens to them, beside other calls. It has no time limit.
    pub async fn watch(&self, params: WatchParams) -> Result<WatchStream, CallError> {
        let id = self.shared.next_id();
        let body = frame(id, &Target::Server, Watch::NAME, &params, None)?;
        let subscription = Subscription::open(&self.shared, id)?;
        self.shared.put(body)?;
        Ok(WatchStream::new(id, Incoming::Channel(subscription)))
    }

    /// Returns when the server is gone.
    pub async fn closed(&self) {
        self.shared.closed.cancelled().await;
    }

    async fn exchange<R: DeserializeOwned>(
        &self,
        id: u64,
        body: Bytes,
        timeout: Option<Duration>,
    ) -> Result<R, CallError> {
        let exchanging = async {
            let waiting = Waiting::open(&self.shared, id)?;
            self.shared.put(body)?;
            let answer = waiting.answer().await?;
            answer::result(answer::envelope(&answer)?, id)
        };
        match timeout {
            None => exchanging.await,
            Some(limit) => tokio::time::timeout(limit, exchanging)
                .await
                .unwrap_or(Err(CallError::Timeout(limit))),
        }
    }
}

impl Api for ChannelClient {
    async fn call<M: Method>(
        &self,
        target: &Target,
        params: M::Params,
    ) -> Result<M::Result, CallError> {
        let id = self.shared.next_id();
        let body = frame(id, target, M::NAME, &params, None)?;
        self.exchange(id, body, timeout_for(M::KIND, self.timeout)).await
    }
}

/// A call that waits. Dropped, nobody does any more; the call itself goes on.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
    answer: oneshot::Receiver<BytesMut>,
}

impl<'a> Waiting<'a> {
    fn open(shared: &'a Shared, id: u64) -> Result<Self, CallError> {
        let (sender, answer) = oneshot::channel();
        shared.open()?.calls.insert(id, sender);
        Ok(Self { shared, id, answer })
    }

    async fn answer(mut self) -> Result<BytesMut, CallError> {
        (&mut self.answer).await.map_err(|_| self.shared.lost())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.lock().calls.remove(&self.id);
    }
}

/// What comes of one watch. Dropped, the watch ends.
pub(crate) struct Subscription {
    shared: Arc<Shared>,
    id: u64,
    events: mpsc::UnboundedReceiver<BytesMut>,
    held_bytes: Arc<AtomicUsize>,
}

impl Subscription {
    fn open(shared: &Arc<Shared>, id: u64) -> Result<Self, CallError> {
        let (sender, events) = mpsc::unbounded_channel();
        let held_bytes = Arc::<AtomicUsize>::default();
        let feed = Feed { events: sender, held_bytes: held_bytes.clone(), name: None };
        shared.open()?.watches.insert(id, feed);
        Ok(Self { shared: shared.clone(), id, events, held_bytes })
    }

    /// The next message. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Result<BytesMut, CallError> {
        match self.events.recv().await {
            Some(message) => {
                self.held_bytes.fetch_sub(message.len(), Ordering::Relaxed);
                Ok(message)
            }
            None => Err(self.shared.lost()),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.end_watch(self.id);
    }
}

impl Shared {
    fn next_id(&self) -> u64 {
        self.id_last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is waited for, as long as something can come.
    fn open(&self) -> Result<MutexGuard<'_, Open>, CallError> {
        let open = self.lock();
        match &open.lost {
            Some(why) => Err(CallError::Connect(why.clone())),
            None => Ok(open),
        }
    }

    /// Why something that was waited for does not come.
    fn lost(&self) -> CallError {
        let why = self.lock().lost.clone();
        CallError::Transport(why.unwrap_or_else(|| {
            format!("over {HELD_BYTES_MAX} bytes of the watch were not read: watch again")
        }))
    }

    fn put(&self, body: Bytes) -> Result<(), CallError> {
        self.out.send(body).map_err(|_| CallError::Connect(ENDED.into()))
    }

    /// Forgets a watch and tells the server to end it. One that it has not named yet is ended when it does.
    fn end_watch(&self, id: u64) {
        let name = {
            let mut open = self.lock();
            let name = open.watches.remove(&id).and_then(|feed| feed.name);
            if let Some(name) = &name {
                open.named.remove(name);
            }
            name
        };
        if let Some(name) = name {
            self.unwatch(name);
        }
    }

    /// Nobody waits for the answer.
    fn unwatch(&self, watch_id: String) {
        let params = UnwatchParams { watch_id };
        if let Ok(body) = frame(self.next_id(), &Target::Server, Unwatch::NAME, &params, None) {
            let _ = self.put(body);
        }
    }

    /// Gives a message to the one that waits for it.
    fn hand_out(&self, bytes: BytesMut) -> Result<(), CallError> {
        let message = answer::envelope(&bytes)?;
        match message.method.as_deref() {
            None => {
                // Without an id it is about something that could not be read; whose that was nobody knows.
                if let Some(id) = message.id.and_then(|id| id.get().parse().ok()) {
                    self.hand_answer(id, bytes);
                }
            }
            Some(WATCH_EVENT) => {
                let of = answer::params(&message)?;
                self.hand_event(of, bytes);
            }
            // Of a stream that nobody here asked for.
            Some(_) => {}
        }
        Ok(())
    }

    fn hand_answer(&self, id: u64, bytes: BytesMut) {
        let mut open = self.lock();
        if let Some(call) = open.calls.remove(&id) {
            let _ = call.send(bytes);
        } else if let Some(feed) = open.watches.remove(&id) {
            if let Some(name) = &feed.name {
                open.named.remove(name);
            }
            feed.give(bytes);
        }
    }

    /// The first event of a watch has the id of its call; the later ones have the name that this one gave it.
    fn hand_event(&self, of: OfWatch, bytes: BytesMut) {
        let mut open = self.lock();
        let id = match of.task_id {
            Some(id) => Some(id),
            None => open.named.get(&of.watch_id).copied(),
        };
        let feed = id.and_then(|id| open.watches.get_mut(&id));
        match (feed, of.task_id) {
            (Some(feed), first) => {
                if first.is_some() {
                    feed.name = Some(of.watch_id.clone());
                }
                let is_slow = !feed.give(bytes);
                if let Some(id) = first {
                    open.named.insert(of.watch_id, id);
                }
                drop(open);
                if let (true, Some(id)) = (is_slow, id) {
                    self.end_watch(id);
                }
            }
            // Whoever opened it has left before it was named.
            (None, Some(_)) => {
                drop(open);
                self.unwatch(of.watch_id);
            }
            (None, None) => {}
        }
    }

    fn close(&self, why: String) {
        let mut open = self.lock();
        *open = Open { lost: Some(why), ..Open::default() };
        drop(open);
        self.closed.cancel();
    }
}

impl Feed {
    /// False when more waits than may.
    fn give(&self, bytes: BytesMut) -> bool {
        let held = self.held_bytes.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        let _ = self.events.send(bytes);
        held <= HELD_BYTES_MAX
    }
}

/// What tells one watch's events from another's.
#[derive(Deserialize)]
struct OfWatch {
    watch_id: String,
    #[serde(default)]
    task_id: Option<u64>,
}

const ENDED: &str = "the server has hung up";

async fn read_all(read: OwnedReadHalf, shared: Arc<Shared>) {
    let mut frames = FramedRead::new(read, codec());
    let why = loop {
        match frames.next().await {
            Some(Ok(bytes)) => {
                // What is no message at all says nothing of what follows it.
                if let Err(error) = shared.hand_out(bytes) {
                    break error.to_string();
                }
            }
            Some(Err(error)) => break error.to_string(),
            None => break ENDED.into(),
        }
    };
    shared.close(why);
}

async fn write_all(write: OwnedWriteHalf, mut waiting: mpsc::UnboundedReceiver<Bytes>) {
    let mut frames = FramedWrite::new(write, codec());
    while let Some(body) = waiting.recv().await {
        // Whoever reads finds out why.
        if frames.send(body).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
