//! The scripted model, asked over HTTP: what each wire says, what it refuses, and what it bills.

mod billing;
mod client;
mod strict;
mod traffic;
mod wires;
