//! The agent domain through its public face, on parts that live in memory.

mod agents;
mod compaction;
mod fakes;
mod turns;
