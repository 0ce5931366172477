//! Commands of agents against this machine's kernel: real launchers, real processes, real refusals. What is refused here
//! is refused by the kernel, for the tools are called behind the gate's back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod confinement;
mod ending;
mod git;
mod limits;
mod living;
mod running;
mod support;
