//! Answers in pieces, as server-sent events.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

/// Who hears nothing for so long is told that there is somebody.
const COMMENT_AFTER: Duration = Duration::from_secs(15);

/// What is said in one moment goes out together, up to so much.
const TOGETHER_BYTES_MAX: usize = 16 << 10;

/// Of these, how many wait for a client which does not read.
const WAITING_MAX: usize = 16;

/// The way to a client. It is closed when the client hangs up.
pub struct Writer {
    sender: mpsc::Sender<Bytes>,
    /// What is not on its way yet. It goes when there is nothing more to be said at once.
    held: Vec<u8>,
}

/// The body of the response.
pub struct Pieces(mpsc::Receiver<Bytes>);

pub fn open() -> (Writer, Pieces) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (Writer { sender, held: Vec::new() }, Pieces(receiver))
}

/// The client is gone.
pub struct Gone;

impl Writer {
    pub async fn data(&mut self, value: &impl Serialize) -> Result<(), Gone> {
        self.held.extend_from_slice(b"data: ");
        // Nothing that is said here can fail to be JSON.
        let _ = serde_json::to_writer(&mut self.held, value);
        self.held.extend_from_slice(b"\n\n");
        match self.held.len() < TOGETHER_BYTES_MAX {
            true => Ok(()),
            false => self.flush().await,
        }
    }

    /// The same with its `type` as the name of the event.
    pub async fn event(&mut self, value: &Value) -> Result<(), Gone> {
        let name = value["type"].as_str().unwrap_or_default();
        self.held.extend_from_slice(format!("event: {name}\n").as_bytes());
        self.data(value).await
    }

    /// The same, and nothing comes after it.
    pub async fn last(&mut self, value: &impl Serialize) -> Result<(), Gone> {
        self.data(value).await?;
        self.flush().await
    }

    /// Says that nothing comes after this.
    pub async fn done(&mut self) -> Result<(), Gone> {
        self.held.extend_from_slice(b"data: [DONE]\n\n");
        self.flush().await
    }

    /// Waits for something while the client is there.
    pub async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = pin!(work);
        if let Poll::Ready(done) = futures_util::poll!(&mut work) {
            return Ok(done);
        }
        if !self.held.is_empty() {
            // What is on its way already goes along.
            tokio::task::yield_now().await;
            if let Poll::Ready(done) = futures_util::poll!(&mut work) {
                return Ok(done);
            }
            self.flush().await?;
        }
        loop {
            tokio::select! {
                biased;
                () = self.sender.closed() => return Err(Gone),
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(COMMENT_AFTER) => {
                    self.held.extend_from_slice(b": waiting\n\n");
                    self.flush().await?;
                }
            }
        }
    }

    /// Sends what is held. It waits for a client that reads slowly.
    pub async fn flush(&mut self) -> Result<(), Gone> {
        if self.held.is_empty() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        self.sender.send(held.into()).await.map_err(|_| Gone)
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
