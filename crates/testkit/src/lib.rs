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
//! `POST …/chat/completions` is answered as OpenAI does, `POST …/messages` as Anthropic does; a [`Reply`] says what is
//! answered without naming either.
//!
//! [`store`] has a store in memory for tests of what uses one, and the contract that every store keeps.

mod reply;
mod server;
pub mod store;
mod wire;

pub use reply::{Gate, Reply};
pub use server::{RecordedRequest, ScriptedModel};
