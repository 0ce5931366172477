//! What tests and benchmarks share: a model that answers as it was told, over real HTTP in the real wire formats.
//!
//! ```
//! # tokio_test_block_on(async {
//! use nexus_testkit::{Reply, ScriptedModel};
//!
//! let model = ScriptedModel::start().await;
//! model.push(Reply::tool_call("read_file", serde_json::json!({"path": "a.txt"})).usage(120, 9));
//! model.push(Reply::chunks(["It ", "says hello."]));
//! // Point a provider at `model.url()`, run a turn, then look at what it was sent:
//! assert_eq!(model.requests().len(), 0);
//! # });
//! # fn tokio_test_block_on(future: impl Future<Output = ()>) {
//! #     tokio::runtime::Runtime::new().map(|runtime| runtime.block_on(future)).unwrap_or_else(|error| panic!("{error}"));
//! # }
//! ```
//!
//! The path of a request chooses the [`Wire`]: `…/chat/completions` and `…/responses` are answered as OpenAI does,
//! `…/messages` as Anthropic, `…/models/ID:streamGenerateContent` as Google, `…/api/chat` as Ollama. A [`Reply`] says what
//! is answered without naming any. Requests that ask for no stream are answered with one document.
//!
//! It can refuse what the services refuse ([`ScriptedModel::strict`]), bill as their caches do
//! ([`ScriptedModel::billing`]) and take only so many requests at a time ([`ScriptedModel::at_once`]). [`vendors`] has
//! the vendors' own clients, by which it is believed.
//!
//! [`receiver`] takes what is sent for OpenTelemetry. [`tls`] has a certificate for servers of tests. [`store`] has a
//! store in memory for tests of what uses one, and the contract that every store keeps.

mod billing;
mod counter;
mod prompt;
pub mod receiver;
mod reply;
mod sending;
mod server;
pub mod store;
mod strict;
pub mod tls;
mod traffic;
pub mod vendors;
mod wire;

pub use billing::Bill;
pub use reply::{Gate, Odd, Reply, StopSaid, ThoughtField};
pub use server::{RecordedRequest, ScriptedModel};
pub use wire::{Wire, last_user_text};
