//! Who may be connected at once. When all places are taken, a newcomer gets that of the stranger who came first: whoever
//! never said who they are must not keep those out who can. Each has a moment to say it first; newcomers wait for that
//! in the kernel's queue. Agents have a part of the places, and each tree of them a smaller one, so that a newcomer can
//! still turn out to be the administrator.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nexus_core::AgentId;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Of all places, this part is never taken by agents for good.
const RESERVE: usize = 8;

/// Of all places, this part is the most that one tree of agents has: as many as it may have turns, where nothing else was
/// set for either.
const TREE: usize = 4;

/// For so long a stranger's place is not given to another: what was asked on it may not have been read yet, however
/// many came since.
const HEARING: Duration = Duration::from_millis(200);

/// The places of one listener.
pub struct Places {
    most: usize,
    of_agents_max: usize,
    of_tree_max: usize,
    taken: Mutex<Taken>,
    /// Somebody left.
    left: Notify,
}

/// The places by how well their peers are known. Lower numbers came first.
#[derive(Default)]
struct Taken {
    next: u64,
    strangers: BTreeMap<u64, Arc<Seat>>,
    agents: BTreeMap<u64, (Guest, Arc<Seat>)>,
    /// How many places each has.
    shares: HashMap<Guest, usize>,
    administrators: usize,
}

/// Who shares places with whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Guest {
    /// The number of a tree's account.
    Tree(u64),
    /// An agent that is not in memory, so that nobody knows of what tree it is.
    Agent(AgentId),
}

/// What a peer and the place it has know of each other.
struct Seat {
    since: Instant,
    /// How many milliseconds after that the last call was over.
    rested: AtomicU64,
    /// Cancelled when another takes the place, or the server stops. A token of its own: connections would meet at the
    /// lock of one.
    end: CancellationToken,
    /// A call of the peer runs.
    busy: AtomicBool,
}

impl Seat {
    fn idle_since(&self) -> Instant {
        self.since + Duration::from_millis(self.rested.load(Ordering::Relaxed))
    }
}

/// Why there is no place at once.
enum Taking {
    /// All strangers have had their hearing no sooner than then.
    Later(Instant),
    Never,
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

/// Agents have as many places as they may, and a call runs on each of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl Places {
    /// Where there is one place alone, it is everybody's.
    pub fn new(most: usize) -> Arc<Self> {
        let of_agents_max = (most - most.div_ceil(RESERVE)).max(1);
        let of_tree_max = (most / TREE).max(1);
        let (taken, left) = (Mutex::default(), Notify::new());
        Arc::new(Self { most, of_agents_max, of_tree_max, taken, left })
    }

    /// A place for a newcomer, which may have to be waited for, as long as strangers have a hearing. `None` when all
    /// others are known, and none of the agents among them is idle. It ends with `stop`.
    pub async fn take(self: &Arc<Self>, stop: &CancellationToken) -> Option<Place> {
        loop {
            let heard = match self.try_take(stop) {
                Ok(place) => return Some(place),
                Err(Taking::Later(heard)) => heard,
                Err(Taking::Never) => return None,
            };
            let _ = timeout_at(heard, self.left.notified()).await;
        }
    }

    fn try_take(self: &Arc<Self>, stop: &CancellationToken) -> Result<Place, Taking> {
        let now = Instant::now();
        let mut taken = self.lock();
        if taken.len() >= self.most {
            taken.evict_unless_heard(now)?;
        }
        taken.next += 1;
        let number = taken.next;
        let seat = Seat {
            since: now,
            rested: AtomicU64::new(0),
            end: stop.child_token(),
            busy: AtomicBool::new(false),
        };
        let seat = Arc::new(seat);
        taken.strangers.insert(number, seat.clone());
        drop(taken);
        Ok(Place { places: self.clone(), number, known: AtomicU8::new(0), seat })
    }

    /// Takes the place of the stranger who came first, for want of anything else that could be given up.
    pub fn give_one_up(&self) {
        let mut taken = self.lock();
        if !taken.evict_stranger() {
            taken.evict_agent(|_| true);
        }
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
    fn evict_unless_heard(&mut self, now: Instant) -> Result<(), Taking> {
        match self.strangers.first_key_value().map(|(_, first)| first.since + HEARING) {
            Some(heard) if heard > now => return Err(Taking::Later(heard)),
            Some(_) if self.evict_stranger() => return Ok(()),
            _ => {}
        }
        if self.evict_agent(|_| true) { Ok(()) } else { Err(Taking::Never) }
    }

    /// Somebody is known now whose place was taken a moment ago: while what was asked was read. A stranger goes instead.
    fn hold_to(&mut self, most: usize) {
        if self.len() > most {
            self.evict_stranger();
        }
    }

    /// Takes the place of the stranger who came first.
    fn evict_stranger(&mut self) -> bool {
        let first = self.strangers.pop_first();
        first.inspect(|(_, stranger)| stranger.end.cancel()).is_some()
    }

    /// Takes the place of the agent that is idle for longest. Agents hold what they do not use: they can come again.
    fn evict_agent(&mut self, meant: impl Fn(&Guest) -> bool) -> bool {
        let idle = self
            .agents
            .iter()
            .filter(|(_, (guest, seat))| !seat.busy.load(Ordering::Relaxed) && meant(guest))
            .min_by_key(|(_, (_, seat))| seat.idle_since());
        let Some(number) = idle.map(|(number, _)| *number) else { return false };
        if let Some(seat) = self.remove_agent(number) {
            seat.end.cancel();
        }
        true
    }

    fn remove_agent(&mut self, number: u64) -> Option<Arc<Seat>> {
        let (guest, seat) = self.agents.remove(&number)?;
        if let Some(share) = self.shares.get_mut(&guest) {
            *share -= 1;
            if *share == 0 {
                self.shares.remove(&guest);
            }
        }
        Some(seat)
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

    /// Whether the peer has said who it is. What it asked is answered then, though another has its place.
    pub fn is_heard(&self) -> bool {
        self.knows(Known::Agent)
    }

    /// The peer has shown that it is the administrator, who always has a place.
    pub fn introduce_administrator(&self) {
        if self.knows(Known::Administrator) {
            return;
        }
        let mut taken = self.places.lock();
        let _ = taken.strangers.remove(&self.number);
        drop(taken.remove_agent(self.number));
        taken.administrators += 1;
        self.known.store(Known::Administrator as u8, Ordering::Relaxed);
        taken.hold_to(self.places.most);
    }

    /// The peer has shown that it is an agent. Where agents, or those of its tree, have all places that they may, the one
    /// that is idle for longest goes. `guest` is asked when it is not known yet.
    pub fn introduce_agent(&self, guest: impl FnOnce() -> Guest) -> Result<(), Full> {
        if self.knows(Known::Agent) {
            return Ok(());
        }
        let guest = guest();
        let Places { most: of_all_max, of_agents_max, of_tree_max, .. } = *self.places;
        let mut taken = self.places.lock();
        let share = taken.shares.get(&guest).copied().unwrap_or_default();
        if share >= of_tree_max && !taken.evict_agent(|it| *it == guest) {
            return Err(Full);
        }
        if taken.agents.len() >= of_agents_max && !taken.evict_agent(|_| true) {
            return Err(Full);
        }
        let _ = taken.strangers.remove(&self.number);
        *taken.shares.entry(guest.clone()).or_default() += 1;
        taken.agents.insert(self.number, (guest, self.seat.clone()));
        self.known.store(Known::Agent as u8, Ordering::Relaxed);
        taken.hold_to(of_all_max);
        Ok(())
    }

    fn knows(&self, known: Known) -> bool {
        known <= Known::of(self.known.load(Ordering::Relaxed))
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
            Known::Agent => drop(taken.remove_agent(self.number)),
            Known::Not => drop(taken.strangers.remove(&self.number)),
        }
        drop(taken);
        self.places.left.notify_one();
    }
}

/// A call that runs.
pub struct Busy(Arc<Place>);

impl Drop for Busy {
    fn drop(&mut self) {
        let Seat { since, rested, busy, .. } = &*self.0.seat;
        rested.store(since.elapsed().as_millis() as u64, Ordering::Relaxed);
        busy.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[track_caller]
    fn introduce(place: &Place, tree: u64) {
        place.introduce_agent(|| Guest::Tree(tree)).unwrap();
    }

    fn is_lost(place: &Place) -> bool {
        place.seat.end.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_stranger_who_came_first_goes_and_nobody_who_is_known() {
        let (places, stop) = (Places::new(3), CancellationToken::new());
        let take = async || Arc::new(places.take(&stop).await.unwrap());
        let (known, first, second) = (take().await, take().await, take().await);
        known.introduce_administrator();
        let third = take().await;
        assert_eq!(
            [&known, &first, &second, &third].map(|it| is_lost(it)),
            [false, true, false, false]
        );
        assert_eq!([&known, &first, &second].map(|it| it.is_heard()), [true, false, false]);
        // Who says it a moment late is answered all the same, and a stranger makes room.
        first.introduce_administrator();
        assert!(first.is_heard() && is_lost(&second));
        drop(first);
        second.introduce_administrator();
        third.introduce_administrator();
        assert!(places.take(&stop).await.is_none());
        drop(known);
        assert!(places.take(&stop).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_keeps_its_place_while_a_call_of_it_runs() {
        let (places, stop) = (Places::new(3), CancellationToken::new());
        let take = async || Arc::new(places.take(&stop).await.unwrap());
        let (works, idles) = (take().await, take().await);
        introduce(&works, 1);
        introduce(&idles, 2);
        let (busy, also) = (works.busy(), idles.busy());
        let person = take().await;
        person.introduce_administrator();
        assert!(places.take(&stop).await.is_none());
        drop(also);
        let newcomer = take().await;
        assert!(is_lost(&idles) && !is_lost(&works));
        // Who turns out to be the administrator is never asked to go.
        introduce(&newcomer, 3);
        newcomer.introduce_administrator();
        introduce(&newcomer, 3);
        assert!(places.take(&stop).await.is_none());
        drop(busy);
        let _other = take().await;
        assert!(is_lost(&works) && !is_lost(&newcomer) && !is_lost(&person));
    }

    #[tokio::test(start_paused = true)]
    async fn the_agent_that_is_idle_for_longest_goes() {
        let (places, stop) = (Places::new(3), CancellationToken::new());
        let take = async || Arc::new(places.take(&stop).await.unwrap());
        let (first, second, person) = (take().await, take().await, take().await);
        introduce(&first, 1);
        introduce(&second, 2);
        person.introduce_administrator();
        tokio::time::advance(Duration::from_millis(1)).await;
        drop(first.busy());
        let _newcomer = take().await;
        assert!(is_lost(&second) && !is_lost(&first));
    }

    #[tokio::test(start_paused = true)]
    async fn agents_leave_places_to_the_administrator() {
        let (places, stop) = (Places::new(16), CancellationToken::new());
        let take = async || Arc::new(places.take(&stop).await.unwrap());
        let mut held = Vec::new();
        for number in 0..14 {
            let place = take().await;
            introduce(&place, number);
            held.push(place.busy());
        }
        // None of the last two is for an agent, as long as calls of all others run.
        let over = take().await;
        assert_eq!(over.introduce_agent(|| Guest::Tree(14)), Err(Full));
        let people = [take().await, take().await];
        people.iter().for_each(|place| place.introduce_administrator());
        assert!(is_lost(&over) && places.take(&stop).await.is_none());
        drop(people);
        held.remove(3);
        let last = take().await;
        introduce(&last, 14);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tree_has_its_share_and_no_more() {
        let (places, stop) = (Places::new(16), CancellationToken::new());
        let take = async || Arc::new(places.take(&stop).await.unwrap());
        let greedy = [take().await, take().await, take().await, take().await];
        greedy.iter().for_each(|place| introduce(place, 1));
        let mut held: Vec<_> = greedy.iter().map(|place| place.busy()).collect();
        let over = take().await;
        assert_eq!(over.introduce_agent(|| Guest::Tree(1)), Err(Full));
        introduce(&over, 2);
        // Of its own it takes the one that is idle.
        held.remove(2);
        let fifth = take().await;
        introduce(&fifth, 1);
        assert_eq!(
            [0, 1, 2, 3].map(|number| is_lost(&greedy[number])),
            [false, false, true, false]
        );
        drop(fifth);
        let sixth = take().await;
        introduce(&sixth, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_has_a_hearing_before_its_place_is_given_away() {
        let (places, stop) = (Places::new(2), CancellationToken::new());
        let (first, _second) =
            (places.take(&stop).await.unwrap(), places.take(&stop).await.unwrap());
        tokio::time::advance(HEARING - Duration::from_millis(1)).await;
        let mut third = std::pin::pin!(places.take(&stop));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(!is_lost(&first));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(third.await.is_some() && is_lost(&first));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_left_is_had_at_once() {
        let (places, stop) = (Places::new(1), CancellationToken::new());
        let first = places.take(&stop).await.unwrap();
        let began = Instant::now();
        let mut second = std::pin::pin!(places.take(&stop));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.await.is_some());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
