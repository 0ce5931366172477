//! One JSON message per line, for a parent process. Calls run side by side.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use nexus_core::Requester;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Begun, OUTBOX_MESSAGES_MAX, begin, error_message, finished, too_large};
use crate::dispatcher::{Caller, Dispatcher, Peer, Target};

/// Longest line, as HTTP's body limit.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Answers gather up to this size while further lines wait in the buffer.
const READY_BYTES_MAX: usize = 64 * 1024;

/// Calls of one parent that may run at once. Past it nothing more is read until one ends.
const CALLS_MAX: usize = 1024;

/// Serves a parent until its input ends or `stop`. Returns the writer, which ends when the last call that still runs
/// has been answered: the caller first cancels what should not run on, then waits for it. None when nobody reads.
pub async fn serve(
    dispatcher: Arc<Dispatcher>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) -> io::Result<Option<JoinHandle<()>>> {
    let (outbox, messages) = mpsc::channel(OUTBOX_MESSAGES_MAX);
    let closed = CancellationToken::new();
    let caller = Caller {
        requester: Requester::Administrator,
        target: Target::Server,
        peer: Some(Arc::new(Peer { outbox: outbox.clone(), closed: closed.clone() })),
        answer_bytes_max: usize::MAX,
    };
    let mut writer = tokio::spawn(write_lines(output, messages));
    let mut lines =
        Lines { input, buffer: BytesMut::with_capacity(16 * 1024), searched: 0, skipping: false };
    let running = Arc::new(Semaphore::new(CALLS_MAX));
    // Answers gather while further lines wait in the buffer; they leave together.
    let mut ready = Vec::new();
    loop {
        let line = match lines.buffered() {
            Some(line) if ready.len() < READY_BYTES_MAX => Ok(Some(line)),
            line => {
                put(&outbox, &mut ready, &stop).await;
                match line {
                    Some(line) => Ok(Some(line)),
                    None => tokio::select! {
                        line = lines.next() => line,
                        () = stop.cancelled() => Ok(None),
                        // The parent reads no more: nothing that it asks can be answered.
                        _ = &mut writer => return Ok(None),
                    },
                }
            }
        };
        let message = match line {
            Ok(Some(Line::Whole(message))) => message,
            Ok(Some(Line::TooLong)) => {
                add(&mut ready, &error_message(&too_large(LINE_BYTES_MAX)));
                continue;
            }
            Ok(None) => break,
            Err(error) => return Err(error),
        };
        if message.trim_ascii().is_empty() {
            continue;
        }
        match begin(&dispatcher, caller.clone(), message) {
            Begun::Done(reply) => {
                if let Some(body) = reply.body {
                    add(&mut ready, &body);
                }
            }
            Begun::Running(worker) => {
                let place = tokio::select! {
                    place = running.clone().acquire_owned() => place.ok(),
                    () = stop.cancelled() => None,
                };
                let outbox = outbox.clone();
                tokio::spawn(async move {
                    if let Some(body) = finished(worker.await).body {
                        let _ = outbox.send(body).await;
                    }
                    drop(place);
                });
            }
        }
    }
    put(&outbox, &mut ready, &stop).await;
    closed.cancel();
    Ok(Some(writer))
}

/// Adds a line to those that are ready. The writer ends what it is given with a line end.
fn add(ready: &mut Vec<u8>, message: &[u8]) {
    if !ready.is_empty() {
        ready.push(b'\n');
    }
    ready.extend_from_slice(message);
}

/// Hands what is ready to the writer. A parent that does not read makes this wait, but not beyond `stop`.
async fn put(outbox: &mpsc::Sender<Vec<u8>>, ready: &mut Vec<u8>, stop: &CancellationToken) {
    if ready.is_empty() {
        return;
    }
    tokio::select! {
        biased;
        _ = outbox.send(std::mem::take(ready)) => {}
        () = stop.cancelled() => {}
    }
}

/// Writes messages as lines, several in one write when they wait. Ends when all senders are gone or nobody reads.
async fn write_lines(mut output: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<Vec<u8>>) {
    let (mut batch, mut bytes) = (Vec::new(), Vec::new());
    while messages.recv_many(&mut batch, 64).await > 0 {
        bytes.clear();
        for message in batch.drain(..) {
            bytes.extend_from_slice(&message);
            bytes.push(b'\n');
        }
        if output.write_all(&bytes).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

enum Line {
    Whole(Bytes),
    /// Longer than the limit; it was discarded up to its end.
    TooLong,
}

struct Lines<R> {
    input: R,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    /// Within a line that is too long.
    skipping: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// The next line, if it has come in full.
    fn buffered(&mut self) -> Option<Line> {
        let end = self.searched + memchr(&self.buffer[self.searched..])?;
        self.searched = 0;
        let line = self.buffer.split_to(end + 1).freeze();
        if std::mem::take(&mut self.skipping) || end > LINE_BYTES_MAX {
            return Some(Line::TooLong);
        }
        Some(Line::Whole(line.slice(..end)))
    }

    /// The next line, `None` at the end. Cancel-safe: what was read stays in the buffer.
    async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.buffered() {
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.skipping || self.searched > LINE_BYTES_MAX {
                self.skipping = true;
                self.buffer.clear();
                self.searched = 0;
            }
            self.buffer.reserve(8 * 1024);
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                // A last line without its end is a line all the same.
                let rest = self.buffer.split().freeze();
                self.searched = 0;
                return Ok(match (self.skipping, rest.is_empty()) {
                    (true, _) => {
                        self.skipping = false;
                        Some(Line::TooLong)
                    }
                    (false, true) => None,
                    (false, false) => Some(Line::Whole(rest)),
                });
            }
        }
    }
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}
