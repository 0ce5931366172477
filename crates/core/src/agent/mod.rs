//! A live agent: one task that owns all that changes in it, and the handle that everybody else has.
//!
//! Commands go in as messages and run to their end, whoever waits for them; reads look at an immutable snapshot that is
//! swapped after each commit. So there is no await at which an agent is half changed, and no lock to hold.

mod handle;
mod live;
mod snapshot;
mod task;

pub use handle::{Agent, EnqueueError, Seen};
pub(crate) use handle::{Entry, Finish, Gone, Hooks, Order, Renamed, Skipped, Work};
pub use live::{Live, LiveTurn};
pub use snapshot::{Snapshot, TurnCard};

pub use crate::store::AgentSettings;
