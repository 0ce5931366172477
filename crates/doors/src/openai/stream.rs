//! Answers in pieces, as server-sent events.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde_json::Value;
use tokio::sync::mpsc;

/// Who hears nothing for so long is told that there is somebody.
const COMMENT_AFTER: Duration = Duration::from_secs(15);

/// Pieces that wait for a client which does not read.
const WAITING_MAX: usize = 16;

/// The way to a client. It is closed when the client hangs up.
pub struct Writer(mpsc::Sender<Bytes>);

/// The body of the response.
pub struct Pieces(mpsc::Receiver<Bytes>);

pub fn open() -> (Writer, Pieces) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (Writer(sender), Pieces(receiver))
}

/// The client is gone.
pub struct Gone;

impl Writer {
    pub async fn data(&self, value: &Value) -> Result<(), Gone> {
        self.write(format!("data: {value}\n\n").into()).await
    }

    /// The same with its `type` as the name of the event.
    pub async fn event(&self, value: &Value) -> Result<(), Gone> {
        let name = value["type"].as_str().unwrap_or_default();
        self.write(format!("event: {name}\ndata: {value}\n\n").into()).await
    }

    /// Nothing comes after this.
    pub async fn done(&self) -> Result<(), Gone> {
        self.write(Bytes::from_static(b"data: [DONE]\n\n")).await
    }

    /// Waits for something while the client is there.
    pub async fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                () = self.0.closed() => return Err(Gone),
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(COMMENT_AFTER) => {
                    self.write(Bytes::from_static(b": waiting\n\n")).await?;
                }
            }
        }
    }

    async fn write(&self, bytes: Bytes) -> Result<(), Gone> {
        self.0.send(bytes).await.map_err(|_| Gone)
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
