//! Standard input and output of a program that is spoken to over them.
//!
//! Where they are pipes, the kernel says when something is there. `tokio::io` has a thread make each read and each write,
//! which takes two wake-ups more; everything else is left to it.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstatfs;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe::OpenOptions;

pub type Input = Box<dyn AsyncRead + Send + Unpin>;
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Within a runtime.
pub fn input() -> Input {
    let opened = opened(io::stdin(), || OpenOptions::new().open_receiver("/proc/self/fd/0"));
    opened.map_or_else(|| Box::new(tokio::io::stdin()) as Input, |pipe| Box::new(pipe))
}

/// Within a runtime.
pub fn output() -> Output {
    let opened = opened(io::stdout(), || OpenOptions::new().open_sender("/proc/self/fd/1"));
    opened.map_or_else(|| Box::new(tokio::io::stdout()) as Output, |pipe| Box::new(pipe))
}

/// A pipe, opened anew: others may have the same one, and that it must not block is nobody's affair but ours. Not one with a
/// name: who opens that is not told that its writers were gone before.
fn opened<T>(fd: impl AsFd, open: impl FnOnce() -> io::Result<T>) -> Option<T> {
    const PIPEFS_MAGIC: i64 = 0x5049_5045;
    let is_pipe = fstatfs(fd).is_ok_and(|it| it.f_type == PIPEFS_MAGIC);
    is_pipe.then(open)?.ok()
}
