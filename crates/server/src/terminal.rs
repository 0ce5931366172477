//! The terminal that started this server: what it is told, and what it wants of the time when it is gone.

use nexus_protocol::terminal::{LeftTurns, TerminalHelloResult};
use tokio::sync::watch;

pub struct Terminal {
    pub hello: TerminalHelloResult,
    wish: watch::Sender<Wish>,
}

/// What the terminal said last of its leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    #[default]
    Unsaid,
    /// The server goes on as any other.
    Stay,
    Leave(LeftTurns),
}

impl Terminal {
    pub fn new(hello: TerminalHelloResult) -> (Self, watch::Receiver<Wish>) {
        let (wish, wished) = watch::channel(Wish::default());
        (Self { hello, wish }, wished)
    }

    pub(crate) fn wish(&self, wish: Wish) {
        self.wish.send_replace(wish);
    }
}
