//! The bytes of messages and answers that are under way, in the server as a whole.
//!
//! Each connection has its own limits, and there are many connections: without this a peer that asks much and reads
//! nothing would hold gigabytes by having a thousand of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nexus_core::account::Account;
use nexus_core::{AgentId, Requester};
use nexus_protocol::RpcError;

/// What may be under way at once. Far more than honest clients ever have: they read what they asked for.
pub const FREIGHT_BYTES_MAX: usize = 256 << 20;

/// What callers that are agents may have of it. The rest is left to the administrator, whatever agents do.
pub const AGENTS_BYTES_MAX: usize = FREIGHT_BYTES_MAX / 2;

/// What one tree of agents, or those of one socket, may have of that. The largest request that can be configured fits in.
pub const TREE_BYTES_MAX: usize = AGENTS_BYTES_MAX / 8 * 7;

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
    accounts: Option<Accounts>,
}

/// Finds the account of an agent's tree, as long as the agent is in memory.
type Accounts = Box<dyn Fn(&AgentId) -> Option<Arc<Account>> + Send + Sync>;

impl Freight {
    /// Each tree has a part of what agents may have.
    pub fn with_accounts(accounts: Accounts) -> Self {
        Self { accounts: Some(accounts), ..Self::default() }
    }

    /// A load for a caller, still empty.
    pub fn load(self: &Arc<Self>, requester: &Requester) -> Load {
        let whose = match requester {
            Requester::Administrator => Whose::Administrators,
            Requester::Agent(id) => Whose::Agents(id.clone()),
        };
        Load { freight: self.clone(), whose, account: None, bytes: 0 }
    }

    /// The same for whoever came through a socket for one identity alone: it has the right of the administrator to a few
    /// methods, and none to what is kept free for people.
    pub fn load_of_guest(self: &Arc<Self>, socket: Arc<Account>) -> Load {
        Load { freight: self.clone(), whose: Whose::Guests, account: Some(socket), bytes: 0 }
    }

    fn add(&self, bytes: usize, whose: &Whose) -> Result<(), Full> {
        let of_agent = *whose != Whose::Administrators;
        if of_agent && !add(&self.of_agents, bytes, AGENTS_BYTES_MAX) {
            return Err(Full::Agents);
        }
        if add(&self.bytes, bytes, FREIGHT_BYTES_MAX) {
            return Ok(());
        }
        if of_agent {
            self.of_agents.fetch_sub(bytes, Ordering::Relaxed);
        }
        Err(Full::Server)
    }
}

#[derive(PartialEq, Eq)]
enum Whose {
    Administrators,
    Guests,
    Agents(AgentId),
}

fn add(counter: &AtomicUsize, bytes: usize, most: usize) -> bool {
    let more = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= most);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// Bytes that are under way for as long as this lives.
pub struct Load {
    freight: Arc<Freight>,
    whose: Whose,
    /// Where it is counted too: for a socket, or for an agent's tree if there is anything to count.
    account: Option<Arc<Account>>,
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
        let more = wanted - self.bytes;
        if let (0, Whose::Agents(id), Some(accounts)) =
            (self.bytes, &self.whose, &self.freight.accounts)
        {
            self.account = accounts(id);
        }
        let account = self.account.as_ref();
        if account.is_some_and(|account| !account.take_freight(more, TREE_BYTES_MAX)) {
            return Err(if self.whose == Whose::Guests { Full::Socket } else { Full::Tree });
        }
        if let Err(full) = self.freight.add(more, &self.whose) {
            if let Some(account) = account {
                account.return_freight(more);
            }
            return Err(full);
        }
        self.bytes = wanted;
        Ok(())
    }

    /// Nothing of it is under way any more.
    pub fn clear(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.freight.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.whose != Whose::Administrators {
            self.freight.of_agents.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        if let Some(account) = &self.account {
            account.return_freight(self.bytes);
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    Server,
    Agents,
    Tree,
    Socket,
}

impl From<Full> for RpcError {
    fn from(full: Full) -> Self {
        let (whose, most) = match full {
            Full::Server => ("", FREIGHT_BYTES_MAX),
            Full::Agents => (" of agents", AGENTS_BYTES_MAX),
            Full::Tree => (" of this agent's tree", TREE_BYTES_MAX),
            Full::Socket => (" of this socket", TREE_BYTES_MAX),
        };
        let why =
            format!("The messages and answers{whose} under way are together {most} bytes already.");
        Self::overloaded(why, RETRY_MS)
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::account::Bounds;

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
        // Whoever came through a socket for one identity has no more.
        let mut guest = freight.load_of_guest(socket());
        assert_eq!(guest.reach(SMALL_BYTES_MAX + 1), Err(Full::Agents));
    }

    fn socket() -> Arc<Account> {
        Arc::new(Account::new(Bounds::default()))
    }

    #[test]
    fn a_socket_leaves_something_to_the_others() {
        let freight = Arc::new(Freight::default());
        let shared = socket();
        let [mut first, mut second] = [0, 1].map(|_| freight.load_of_guest(shared.clone()));
        first.reach(TREE_BYTES_MAX).unwrap();
        assert_eq!(second.reach(SMALL_BYTES_MAX + 1), Err(Full::Socket));
        freight.load_of_guest(socket()).reach(AGENTS_BYTES_MAX - TREE_BYTES_MAX).unwrap();
        drop(first);
        second.reach(TREE_BYTES_MAX).unwrap();
    }

    #[test]
    fn a_tree_leaves_something_to_the_others() {
        let trees = [0, 1].map(|_| Arc::new(Account::new(Bounds::default())));
        let of = trees.clone();
        let accounts = move |id: &AgentId| Some(of[usize::from(id.as_str() != "a")].clone());
        let freight = Arc::new(Freight::with_accounts(Box::new(accounts)));
        let mut first = freight.load(&agent());
        first.reach(TREE_BYTES_MAX).unwrap();
        let mut second = freight.load(&agent());
        let full = second.reach(SMALL_BYTES_MAX + 1).unwrap_err();
        assert_eq!(full, Full::Tree);
        let why = RpcError::from(full).data.unwrap()["details"].to_string();
        assert!(why.contains("of this agent's tree") && why.contains("117440512"), "{why}");
        let mut other = freight.load(&Requester::Agent(AgentId::parse("b").unwrap()));
        assert_eq!(other.reach(TREE_BYTES_MAX), Err(Full::Agents));
        // What was refused there is not counted here.
        other.reach(AGENTS_BYTES_MAX - TREE_BYTES_MAX).unwrap();
        drop(first);
        second.reach(TREE_BYTES_MAX).unwrap();
    }
}
