//! Other protocols at the same methods: MCP hosts, in both eras and over both ways, editors (`acp`), and OpenAI's clients.

mod acp;
mod approvals;
mod borders;
mod conformance;
pub mod host;
mod hosts;
mod inspector;
mod keys;
mod openai;
mod printed;
mod resources;
mod stdio;
mod tasks;
mod turns;
pub mod ws;
