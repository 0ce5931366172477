//! The two pipes of a server as rmcp wants them: messages within a bound, and an answer to the question for its era.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use nexus_json::{Count, MESSAGE_VALUES_MAX};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::era::Era;

/// Of one message. Who sends more sends without end.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Why a server was not read any further, once that is so.
#[derive(Clone, Default)]
pub struct Breach(Arc<(OnceLock<String>, CancellationToken)>);

impl Breach {
    pub fn set(&self, why: String) {
        let (known, told) = &*self.0;
        let _ = known.set(why);
        told.cancel();
    }

    pub fn get(&self) -> Option<String> {
        self.0.0.get().cloned()
    }

    pub async fn happened(&self) {
        self.0.1.cancelled().await;
    }
}

/// What is said of a server whose message is longer than is read.
pub fn too_long() -> String {
    format!("it sent a message of more than {} MiB", MESSAGE_BYTES_MAX >> 20)
}

/// What is said of a server whose message would take far more memory than it has bytes.
pub fn too_full() -> String {
    format!("it sent a message of more than {MESSAGE_VALUES_MAX} JSON values")
}

pub struct Pipes<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> {
    inner: AsyncRwTransport<RoleClient, Bounded<R>, W>,
    era: Era,
}

impl<R, W> Pipes<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    pub fn new(read: R, write: W, breach: Breach) -> Self {
        let read = Bounded { inner: read, line: 0, count: Count::default(), breach };
        let inner = AsyncRwTransport::new(read, write).with_max_line_length(usize::MAX);
        Self { inner, era: Era::default() }
    }
}

impl<R, W> Transport<RoleClient> for Pipes<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.era.said(&item);
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = match self.era.until() {
                None => self.inner.receive().await?,
                Some(until) => match tokio::time::timeout_at(until, self.inner.receive()).await {
                    Ok(Some(message)) => message,
                    Ok(None) => return self.era.ended(),
                    Err(_) => match self.era.silence() {
                        Some(message) => return Some(message),
                        None => continue,
                    },
                },
            };
            if let Some(heard) = self.era.heard(message) {
                return Some(heard);
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.inner.close().await
    }
}

/// Ends the stream at a line that is too long or holds too much, so that whoever waits for the answer in it hears so at once.
struct Bounded<R> {
    inner: R,
    /// Bytes since the last line break.
    line: usize,
    /// What of values is in them.
    count: Count,
    breach: Breach,
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let new = &buffer.filled()[before..];
        let mut why = None;
        for (number, piece) in new.split(|byte| *byte == b'\n').enumerate() {
            if number > 0 {
                (self.line, self.count) = (0, Count::default());
            }
            self.line += piece.len();
            self.count.add(piece);
            if self.line > MESSAGE_BYTES_MAX {
                why = Some(too_long());
            } else if self.count.values() > MESSAGE_VALUES_MAX {
                why = Some(too_full());
            }
        }
        if let Some(why) = why {
            self.breach.set(why);
            buffer.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read(bytes: Vec<u8>) -> (io::Result<usize>, Option<String>) {
        let breach = Breach::default();
        let mut bounded =
            Bounded { inner: &bytes[..], line: 0, count: Count::default(), breach: breach.clone() };
        let mut into = Vec::new();
        let read = bounded.read_to_end(&mut into).await;
        (read, breach.get())
    }

    #[tokio::test]
    async fn just_the_longest_message_passes_and_one_byte_more_does_not() {
        let line = |bytes: usize| [vec![b'a'; bytes], vec![b'\n']].concat();
        let several = [line(MESSAGE_BYTES_MAX), line(MESSAGE_BYTES_MAX)].concat();
        let (passed, breach) = read(several).await;
        assert_eq!((passed.unwrap(), breach), (2 * MESSAGE_BYTES_MAX + 2, None));
        let (refused, breach) = read(vec![b'a'; MESSAGE_BYTES_MAX + 1]).await;
        assert!(refused.is_err() && breach.is_some_and(|why| why.contains("16 MiB")));
    }

    #[tokio::test]
    async fn a_message_of_just_so_many_values_passes_and_one_more_does_not() {
        let list = |values: usize| format!("[{}]\n", vec!["0"; values - 1].join(","));
        let several = [list(MESSAGE_VALUES_MAX), list(MESSAGE_VALUES_MAX)].concat();
        let (passed, breach) = read(several.into_bytes()).await;
        assert_eq!((passed.is_ok(), breach), (true, None));
        let (refused, breach) = read(list(MESSAGE_VALUES_MAX + 1).into_bytes()).await;
        assert!(refused.is_err() && breach.is_some_and(|why| why.contains("524288 JSON values")));
    }
}
