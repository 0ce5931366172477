//! One peer on a stream of bytes. What differs between transports is their framing: where a message begins and ends.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use nexus_core::{Hand, Requester};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::patience::Patience;
use super::places::{Busy, Place};
use super::stall::Stall;
use super::{Worker, begin, error_message, finished, laden, too_large};
use crate::begin::Begun;
use crate::behalf::{Behalf, Door};
use crate::dispatcher::{Caller, Reply, Signer, Target};
use crate::freight::{Load, SMALL_BYTES_MAX};
use crate::host::Host;
use crate::outbox::Peer;

/// Where messages begin and end in a stream of bytes.
pub trait Framing: Send + Sync + 'static {
    /// Calls of one peer that may run at once; one means that they are answered in order. While so many run, one
    /// message more is read ahead: so it is noticed when the peer goes.
    const CALLS_MAX: usize;
    /// Largest message that is taken.
    const MESSAGE_BYTES_MAX: usize;

    /// Cuts the next message off the start of what was read, if it has come in full.
    fn decode(&mut self, input: &mut BytesMut) -> Option<Frame>;

    /// The same at the end of the input, of what was left.
    fn decode_end(&mut self, _input: &mut BytesMut) -> Option<Frame> {
        None
    }

    /// Appends a message as it travels.
    fn encode(&self, message: &[u8], out: &mut Vec<u8>);
}

/// What was cut off the input.
pub enum Frame {
    Message(Bytes),
    /// A message that was too large, and was skipped.
    TooLarge,
    /// A message that is too large, and nothing behind it can be told apart.
    Endless,
}

/// How a peer is served.
pub struct Terms {
    pub requester: Requester,
    pub hand: Hand,
    pub signer: Signer,
    /// What it came through, if that is not the owner's.
    pub door: Option<Arc<Door>>,
    /// Largest answer.
    pub answer_bytes_max: usize,
    /// How long the peer may be silent while none of its calls runs.
    pub silence_max: Option<Duration>,
    /// How long it may take nothing of what was written.
    pub stall: Stall,
    /// Its place among others, which is sure once it has said something and while a call of it runs.
    pub place: Option<Arc<Place>>,
}

/// Answers gather up to this size while further messages wait in the buffer; then they leave together.
const READY_BYTES_MAX: usize = 64 * 1024;

/// What may wait for a peer that does not read. Then nothing more is read from it either.
const BACKLOG_BYTES_MAX: usize = 1024 * 1024;

/// How long a peer may go on sending what is not taken any more.
const LINGER: Duration = Duration::from_secs(2);

/// What is read at once at least.
const READ_BYTES_MIN: usize = 1024;
const READ_BYTES: usize = 8 * 1024;

pub struct Connection<D, F, R, W> {
    host: Arc<D>,
    framing: F,
    input: R,
    /// What was read and not yet cut into messages.
    buffer: BytesMut,
    /// What of that counts in the server as a whole.
    unread: Load,
    /// A message that was read while as many calls ran as may.
    ahead: Option<Frame>,
    /// Whether the peer still sends, and the server still takes it.
    open: bool,
    /// Nothing that follows is taken, but the peer is given time to stop sending.
    lingers: bool,
    output: W,
    /// Messages that are ready to leave, and how much of them has.
    ready: Vec<u8>,
    written: usize,
    /// What of it counts in the server as a whole.
    loads: Vec<Load>,
    stall: Stall,
    place: Option<Arc<Place>>,
    busy: Option<Busy>,
    calls: FuturesUnordered<Worker>,
    caller: Caller,
    peer: Arc<Peer>,
    patience: Option<Patience>,
    /// The peer's silence is being timed. Bytes that make no whole message are no word of it.
    timed: bool,
}

/// What a connection was woken for.
enum Event {
    Pushed,
    Notified,
    Finished(Reply),
    Read(usize),
    /// The server stops, or another has the place of this peer.
    Stop,
    /// The peer was silent for too long.
    Silence,
}

impl<D, F, R, W> Connection<D, F, R, W>
where
    D: Host,
    F: Framing,
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    pub fn new(host: Arc<D>, framing: F, (input, output): (R, W), terms: Terms) -> Self {
        let behalf = Behalf::through(terms.door);
        let load = || match behalf.account() {
            Some(account) => host.freight().load_of_guest(account.clone()),
            None => host.freight().load(&terms.requester),
        };
        let (peer, unread) = (Arc::new(Peer::new(load())), load());
        let caller = Caller {
            requester: terms.requester,
            hand: terms.hand,
            signer: terms.signer,
            target: Target::Server,
            peer: Some(peer.clone()),
            behalf: Some(Arc::new(behalf)),
            door: None,
            answer_bytes_max: terms.answer_bytes_max,
        };
        Self {
            host,
            framing,
            input,
            buffer: BytesMut::with_capacity(READ_BYTES),
            unread,
            ahead: None,
            open: true,
            lingers: false,
            output,
            ready: Vec::new(),
            written: 0,
            loads: Vec::new(),
            stall: terms.stall,
            place: terms.place,
            busy: None,
            calls: FuturesUnordered::new(),
            caller,
            peer,
            patience: terms.silence_max.map(Patience::new),
            timed: false,
        }
    }

    /// The same for calls of another protocol.
    pub fn through(mut self, door: nexus_core::store::Door) -> Self {
        self.caller.door = Some(door);
        self
    }

    /// The way back to the peer, which says when it is gone.
    pub fn peer(&self) -> Arc<Peer> {
        self.peer.clone()
    }

    /// Serves the peer until it is gone, or the server stops and its calls are answered. `Err` when it cannot be read
    /// or written any more, or has lost its place. Whatever ends it, this connection is all that is lost: calls that
    /// still run go on.
    pub async fn run(mut self, stop: &CancellationToken) -> io::Result<()> {
        let _closed = self.peer.closed.clone().drop_guard();
        // A token of its own: connections would meet at the lock of one.
        let end = self.place.as_ref().map_or_else(|| stop.child_token(), |place| place.end());
        let mut stopped = pin!(end.cancelled());
        let patience = self.patience.clone();
        let mut silence = pin!(async move {
            match patience {
                Some(patience) => patience.over().await,
                None => std::future::pending().await,
            }
        });
        loop {
            self.begin_waiting();
            self.heed_place();
            if self.is_over() {
                return if self.lingers { self.linger(stopped.as_mut()).await } else { Ok(()) };
            }
            match self.next(stopped.as_mut(), silence.as_mut()).await? {
                Event::Pushed => self.loads.clear(),
                Event::Notified => self.take_notifications(),
                Event::Finished(reply) => self.answer(reply),
                Event::Read(0) => {
                    self.open = false;
                    self.peer.closed.cancel();
                    let last = self.framing.decode_end(&mut self.buffer);
                    self.ahead = last.map(|frame| self.weighed(frame));
                }
                Event::Read(_) => self.weigh(),
                // What has come in full is still answered.
                Event::Stop if stop.is_cancelled() => self.open = false,
                Event::Stop => return Err(io::ErrorKind::ConnectionAborted.into()),
                Event::Silence => return Ok(()),
            }
        }
    }

    /// Begins the calls that have come in full, as far as there is room for them and for their answers.
    fn begin_waiting(&mut self) {
        let room = self.ready.len().saturating_add(READY_BYTES_MAX).min(BACKLOG_BYTES_MAX);
        while self.calls.len() < F::CALLS_MAX && self.ready.len() < room && !self.lingers {
            let next = self.ahead.take().or_else(|| self.cut());
            self.timed &= next.is_none();
            match next {
                Some(Frame::Message(message)) => {
                    if let Some(place) = &self.place
                        && self.caller.requester == Requester::Administrator
                    {
                        place.introduce_administrator();
                    }
                    match begin(&self.host, self.caller.clone(), message) {
                        Begun::Done(reply) => self.answer(reply),
                        Begun::Running(worker) => self.calls.push(worker),
                    }
                }
                Some(refused) => {
                    self.lingers = matches!(refused, Frame::Endless);
                    self.open &= !self.lingers;
                    self.queue(&error_message(&too_large(F::MESSAGE_BYTES_MAX)));
                }
                None => return,
            }
        }
        if self.ahead.is_none() && self.calls.len() == F::CALLS_MAX {
            self.ahead = self.cut();
        }
    }

    /// The next message that has come in full.
    fn cut(&mut self) -> Option<Frame> {
        let frame = self.framing.decode(&mut self.buffer)?;
        Some(self.weighed(frame))
    }

    /// A message that was cut off the input weighs for as long as its call has it.
    fn weighed(&mut self, frame: Frame) -> Frame {
        let Frame::Message(message) = frame else { return frame };
        if message.len() <= SMALL_BYTES_MAX {
            return Frame::Message(message);
        }
        let rest = self.caller.load(self.host.freight());
        Frame::Message(laden(message, Some(std::mem::replace(&mut self.unread, rest))))
    }

    /// Counts what was read so far of a message. Where there is no room for it, its peer is told, and is served no more:
    /// what follows could only be thrown away.
    fn weigh(&mut self) {
        if self.buffer.len() <= SMALL_BYTES_MAX {
            return self.unread.clear();
        }
        if let Err(full) = self.unread.reach(self.buffer.len()) {
            self.buffer = BytesMut::new();
            self.unread.clear();
            self.queue(&error_message(&full.into()));
            (self.open, self.lingers) = (false, true);
        }
    }

    /// A peer of which no call runs can be asked to make room for others.
    fn heed_place(&mut self) {
        match self.calls.is_empty() {
            true => self.busy = None,
            false if self.busy.is_none() => self.busy = self.place.as_ref().map(Place::busy),
            false => {}
        }
    }

    /// Whether nothing is left to do.
    fn is_over(&self) -> bool {
        !self.open && self.ahead.is_none() && self.calls.is_empty() && self.ready.is_empty()
    }

    async fn next(
        &mut self,
        stopped: Pin<&mut impl Future<Output = ()>>,
        silence: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<Event> {
        let idle = self.calls.is_empty();
        let pushes = !self.ready.is_empty();
        // Who still reads, or waits for a call, is not silent.
        let silent = idle && !pushes;
        if let (true, false, Some(patience)) = (silent, self.timed, &self.patience) {
            patience.begin();
        }
        self.timed = silent;
        let has_room = self.ready.len() < BACKLOG_BYTES_MAX;
        let reads = self.open && self.ahead.is_none() && has_room;
        if reads && self.buffer.capacity() - self.buffer.len() < READ_BYTES_MIN {
            self.buffer.reserve(READ_BYTES);
        }
        let Self { output, ready, written, input, buffer, calls, peer, open, .. } = self;
        let stall = &mut self.stall;
        tokio::select! {
            biased;
            () = stopped, if *open => Ok(Event::Stop),
            () = silence, if silent => Ok(Event::Silence),
            pushed = std::future::poll_fn(|cx| poll_push(output, ready, written, stall, cx)), if pushes => {
                pushed.map(|()| Event::Pushed)
            }
            () = peer.outbox.filled(), if !idle && !pushes => Ok(Event::Notified),
            Some(joined) = calls.next(), if !idle && has_room => Ok(Event::Finished(finished(joined))),
            read = input.read_buf(buffer), if reads => read.map(Event::Read),
        }
    }

    fn take_notifications(&mut self) {
        let Self { peer, framing, ready, .. } = self;
        peer.outbox.take(|message| framing.encode(message, ready));
    }

    /// Queues a reply, behind all that its call has said before.
    fn answer(&mut self, reply: Reply) {
        while !self.peer.outbox.is_empty() {
            self.take_notifications();
        }
        if let Some(body) = reply.body {
            self.queue(&body);
            self.loads.extend(reply.load);
        }
    }

    /// Puts a message with those that are ready to leave.
    fn queue(&mut self, message: &[u8]) {
        self.framing.encode(message, &mut self.ready);
    }

    /// Takes what the peer still sends and throws it away. Closed at once, the peer would fail in the middle of its
    /// message and never read why.
    async fn linger(&mut self, stopped: Pin<&mut impl Future<Output = ()>>) -> io::Result<()> {
        self.output.shutdown().await?;
        let mut nowhere = tokio::io::sink();
        let rest = tokio::io::copy(&mut self.input, &mut nowhere);
        tokio::select! {
            biased;
            () = stopped => {}
            _ = tokio::time::timeout(LINGER, rest) => {}
        }
        Ok(())
    }
}

/// Writes what is ready. Messages leave whole, in one write where the peer takes it: clients in the field read the head
/// of a frame with one `recv`. What was written is kept in mind, so this may be dropped and begun again.
fn poll_push(
    output: &mut (impl AsyncWrite + Unpin),
    ready: &mut Vec<u8>,
    written: &mut usize,
    stall: &mut Stall,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while *written < ready.len() {
        let pushed = Pin::new(&mut *output).poll_write(cx, &ready[*written..]);
        match ready!(stall.watch(pushed, cx))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            bytes => *written += bytes,
        }
    }
    ready!(Pin::new(output).poll_flush(cx))?;
    ready.clear();
    ready.shrink_to(READY_BYTES_MAX);
    *written = 0;
    Poll::Ready(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::super::unix::Frames;
    use super::*;
    use crate::freight::{FREIGHT_BYTES_MAX, Freight};

    /// Answers nothing, once it may.
    struct Silent {
        freight: Arc<Freight>,
        may: CancellationToken,
    }

    impl Host for Silent {
        async fn handle(self: &Arc<Self>, _: Caller, _: &[u8]) -> Reply {
            self.may.cancelled().await;
            Reply::default()
        }

        fn for_connection(self: &Arc<Self>) -> Arc<Self> {
            self.clone()
        }

        fn freight(&self) -> &Arc<Freight> {
            &self.freight
        }
    }

    /// A peer of a server in which all but `free` bytes are under way, and what it is answered in the end. It sends a
    /// message of `bytes`, but for the last `missing`.
    async fn answered(free: usize, bytes: usize, missing: usize) -> String {
        let host = Arc::new(Silent { freight: Arc::default(), may: CancellationToken::new() });
        let mut others = host.freight.load(&Requester::Administrator);
        others.reach(FREIGHT_BYTES_MAX - free).unwrap();
        let (mut peer, own) = tokio::io::duplex(READ_BYTES);
        let terms = Terms {
            requester: Requester::Administrator,
            hand: Hand::Program,
            signer: Signer::Nobody,
            door: None,
            answer_bytes_max: 0,
            silence_max: None,
            stall: Stall::never(),
            place: None,
        };
        let (input, framing) = (tokio::io::split(own), Frames::<1>);
        let connection = Connection::new(host.clone(), framing, input, terms);
        let serving = tokio::spawn(async move { connection.run(&CancellationToken::new()).await });
        peer.write_all(&(bytes as u32).to_be_bytes()).await.unwrap();
        // Who is refused is not read to the end.
        let _ = peer.write_all(&vec![b' '; bytes - missing]).await;
        host.may.cancel();
        let _ = peer.shutdown().await;
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).await.unwrap();
        drop(peer);
        serving.await.unwrap().unwrap();
        // Whatever it was counted as is over with it.
        others.reach(FREIGHT_BYTES_MAX).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn what_was_read_of_a_message_counts_before_it_is_whole() {
        let bytes = 4 * SMALL_BYTES_MAX;
        for missing in [0, 1] {
            assert_eq!(answered(bytes, bytes - 4, missing).await, "");
            let refused = answered(bytes - SMALL_BYTES_MAX, bytes - 4, missing).await;
            assert!(refused.contains("-32001") && refused.contains("under way"), "{refused}");
        }
        // Small ones always have room.
        assert_eq!(answered(0, SMALL_BYTES_MAX - 4, 0).await, "");
    }
}
