//! The bytes of messages and answers that are under way, in the server as a whole.
//!
//! Each connection has its own limits, and there are many connections: without this a peer that asks much and reads
//! nothing would hold gigabytes by having a thousand of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nexus_core::Requester;
use nexus_protocol::RpcError;

/// What may be under way at once. Far more than honest clients ever have: they read what they asked for.
pub const FREIGHT_BYTES_MAX: usize = 256 << 20;

/// What callers that are agents may have of it. The rest is left to the administrator, whatever agents do.
pub const AGENTS_BYTES_MAX: usize = FREIGHT_BYTES_MAX / 2;

/// What is no larger is not counted. Small calls would meet at the counter, and as many of these as there are
/// connections do no harm.
pub const SMALL_BYTES_MAX: usize = 64 * 1024;

/// How long a caller should wait before it tries again. Answers are read in less.
const RETRY_MS: u64 = 1_000;

#[derive(Default)]
pub struct Freight {
    bytes: AtomicUsize,
    /// Part of `bytes`.
    of_agents: AtomicUsize,
}

impl Freight {
    /// A load for a caller, still empty.
    pub fn load(self: &Arc<Self>, requester: &Requester) -> Load {
        let of_agent = *requester != Requester::Administrator;
        Load { freight: self.clone(), of_agent, bytes: 0 }
    }

    fn add(&self, bytes: usize, of_agent: bool) -> bool {
        if of_agent && !add(&self.of_agents, bytes, AGENTS_BYTES_MAX) {
            return false;
        }
        let added = add(&self.bytes, bytes, FREIGHT_BYTES_MAX);
        if !added && of_agent {
            self.of_agents.fetch_sub(bytes, Ordering::Relaxed);
        }
        added
    }
}

fn add(counter: &AtomicUsize, bytes: usize, most: usize) -> bool {
    let more = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= most);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// Bytes that are under way for as long as this lives.
pub struct Load {
    freight: Arc<Freight>,
    of_agent: bool,
    /// Counted so far.
    bytes: usize,
}

impl Load {
    /// Makes it as large as `bytes`, where there is room; small loads always have it. It never shrinks.
    pub fn reach(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes <= SMALL_BYTES_MAX || bytes <= self.bytes {
            return Ok(());
        }
        // In steps: what grows by and by is not counted byte by byte.
        let wanted = bytes.checked_next_multiple_of(SMALL_BYTES_MAX).unwrap_or(bytes);
        if !self.freight.add(wanted - self.bytes, self.of_agent) {
            return Err(Full { of_agent: self.of_agent });
        }
        self.bytes = wanted;
        Ok(())
    }

    /// Nothing of it is under way any more.
    pub fn clear(&mut self) {
        self.freight.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.of_agent {
            self.freight.of_agents.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.bytes = 0;
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.clear();
    }
}

/// As much is under way as may be.
#[derive(Debug, PartialEq, Eq)]
pub struct Full {
    of_agent: bool,
}

impl From<Full> for RpcError {
    fn from(full: Full) -> Self {
        let (whose, most) = match full.of_agent {
            true => (" of agents", AGENTS_BYTES_MAX),
            false => ("", FREIGHT_BYTES_MAX),
        };
        let why =
            format!("The messages and answers{whose} under way are together {most} bytes already.");
        Self::overloaded(why, RETRY_MS)
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::AgentId;

    use super::*;

    fn agent() -> Requester {
        Requester::Agent(AgentId::parse("a").unwrap())
    }

    #[test]
    fn what_is_under_way_just_under_and_just_over() {
        let freight = Arc::new(Freight::default());
        let mut first = freight.load(&Requester::Administrator);
        first.reach(FREIGHT_BYTES_MAX).unwrap();
        let mut second = freight.load(&Requester::Administrator);
        second.reach(SMALL_BYTES_MAX).unwrap();
        let full: RpcError = second.reach(SMALL_BYTES_MAX + 1).unwrap_err().into();
        let why = &full.data.as_ref().unwrap()["details"];
        assert!(why.as_str().unwrap().contains("268435456 bytes"), "{why}");
        first.clear();
        second.reach(FREIGHT_BYTES_MAX).unwrap();
        drop(second);
        first.reach(FREIGHT_BYTES_MAX).unwrap();
    }

    #[test]
    fn agents_leave_half_to_the_administrator() {
        let freight = Arc::new(Freight::default());
        let (mut greedy, mut other) = (freight.load(&agent()), freight.load(&agent()));
        greedy.reach(AGENTS_BYTES_MAX).unwrap();
        assert!(other.reach(SMALL_BYTES_MAX + 1).is_err());
        let mut administrator = freight.load(&Requester::Administrator);
        administrator.reach(AGENTS_BYTES_MAX).unwrap();
        // What was refused as a whole is not counted in part.
        drop(greedy);
        assert!(other.reach(AGENTS_BYTES_MAX + 1).is_err());
        other.reach(AGENTS_BYTES_MAX).unwrap();
    }
}
