//! The outside world behind the core's traits: the SQLite store, the model providers, the configuration, the
//! prompt files and the agents' logs.

pub mod agent_logs;
pub mod config;
mod files;
pub mod prompts;
pub mod providers;
pub mod store;
pub mod tokenizer;
