//! The outside world behind the core's traits: the SQLite store, the model providers, the configuration, the
//! prompt files, the agents' logs, their tools and the sandbox of their commands.

pub mod agent_logs;
pub mod config;
mod files;
pub mod prompts;
pub mod providers;
pub mod sandbox;
pub mod session_file;
pub mod store;
pub mod tokenizer;
pub mod tools;
