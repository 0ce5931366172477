//! What waits to be sent to a peer beside the answers it asked for: notifications, in their order, and text that is
//! joined for as long as it waits.
//!
//! Whoever puts something in never waits. Whether a reader is too slow is a matter of time and bytes, never of how many
//! pieces there are: a model may be as quick as it likes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nexus_protocol::envelope;
use nexus_protocol::watch::{WATCH_EVENT, WatchEvent};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::freight::Load;

/// Bytes of one sender that may wait. Whoever is this far behind has stopped reading.
pub const HELD_BYTES_MAX: usize = 1024 * 1024;

/// How long a reader may take nothing while something waits. Longer than any pause of a program that still reads.
pub const STALL_MAX: Duration = Duration::from_secs(30);

/// Text that leaves in one message. Small enough that a slow line still takes one within `STALL_MAX`.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Whoever goes by the reader's pace puts in more when no more than this waits.
const ROOM_BYTES: usize = 64 * 1024;

/// Whoever puts in more than the reader takes is asked to wait from here on, long before that is too much.
const CROWDED_BYTES: usize = HELD_BYTES_MAX / 2;

/// So long a reader may take nothing before nobody waits for it any longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is taken at once, for the same reason.
const PORTION_BYTES_MAX: usize = 64 * 1024;

/// The way back to a peer while its calls run.
pub struct Peer {
    pub outbox: Outbox,
    /// Cancelled when the peer is gone.
    pub closed: CancellationToken,
    pub takes: Takes,
}

/// What a peer takes of what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Bytes,
    /// It is in this process: what happens needs no encoding.
    Values,
    /// It waits for its answer alone.
    Nothing,
}

impl Peer {
    /// What waits for the peer is a part of `load`.
    pub(crate) fn new(load: Load) -> Self {
        Self::taking(Takes::Bytes, load)
    }

    pub(crate) fn taking(takes: Takes, load: Load) -> Self {
        let outbox = Outbox {
            queue: Mutex::new(Queue::new(load)),
            filled: AtomicBool::new(false),
            taken: Notify::new(),
        };
        Self { outbox, closed: CancellationToken::new(), takes }
    }
}

/// Many put in, each through a lane of its own; one takes out, the connection.
pub struct Outbox {
    queue: Mutex<Queue>,
    /// Whether something waits, where it can be asked without the lock: every small call asks.
    filled: AtomicBool,
    /// Something was taken.
    taken: Notify,
}

struct Queue {
    items: VecDeque<Item>,
    /// Bytes of all items, and what they are in the server as a whole.
    held_bytes: usize,
    load: Load,
    /// The number of the first item; the others follow.
    first: u64,
    lanes: HashMap<u64, LaneState>,
    next_lane: u64,
    /// When something was last taken, or put into what was empty. `None` while nothing waits.
    stalled_since: Option<Instant>,
    reader: Option<Waker>,
}

#[derive(Default)]
struct LaneState {
    /// Bytes that wait.
    held_bytes: usize,
    /// The number of the item it put in last.
    last: Option<u64>,
    chunks: u64,
    /// It takes no more: the reader was too slow, or the last message is in.
    ended: bool,
    /// The reader was waited for, and took nothing.
    given_up: bool,
}

struct Item {
    lane: u64,
    content: Content,
}

enum Content {
    Message(Vec<u8>),
    /// Joined pieces, encoded when they leave.
    Text {
        text: String,
        sequence: u64,
        encode: EncodeText,
    },
    Event {
        event: Box<WatchEvent>,
        bytes: usize,
    },
}

/// What was taken out.
pub enum Taken {
    Message(Vec<u8>),
    Event(Box<WatchEvent>),
}

impl Taken {
    pub fn into_message(self) -> Vec<u8> {
        match self {
            Self::Message(message) => message,
            Self::Event(event) => notification(WATCH_EVENT, &event),
        }
    }
}

/// Makes a message of text and its number among the texts of its lane, from 1.
type EncodeText = Arc<dyn Fn(&str, u64) -> Vec<u8> + Send + Sync>;

/// One sender's way into an outbox. What it puts in leaves in this order; between lanes there is none.
pub struct Lane {
    peer: Arc<Peer>,
    number: u64,
    encode: EncodeText,
    overrun: CancellationToken,
}

impl Lane {
    /// A further lane into the outbox of `peer`, whose text `encode` makes messages of.
    pub fn open(
        peer: Arc<Peer>,
        encode: impl Fn(&str, u64) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let number = {
            let mut queue = peer.outbox.lock();
            queue.next_lane += 1;
            let number = queue.next_lane;
            queue.lanes.insert(number, LaneState::default());
            number
        };
        Self { peer, number, encode: Arc::new(encode), overrun: CancellationToken::new() }
    }

    /// A further lane, for messages alone.
    pub fn of_messages(peer: Arc<Peer>) -> Self {
        Self::open(peer, |_, _| Vec::new())
    }

    /// Waits until the reader has taken most of what this lane put in.
    pub async fn room(&self) {
        loop {
            let taken = self.peer.outbox.taken.notified();
            let held =
                self.peer.outbox.lock().lanes.get(&self.number).map_or(0, |it| it.held_bytes);
            if held < ROOM_BYTES {
                return;
            }
            taken.await;
        }
    }

    /// A wait for a reader that has much to take: until it has taken most of it, or takes nothing for a while. Then it is
    /// not waited for again before it has.
    pub fn crowded(&self) -> Option<impl Future<Output = ()> + 'static> {
        {
            let mut queue = self.peer.outbox.lock();
            let lane = queue.lanes.get_mut(&self.number)?;
            if lane.held_bytes < ROOM_BYTES {
                lane.given_up = false;
            }
            if lane.held_bytes < CROWDED_BYTES || lane.given_up || lane.ended {
                return None;
            }
        }
        let (peer, number) = (self.peer.clone(), self.number);
        Some(async move {
            loop {
                let taken = peer.outbox.taken.notified();
                match peer.outbox.lock().lanes.get(&number) {
                    Some(lane) if lane.held_bytes >= ROOM_BYTES => {}
                    _ => return,
                }
                tokio::select! {
                    waited = tokio::time::timeout(PATIENCE, taken) => if waited.is_err() { break },
                    () = peer.closed.cancelled() => break,
                }
            }
            if let Some(lane) = peer.outbox.lock().lanes.get_mut(&number) {
                lane.given_up = true;
            }
        })
    }

    /// Adds to the text that waits. False when the reader is too slow.
    pub fn put_text(&self, text: &str) -> bool {
        self.with_room(text.len(), |queue| queue.push_text(self.number, text, &self.encode))
    }

    /// Puts a message after all that was put before. False when the reader is too slow.
    pub fn put(&self, message: Vec<u8>) -> bool {
        self.with_room(message.len(), |queue| {
            queue.push(self.number, Content::Message(message));
        })
    }

    /// The same of what happened, which weighs about so many bytes.
    pub fn put_event(&self, event: Box<WatchEvent>, bytes: usize) -> bool {
        self.with_room(bytes, |queue| {
            queue.push(self.number, Content::Event { event, bytes });
        })
    }

    pub fn takes(&self) -> Takes {
        self.peer.takes
    }

    /// Puts the last message, which is told how many messages the text made. There is always room for it.
    pub fn put_last(&self, message: impl FnOnce(u64) -> Vec<u8>) {
        if self.takes() == Takes::Nothing {
            return;
        }
        self.peer.outbox.change(|queue| {
            let Some(lane) = queue.lanes.get_mut(&self.number) else { return };
            lane.ended = true;
            let message = message(lane.chunks);
            queue.push(self.number, Content::Message(message));
        });
    }

    /// Resolves when the reader is too slow for this lane.
    pub async fn overrun(&self) {
        tokio::select! {
            () = self.overrun.cancelled() => {}
            () = self.peer.outbox.stalled() => {
                if let Some(lane) = self.peer.outbox.lock().lanes.get_mut(&self.number) {
                    lane.ended = true;
                }
            }
        }
    }

    /// Resolves when the peer is gone.
    pub async fn closed(&self) {
        self.peer.closed.cancelled().await;
    }

    /// Runs `put`, of so many bytes, unless too much waits already. What is put now says nothing of the reader: a
    /// single large message passes.
    fn with_room(&self, bytes: usize, put: impl FnOnce(&mut Queue)) -> bool {
        if self.takes() == Takes::Nothing {
            return true;
        }
        self.peer.outbox.change(|queue| {
            let Some(lane) = queue.lanes.get_mut(&self.number) else { return false };
            if lane.held_bytes > HELD_BYTES_MAX {
                lane.ended = true;
                self.overrun.cancel();
            }
            if lane.ended {
                return false;
            }
            // Others may be so far behind that the server has no room for more.
            if queue.load.reach(queue.held_bytes.saturating_add(bytes)).is_err() {
                lane.ended = true;
                self.overrun.cancel();
                return false;
            }
            lane.held_bytes += bytes;
            put(queue);
            true
        })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.peer.outbox.lock().lanes.remove(&self.number);
    }
}

impl Outbox {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        !self.filled.load(Ordering::Acquire)
    }

    /// Tells `each` message of the next portion. False when nothing waited.
    pub fn take(&self, mut each: impl FnMut(&[u8])) -> bool {
        self.take_values(|taken| each(&taken.into_message()))
    }

    /// The same, for a peer that takes values.
    pub fn take_values(&self, each: impl FnMut(Taken)) -> bool {
        let items = self.take_items(None);
        let any = !items.is_empty();
        items.into_iter().map(Item::taken).for_each(each);
        any
    }

    /// The same, but waits until there is something. For the one reader.
    pub fn poll_take(&self, cx: &mut Context<'_>, mut each: impl FnMut(&[u8])) -> Poll<()> {
        let items = self.take_items(Some(cx.waker()));
        if items.is_empty() {
            return Poll::Pending;
        }
        items.into_iter().for_each(|item| each(&item.taken().into_message()));
        Poll::Ready(())
    }

    /// Waits until there is something to take.
    pub async fn filled(&self) {
        std::future::poll_fn(|cx| {
            let mut queue = self.lock();
            if queue.items.is_empty() {
                queue.wake_when_filled(cx.waker());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// The items of the next portion. When there are none, `waker` is woken once there are.
    fn take_items(&self, waker: Option<&Waker>) -> Vec<Item> {
        if waker.is_none() && self.is_empty() {
            return Vec::new();
        }
        let mut queue = self.lock();
        let (mut items, mut bytes) = (Vec::new(), 0);
        while bytes < PORTION_BYTES_MAX
            && let Some(item) = queue.pop()
        {
            bytes += item.bytes();
            items.push(item);
        }
        if let (true, Some(waker)) = (items.is_empty(), waker) {
            queue.wake_when_filled(waker);
        }
        let waits = !queue.items.is_empty();
        queue.stalled_since = waits.then(Instant::now);
        self.filled.store(waits, Ordering::Release);
        drop(queue);
        if !items.is_empty() {
            self.taken.notify_waiters();
        }
        items
    }

    /// Resolves when the reader has taken nothing for too long.
    async fn stalled(&self) {
        loop {
            let now = Instant::now();
            // While nothing waits, no stall can end before this.
            let end = self.lock().stalled_since.unwrap_or(now) + STALL_MAX;
            if end <= now {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let (changed, reader) = {
            let mut queue = self.lock();
            let changed = change(&mut queue);
            if queue.items.is_empty() {
                return changed;
            }
            if queue.stalled_since.is_none() {
                queue.stalled_since = Some(Instant::now());
                self.filled.store(true, Ordering::Release);
            }
            (changed, queue.reader.take())
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn new(load: Load) -> Self {
        Self {
            items: VecDeque::new(),
            held_bytes: 0,
            load,
            first: 0,
            lanes: HashMap::new(),
            next_lane: 0,
            stalled_since: None,
            reader: None,
        }
    }

    /// Joins text to what the lane put in last, where that is text, and makes as many items of it as it needs.
    fn push_text(&mut self, number: u64, mut text: &str, encode: &EncodeText) {
        if let Some(Content::Text { text: waiting, .. }) = self.last_of(number)
            && waiting.len() + text.len() <= CHUNK_BYTES_MAX
        {
            waiting.push_str(text);
            self.held_bytes += text.len();
            return;
        }
        while !text.is_empty() {
            let (chunk, rest) = text.split_at(text.floor_char_boundary(CHUNK_BYTES_MAX));
            text = rest;
            let Some(lane) = self.lanes.get_mut(&number) else { return };
            lane.chunks += 1;
            let (sequence, encode) = (lane.chunks, encode.clone());
            self.push(number, Content::Text { text: chunk.into(), sequence, encode });
        }
    }

    /// What the lane put in last, if it still waits.
    fn last_of(&mut self, number: u64) -> Option<&mut Content> {
        let last = self.lanes.get(&number)?.last?;
        let index = usize::try_from(last.checked_sub(self.first)?).ok()?;
        self.items.get_mut(index).map(|item| &mut item.content)
    }

    fn push(&mut self, number: u64, content: Content) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.last = Some(self.first + self.items.len() as u64);
        }
        let item = Item { lane: number, content };
        self.held_bytes += item.bytes();
        self.items.push_back(item);
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.first += 1;
        if let Some(lane) = self.lanes.get_mut(&item.lane) {
            lane.held_bytes = lane.held_bytes.saturating_sub(item.bytes());
        }
        self.held_bytes = self.held_bytes.saturating_sub(item.bytes());
        if self.items.is_empty() {
            self.load.clear();
        }
        Some(item)
    }

    fn wake_when_filled(&mut self, waker: &Waker) {
        if !self.reader.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.reader = Some(waker.clone());
        }
    }
}

impl Item {
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Message(message) => message.len(),
            Content::Text { text, .. } => text.len(),
            Content::Event { bytes, .. } => *bytes,
        }
    }

    /// Outside of the lock: those who put in do not wait for what is encoded.
    fn taken(self) -> Taken {
        match self.content {
            Content::Message(message) => Taken::Message(message),
            Content::Text { text, sequence, encode } => Taken::Message(encode(&text, sequence)),
            Content::Event { event, .. } => Taken::Event(event),
        }
    }
}

/// A message that wants no answer.
pub fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    if let Err(error) = envelope::write_notification(&mut out, method, params) {
        tracing::error!(%error, "a notification could not be encoded");
    }
    out
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use nexus_core::Requester;

    use super::*;
    use crate::freight::{FREIGHT_BYTES_MAX, Freight};

    fn peer() -> Arc<Peer> {
        let freight = Arc::<Freight>::default();
        Arc::new(Peer::new(freight.load(&Requester::Administrator)))
    }

    fn lane(peer: &Arc<Peer>, name: &'static str) -> Lane {
        Lane::open(peer.clone(), move |text, number| format!("{name}{number}:{text}").into())
    }

    /// Everything that waits, portion by portion.
    fn taken(peer: &Peer) -> Vec<String> {
        let mut all = Vec::new();
        while peer.outbox.take(|message| all.push(String::from_utf8(message.into()).unwrap())) {}
        all
    }

    #[test]
    fn text_that_waits_is_joined_and_messages_keep_their_place() {
        let peer = peer();
        let (a, b) = (lane(&peer, "a"), lane(&peer, "b"));
        for _ in 0..3 {
            assert!(a.put_text("x") && b.put_text("y"));
        }
        assert!(a.put(b"event".into()) && a.put_text("z"));
        assert_eq!(taken(&peer), ["a1:xxx", "b1:yyy", "event", "a2:z"]);
        assert_eq!(taken(&peer), [""; 0]);
        assert!(a.put_text("again"));
        a.put_last(|chunks| format!("end {chunks}").into());
        drop(a);
        assert_eq!(taken(&peer), ["a3:again", "end 3"]);
    }

    #[test]
    fn long_text_leaves_in_chunks_that_are_whole_characters() {
        let peer = peer();
        let lane = lane(&peer, "");
        let text = format!("x{}", "ä".repeat(CHUNK_BYTES_MAX));
        assert!(lane.put_text("x") && lane.put_text(&text));
        let chunks = taken(&peer);
        assert_eq!(chunks.len(), 4);
        let joined: String = chunks.iter().map(|chunk| &chunk[2..]).collect();
        assert_eq!(joined, format!("x{text}"));
    }

    #[test]
    fn what_one_lane_may_hold_back_just_under_and_just_over() {
        let full = "x".repeat(HELD_BYTES_MAX);
        let over = |lane: &Lane| lane.overrun().now_or_never().is_some();
        let peer = peer();
        let (held, other) = (lane(&peer, ""), lane(&peer, ""));
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(
            async {
                assert!(held.put_text(&full) && held.put(b"1".into()) && !over(&held));
                assert!(!held.put_text("x") && over(&held));
                // The lanes are judged one by one, and for what waits.
                assert!(other.put_text(&full) && !over(&other));
                taken(&peer);
                assert!(!held.put(b"x".into()), "once is for ever");
                assert!(other.put_text(&full) && other.put_text("x") && !over(&other));
            },
        );
        held.put_last(|chunks| format!("{chunks}").into());
        assert_eq!(taken(&peer).pop().unwrap(), "16", "the end always has room");
    }

    #[test]
    fn what_waits_counts_in_the_server_as_a_whole() {
        let freight = Arc::<Freight>::default();
        let mut others = freight.load(&Requester::Administrator);
        others.reach(FREIGHT_BYTES_MAX - (128 << 10)).unwrap();
        let peer = Arc::new(Peer::new(freight.load(&Requester::Administrator)));
        let open = || lane(&peer, "");
        let (first, second, third) = (open(), open(), open());
        let piece = "x".repeat(64 << 10);
        assert!(first.put_text(&piece) && second.put_text(&piece));
        assert!(!second.put_text("x"), "there is no room for more");
        assert!(!taken(&peer).is_empty());
        assert!(third.put_text(&piece) && third.put_text(&piece), "what was taken makes room");
        drop(others);
        assert!(third.put_text(&piece));
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_too_slow_in_the_end() {
        let peer = peer();
        let lane = lane(&peer, "");
        let overrun = lane.overrun();
        tokio::pin!(overrun);
        let second = Duration::from_secs(1);
        let mut over =
            async |after: Duration| tokio::time::timeout(after, overrun.as_mut()).await.is_ok();
        assert!(!over(STALL_MAX * 3).await, "nothing waits");
        assert!(lane.put_text("x"));
        assert!(!over(STALL_MAX - second).await);
        taken(&peer);
        assert!(lane.put_text("y"));
        assert!(!over(STALL_MAX - second).await, "it took something");
        assert!(over(second).await);
        assert!(!lane.put_text("z"));
    }

    #[tokio::test]
    async fn whoever_goes_by_the_readers_pace_waits_for_room() {
        let peer = peer();
        let lane = Lane::of_messages(peer.clone());
        assert!(lane.put(vec![b'x'; ROOM_BYTES - 1]));
        assert!(lane.room().now_or_never().is_some(), "just under");
        assert!(lane.put(b"x".into()));
        let mut room = std::pin::pin!(lane.room());
        assert!(room.as_mut().now_or_never().is_none(), "just over");
        taken(&peer);
        room.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_is_waited_for_and_no_other() {
        let peer = peer();
        let lane = lane(&peer, "");
        assert!(lane.put_text(&"x".repeat(CROWDED_BYTES - 1)) && lane.crowded().is_none());
        assert!(lane.put_text("x"));
        let began = Instant::now();
        lane.crowded().unwrap().await;
        assert_eq!(began.elapsed(), PATIENCE, "it took nothing");
        assert!(lane.put_text("x") && lane.crowded().is_none(), "once is enough");
        taken(&peer);
        assert!(lane.crowded().is_none() && lane.put_text(&"x".repeat(CROWDED_BYTES)));
        let mut waited = std::pin::pin!(lane.crowded().unwrap());
        for _ in 0..8 {
            assert!(waited.as_mut().now_or_never().is_none());
            tokio::time::advance(PATIENCE * 3 / 4).await;
            assert!(peer.outbox.take(|_| ()));
        }
        waited.await;
        assert!(lane.put_text(&"x".repeat(CROWDED_BYTES)));
        let waited = lane.crowded().unwrap();
        drop(lane);
        waited.await;
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let peer = peer();
        let lane = lane(&peer, "");
        let reading = tokio::spawn({
            let peer = peer.clone();
            async move {
                peer.outbox.filled().await;
                taken(&peer)
            }
        });
        tokio::task::yield_now().await;
        assert!(lane.put_text("x"));
        assert_eq!(reading.await.unwrap(), ["1:x"]);
    }
}
