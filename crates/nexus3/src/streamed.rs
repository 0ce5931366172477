//! One call on the engine of this process, with what arrives before its answer.

use anyhow::Context as _;
use nexus_core::Requester;
use nexus_protocol::RpcError;
use nexus_protocol::envelope::{Call, Outgoing};
use nexus_server::transport::memory::MemoryConnection;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::wiring::Wired;

/// As a shell reports a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// What is to be done with a call after a signal.
pub enum Then {
    /// It was told to end, and will answer.
    GoOn,
    /// Nobody waits for it any more.
    Leave,
}

/// Calls a method as the administrator, and returns its answer as it stands. `show` is given each notification before it;
/// `interrupted` resolves when a signal came and was heeded. Nothing when the call was left.
pub async fn call(
    wired: &Wired,
    method: &str,
    params: &Value,
    mut show: impl FnMut(&[u8]) -> anyhow::Result<()>,
    mut interrupted: impl AsyncFnMut() -> anyhow::Result<Then>,
) -> anyhow::Result<Option<Vec<u8>>> {
    let (connection, mut notifications) =
        MemoryConnection::open(wired.dispatcher.clone(), Requester::Administrator);
    let answer = connection.request(serde_json::to_vec(&Call::new(1, method, params))?);
    tokio::pin!(answer);
    let answer = loop {
        tokio::select! {
            biased;
            Some(message) = notifications.recv() => show(&message)?,
            answer = &mut answer => break answer.context("there was no answer")?,
            then = interrupted() => match then? {
                Then::GoOn => {}
                Then::Leave => return Ok(None),
            },
        }
    };
    while let Ok(message) = notifications.try_recv() {
        show(&message)?;
    }
    Ok(Some(answer))
}

/// What an answer says. The outer error is ours, the inner one the call's.
pub fn result<T: DeserializeOwned>(answer: &[u8]) -> anyhow::Result<Result<T, RpcError>> {
    let answer: Outgoing = serde_json::from_slice(answer)?;
    match (answer.error, answer.result) {
        (Some(error), _) => Ok(Err(error)),
        (None, result) => Ok(Ok(serde_json::from_str(result.context("an empty answer")?.get())?)),
    }
}
