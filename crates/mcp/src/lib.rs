//! Tools of MCP servers behind the core's [`Tool`](nexus_core::tool::Tool) and
//! [`ToolSource`](nexus_core::tool::ToolSource).
//!
//! [`Servers`] has all that are configured. Each is a `Server`, which is started when somebody needs it, through the kernel
//! launcher and within a policy of its own, or reached over HTTP, and is watched over; a `Connection` speaks the protocol
//! with it; a `Listing` is what tools it has, which outlives both.

mod address;
mod apart;
mod clean;
mod connection;
mod credentials;
mod elicit;
mod era;
mod ground;
mod hub;
mod kept;
mod life;
mod listing;
mod login;
mod lookup;
mod meaning;
mod names;
mod owned;
mod pins;
mod place;
mod program;
mod progress;
mod read;
mod remote;
mod result;
mod results;
mod sample;
mod schema;
mod search;
mod seat;
mod server;
mod servers;
mod sleep;
mod start;
mod state;
mod tail;
mod task;
mod tether;
mod tool;
mod transport;
mod variables;

pub use ground::{Entries, Ground};
pub use login::Login;
pub use results::Results;
pub use servers::{Servers, Tried};

/// Locks a mutex whose data stays whole even if a holder panicked: every holder in this crate only swaps or counts.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
