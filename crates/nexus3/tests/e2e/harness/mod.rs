//! How the end-to-end tests reach a server, and what is checked without being asked for.
//!
//! # One server
//! ```ignore
//! let server = Server::start().await;                                  // defaults
//! let server = Setup::new().server(json!({"max_connections": 2})).start().await;
//! server.model().push(Reply::chunks(["It ", "works."]));               // what the model says next
//! let wire = server.wire();                                            // HTTP with the server token
//! let answer = wire.ok("send", json!({"agent_id": "a", "content": "Hi"})).await;
//! let fault = wire.refused("send", json!({})).await;                   // fault.code, fault.message, fault.data
//! ```
//! A [`Server`] is the binary that cargo built, started as a person would (`nexus3 serve 0 --socket …`), in a
//! [`World`] of its own: one temporary directory that is its `HOME`, its `NEXUS3_HOME`, its working directory and the
//! place of its socket, and one scripted model that its only provider points to. It inherits no environment variable,
//! so neither a key nor a socket of the developer's own can be reached. It is ready when its log says `listening`;
//! nothing waits by the clock. [`Setup`] says what differs from the defaults: keys of the configuration, the kind of
//! provider, arguments, variables. When a server is dropped its process is killed by its id and its directory removed.
//!
//! What else a server can do here: [`Server::signal`] and [`Server::exit`] (SIGTERM, then its status),
//! [`Server::restart`] (`kill -9`, then the same again in the same world), [`Setup::start_in`] (a second one in a
//! world), [`Setup::fails_in`] (one that must not start), [`Server::cli`] (any other command of the program in the
//! same world), [`Server::log`] (its log, as JSON), [`Server::http`], [`Server::post`] and [`Server::unix`] (raw
//! connections for what a wire cannot say).
//!
//! # Every wire
//! ```ignore
//! over_every_wire! { ids_are_echoed, limits: Setup::new().server(json!({"max_queued": 0})) }
//!
//! async fn ids_are_echoed(wire: &Wire) {
//!     assert_eq!(wire.exchange(r#"{"jsonrpc":"2.0","method":"nope","id":7}"#).await["id"], 7);
//! }
//! ```
//! A case that holds on every transport is said once, as a function of a [`Wire`], and listed in `over_every_wire!`,
//! which makes of it one test for each transport: `ids_are_echoed::http`, `::unix`, `::stdio`, `::memory` and
//! `::direct`. The first two run against `nexus3 serve`, the third against `nexus3 --stdio`, the others against an
//! engine that is wired in this process as the binary wires its own; the last says the case through the typed
//! `DirectAgentApi`. What cannot be said through it is listed in `over_every_wire_of_messages!`. A case that is not
//! listed is dead code, which the lints refuse.
//!
//! Calls on a wire may run side by side. HTTP and the Unix socket answer one connection in order, so each call that
//! runs takes a connection for itself and gives it back; calls on stdio share the two pipes and are told apart by
//! their ids, so give calls that run together different ones ([`Wire::call`] does).
//!
//! - [`Wire::exchange`] sends bytes and returns the answer; [`Wire::exchange_raw`] returns its text to the letter.
//! - [`Wire::silent`] sends what must not be answered.
//! - [`Wire::open`] asks for a stream and returns a [`wire::Exchange`] that yields message by message; dropping it hangs up
//!   (not on stdio, where only the process can).
//! - [`Wire::call`], [`Wire::ok`], [`Wire::refused`] make the envelope themselves.
//!
//! # Checked on every answer
//! Whatever arrives on any wire passes [`check::message`]: an answer has `jsonrpc`, `id` and one of `result` and
//! `error`, and nothing else; an error has a code of the table with the data that the table demands; a notification
//! has `jsonrpc`, `method` and `params`; all is compact JSON. When a case of `over_every_wire!` ends, its server is
//! stopped and must exit with 0, and nothing may have arrived that nobody asked for.
//!
//! # Waiting
//! Tests wait for events: an answer, a line of the log ([`process::Log::wait_for`]), a count of the scripted model, the end of
//! a process. Every such wait goes through [`within`], whose limit is long and seen only by a failing test. Where
//! there is no event, [`eventually`] asks again until a condition holds.

pub mod check;
pub mod http;
pub mod process;
pub mod server;
pub mod setup;
pub mod stdio;
pub mod unix;
#[macro_use]
pub mod wire;

pub use check::Fault;
pub use http::{Http, HttpRequest, Response};
pub use process::Output;
pub use server::Server;
pub use setup::{Provider, Setup, World};
pub use stdio::Stdio;
pub use unix::Framed;
pub use wire::Wire;

use std::time::Duration;

/// How long a test waits for something that is about to happen. Long, for a loaded machine; only a failing test sees it.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// The output of `work`, which must not take for ever.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_MAX, work).await {
        Ok(done) => done,
        Err(_) => panic!("waited {WAIT_MAX:?} for {what}"),
    }
}

/// Asks `condition` until it holds.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    within(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
