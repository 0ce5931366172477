//! What is found by meaning. [`Index`] keeps the vectors that an embedder made, and says which lie nearest to another;
//! [`fuse`] joins what was found by meaning with what was found by words.
//!
//! Nothing here waits or reads anything: who keeps the vectors on disk fills the index at the start.

mod code;
mod fuse;
mod index;

pub use code::VectorError;
pub use fuse::{FUSED_DEPTH, MEANING_WEIGHT, WORDS_WEIGHT, fuse};
pub use index::Index;
