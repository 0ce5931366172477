//! The agent domain through its public face, on parts that live in memory.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod agents;
mod approvals;
mod attachments;
mod bounds;
mod compaction;
mod copies;
mod cuts;
mod ending;
mod fakes;
mod fallbacks;
mod gate;
mod idle;
mod ladder;
mod line;
mod names;
mod neighbours;
mod observe;
mod overflow;
mod plans;
mod queue;
mod torn;
mod turns;
mod watch;
