//! What an agent is. The core owns the agents, the turns and the permissions, and names the traits it needs filled
//! (`Store`, `Provider`, `Models`, `Prompts`, `AgentLogs`, `TokenCounter`, `Tool`,
//! `ToolSource`, `Checker`, `Observer`). It knows no JSON-RPC, no HTTP and no SQL.

pub mod account;
pub mod agent;
pub mod answers;
pub mod approval;
pub mod attach;
pub mod authority;
pub mod brief;
mod briefing;
pub mod code;
pub mod compact;
pub mod conversation;
mod delegate;
mod directory;
pub mod embed;
pub mod engine;
pub mod events;
pub mod executor;
pub mod footprint;
pub mod fuse;
pub mod gate;
pub mod inquiry;
pub mod keys;
mod kin;
mod ledger;
pub mod lifecycle;
pub mod list;
pub mod listing;
pub mod logs;
pub mod mcp;
pub mod memory;
pub mod message;
pub mod model;
pub mod name;
pub mod observe;
pub mod paced;
pub mod paths;
pub mod permission;
pub mod plan;
pub mod plans;
pub mod preview;
pub mod progress;
pub mod prompt;
pub mod provider;
pub mod redact;
pub mod rights;
pub mod sampling;
pub mod servers;
pub mod session;
pub mod settings;
pub mod shared_context;
pub mod spending;
pub mod store;
pub mod tokens;
pub mod tool;
pub mod toolbox;
pub mod turn;
pub mod usage;
pub mod visible;
mod waits;
pub mod watch;
pub mod watching;
pub mod words;

pub use agent::Agent;
pub use authority::{Hand, Requester};
pub use engine::Engine;
pub use message::{Message, Meta, Role, ToolCall};
pub use name::{AgentId, TurnId};

use jiff::Timestamp;

/// The time, as exact as the store keeps it: an agent shows the same after a restart.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// Bytes nobody can guess. The operating system's generator does not fail on a machine that is able to run us.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        panic!("the operating system gives no random bytes: {error}");
    }
}

pub(crate) fn random_number() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// Runs `work` to its end, whether or not the caller waits for it. A panic in it is the caller's.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    finished(tokio::spawn(work).await)
}

/// Runs `work`, which blocks, off the async threads.
pub(crate) async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    finished(tokio::task::spawn_blocking(work).await)
}

fn finished<T>(joined: Result<T, tokio::task::JoinError>) -> T {
    joined.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime is being taken down, and this task with it.
        Err(error) => panic!("{error}"),
    })
}

/// Locks a mutex whose data stays whole even if a holder panicked: every holder in this crate only swaps or pushes.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
