//! What the program promises to those who drive it, proven against the real binary. `harness` says how.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should stop where it stands"
)]

#[macro_use]
mod harness;

mod agents;
mod answers;
mod attachments;
mod borders;
mod cli;
mod code;
mod compaction;
mod config;
mod conversation;
mod direct;
mod discovery;
mod docs;
mod doors;
mod durability;
mod envelope;
mod errors;
mod exec;
mod fuzz;
mod guard;
mod http;
mod idempotency;
mod identity;
mod idle;
mod info;
mod life;
mod lineage;
mod local_model;
mod logs;
mod mcp;
mod meaning;
mod memory;
mod metrics;
mod model_files;
mod models;
mod outcomes;
mod plans;
mod printers;
mod providers;
mod rates;
mod resume;
mod seeds;
mod sessions;
mod settings;
mod shared_context;
mod signing;
mod speakers;
mod stdio;
mod stream;
mod support;
mod terminal;
mod terminal_server;
mod tools;
#[cfg(feature = "traces")]
mod traces;
mod trees;
mod turns;
mod unix;
mod watch;
mod wires;
