//! How many calls each caller may make in a minute. There are no limits unless somebody configures some.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nexus_core::memory::Identity;
use nexus_core::{AgentId, Requester};
use nexus_protocol::RpcError;

use crate::dispatcher::{Caller, Signer};

/// Callers that are remembered. With more, those go who have not called for a minute.
const CALLERS_MAX: usize = 10_000;

const MINUTE: Duration = Duration::from_secs(60);

/// What is allowed in a minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Calls of each caller, whatever they ask for.
    pub calls: Option<u32>,
    /// Calls of single methods, beside that.
    pub methods: BTreeMap<String, u32>,
}

pub struct Rates {
    limits: RateLimits,
    buckets: Mutex<HashMap<Key, Bucket>>,
}

/// Whose calls are counted, and of which method where that has a limit of its own.
type Key = (Who, Option<String>);

/// All who have the rights of the administrator are one, unless they sign with different keys; what comes through a
/// socket for one identity is that identity's, and through a socket for bearers of tokens that of whoever the
/// connection's token names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Administrator,
    Agent(AgentId),
    /// The number tells sockets for bearers of tokens apart.
    Door(Identity, Option<u64>),
    Key(Arc<str>),
}

impl Rates {
    pub fn new(limits: RateLimits) -> Self {
        Self { limits, buckets: Mutex::default() }
    }

    /// Counts a call, or refuses it.
    pub fn take(&self, caller: &Caller, method: &str) -> Result<(), RpcError> {
        let own = self.limits.methods.get(method).copied();
        let limits = [(None, self.limits.calls), (Some(method), own)];
        if limits.iter().all(|(_, limit)| limit.is_none()) {
            return Ok(());
        }
        let (who, now) = (who(caller), Instant::now());
        let mut buckets = self.lock();
        if buckets.len() >= CALLERS_MAX {
            buckets.retain(|_, bucket| now - bucket.at < MINUTE);
        }
        // First all are asked: a call that one of them refuses costs nothing.
        let mut keys = Vec::with_capacity(limits.len());
        for (of, limit) in limits {
            let Some(limit) = limit else { continue };
            let key = (who.clone(), of.map(str::to_owned));
            let bucket = buckets.entry(key.clone()).or_insert_with(|| Bucket::full(limit, now));
            if let Err(wait) = bucket.look(limit, now) {
                return Err(refused(details(of, limit), wait));
            }
            keys.push(key);
        }
        for key in keys {
            buckets.entry(key).and_modify(Bucket::take);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Bucket>> {
        // Nothing panics while it is held.
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attempts to be let in that failed. All come from this machine, so they are counted together; whoever is let in is not
/// counted and never refused by it.
#[derive(Default)]
pub struct Failures {
    /// `None` where they are not counted.
    counted: Option<(u32, Mutex<Bucket>)>,
}

impl Failures {
    pub fn new(per_minute: Option<u32>) -> Self {
        let full = |limit| (limit, Mutex::new(Bucket::full(limit, Instant::now())));
        Self { counted: per_minute.map(full) }
    }

    /// Counts one, and says what the caller is told: why it was not let in, or that there were too many.
    pub fn refusal(&self, why: RpcError) -> RpcError {
        let Some((limit, bucket)) = &self.counted else { return why };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        match bucket.look(*limit, Instant::now()) {
            Ok(()) => {
                bucket.take();
                why
            }
            Err(wait) => {
                let rule = "server.rate_limit.failed_logins_per_minute";
                refused(format!("{limit} callers were not let in within a minute ({rule})."), wait)
            }
        }
    }
}

fn details(method: Option<&str>, limit: u32) -> String {
    match method {
        None => {
            format!("There are {limit} calls in a minute (server.rate_limit.calls_per_minute).")
        }
        Some(method) => format!(
            "There are {limit} calls of {method} in a minute (server.rate_limit.methods.{method})."
        ),
    }
}

fn refused(details: String, wait: Duration) -> RpcError {
    let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    RpcError::rate_limited(details, "server", wait + 1)
}

fn who(caller: &Caller) -> Who {
    if let Signer::Key(name) = &caller.signer {
        return Who::Key(name.clone());
    }
    if let Some(behalf) = &caller.behalf
        && let Some(identity) = behalf.door()
    {
        return Who::Door(identity.clone(), behalf.bearers());
    }
    match &caller.requester {
        Requester::Administrator => Who::Administrator,
        Requester::Agent(id) => Who::Agent(id.clone()),
    }
}

/// Calls that may be made now. They come back evenly over a minute, and a whole minute's may be made at once.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(limit: u32, now: Instant) -> Self {
        Self { left: f64::from(limit), at: now }
    }

    /// Whether there is a call left; else how long until there is.
    fn look(&mut self, limit: u32, now: Instant) -> Result<(), Duration> {
        let limit = f64::from(limit);
        let back = now.saturating_duration_since(self.at).as_secs_f64() / MINUTE.as_secs_f64();
        self.left = (self.left + back * limit).min(limit);
        self.at = now;
        match self.left >= 1.0 {
            true => Ok(()),
            false => Err(MINUTE.mul_f64((1.0 - self.left) / limit)),
        }
    }

    fn take(&mut self) {
        self.left -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_back_evenly_and_no_more_than_a_minutes() {
        let start = Instant::now();
        let mut bucket = Bucket::full(60, start);
        let mut taken = |at: Duration| {
            let now = start + at;
            (0..100).take_while(|_| bucket.look(60, now).map(|()| bucket.take()).is_ok()).count()
        };
        assert_eq!(taken(Duration::ZERO), 60);
        assert_eq!(taken(Duration::from_millis(999)), 0);
        assert_eq!(taken(Duration::from_millis(1_001)), 1);
        assert_eq!(taken(Duration::from_millis(11_500)), 10);
        assert_eq!(taken(Duration::from_secs(3_600)), 60);
        let wait = bucket.look(60, start + Duration::from_secs(3_600)).unwrap_err();
        assert_eq!(wait.as_millis(), 1_000);
    }
}
