//! One JSON message per line, for a parent process. Calls run side by side.

use std::sync::Arc;

use bytes::BytesMut;
use nexus_core::{Hand, Requester};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Frame, Framing, Terms};
use super::stall::Stall;
use crate::dispatcher::{Dispatcher, Signer};

/// Longest line, as HTTP's body limit.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;

/// A parent that is served.
pub struct Parent {
    /// Cancelled when the parent wants no more, or reads no more.
    pub gone: CancellationToken,
    /// Ends when every call that still ran has been answered: whoever waits for it first cancels what should not run
    /// on.
    pub answered: JoinHandle<()>,
}

/// Serves a parent until its input ends or `stop`.
pub fn serve(
    dispatcher: Arc<Dispatcher>,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
    answer_bytes_max: usize,
    stop: CancellationToken,
) -> Parent {
    let terms = Terms {
        requester: Requester::Administrator,
        hand: Hand::Program,
        signer: Signer::Nobody,
        door: None,
        answer_bytes_max,
        silence_max: None,
        // Whoever started this program may stop reading for as long as it likes.
        stall: Stall::never(),
        place: None,
    };
    let connection = Connection::new(dispatcher, Lines::default(), (input, output), terms);
    let gone = connection.peer().closed.clone();
    let answered = tokio::spawn(async move {
        if let Err(error) = connection.run(&stop).await {
            tracing::debug!(%error, "the parent cannot be reached any more");
        }
    });
    Parent { gone, answered }
}

/// Messages end with their line.
#[derive(Default)]
struct Lines {
    /// How much of the input is known to hold no line end.
    searched: usize,
    /// Within a line that is too long.
    skipping: bool,
}

impl Framing for Lines {
    /// Past it nothing more is begun until one ends.
    const CALLS_MAX: usize = 1024;
    const MESSAGE_BYTES_MAX: usize = LINE_BYTES_MAX;

    fn decode(&mut self, input: &mut BytesMut) -> Option<Frame> {
        loop {
            let Some(end) = input[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = input.len();
                if self.skipping || input.len() > LINE_BYTES_MAX {
                    (self.skipping, self.searched) = (true, 0);
                    input.clear();
                }
                return None;
            };
            let end = std::mem::take(&mut self.searched) + end;
            let line = input.split_to(end + 1).freeze().slice(..end);
            if std::mem::take(&mut self.skipping) || end > LINE_BYTES_MAX {
                return Some(Frame::TooLarge);
            }
            if !line.trim_ascii().is_empty() {
                return Some(Frame::Message(line));
            }
        }
    }

    /// A last line without its end is a line all the same.
    fn decode_end(&mut self, input: &mut BytesMut) -> Option<Frame> {
        let rest = input.split().freeze();
        self.searched = 0;
        if std::mem::take(&mut self.skipping) {
            return Some(Frame::TooLarge);
        }
        (!rest.trim_ascii().is_empty()).then_some(Frame::Message(rest))
    }

    fn encode(&self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(message);
        out.push(b'\n');
    }
}
