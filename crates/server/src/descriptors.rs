//! File descriptors: how many there are, and how many of them connections may take.
//!
//! Every connection is one, and strangers can open as many as they like. Without a share of their own, provider calls,
//! the store and commands would fail for want of one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Left to everything but connections: the store, calls of providers, commands and their pipes, logs.
const RESERVE: usize = 256;

/// Raises the limit of this process as far as it may, and says what it is then.
pub fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // The kernel refuses only what is over the maximum.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current };
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Connections that HTTP and the socket may each have, of those that are wanted.
pub fn connections_max(wanted: usize, limit: usize) -> usize {
    wanted.min(limit.saturating_sub(RESERVE) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_reserve() {
        assert_eq!(connections_max(1024, 1 << 20), 1024);
        assert_eq!(connections_max(1024, 2 * 1024 + RESERVE), 1024);
        assert_eq!(connections_max(1024, 2 * 1024 + RESERVE - 1), 1023);
        assert_eq!(connections_max(1024, 1024), 384);
        assert_eq!(connections_max(1024, 64), 1);
    }
}
