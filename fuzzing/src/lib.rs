//! Foreign bytes for everything that reads them, by the doors that production uses. A target takes any bytes and must
//! come back; what it promises beyond that stands in its file.
//!
//! `tests/short.rs` runs the seeds and some hundred damaged copies of each in `make test`; `make fuzz` lets libFuzzer
//! look for hours.

mod attached;
mod doors;
mod files;
mod house;
mod mutate;
mod provider;
mod text;
mod tool;
mod wire;

use std::fmt::Debug;

pub use mutate::damaged;

/// One reader of foreign bytes.
pub struct Target {
    pub name: &'static str,
    /// What it is meant to read.
    pub seeds: &'static [&'static [u8]],
    pub run: fn(&[u8]),
}

pub const TARGETS: [Target; 17] = [
    Target { name: "envelope", seeds: text::MESSAGES, run: text::envelope },
    Target { name: "sse", seeds: provider::STREAMS, run: text::sse },
    Target { name: "lines", seeds: text::MESSAGES, run: wire::lines },
    Target { name: "frames", seeds: wire::FRAMES, run: wire::frames },
    Target { name: "provider", seeds: provider::STREAMS, run: provider::run },
    Target { name: "patch", seeds: tool::DIFFS, run: tool::patch },
    Target { name: "session", seeds: files::SESSIONS, run: files::session },
    Target { name: "gguf", seeds: files::WEIGHTS, run: files::gguf },
    Target { name: "config", seeds: files::CONFIGS, run: files::config },
    Target { name: "mcp", seeds: doors::HOSTS, run: doors::mcp },
    Target { name: "openai", seeds: doors::CHATS, run: doors::openai },
    Target { name: "websocket", seeds: doors::SOCKETS, run: doors::websocket },
    Target { name: "acp", seeds: doors::EDITORS, run: doors::acp },
    Target { name: "signed", seeds: wire::SIGNED, run: wire::lines },
    Target { name: "token", seeds: text::TOKENS, run: text::token },
    Target { name: "shown", seeds: text::SHOWN, run: text::shown },
    Target { name: "attached", seeds: attached::SEEDS, run: attached::run },
];

/// Runs a target by its name.
pub fn run(name: &str, bytes: &[u8]) {
    match TARGETS.iter().find(|target| target.name == name) {
        Some(target) => (target.run)(bytes),
        None => panic!("there is no target {name}"),
    }
}

/// What has to be for a target to run at all.
fn must<T, E: Debug>(done: Result<T, E>) -> T {
    done.unwrap_or_else(|error| panic!("{error:?}"))
}
