//! `ash`: how a program inside a sandbox calls its host. One request, one answer, over the framed Unix socket; no async
//! runtime and nothing but the socket is needed, so the program starts in milliseconds and runs in any container.
//!
//! [`rpc_call`] is the library face; [`command::run`] is the program.

mod client;
pub mod command;
mod environment;
mod frame;
mod output;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Map, Value};

pub use client::{CallError, Client, RpcError};
pub use environment::Environment;

/// How often a call is tried again, unless said otherwise.
pub const MAX_RETRIES: u32 = 3;

/// How long the first of these waits; each further one waits twice as long.
pub const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Calls `method` on the host that the environment names (`ASH_RPC_SOCKET`), and returns its result.
///
/// A server that is not there, refuses, resets or closes the connection is tried again. An error that it answers is
/// not, and neither is a call outside `memory.*` once it was sent in full: it may have run.
pub fn rpc_call(
    method: &str,
    params: Map<String, Value>,
    max_retries: u32,
    retry_delay: Duration,
) -> Result<Value, CallError> {
    let environment = Environment::of_process()?;
    Client::new(&environment).call(method, params, max_retries, retry_delay)
}
