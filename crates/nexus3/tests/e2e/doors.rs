//! Agents as tools of MCP hosts, over HTTP and on standard input and output, in both eras of the protocol; and agents in
//! editors (`acp`).

mod acp;
mod approvals;
mod borders;
mod conformance;
pub mod host;
mod hosts;
mod inspector;
mod keys;
mod resources;
mod stdio;
mod tasks;
mod turns;
