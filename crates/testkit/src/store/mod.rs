//! Stores for tests: one in memory that can be told to fail, and what every store promises.

mod answers;
pub mod contract;
mod data;
mod memories;
mod memory;
mod plans;
pub mod sample;

pub use memory::{Call, Held, MemoryStore};
