//! What was read so far of a message that is not here yet, where a library gathers it: counted as its bytes are read.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::freight::Load;

/// How much was read since the last message.
pub struct Weight {
    read: Mutex<Read>,
    is_too_much: AtomicBool,
}

struct Read {
    bytes: usize,
    load: Load,
}

impl Weight {
    pub fn new(load: Load) -> Arc<Self> {
        Arc::new(Self {
            read: Mutex::new(Read { bytes: 0, load }),
            is_too_much: AtomicBool::new(false),
        })
    }

    /// A message is where it is counted by somebody else.
    pub fn lift(&self) {
        let mut read = self.lock();
        read.bytes = 0;
        read.load.clear();
    }

    /// So much of what was read belongs to no message.
    pub fn pass(&self, bytes: usize) {
        let mut read = self.lock();
        read.bytes = read.bytes.saturating_sub(bytes);
    }

    /// Whether nothing more is read because there is no room.
    pub fn is_too_much(&self) -> bool {
        self.is_too_much.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) -> io::Result<()> {
        let mut read = self.lock();
        read.bytes += bytes;
        let sum = read.bytes;
        read.load.reach(sum).map_err(|_| {
            self.is_too_much.store(true, Ordering::Relaxed);
            io::ErrorKind::OutOfMemory.into()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream whose bytes are counted.
pub struct Weighed<S> {
    pub io: S,
    pub weight: Arc<Weight>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Weighed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        Poll::Ready(self.weight.add(buffer.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Weighed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::Requester;
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::freight::{FREIGHT_BYTES_MAX, Freight, SMALL_BYTES_MAX};

    #[tokio::test]
    async fn what_was_read_of_a_message_counts_until_it_is_there() {
        let freight = Arc::new(Freight::default());
        let weight = Weight::new(freight.load(&Requester::Administrator));
        let bytes = vec![0; SMALL_BYTES_MAX + 1];
        let mut others = freight.load(&Requester::Administrator);
        others.reach(FREIGHT_BYTES_MAX).unwrap();
        let mut read = vec![0; SMALL_BYTES_MAX];
        let mut stream = Weighed { io: &bytes[..], weight: weight.clone() };
        stream.io.read_exact(&mut [0]).await.unwrap();
        stream.read_exact(&mut read).await.unwrap();
        assert!(!weight.is_too_much(), "small ones always have room");
        let mut stream = Weighed { io: &bytes[..], weight: weight.clone() };
        assert!(stream.read(&mut read).await.is_err() && weight.is_too_much());
        weight.lift();
        others.clear();
        stream.weight.add(FREIGHT_BYTES_MAX).unwrap();
        assert!(others.reach(SMALL_BYTES_MAX + 1).is_err());
    }
}
