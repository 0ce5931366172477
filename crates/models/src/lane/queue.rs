//! Who is next: fair by tree of agents, then by agent, whatever each of them asks for.
//!
//! Calls that somebody watches share four parts of five with those of nobody, as long as both wait; housekeeping goes
//! when nothing else does. Within each, the trees take turns, and within a tree its agents. A call that was sent and
//! refused keeps its place before all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use nexus_core::provider::{ProviderError, Urgency};
use tokio::sync::oneshot;

use super::Granted;

/// Calls that wait. Each takes some hundred bytes, and its agent a good deal more.
pub(super) const WAITING_MAX: usize = 4096;

/// Watched calls that go before one that nobody watches.
const WATCHED_SHARE: u32 = 4;

/// A call that waits.
pub(super) struct Entry {
    /// In the order of their coming.
    pub id: u64,
    pub root: Arc<str>,
    pub agent: Arc<str>,
    pub urgency: Urgency,
    pub model: Arc<str>,
    /// What it will take of the limits on tokens.
    pub tokens: u64,
    /// The longest wait that it sleeps through, where it has one of its own.
    pub wait_max: Option<Duration>,
    /// Where it hears that it may go, or that it need not wait.
    pub answer: oneshot::Sender<Result<Granted, ProviderError>>,
}

#[derive(Default)]
pub(super) struct Queue {
    /// Those that were sent before, the oldest first.
    returning: VecDeque<Entry>,
    watched: Trees,
    usual: Trees,
    background: Trees,
    /// Watched calls since the last that nobody watches.
    watched_in_a_row: u32,
    len: usize,
}

type Trees = Ring<Ring<VecDeque<Entry>>>;

impl Queue {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, entry: Entry) {
        self.len += 1;
        let path = [entry.root.clone(), entry.agent.clone()];
        self.class(entry.urgency).push(&path, entry);
    }

    /// For a call that was sent before.
    pub fn push_returning(&mut self, entry: Entry) {
        self.len += 1;
        let place = self.returning.partition_point(|other| other.id < entry.id);
        self.returning.insert(place, entry);
    }

    /// The next of those that `may` go.
    pub fn next(&mut self, may: &mut dyn FnMut(&Entry) -> bool) -> Option<Entry> {
        let next = self.choose(may);
        self.len -= usize::from(next.is_some());
        next
    }

    fn choose(&mut self, may: &mut dyn FnMut(&Entry) -> bool) -> Option<Entry> {
        if let Some(place) = self.returning.iter().position(&mut *may) {
            return self.returning.remove(place);
        }
        let usual_first = self.watched_in_a_row >= WATCHED_SHARE;
        if usual_first && let Some(entry) = self.usual.next(may) {
            self.watched_in_a_row = 0;
            return Some(entry);
        }
        if let Some(entry) = self.watched.next(may) {
            self.watched_in_a_row = (self.watched_in_a_row + 1).min(WATCHED_SHARE);
            return Some(entry);
        }
        if !usual_first && let Some(entry) = self.usual.next(may) {
            self.watched_in_a_row = 0;
            return Some(entry);
        }
        self.background.next(may)
    }

    /// For a call that nobody waits for any more.
    pub fn remove(&mut self, id: u64, root: &Arc<str>, agent: &Arc<str>, urgency: Urgency) {
        let path = [root.clone(), agent.clone()];
        let found = match self.returning.iter().position(|entry| entry.id == id) {
            Some(place) => self.returning.remove(place).is_some(),
            None => self.class(urgency).remove(&path, id),
        };
        self.len -= usize::from(found);
    }

    fn class(&mut self, urgency: Urgency) -> &mut Trees {
        match urgency {
            Urgency::Watched => &mut self.watched,
            Urgency::Usual => &mut self.usual,
            Urgency::Background => &mut self.background,
        }
    }

    /// Takes out all that are `meant`.
    pub fn take(&mut self, meant: &mut dyn FnMut(&Entry) -> bool) -> Vec<Entry> {
        let mut taken = Vec::new();
        while let Some(place) = self.returning.iter().position(&mut *meant) {
            taken.extend(self.returning.remove(place));
        }
        for class in [&mut self.watched, &mut self.usual, &mut self.background] {
            class.take(meant, &mut taken);
        }
        self.len -= taken.len();
        taken
    }
}

/// Something that calls wait in.
trait Line: Default {
    fn is_empty(&self) -> bool;

    /// `path` names the lines on the way that are still to come.
    fn push(&mut self, path: &[Arc<str>], entry: Entry);

    fn next(&mut self, may: &mut dyn FnMut(&Entry) -> bool) -> Option<Entry>;

    /// Whether it was there.
    fn remove(&mut self, path: &[Arc<str>], id: u64) -> bool;

    fn take(&mut self, meant: &mut dyn FnMut(&Entry) -> bool, taken: &mut Vec<Entry>);
}

/// The calls of one agent, the oldest first.
impl Line for VecDeque<Entry> {
    fn is_empty(&self) -> bool {
        VecDeque::is_empty(self)
    }

    fn push(&mut self, _: &[Arc<str>], entry: Entry) {
        self.push_back(entry);
    }

    fn next(&mut self, may: &mut dyn FnMut(&Entry) -> bool) -> Option<Entry> {
        let place = self.iter().position(may)?;
        VecDeque::remove(self, place)
    }

    fn remove(&mut self, _: &[Arc<str>], id: u64) -> bool {
        let place = self.iter().position(|entry| entry.id == id);
        place.is_some_and(|place| VecDeque::remove(self, place).is_some())
    }

    fn take(&mut self, meant: &mut dyn FnMut(&Entry) -> bool, taken: &mut Vec<Entry>) {
        while let Some(place) = self.iter().position(&mut *meant) {
            taken.extend(VecDeque::remove(self, place));
        }
    }
}

/// Lines that take turns. One that is empty is not kept.
struct Ring<L> {
    order: VecDeque<Arc<str>>,
    lines: HashMap<Arc<str>, L>,
}

impl<L> Default for Ring<L> {
    fn default() -> Self {
        Self { order: VecDeque::new(), lines: HashMap::new() }
    }
}

impl<L: Line> Line for Ring<L> {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn push(&mut self, path: &[Arc<str>], entry: Entry) {
        let Some((name, rest)) = path.split_first() else { return };
        let line = self.lines.entry(name.clone()).or_insert_with(|| {
            self.order.push_back(name.clone());
            L::default()
        });
        line.push(rest, entry);
    }

    fn next(&mut self, may: &mut dyn FnMut(&Entry) -> bool) -> Option<Entry> {
        for _ in 0..self.order.len() {
            let name = self.order.pop_front()?;
            let line = self.lines.get_mut(&name)?;
            let found = line.next(may);
            if line.is_empty() {
                self.lines.remove(&name);
            } else {
                self.order.push_back(name);
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn remove(&mut self, path: &[Arc<str>], id: u64) -> bool {
        let Some((name, rest)) = path.split_first() else { return false };
        let Some(line) = self.lines.get_mut(name) else { return false };
        let found = line.remove(rest, id);
        if line.is_empty() {
            self.lines.remove(name);
            self.order.retain(|other| other != name);
        }
        found
    }

    fn take(&mut self, meant: &mut dyn FnMut(&Entry) -> bool, taken: &mut Vec<Entry>) {
        self.lines.retain(|_, line| {
            line.take(meant, taken);
            !line.is_empty()
        });
        self.order.retain(|name| self.lines.contains_key(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, root: &str, agent: &str, urgency: Urgency) -> Entry {
        Entry {
            id,
            root: root.into(),
            agent: agent.into(),
            urgency,
            model: "m".into(),
            tokens: 0,
            wait_max: None,
            answer: oneshot::channel().0,
        }
    }

    /// A queue of calls given as `root/agent`, all of one urgency.
    fn queue(calls: &str, urgency: Urgency) -> Queue {
        let mut queue = Queue::default();
        add(&mut queue, calls, urgency);
        queue
    }

    fn add(queue: &mut Queue, calls: &str, urgency: Urgency) {
        for (id, call) in calls.split_whitespace().enumerate() {
            let (root, agent) = call.split_once('/').unwrap();
            queue.push(entry(id as u64, root, agent, urgency));
        }
    }

    /// In which order they go.
    fn order(queue: &mut Queue) -> String {
        let mut names = Vec::new();
        while let Some(entry) = queue.next(&mut |_| true) {
            names.push(format!("{}/{}", entry.root, entry.agent));
        }
        assert!(queue.is_empty());
        names.join(" ")
    }

    #[test]
    fn trees_take_turns_and_within_a_tree_agents() {
        let mut queue = queue("a/1 a/1 a/1 a/2 a/3 b/1 b/1 c/1 c/2", Urgency::Usual);
        assert_eq!(order(&mut queue), "a/1 b/1 c/1 a/2 b/1 c/2 a/3 a/1 a/1");
    }

    #[test]
    fn watched_calls_go_four_to_one_and_housekeeping_last() {
        let mut queue = queue("w/1 w/1 w/1 w/1 w/1 w/1 w/1 w/1 w/1", Urgency::Watched);
        add(&mut queue, "u/1 u/1 u/1 u/1", Urgency::Usual);
        add(&mut queue, "b/1 b/1", Urgency::Background);
        assert_eq!(
            order(&mut queue),
            "w/1 w/1 w/1 w/1 u/1 w/1 w/1 w/1 w/1 u/1 w/1 u/1 u/1 b/1 b/1"
        );
    }

    #[test]
    fn one_that_was_sent_before_keeps_its_place() {
        let mut queue = queue("a/1 b/1", Urgency::Watched);
        queue.push_returning(entry(7, "c", "1", Urgency::Usual));
        queue.push_returning(entry(3, "d", "1", Urgency::Background));
        assert_eq!(order(&mut queue), "d/1 c/1 a/1 b/1");
    }

    #[test]
    fn those_that_may_not_go_are_passed_over_and_lose_nothing() {
        let mut queue = queue("a/1 a/1 b/1 c/1", Urgency::Usual);
        let mut not_a = |entry: &Entry| &*entry.root != "a";
        assert_eq!(&*queue.next(&mut not_a).unwrap().root, "b");
        assert_eq!(&*queue.next(&mut not_a).unwrap().root, "c");
        assert!(queue.next(&mut not_a).is_none());
        assert_eq!(queue.len(), 2);
        assert_eq!(order(&mut queue), "a/1 a/1");
    }

    #[test]
    fn what_is_taken_out_leaves_nothing_behind() {
        let mut queue = queue("a/1 a/2 b/1", Urgency::Usual);
        queue.push_returning(entry(9, "a", "1", Urgency::Usual));
        assert_eq!(queue.take(&mut |entry| &*entry.root == "a").len(), 3);
        assert_eq!(queue.len(), 1);
        assert_eq!((queue.usual.order.len(), queue.usual.lines.len()), (1, 1));
        let (b, one) = ("b".into(), "1".into());
        queue.remove(7, &b, &one, Urgency::Usual);
        assert_eq!(queue.len(), 1, "no such call");
        queue.remove(2, &b, &one, Urgency::Usual);
        assert!(queue.is_empty() && queue.usual.is_empty() && queue.usual.lines.is_empty());
    }
}
