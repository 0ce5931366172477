//! Those who watch agents, and the way from what happens to them.
//!
//! Whoever tells something puts it into one inbox, which costs the same however many watch; one task takes it from
//! there to each of them. Where nobody watches, telling is one load.

mod event;
mod queue;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Notify;

use crate::authority::Requester;
use crate::lock;
use crate::name::{AgentId, TurnId};
pub use event::{Asked, Ended, Event, Happening, Piece};
pub use queue::{HELD_BYTES_MAX, Over};
use queue::{Item, Queue};

/// Watches in all.
pub const WATCHES_MAX: usize = 1024;

/// Watches of one agent's token, and of one connection.
pub const WATCHES_PER_CALLER_MAX: usize = 64;

/// What may wait for the one who takes it to the watchers. He is never held up; should he be, all have missed something.
const INBOX_BYTES_MAX: usize = 64 << 20;

/// So many watchers are told at once. More are told in turns with a breath between them, so that those who do what is
/// watched are never behind a thousand who look on; meanwhile what happens is joined.
const AT_ONCE_MAX: usize = 16;

const BREATH: Duration = Duration::from_millis(1);

#[derive(Default)]
pub struct Watches {
    /// How many watch, and how many of them want pieces of text.
    open: AtomicUsize,
    with_deltas: AtomicUsize,
    approvers: AtomicUsize,
    inbox: Mutex<Inbox>,
    filled: Notify,
    watchers: Mutex<Watchers>,
}

#[derive(Default)]
struct Inbox {
    items: VecDeque<(u64, Happening)>,
    bytes: usize,
    /// The number of what was told last.
    last: u64,
    /// Somebody has looked: what is told now is not joined to what was told before.
    sealed: bool,
    /// Something was thrown away.
    overflown: bool,
    /// Somebody takes it to the watchers.
    carried: bool,
    /// Nothing more is watched.
    closed: bool,
}

#[derive(Default)]
struct Watchers {
    entries: BTreeMap<u64, Entry>,
    last: u64,
}

struct Entry {
    owner: Owner,
    name: Option<String>,
    filter: Filter,
    /// Until it is known what the watcher may see, all is kept for it.
    opening: bool,
    queue: Arc<Queue>,
}

/// Whose watch it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub requester: Requester,
    /// Tells connections apart.
    pub connection: usize,
}

/// What somebody wants to be told.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// Pieces of text as they come.
    pub deltas: bool,
    /// A person sees approvals there.
    pub approver: bool,
    pub name: Option<String>,
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TooMany {
    #[error("as many watches are open as there may be ({WATCHES_MAX})")]
    All,
    #[error("this caller has as many watches open as it may ({WATCHES_PER_CALLER_MAX})")]
    OfCaller,
}

/// Whom a watcher sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    scope: Scope,
    deltas: bool,
    /// The agent whose token opened it: with that name it ends.
    own: Option<AgentId>,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Scope {
    #[default]
    All,
    Some {
        seen: HashSet<AgentId>,
        /// Those of them whose new descendants are seen too.
        families: HashSet<AgentId>,
    },
}

enum Pass {
    No,
    Yes,
    /// And nothing can come after it.
    Last,
}

/// One who watches. Dropped, it ends.
pub struct Watch {
    watches: Arc<Watches>,
    id: u64,
    interest: Interest,
    queue: Arc<Queue>,
    /// What the watcher was told when it was told how things stand; empty once all that waits is newer.
    known: Known,
    known_until: u64,
}

/// How things stood.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub cuts: HashMap<AgentId, Cut>,
    /// Approvals that waited.
    pub asked: HashSet<String>,
}

/// Where an agent stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// All up to this number is known.
    pub moment: u64,
    pub message_count: u64,
}

impl Watches {
    pub fn is_watched(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody wants pieces of text.
    pub fn wants_deltas(&self) -> bool {
        self.with_deltas.load(Ordering::Relaxed) > 0
    }

    /// Whether a person sees approvals somewhere.
    pub fn has_approver(&self) -> bool {
        self.approvers.load(Ordering::Relaxed) > 0
    }

    pub fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many watch on other connections than this one.
    pub fn count_beside(&self, connection: usize) -> usize {
        let watchers = lock(&self.watchers);
        watchers.entries.values().filter(|entry| entry.owner.connection != connection).count()
    }

    /// Tells what happened to an agent, where somebody watches: only then is `event` made.
    pub fn tell(&self, agent: &AgentId, turn: Option<&TurnId>, event: impl FnOnce() -> Event) {
        if self.is_watched() {
            self.put(Some(agent.clone()), turn.cloned(), event());
        }
    }

    /// The number of what was told last. What is told from now on has others.
    pub(crate) fn moment(&self) -> u64 {
        let mut inbox = lock(&self.inbox);
        inbox.sealed = true;
        inbox.last
    }

    fn put(&self, agent: Option<AgentId>, turn: Option<TurnId>, event: Event) {
        let at = crate::now();
        let told = Happening { agent, turn, at, event, encoded: OnceLock::new() };
        {
            let mut inbox = lock(&self.inbox);
            inbox.last += 1;
            inbox.put(told);
        }
        self.filled.notify_one();
    }

    /// Begins to keep what happens for a further watcher. It sees nothing before it is [admitted](Watch::admit).
    pub(crate) fn open(
        self: &Arc<Self>,
        owner: Owner,
        interest: Interest,
    ) -> Result<Watch, TooMany> {
        let queue = Arc::<Queue>::default();
        let id = {
            let mut watchers = lock(&self.watchers);
            watchers.check(&owner)?;
            watchers.last += 1;
            let id = watchers.last;
            let filter = Filter { deltas: interest.deltas, ..Filter::default() };
            let (name, queue) = (interest.name.clone(), queue.clone());
            watchers.entries.insert(id, Entry { owner, name, filter, opening: true, queue });
            self.open.fetch_add(1, Ordering::Relaxed);
            self.with_deltas.fetch_add(usize::from(interest.deltas), Ordering::Relaxed);
            self.approvers.fetch_add(usize::from(interest.approver), Ordering::Relaxed);
            id
        };
        if !std::mem::replace(&mut lock(&self.inbox).carried, true) {
            tokio::spawn(self.clone().carry());
        }
        // Should all be closed, the carrier ends this one too.
        self.filled.notify_one();
        let watches = self.clone();
        Ok(Watch { watches, id, interest, queue, known: Known::default(), known_until: 0 })
    }

    /// The names that watchers gave.
    pub fn names(&self) -> Vec<String> {
        let watchers = lock(&self.watchers);
        watchers.entries.values().filter_map(|entry| entry.name.clone()).collect()
    }

    /// Ends a watch of `requester`, or any as the administrator. False when there is none of that number.
    pub fn unwatch(&self, requester: &Requester, id: u64) -> bool {
        let watchers = lock(&self.watchers);
        let found = watchers.entries.get(&id).filter(|entry| {
            *requester == Requester::Administrator || entry.owner.requester == *requester
        });
        found.inspect(|entry| entry.finish(Over::Unwatched)).is_some()
    }

    /// Tells that the server is about to stop.
    pub fn stopping(&self, grace: Duration) {
        if self.is_watched() {
            self.put(None, None, Event::ServerStopping { grace });
        }
    }

    /// Ends all watches, when all that was told before has come to them, and those that are opened from now on.
    pub fn close(&self) {
        lock(&self.inbox).closed = true;
        self.filled.notify_one();
    }

    /// Takes what happens to those who watch, for as long as somebody does.
    async fn carry(self: Arc<Self>) {
        loop {
            self.filled.notified().await;
            loop {
                let (items, overflown, closed) = {
                    let mut inbox = lock(&self.inbox);
                    inbox.bytes = 0;
                    let overflown = std::mem::take(&mut inbox.overflown);
                    (std::mem::take(&mut inbox.items), overflown, inbox.closed)
                };
                if items.is_empty() && !overflown {
                    if closed {
                        lock(&self.watchers).finish(Over::Stopping);
                    }
                    break;
                }
                if overflown {
                    lock(&self.watchers).finish(Over::Gap);
                }
                self.hand_out(items).await;
            }
            let watchers = lock(&self.watchers);
            if watchers.entries.is_empty() {
                let mut inbox = lock(&self.inbox);
                *inbox = Inbox { last: inbox.last, closed: inbox.closed, ..Inbox::default() };
                return;
            }
        }
    }

    /// Puts each of these where its watchers find it.
    async fn hand_out(&self, items: VecDeque<(u64, Happening)>) {
        let items: Vec<Item> =
            items.into_iter().map(|(number, told)| (number, Arc::new(told))).collect();
        let mut told_last = 0;
        loop {
            let told = lock(&self.watchers).hand_out(&items, told_last);
            match told {
                Some(id) => told_last = id,
                None => break,
            }
            tokio::time::sleep(BREATH).await;
        }
        tokio::task::yield_now().await;
    }

    fn tell_watchers(&self) {
        if self.is_watched() {
            self.put(None, None, Event::Watchers(self.names()));
        }
    }
}

impl Inbox {
    fn put(&mut self, told: Happening) {
        let sealed = std::mem::take(&mut self.sealed);
        if let Some((number, last)) = self.items.back_mut()
            && !sealed
            && last.join(&told)
        {
            *number = self.last;
            self.bytes += told.event.bytes();
            return;
        }
        self.bytes += told.event.bytes();
        if self.bytes > INBOX_BYTES_MAX {
            self.items.clear();
            self.bytes = 0;
            self.overflown = true;
            return;
        }
        self.items.push_back((self.last, told));
    }
}

impl Watchers {
    /// Agents leave places for the administrator.
    fn check(&self, owner: &Owner) -> Result<(), TooMany> {
        let same = |entry: &&Entry| match &owner.requester {
            Requester::Administrator => entry.owner == *owner,
            agent => entry.owner.requester == *agent,
        };
        if self.entries.values().filter(same).count() >= WATCHES_PER_CALLER_MAX {
            return Err(TooMany::OfCaller);
        }
        let max = match &owner.requester {
            Requester::Administrator => WATCHES_MAX,
            Requester::Agent(_) => WATCHES_MAX - WATCHES_PER_CALLER_MAX,
        };
        if self.entries.len() >= max {
            return Err(TooMany::All);
        }
        Ok(())
    }

    fn finish(&self, over: Over) {
        self.entries.values().for_each(|entry| entry.finish(over));
    }

    /// Hands these to some of the watchers after `told_last`. Returns the last of them when there may be more.
    fn hand_out(&mut self, items: &[Item], told_last: u64) -> Option<u64> {
        let rest = (Bound::Excluded(told_last), Bound::Unbounded);
        let mut told = 0;
        for (id, entry) in self.entries.range_mut(rest) {
            told += usize::from(entry.take(items));
            if told >= AT_ONCE_MAX {
                return Some(*id);
            }
        }
        None
    }
}

impl Entry {
    /// Whether any of these is for the watcher.
    fn take(&mut self, items: &[Item]) -> bool {
        let mut any = false;
        for (number, told) in items {
            let pass = match self.opening {
                true => Pass::Yes,
                false => self.filter.pass(told),
            };
            match pass {
                Pass::No => continue,
                Pass::Yes => self.queue.push(*number, told),
                Pass::Last => {
                    self.queue.push(*number, told);
                    self.queue.end(Over::Gone);
                }
            }
            any = true;
        }
        if any {
            self.queue.wake();
        }
        any
    }

    fn finish(&self, over: Over) {
        self.queue.end(over);
        self.queue.wake();
    }
}

impl Filter {
    /// Whether the watcher is told. What comes into being and what is renamed changes what it sees.
    fn pass(&mut self, told: &Happening) -> Pass {
        let Some(agent) = &told.agent else {
            // Who else watches is the administrator's to know.
            let shown = self.own.is_none() || !matches!(told.event, Event::Watchers(_));
            return if shown { Pass::Yes } else { Pass::No };
        };
        if !self.deltas && told.event.is_live() {
            return Pass::No;
        }
        let own = self.own.as_ref() == Some(agent);
        let Scope::Some { seen, families } = &mut self.scope else { return Pass::Yes };
        let passes = match &told.event {
            Event::AgentCreated { lineage, .. } => {
                if lineage.iter().any(|above| families.contains(above)) {
                    seen.insert(agent.clone());
                }
                seen.contains(agent)
            }
            Event::AgentRenamed { to } => {
                if families.remove(agent) {
                    families.insert(to.clone());
                }
                let passes = seen.remove(agent);
                if passes {
                    seen.insert(to.clone());
                }
                passes
            }
            Event::AgentEnded => {
                families.remove(agent);
                seen.remove(agent)
            }
            Event::ApprovalRequested { record } | Event::ApprovalDecided { record } => {
                seen.contains(agent) || record.lineage.iter().any(|above| seen.contains(above))
            }
            _ => seen.contains(agent),
        };
        let parts = matches!(told.event, Event::AgentRenamed { .. } | Event::AgentEnded);
        match passes {
            false => Pass::No,
            true if parts && (own || seen.is_empty()) => Pass::Last,
            true => Pass::Yes,
        }
    }
}

impl Watch {
    /// Names the watch.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Tells what came since it was opened, and what comes, as far as `scope` goes, but for what is `known` already.
    pub(crate) fn admit(&mut self, scope: Scope, known: Known) {
        self.known = known;
        let mut watchers = lock(&self.watches.watchers);
        // After the watchers are held: all that is told later is newer than what is known.
        self.known_until = self.watches.moment();
        let Some(entry) = watchers.entries.get_mut(&self.id) else { return };
        let own = match &entry.owner.requester {
            Requester::Administrator => None,
            Requester::Agent(own) => Some(own.clone()),
        };
        entry.filter = Filter { scope, deltas: self.interest.deltas, own };
        entry.opening = false;
        let filter = &mut entry.filter;
        let mut last = false;
        self.queue.open(self.known_until, |told| match filter.pass(told) {
            Pass::No => false,
            Pass::Yes => true,
            Pass::Last => {
                last = true;
                true
            }
        });
        if last {
            entry.finish(Over::Gone);
        }
        drop(watchers);
        if self.interest.name.is_some() {
            self.watches.tell_watchers();
        }
    }

    /// What happened next.
    pub async fn next(&mut self) -> Result<Arc<Happening>, Over> {
        loop {
            let (number, told) = self.queue.next().await?;
            if !self.is_known(number, &told) {
                return Ok(told);
            }
        }
    }

    /// Whether the watcher was told this when it was told how things stand.
    fn is_known(&mut self, number: u64, told: &Happening) -> bool {
        let Known { cuts, asked } = &mut self.known;
        if cuts.is_empty() && asked.is_empty() {
            return false;
        }
        if number > self.known_until {
            self.known = Known::default();
            return false;
        }
        match &told.event {
            Event::ApprovalRequested { record, .. } => return asked.contains(&record.id),
            Event::ApprovalDecided { .. } => return false,
            _ => {}
        }
        let Some(cut) = told.agent.as_ref().and_then(|agent| cuts.get(agent)) else {
            return false;
        };
        let known = number <= cut.moment;
        match &told.event {
            Event::Message { index, .. } => known || *index < cut.message_count,
            Event::AgentRenamed { to } if !known => {
                let cut = *cut;
                cuts.insert(to.clone(), cut);
                false
            }
            _ => known,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(entry) = lock(&self.watches.watchers).entries.remove(&self.id) else { return };
        self.watches.open.fetch_sub(1, Ordering::Relaxed);
        self.watches.with_deltas.fetch_sub(usize::from(self.interest.deltas), Ordering::Relaxed);
        self.watches.approvers.fetch_sub(usize::from(self.interest.approver), Ordering::Relaxed);
        // The last one lets the task go that carries.
        self.watches.filled.notify_one();
        if entry.name.is_some() {
            self.watches.tell_watchers();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ApprovalRecord, ApprovalStatus};

    fn told(agent: &str, event: Event) -> Happening {
        let agent = Some(AgentId::parse(agent).unwrap());
        Happening { agent, turn: None, at: crate::now(), event, encoded: OnceLock::new() }
    }

    fn ids(names: &[&str]) -> HashSet<AgentId> {
        names.iter().map(|name| AgentId::parse(name).unwrap()).collect()
    }

    fn filter(seen: &[&str], families: &[&str]) -> Filter {
        let scope = Scope::Some { seen: ids(seen), families: ids(families) };
        Filter { scope, deltas: false, own: None }
    }

    fn asked(lineage: &[&str]) -> Event {
        let record = Box::new(ApprovalRecord {
            id: "x".into(),
            agent: AgentId::default_agent(),
            born: 0,
            tool: "exec".into(),
            arguments: serde_json::json!({}),
            reason: String::new(),
            created_at: crate::now(),
            lineage: lineage.iter().map(|name| AgentId::parse(name).unwrap()).collect(),
            turn: None,
            expires_at: None,
            grant: None,
            preview: None,
            inquiry: None,
            answer: ApprovalStatus::Pending.into(),
        });
        Event::ApprovalRequested { record }
    }

    #[test]
    fn what_an_agent_asks_is_told_to_who_watches_one_above_it() {
        let mut filter = filter(&["p"], &[]);
        assert!(matches!(filter.pass(&told("c", asked(&["p", "m"]))), Pass::Yes));
        assert!(matches!(filter.pass(&told("c", asked(&["m"]))), Pass::No));
        assert!(matches!(filter.pass(&told("c", Event::AgentEnded)), Pass::No));
    }

    #[test]
    fn a_name_is_followed_and_the_last_that_goes_ends_it() {
        let mut filter = filter(&["a", "b"], &["a"]);
        let renamed = || Event::AgentRenamed { to: AgentId::parse("c").unwrap() };
        assert!(matches!(filter.pass(&told("a", renamed())), Pass::Yes));
        assert!(matches!(filter.pass(&told("a", Event::AgentLeftMemory)), Pass::No));
        assert!(matches!(filter.pass(&told("c", Event::AgentLeftMemory)), Pass::Yes));
        assert!(matches!(filter.pass(&told("b", Event::AgentEnded)), Pass::Yes));
        assert!(matches!(filter.pass(&told("c", Event::AgentEnded)), Pass::Last));
    }

    #[test]
    fn what_an_agents_token_opened_ends_with_its_name() {
        let mut filter =
            Filter { own: Some(AgentId::parse("a").unwrap()), ..filter(&["a", "p"], &["a"]) };
        let renamed = Event::AgentRenamed { to: AgentId::parse("c").unwrap() };
        assert!(matches!(filter.pass(&told("a", renamed)), Pass::Last));
        let watchers = Happening { agent: None, ..told("a", Event::Watchers(Vec::new())) };
        assert!(matches!(filter.pass(&watchers), Pass::No));
    }

    /// Whoever looks in between has all that was told before, and nothing of what is told then.
    #[test]
    fn what_is_told_after_a_look_is_not_joined_to_what_was_told_before() {
        let watches = Watches::default();
        watches.open.store(1, Ordering::Relaxed);
        let agent = AgentId::default_agent();
        let say = |offset: u64| {
            let piece = Piece { step: 1, offset, end: offset + 1, text: "x".into() };
            watches.tell(&agent, None, || Event::Delta(piece));
        };
        say(0);
        say(1);
        assert_eq!(watches.moment(), 2);
        say(2);
        say(3);
        let numbers: Vec<_> =
            lock(&watches.inbox).items.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 4]);
    }
}
