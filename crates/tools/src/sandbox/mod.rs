//! Commands of agents, held by the kernel within what the agent may do, and ended with everything they started.
//!
//! No process confines or reaps itself here: the server starts its own binary again as a *launcher* (`nexus3 __confine`,
//! [`confine_main`]) and tells it over a socket, which is the launcher's standard input, what to run. One thread of the
//! launcher gives up its rights (Landlock for files and signals, seccomp for the network and dangerous calls) and starts
//! the command, which inherits the loss. The rest of the launcher keeps its rights and stays: it is the *subreaper* of
//! everything the command forks, however often and into whatever session, so nothing can leave its family, and it ends
//! the whole family when the command ends or the socket closes. A server that is cancelled, times out or dies by
//! `kill -9` closes the socket; there is no other order to give.
//!
//! A command that lives as long as somebody talks to it ([`Living`]) reads from a pipe whose end was handed to the launcher
//! with the order.
//!
//! A launcher may also be told to do a piece of our own work on foreign text ([`apart`]). It then starts nothing: it
//! takes its bounds and confines itself.
//!
//! What the kernel does not hold: Landlock does not look at `chmod`, `chown`, `utime` and extended attributes. A command
//! that may write nowhere is refused them all; one that may write somewhere can change the modes and times, not the
//! bytes, of what its user owns elsewhere.

mod apart;
mod files;
mod groups;
mod launcher;
mod limits;
mod live;
mod living;
mod order;
mod output;
mod passing;
mod policy;
mod run;
mod strength;
mod syscalls;
mod tree;

pub use apart::close_in;
pub use launcher::{LAUNCHER_ARGUMENT, confine_main};
pub use limits::{Bound, Limits};
pub use living::{Leash, Living};
pub use order::{Command, Stdin};
pub use output::Kept;
pub use policy::Policy;
pub use run::{End, LaunchError, Launcher, Outcome};
pub use strength::{Strength, strength};
