//! Who may be connected at once. When all places are taken, a newcomer gets that of the stranger who came first: whoever
//! never said who they are must not keep those out who can.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nexus_core::Requester;
use tokio_util::sync::CancellationToken;

/// The places of one listener.
pub struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

/// The places by how well their peers are known. Lower numbers came first.
#[derive(Default)]
struct Taken {
    next: u64,
    strangers: BTreeMap<u64, Arc<Seat>>,
    agents: BTreeMap<u64, Arc<Seat>>,
    administrators: usize,
}

/// What a peer and the place it has know of each other.
struct Seat {
    /// Cancelled when another takes the place, or the server stops. A token of its own: connections would meet at the
    /// lock of one.
    end: CancellationToken,
    /// A call of the peer runs.
    busy: AtomicBool,
}

/// How well a peer is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// It has not shown any token.
    Not,
    Agent,
    Administrator,
}

impl Known {
    fn of(number: u8) -> Self {
        [Self::Not, Self::Agent, Self::Administrator][usize::from(number.min(2))]
    }
}

impl Places {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// A place for a newcomer. `None` when all others are known, and none of the agents among them is idle.
    /// It ends with `stop`.
    pub fn take(self: &Arc<Self>, stop: &CancellationToken) -> Option<Place> {
        let mut taken = self.lock();
        if taken.len() >= self.most && !taken.evict() {
            return None;
        }
        taken.next += 1;
        let number = taken.next;
        let seat = Arc::new(Seat { end: stop.child_token(), busy: AtomicBool::new(false) });
        taken.strangers.insert(number, seat.clone());
        drop(taken);
        Some(Place { places: self.clone(), number, known: AtomicU8::new(0), seat })
    }

    /// Takes the place of the stranger who came first, for want of anything else that could be given up.
    pub fn give_one_up(&self) {
        self.lock().evict();
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn len(&self) -> usize {
        self.strangers.len() + self.agents.len() + self.administrators
    }

    /// Makes a place free, if one may be.
    fn evict(&mut self) -> bool {
        if let Some((_, stranger)) = self.strangers.pop_first() {
            stranger.end.cancel();
            return true;
        }
        // Agents hold what they do not use: they can come again.
        let idle = self.agents.iter().find(|(_, seat)| !seat.busy.load(Ordering::Relaxed));
        let Some(number) = idle.map(|(number, _)| *number) else { return false };
        if let Some(seat) = self.agents.remove(&number) {
            seat.end.cancel();
        }
        true
    }
}

/// A place, for as long as this lives or until it is lost.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    /// A `Known`, where it can be asked without the lock: every call asks.
    known: AtomicU8,
    seat: Arc<Seat>,
}

impl Place {
    /// Cancelled when another has taken it, or the server stops.
    pub fn end(&self) -> CancellationToken {
        self.seat.end.clone()
    }

    /// The peer has shown who it is.
    pub fn introduce(&self, requester: &Requester) {
        let known = match requester {
            Requester::Administrator => Known::Administrator,
            Requester::Agent(_) => Known::Agent,
        };
        if known <= Known::of(self.known.load(Ordering::Relaxed)) {
            return;
        }
        let mut taken = self.places.lock();
        // It may have been lost a moment ago.
        let held =
            taken.strangers.remove(&self.number).or_else(|| taken.agents.remove(&self.number));
        let Some(seat) = held else { return };
        match known {
            Known::Administrator => taken.administrators += 1,
            _ => drop(taken.agents.insert(self.number, seat)),
        }
        self.known.store(known as u8, Ordering::Relaxed);
    }

    /// The peer is in a call for as long as this lives.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.seat.busy.store(true, Ordering::Relaxed);
        Busy(self.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match Known::of(self.known.load(Ordering::Relaxed)) {
            Known::Administrator => taken.administrators -= 1,
            Known::Agent => drop(taken.agents.remove(&self.number)),
            Known::Not => drop(taken.strangers.remove(&self.number)),
        }
    }
}

/// A call that runs.
pub struct Busy(Arc<Place>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.seat.busy.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::AgentId;

    use super::*;

    fn agent() -> Requester {
        Requester::Agent(AgentId::parse("a").unwrap())
    }

    fn is_lost(place: &Place) -> bool {
        place.seat.end.is_cancelled()
    }

    #[test]
    fn the_stranger_who_came_first_goes_and_nobody_who_is_known() {
        let (places, stop) = (Places::new(3), CancellationToken::new());
        let take = || Arc::new(places.take(&stop).unwrap());
        let (known, first, second) = (take(), take(), take());
        known.introduce(&Requester::Administrator);
        let third = take();
        assert_eq!(
            [&known, &first, &second, &third].map(|it| is_lost(it)),
            [false, true, false, false]
        );
        // One that was lost does not come back by what it says now, nor does its end free a place twice.
        first.introduce(&Requester::Administrator);
        drop(first);
        second.introduce(&Requester::Administrator);
        third.introduce(&Requester::Administrator);
        assert!(places.take(&stop).is_none());
        drop(known);
        assert!(places.take(&stop).is_some());
    }

    #[test]
    fn an_agent_keeps_its_place_while_a_call_of_it_runs() {
        let (places, stop) = (Places::new(2), CancellationToken::new());
        let take = || Arc::new(places.take(&stop).unwrap());
        let (works, idles) = (take(), take());
        works.introduce(&agent());
        idles.introduce(&agent());
        let (busy, also) = (works.busy(), idles.busy());
        assert!(places.take(&stop).is_none());
        drop(also);
        let newcomer = take();
        assert!(is_lost(&idles) && !is_lost(&works));
        // Who turns out to be the administrator is never asked to go.
        newcomer.introduce(&agent());
        newcomer.introduce(&Requester::Administrator);
        newcomer.introduce(&agent());
        assert!(places.take(&stop).is_none());
        drop(busy);
        let _other = take();
        assert!(is_lost(&works) && !is_lost(&newcomer));
    }
}
