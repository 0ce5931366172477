//! Which agent waits for which: two that wait for each other would wait for ever.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

use crate::lock;

/// Agents whose running turn waits for another agent's answer, by their numbers: names change. A turn may wait for
/// several at once.
#[derive(Default)]
pub struct Waits {
    edges: Mutex<Edges>,
}

#[derive(Default)]
struct Edges {
    next: u64,
    /// Whom each agent waits for, by the number of the wait.
    waits: HashMap<u64, BTreeMap<u64, u64>>,
}

/// One wait; it is over when this is dropped.
pub struct Wait<'a> {
    waits: &'a Waits,
    who: u64,
    number: u64,
}

impl Waits {
    /// Notes that `who` is about to wait for `whom`. `None` when `whom`, directly or through others, waits for `who`.
    pub fn begin(&self, who: u64, whom: u64) -> Option<Wait<'_>> {
        let mut edges = lock(&self.edges);
        let (mut next, mut reached) = (vec![whom], HashSet::from([whom]));
        while let Some(agent) = next.pop() {
            if agent == who {
                return None;
            }
            let further = edges.waits.get(&agent).into_iter().flat_map(BTreeMap::values);
            next.extend(further.filter(|further| reached.insert(**further)));
        }
        edges.next += 1;
        let number = edges.next;
        edges.waits.entry(who).or_default().insert(number, whom);
        Some(Wait { waits: self, who, number })
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut edges = lock(&self.waits.edges);
        if let Some(waits) = edges.waits.get_mut(&self.who) {
            waits.remove(&self.number);
            if waits.is_empty() {
                edges.waits.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_noticed_and_a_wait_ends() {
        let (a, b, c) = (1, 2, 3);
        let waits = Waits::default();
        assert!(waits.begin(a, a).is_none());
        let _ab = waits.begin(a, b).unwrap();
        let bc = waits.begin(b, c).unwrap();
        let _ac = waits.begin(a, c).unwrap();
        assert!(waits.begin(c, a).is_none());
        assert!(waits.begin(b, a).is_none());
        drop(bc);
        assert!(waits.begin(b, c).is_some());
        assert!(waits.begin(c, b).is_some());
    }
}
