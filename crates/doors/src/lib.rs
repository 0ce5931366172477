//! Other protocols at the same core. A door translates and decides nothing: rights, approvals, turns, durability and
//! limits are those of the methods it calls. It is written against [`WatchApi`](nexus_protocol::WatchApi), so that it runs
//! in the server's own process as well as over a socket to it.

pub mod acp;
pub mod mcp;
pub mod openai;

mod begun;
mod models;
mod respond;
mod sentence;
mod shares;
