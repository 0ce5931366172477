//! Which agent waits for which: two that wait for each other would wait for ever.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::lock;
use crate::name::AgentId;

/// Agents whose running turn waits for another agent's answer. A turn may wait for several at once.
#[derive(Default)]
pub struct Waits {
    edges: Mutex<HashMap<AgentId, Vec<AgentId>>>,
}

/// One wait; it is over when this is dropped.
pub struct Wait<'a> {
    waits: &'a Waits,
    who: AgentId,
    whom: AgentId,
}

impl Waits {
    /// Notes that `who` is about to wait for `whom`. `None` when `whom`, directly or through others, waits for `who`.
    pub fn begin(&self, who: &AgentId, whom: &AgentId) -> Option<Wait<'_>> {
        let mut edges = lock(&self.edges);
        let (mut reached, mut next) = (vec![whom.clone()], 0);
        while next < reached.len() {
            if reached[next] == *who {
                return None;
            }
            let further = edges.get(&reached[next]).into_iter().flatten();
            let further: Vec<_> = further.filter(|id| !reached.contains(id)).cloned().collect();
            reached.extend(further);
            next += 1;
        }
        edges.entry(who.clone()).or_default().push(whom.clone());
        Some(Wait { waits: self, who: who.clone(), whom: whom.clone() })
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut edges = lock(&self.waits.edges);
        if let Some(targets) = edges.get_mut(&self.who) {
            if let Some(at) = targets.iter().position(|id| *id == self.whom) {
                targets.swap_remove(at);
            }
            if targets.is_empty() {
                edges.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_noticed_and_a_wait_ends() {
        let id = |name: &str| AgentId::parse(name).unwrap();
        let (a, b, c) = (id("a"), id("b"), id("c"));
        let waits = Waits::default();
        assert!(waits.begin(&a, &a).is_none());
        let _ab = waits.begin(&a, &b).unwrap();
        let bc = waits.begin(&b, &c).unwrap();
        let _ac = waits.begin(&a, &c).unwrap();
        assert!(waits.begin(&c, &a).is_none());
        assert!(waits.begin(&b, &a).is_none());
        drop(bc);
        assert!(waits.begin(&b, &c).is_some());
        assert!(waits.begin(&c, &b).is_some());
    }
}
