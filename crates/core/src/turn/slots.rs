//! How many turns run and wait at once, and who comes next.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::account::{Account, Exceeded, TurnShare};
use crate::authority::AskedBy;
use crate::lock;

/// Bounds the turns of a server: so many run, so many more wait, and a further one is refused at once. What agents ask
/// for themselves is held to their tree's share, and never takes the last places, which are the administrator's. Those
/// who wait are served tree by tree, so that nobody waits behind all that one tree has asked for.
pub struct Slots {
    places: Arc<Places>,
    turns: TaskTracker,
    closed: CancellationToken,
}

/// Of each number of places, this part is the administrator's: few enough that agents do not miss them, and more than
/// one person needs at once.
const RESERVE: usize = 8;

/// Turns of one agent that may wait behind the one that runs. A caller that queues more has lost count.
const QUEUE_MAX: usize = 256;

/// How many turns of one agent may wait when a further one is asked for by this one.
pub(super) fn queued_max(asked_by: AskedBy) -> usize {
    let limit = Limit::with_reserve(QUEUE_MAX);
    match asked_by {
        AskedBy::Administrator => limit.all,
        AskedBy::Agent => limit.of_agents,
    }
}

struct Places {
    running: Limit,
    admitted: Limit,
    state: Mutex<State>,
}

/// How many there may be, and how many of them that agents asked for.
#[derive(Clone, Copy)]
struct Limit {
    all: usize,
    of_agents: usize,
}

#[derive(Clone, Copy, Default)]
struct Count {
    all: usize,
    of_agents: usize,
}

#[derive(Default)]
struct State {
    running: Count,
    admitted: Count,
    /// Those who wait for a slot.
    lines: HashMap<LineKey, Line>,
    /// The lines, each of which has somebody in it, in the order in which they are served.
    order: VecDeque<LineKey>,
    last_ticket: u64,
}

/// A tree's account, and who asked.
type LineKey = (u64, AskedBy);

/// By ticket, so by age.
type Line = BTreeMap<u64, oneshot::Sender<Slot>>;

/// Leave to wait for a slot; gives it back when dropped.
pub struct Admission {
    places: Arc<Places>,
    account: u64,
    asked_by: AskedBy,
    _share: Option<TurnShare>,
    _turn: TaskTrackerToken,
}

/// Leave to run; gives it to whoever comes next when dropped.
pub struct Slot {
    places: Arc<Places>,
    asked_by: AskedBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Full,
    /// The tree's own share is used up.
    Share(Exceeded),
    Closed,
}

impl Slots {
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        let running = Limit::with_reserve(running_max);
        let waiting = Limit::with_reserve(waiting_max);
        let admitted = Limit {
            all: running.all + waiting.all,
            of_agents: running.of_agents + waiting.of_agents,
        };
        Self {
            places: Arc::new(Places { running, admitted, state: Mutex::default() }),
            turns: TaskTracker::new(),
            closed: CancellationToken::new(),
        }
    }

    pub fn admit(&self, account: &Arc<Account>, asked_by: AskedBy) -> Result<Admission, Refused> {
        if self.closed.is_cancelled() {
            return Err(Refused::Closed);
        }
        let share = match asked_by {
            AskedBy::Administrator => None,
            AskedBy::Agent => Some(account.take_turn().map_err(Refused::Share)?),
        };
        let places = &self.places;
        if !lock(&places.state).admitted.take(places.admitted, asked_by) {
            return Err(Refused::Full);
        }
        Ok(Admission {
            places: places.clone(),
            account: account.number(),
            asked_by,
            _share: share,
            _turn: self.turns.token(),
        })
    }

    /// How many turns were admitted and are not over, and how many of them wait for a slot.
    pub fn count(&self) -> (usize, usize) {
        let state = lock(&self.places.state);
        (state.admitted.all, state.lines.values().map(Line::len).sum())
    }

    /// Takes no new turns.
    pub fn close(&self) {
        self.closed.cancel();
        self.turns.close();
    }

    /// Resolves when none is left of those that were admitted. Only after `close` is it bound to come.
    pub async fn empty(&self) {
        self.turns.wait().await;
    }
}

impl Limit {
    /// Where there is one place alone, it is everybody's.
    fn with_reserve(all: usize) -> Self {
        Self { all, of_agents: all.saturating_sub(all.div_ceil(RESERVE)).max(all.min(1)) }
    }
}

impl Count {
    fn has_room(self, limit: Limit, asked_by: AskedBy) -> bool {
        self.all < limit.all
            && (asked_by == AskedBy::Administrator || self.of_agents < limit.of_agents)
    }

    fn take(&mut self, limit: Limit, asked_by: AskedBy) -> bool {
        let free = self.has_room(limit, asked_by);
        if free {
            self.all += 1;
            self.of_agents += usize::from(asked_by == AskedBy::Agent);
        }
        free
    }

    fn give_back(&mut self, asked_by: AskedBy) {
        self.all -= 1;
        self.of_agents -= usize::from(asked_by == AskedBy::Agent);
    }
}

impl Admission {
    /// Waits for a slot. `None` only when the server is gone.
    pub async fn slot(&self) -> Option<Slot> {
        let places = &self.places;
        let (waits, slot) = {
            let mut state = lock(&places.state);
            // Whoever waits could not run, and could not now: a slot that was free was given away when it became so.
            if state.running.take(places.running, self.asked_by) {
                return Some(places.slot(self.asked_by));
            }
            let (sender, slot) = oneshot::channel();
            let key = (self.account, self.asked_by);
            let ticket = state.stand_in_line(key, sender);
            (Waits { places, key, ticket }, slot)
        };
        let slot = slot.await.ok();
        drop(waits);
        slot
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        lock(&self.places.state).admitted.give_back(self.asked_by);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let served = {
            let mut state = lock(&self.places.state);
            state.running.give_back(self.asked_by);
            self.places.serve(&mut state)
        };
        for (sender, slot) in served {
            // Not under the lock: a slot that nobody takes any more is given back at once, to the next.
            let _ = sender.send(slot);
        }
    }
}

impl Places {
    fn slot(self: &Arc<Self>, asked_by: AskedBy) -> Slot {
        Slot { places: self.clone(), asked_by }
    }

    /// Takes free slots for those who wait.
    fn serve(self: &Arc<Self>, state: &mut State) -> Vec<(oneshot::Sender<Slot>, Slot)> {
        let mut served = Vec::new();
        while let Some((asked_by, sender)) = state.next(self.running) {
            if !sender.is_closed() && state.running.take(self.running, asked_by) {
                served.push((sender, self.slot(asked_by)));
            }
        }
        served
    }
}

impl State {
    fn stand_in_line(&mut self, key: LineKey, sender: oneshot::Sender<Slot>) -> u64 {
        self.last_ticket += 1;
        let line = self.lines.entry(key).or_default();
        if line.is_empty() {
            self.order.push_back(key);
        }
        line.insert(self.last_ticket, sender);
        self.last_ticket
    }

    /// Takes out the first of the next line that may run now. Its line is served last from here on.
    fn next(&mut self, running: Limit) -> Option<(AskedBy, oneshot::Sender<Slot>)> {
        let may_run = |(_, asked_by): &LineKey| self.running.has_room(running, *asked_by);
        let place = self.order.iter().position(may_run)?;
        let key = self.order.remove(place)?;
        let line = self.lines.get_mut(&key)?;
        let first = line.pop_first();
        match line.is_empty() {
            true => drop(self.lines.remove(&key)),
            false => self.order.push_back(key),
        }
        first.map(|(_, sender)| (key.1, sender))
    }

    fn leave_line(&mut self, key: LineKey, ticket: u64) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        line.remove(&ticket);
        if line.is_empty() {
            self.lines.remove(&key);
            self.order.retain(|other| *other != key);
        }
    }
}

/// A place in a line, left when dropped: one that was cancelled must not lie there until its turn would come.
struct Waits<'a> {
    places: &'a Arc<Places>,
    key: LineKey,
    ticket: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        lock(&self.places.state).leave_line(self.key, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::account::Bounds;

    const ALL: usize = usize::MAX;

    fn tree(turns_max: usize) -> Arc<Account> {
        Arc::new(Account::new(Bounds { turns_max, ..Bounds::default() }))
    }

    /// How many of a tree's turns are admitted, and why no more are.
    fn admitted(
        slots: &Slots,
        tree: &Arc<Account>,
        asked_by: AskedBy,
    ) -> (Vec<Admission>, Refused) {
        let mut admitted = Vec::new();
        loop {
            match slots.admit(tree, asked_by) {
                Ok(admission) => admitted.push(admission),
                Err(refused) => return (admitted, refused),
            }
        }
    }

    #[test]
    fn agents_leave_places_for_the_administrator() {
        // Running, waiting; of those, what agents may have.
        for (running, waiting, of_agents) in [(32, 1024, 28 + 896), (4, 4, 6), (2, 0, 1), (1, 0, 1)]
        {
            let slots = Slots::new(running, waiting);
            let (held, refused) = admitted(&slots, &tree(ALL), AskedBy::Agent);
            assert_eq!((held.len(), refused), (of_agents, Refused::Full), "{running} {waiting}");
            let (rest, refused) = admitted(&slots, &tree(ALL), AskedBy::Administrator);
            assert_eq!(held.len() + rest.len(), running + waiting);
            assert_eq!(refused, Refused::Full);
        }
    }

    #[test]
    fn a_tree_has_its_share_and_no_more() {
        let slots = Slots::new(8, 8);
        let (one, other) = (tree(3), tree(3));
        let (mut held, refused) = admitted(&slots, &one, AskedBy::Agent);
        assert_eq!((held.len(), refused), (3, Refused::Share(Exceeded::Turns { max: 3 })));
        assert!(slots.admit(&other, AskedBy::Agent).is_ok());
        assert!(slots.admit(&one, AskedBy::Administrator).is_ok(), "no agent asked for it");
        held.pop();
        assert!(slots.admit(&one, AskedBy::Agent).is_ok());
    }

    #[test]
    fn a_turn_of_the_administrator_runs_though_agents_would_run_more() {
        let slots = Slots::new(4, 100);
        let (hungry, agent) = (tree(ALL), AskedBy::Agent);
        let admissions: Vec<_> = (0..50).map(|_| slots.admit(&hungry, agent).unwrap()).collect();
        let mut slots_held: Vec<_> =
            admissions.iter().map_while(|it| it.slot().now_or_never()).flatten().collect();
        assert_eq!(slots_held.len(), 3);
        let own = slots.admit(&hungry, AskedBy::Administrator).unwrap();
        let own = own.slot().now_or_never().flatten();
        assert!(own.is_some());
        drop(own);
        slots_held.pop();
        assert!(admissions[10].slot().now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn those_who_wait_are_served_tree_by_tree() {
        let slots = Arc::new(Slots::new(1, 100));
        let (large, small) = (tree(ALL), tree(ALL));
        let order = Arc::new(Mutex::new(String::new()));
        let first = slots.admit(&large, AskedBy::Administrator).unwrap();
        let running = first.slot().await;
        let mut waiting = Vec::new();
        for (name, of) in
            [('L', &large), ('L', &large), ('L', &large), ('s', &small), ('s', &small)]
        {
            let admission = slots.admit(of, AskedBy::Administrator).unwrap();
            let order = order.clone();
            waiting.push(tokio::spawn(async move {
                let _slot = admission.slot().await;
                order.lock().unwrap().push(name);
            }));
            tokio::task::yield_now().await;
        }
        drop(running);
        for turn in waiting {
            turn.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), "LsLsL");
    }

    #[tokio::test]
    async fn whoever_leaves_the_line_takes_nothing_along() {
        let slots = Slots::new(1, 100);
        let tree = tree(ALL);
        let [first, left, last] = [0, 1, 2].map(|_| slots.admit(&tree, AskedBy::Agent).unwrap());
        let running = first.slot().await;
        assert!(left.slot().now_or_never().is_none());
        let mut waits = std::pin::pin!(last.slot());
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(slots.count(), (3, 1));
        drop(running);
        assert!(waits.await.is_some());
        let state = lock(&slots.places.state);
        assert_eq!((state.running.all, state.lines.len(), state.order.len()), (0, 0, 0));
    }
}
