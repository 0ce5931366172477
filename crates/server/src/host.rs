//! Who carries out the messages of a connection: the dispatcher of this server, or the methods of another program.

use std::sync::Arc;

use crate::dispatcher::{Caller, Reply};
use crate::freight::Freight;

pub trait Host: Send + Sync + 'static {
    /// Carries out a message: at most one reply, whatever it holds.
    fn handle(
        self: &Arc<Self>,
        caller: Caller,
        message: &[u8],
    ) -> impl Future<Output = Reply> + Send;

    /// The same for one connection.
    fn for_connection(self: &Arc<Self>) -> Arc<Self>;

    /// What is under way here.
    fn freight(&self) -> &Arc<Freight>;
}
