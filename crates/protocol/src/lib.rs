//! What travels: the envelope, the error codes, and the parameters and result of every method, one file per resource.
//! No I/O and no domain type. Changing this crate is changing the product.

pub mod agent;
pub mod answer;
pub mod api;
pub mod code;
pub mod content;
pub mod conversation;
pub mod envelope;
pub mod error;
pub mod form;
pub mod hidden;
pub mod key;
pub mod mcp;
pub mod memory;
pub mod method;
pub mod metrics;
pub mod model;
pub mod once;
pub mod params;
pub mod permission;
pub mod plan;
pub mod schema;
pub mod server;
pub mod session;
pub mod settings;
pub mod shared;
pub mod shared_context;
pub mod stream;
pub mod task;
pub mod terminal;
pub mod turn;
pub mod usage;
pub mod watch;

pub use api::{AgentScopedApi, Api, CallError, StreamApi, Target, WatchApi};
pub use envelope::{Id, Incoming, Request};
pub use error::RpcError;
pub use method::{Kind, Method, Scope};
