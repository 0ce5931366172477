//! What is found by meaning. [`Index`] keeps the vectors that an embedder made, and says which lie nearest to another.
//!
//! Nothing here waits or reads anything: who keeps the vectors on disk fills the index at the start.

mod code;
mod index;

pub use code::VectorError;
pub use index::Index;
