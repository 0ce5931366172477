//! Which agent waits for which: two that wait for each other would wait for ever.

use std::collections::HashMap;
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
    /// Who waits for whom.
    waits: HashMap<u64, (u64, u64)>,
}

/// One wait; it is over when this is dropped.
pub struct Wait<'a> {
    waits: &'a Waits,
    number: u64,
}

impl Waits {
    /// Notes that `who` is about to wait for `whom`. `None` when `whom`, directly or through others, waits for `who`.
    pub fn begin(&self, who: u64, whom: u64) -> Option<Wait<'_>> {
        let mut edges = lock(&self.edges);
        let (mut reached, mut next) = (vec![whom], 0);
        while next < reached.len() {
            if reached[next] == who {
                return None;
            }
            let further = edges.waits.values().filter(|(from, _)| *from == reached[next]);
            let further: Vec<_> =
                further.map(|(_, to)| *to).filter(|it| !reached.contains(it)).collect();
            reached.extend(further);
            next += 1;
        }
        edges.next += 1;
        let number = edges.next;
        edges.waits.insert(number, (who, whom));
        Some(Wait { waits: self, number })
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        lock(&self.waits.edges).waits.remove(&self.number);
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
